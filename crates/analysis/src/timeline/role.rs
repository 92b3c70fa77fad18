//! What a source's rows mean: resolved once for each source, for everybody who reads rows.

use ticktax_model::kernel_words::{
    LOCAL_TIMER, QUOTA_FUNCTIONS, SERVER_FUNCTION, TICK_FUNCTIONS, TIMER_SOFTIRQ, TaskDetail,
    UNREPORTED, UNTRACED_TIMER,
};
use ticktax_model::recording::ProbeKind;
use ticktax_model::statement::Class;
use ticktax_model::victim::{OffCpuReason, ThreadState};
use ticktax_model::{Kind, Owner, Source, SourceId, SourceTable};

/// What a source's rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A thread had the CPU, or it idled.
    OnCpu(Occupant),
    /// An interrupt, a softirq, or a function within one.
    Interrupt(Interrupt),
    /// The hypervisor had the CPU.
    Steal,
    /// What a probe saw of time that is in other rows.
    Gap(ProbeKind),
    /// A thread was off its CPU.
    OffCpu(OffCpu),
    /// A frame of a paced loop; who had the CPU meanwhile is in other rows.
    Frame,
}

/// Who had a CPU between two context switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// None: it idled.
    Idle,
    /// A thread.
    Thread(OnCpu),
}

/// A thread by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadId {
    pub(crate) pid: i32,
    pub(crate) tid: i32,
}

/// A thread on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnCpu {
    pub(crate) owner: Owner,
    pub(crate) thread: Option<ThreadId>,
    /// Running, or in a page fault, or reclaiming memory.
    pub(crate) state: ThreadState,
}

/// A thread off its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffCpu {
    pub(crate) owner: Owner,
    pub(crate) thread: Option<ThreadId>,
    /// Why; `None` where the row does not say.
    pub(crate) reason: Option<OffCpuReason>,
    /// Whether it goes on on another CPU.
    pub(crate) moved: bool,
}

impl OffCpu {
    /// Whether the thread had nothing to do, or was not allowed to do it.
    pub(crate) fn is_off(self) -> bool {
        use OffCpuReason::{Disk, Lock, Sleeping, Stopped, Throttled};
        matches!(
            self.reason,
            Some(Sleeping | Disk | Lock | Stopped | Throttled)
        )
    }
}

/// An interrupt's or a softirq's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupt {
    /// [`Kind::Irq`], [`Kind::Softirq`] or [`Kind::Nmi`].
    pub(crate) kind: Kind,
    pub(crate) line: Line,
    pub(crate) part: Part,
    /// Whether it lets threads run again whose CPU quota was used up.
    pub(crate) refills_quota: bool,
    /// Whether it has ordinary threads run before real-time ones.
    pub(crate) starts_server: bool,
}

/// Which interrupt, as far as anybody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The local timer's interrupt, or what does its work where it has no tracepoint.
    LocalTimer,
    /// The softirq that runs timers of low resolution.
    TimerSoftirq,
    /// Any other.
    Other,
}

/// Which part of an interrupt a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole interrupt or softirq.
    Frame,
    /// The tick's function, in the local timer's interrupt.
    Tick,
    /// Another function within.
    Function,
}

impl Interrupt {
    fn of(source: &Source) -> Self {
        let line = match (source.kind, &*source.name) {
            (Kind::Irq, LOCAL_TIMER | UNTRACED_TIMER) => Line::LocalTimer,
            (Kind::Softirq, TIMER_SOFTIRQ) => Line::TimerSoftirq,
            _ => Line::Other,
        };
        let part = match (line, &*source.detail) {
            (_, "") => Part::Frame,
            (Line::LocalTimer, function) if TICK_FUNCTIONS.contains(&function) => Part::Tick,
            _ => Part::Function,
        };
        Self {
            kind: source.kind,
            line,
            part,
            refills_quota: QUOTA_FUNCTIONS.contains(&&*source.detail),
            starts_server: &*source.detail == SERVER_FUNCTION,
        }
    }

    /// Whether this is a row of the local timer's interrupt.
    pub(crate) fn is_local_timer(self) -> bool {
        self.line == Line::LocalTimer
    }

    /// Whether this is the tick's function.
    pub(crate) fn is_tick(self) -> bool {
        self.part == Part::Tick
    }
}

impl Role {
    /// Who had the CPU, where that is what its rows say.
    #[inline]
    pub(super) fn occupant(&self) -> Option<&Occupant> {
        match self {
            Self::OnCpu(occupant) => Some(occupant),
            _ => None,
        }
    }

    pub(crate) fn of(source: &Source) -> Self {
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
                    None => ThreadState::Running,
                },
            })),
            Kind::Irq | Kind::Softirq | Kind::Nmi => Self::Interrupt(Interrupt::of(source)),
            Kind::Steal => Self::Steal,
            Kind::Frame => Self::Frame,
            Kind::Gap => Self::Gap(ProbeKind::of_gap(&source.name)),
            Kind::Wait => {
                let said = OffCpuReason::from_detail(&source.detail);
                Self::OffCpu(OffCpu {
                    owner: source.owner,
                    thread,
                    reason: said.map(|(reason, _)| reason),
                    moved: said.is_some_and(|(_, moved)| moved),
                })
            }
        }
    }
}

/// The class of account that the time of `source` belongs to; `None` where its rows are no CPU's
/// time. Whose time it was decides before what kind of time it was, so that the tool's own
/// interrupts are the tool's.
fn class_of(source: &Source) -> Option<Class> {
    Some(match (source.kind, source.owner) {
        (Kind::Gap | Kind::Wait | Kind::Frame, _) => return None,
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

/// The roles and classes of all sources seen, by [`SourceId`].
#[derive(Debug, Default)]
pub(crate) struct Roles(Vec<(Role, Option<Class>)>);

impl Roles {
    /// Resolves the source `id` where it is new, and all that came before it.
    #[inline]
    pub(super) fn resolve(&mut self, sources: &SourceTable, id: SourceId) {
        if id.0 as usize >= self.0.len() {
            self.enter(sources, id);
        }
    }

    /// The role and class of a source that is resolved.
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
            (Role::of(source), class_of(source))
        }));
    }

    /// The role of a source that has had a row, or that came before one that has.
    pub(crate) fn of(&self, id: SourceId) -> Role {
        self.0[id.0 as usize].0
    }

    /// The class of such a source.
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

    use super::{Line, Part, Role, class_of};

    #[test]
    fn whose_it_is_decides_before_what_kind_it_is() {
        let of = |kind, owner| {
            class_of(&Source {
                owner,
                ..Source::kernel(kind, "x", "")
            })
        };
        assert_eq!(of(Kind::Irq, Owner::Kernel), Some(Class::Irq));
        assert_eq!(of(Kind::Irq, Owner::Tool), Some(Class::Tool));
        assert_eq!(of(Kind::Task, Owner::Probe), Some(Class::Probe));
        assert_eq!(of(Kind::Task, Owner::Kernel), Some(Class::KernelThread));
        assert_eq!(of(Kind::Gap, Owner::Probe), None);
        let unreported = Source::kernel(Kind::Task, UNREPORTED, "");
        assert_eq!(class_of(&unreported), Some(Class::Unexplained));
    }

    #[test]
    fn gaps_are_told_by_their_probe() {
        let of = |name| Role::of(&Source::kernel(Kind::Gap, name, ""));
        assert_eq!(of("spin"), Role::Gap(ProbeKind::Spin));
        assert_eq!(of("sleep"), Role::Gap(ProbeKind::Sleep));
    }

    #[test]
    fn the_tick_is_a_function_of_the_local_timer_only() {
        let of = |kind, name, detail| match Role::of(&Source::kernel(kind, name, detail)) {
            Role::Interrupt(interrupt) => (interrupt.line, interrupt.part),
            role => panic!("{role:?}"),
        };
        let tick = "tick_sched_timer";
        assert_eq!(
            of(Kind::Irq, "local_timer", tick),
            (Line::LocalTimer, Part::Tick)
        );
        assert_eq!(
            of(Kind::Irq, UNTRACED_TIMER, tick),
            (Line::LocalTimer, Part::Tick)
        );
        assert_eq!(
            of(Kind::Irq, "local_timer", "hrtimer_wakeup"),
            (Line::LocalTimer, Part::Function)
        );
        assert_eq!(of(Kind::Softirq, "x", tick), (Line::Other, Part::Function));
        assert_eq!(
            of(Kind::Softirq, "TIMER", ""),
            (Line::TimerSoftirq, Part::Frame)
        );
    }
}
