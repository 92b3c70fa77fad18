//! A passive witness of stolen time: uses the delays of a CPU's timer interrupts to find intervals
//! in which the CPU ran neither a program nor the kernel.
//!
//! A timer interrupt that is due stays pending while the kernel has interrupts disabled, and fires
//! as soon as the kernel enables them. Suppose that it fires late, in user mode, where interrupts
//! are always enabled. Then the CPU was not executing the kernel beforehand, because the interrupt
//! would have fired on the way back to user mode. It was not executing the program either, because
//! the
//! interrupt would have fired there. So from the time the timer was due, the hypervisor or firmware
//! must have taken the CPU or held back its interrupt. The same holds for the idle loop, which
//! disables interrupts only for microseconds.
//!
//! An interrupt that fires in the kernel proves nothing, because the kernel may have had interrupts
//! disabled until then. These delays are reported separately.
//!
//! # Which part of the delay counts
//! A stop starts when the timer was due. In the following cases this is too early, and counting the
//! whole delay would blame the hypervisor for a delay caused by the kernel or a program:
//!
//! - Another interrupt's handler ran in the meantime, with interrupts disabled. A stop therefore
//!   starts only after the CPU's previous event.
//! - If a timer interrupt takes too long, the kernel postpones all timers by at most the time that
//!   the interrupt took (`hrtimer_interrupt`). A stop therefore starts only after that time.
//! - A program can set a timer to a time in the past. In user mode, only timers that cannot have
//!   been set this way count: the tick's, which the kernel always sets to a time in the future, and
//!   the timers of sleeping threads.
//!
//! A stop that starts and ends between two timers is not seen, and neither is the part of a stop
//! before the first timer is due. The sum is therefore a lower bound.

use std::cmp::Reverse;

use ticktax_model::kernel_words::{Interrupted, SLEEP_FUNCTION, TICK_FUNCTIONS};
use ticktax_model::late_timers::{Delays, LateTimers, Stop};
use ticktax_model::limitation::{Limitation, NoLateTimers};
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Header, Level, World};
use ticktax_model::{Cpu, Moment, Nanos, Span};

use crate::timeline::{Event, EventKind, InterruptPart};

/// Shortest delay reported. On a virtual machine, an idle CPU wakes up much faster than this.
const SHORTEST: Nanos = Nanos::from_millis(1);

/// The part of a delay that may have passed in kernel code around user mode and the idle loop, and
/// at the start of the interrupt, before its first event.
const ENTRY: Nanos = Nanos::from_micros(50);

/// Longest time that a physical CPU takes to leave an idle state. It is almost 1 ms for the deepest
/// states on x86-64 CPUs.
const LEAVING_IDLE: Nanos = Nanos::from_millis(1);

/// Number of stops kept per CPU until the end, longest first.
const KEPT: usize = 64;

/// First version of the recording format that has rows for late timers.
const RECORDED_SINCE: u32 = 4;

/// Finds stops in a recording's events.
#[derive(Debug)]
pub(crate) struct Stops {
    /// State of each CPU, indexed by CPU number. Impossible CPU numbers all share one entry.
    cpus: Vec<CpuStops>,
    /// Whether a tick was seen, which means that high-resolution timers are traced.
    ticked: bool,
    /// Whether some rows lack times.
    summed: bool,
    leaving_idle: Nanos,
}

/// State of one CPU.
#[derive(Clone, Debug, Default)]
struct CpuStops {
    /// End of the latest row. Functions do not count, because they are part of an interrupt.
    busy_until: Nanos,
    /// Time until which the kernel may have postponed timers.
    postponed_until: Nanos,
    /// The late timer interrupt whose own row has not arrived yet.
    pending: Option<Late>,
    stops: Delays,
    /// The longest stops, longest first. Their times are on the recording's clock.
    longest: Vec<Stop>,
    unproven: Delays,
}

/// A late timer interrupt.
#[derive(Clone, Copy, Debug)]
struct Late {
    /// Start of the interrupt.
    at: Nanos,
    interrupted: Interrupted,
    /// When the first of its timers was due.
    due: Nanos,
    /// When the first timer was due that no program can have set to a time in the past.
    trusted: Nanos,
    /// When the tick was due.
    tick: Nanos,
}

impl Late {
    fn new(at: Nanos) -> Self {
        Self {
            at,
            interrupted: Interrupted::Kernel,
            due: at,
            trusted: at,
            tick: at,
        }
    }

    /// Adds one of the interrupt's timers.
    fn add(&mut self, due: Nanos, interrupted: Interrupted, function: &str) {
        if interrupted != Interrupted::Kernel {
            self.interrupted = interrupted;
        }
        let is_tick = TICK_FUNCTIONS.contains(&function);
        self.due = self.due.min(due);
        if is_tick || function == SLEEP_FUNCTION {
            self.trusted = self.trusted.min(due);
        }
        if is_tick {
            self.tick = self.tick.min(due);
        }
    }
}

impl CpuStops {
    fn late(&mut self, span: &Span, interrupted: Interrupted, function: &str, leaving_idle: Nanos) {
        let at = span.end();
        if self.pending.is_some_and(|late| late.at != at) {
            self.judge(leaving_idle, span.cpu);
        }
        let late = self.pending.get_or_insert_with(|| Late::new(at));
        late.add(span.start, interrupted, function);
    }

    /// Judges the pending interrupt. All its timers must have been added.
    fn judge(&mut self, leaving_idle: Nanos, cpu: Cpu) {
        let Some(late) = self.pending.take() else {
            return;
        };
        let (due, allowance) = match late.interrupted {
            Interrupted::Idle => (late.due, ENTRY + leaving_idle),
            Interrupted::User => (late.trusted, ENTRY),
            Interrupted::Kernel => (late.tick, Nanos::ZERO),
        };
        let start = due.max(self.busy_until).max(self.postponed_until) + allowance;
        let length = late.at - start;
        if length < SHORTEST {
            return;
        }
        if late.interrupted == Interrupted::Kernel {
            self.unproven.add(length);
            return;
        }
        self.stops.add(length);
        let place = self
            .longest
            .partition_point(|stop| stop.at.length >= length);
        if place < KEPT {
            let at = Moment {
                at: start,
                length,
                cpu,
            };
            let interrupted = late.interrupted;
            self.longest.insert(place, Stop { at, interrupted });
            self.longest.truncate(KEPT);
        }
    }

    /// Moves the `unseen` longest stops to those that prove nothing.
    fn doubt(&mut self, unseen: u64) {
        let kept = self.longest.len();
        let Some(unseen) = usize::try_from(unseen).ok().filter(|&count| count < kept) else {
            self.unproven.merge(self.stops);
            self.stops = Delays::default();
            self.longest.clear();
            return;
        };
        for stop in self.longest.drain(..unseen) {
            self.unproven.add(stop.at.length);
            self.stops.count -= 1;
            self.stops.time -= stop.at.length;
        }
        self.stops.max = self.longest[0].at.length;
    }
}

impl Stops {
    pub(crate) fn new(machine: &Machine) -> Self {
        Self {
            cpus: Vec::new(),
            ticked: false,
            summed: false,
            leaving_idle: match machine.hypervisor {
                Some(_) => Nanos::ZERO,
                None => LEAVING_IDLE,
            },
        }
    }

    #[inline]
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let span = event.span;
        match event.kind() {
            EventKind::Late(interrupted) => {
                let function = &event.sources.get(span.source).detail;
                let leaving_idle = self.leaving_idle;
                let cpu = self.cpu(event.slot);
                cpu.late(span, interrupted, function, leaving_idle);
            }
            EventKind::OnCpu(..) => self.row(event),
            EventKind::Interrupt(interrupt) => match interrupt.part {
                InterruptPart::Tick => self.ticked = true,
                InterruptPart::Function => {}
                InterruptPart::Frame => {
                    self.row(event);
                    if interrupt.is_local_timer() {
                        self.cpu(event.slot).postponed_until = span.end() + span.dur;
                    }
                }
            },
            EventKind::Sum(..) => self.summed = true,
            _ => {}
        }
    }

    #[inline]
    fn cpu(&mut self, slot: usize) -> &mut CpuStops {
        if slot >= self.cpus.len() {
            self.cpus.resize_with(slot + 1, Default::default);
        }
        &mut self.cpus[slot]
    }

    #[inline]
    fn row(&mut self, event: &Event<'_>) {
        let leaving_idle = self.leaving_idle;
        let cpu = self.cpu(event.slot);
        cpu.judge(leaving_idle, event.span.cpu);
        cpu.busy_until = cpu.busy_until.max(event.span.end());
    }

    /// Judges the last interrupts. Must be called after the last row and before [`Stops::longest`]
    /// and [`Stops::finish`].
    pub(crate) fn settled(mut self, header: &Header) -> Self {
        for (number, cpu) in (0..).map(Cpu).zip(&mut self.cpus) {
            cpu.judge(self.leaving_idle, number);
            let unseen = unseen_interrupts(header, number);
            if unseen > 0 {
                cpu.doubt(unseen);
            }
        }
        self
    }

    /// Returns the longest stops on each CPU. Their times are on the recording's clock.
    pub(crate) fn longest(&self, header: &Header) -> Vec<Moment> {
        if self.summed || !self.ticked || !has_late_timers(header) {
            return Vec::new();
        }
        let stops = self.cpus.iter().flat_map(|cpu| &cpu.longest);
        stops.map(|stop| stop.at).collect()
    }

    /// Returns the delays, or why they are unknown. Returns `None` if this kind of recording never
    /// contains them.
    pub(crate) fn finish(self, header: &Header) -> Option<Result<LateTimers, NoLateTimers>> {
        if !has_late_timers(header) {
            return None;
        }
        if self.summed {
            return Some(Err(NoLateTimers::Sums));
        }
        if !self.ticked {
            return Some(Err(NoLateTimers::NoTick));
        }
        let begin = header.begin().unwrap_or_default();
        let mut late = LateTimers {
            from: SHORTEST,
            ..LateTimers::default()
        };
        for mut cpu in self.cpus {
            late.stops.merge(cpu.stops);
            late.unproven.merge(cpu.unproven);
            late.longest.append(&mut cpu.longest);
        }
        for stop in &mut late.longest {
            stop.at.at -= begin;
        }
        late.longest
            .sort_by_key(|stop| (Reverse(stop.at.length), stop.at.at, stop.at.cpu));
        late.longest.truncate(LateTimers::LISTED);
        Some(Ok(late))
    }
}

/// Returns whether this kind of recording contains late timers.
fn has_late_timers(header: &Header) -> bool {
    let is_traced = header.level == Level::Kernel && header.world != World::Simulated;
    is_traced && header.schema >= RECORDED_SINCE
}

/// Returns the maximum number of interrupts on `cpu` that left no row. Any of them may have run for
/// the entire length of a stop.
fn unseen_interrupts(header: &Header, cpu: Cpu) -> u64 {
    let coverage = &header.coverage;
    if !coverage.every_entry_watched || coverage.lost_on(cpu).events > 0 {
        return u64::MAX;
    }
    let untraced = coverage
        .limitations
        .iter()
        .map(|limitation| match limitation {
            Limitation::InterruptsNotTraced { cpu: at, count, .. } if *at == cpu => *count,
            _ => 0,
        });
    let checks = header.cross_checks.as_ref();
    let skipped = checks.and_then(|checks| checks.bpf_programs_skipped);
    untraced.fold(skipped.unwrap_or(0), u64::saturating_add)
}
