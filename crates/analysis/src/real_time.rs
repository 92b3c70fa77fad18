//! Real-time threads that were kept from a CPU on which nobody went before them.
//!
//! A real-time thread goes before every ordinary one, except for a part of each period. Where the real-time
//! threads of a CPU have used up `sched_rt_runtime_us`, ordinary threads run there until the period is over, or
//! nobody; and since 6.12 the fair server runs ordinary threads that have waited for 950 ms, for 50 ms.
//!
//! # What is taken for it
//! A wait of a real-time thread that is no longer than such a part can be, in which no real-time thread ran, and
//! that ends a period in which the CPU's real-time threads have had all of their time. Which of the two it was is
//! told by the kernel's version and build, by idling (the fair server runs somebody), and by the timer that starts
//! the server; where these leave both, both are named.
//!
//! # In which order things are known
//! Which threads are real-time ones is known at the end. Until then all waits are kept that are of this shape
//! whoever is: those before which the threads that did not run in them had all of that time. Of ordinary threads
//! hardly any wait is, because whoever is waited for is one of those that ran before.
//!
//! # Memory
//! For each CPU the long runs of the last ten seconds, and [`CANDIDATES`] waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ticktax_model::machine::Machine;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::real_time::{RealTimeHeld, RealTimeLimit};
use ticktax_model::recording::Header;
use ticktax_model::{Kind, Nanos, SourceId, SourceTable, Span};

use crate::ledger::tally::Tally;
use crate::timeline::{Event, EventKind, Occupant, Piece};
use crate::victim::named;

/// What is shorter is not counted; a switch takes that long on a busy machine.
const SHORTEST: Nanos = Nanos::from_millis(1);
/// By so much a wait may be longer than what the setting leaves to others: the kernel looks at each tick.
const LATE: Nanos = Nanos::from_millis(10);
/// The part of their time that real-time threads must have had, in the runs that are kept.
const USED_UP: f64 = 0.97;
/// Shorter runs are not kept.
const LONG: Nanos = Nanos::from_micros(250);
/// For how long they are.
const KEPT: Nanos = Nanos::from_secs(10);
/// And how many of a CPU.
const RUNS: usize = 1 << 14;
/// Waits that are kept.
const CANDIDATES: usize = 4_096;
/// So soon after its timer the fair server runs somebody.
const AT_ONCE: Nanos = Nanos::from_micros(300);
/// The kernel version from which on there is a fair server, and real-time threads are throttled only where they
/// are in groups (`RT_GROUP_SCHED`).
const FAIR_SERVER: (u32, u32) = (6, 12);

/// What may keep real-time threads from a CPU on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// What the real-time threads of a CPU may have of each period, where anything limits that.
    runtime: Option<Nanos>,
    period: Nanos,
    throttling: bool,
    server: bool,
}

impl Limits {
    /// Those of this machine; `None` where its settings are not known, or nothing keeps them.
    pub(crate) fn of(machine: &Machine) -> Option<Self> {
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

    /// What real-time threads have of each period: the fair server's own setting leaves them as much as the
    /// other one does by default.
    fn granted(&self) -> Nanos {
        self.runtime.unwrap_or(Nanos::from_millis(950))
    }

    /// Whether threads that ran for so long in a period have had all of their time.
    fn used_up<'a>(&self, times: impl Iterator<Item = &'a Nanos>) -> bool {
        let time: Nanos = times.sum();
        time.share_of(self.granted()) >= USED_UP
    }

    /// Which it was, of a wait in which the CPU idled for so long, and that the server's timer began or not.
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

/// Whether a kernel with a fair server throttles real-time threads by groups; `None` where that is not known.
fn in_groups(machine: &Machine) -> Option<bool> {
    let built = machine.configured.built("RT_GROUP_SCHED")?;
    let off = machine.configured.built("RT_GROUP_SCHED_DEFAULT_DISABLED");
    let asked = machine.parameter("rt_group_sched");
    Some(
        built
            && asked.map_or(off != Some(true), |asked| {
                !matches!(asked, "0" | "off" | "n")
            }),
    )
}

/// The first two numbers of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A thread on a CPU.
#[derive(Clone, Copy, Debug)]
struct Run {
    tid: i32,
    start: Nanos,
    end: Nanos,
}

/// What happened on a CPU.
#[derive(Debug, Default)]
struct Line {
    now: Option<Run>,
    long: VecDeque<Run>,
    /// When the fair server's timer ran.
    servers: VecDeque<Nanos>,
}

impl Line {
    fn ran(&mut self, tid: i32, span: &Span) {
        let (start, end) = (span.start, span.end());
        match &mut self.now {
            Some(now) if now.tid == tid && now.end == start => now.end = end,
            _ => {
                self.close();
                self.now = Some(Run { tid, start, end });
            }
        }
    }

    /// The thread that was there has gone.
    fn close(&mut self) {
        let Some(run) = self.now.take().filter(|run| run.end - run.start >= LONG) else {
            return;
        };
        self.long.push_back(run);
        let old = |oldest: &Run| oldest.end < run.end - KEPT;
        while self.long.len() > RUNS || self.long.front().is_some_and(old) {
            self.long.pop_front();
        }
    }

    /// How long each thread ran from `begin` to `end`, as far as that is kept.
    fn by_thread(&self, begin: Nanos, end: Nanos) -> BTreeMap<i32, Nanos> {
        let mut by_thread = BTreeMap::new();
        let first = self.long.partition_point(|run| run.end <= begin);
        let runs = self.long.range(first..).chain(&self.now);
        for run in runs.take_while(|run| run.start < end) {
            let time = run.end.min(end) - run.start.max(begin);
            *by_thread.entry(run.tid).or_default() += time.max(Nanos::ZERO);
        }
        by_thread
    }
}

/// A wait that may be one.
#[derive(Debug)]
struct Candidate {
    source: SourceId,
    tid: i32,
    start: Nanos,
    length: Nanos,
    limit: RealTimeLimit,
    /// Who ran in it.
    meanwhile: BTreeSet<i32>,
    /// How long others than these had the CPU in the period that it ended.
    ran: BTreeMap<i32, Nanos>,
}

/// Takes a timeline's events, and the waits that somebody else finds in them.
#[derive(Debug)]
pub(crate) struct RealTime {
    limits: Limits,
    /// By the place of the CPU.
    lines: Vec<Line>,
    found: Vec<Candidate>,
}

impl RealTime {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            lines: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Takes an event.
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        match event.kind() {
            EventKind::OnCpu(Occupant::Thread(on), _) => {
                let tid = on.thread.map_or(0, |thread| thread.tid);
                self.line(event.slot).ran(tid, event.span);
            }
            EventKind::OnCpu(Occupant::Idle, _) => self.line(event.slot).close(),
            EventKind::Interrupt(interrupt) if interrupt.starts_server => {
                let servers = &mut self.line(event.slot).servers;
                servers.push_back(event.span.start);
                if servers.len() > RUNS {
                    servers.pop_front();
                }
            }
            _ => {}
        }
    }

    fn line(&mut self, slot: usize) -> &mut Line {
        if slot >= self.lines.len() {
            self.lines.resize_with(slot + 1, Line::default);
        }
        &mut self.lines[slot]
    }

    /// Whether a wait of this length may be one.
    pub(crate) fn wants(&self, length: Nanos) -> bool {
        let left = self.limits.period - self.limits.granted();
        (SHORTEST..=Nanos(left.0 * 3 / 2) + LATE).contains(&length)
    }

    /// Whether a thread that has the CPU in `slot` from `start` on was the last that had it for long, and left it
    /// so shortly before.
    pub(crate) fn left(&self, slot: usize, tid: i32, start: Nanos) -> bool {
        let last = self.lines.get(slot).and_then(|line| line.long.back());
        last.is_some_and(|run| run.tid == tid && self.wants(start - run.end))
    }

    /// A thread waited for the CPU in `slot`, which had these; `woken` is whether the wait began with a wake-up.
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
        let Some(line) = self.lines.get(slot) else {
            return;
        };
        let end = wait.end();
        let (mut meanwhile, mut idled) = (BTreeSet::new(), Nanos::ZERO);
        for piece in pieces {
            let source = sources.get(piece.source);
            meanwhile.extend(source.thread.as_ref().map(|thread| thread.tid));
            if source.kind == Kind::Idle {
                idled += piece.end - piece.start;
            }
        }
        let mut ran = line.by_thread(end - self.limits.period, end);
        ran.retain(|tid, _| !meanwhile.contains(tid));
        let begun = |&at: &Nanos| (wait.start - AT_ONCE..=wait.start).contains(&at);
        // Whoever had the CPU may not have been able to give it away at once.
        let passed_over = !woken || idled >= SHORTEST || meanwhile.len() > 1;
        let limit = self.limits.which(idled, line.servers.iter().any(begun));
        if let Some(limit) = limit.filter(|_| passed_over && self.limits.used_up(ran.values())) {
            self.found.push(Candidate {
                source: wait.source,
                tid,
                start: wait.start,
                length: wait.dur,
                limit,
                meanwhile,
                ran,
            });
        }
    }

    /// Which of the waits it was, by what the recording's end says of threads.
    pub(crate) fn finish(self, header: &Header) -> Held {
        let numbers = |is_meant: fn(SpecialPolicy) -> bool| -> BTreeSet<i32> {
            let threads = header.policies.iter();
            let threads = threads.filter(|thread| is_meant(thread.policy));
            threads.map(|thread| thread.tid).collect()
        };
        let real_time = numbers(SpecialPolicy::is_throttled);
        let go_first = numbers(SpecialPolicy::goes_first);
        let Self {
            limits, mut found, ..
        } = self;
        found.retain(|wait| {
            let ran = wait.ran.iter().filter(|(tid, _)| real_time.contains(tid));
            real_time.contains(&wait.tid)
                && wait.meanwhile.is_disjoint(&go_first)
                && limits.used_up(ran.map(|(_, time)| time))
        });
        Held { limits, found }
    }
}

/// Waits of real-time threads that were kept from their CPU.
#[derive(Debug)]
pub(crate) struct Held {
    limits: Limits,
    found: Vec<Candidate>,
}

impl Held {
    /// What kept thread `tid` from its CPU in the wait that began at `start`.
    pub(crate) fn limit_of(&self, tid: i32, start: Nanos) -> Option<RealTimeLimit> {
        let mut found = self.found.iter();
        let wait = found.find(|wait| wait.tid == tid && wait.start == start)?;
        Some(wait.limit)
    }

    /// The programs that were held, of those that are `wanted` by their process, the longest first.
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
        let told = programs.into_iter();
        let told = told.map(|((name, limit), (pids, tally))| RealTimeHeld {
            name,
            pids: pids.into_iter().collect(),
            limit,
            runtime: self.limits.runtime,
            period: self.limits.period,
            time: tally.time,
            count: tally.count,
            max: tally.longest,
        });
        let mut told: Vec<RealTimeHeld> = told.collect();
        told.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        told
    }
}

#[cfg(test)]
mod tests;
