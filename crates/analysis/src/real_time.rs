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
//! A cgroup can have its own limit (`RT_GROUP_SCHED`). It is known only at the end which
//! threads are in such a cgroup. The last criterion does not apply to them. Instead, the thread was
//! preempted: if no real-time thread runs, only a limit lets another thread preempt it.
//!
//! # Ticktax's own threads
//! The thread that empties the buffers has a real-time priority for short slices only. Its policy
//! at the end of the recording therefore means nothing: its slices count as used time, but if it
//! ran during a wait, it ran as an ordinary thread. The governor may run while a cgroup is
//! throttled, but only for a few microseconds.
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
//! waits are kept, and as many that only the limit of a cgroup can have caused.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ticktax_model::group::GroupQuota;
use ticktax_model::machine::Machine;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::real_time::{RealTimeHeld, RealTimeLimit};
use ticktax_model::recording::Header;
use ticktax_model::{Interval, Kind, Nanos, Owner, SourceId, SourceTable, Span};

use crate::groups::Groups;
use crate::ledger::tally::Tally;
use crate::names::named;
use crate::timeline::{Event, EventKind, Occupant, Piece};

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
/// Maximum number of a thread's waits kept that only the limit of a cgroup can have caused.
const PER_THREAD: usize = 64;
/// Longest wait that the limit of a cgroup can cause. The kernel's default period is 1 s.
const LONGEST_IN_GROUP: Nanos = Nanos::from_secs(1);
/// Minimum length of a run of one of ticktax's own threads that is kept. Its slices are short.
const OWN_LONG: Nanos = Nanos::from_micros(20);
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
    /// Whether cgroups can have their own limits.
    groups: bool,
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
            groups: runtime >= 0 && in_groups(machine) == Some(true),
        };
        (limits.throttling || limits.server || limits.groups).then_some(limits)
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

    /// Returns whether `quota`, the limit of a cgroup, can have caused a wait of this length.
    fn allows(&self, quota: &GroupQuota, length: Nanos) -> bool {
        let left = quota.period - quota.quota;
        let is_stricter = quota.quota.share_of(quota.period)
            < self.granted().share_of(self.period) - f64::EPSILON;
        is_stricter && quota.quota > Nanos::ZERO && length <= left + LATE
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
    /// Minimum length for this run to be kept.
    shortest: Nanos,
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
    fn ran(&mut self, tid: i32, span: &Span, shortest: Nanos) {
        let (start, end) = (span.start, span.end());
        match &mut self.now {
            Some(now) if now.tid == tid && now.end == start => now.end = end,
            _ => {
                self.close();
                self.now = Some(CpuRun {
                    tid,
                    start,
                    end,
                    shortest,
                });
            }
        }
    }

    fn close(&mut self) {
        let is_long = |run: &CpuRun| run.end - run.start >= run.shortest;
        let Some(run) = self.now.take().filter(is_long) else {
            return;
        };
        self.long.push_back(run);
        let old = |oldest: &CpuRun| oldest.end < run.end - KEPT;
        while self.long.len() > RUNS || self.long.front().is_some_and(old) {
            self.long.pop_front();
        }
    }

    /// Returns each thread's CPU time during `period`, as far as runs are kept, ignoring the
    /// threads in `left_out`. Returns `None` if the threads leave more than `most` of the CPU's
    /// time unused. Most calls end that way after a few runs, because the search starts with the
    /// latest one.
    fn by_thread(
        &self,
        period: Interval,
        left_out: &BTreeSet<i32>,
        most: Nanos,
    ) -> Option<BTreeMap<i32, Nanos>> {
        let mut by_thread = BTreeMap::new();
        let mut busy = Nanos::ZERO;
        let later = self.long.partition_point(|run| run.start < period.end);
        let now = self.now.iter().filter(|run| run.start < period.end);
        let runs = now.chain(self.long.range(..later).rev());
        for run in runs.take_while(|run| run.end > period.start) {
            if period.end - run.end - busy > most {
                return None;
            }
            if !left_out.contains(&run.tid) {
                let time = period.overlap(Interval::new(run.start, run.end));
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
    /// The machine's limit that caused the wait, unless the right threads turn out not to be
    /// real-time threads. `None` if only the limit of a cgroup can have caused it.
    limit: Option<RealTimeLimit>,
    /// Whether the thread was preempted, or woken on a CPU that then was idle.
    is_held: bool,
    /// Ids of the threads that ran during the wait, except for ticktax's own.
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
    /// Number of waits in `found` that only the limit of a cgroup can have caused, by thread.
    in_groups: BTreeMap<i32, usize>,
    /// Ids of ticktax's own threads, except for the probes.
    own: BTreeSet<i32>,
}

impl RealTime {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            cpus: Vec::new(),
            found: Vec::new(),
            in_groups: BTreeMap::new(),
            own: BTreeSet::new(),
        }
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        match event.kind() {
            EventKind::OnCpu(Occupant::Thread(on), _) => {
                let tid = on.thread.map_or(0, |thread| thread.tid);
                let is_own = on.owner == Owner::Tool;
                if is_own {
                    self.own.insert(tid);
                }
                let shortest = if is_own { OWN_LONG } else { LONG };
                self.cpu(event.slot).ran(tid, event.span, shortest);
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
        let longest = if self.limits.groups {
            LONGEST_IN_GROUP.max(self.longest())
        } else {
            self.longest()
        };
        (SHORTEST..=longest).contains(&length)
    }

    /// Returns the longest wait that a limit of the machine can cause.
    fn longest(&self) -> Nanos {
        let left = self.limits.period - self.limits.granted();
        Nanos(left.0 * 3 / 2) + LATE
    }

    /// Returns whether a limit may have held back a thread that now runs on the CPU in `slot`, from
    /// `start` on, since its last run there. That run must be the last long one on this CPU.
    pub(crate) fn left(&self, slot: usize, tid: i32, start: Nanos) -> bool {
        let last = self.cpus.get(slot).and_then(|cpu| cpu.long.back());
        last.is_some_and(|run| run.tid == tid && self.wants(start - run.end))
    }

    /// Processes a thread's wait for the CPU in `slot`, during which the `pieces` ran there.
    /// `woken` is true if the wait began with a wake-up. Returns whether a limit may have caused
    /// the wait.
    pub(crate) fn waited(
        &mut self,
        slot: usize,
        tid: i32,
        woken: bool,
        wait: &Span,
        pieces: impl Iterator<Item = Piece>,
        sources: &SourceTable,
    ) -> bool {
        let kept = self.found.len();
        if !self.wants(wait.dur) || kept == 2 * CANDIDATES {
            return false;
        }
        let Some(cpu) = self.cpus.get(slot) else {
            return false;
        };
        let during = During::new(pieces, sources);
        let limit = self.machine_limit(cpu, wait, woken, &during);
        let count = self.in_groups.get(&tid).copied().unwrap_or_default();
        let is_held = !woken || during.idled >= SHORTEST;
        let has_room = kept < CANDIDATES && count < PER_THREAD;
        let in_group = self.limits.groups && is_held && has_room;
        if limit.is_none() && !in_group {
            return false;
        }
        if limit.is_none() {
            *self.in_groups.entry(tid).or_default() += 1;
        }
        let (limit, ran) = limit.unzip();
        self.found.push(Candidate {
            source: wait.source,
            tid,
            start: wait.start,
            length: wait.dur,
            limit,
            is_held,
            during: during.threads,
            ran: ran.unwrap_or_default(),
        });
        true
    }

    /// Returns the machine's limit that may have caused a wait, and the CPU time that each thread
    /// used in the period that ends with the wait.
    fn machine_limit(
        &self,
        cpu: &CpuActivity,
        wait: &Span,
        woken: bool,
        during: &During,
    ) -> Option<(RealTimeLimit, BTreeMap<i32, Nanos>)> {
        if wait.dur > self.longest() {
            return None;
        }
        let end = wait.end();
        let period = Interval::new(end - self.limits.period, end);
        let ran = cpu.by_thread(period, &during.threads, self.limits.most_left())?;
        let started = |&at: &Nanos| (wait.start - SERVER_DELAY..=wait.start).contains(&at);
        // If only one thread ran after the wake-up, it may simply not have been preemptible, so do
        // not blame a limit. The probe is always preemptible.
        let passed_over =
            !woken || during.idled >= SHORTEST || during.count() > 1 || during.probed >= SHORTEST;
        let limit = self
            .limits
            .which(during.idled, cpu.servers.iter().any(started));
        let limit = limit.filter(|_| passed_over && self.limits.used_up(ran.values()))?;
        Some((limit, ran))
    }

    /// Selects the waits that were caused by a limit, given the threads' policies and cgroups at
    /// the end of the recording.
    pub(crate) fn finish(self, header: &Header, sources: &SourceTable) -> LimitedWaits {
        let tids = |matches: fn(SpecialPolicy) -> bool| -> BTreeSet<i32> {
            let threads = header.policies.iter();
            let threads = threads.filter(|thread| matches(thread.policy));
            threads.map(|thread| thread.tid).collect()
        };
        let real_time = tids(SpecialPolicy::is_throttled);
        let go_first = tids(SpecialPolicy::goes_first);
        let groups = Groups::from_header(header);
        let Self {
            limits, found, own, ..
        } = self;
        let judged = found.into_iter().filter_map(|wait| {
            if !real_time.contains(&wait.tid) || !wait.during.is_disjoint(&go_first) {
                return None;
            }
            let pid = sources.get(wait.source).thread.as_ref()?.pid;
            let settings = groups.of(pid).and_then(|group| group.settings.as_ref());
            let quota = settings.and_then(|settings| settings.real_time.as_ref());
            let quota = quota.filter(|quota| wait.is_held && limits.allows(quota, wait.length));
            if let Some(quota) = quota.filter(|_| limits.groups) {
                return Some((RealTimeLimit::Group, Some(quota.clone()), wait));
            }
            let counts = |tid: &i32| real_time.contains(tid) || own.contains(tid);
            let ran = wait.ran.iter().filter(|(tid, _)| counts(tid));
            let used_up = limits.used_up(ran.map(|(_, time)| time));
            Some((wait.limit.filter(|_| used_up)?, None, wait))
        });
        let found = judged.map(|(limit, group, wait)| LimitedWait {
            source: wait.source,
            tid: wait.tid,
            start: wait.start,
            length: wait.length,
            limit,
            group,
        });
        let found = found.collect();
        LimitedWaits { limits, found }
    }
}

/// Threads that ran on a CPU while another thread waited for it.
struct During {
    /// Their ids, except for ticktax's own threads.
    threads: BTreeSet<i32>,
    /// Whether ticktax's own threads ran, other than a probe.
    own: bool,
    /// Time that a probe ran.
    probed: Nanos,
    idled: Nanos,
}

impl During {
    fn new(pieces: impl Iterator<Item = Piece>, sources: &SourceTable) -> Self {
        let mut during = Self {
            threads: BTreeSet::new(),
            own: false,
            probed: Nanos::ZERO,
            idled: Nanos::ZERO,
        };
        for piece in pieces {
            let source = sources.get(piece.source);
            match (source.kind, source.owner) {
                (Kind::Idle, _) => during.idled += piece.end - piece.start,
                (_, Owner::Tool) => during.own = true,
                (_, owner) => {
                    if owner == Owner::Probe {
                        during.probed += piece.end - piece.start;
                    }
                    let thread = source.thread.as_ref();
                    during.threads.extend(thread.map(|thread| thread.tid));
                }
            }
        }
        during
    }

    fn count(&self) -> usize {
        self.threads.len() + usize::from(self.own)
    }
}

/// A wait of a real-time thread that a limit caused.
#[derive(Debug)]
struct LimitedWait {
    source: SourceId,
    tid: i32,
    start: Nanos,
    length: Nanos,
    limit: RealTimeLimit,
    /// The cgroup's limit, if it is not that of the machine.
    group: Option<GroupQuota>,
}

/// Waits of one program that one limit caused.
#[derive(Debug, Default)]
struct Held<'w> {
    pids: BTreeSet<i32>,
    tally: Tally,
    group: Option<&'w GroupQuota>,
}

/// Waits of real-time threads that were caused by a limit.
#[derive(Debug)]
pub(crate) struct LimitedWaits {
    limits: Limits,
    found: Vec<LimitedWait>,
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
        let mut programs: BTreeMap<(String, RealTimeLimit, Option<&str>), Held<'_>> =
            BTreeMap::new();
        for wait in &self.found {
            let (name, _, pid) = named(wait.source, sources);
            let Some(pid) = pid.filter(|&pid| wanted(pid)) else {
                continue;
            };
            let path = wait.group.as_ref().map(|group| &*group.path);
            let held = programs.entry((name, wait.limit, path)).or_default();
            held.pids.insert(pid);
            held.tally.add(wait.length, wait.length);
            held.group = wait.group.as_ref();
        }
        let programs = programs.into_iter();
        let programs = programs.map(|((name, limit, path), held)| RealTimeHeld {
            name,
            pids: held.pids.into_iter().collect(),
            limit,
            runtime: held
                .group
                .map_or(self.limits.runtime, |group| Some(group.quota)),
            period: held.group.map_or(self.limits.period, |group| group.period),
            group: path.map(str::to_owned),
            time: held.tally.time,
            count: held.tally.count,
            max: held.tally.longest,
        });
        let mut programs: Vec<RealTimeHeld> = programs.collect();
        programs.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        programs
    }
}

#[cfg(test)]
mod tests;
