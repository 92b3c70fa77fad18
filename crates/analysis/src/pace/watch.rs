//! Finds another program's loop in its threads' wake-ups and on-CPU periods.
//!
//! A *run* is everything that a thread does between waking up and sleeping or blocking again.
//! Preemption, interrupts and throttling do not end a run, because the thread does not decide when
//! they happen: a quota gives every busy thread a rhythm. Neither does a wait in the kernel, such
//! as for a disk or a lock, unless the thread otherwise has no rhythm.
//!
//! A wait for another thread (at a futex, for example) or for a child process ends a run only if
//! two conditions hold: the thread otherwise hardly ever sleeps, and a timer or a *ticker* ended
//! the wait. A ticker is a thread in the same process that has a rhythm but hardly any work: it
//! sleeps until a frame is due, and then wakes the thread that does the work. Any other wait ends
//! when another thread has done its work, so the rhythm would be that thread's. Nothing but the
//! threads' own wake-ups is used: the program is not changed and need not cooperate.
//!
//! # Memory
//! At most [`MAX`] rows are kept for the process, at 40 bytes each. If there are more, the time
//! from which rows are missing is recorded.

use std::collections::BTreeMap;

use ticktax_beats::FEWEST;
use ticktax_model::kernel_words::SLEEP_FUNCTION;
use ticktax_model::pace::{
    Figures, Frame, FrameMark, FrameRhythm, NoRhythm, ThreadReport, Wakeups,
};
use ticktax_model::recording::{Edge, Effect, Header};
use ticktax_model::victim::{BlockedOn, OffCpuReason};
use ticktax_model::{Cpu, CpuList, Moment, Nanos};

use super::book::{FrameStats, Terms};
use super::frames;
use super::rhythm::{self, ThreadRhythms};
use crate::timeline::{Event, EventKind, Occupant, OffCpu, ThreadId};

/// Maximum number of rows kept. They take up to 40 MiB.
const MAX: usize = 1 << 20;

/// Minimum share of the process's CPU time that the thread with the frames must use. A thread with
/// a smaller share only polls.
const FEW: f64 = 0.05;

/// Minimum delay by timer slack that is subtracted from wake-ups. The kernel ends such a sleep at
/// the next interrupt, so these wake-ups show poorly when a frame was due.
const SLACK: Nanos = Nanos::from_millis(1);

/// Longest time from the start of a wake-up until the thread is runnable.
const UNDERWAY: Nanos = Nanos::from_millis(1);

/// Prefix of the names of the threads that the kernel creates in a process for its `io_uring`.
const HELPER: &str = "iou-";

/// The rows kept for one process.
#[derive(Debug)]
pub(crate) struct Process {
    pid: i32,
    threads: BTreeMap<i32, Rows>,
    kept: usize,
    full_at: Option<Nanos>,
}

#[derive(Debug, Default)]
struct Rows {
    name: String,
    on_cpu: Vec<Piece>,
    /// Intervals in which the thread was asleep, frozen or stopped.
    off: Vec<(Nanos, Nanos)>,
    /// Intervals in which the thread was blocked in the kernel, for example by a disk or a lock.
    blocked: Vec<(Nanos, Nanos)>,
    /// Intervals in which the thread waited for another thread or for a child process.
    for_threads: Vec<(Nanos, Nanos)>,
    /// Times at which a timer woke the thread.
    timers: Vec<Nanos>,
    /// Times at which another thread in the process woke this one, with that thread's ID.
    by_thread: Vec<(Nanos, i32)>,
    /// Ends of sleeps that the timer slack prolonged, with the expiry that the thread requested.
    prolonged: BTreeMap<Nanos, Nanos>,
    cpus: Vec<Cpu>,
}

/// Some or all of a thread's on-CPU period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) cpu: Cpu,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    /// CPU time, excluding interruptions.
    pub(crate) own: Nanos,
    pub(crate) after_idle: bool,
}

/// Everything that a thread does from a wake-up until it sleeps again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadRun {
    /// Time at which the thread was woken. If its timer slack delayed the wake-up by [`SLACK`] or
    /// more, this is the expiry that the thread requested.
    pub(crate) woken: Nanos,
    /// Time at which the thread first ran after the wake-up.
    pub(crate) began: Nanos,
    /// Time at which the thread slept again.
    pub(crate) ended: Nanos,
    /// CPU time used during the run.
    pub(crate) cpu: Nanos,
    /// CPU on which the run started.
    pub(crate) on: Cpu,
    /// Whether the CPU was idle before the run started on it.
    pub(crate) ended_idle: bool,
}

/// The threads, rhythms and frames found in a process.
#[derive(Clone, Debug)]
pub struct WatchedProcess {
    /// Threads in the process, strongest rhythm first.
    pub threads: Vec<ThreadReport>,
    /// Index of the thread whose rhythm defines the frames.
    pub chosen: Option<usize>,
    /// Minimum CPU time of a frame, or `None` if every wake-up counts.
    pub long_from: Option<Nanos>,
    /// Statistics about the frames, or `None` if no thread has a rhythm.
    pub figures: Option<Figures>,
    /// Frames, in order.
    pub frames: Vec<Frame>,
    /// Number of frames in the last full second, or `None` if no second has passed yet.
    pub last_second: Option<u64>,
    /// Wake-ups of the chosen thread.
    pub wakeups: Option<Wakeups>,
    /// CPUs on which the chosen thread ran.
    pub cpus: CpuList,
    /// Time after which no more rows were kept because there were too many.
    pub full_at: Option<Nanos>,
}

impl Process {
    pub(crate) fn new(pid: i32) -> Self {
        Self {
            pid,
            threads: BTreeMap::new(),
            kept: 0,
            full_at: None,
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the rhythm and frames of the process that the recording followed, or `None` if it
    /// did not follow any.
    pub(crate) fn watched(&self, header: &Header) -> Option<WatchedProcess> {
        let begin = header.followed_since()?;
        Some(self.judge(begin, header.end(), header.overshot_threshold))
    }

    /// Finds the rhythm and frames in the rows so far, watched from `begin` to `end`. For
    /// `overshot_from`, see [`Terms`].
    pub(crate) fn judge(
        &self,
        begin: Nanos,
        end: Nanos,
        overshot_from: Option<Nanos>,
    ) -> WatchedProcess {
        let end = self.full_at.map_or(end, |full| full.min(end));
        let all: Nanos = self.threads.values().map(Rows::cpu).sum();
        let is_helper = |tid: &i32| self.threads[tid].name.starts_with(HELPER);
        let has_work = |tid: &i32| !is_helper(tid) && self.threads[tid].cpu().share_of(all) >= FEW;
        let found = self.rhythms(begin, end, &is_helper, &has_work);
        let why_not = |tid: &i32| match has_work(tid) {
            true => None,
            false if is_helper(tid) => Some("the kernel created it for io_uring".to_owned()),
            false => Some("it used too little of the process's CPU time".to_owned()),
        };
        let threads: Vec<ThreadReport> = found
            .iter()
            .map(|(tid, runs, found)| ThreadReport {
                tid: *tid,
                name: self.threads[tid].name.clone(),
                wakeups: runs.len() as u64,
                idle_exits: runs.iter().filter(|run| run.ended_idle).count() as u64,
                cpu: self.threads[tid].cpu(),
                periods: found.reports(runs),
                no_frames_reason: found.why_none().or_else(|| why_not(tid)),
            })
            .collect();
        let mut watched = WatchedProcess {
            threads,
            chosen: None,
            long_from: None,
            figures: None,
            frames: Vec::new(),
            last_second: None,
            wakeups: None,
            cpus: CpuList::default(),
            full_at: self.full_at,
        };
        let Some(index) = found.iter().position(|(tid, ..)| has_work(tid)) else {
            return watched;
        };
        let (tid, runs, strongest) = &found[index];
        let Some((mark, beat)) = strongest.beats.first() else {
            return watched;
        };
        let marked = strongest.marked(*mark, runs);
        let (period, frames) = frames::frames(&marked, beat, rhythm::nap(*mark, runs));
        let mut stats = FrameStats::new(Terms {
            period,
            overshot_from,
            asked_for: false,
        });
        for &frame in &frames {
            stats.frame(frame);
        }
        watched.frames = frames;
        watched.chosen = Some(index);
        watched.long_from = (*mark == FrameMark::LongRuns).then_some(strongest.long_from);
        watched.last_second = stats.last_second();
        watched.figures = stats.close().figures();
        watched.cpus = self.threads[tid].cpus.iter().copied().collect();
        watched.wakeups = Some(Wakeups {
            elapsed: end - begin,
            count: runs.len() as u64,
            idle_exits: Some(ticktax_model::pace::EndedIdle {
                count: watched.threads[index].idle_exits,
                loop_only: true,
            }),
        });
        watched
    }

    /// Returns each thread's runs and rhythms between `begin` and `end`, strongest rhythm first. A
    /// thread without a rhythm may be woken by another thread that has one but hardly works.
    fn rhythms(
        &self,
        begin: Nanos,
        end: Nanos,
        is_helper: &dyn Fn(&i32) -> bool,
        has_work: &dyn Fn(&i32) -> bool,
    ) -> Vec<(i32, Vec<ThreadRun>, ThreadRhythms)> {
        let find = |tid: i32, rows: &Rows, tickers: &[i32]| {
            let among = |runs: &[ThreadRun]| {
                rhythm::find(runs, begin, end, rows.slept(), !rows.on_cpu.is_empty())
            };
            let runs = rows.runs(tickers, false);
            let found = among(&runs);
            if !found.beats.is_empty() || rows.blocked.len() < FEWEST {
                return (tid, runs, found);
            }
            // A loop can also be paced by waits in the kernel, for example for a display.
            let runs = rows.runs(tickers, true);
            let found = among(&runs);
            (tid, runs, found)
        };
        let threads = self.threads.iter();
        let mut found: Vec<_> = threads.map(|(&tid, rows)| find(tid, rows, &[])).collect();
        let is_ticker = |tid: &i32, rhythms: &ThreadRhythms| {
            !rhythms.beats.is_empty() && !is_helper(tid) && !has_work(tid)
        };
        let tickers = found
            .iter()
            .filter(|(tid, _, rhythms)| is_ticker(tid, rhythms));
        let tickers: Vec<i32> = tickers.map(|(tid, ..)| *tid).collect();
        if !tickers.is_empty() {
            let others = found.iter_mut().filter(|(tid, ..)| has_work(tid));
            for other in others.filter(|(.., rhythms)| rhythms.beats.is_empty()) {
                *other = find(other.0, &self.threads[&other.0], &tickers);
            }
        }
        found.sort_by(|a, b| rhythm::by_strength(&a.2, &b.2).then(a.0.cmp(&b.0)));
        found
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let span = event.span;
        match event.kind() {
            EventKind::OnCpu(Occupant::Thread(on), onset) => {
                let rows = on.thread.and_then(|thread| self.rows_of(thread, event));
                if let Some(rows) = rows {
                    if !rows.cpus.contains(&span.cpu) {
                        rows.cpus.push(span.cpu);
                    }
                    rows.on_cpu.push(Piece {
                        cpu: span.cpu,
                        start: span.start,
                        end: span.end(),
                        own: span.self_time,
                        after_idle: onset.after_idle,
                    });
                }
            }
            // The thread slept before and after this interval, so it ran during it.
            EventKind::OffCpu(off) if off.reason == Some(OffCpuReason::Missed) => {
                let rows = off.thread.and_then(|thread| self.rows_of(thread, event));
                if let Some(rows) = rows {
                    rows.on_cpu.push(Piece {
                        cpu: span.cpu,
                        start: span.start,
                        end: span.end(),
                        own: Nanos::ZERO,
                        after_idle: false,
                    });
                }
            }
            EventKind::OffCpu(off) if off.is_off() && !is_limited(off) => {
                let rows = off.thread.and_then(|thread| self.rows_of(thread, event));
                if let Some(rows) = rows {
                    let list = match off.on {
                        Some(BlockedOn::Thread | BlockedOn::Child) => &mut rows.for_threads,
                        Some(on) if is_in_kernel(on) => &mut rows.blocked,
                        _ => &mut rows.off,
                    };
                    list.push((span.start, span.end()));
                }
            }
            // The own time of a timer's row is the delay that the slack allowed.
            EventKind::OffCpu(off)
                if off.reason == Some(OffCpuReason::Timer) && span.self_time >= SLACK =>
            {
                let rows = off.thread.and_then(|thread| self.rows_of(thread, event));
                if let Some(rows) = rows {
                    rows.prolonged.insert(span.end(), span.start);
                }
            }
            EventKind::Edge(edge) => self.edge(edge, event),
            // Ignore sums, because they have no position in time.
            _ => {}
        }
    }

    /// Returns those of `intervals` in which thread `tid` was on the interval's CPU.
    pub(crate) fn on_cpu_in(&self, tid: i32, intervals: &[Moment]) -> Vec<Moment> {
        let Some(rows) = self.threads.get(&tid) else {
            return Vec::new();
        };
        let mut pieces = rows.on_cpu.clone();
        pieces.sort_by_key(|piece| piece.start);
        let is_on_cpu = |interval: &&Moment| {
            let next = pieces.partition_point(|piece| piece.start < interval.end());
            let last = next.checked_sub(1).map(|last| pieces[last]);
            last.is_some_and(|piece| piece.cpu == interval.cpu && piece.end > interval.at)
        };
        intervals.iter().filter(is_on_cpu).copied().collect()
    }

    /// Notes that a timer or a thread in the process woke a thread.
    fn edge(&mut self, edge: &Edge, event: &Event<'_>) {
        let Effect::Woke(tid) = edge.effect else {
            return;
        };
        let source = event.sources.get(edge.span.source);
        let by = source.thread.as_ref().filter(|by| by.pid == self.pid);
        let is_timer = &*source.detail == SLEEP_FUNCTION;
        if !is_timer && by.is_none() || self.kept >= MAX {
            return;
        }
        let Some(rows) = self.threads.get_mut(&tid) else {
            return;
        };
        self.kept += 1;
        let at = edge.span.start;
        match by {
            Some(by) if !is_timer => rows.by_thread.push((at, by.tid)),
            _ => rows.timers.push(at),
        }
    }

    /// Returns the rows of `thread` if it belongs to the process and there is room for another row.
    fn rows_of(&mut self, thread: ThreadId, event: &Event<'_>) -> Option<&mut Rows> {
        if thread.pid != self.pid {
            return None;
        }
        if self.kept >= MAX {
            self.full_at.get_or_insert(event.span.start);
            return None;
        }
        self.kept += 1;
        let rows = self.threads.entry(thread.tid).or_default();
        if rows.name.is_empty() {
            rows.name = event.sources.get(event.span.source).name.to_string();
        }
        Some(rows)
    }
}

/// Returns whether a limit kept the thread from running.
fn is_limited(off: OffCpu) -> bool {
    use OffCpuReason::{Deadline, Throttled};
    matches!(off.reason, Some(Deadline | Throttled))
}

/// Returns whether a thread that waits for this is still working: it did not ask to sleep.
fn is_in_kernel(on: BlockedOn) -> bool {
    use BlockedOn::{AddressSpace, Disk, FrozenFileSystem, Lock, Memory, MemoryLimit, Writeback};
    matches!(
        on,
        AddressSpace | Disk | FrozenFileSystem | Lock | Memory | MemoryLimit | Writeback
    )
}

impl WatchedProcess {
    /// Returns the facts needed to wait for the next frame.
    ///
    /// # Errors
    /// Returns the reason if no thread has a rhythm.
    pub fn rhythm(&self) -> Result<FrameRhythm, NoRhythm> {
        let chosen = self.chosen.and_then(|index| self.threads.get(index));
        let found = chosen.and_then(|thread| Some((thread, thread.periods.first()?)));
        let last = self.frames.last();
        if let (Some((thread, rhythm)), Some(figures), Some(last)) = (found, &self.figures, last) {
            return Ok(FrameRhythm {
                tid: thread.tid,
                name: thread.name.clone(),
                period: figures.period,
                due: last.due,
                rearmed: rhythm.rhythm.rearmed,
                long_from: self.long_from,
            });
        }
        Err(match &self.threads[..] {
            [] => NoRhythm::NotRun,
            [only] => NoRhythm::OnlyThread(only.no_frames_reason.clone().unwrap_or_default()),
            all if all.iter().any(|thread| !thread.periods.is_empty()) => NoRhythm::LittleWork,
            all => NoRhythm::NotPeriodic { threads: all.len() },
        })
    }
}

impl Rows {
    fn slept(&self) -> bool {
        let lists = [&self.off, &self.blocked, &self.for_threads];
        lists.iter().any(|list| !list.is_empty())
    }

    fn cpu(&self) -> Nanos {
        self.on_cpu.iter().map(|piece| piece.own).sum()
    }

    /// Returns the waits for other threads that ended with one of these wake-ups.
    fn ended_by(&self, mut wakings: Vec<Nanos>) -> Vec<(Nanos, Nanos)> {
        wakings.sort_unstable();
        let is_ended = |&(start, end): &(Nanos, Nanos)| {
            let last = wakings.partition_point(|&at| at <= end);
            let last = last.checked_sub(1).and_then(|last| wakings.get(last));
            last.is_some_and(|&at| at >= start && end - at <= UNDERWAY)
        };
        let waits = self.for_threads.iter().copied();
        waits.filter(is_ended).collect()
    }

    /// Returns the thread's runs between its sleeps. Omits runs before the first recorded sleep and
    /// after the last one, because it is unknown when they started or ended. `tickers` are threads
    /// that only wake others. If `end_if_blocked` is set, a wait in the kernel also ends a run.
    fn runs(&self, tickers: &[i32], end_if_blocked: bool) -> Vec<ThreadRun> {
        let mut off = self.off.clone();
        if end_if_blocked {
            off.extend(&self.blocked);
        }
        let by_ticker = self.by_thread.iter();
        let by_ticker = by_ticker.filter(|(_, tid)| tickers.contains(tid));
        let by_ticker = by_ticker.map(|&(at, _)| at).collect();
        let by_ticker = self.ended_by(by_ticker);
        if by_ticker.len() > off.len() {
            // Other sleeps are part of the work.
            off = by_ticker;
        } else if off.len() < FEWEST {
            off.extend(self.ended_by(self.timers.clone()));
        }
        off.sort_unstable();
        let mut on = self.on_cpu.clone();
        on.sort_by_key(|piece| piece.start);
        let mut runs = runs_between(&on, &off);
        for run in &mut runs {
            run.woken = *self.prolonged.get(&run.woken).unwrap_or(&run.woken);
        }
        runs
    }
}

/// Returns a thread's runs between consecutive intervals in `off`. Both lists must be sorted.
pub(crate) fn runs_between(on: &[Piece], off: &[(Nanos, Nanos)]) -> Vec<ThreadRun> {
    let mut runs = Vec::with_capacity(off.len());
    let mut at = 0;
    for pair in off.windows(2) {
        let (woken, asleep) = (pair[0].1, pair[1].0);
        at += on[at..].partition_point(|piece| piece.start < woken);
        let count = on[at..].partition_point(|piece| piece.start < asleep);
        let pieces = &on[at..at + count];
        at += count;
        if let (Some(first), Some(last)) = (pieces.first(), pieces.last()) {
            runs.push(ThreadRun {
                woken,
                began: first.start,
                ended: last.end,
                cpu: pieces.iter().map(|piece| piece.own).sum(),
                on: first.cpu,
                ended_idle: first.after_idle,
            });
        }
    }
    runs
}
