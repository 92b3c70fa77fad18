//! Resolves the meaning of each source's rows once for all consumers.

use ticktax_model::kernel_words::{
    Interrupted, LOCAL_TIMER, QUOTA_FUNCTIONS, SERVER_FUNCTION, TICK_FUNCTIONS, TIMER_SOFTIRQ,
    TaskDetail, UNREPORTED, UNTRACED_TIMER, system_call,
};
use ticktax_model::recording::ProbeKind;
use ticktax_model::statement::Class;
use ticktax_model::victim::{self, BlockedOn, OffCpuReason, ThreadState};
use ticktax_model::{Kind, Owner, Source, SourceId, SourceTable};

use super::places::place;

/// The meaning of a source's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A thread ran, or the CPU was idle.
    OnCpu(Occupant),
    /// An interrupt, a softirq, or a function within one.
    Interrupt(Interrupt),
    Steal,
    /// A gap that a probe saw. Other rows cover the same time.
    Gap(ProbeKind),
    OffCpu(OffCpu),
    /// A frame of a paced loop. Other rows cover the frame's CPU time.
    Frame,
    /// The delay of a timer interrupt. Other rows cover the same time.
    Late(Interrupted),
}

/// The occupant of a CPU between two context switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// The idle loop.
    Idle,
    Thread(OnCpu),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadId {
    pub(crate) pid: i32,
    pub(crate) tid: i32,
}

/// A thread that is on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnCpu {
    pub(crate) owner: Owner,
    pub(crate) thread: Option<ThreadId>,
    /// State of the thread: running, in a system call, handling a page fault, or reclaiming
    /// memory.
    pub(crate) state: ThreadState,
}

/// A thread that is off its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffCpu {
    pub(crate) owner: Owner,
    pub(crate) thread: Option<ThreadId>,
    /// Reason for being off the CPU, or `None` if the row gives no known reason.
    pub(crate) reason: Option<OffCpuReason>,
    /// Thing that the thread waited for, or `None` if it could have run or the reason is unknown.
    pub(crate) on: Option<BlockedOn>,
    /// Whether the thread resumed on a different CPU.
    pub(crate) moved: bool,
}

impl OffCpu {
    /// Returns whether the thread could not run because it was asleep, blocked, stopped, frozen or
    /// throttled.
    pub(crate) fn is_off(self) -> bool {
        use OffCpuReason::{Deadline, Disk, Frozen, Lock, Sleeping, Stopped, Throttled};
        matches!(
            self.reason,
            Some(Sleeping | Disk | Lock | Stopped | Frozen | Throttled | Deadline)
        )
    }
}

/// Meaning of an interrupt's or softirq's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupt {
    /// [`Kind::Irq`], [`Kind::Softirq`] or [`Kind::Nmi`].
    pub(crate) kind: Kind,
    pub(crate) line: InterruptLine,
    pub(crate) part: InterruptPart,
    /// Whether the interrupt replenishes the CPU quota of throttled threads.
    pub(crate) refills_quota: bool,
    /// Whether the interrupt starts the fair server, which lets ordinary threads run ahead of
    /// real-time ones.
    pub(crate) starts_server: bool,
}

/// Interrupt lines that consumers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptLine {
    /// The local timer's interrupt or, if that has no tracepoint, its substitute.
    LocalTimer,
    /// The softirq that runs low-resolution timers.
    TimerSoftirq,
    /// Any other line.
    Other,
}

/// The part of an interrupt that a row covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptPart {
    /// The whole interrupt or softirq.
    Frame,
    /// The tick's function, which runs within the local timer interrupt.
    Tick,
    /// Another function within an interrupt or softirq.
    Function,
}

impl Interrupt {
    fn from_source(source: &Source) -> Self {
        let line = match (source.kind, &*source.name) {
            (Kind::Irq, LOCAL_TIMER | UNTRACED_TIMER) => InterruptLine::LocalTimer,
            (Kind::Softirq, TIMER_SOFTIRQ) => InterruptLine::TimerSoftirq,
            _ => InterruptLine::Other,
        };
        let part = match (line, &*source.detail) {
            (_, "") => InterruptPart::Frame,
            (InterruptLine::LocalTimer, function) if TICK_FUNCTIONS.contains(&function) => {
                InterruptPart::Tick
            }
            _ => InterruptPart::Function,
        };
        Self {
            kind: source.kind,
            line,
            part,
            refills_quota: QUOTA_FUNCTIONS.contains(&&*source.detail),
            starts_server: &*source.detail == SERVER_FUNCTION,
        }
    }

    pub(crate) fn is_local_timer(self) -> bool {
        self.line == InterruptLine::LocalTimer
    }

    pub(crate) fn is_tick(self) -> bool {
        self.part == InterruptPart::Tick
    }
}

impl Role {
    #[inline]
    pub(super) fn occupant(&self) -> Option<&Occupant> {
        match self {
            Self::OnCpu(occupant) => Some(occupant),
            _ => None,
        }
    }

    pub(crate) fn from_source(source: &Source) -> Self {
        let thread = source.thread.as_ref().map(|thread| ThreadId {
            pid: thread.pid,
            tid: thread.tid,
        });
        match source.kind {
            Kind::Idle => Self::OnCpu(Occupant::Idle),
            Kind::Task => Self::OnCpu(Occupant::Thread(OnCpu {
                owner: source.owner,
                thread,
                state: match TaskDetail::from_name(&source.detail) {
                    Some(TaskDetail::PageFault) => ThreadState::PageFault,
                    Some(TaskDetail::Reclaim) => ThreadState::Reclaim,
                    None if system_call(&source.detail).is_some() => ThreadState::SystemCall,
                    None => ThreadState::Running,
                },
            })),
            Kind::Irq | Kind::Softirq | Kind::Nmi => {
                Self::Interrupt(Interrupt::from_source(source))
            }
            Kind::Steal => Self::Steal,
            Kind::Frame => Self::Frame,
            Kind::Late => Self::Late(Interrupted::from_name(&source.name)),
            Kind::Gap => Self::Gap(ProbeKind::of_gap(&source.name)),
            Kind::Wait => {
                let off = victim::OffCpu::parse(&source.detail);
                Self::OffCpu(OffCpu {
                    owner: source.owner,
                    thread,
                    reason: off.map(|off| off.reason),
                    on: off.and_then(|off| place(&off)),
                    moved: off.is_some_and(|off| off.moved),
                })
            }
        }
    }
}

/// Returns the account class that the time of `source` belongs to, or `None` if its rows are not
/// CPU time. The owner takes precedence over the kind, so that ticktax's own interrupts are charged
/// to ticktax.
fn class_of(source: &Source) -> Option<Class> {
    Some(match (source.kind, source.owner) {
        (Kind::Gap | Kind::Wait | Kind::Frame | Kind::Late, _) => return None,
        (Kind::Idle, _) => Class::Idle,
        (Kind::Steal, _) => Class::Steal,
        (_, Owner::Tool) => Class::Tool,
        (_, Owner::Probe) => Class::Probe,
        (Kind::Irq, _) => Class::Irq,
        (Kind::Softirq, _) => Class::Softirq,
        (Kind::Nmi, _) => Class::Nmi,
        (Kind::Task, _) if source.thread.is_none() && &*source.name == UNREPORTED => {
            Class::Unexplained
        }
        (Kind::Task, Owner::Program) => Class::Program,
        (Kind::Task, Owner::Kernel) => Class::KernelThread,
    })
}

/// Roles and classes of all sources seen so far, indexed by [`SourceId`].
#[derive(Debug, Default)]
pub(crate) struct Roles(Vec<(Role, Option<Class>)>);

impl Roles {
    /// Resolves source `id` and all sources with lower IDs, unless they are known already.
    #[inline]
    pub(super) fn resolve(&mut self, sources: &SourceTable, id: SourceId) {
        if id.0 as usize >= self.0.len() {
            self.enter(sources, id);
        }
    }

    /// Returns the role and class of a source that has been resolved.
    #[inline]
    pub(super) fn known(&self, id: SourceId) -> (&Role, Option<Class>) {
        let (role, class) = &self.0[id.0 as usize];
        (role, *class)
    }

    #[cold]
    fn enter(&mut self, sources: &SourceTable, id: SourceId) {
        let known = u32::try_from(self.0.len()).expect("a source's id has 32 bits");
        self.0.extend((known..=id.0).map(|new| {
            let source = sources.get(SourceId(new));
            (Role::from_source(source), class_of(source))
        }));
    }

    /// Returns a source's role. That source, or one with a higher ID, must have had a row.
    pub(crate) fn role(&self, id: SourceId) -> Role {
        self.0[id.0 as usize].0
    }

    /// Returns a source's class, under the same condition as [`Self::role`].
    pub(crate) fn class(&self, id: SourceId) -> Option<Class> {
        self.0[id.0 as usize].1
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::kernel_words::{UNREPORTED, UNTRACED_TIMER};
    use ticktax_model::recording::ProbeKind;
    use ticktax_model::statement::Class;
    use ticktax_model::{Kind, Owner, Source};

    use super::{InterruptLine, InterruptPart, Role, class_of};

    #[test]
    fn the_owner_takes_precedence_over_the_kind() {
        let class = |kind, owner| {
            class_of(&Source {
                owner,
                ..Source::kernel(kind, "x", "")
            })
        };
        assert_eq!(class(Kind::Irq, Owner::Kernel), Some(Class::Irq));
        assert_eq!(class(Kind::Irq, Owner::Tool), Some(Class::Tool));
        assert_eq!(class(Kind::Task, Owner::Probe), Some(Class::Probe));
        let kernel_thread = class(Kind::Task, Owner::Kernel);
        assert_eq!(kernel_thread, Some(Class::KernelThread));
        assert_eq!(class(Kind::Gap, Owner::Probe), None);
        let unreported = Source::kernel(Kind::Task, UNREPORTED, "");
        assert_eq!(class_of(&unreported), Some(Class::Unexplained));
    }

    #[test]
    fn gaps_are_distinguished_by_their_probe() {
        let role = |name| Role::from_source(&Source::kernel(Kind::Gap, name, ""));
        assert_eq!(role("spin"), Role::Gap(ProbeKind::Spin));
        assert_eq!(role("sleep"), Role::Gap(ProbeKind::Sleep));
    }

    #[test]
    fn the_tick_is_a_function_of_the_local_timer_only() {
        let part = |kind, name, detail| match Role::from_source(&Source::kernel(kind, name, detail))
        {
            Role::Interrupt(interrupt) => (interrupt.line, interrupt.part),
            role => panic!("{role:?}"),
        };
        let tick = "tick_sched_timer";
        assert_eq!(
            part(Kind::Irq, "local_timer", tick),
            (InterruptLine::LocalTimer, InterruptPart::Tick)
        );
        assert_eq!(
            part(Kind::Irq, UNTRACED_TIMER, tick),
            (InterruptLine::LocalTimer, InterruptPart::Tick)
        );
        assert_eq!(
            part(Kind::Irq, "local_timer", "hrtimer_wakeup"),
            (InterruptLine::LocalTimer, InterruptPart::Function)
        );
        assert_eq!(
            part(Kind::Softirq, "x", tick),
            (InterruptLine::Other, InterruptPart::Function)
        );
        assert_eq!(
            part(Kind::Softirq, "TIMER", ""),
            (InterruptLine::TimerSoftirq, InterruptPart::Frame)
        );
    }
}
