//! Finds real-time threads that a limit kept from running although nothing of higher priority was
//! runnable.
//!
//! Real-time threads run before ordinary ones, with two exceptions. If a CPU's real-time threads
//! have used up `sched_rt_runtime_us`, they are throttled: until the period ends, ordinary threads
//! run there, or the CPU is idle. Since Linux 6.12, the fair server runs ordinary threads for 50 ms
//! once they have waited for 950 ms.
//!
//! # Criteria
//! A real-time thread's wait counts if
//!
//! - it is no longer than the time that a limit leaves to other threads,
//! - no real-time thread ran during it, and
//! - it ends a period in which the CPU's real-time threads used up their time.
//!
//! Three facts show which limit caused the wait: the kernel's version and build, idle time during
//! the wait (the fair server always runs a thread), and the timer that starts the fair server. If
//! both limits remain possible, both are named.
//!
//! # Order of rows
//! Which threads are real-time threads is known only at the end. Until then, a wait is kept if it
//! would meet the criteria provided that the right threads turn out to be real-time threads. In
//! other words, the threads that did not run during the wait must have used up the time before it.
//! Few waits of ordinary threads are like that, because the thread behind which they wait usually
//! ran before the wait, too.
//!
//! # Memory
//! Each CPU needs room for the long runs of the last ten seconds. In addition, up to [`CANDIDATES`]
//! waits are kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ticktax_model::machine::Machine;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::real_time::{RealTimeHeld, RealTimeLimit};
use ticktax_model::recording::Header;
use ticktax_model::{Kind, Nanos, SourceId, SourceTable, Span};

use crate::ledger::tally::Tally;
use crate::timeline::{Event, EventKind, Occupant, Piece};
use crate::victim::named;

/// Minimum length of a wait that counts. On a busy machine, a mere context switch can take nearly
/// this long.
const SHORTEST: Nanos = Nanos::from_millis(1);
/// A wait may exceed the time that a limit leaves to other threads by this much, because the kernel
/// checks the limit only at ticks.
const LATE: Nanos = Nanos::from_millis(10);
/// Real-time threads count as having used up their time if the runs that are kept cover at least
/// this share of it.
const USED_UP: f64 = 0.97;
/// Minimum length of a run that is kept.
const LONG: Nanos = Nanos::from_micros(250);
/// Maximum age of the runs that are kept.
const KEPT: Nanos = Nanos::from_secs(10);
/// Maximum number of runs kept per CPU. The same limit applies to the starts of the fair server's
/// timer.
const RUNS: usize = 1 << 14;
/// Maximum number of waits kept.
const CANDIDATES: usize = 4_096;
/// Longest time from the start of the fair server's timer until the server runs a thread.
const SERVER_DELAY: Nanos = Nanos::from_micros(300);
/// First kernel version with a fair server. From then on, real-time threads are throttled only in
/// groups (`RT_GROUP_SCHED`).
const FAIR_SERVER: (u32, u32) = (6, 12);

/// The limits that a machine imposes on real-time threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Time per period that a CPU's real-time threads may use. `None` if it is unlimited.
    runtime: Option<Nanos>,
    period: Nanos,
    /// Whether the kernel throttles real-time threads that exceed `runtime`.
    throttling: bool,
    /// Whether the kernel has a fair server.
    server: bool,
}

impl Limits {
    /// Returns the limits of `machine`, or `None` if its settings are unknown or limit nothing.
    pub(crate) fn from_machine(machine: &Machine) -> Option<Self> {
        let configured = &machine.configured;
        let setting = |name: &str| -> Option<i64> {
            let text = configured.file(&format!("proc/sys/kernel/{name}"))?;
            text.trim().parse().ok()
        };
        let runtime = setting("sched_rt_runtime_us")?;
        let period = setting("sched_rt_period_us")?;
        let limited = (1..period).contains(&runtime) && period <= 5_000_000;
        let version = version(&machine.kernel);
        let has_server = version.is_none_or(|version| version >= FAIR_SERVER);
        let limits = Self {
            runtime: limited.then(|| Nanos::from_micros(runtime)),
            period: Nanos::from_micros(if limited { period } else { 1_000_000 }),
            throttling: limited
                && (version.is_none_or(|version| version < FAIR_SERVER)
                    || in_groups(machine) != Some(false)),
            server: has_server,
        };
        (limits.throttling || limits.server).then_some(limits)
    }

    /// Returns the time per period that real-time threads can use. If there is no `runtime`, the
    /// fair server limits them. Its default setting leaves them 950 ms, as does the default
    /// `sched_rt_runtime_us`.
    fn granted(&self) -> Nanos {
        self.runtime.unwrap_or(Nanos::from_millis(950))
    }

    /// Returns the longest time per period that real-time threads can leave to others and still
    /// count as having used up their own.
    fn most_left(&self) -> Nanos {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a share of a period of at most 5 s"
        )]
        let used = (self.granted().0 as f64 * USED_UP) as i64;
        self.period - Nanos(used)
    }

    fn used_up<'a>(&self, times: impl Iterator<Item = &'a Nanos>) -> bool {
        let time: Nanos = times.sum();
        time.share_of(self.granted()) >= USED_UP
    }

    /// Returns the limit that caused a wait, or `None` if no limit can have caused it. The CPU was
    /// idle for `idled` during the wait. `timer` is true if the fair server's timer ran just before
    /// the wait.
    fn which(&self, idled: Nanos, timer: bool) -> Option<RealTimeLimit> {
        let idled = idled >= SHORTEST;
        match (self.throttling, self.server) {
            (true, true) if idled => Some(RealTimeLimit::Throttling),
            (true, true) if timer => Some(RealTimeLimit::FairServer),
            (true, true) => Some(RealTimeLimit::Either),
            (true, false) => Some(RealTimeLimit::Throttling),
            (false, true) if !idled => Some(RealTimeLimit::FairServer),
            _ => None,
        }
    }
}

/// Returns whether a kernel with a fair server throttles groups of real-time threads, or `None` if
/// unknown.
fn in_groups(machine: &Machine) -> Option<bool> {
    let built = machine.configured.built("RT_GROUP_SCHED")?;
    let off = machine.configured.built("RT_GROUP_SCHED_DEFAULT_DISABLED");
    let parameter = machine.parameter("rt_group_sched");
    Some(
        built
            && parameter.map_or(off != Some(true), |value| {
                !matches!(value, "0" | "off" | "n")
            }),
    )
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A thread's on-CPU period.
#[derive(Clone, Copy, Debug)]
struct CpuRun {
    tid: i32,
    start: Nanos,
    end: Nanos,
}

/// A CPU's recent activity.
#[derive(Debug, Default)]
struct CpuActivity {
    /// The current run.
    now: Option<CpuRun>,
    /// Completed runs of [`LONG`] or longer, in order.
    long: VecDeque<CpuRun>,
    /// Times at which the fair server's timer started.
    servers: VecDeque<Nanos>,
}

impl CpuActivity {
    fn ran(&mut self, tid: i32, span: &Span) {
        let (start, end) = (span.start, span.end());
        match &mut self.now {
            Some(now) if now.tid == tid && now.end == start => now.end = end,
            _ => {
                self.close();
                self.now = Some(CpuRun { tid, start, end });
            }
        }
    }

    fn close(&mut self) {
        let Some(run) = self.now.take().filter(|run| run.end - run.start >= LONG) else {
            return;
        };
        self.long.push_back(run);
        let old = |oldest: &CpuRun| oldest.end < run.end - KEPT;
        while self.long.len() > RUNS || self.long.front().is_some_and(old) {
            self.long.pop_front();
        }
    }

    /// Returns each thread's CPU time from `begin` to `end`, as far as runs are kept, ignoring the
    /// threads in `left_out`. Returns `None` if the threads leave more than `most` of the CPU's
    /// time unused. Most calls end that way after a few runs, because the search starts with the
    /// latest one.
    fn by_thread(
        &self,
        (begin, end): (Nanos, Nanos),
        left_out: &BTreeSet<i32>,
        most: Nanos,
    ) -> Option<BTreeMap<i32, Nanos>> {
        let mut by_thread = BTreeMap::new();
        let mut busy = Nanos::ZERO;
        let later = self.long.partition_point(|run| run.start < end);
        let now = self.now.iter().filter(|run| run.start < end);
        let runs = now.chain(self.long.range(..later).rev());
        for run in runs.take_while(|run| run.end > begin) {
            if end - run.end - busy > most {
                return None;
            }
            if !left_out.contains(&run.tid) {
                let time = run.end.min(end) - run.start.max(begin);
                let time = time.max(Nanos::ZERO);
                *by_thread.entry(run.tid).or_default() += time;
                busy += time;
            }
        }
        Some(by_thread)
    }
}

/// A wait that may have been caused by a limit.
#[derive(Debug)]
struct Candidate {
    source: SourceId,
    tid: i32,
    start: Nanos,
    length: Nanos,
    limit: RealTimeLimit,
    /// Ids of the threads that ran during the wait.
    during: BTreeSet<i32>,
    /// CPU time of other threads in the period that ends with the wait.
    ran: BTreeMap<i32, Nanos>,
}

/// Finds the waits that limits on real-time threads caused, from a timeline's events and from the
/// waits that another consumer has found among them.
#[derive(Debug)]
pub(crate) struct RealTime {
    limits: Limits,
    cpus: Vec<CpuActivity>,
    found: Vec<Candidate>,
}

impl RealTime {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            cpus: Vec::new(),
            found: Vec::new(),
        }
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        match event.kind() {
            EventKind::OnCpu(Occupant::Thread(on), _) => {
                let tid = on.thread.map_or(0, |thread| thread.tid);
                self.cpu(event.slot).ran(tid, event.span);
            }
            EventKind::OnCpu(Occupant::Idle, _) => self.cpu(event.slot).close(),
            EventKind::Interrupt(interrupt) if interrupt.starts_server => {
                let servers = &mut self.cpu(event.slot).servers;
                servers.push_back(event.span.start);
                if servers.len() > RUNS {
                    servers.pop_front();
                }
            }
            _ => {}
        }
    }

    fn cpu(&mut self, slot: usize) -> &mut CpuActivity {
        if slot >= self.cpus.len() {
            self.cpus.resize_with(slot + 1, CpuActivity::default);
        }
        &mut self.cpus[slot]
    }

    /// Returns whether a limit can cause a wait of this length.
    pub(crate) fn wants(&self, length: Nanos) -> bool {
        let left = self.limits.period - self.limits.granted();
        (SHORTEST..=Nanos(left.0 * 3 / 2) + LATE).contains(&length)
    }

    /// Returns whether a limit may have held back a thread that now runs on the CPU in `slot`, from
    /// `start` on, since its last run there. That run must be the last long one on this CPU.
    pub(crate) fn left(&self, slot: usize, tid: i32, start: Nanos) -> bool {
        let last = self.cpus.get(slot).and_then(|cpu| cpu.long.back());
        last.is_some_and(|run| run.tid == tid && self.wants(start - run.end))
    }

    /// Processes a thread's wait for the CPU in `slot`, during which the `pieces` ran there.
    /// `woken` is true if the wait began with a wake-up.
    pub(crate) fn waited(
        &mut self,
        (slot, tid, woken): (usize, i32, bool),
        wait: &Span,
        pieces: impl Iterator<Item = Piece>,
        sources: &SourceTable,
    ) {
        if !self.wants(wait.dur) || self.found.len() == CANDIDATES {
            return;
        }
        let Some(cpu) = self.cpus.get(slot) else {
            return;
        };
        let end = wait.end();
        let (mut during, mut idled) = (BTreeSet::new(), Nanos::ZERO);
        for piece in pieces {
            let source = sources.get(piece.source);
            during.extend(source.thread.as_ref().map(|thread| thread.tid));
            if source.kind == Kind::Idle {
                idled += piece.end - piece.start;
            }
        }
        let begin = end - self.limits.period;
        let Some(ran) = cpu.by_thread((begin, end), &during, self.limits.most_left()) else {
            return;
        };
        let started = |&at: &Nanos| (wait.start - SERVER_DELAY..=wait.start).contains(&at);
        // If only one thread ran after the wake-up, it may simply not have been preemptible, so do
        // not blame a limit.
        let passed_over = !woken || idled >= SHORTEST || during.len() > 1;
        let limit = self.limits.which(idled, cpu.servers.iter().any(started));
        if let Some(limit) = limit.filter(|_| passed_over && self.limits.used_up(ran.values())) {
            self.found.push(Candidate {
                source: wait.source,
                tid,
                start: wait.start,
                length: wait.dur,
                limit,
                during,
                ran,
            });
        }
    }

    /// Selects the waits that were caused by a limit, given the threads' policies at the end of the
    /// recording.
    pub(crate) fn finish(self, header: &Header) -> LimitedWaits {
        let tids = |matches: fn(SpecialPolicy) -> bool| -> BTreeSet<i32> {
            let threads = header.policies.iter();
            let threads = threads.filter(|thread| matches(thread.policy));
            threads.map(|thread| thread.tid).collect()
        };
        let real_time = tids(SpecialPolicy::is_throttled);
        let go_first = tids(SpecialPolicy::goes_first);
        let Self {
            limits, mut found, ..
        } = self;
        found.retain(|wait| {
            let ran = wait.ran.iter().filter(|(tid, _)| real_time.contains(tid));
            real_time.contains(&wait.tid)
                && wait.during.is_disjoint(&go_first)
                && limits.used_up(ran.map(|(_, time)| time))
        });
        LimitedWaits { limits, found }
    }
}

/// Waits of real-time threads that were caused by a limit.
#[derive(Debug)]
pub(crate) struct LimitedWaits {
    limits: Limits,
    found: Vec<Candidate>,
}

impl LimitedWaits {
    pub(crate) fn limit_of(&self, tid: i32, start: Nanos) -> Option<RealTimeLimit> {
        let mut found = self.found.iter();
        let wait = found.find(|wait| wait.tid == tid && wait.start == start)?;
        Some(wait.limit)
    }

    /// Returns the programs that were held back, largest total first. `wanted` selects programs by
    /// process id.
    pub(crate) fn programs(
        &self,
        sources: &SourceTable,
        wanted: impl Fn(i32) -> bool,
    ) -> Vec<RealTimeHeld> {
        let mut programs: BTreeMap<(String, RealTimeLimit), (BTreeSet<i32>, Tally)> =
            BTreeMap::new();
        for wait in &self.found {
            let (name, _, pid) = named(wait.source, sources);
            let Some(pid) = pid.filter(|&pid| wanted(pid)) else {
                continue;
            };
            let (pids, tally) = programs.entry((name, wait.limit)).or_default();
            pids.insert(pid);
            tally.add(wait.length, wait.length);
        }
        let programs = programs.into_iter();
        let programs = programs.map(|((name, limit), (pids, tally))| RealTimeHeld {
            name,
            pids: pids.into_iter().collect(),
            limit,
            runtime: self.limits.runtime,
            period: self.limits.period,
            time: tally.time,
            count: tally.count,
            max: tally.longest,
        });
        let mut programs: Vec<RealTimeHeld> = programs.collect();
        programs.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        programs
    }
}

#[cfg(test)]
mod tests;
