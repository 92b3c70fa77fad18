//! Hooks: the places in the kernel that the tracer watches.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! hooks {
    ($($(#[$doc:meta])* $hook:ident = $name:literal,)*) => {
        /// A place in the kernel that the tracer watches: a tracepoint, a pair of tracepoints that
        /// mark the start and end of an activity, or a function's entry and return.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        pub enum Hook {
            $($(#[$doc])* #[serde(rename = $name)] $hook,)*
        }

        impl Hook {
            /// All hooks.
            pub const ALL: &'static [Self] = &[$(Self::$hook,)*];

            /// Returns the name used in recordings and JSON: the name of the tracepoint or, for a
            /// pair of tracepoints, the part that their names have in common.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$hook => $name,)*
                }
            }
        }
    };
}

hooks! {
    /// Device interrupt handlers.
    IrqHandler = "irq_handler",
    /// Softirqs.
    Softirq = "softirq",
    /// Local timer interrupts.
    LocalTimer = "local_timer",
    /// Stacks of the code that keeps a CPU from waiting threads, at local timer interrupts.
    StackSample = "stack_sample",
    /// Stacks of the running code, at the events of a profile clock.
    ProfileClock = "profile_clock",
    /// Reschedule interrupts from other CPUs.
    Reschedule = "reschedule",
    /// Function-call interrupts sent to several CPUs at once.
    CallFunction = "call_function",
    /// Function-call interrupts sent to one CPU.
    CallFunctionSingle = "call_function_single",
    /// Interrupts that a CPU sends to itself to run deferred work (`irq_work`).
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
    /// Expiry functions of high-resolution timers.
    HrtimerExpire = "hrtimer_expire",
    /// Expiry functions of timer-wheel timers.
    TimerExpire = "timer_expire",
    /// Attempts to stop the tick on an idle or `nohz_full` CPU.
    TickStop = "tick_stop",
    /// Functions that a CPU runs because another CPU requested it.
    CsdFunction = "csd_function",
    /// Work items.
    WorkqueueExecute = "workqueue_execute",
    /// Page faults.
    PageFault = "page_fault",
    /// Page faults of the watched program, with the code that waits in them.
    PageFaultUser = "page_fault_user",
    /// Direct memory reclaim.
    DirectReclaim = "direct_reclaim",
    /// Reclaim caused by a memory cgroup's limit.
    MemcgReclaim = "memcg_reclaim",
    /// Wake-ups, at the moment the waking thread starts them.
    SchedWaking = "sched_waking",
    /// Work items being queued, by the thread or interrupt that queues them.
    WorkqueueQueueWork = "workqueue_queue_work",
    /// Softirqs being raised, by the context that raises them.
    SoftirqRaise = "softirq_raise",
    /// Wake-ups, at the moment the woken thread becomes runnable.
    SchedWakeup = "sched_wakeup",
    /// Creation of threads and processes. Older recordings used `sched_process_fork`, which misses
    /// threads that the kernel adds to a process.
    #[serde(alias = "sched_process_fork")]
    TaskNewtask = "task_newtask",
    /// Programs started with `exec`.
    SchedProcessExec = "sched_process_exec",
    /// System calls of the watched program.
    SystemCalls = "system_calls",
    /// Timers that the watched program sets before it sleeps.
    HrtimerStart = "hrtimer_start",
    /// Kernel locks that the watched program waits for.
    LockContention = "lock_contention",
    /// Threads frozen by a freezer.
    FreezeTask = "freeze_task",
    /// Entries of vCPUs into their guests, and exits from them.
    KvmExit = "kvm_exit",
    /// Returns from KVM to the process that runs the guest.
    KvmUserspaceExit = "kvm_userspace_exit",
    /// Ends of a vCPU's halts.
    KvmVcpuWakeup = "kvm_vcpu_wakeup",
    /// Interrupts injected into guests.
    KvmInjVirq = "kvm_inj_virq",
    /// Ends of interrupts at the local APICs of guests.
    KvmEoi = "kvm_eoi",
    /// Timers that KVM runs for guests, and the wake-ups of vCPUs.
    GuestTimers = "guest_timers",
    /// Context switches.
    SchedSwitch = "sched_switch",
}

impl Hook {
    /// Returns whether the hook watches KVM.
    pub const fn is_kvm(self) -> bool {
        matches!(
            self,
            Self::KvmExit
                | Self::KvmUserspaceExit
                | Self::KvmVcpuWakeup
                | Self::KvmInjVirq
                | Self::KvmEoi
                | Self::GuestTimers
        )
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
