//! Analyses the *victim*, which is the program whose delays are to be explained. Every nanosecond
//! of each of its threads is assigned to exactly one account.
//!
//! # Sums
//! The rows of a followed thread cover its life without gaps: base rows while it is on a CPU, wait
//! rows while it is not. The self time of a base row belongs to the thread, and the rest of the row
//! to its interruptions. A thread's accounts therefore add up to the time from its first moment to
//! its last. Any difference is reported in
//! [`ThreadTimes::imbalances`](ticktax_model::victim::ThreadTimes::imbalances).
//!
//! # Order of rows
//! The row of a wait comes from the CPU on which the wait ends, after the rows of the threads that
//! ran there. By then, those rows are in the CPU's history. Interrupts come before the base row
//! that they interrupted. Rows of different CPUs come in any order, so a new thread's base row may
//! precede the wait row that shows that the thread is the victim's. All programs' threads are
//! therefore summed up, and the victim's are selected at the end.
//!
//! # Memory
//! Sums are kept for each thread, and a bounded window of recent interrupts for each CPU. For each
//! source behind which the victim waited, the times of a bounded number of these waits are kept.

mod behind;
mod burst;
mod glance;
mod interruptions;
mod life;
mod limited;
mod losses;
mod moved;
mod outside;
mod processes;
mod quota;
pub(crate) mod rhythm;
mod shared;
mod stalls;
mod statement;
mod times;
mod wakers;
mod worst;

use std::collections::BTreeSet;

use ticktax_model::recording::{Edge, Effect, Header};
use ticktax_model::victim::{
    DelayKind, HoldUp, OffCpuReason, ThreadState, VictimHeader, VictimStatement,
};
use ticktax_model::{Cpu, Kind, Nanos, Owner, SourceId, SourceTable, Span};

use self::behind::{WaitSamples, WaitsBehind};
use self::burst::Demand;
use self::interruptions::Interruptions;
use self::life::Life;
pub(crate) use self::losses::Loss;
use self::losses::Losses;
use self::moved::{Moved, Moves};
pub(crate) use self::outside::Outside;
use self::quota::{Quota, Throttled};
pub(crate) use self::rhythm::{InRhythm, beat_of, in_rhythm, timer_of};
use self::shared::{Queued, SharedQuotas};
#[cfg(test)]
pub(crate) use self::stalls::rank;
use self::stalls::{Doing, Found, Stalls, Step, names_process};
pub(crate) use self::stalls::{Moment, Moments};
pub(crate) use self::statement::Evidence;
use self::wakers::Wakers;
use self::worst::{Candidate, Worst};
use crate::fast_map::FastMap;
use crate::ledger::JudgedGap;
use crate::ledger::tally::LengthTally;
use crate::ran::Ran;
use crate::real_time::{LimitedWaits, RealTime};
use crate::timeline::{
    Event, EventKind, History, InterruptPart, MAX_TIME, MIN_IDLE, Occupant, OffCpu, Piece,
    ThreadId, Timeline,
};

/// Determines from a timeline's events what happened to a recording's victim.
#[derive(Debug)]
pub(crate) struct Victim {
    since: Nanos,
    threads: FastMap<i32, Life>,
    /// Lives of threads that exited and whose id was then given to a new thread.
    past_lives: Vec<Life>,
    /// Interruptions of the current thread on each CPU, indexed by slot.
    cpus: Vec<Interruptions>,
    latency: LengthTally,
    migrations: u64,
    /// Waits, grouped by the source that ran and by whether the wait ended on another CPU.
    behind: FastMap<(SourceId, bool), WaitsBehind>,
    /// Waiting time, grouped by the source that ran and by the CPU that the victim waited for.
    behind_on: FastMap<(SourceId, Cpu), Nanos>,
    /// Samples during the waits. `None` if they were not requested.
    wait_samples: Option<WaitSamples>,
    worst: Worst,
    wakers: Wakers,
    quota: Quota,
    shared_quotas: SharedQuotas,
    demand: Demand,
    moves: Moves,
    /// Intervals that kept the victim from running. `None` if they were not requested.
    losses: Option<Losses>,
    stalls: Stalls,
    /// Time of the next look at all threads.
    sweep_at: Nanos,
    /// Waits that a limit on real-time threads may have caused. Which of them it did is known only
    /// at the end.
    maybe_limited: Vec<Queued>,
    /// The waits that such a limit caused. `None` before the end.
    limited: Option<LimitedWaits>,
}

impl Victim {
    /// If a thread id is reused within this time, both threads share one life, because rows of the
    /// old thread may still arrive. Otherwise, a new life starts.
    const SETTLED: Nanos = Nanos::from_millis(200);
    /// Time without a row after which a thread needs no buffers.
    const QUIET: Nanos = Nanos::from_secs(15);

    /// Creates a victim that ignores rows which end at or before `since`. That is
    /// [`VictimHeader::begin`](ticktax_model::victim::VictimHeader::begin), from which on the
    /// victim was followed.
    pub(crate) fn new(since: Nanos) -> Self {
        Self {
            since,
            threads: FastMap::default(),
            past_lives: Vec::new(),
            cpus: Vec::new(),
            latency: LengthTally::default(),
            migrations: 0,
            behind: FastMap::default(),
            behind_on: FastMap::default(),
            wait_samples: None,
            worst: Worst::default(),
            wakers: Wakers::default(),
            quota: Quota::default(),
            shared_quotas: SharedQuotas::default(),
            demand: Demand::default(),
            moves: Moves::default(),
            losses: None,
            stalls: Stalls::default(),
            sweep_at: Nanos::ZERO,
            maybe_limited: Vec::new(),
            limited: None,
        }
    }

    /// Returns whether the losses of process `pid` are kept. Such a process can be ticktax itself,
    /// as the receiver of paced traffic.
    fn keeps_losses_of(&self, pid: i32) -> bool {
        self.losses.as_ref().is_some_and(|losses| losses.is_of(pid))
    }

    /// Starts to keep the intervals in which something kept a thread of process `pid` from running.
    pub(crate) fn keep_losses(&mut self, pid: i32) {
        self.losses.get_or_insert_with(|| Losses::new(pid));
    }

    /// Returns the intervals in which something kept thread `tid` from running, sorted by start,
    /// and the time from which some of them are missing. Returns `None` if losses were not kept.
    pub(crate) fn losses_of(
        &self,
        tid: i32,
        outside: &Outside,
    ) -> Option<(Vec<Loss>, Option<Nanos>)> {
        let losses = self.losses.as_ref()?;
        Some((losses.for_thread(tid, outside), losses.full_at()))
    }

    pub(crate) fn ran_while_waiting(&self, sources: &SourceTable) -> Ran {
        let mut ran = Ran::default();
        for (&(id, _), waits) in &self.behind {
            ran.add(sources.get(id), waits.sum.time);
        }
        ran
    }

    /// Returns the ids of the victim's processes, as far as the rows show them.
    pub(crate) fn processes(&self, about: Option<&VictimHeader>) -> BTreeSet<i32> {
        let lives = self.threads.values().chain(&self.past_lives);
        let followed = lives.filter(|life| life.followed).map(|life| life.pid);
        followed.chain(about.and_then(|about| about.pid)).collect()
    }

    pub(crate) fn gap(&mut self, gap: &JudgedGap<'_>) {
        if let Some(losses) = &mut self.losses {
            losses.gap(gap);
        }
    }

    pub(crate) fn since(&self) -> Nanos {
        self.since
    }

    /// Processes the waits that were held back for late rows. Must be called after the last row,
    /// and after [`Victim::judge_limited`].
    pub(crate) fn settle(&mut self, timeline: &mut Timeline, sources: &SourceTable) {
        for (slot, wait) in self.quota.rest() {
            let history = timeline.history(slot).map(|(history, _)| &*history);
            self.throttled(&wait, history);
        }
        while let Some(wait) = self.shared_quotas.settled(MAX_TIME) {
            self.queued(&wait);
        }
        while let Some(wait) = self.moves.settled(MAX_TIME) {
            self.find_place(wait);
        }
        for slot in self.moves.slots() {
            while let Some(wait) = self.moves.ready_on(slot, MAX_TIME) {
                let history = timeline.history(slot).map(|(history, _)| &*history);
                self.moved(&wait, slot, history);
            }
        }
        let mut found = Vec::new();
        self.stalls.settle(sources, &mut found);
        self.found(found);
    }

    /// Adds a row of a followed thread to the search for stalls.
    fn step(&mut self, thread: ThreadId, doing: Doing, event: &Event<'_>) {
        let span = *event.span;
        let woken = self.wakers.leading_to(thread.tid, span.end());
        let step = Step {
            span,
            doing,
            woken: woken.filter(|(at, _)| matches!(doing, Doing::Blocked(_)) && *at >= span.start),
        };
        let mut found = Vec::new();
        self.stalls.step(thread, step, event.sources, &mut found);
        self.found(found);
    }

    /// Adds stalls to the losses and to the longest delays.
    fn found(&mut self, found: Vec<Found>) {
        for stall in found {
            let by = stall.woken.map(|(_, by)| by);
            if let Some(losses) = &mut self.losses {
                let by = by.filter(|_| names_process(stall.kind));
                losses.stalled(stall.thread, &stall.span, stall.kind, by);
            }
            if stall.counts && self.worst.wants(stall.span.dur) {
                let ran = by.zip(stall.ran);
                let mut delay = Candidate::stalled(stall.kind, &stall.span, stall.woken, ran);
                delay.tid = stall.thread.tid;
                self.worst.offer(delay);
            }
        }
    }

    /// Returns the victim's statement, or `None` if the recording has no victim. Must be called
    /// after [`Victim::settle`].
    pub(crate) fn finish(
        self,
        header: &Header,
        sources: &SourceTable,
        evidence: Evidence<'_>,
    ) -> Option<VictimStatement> {
        let victim = header.victim.as_ref()?;
        Some(statement::make(self, victim, header, sources, evidence))
    }

    /// Adds an event. `real_time` must have it already. It is `None` if limits on real-time threads
    /// hold back none.
    pub(crate) fn event(
        &mut self,
        event: &Event<'_>,
        history: &History,
        real_time: Option<&mut RealTime>,
    ) {
        match event.kind() {
            EventKind::OnCpu(occupant, _) => self.base(occupant, event),
            EventKind::Interrupt(interrupt) => {
                if interrupt.refills_quota {
                    self.quota.refill(event.span);
                }
                let is_complete =
                    interrupt.part == InterruptPart::Frame || interrupt.kind == Kind::Nmi;
                self.interrupted(event, is_complete);
            }
            EventKind::OffCpu(off) => self.wait(off, event, history, real_time),
            EventKind::Edge(edge) => self.edge(edge, event),
            EventKind::Profiled(_) => self.profiled(event),
            EventKind::Steal => {
                self.interrupted(event, true);
                if let Some(losses) = &mut self.losses {
                    losses.stolen(event.span);
                }
            }
            // It is unknown when a sum's intervals occurred.
            EventKind::Gap(_)
            | EventKind::Frame
            | EventKind::Late(_)
            | EventKind::Sampled(_)
            | EventKind::Waited(_)
            | EventKind::Sum(..) => {}
        }
        if event.span.end() >= self.sweep_at {
            self.sweep(event.span.end());
        }
        while let Some(wait) = self.quota.settled(event.slot, event.span.end()) {
            self.throttled(&wait, Some(history));
        }
        while let Some(wait) = self.shared_quotas.settled(event.span.end()) {
            self.queued(&wait);
        }
        while let Some(wait) = self.moves.settled(event.span.end()) {
            self.find_place(wait);
        }
        // A CPU's history is complete only up to the last base row. The row of an interrupt arrives
        // before the row of the thread that it interrupted, and that thread may have been running
        // for long.
        if matches!(event.kind(), EventKind::OnCpu(..)) {
            while let Some(wait) = self.moves.ready_on(event.slot, event.span.end()) {
                self.moved(&wait, event.slot, Some(history));
            }
        }
    }

    /// Frees the buffers of threads that have not run for long, and that may have exited.
    fn sweep(&mut self, now: Nanos) {
        self.sweep_at = now + Self::QUIET;
        let lives = self.threads.values_mut();
        for life in lives.filter(|life| life.end() + Self::QUIET < now) {
            life.forget_runs();
        }
    }

    /// Notes a wake-up. If it came from an idle CPU, its true cause was an untraced interrupt, so
    /// the waker is unknown.
    fn edge(&mut self, edge: &Edge, event: &Event<'_>) {
        let Effect::Woke(tid) = edge.effect else {
            return;
        };
        self.wakers.count(tid);
        let by = edge.span.source;
        if event.sources.get(by).kind != Kind::Idle {
            let waking = (edge.span.start, by);
            self.wakers.note(tid, waking);
            self.worst.woken(tid, waking);
            self.stalls.woken(tid, waking, event.sources);
        }
    }

    fn cpu(&mut self, event: &Event<'_>) -> &mut Interruptions {
        if event.slot >= self.cpus.len() {
            self.cpus
                .resize_with(event.slot + 1, Interruptions::default);
        }
        &mut self.cpus[event.slot]
    }

    /// Notes an interruption of the thread that is on the CPU.
    fn interrupted(&mut self, event: &Event<'_>, is_complete: bool) {
        let explains = self.losses.is_some();
        let cpu = self.cpu(event);
        cpu.note(event.span, is_complete);
        if explains {
            cpu.note_window(event.span);
        }
    }

    /// Processes a base row, which shows that a thread was on a CPU or that the CPU was idle.
    fn base(&mut self, occupant: Occupant, event: &Event<'_>) {
        let (span, since) = (event.span, self.since);
        let mut interruptions = std::mem::take(self.cpu(event));
        if let Occupant::Thread(on) = occupant
            && let Some(thread) = on.thread
            && (matches!(on.owner, Owner::Program | Owner::Kernel)
                || self.keeps_losses_of(thread.pid))
            && span.end() > since
        {
            let life = self.threads.entry(thread.tid);
            let life = life.or_insert_with(|| Life::new(thread.pid));
            life.on_cpu(span, on.state, interruptions.by_source());
            life.ran_on(span.start, event.slot);
            if let Some(losses) = &mut self.losses {
                losses.on_cpu((thread.pid, thread.tid), span, on.state, &interruptions);
            }
            let bursts = interruptions.bursts().iter();
            let delays = bursts.map(|burst| Candidate::interrupted(burst, span));
            life.interrupted(delays.collect(), &mut self.worst);
            let is_own = self
                .losses
                .as_ref()
                .is_some_and(|losses| losses.is_of(thread.pid));
            if life.followed || is_own {
                self.demand.ran(thread.tid, span);
                let doing = match on.state {
                    ThreadState::SystemCall => Doing::Called,
                    ThreadState::PageFault => Doing::Faulted,
                    ThreadState::Reclaim => Doing::Reclaimed,
                    _ => Doing::Ran,
                };
                self.step(thread, doing, event);
            }
        }
        interruptions.clear();
        // Keep the allocation for the next thread.
        *self.cpu(event) = interruptions;
    }

    /// Processes a wait row, which shows that a thread was off its CPU.
    fn wait(
        &mut self,
        off: OffCpu,
        event: &Event<'_>,
        history: &History,
        real_time: Option<&mut RealTime>,
    ) {
        let span = event.span;
        let (Some(thread), Some(reason)) = (off.thread, off.reason) else {
            return;
        };
        if span.end() <= self.since {
            return;
        }
        if reason == OffCpuReason::Reborn {
            let mut found = Vec::new();
            self.stalls
                .reborn(thread.tid, span.start, event.sources, &mut found);
            self.found(found);
            self.born(thread.tid, thread.pid, span);
            return;
        }
        if reason == OffCpuReason::Timer {
            let mut found = Vec::new();
            self.stalls.timer(thread, span, &mut found);
            self.found(found);
            return;
        }
        let life = self.threads.entry(thread.tid);
        let life = life.or_insert_with(|| Life::new(thread.pid));
        if reason == OffCpuReason::Throttled {
            life.saw(span);
            self.migrations += u64::from(off.moved);
            let span = *span;
            self.quota.wait(event.slot, Throttled { thread, span });
            self.demand.throttled(thread.tid, &span);
            if life.followed {
                self.step(thread, Doing::Waited, event);
            }
            return;
        }
        let kind = match reason {
            OffCpuReason::Woken => Some(DelayKind::Woken),
            OffCpuReason::Preempted => Some(DelayKind::Preempted),
            _ => None,
        };
        // Part of the wait may turn out to be throttling.
        let is_held_back = kind.is_some() && !off.moved && span.dur >= SharedQuotas::LONG;
        if is_held_back {
            life.queued(span, &mut self.worst);
        } else {
            life.absent(span, reason, &mut self.worst);
        }
        match (off.on, reason) {
            (Some(on), _) => {
                self.demand.slept(thread.tid);
                self.step(thread, Doing::Blocked(on), event);
            }
            (None, OffCpuReason::Missed) => self.missed(thread, span),
            (None, _) => self.step(thread, Doing::Waited, event),
        }
        self.migrations += u64::from(off.moved);
        let Some(kind) = kind else {
            return;
        };
        if kind == DelayKind::Woken && !is_held_back {
            self.latency.add(span.self_time, span.dur);
        }
        let wait = Queued {
            thread,
            kind,
            span: *span,
            pieces: history.ran_during(span),
        };
        let maybe_limited = real_time.filter(|_| !off.moved);
        let maybe_limited = maybe_limited.is_some_and(|real_time| {
            let woken = reason == OffCpuReason::Woken;
            let ran = wait.pieces.iter().copied();
            real_time.waited(event.slot, thread.tid, woken, span, ran, event.sources)
        });
        if maybe_limited && is_held_back {
            self.maybe_limited.push(wait);
        } else if is_held_back {
            self.shared_quotas.push(wait);
        } else {
            self.waited_at(wait, off.moved, event.sources);
        }
    }

    /// Notes that the kernel did not report what a thread did.
    fn missed(&mut self, thread: ThreadId, span: &Span) {
        if let Some(losses) = &mut self.losses {
            losses.stalled(thread, span, HoldUp::Unexplained, None);
        }
    }

    /// Adds a wait that cannot contain throttling. If the thread then ran on another CPU, the wait
    /// ends when its old CPU became idle, and the rest is held back.
    fn waited_at(&mut self, wait: Queued, moved: bool, sources: &SourceTable) {
        let Queued {
            thread,
            kind,
            span,
            pieces,
        } = wait;
        let idle = pieces.iter().rfind(|piece| {
            let is_idle = sources.get(piece.source).kind == Kind::Idle;
            is_idle && piece.end - piece.start >= MIN_IDLE
        });
        match idle.filter(|_| moved).map(|idle| idle.end) {
            Some(until) => self.moves.push(Moved {
                thread,
                kind,
                span,
                until,
                pieces,
            }),
            None => self.waited(thread, kind, &span, (None, moved, &pieces)),
        }
    }

    /// Attributes a thread's wait for a CPU to the `pieces` that ran there. `moved` is true if the
    /// thread then ran on another CPU. In that case, `on` is the CPU that it waited for, if known.
    fn waited(
        &mut self,
        thread: ThreadId,
        kind: DelayKind,
        span: &Span,
        (on, moved, pieces): (Option<Cpu>, bool, &[Piece]),
    ) {
        self.add_behind(thread, span, on, moved, pieces);
        if self.worst.wants(span.dur) {
            let mut delay = Candidate::waiting(kind, span, pieces.iter().copied());
            delay.tid = thread.tid;
            delay.waited_on = on;
            delay.woken = match kind {
                DelayKind::Woken => self.wakers.leading_to(thread.tid, span.start),
                _ => None,
            };
            self.worst.offer(delay);
        }
    }

    /// Notes that the thread id belongs to a new thread from `span` on.
    fn born(&mut self, tid: i32, pid: i32, span: &Span) {
        let limited = self
            .maybe_limited
            .extract_if(.., |wait| wait.thread.tid == tid);
        for wait in limited.collect::<Vec<Queued>>() {
            self.queued(&wait);
        }
        for wait in self.shared_quotas.of_thread(tid) {
            self.queued(&wait);
        }
        let life = self.threads.entry(tid).or_insert_with(|| Life::new(pid));
        if life.end() + Self::SETTLED < span.start && !life.is_empty() {
            let mut ended = std::mem::replace(life, Life::new(pid));
            ended.forget_runs();
            self.past_lives.push(ended);
        } else {
            life.taken_over();
        }
        life.born = true;
    }
}
