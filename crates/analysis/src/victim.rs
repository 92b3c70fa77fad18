//! The victim: what happened to one program, every nanosecond of each of its threads in exactly
//! one account.
//!
//! # What is summed
//! A followed thread's rows tile its life: base rows while it is on a CPU, waits while it is not.
//! Of a base row, its own time is the thread's and the rest is what interrupted it. So the accounts
//! of a thread sum to the time from its first moment to its last; where they do not,
//! [`ThreadTimes::off`](ticktax_model::victim::Lives::off) says so.
//!
//! # In which order rows come
//! A wait for a CPU is told by the CPU that ends it, after the rows of the thread that ran there, so these
//! are at hand when it comes. Interrupts come before the base row that they interrupted. Rows of
//! different CPUs come in any order: a new thread may be known by a base row before a wait tells
//! that it is the victim's. Therefore every program's thread is summed, and who was the victim's is
//! decided at the end.
//!
//! # Memory
//! Sums for each thread, a bounded window of recent interrupts for each CPU, and for each source that it waited
//! behind a bounded number of the times at which it did.

mod interruptions;
mod life;
mod losses;
mod moved;
mod quota;
mod rhythm;
mod statement;
mod times;
mod wakers;
mod worst;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ticktax_model::beats::BeatLine;
use ticktax_model::glance::ProgramGlance;
use ticktax_model::recording::{Edge, Effect, Header};
use ticktax_model::victim::{DelayKind, OffCpuReason, ThreadState, VictimHeader, VictimStatement};
use ticktax_model::{Cpu, Kind, Nanos, Owner, SourceId, SourceTable, Span};

use self::interruptions::Interruptions;
use self::life::Life;
pub(crate) use self::losses::Loss;
use self::losses::Losses;
use self::moved::{Moved, Moves};
use self::quota::{Quota, Throttled};
pub(crate) use self::rhythm::{InRhythm, beat_of, in_rhythm, timer_of};
pub(crate) use self::statement::{named, waker};
use self::times::Times;
use self::wakers::Wakers;
use self::worst::{Candidate, Worst};
use crate::ledger::JudgedGap;
use crate::ledger::tally::{LengthTally, Tally};
use crate::pace::lateness::Outside;
use crate::ran::Ran;
use crate::real_time::{Limits, RealTime};
use crate::timeline::{
    Event, EventKind, History, MAX_TIME, Occupant, OffCpu, Part, Piece, ThreadId, Timeline,
};

/// Shorter idling may be what it takes to switch to the thread that has just come.
pub(crate) const MIN_IDLE: Nanos = Nanos::from_micros(5);

/// Takes a timeline's events and says what happened to a recording's victim.
#[derive(Debug)]
pub(crate) struct Victim {
    since: Nanos,
    threads: HashMap<i32, Life>,
    /// Threads that ended, and whose number was given to another.
    past_lives: Vec<Life>,
    /// By CPU: what interrupted the thread on it.
    cpus: Vec<Interruptions>,
    latency: LengthTally,
    migrations: u64,
    /// By who had the CPU, and whether the wait ended on another.
    behind: BTreeMap<(SourceId, bool), Tally>,
    /// The same, when.
    behind_at: BTreeMap<(SourceId, bool), Times>,
    /// By who had the CPU, and which that was.
    behind_on: BTreeMap<(SourceId, Cpu), Nanos>,
    worst: Worst,
    wakers: Wakers,
    quota: Quota,
    moves: Moves,
    /// Where they are asked for.
    losses: Option<Losses>,
    /// Where the machine's settings are known.
    real_time: Option<RealTime>,
}

impl Victim {
    /// A number that comes again after less than this is the same thread's still, as far as rows
    /// can come late.
    const SETTLED: Nanos = Nanos::from_millis(200);

    /// Nothing yet. Rows that ended at `since` or before are not looked at; it is where
    /// [`VictimHeader::begin`](ticktax_model::victim::VictimHeader::begin) says that the victim was
    /// first followed.
    pub(crate) fn new(since: Nanos) -> Self {
        Self {
            since,
            threads: HashMap::new(),
            past_lives: Vec::new(),
            cpus: Vec::new(),
            latency: LengthTally::default(),
            migrations: 0,
            behind: BTreeMap::new(),
            behind_on: BTreeMap::new(),
            behind_at: BTreeMap::new(),
            worst: Worst::default(),
            wakers: Wakers::default(),
            quota: Quota::default(),
            moves: Moves::default(),
            losses: None,
            real_time: None,
        }
    }

    /// The same, which also says what of these kept real-time threads from their CPU.
    #[must_use]
    pub(crate) fn with_limits(mut self, limits: Option<Limits>) -> Self {
        self.real_time = limits.map(RealTime::new);
        self
    }

    /// What happened to the threads that are known to be the victim's by now.
    pub(crate) fn glance(&self, sources: &SourceTable) -> ProgramGlance {
        let mut glance = ProgramGlance::default();
        for life in self.threads.values().filter(|life| life.followed) {
            for (state, tally) in &life.states {
                if state.is_wanted() {
                    glance.wanted += tally.time;
                }
                if *state == ThreadState::Waiting {
                    glance.waited += tally.time;
                    glance.longest = glance.longest.max(tally.longest);
                }
            }
        }
        let mut behind: BTreeMap<&str, Nanos> = BTreeMap::new();
        for (&(id, _), tally) in &self.behind {
            let source = sources.get(id);
            let thread = source.thread.as_ref();
            let name = thread.map_or(&*source.name, |thread| &*thread.program);
            *behind.entry(name).or_default() += tally.time;
        }
        let all = behind.into_iter();
        glance.behind = all.map(|(name, time)| (name.to_owned(), time)).collect();
        glance
            .behind
            .sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        glance
    }

    /// Whether what keeps a process' threads from running is kept: that may be ticktax itself, where it is the one
    /// that receives.
    fn is_asked_for(&self, pid: i32) -> bool {
        self.losses.as_ref().is_some_and(|it| it.is_of(pid))
    }

    /// Keeps what kept the threads of process `pid` from running, piece by piece.
    pub(crate) fn keep_losses(&mut self, pid: i32) {
        self.losses.get_or_insert_with(|| Losses::new(pid));
    }

    /// What kept thread `tid` from running, by begin, and from when on some of that is missing; `None` where it was
    /// not kept.
    pub(crate) fn losses_of(
        &self,
        tid: i32,
        outside: &Outside,
    ) -> Option<(Vec<Loss>, Option<Nanos>)> {
        let losses = self.losses.as_ref()?;
        Some((losses.of(tid, outside), losses.full_at()))
    }

    /// Which threads had the CPU while it waited.
    pub(crate) fn ran_meanwhile(&self, sources: &SourceTable) -> Ran {
        let mut ran = Ran::default();
        for (&(id, _), tally) in &self.behind {
            ran.add(sources.get(id), tally.time);
        }
        ran
    }

    /// The processes that are the victim's, as far as the rows tell.
    pub(crate) fn processes(&self, about: Option<&VictimHeader>) -> BTreeSet<i32> {
        let lives = self.threads.values().chain(&self.past_lives);
        let followed = lives.filter(|life| life.followed).map(|life| life.pid);
        followed.chain(about.and_then(|about| about.pid)).collect()
    }

    /// Takes a gap of the spinning probe of which everything is known.
    pub(crate) fn gap(&mut self, gap: &JudgedGap<'_>) {
        if let Some(losses) = &mut self.losses {
            losses.gap(gap);
        }
    }

    /// From when on it is looked at.
    pub(crate) fn since(&self) -> Nanos {
        self.since
    }

    /// No more rows come: what waited for some is settled.
    pub(crate) fn settle(&mut self, timeline: &mut Timeline) {
        for (slot, wait) in self.quota.rest() {
            let history = timeline.history(slot).map(|(history, _)| &*history);
            self.throttled(&wait, history);
        }
        while let Some(wait) = self.moves.settled(MAX_TIME) {
            self.find_place(wait);
        }
        for slot in self.moves.slots() {
            while let Some(wait) = self.moves.of(slot, MAX_TIME) {
                let history = timeline.history(slot).map(|(history, _)| &*history);
                self.moved(&wait, slot, history);
            }
        }
    }

    /// What happened, once it is settled; `None` where the recording has no victim.
    /// `beats` are those of the recording, where they were looked for.
    pub(crate) fn finish(
        self,
        header: &Header,
        sources: &SourceTable,
        beats: &[BeatLine],
    ) -> Option<VictimStatement> {
        let victim = header.victim.as_ref()?;
        Some(statement::make(self, victim, header, (sources, beats)))
    }

    /// Takes an event of a CPU with this past.
    pub(crate) fn event(&mut self, event: &Event<'_>, history: &History) {
        if let Some(real_time) = &mut self.real_time {
            real_time.event(event);
        }
        match event.kind() {
            EventKind::OnCpu(occupant, _) => self.base(occupant, event),
            EventKind::Interrupt(interrupt) => {
                if interrupt.refills_quota {
                    self.quota.refill(event.span);
                }
                let whole = interrupt.part == Part::Frame || interrupt.kind == Kind::Nmi;
                self.cpu(event).note(event.span, whole);
            }
            EventKind::OffCpu(off) => self.wait(off, event, history),
            EventKind::Edge(edge) => self.edge(edge, event),
            EventKind::Steal => {
                self.cpu(event).note(event.span, true);
                if let Some(losses) = &mut self.losses {
                    losses.stolen(event.span);
                }
            }
            // Sums have no place in time.
            EventKind::Gap(_) | EventKind::Frame | EventKind::Sum(..) => {}
        }
        while let Some(wait) = self.quota.settled(event.slot, event.span.end()) {
            self.throttled(&wait, Some(history));
        }
        while let Some(wait) = self.moves.settled(event.span.end()) {
            self.find_place(wait);
        }
        // An interrupt's row comes before that of whoever it interrupted, who may have had the CPU for long.
        if matches!(event.kind(), EventKind::OnCpu(..)) {
            while let Some(wait) = self.moves.of(event.slot, event.span.end()) {
                self.moved(&wait, event.slot, Some(history));
            }
        }
    }

    /// Something made a thread able to run. Where the CPU idled, it was an interrupt that no hook
    /// watches.
    fn edge(&mut self, edge: &Edge, event: &Event<'_>) {
        let Effect::Woke(tid) = edge.effect else {
            return;
        };
        let by = edge.span.source;
        if event.sources.get(by).kind != Kind::Idle {
            let waking = (edge.span.start, by);
            self.wakers.note(tid, waking);
            self.worst.woken(tid, waking);
        }
    }

    fn cpu(&mut self, event: &Event<'_>) -> &mut Interruptions {
        if event.slot >= self.cpus.len() {
            self.cpus
                .resize_with(event.slot + 1, Interruptions::default);
        }
        &mut self.cpus[event.slot]
    }

    /// A thread was on a CPU, or it idled.
    fn base(&mut self, occupant: Occupant, event: &Event<'_>) {
        let (span, since) = (event.span, self.since);
        let mut interruptions = std::mem::take(self.cpu(event));
        if let Occupant::Thread(on) = occupant
            && let Some(thread) = on.thread
            && (matches!(on.owner, Owner::Program | Owner::Kernel) || self.is_asked_for(thread.pid))
            && span.end() > since
        {
            let life = self.threads.entry(thread.tid);
            let life = life.or_insert_with(|| Life::new(thread.pid));
            life.on_cpu(span, on.state, interruptions.by_source());
            life.ran_on(span.start, event.slot);
            if let Some(losses) = &mut self.losses {
                losses.on_cpu((thread.pid, thread.tid), span, on.state, &interruptions);
            }
            let stretches = interruptions.stretches().iter();
            let stretches = stretches.map(|stretch| Candidate::interrupted(stretch, span));
            life.interrupted(stretches.collect(), &mut self.worst);
        }
        interruptions.clear();
        // Given back for its memory.
        *self.cpu(event) = interruptions;
    }

    /// A thread was off its CPU.
    fn wait(&mut self, off: OffCpu, event: &Event<'_>, history: &History) {
        let span = event.span;
        let (Some(thread), Some(reason)) = (off.thread, off.reason) else {
            return;
        };
        if span.end() <= self.since {
            return;
        }
        if reason == OffCpuReason::Reborn {
            self.born(thread.tid, thread.pid, span);
            return;
        }
        let life = self.threads.entry(thread.tid);
        let life = life.or_insert_with(|| Life::new(thread.pid));
        if reason == OffCpuReason::Throttled {
            life.saw(span);
            self.migrations += u64::from(off.moved);
            let span = *span;
            self.quota.wait(event.slot, Throttled { thread, span });
            return;
        }
        life.absent(span, reason, &mut self.worst);
        if let Some(losses) = &mut self.losses {
            losses.off(thread, span, reason);
        }
        self.migrations += u64::from(off.moved);
        let kind = match reason {
            OffCpuReason::Woken => DelayKind::Woken,
            OffCpuReason::Preempted => DelayKind::Preempted,
            _ => return,
        };
        if reason == OffCpuReason::Woken {
            self.latency.add(span.self_time, span.dur);
        }
        let pieces = history.had_cpu_during(span);
        if let Some(real_time) = self.real_time.as_mut().filter(|_| !off.moved) {
            let woken = reason == OffCpuReason::Woken;
            let had = pieces.iter().copied();
            real_time.waited((event.slot, thread.tid, woken), span, had, event.sources);
        }
        let idle = pieces.iter().rfind(|piece| {
            let idles = event.sources.get(piece.source).kind == Kind::Idle;
            idles && piece.end - piece.start >= MIN_IDLE
        });
        match idle.filter(|_| off.moved).map(|idle| idle.end) {
            Some(until) => self.moves.push(Moved {
                thread,
                kind,
                span: *span,
                until,
                pieces,
            }),
            None => self.waited(thread, kind, span, (None, off.moved, &pieces)),
        }
    }

    /// Puts a wait that ended on another CPU where it was spent.
    fn find_place(&mut self, wait: Moved) {
        let life = self.threads.get(&wait.thread.tid);
        match life.and_then(|life| life.slot_before(wait.span.start)) {
            Some(slot) => self.moves.keep(slot, wait),
            // It was not seen to run before.
            None => self.waited(
                wait.thread,
                wait.kind,
                &wait.span,
                (None, true, &wait.pieces),
            ),
        }
    }

    /// A wait that ended on another CPU than the one in `slot` that it was spent on, which has this past.
    fn moved(&mut self, wait: &Moved, slot: usize, history: Option<&History>) {
        let history = history.into_iter();
        let before = wait.before();
        let mut pieces: Vec<Piece> = history
            .flat_map(|history| history.had_cpu_during(&before))
            .collect();
        pieces.extend(wait.after());
        let on = u32::try_from(slot).ok().map(Cpu);
        self.waited(wait.thread, wait.kind, &wait.span, (on, true, &pieces));
    }

    /// A thread waited for a CPU, and this ran there; `on` is the CPU where it is not the one that it
    /// then ran on, and `moved` whether it was another.
    fn waited(
        &mut self,
        thread: ThreadId,
        kind: DelayKind,
        span: &Span,
        (on, moved, pieces): (Option<Cpu>, bool, &[Piece]),
    ) {
        self.behind(thread, span, (on, moved, pieces));
        if self.worst.wants(span.dur) {
            let mut delay = Candidate::waiting(kind, span, pieces.iter().copied());
            delay.tid = thread.tid;
            delay.waited_on = on;
            delay.woken = match kind {
                DelayKind::Woken => self.wakers.of(thread.tid, span.start),
                _ => None,
            };
            self.worst.offer(delay);
        }
    }

    /// Adds up who had the CPU meanwhile; the rest as of [`Victim::waited`].
    fn behind(
        &mut self,
        thread: ThreadId,
        span: &Span,
        (on, moved, pieces): (Option<Cpu>, bool, &[Piece]),
    ) {
        let mut seen = false;
        for piece in pieces {
            let length = piece.end - piece.start;
            let behind = self.behind.entry((piece.source, moved)).or_default();
            behind.add(length, length);
            let times = self.behind_at.entry((piece.source, moved)).or_default();
            times.add((piece.start, piece.end));
            // Of a wait on two CPUs both count.
            for cpu in on.into_iter().chain([span.cpu]) {
                *self.behind_on.entry((piece.source, cpu)).or_default() += length;
            }
            if let Some(losses) = &mut self.losses {
                let time = (piece.start, piece.end);
                losses.waited(thread, time, Some(piece.source), moved);
            }
            seen = true;
        }
        if let (false, Some(losses)) = (seen, &mut self.losses) {
            losses.waited(thread, (span.start, span.end()), None, moved);
        }
    }

    /// A thread was throttled, and perhaps waited for a CPU after that; `history` is the past of the
    /// CPU that it then ran on.
    fn throttled(&mut self, wait: &Throttled, history: Option<&History>) {
        let ThreadId { tid, pid } = wait.thread;
        let (throttled, waited) = self.quota.split(&wait.span);
        let life = self.threads.entry(tid).or_insert_with(|| Life::new(pid));
        let delay = Candidate::throttled(&throttled);
        life.throttled(ThreadState::Throttled, delay, &mut self.worst);
        if let Some(losses) = &mut self.losses {
            losses.throttled(wait.thread, &throttled);
        }
        if let Some(waited) = waited {
            let pieces: Vec<Piece> = history
                .into_iter()
                .flat_map(|history| history.had_cpu_during(&waited))
                .collect();
            let ran = pieces.iter().copied();
            let delay = Candidate::waiting(DelayKind::Unthrottled, &waited, ran);
            life.throttled(ThreadState::Waiting, delay, &mut self.worst);
            if life.followed {
                self.behind(wait.thread, &waited, (None, false, &pieces));
            }
        }
    }

    /// A thread's number is a new thread's from here on.
    fn born(&mut self, tid: i32, pid: i32, span: &Span) {
        let life = self.threads.entry(tid).or_insert_with(|| Life::new(pid));
        if life.end() + Self::SETTLED < span.start && !life.is_empty() {
            let ended = std::mem::replace(life, Life::new(pid));
            self.past_lives.push(ended);
        } else {
            life.taken_over();
        }
    }
}
