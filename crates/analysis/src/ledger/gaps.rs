//! Sums up each probe's gaps on each CPU.
//!
//! Only at the end is it known whether an empty gap proves that the hypervisor or firmware ran.
//! Until then, time around named rows, empty gaps, and gaps whose rows may be missing are summed
//! separately.

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

/// The ledger looks for rows up to this far from an empty gap. If a clock's uncertainty is larger
/// than this, the gap proves nothing.
pub(super) const NEAR_MAX: Nanos = Nanos(1 << NEAR_STEPS);
const NEAR_STEPS: usize = 14;

/// Returns the distance from an empty gap to the nearest row, as the exponent of the next lower
/// power of two. Returns `None` if the distance is [`NEAR_MAX`] or more.
pub(super) fn nearness(distance: Nanos) -> Option<u8> {
    let distance = distance.0.max(1).unsigned_abs();
    u8::try_from(distance.ilog2())
        .ok()
        .filter(|&step| usize::from(step) < NEAR_STEPS)
}

/// Returns whether a row with nearness `near` could be inside the gap, given that the gap's edges
/// are accurate to `uncertainty`.
pub(super) fn is_near(near: Option<u8>, uncertainty: Nanos) -> bool {
    near.is_some_and(|step| Nanos(1 << step) <= uncertainty)
}

/// One CPU's long, short or yielded gaps, split into the parts that are known before the recording
/// ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    gaps: LengthTally,
    named: Nanos,
    pub(super) around: Nanos,
    pub(super) empty: Nanos,
    unmatched: Nanos,
    /// Empty gaps, indexed by the [`nearness`] of the nearest row.
    near: [Tally; NEAR_STEPS],
}

impl Side {
    /// Returns the empty gaps that could contain a row, given that their edges are accurate to
    /// `uncertainty`.
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

/// One of the longest empty gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EmptyGap {
    pub(super) length: Nanos,
    /// Index in [`GapBook::sides`].
    pub(super) side: usize,
    /// [`nearness`] of the nearest row.
    pub(super) near: Option<u8>,
}

/// All gaps that one probe saw on one CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct GapBook {
    pub(super) long: Side,
    pub(super) short: Side,
    /// The spinning probe's gaps in which a program or ticktax ran.
    pub(super) yielded: Side,
    /// Residuals around named rows, indexed by the account of the first row.
    pub(super) around: Vec<Tally>,
    /// Residuals around named rows, summed over all accounts.
    pub(super) all_around: LengthTally,
    /// Gaps without any rows.
    pub(super) empty: LengthTally,
    /// Residuals of gaps that may be missing rows.
    pub(super) unmatched: LengthTally,
    /// The gaps in `unmatched` that contained no known row.
    pub(super) nameless: LengthTally,
    /// Residuals around named rows, indexed by signature, then by side: long, short and yielded
    /// gaps.
    pub(super) residuals: Vec<[Residuals; 3]>,
    /// The longest empty gaps, in a heap with the shortest of them on top.
    longest_empty: BinaryHeap<Reverse<EmptyGap>>,
}

impl GapBook {
    /// Number of longest empty gaps kept. If more entries than this were missed, even the shorter
    /// gaps prove nothing.
    const LONGEST: usize = 256;

    pub(super) fn sides(&self) -> [&Side; 3] {
        [&self.long, &self.short, &self.yielded]
    }

    pub(super) fn longest_empty(&self) -> impl Iterator<Item = EmptyGap> + '_ {
        self.longest_empty.iter().map(|gap| gap.0)
    }

    /// Returns the minimum length of an empty gap that could contain one of `unseen` missed kernel
    /// entries. That is the length of the `unseen`-th longest gap, or 0 if any gap could contain
    /// one.
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

    /// Adds gaps that were summed over a window. Only the histogram shows how much of their time is
    /// in short gaps. The bucket that contains the threshold counts as long.
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

#[derive(Clone, Debug, Default)]
pub(super) struct CpuGaps {
    spin: Option<Box<GapBook>>,
    sleep: Option<Box<GapBook>>,
}

impl CpuGaps {
    pub(super) fn book(&self, probe: ProbeKind) -> Option<&GapBook> {
        match probe {
            ProbeKind::Spin => self.spin.as_deref(),
            ProbeKind::Sleep => self.sleep.as_deref(),
        }
    }

    fn book_mut(&mut self, probe: ProbeKind) -> &mut GapBook {
        let book = match probe {
            ProbeKind::Spin => &mut self.spin,
            ProbeKind::Sleep => &mut self.sleep,
        };
        book.get_or_insert_default()
    }

    /// Adds one gap. `signature` is set if this is a spinning probe's gap and contains named rows.
    pub(super) fn note(
        &mut self,
        gap: &Gap,
        contents: &Contents,
        registry: &Registry,
        signature: Option<usize>,
    ) {
        self.book_mut(gap.probe)
            .note(gap, contents, registry, signature);
    }

    pub(super) fn note_sum(
        &mut self,
        probe: ProbeKind,
        time: Nanos,
        count: u64,
        max: Nanos,
        histogram: &Histogram,
    ) {
        self.book_mut(probe).note_sum(time, count, max, histogram);
    }
}

pub(super) fn parts<'a>(sides: impl Iterator<Item = (&'a Side, Shares)>) -> GapParts {
    let mut sum = GapParts::default();
    let mut gaps = LengthTally::default();
    for (side, shares) in sides {
        gaps.merge(&side.gaps);
        sum.named += side.named;
        sum.entry_exit += shares.entry_exit;
        sum.hypervisor_or_firmware += shares.outside;
        sum.unexplained += side.unmatched + shares.unexplained;
    }
    GapParts {
        gaps: gaps.intervals(),
        time: gaps.tally.time,
        ..sum
    }
}
