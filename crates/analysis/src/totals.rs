//! Totals of an endless recording, which an agent exports while rows keep arriving.
//!
//! No time is moved between accounts. A statement moves time according to a probe's gaps, but an
//! agent has no probe, and totals must not change once they have been exported.
//!
//! # Memory
//! Each account has one sum per CPU since the start, and another per window. Once there are
//! [`Accumulator::MOST`] accounts, the time of additional ones goes to an account named `others`,
//! one for each class and CPU.

mod windows;

use std::collections::BTreeMap;
use std::sync::Arc;

use ticktax_model::kernel_words::OTHERS;
use ticktax_model::recording::{CpuInterval, Loss, Row, RowSink};
use ticktax_model::statement::Class;
use ticktax_model::totals::{AccountKey, AccountSums, IntervalSum, Totals};
use ticktax_model::victim::OffCpuReason;
use ticktax_model::{Cpu, Histogram, Nanos, SourceTable, Span};

use crate::ledger::{account_name, is_counted};
use crate::timeline::{Event, EventKind, Keep, OffCpu, Role, Timeline};

pub use self::windows::{Moment, Windows};

/// Adds up rows, both since the start and per window.
#[derive(Debug)]
pub struct Accumulator {
    timeline: Timeline,
    /// How each source is added up, indexed by source ID.
    known: Vec<Option<Known>>,
    accounts: AccountSums,
    throttled: BTreeMap<Arc<str>, IntervalSum>,
    ticks: BTreeMap<Cpu, IntervalSum>,
    windows: Option<Windows>,
}

/// The account that a source's rows go to, and whether the source's intervals count.
#[derive(Clone, Debug)]
struct Known {
    name: Arc<str>,
    counted: bool,
}

impl Default for Accumulator {
    fn default() -> Self {
        Self {
            timeline: Timeline::new(Keep::NOTHING),
            known: Vec::new(),
            accounts: AccountSums::new(),
            throttled: BTreeMap::new(),
            ticks: BTreeMap::new(),
            windows: None,
        }
    }
}

impl Accumulator {
    /// Maximum number of accounts, counting each CPU separately. They take 9 MiB.
    pub const MOST: usize = 8_192;

    /// Also adds up rows per window. Windows are closed through [`Accumulator::windows`].
    #[must_use]
    pub fn with_windows(mut self, windows: Windows) -> Self {
        self.windows = Some(windows);
        self
    }

    /// Returns the windows, or `None` if they were not set with [`Self::with_windows`].
    pub fn windows(&mut self) -> Option<&mut Windows> {
        self.windows.as_mut()
    }

    /// Forgets all sources because subsequent rows use a new table. Keeps the sums.
    pub fn forget_sources(&mut self) {
        self.timeline = Timeline::new(Keep::NOTHING);
        self.known.clear();
    }

    /// Copies the sums into `totals`, replacing those already there.
    pub fn put(&self, totals: &mut Totals) {
        totals.accounts.clone_from(&self.accounts);
        totals.throttled.clone_from(&self.throttled);
        totals.ticks.clone_from(&self.ticks);
    }

    /// Returns the total time of all accounts on `cpu`.
    pub fn accounted(&self, cpu: Cpu) -> Nanos {
        let accounts = self.accounts.iter();
        let accounts = accounts.filter(|(key, _)| key.cpu == cpu);
        accounts.map(|(_, sum)| sum.time).sum()
    }

    /// Returns the CPUs on which accounts plus lost time differ from the elapsed time in `books`,
    /// with the difference. Must be called after the recording has ended.
    pub fn off(&self, books: &[CpuInterval], lost: &[Loss]) -> Vec<(Cpu, Nanos)> {
        let off = books.iter().map(|books| {
            let lost = lost.iter().filter(|loss| loss.cpu == books.cpu);
            let lost: Nanos = lost.map(|loss| loss.self_time).sum();
            let accounted = self.accounted(books.cpu) + lost;
            (books.cpu, accounted - books.elapsed())
        });
        off.filter(|(_, off)| *off != Nanos::ZERO).collect()
    }
}

impl RowSink for Accumulator {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        let (event, _) = self.timeline.event(sources, row);
        let span = event.span;
        match (event.kind(), event.class) {
            (EventKind::OffCpu(off), _) => {
                let intervals = Intervals::One(span);
                throttled(&mut self.throttled, off, intervals, &event);
            }
            (EventKind::Sum(Role::OffCpu(off), sum), _) => {
                let intervals = Intervals::Many(span, sum.count, &sum.histogram);
                throttled(&mut self.throttled, off, intervals, &event);
            }
            (EventKind::Sum(role, sum), Some(class)) => {
                let intervals = Intervals::Many(span, sum.count, &sum.histogram);
                if is_tick(role) {
                    tick(&mut self.ticks, self.windows.as_mut(), intervals);
                }
                let known = known(&mut self.known, class, &event);
                book(&mut self.accounts, class, known, intervals);
                if let Some(windows) = &mut self.windows {
                    book(windows.open(), class, known, intervals);
                }
            }
            (kind, Some(class)) => {
                let intervals = Intervals::One(span);
                if let EventKind::Interrupt(interrupt) = kind
                    && interrupt.is_tick()
                {
                    tick(&mut self.ticks, self.windows.as_mut(), intervals);
                }
                let known = known(&mut self.known, class, &event);
                book(&mut self.accounts, class, known, intervals);
                if let Some(windows) = &mut self.windows {
                    book(windows.open(), class, known, intervals);
                }
            }
            (_, None) => {}
        }
    }
}

/// Adds an interval of the tick function to both the totals and the open window.
fn tick(
    ticks: &mut BTreeMap<Cpu, IntervalSum>,
    windows: Option<&mut Windows>,
    intervals: Intervals<'_>,
) {
    let cpu = intervals.span().cpu;
    intervals.add_to(ticks.entry(cpu).or_default(), true);
    if let Some(windows) = windows {
        intervals.add_to(windows.open_ticks().entry(cpu).or_default(), true);
    }
}

fn is_tick(role: Role) -> bool {
    matches!(role, Role::Interrupt(interrupt) if interrupt.is_tick())
}

/// A single interval, or the sum of many.
#[derive(Clone, Copy)]
enum Intervals<'a> {
    One(&'a Span),
    Many(&'a Span, u64, &'a Histogram),
}

impl Intervals<'_> {
    fn span(&self) -> &Span {
        match self {
            Self::One(span) | Self::Many(span, ..) => span,
        }
    }

    /// Adds the time to `sum`. Also adds the intervals if they are `counted`.
    fn add_to(&self, sum: &mut IntervalSum, counted: bool) {
        match self {
            _ if !counted => sum.time += self.span().self_time,
            Self::One(span) => sum.record(span.self_time, span.dur),
            Self::Many(span, count, histogram) => sum.add(span.self_time, *count, histogram),
        }
    }
}

/// Returns how the event's source is added up.
fn known<'k>(known: &'k mut Vec<Option<Known>>, class: Class, event: &Event<'_>) -> &'k Known {
    let index = event.span.source.0 as usize;
    if index >= known.len() {
        known.resize(index + 1, None);
    }
    known[index].get_or_insert_with(|| {
        let source = event.sources.get(event.span.source);
        Known {
            name: account_name(class, source),
            counted: is_counted(class, source),
        }
    })
}

fn book(accounts: &mut AccountSums, class: Class, known: &Known, intervals: Intervals<'_>) {
    let cpu = intervals.span().cpu;
    let key = |name: &Arc<str>| AccountKey {
        class,
        name: Arc::clone(name),
        cpu,
    };
    let mut at = key(&known.name);
    if accounts.len() >= Accumulator::MOST && !accounts.contains_key(&at) {
        at.name = OTHERS.into();
    }
    intervals.add_to(accounts.entry(at).or_default(), known.counted);
}

/// Adds a wait to its program's sum, provided that the thread was throttled.
fn throttled(
    programs: &mut BTreeMap<Arc<str>, IntervalSum>,
    off: OffCpu,
    intervals: Intervals<'_>,
    event: &Event<'_>,
) {
    if off.reason != Some(OffCpuReason::Throttled) {
        return;
    }
    let source = event.sources.get(event.span.source);
    let thread = source.thread.as_ref();
    let mut name = thread
        .map_or(&source.name, |thread| &thread.program)
        .clone();
    if programs.len() >= Accumulator::MOST && !programs.contains_key(&name) {
        name = OTHERS.into();
    }
    let sum = programs.entry(name).or_default();
    match intervals {
        // Count the whole wait, until the thread ran again. The row's self time covers only the
        // throttled part of the wait, and only if the end of throttling was seen.
        Intervals::One(span) => sum.record(span.dur, span.dur),
        Intervals::Many(..) => intervals.add_to(sum, true),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::recording::{CpuInterval, Loss, Row, RowSink, Sum};
    use ticktax_model::statement::Class;
    use ticktax_model::totals::{IntervalSum, Totals};
    use ticktax_model::{
        Cpu, Histogram, Kind, Nanos, Owner, Source, SourceId, SourceTable, Span, Thread,
    };

    use super::{Accumulator, Moment, Windows};

    fn program(name: &str, tid: i32) -> Source {
        Source {
            owner: Owner::Program,
            thread: Some(Thread {
                pid: tid,
                tid,
                program: name.into(),
            }),
            ..Source::kernel(Kind::Task, name, "")
        }
    }

    fn span(source: SourceId, start: i64, dur: i64, own: i64) -> Span {
        Span {
            cpu: Cpu(1),
            start: Nanos(start),
            dur: Nanos(dur),
            self_time: Nanos(own),
            source,
        }
    }

    fn sum(source: SourceId, lengths: &[i64]) -> Row {
        let mut histogram = Histogram::default();
        for &length in lengths {
            histogram.record(Nanos(length));
        }
        let time: i64 = lengths.iter().sum();
        Row::Sum(Sum {
            span: span(source, 0, 1_000_000, time),
            count: lengths.len() as u64,
            max: Nanos(lengths.iter().copied().max().unwrap_or(0)),
            histogram,
        })
    }

    fn totals(accumulator: &Accumulator) -> Totals {
        let mut totals = Totals::default();
        accumulator.put(&mut totals);
        totals
    }

    fn sum_of<'t>(totals: &'t Totals, class: Class, name: &str) -> &'t IntervalSum {
        let mut accounts = totals.accounts.iter();
        let found = accounts.find(|(key, _)| key.class == class && &*key.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).1
    }

    #[test]
    fn processes_with_one_name_share_an_account_and_functions_do_not_count_as_interrupts() {
        let mut sources = SourceTable::default();
        let mut accumulator = Accumulator::default();
        let a = sources.intern(program("make", 7));
        let b = sources.intern(program("make", 8));
        let timer = sources.intern(Source::kernel(Kind::Irq, "local_timer", ""));
        let tick = sources.intern(Source::kernel(
            Kind::Irq,
            "local_timer",
            "tick_nohz_handler",
        ));
        let worker = sources.intern(Source::kernel(Kind::Task, "kworker/1:0", "vmstat_update"));
        for row in [
            sum(a, &[10, 20]),
            Row::Span(span(b, 100, 50, 40)),
            sum(tick, &[3, 4]),
            sum(timer, &[5, 6]),
            sum(worker, &[9]),
        ] {
            accumulator.row(&sources, &row);
        }
        let totals = totals(&accumulator);
        let make = sum_of(&totals, Class::Program, "make");
        assert_eq!((make.time, make.count), (Nanos(70), 3));
        // An interval's length is its elapsed time rather than its self time.
        assert_eq!(make.histogram.counts()[Histogram::bucket(Nanos(50))], 1);
        let timer = sum_of(&totals, Class::Irq, "local_timer");
        assert_eq!((timer.time, timer.count), (Nanos(18), 2));
        assert_eq!(sum_of(&totals, Class::KernelThread, "kworker").count, 1);
        let tick = &totals.ticks[&Cpu(1)];
        assert_eq!((tick.time, tick.count), (Nanos(7), 2));
    }

    #[test]
    fn sums_stay_when_sources_are_forgotten() {
        let mut accumulator = Accumulator::default();
        for tid in [7, 8] {
            let mut sources = SourceTable::default();
            let name = if tid == 7 { "a" } else { "b" };
            let id = sources.intern(program(name, tid));
            accumulator.row(&sources, &sum(id, &[10]));
            accumulator.forget_sources();
        }
        let totals = totals(&accumulator);
        assert_eq!(sum_of(&totals, Class::Program, "a").time, Nanos(10));
        assert_eq!(sum_of(&totals, Class::Program, "b").time, Nanos(10));
    }

    #[test]
    fn accounts_beyond_the_maximum_are_summed_as_others() {
        let mut sources = SourceTable::default();
        let mut accumulator = Accumulator::default();
        let many = i32::try_from(Accumulator::MOST).unwrap() + 10;
        for tid in 0..many {
            let id = sources.intern(program(&format!("p{tid}"), tid));
            accumulator.row(&sources, &sum(id, &[10]));
        }
        let totals = totals(&accumulator);
        assert_eq!(totals.accounts.len(), Accumulator::MOST + 1);
        assert_eq!(sum_of(&totals, Class::Program, "others").time, Nanos(100));
        assert_eq!(accumulator.accounted(Cpu(1)), Nanos(10 * i64::from(many)));
    }

    #[test]
    fn accounts_plus_lost_time_are_compared_with_elapsed_time() {
        let mut sources = SourceTable::default();
        let mut accumulator = Accumulator::default();
        let id = sources.intern(program("a", 7));
        accumulator.row(&sources, &sum(id, &[70]));
        let books = [CpuInterval {
            cpu: Cpu(1),
            begin: Nanos(100),
            end: Nanos(200),
        }];
        let lost = |time| {
            [Loss {
                self_time: Nanos(time),
                ..Loss::none(Cpu(1))
            }]
        };
        assert_eq!(accumulator.off(&books, &lost(30)), []);
        assert_eq!(accumulator.off(&books, &lost(20)), [(Cpu(1), Nanos(-10))]);
    }

    #[test]
    fn only_throttled_waits_count_as_throttling() {
        let mut sources = SourceTable::default();
        let mut accumulator = Accumulator::default();
        for detail in ["throttled", "preempted"] {
            let wait = Source {
                kind: Kind::Wait,
                detail: detail.into(),
                ..program("a", 7)
            };
            let id = sources.intern(wait);
            accumulator.row(&sources, &sum(id, &[70]));
        }
        let totals = totals(&accumulator);
        assert!(totals.accounts.is_empty());
        assert_eq!(totals.throttled["a"].time, Nanos(70));
        assert_eq!(totals.throttled["a"].count, 1);
    }

    #[test]
    fn a_throttled_wait_counts_until_the_thread_runs_again() {
        let mut sources = SourceTable::default();
        let mut accumulator = Accumulator::default();
        let id = sources.intern(Source {
            kind: Kind::Wait,
            detail: "throttled".into(),
            ..program("a", 7)
        });
        accumulator.row(&sources, &Row::Span(span(id, 100, 50, 40)));
        assert_eq!(totals(&accumulator).throttled["a"].time, Nanos(50));
    }

    #[test]
    fn windows_contain_sums_and_single_intervals() {
        let moment = |seconds: i64| Moment {
            at: Nanos::from_secs(seconds),
            unix_ms: seconds * 1_000,
        };
        let windows = Windows::new(moment(0), Nanos::from_secs(1));
        let mut accumulator = Accumulator::default().with_windows(windows);
        let mut sources = SourceTable::default();
        let id = sources.intern(program("a", 7));
        accumulator.row(&sources, &sum(id, &[10, 20]));
        accumulator.row(&sources, &Row::Span(span(id, 100, 50, 40)));
        let closed = accumulator.windows().unwrap().finish(moment(3));
        let totals = totals(&accumulator);
        assert_eq!(sum_of(&totals, Class::Program, "a").time, Nanos(70));
        for window in closed {
            assert_eq!(window.accounts, totals.accounts, "{:?}", window.kind);
        }
    }
}
