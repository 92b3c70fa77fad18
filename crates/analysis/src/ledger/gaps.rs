//! What the probes' gaps on each CPU were made of.
//!
//! Whether an empty gap proves that the hypervisor or the firmware had the CPU is known only at the
//! end, so the sums keep apart what is decided then: what lay around named rows, what was empty,
//! and what could not be told.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ticktax_model::recording::ProbeKind;
use ticktax_model::statement::{GapParts, GapStatement};
use ticktax_model::{Histogram, Nanos};

use super::accounts::Registry;
use super::contents::Contents;
use super::entry_exit::Residuals;
use super::matching::Gap;
use super::settled::Shares;
use super::tally::{LengthTally, Tally};

/// How near to an empty gap rows are looked for: no clock is tied more loosely than that.
pub(super) const NEAR_MAX: Nanos = Nanos(1 << NEAR_STEPS);
const NEAR_STEPS: usize = 14;

/// How near to an empty gap a row was, as the power of two below; `None` from [`NEAR_MAX`] on.
pub(super) fn nearness(distance: Nanos) -> Option<u8> {
    let distance = distance.0.max(1).unsigned_abs();
    u8::try_from(distance.ilog2())
        .ok()
        .filter(|&step| usize::from(step) < NEAR_STEPS)
}

/// Whether a row that was so near may be in the gap, where edges may be off by `uncertainty`.
pub(super) fn is_near(near: Option<u8>, uncertainty: Nanos) -> bool {
    near.is_some_and(|step| Nanos(1 << step) <= uncertainty)
}

/// The gaps of one CPU that are long, or short, and their time by what can be decided at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    gaps: LengthTally,
    named: Nanos,
    pub(super) around: Nanos,
    pub(super) empty: Nanos,
    unmatched: Nanos,
    /// Empty gaps by how near to them a row was.
    near: [Tally; NEAR_STEPS],
}

impl Side {
    /// The empty gaps that may hold a row, where edges may be off by `uncertainty`.
    pub(super) fn near(&self, uncertainty: Nanos) -> Tally {
        let mut near = Tally::default();
        for (step, tally) in (0u8..).zip(&self.near) {
            if is_near(Some(step), uncertainty) {
                near.merge(tally);
            }
        }
        near
    }
}

/// An empty gap that is among the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EmptyGap {
    pub(super) length: Nanos,
    /// Its place among [`GapBook::sides`].
    pub(super) side: usize,
    /// How near to it a row was.
    pub(super) near: Option<u8>,
}

/// The gaps that one probe saw on one CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct GapBook {
    pub(super) long: Side,
    pub(super) short: Side,
    /// Of the spinning probe's gaps those in which a program ran, or the tool.
    pub(super) yielded: Side,
    /// The residual around named rows, by the account of the first of them.
    pub(super) around: Vec<Tally>,
    /// The same of all accounts.
    pub(super) all_around: LengthTally,
    /// Gaps with nothing in them.
    pub(super) empty: LengthTally,
    /// The residual of gaps of which not all rows could be looked at.
    pub(super) unmatched: LengthTally,
    /// Those of them in which nothing was found.
    pub(super) nameless: LengthTally,
    /// The residuals around named rows by signature, of each side.
    pub(super) residuals: Vec<[Residuals; 3]>,
    /// The longest empty gaps, the shortest of them first.
    longest_empty: BinaryHeap<Reverse<EmptyGap>>,
}

impl GapBook {
    /// How many of the longest empty gaps are kept: where more entries were not seen, none of the
    /// others proves anything either.
    const LONGEST: usize = 256;

    /// Long gaps, short ones, and those that were yielded.
    pub(super) fn sides(&self) -> [&Side; 3] {
        [&self.long, &self.short, &self.yielded]
    }

    /// The longest empty gaps, in no order.
    pub(super) fn longest_empty(&self) -> impl Iterator<Item = EmptyGap> + '_ {
        self.longest_empty.iter().map(|gap| gap.0)
    }

    /// The length from which on an empty gap may hold one of so many entries that were not seen: that
    /// of the last among the longest so many. 0 where it may be any.
    pub(super) fn suspect_from(&self, unseen: u64, uncertainty: Nanos) -> Nanos {
        let known = self.longest_empty();
        let mut lengths: Vec<Nanos> = known
            .filter(|gap| !is_near(gap.near, uncertainty))
            .map(|gap| gap.length)
            .collect();
        lengths.sort_unstable_by_key(|&length| Reverse(length));
        let place = usize::try_from(unseen).unwrap_or(usize::MAX);
        match place.checked_sub(1) {
            None => Nanos::MAX,
            Some(last) => lengths.get(last).copied().unwrap_or(Nanos::ZERO),
        }
    }

    fn note_empty(&mut self, gap: EmptyGap) {
        if self.longest_empty.len() < Self::LONGEST {
            self.longest_empty.push(Reverse(gap));
        } else if let Some(mut shortest) = self.longest_empty.peek_mut()
            && shortest.0 < gap
        {
            *shortest = Reverse(gap);
        }
    }

    /// The time of all gaps.
    pub(super) fn time(&self) -> Nanos {
        self.long.gaps.tally.time + self.short.gaps.tally.time + self.yielded.gaps.tally.time
    }

    fn note(
        &mut self,
        gap: &Gap,
        contents: &Contents,
        registry: &Registry,
        signature: Option<usize>,
    ) {
        let length = gap.span.dur;
        let residual = length - contents.named;
        let (place, side) = if contents.yielded {
            (2, &mut self.yielded)
        } else if length >= GapStatement::FLOOR {
            (0, &mut self.long)
        } else {
            (1, &mut self.short)
        };
        side.gaps.add(length, length);
        side.named += contents.explained();
        side.unmatched += contents.unknown;
        match contents.held.first() {
            first if contents.incomplete => {
                side.unmatched += residual;
                self.unmatched.add(residual, residual);
                if first.is_none() {
                    self.nameless.add(length, length);
                }
            }
            None => {
                side.empty += residual;
                if let Some(near) = contents.near {
                    side.near[usize::from(near)].add(residual, residual);
                }
                self.empty.add(residual, residual);
                self.note_empty(EmptyGap {
                    length,
                    side: place,
                    near: contents.near,
                });
            }
            Some(first) => {
                side.around += residual;
                self.all_around.add(residual, residual);
                let account = registry.account_of(first.source).index();
                if account >= self.around.len() {
                    self.around.resize(account + 1, Tally::default());
                }
                self.around[account].add(residual, residual);
                if let Some(signature) = signature {
                    if signature >= self.residuals.len() {
                        self.residuals.resize_with(signature + 1, Default::default);
                    }
                    self.residuals[signature][place].add(residual);
                }
            }
        }
    }

    /// Takes gaps that were summed over a window. How much of their time is in short ones is known
    /// only by the histogram; the bucket that the floor lies in goes to the long ones.
    fn note_sum(&mut self, time: Nanos, count: u64, max: Nanos, histogram: &Histogram) {
        let floor = Histogram::bucket(GapStatement::FLOOR);
        let (mut short, mut long) = (histogram.counts().to_vec(), histogram.counts().to_vec());
        short[floor..].fill(0);
        long[..floor].fill(0);
        let mut short_time = Nanos::ZERO;
        for (index, &counted) in short.iter().enumerate() {
            let middle = i64::midpoint(Histogram::lower(index).0, Histogram::lower(index + 1).0);
            short_time += Nanos(middle.saturating_mul(i64::try_from(counted).unwrap_or(i64::MAX)));
        }
        let short_count: u64 = short.iter().sum();
        let (short_time, short_count) = match short_count.min(count) {
            all if all == count => (time, count),
            some => (short_time.min(time), some),
        };
        let side_of = |counts: &[u64], time, count, longest| LengthTally {
            tally: Tally {
                time,
                count,
                longest,
            },
            histogram: Histogram::from_counts(counts).unwrap_or_default(),
        };
        let short = side_of(
            &short,
            short_time,
            short_count,
            max.min(Histogram::lower(floor)),
        );
        let long = side_of(&long, time - short_time, count - short_count, max);
        for (side, gaps) in [(&mut self.short, short), (&mut self.long, long)] {
            side.gaps.merge(&gaps);
            side.unmatched += gaps.tally.time;
            self.unmatched.merge(&gaps);
            self.nameless.merge(&gaps);
        }
    }
}

/// The gaps of one CPU, by probe.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuGaps {
    spin: Option<Box<GapBook>>,
    sleep: Option<Box<GapBook>>,
}

impl CpuGaps {
    pub(super) fn of(&self, probe: ProbeKind) -> Option<&GapBook> {
        match probe {
            ProbeKind::Spin => self.spin.as_deref(),
            ProbeKind::Sleep => self.sleep.as_deref(),
        }
    }

    fn book(&mut self, probe: ProbeKind) -> &mut GapBook {
        let book = match probe {
            ProbeKind::Spin => &mut self.spin,
            ProbeKind::Sleep => &mut self.sleep,
        };
        book.get_or_insert_default()
    }

    /// Notes one gap. Where its probe spins, what is around named rows has a `signature`.
    pub(super) fn note(
        &mut self,
        gap: &Gap,
        contents: &Contents,
        registry: &Registry,
        signature: Option<usize>,
    ) {
        self.book(gap.probe)
            .note(gap, contents, registry, signature);
    }

    /// Notes gaps that were summed over a window.
    pub(super) fn note_sum(
        &mut self,
        probe: ProbeKind,
        time: Nanos,
        count: u64,
        max: Nanos,
        histogram: &Histogram,
    ) {
        self.book(probe).note_sum(time, count, max, histogram);
    }
}

/// The four parts of the gaps of all CPUs.
pub(super) fn parts<'a>(sides: impl Iterator<Item = (&'a Side, Shares)>) -> GapParts {
    let mut sum = GapParts::default();
    let mut gaps = LengthTally::default();
    for (side, shares) in sides {
        gaps.merge(&side.gaps);
        sum.named += side.named;
        sum.entry_exit += shares.entry_exit;
        sum.outside += shares.outside;
        sum.unexplained += side.unmatched + shares.unexplained;
    }
    GapParts {
        gaps: gaps.intervals(),
        time: gaps.tally.time,
        ..sum
    }
}
