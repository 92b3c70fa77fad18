//! The places in the kernel that the tracer watches.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! hooks {
    ($($(#[$doc:meta])* $hook:ident = $name:literal,)*) => {
        /// A place in the kernel that the tracer watches: a tracepoint, a pair of tracepoints that
        /// begin and end something, or a function's entry and return.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        pub enum Hook {
            $($(#[$doc])* #[serde(rename = $name)] $hook,)*
        }

        impl Hook {
            /// Every hook.
            pub const ALL: &'static [Self] = &[$(Self::$hook,)*];

            /// Its name in recordings and JSON: that of the tracepoint, or what a pair of them has
            /// in common.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$hook => $name,)*
                }
            }
        }
    };
}

hooks! {
    /// Handlers of device interrupts.
    IrqHandler = "irq_handler",
    /// Softirqs.
    Softirq = "softirq",
    /// The local timer's interrupts.
    LocalTimer = "local_timer",
    /// Reschedule interrupts from other CPUs.
    Reschedule = "reschedule",
    /// Function calls from other CPUs to several.
    CallFunction = "call_function",
    /// Function calls from another CPU to one.
    CallFunctionSingle = "call_function_single",
    /// Work that the kernel sends itself by interrupt.
    IrqWork = "irq_work",
    /// Thermal interrupts.
    ThermalApic = "thermal_apic",
    /// Machine-check threshold interrupts.
    ThresholdApic = "threshold_apic",
    /// Deferred-error interrupts.
    DeferredErrorApic = "deferred_error_apic",
    /// APIC error interrupts.
    ErrorApic = "error_apic",
    /// Spurious interrupts.
    SpuriousApic = "spurious_apic",
    /// Platform interrupts.
    X86PlatformIpi = "x86_platform_ipi",
    /// Handlers of non-maskable interrupts.
    NmiHandler = "nmi_handler",
    /// Functions of high-resolution timers.
    HrtimerExpire = "hrtimer_expire",
    /// Functions of the timer wheel.
    TimerExpire = "timer_expire",
    /// The tick being stopped.
    TickStop = "tick_stop",
    /// Functions that another CPU asked for.
    CsdFunction = "csd_function",
    /// Work items.
    WorkqueueExecute = "workqueue_execute",
    /// Page faults.
    PageFault = "page_fault",
    /// Direct reclaim of memory.
    DirectReclaim = "direct_reclaim",
    /// Reclaim for the limit of a memory cgroup.
    MemcgReclaim = "memcg_reclaim",
    /// Who wakes a thread.
    SchedWaking = "sched_waking",
    /// Who queues a work item.
    WorkqueueQueueWork = "workqueue_queue_work",
    /// Who raises a softirq.
    SoftirqRaise = "softirq_raise",
    /// Threads being woken.
    SchedWakeup = "sched_wakeup",
    /// Threads and processes being started.
    SchedProcessFork = "sched_process_fork",
    /// Programs being replaced.
    SchedProcessExec = "sched_process_exec",
    /// Context switches.
    SchedSwitch = "sched_switch",
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
