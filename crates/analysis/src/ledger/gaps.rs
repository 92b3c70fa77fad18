//! What the probes' gaps on each CPU were made of.
//!
//! Whether an empty gap proves that somebody outside the machine had the CPU is known only at the
//! end, so the sums keep apart what is decided then: what lay around named rows, what was empty,
//! and what could not be told.

use ticktax_model::recording::{Header, Level, ProbeKind};
use ticktax_model::statement::{Class, GapParts, GapStatement};
use ticktax_model::{Cpu, Histogram, Nanos};

use super::accounts::Registry;
use super::contents::Contents;
use super::matching::Gap;
use super::tally::{Lengths, Tally};

/// What an empty gap on a CPU proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The kernel ran nothing: somebody outside had the CPU.
    Outside,
    /// Nothing: a way into the kernel was not watched, or something was lost.
    Unexplained,
    /// Nothing, and full ones tell little: rows of that CPU cannot be placed in time.
    Unplaceable,
}

impl Verdict {
    pub(super) fn on(cpu: Cpu, header: &Header, unplaceable: bool) -> Self {
        let coverage = &header.coverage;
        if unplaceable {
            Self::Unplaceable
        } else if header.level == Level::Kernel
            && coverage.every_entry_watched
            && coverage.lost_on(cpu).events == 0
        {
            Self::Outside
        } else {
            Self::Unexplained
        }
    }
}

/// The gaps of one CPU that are long, or short, and their time by what can be decided at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    gaps: Lengths,
    named: Nanos,
    around: Nanos,
    empty: Nanos,
    unmatched: Nanos,
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
    pub(super) all_around: Lengths,
    /// Gaps with nothing in them.
    pub(super) empty: Lengths,
    /// The residual of gaps of which not all rows could be looked at.
    pub(super) unmatched: Lengths,
    /// Those of them in which nothing was found.
    pub(super) nameless: Lengths,
}

impl GapBook {
    /// The time of all gaps.
    pub(super) fn time(&self) -> Nanos {
        self.long.gaps.tally.time + self.short.gaps.tally.time + self.yielded.gaps.tally.time
    }

    fn note(&mut self, gap: &Gap, contents: &Contents, registry: &Registry) {
        let length = gap.span.dur;
        let residual = length - contents.named;
        let side = if is_lent(gap, contents, registry) {
            &mut self.yielded
        } else if length >= GapStatement::FLOOR {
            &mut self.long
        } else {
            &mut self.short
        };
        side.gaps.add(length, length);
        side.named += contents.explained();
        side.unmatched += contents.unknown;
        match contents.held.first() {
            first if contents.blind => {
                side.unmatched += residual;
                self.unmatched.add(residual, residual);
                if first.is_none() {
                    self.nameless.add(length, length);
                }
            }
            None => {
                side.empty += residual;
                self.empty.add(residual, residual);
            }
            Some(first) => {
                side.around += residual;
                self.all_around.add(residual, residual);
                let account = registry.account_of(first.source).index();
                if account >= self.around.len() {
                    self.around.resize(account + 1, Tally::default());
                }
                self.around[account].add(residual, residual);
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
            short_time += Nanos(middle.saturating_mul(i64::from(counted)));
        }
        let short_count: u64 = short.iter().map(|&counted| u64::from(counted)).sum();
        let (short_time, short_count) = match short_count.min(count) {
            all if all == count => (time, count),
            some => (short_time.min(time), some),
        };
        let side_of = |counts: &[u32], time, count, longest| Lengths {
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

/// Whether a spinning probe's gap is one in which it gave the CPU to somebody who asked for it.
pub(super) fn is_lent(gap: &Gap, contents: &Contents, registry: &Registry) -> bool {
    let asked = |source| {
        let (class, _) = registry.describe(registry.account_of(source));
        matches!(class, Class::Program | Class::Tool)
    };
    gap.probe == ProbeKind::Spin && contents.held.iter().any(|held| asked(held.source))
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

    /// Notes one gap.
    pub(super) fn note(&mut self, gap: &Gap, contents: &Contents, registry: &Registry) {
        self.book(gap.probe).note(gap, contents, registry);
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
pub(super) fn parts<'a>(sides: impl Iterator<Item = (&'a Side, Verdict)>) -> GapParts {
    let mut sum = GapParts::default();
    let mut gaps = Lengths::default();
    for (side, verdict) in sides {
        gaps.merge(&side.gaps);
        sum.named += side.named;
        sum.unexplained += side.unmatched;
        match verdict {
            Verdict::Outside => sum.outside += side.empty,
            Verdict::Unexplained | Verdict::Unplaceable => sum.unexplained += side.empty,
        }
        match verdict {
            Verdict::Unplaceable => sum.unexplained += side.around,
            Verdict::Outside | Verdict::Unexplained => sum.entry_exit += side.around,
        }
    }
    GapParts {
        count: gaps.tally.count,
        time: gaps.tally.time,
        median: gaps.quantile(0.5),
        p99: gaps.quantile(0.99),
        max: gaps.tally.max(),
        ..sum
    }
}
