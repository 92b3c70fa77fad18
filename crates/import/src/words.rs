//! Names of events and activities, as recordings use them.

use ticktax_model::Kind;
use ticktax_model::kernel_words::LOCAL_TIMER;

/// Names of the softirqs, by number.
const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// Name of the handler of arm64's local timer.
const ARM_TIMER: &str = "arch_timer";

/// Interrupts with a pair of tracepoints on x86-64 whose names end in `_entry` and `_exit`.
const VECTORS: &[&str] = &[
    LOCAL_TIMER,
    "reschedule",
    "call_function",
    "call_function_single",
    "irq_work",
    "thermal_apic",
    "threshold_apic",
    "deferred_error_apic",
    "error_apic",
    "spurious_apic",
    "x86_platform_ipi",
];

/// Returns the name of the softirq with this number.
pub(crate) fn softirq(number: u64) -> &'static str {
    let known = usize::try_from(number)
        .ok()
        .and_then(|number| SOFTIRQS.get(number));
    known.copied().unwrap_or("unknown softirq")
}

/// Returns the name that recordings use for the interrupt whose handler has this name.
pub(crate) fn interrupt(handler: &str) -> &str {
    if handler == ARM_TIMER {
        LOCAL_TIMER
    } else {
        handler
    }
}

/// An event that the importer understands, by the name of its tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Switch,
    Waking,
    Wakeup,
    WakeupNew,
    /// `sched_stat_runtime`
    Ran,
    /// `sched_process_fork`
    Fork,
    /// `task_newtask`
    NewTask,
    IrqEntry,
    SoftirqEntry,
    Raise,
    /// Start of an interrupt that has its own tracepoints.
    VectorEntry(&'static str),
    /// `ipi_entry`, with the interrupt's name as its `reason`.
    IpiEntry,
    /// End of an interrupt or softirq.
    Exit(Kind),
    /// `hrtimer_expire_entry` or `timer_expire_entry`
    TimerEntry,
    TimerExit,
    WorkStart,
    WorkEnd,
    WorkQueued,
}

impl Known {
    /// Returns the event with this name, or `None` if the importer has no use for it.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "sched_switch" => Self::Switch,
            "sched_waking" => Self::Waking,
            "sched_wakeup" => Self::Wakeup,
            "sched_wakeup_new" => Self::WakeupNew,
            "sched_stat_runtime" => Self::Ran,
            "sched_process_fork" => Self::Fork,
            "task_newtask" => Self::NewTask,
            "irq_handler_entry" => Self::IrqEntry,
            "irq_handler_exit" | "ipi_exit" => Self::Exit(Kind::Irq),
            "softirq_entry" => Self::SoftirqEntry,
            "softirq_exit" => Self::Exit(Kind::Softirq),
            "softirq_raise" => Self::Raise,
            "ipi_entry" => Self::IpiEntry,
            "hrtimer_expire_entry" | "timer_expire_entry" => Self::TimerEntry,
            "hrtimer_expire_exit" | "timer_expire_exit" => Self::TimerExit,
            "workqueue_execute_start" => Self::WorkStart,
            "workqueue_execute_end" => Self::WorkEnd,
            "workqueue_queue_work" => Self::WorkQueued,
            _ => return Self::vector(name),
        })
    }

    fn vector(name: &str) -> Option<Self> {
        let find = |vector: &str| VECTORS.iter().find(|&&known| known == vector).copied();
        if let Some(vector) = name.strip_suffix("_entry") {
            return find(vector).map(Self::VectorEntry);
        }
        find(name.strip_suffix("_exit")?)?;
        Some(Self::Exit(Kind::Irq))
    }
}

/// Returns a thread's name, unless the kernel did not know it.
pub(crate) fn known_name(name: &str) -> Option<&str> {
    let name = name.trim();
    (!name.is_empty() && name != "<...>" && name != "<idle>").then_some(name)
}
