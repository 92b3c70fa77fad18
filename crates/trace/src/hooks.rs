//! Which programs watch each hook. What is not seen without one of them, `ticktax-report` says.

use ticktax_model::hook::Hook;

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// To the tracepoint of the program's own name, with typed arguments from BTF.
    Tracepoint,
    /// To the tracepoint of the program's own name, with arguments that have no type.
    RawTracepoint,
    /// To the entry of this kernel function.
    FunctionEntry(&'static str),
    /// To the return of this kernel function.
    FunctionExit(&'static str),
}

/// When a hook is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Always.
    Always,
    /// Where spans are handed out: a sum has no place for an edge.
    Spans,
    /// Where threads are followed.
    Following,
}

/// The programs of a hook, which make sense only together: all of them are attached, or none.
#[derive(Clone, Copy, Debug)]
pub struct HookPrograms {
    /// What they watch.
    pub hook: Hook,
    /// Programs of the object, with what each is attached to.
    pub programs: &'static [(&'static str, Attach)],
    /// Whether it watches a way into the kernel that is used on every machine. Only when all of
    /// these are watched does a gap without a span prove that the kernel ran nothing.
    pub entry: bool,
    /// When it is attached; elsewhere it would cost for nothing.
    pub need: Need,
}

/// A tracepoint pair `NAME_entry`, `NAME_exit`.
macro_rules! pair {
    ($hook:ident, $name:literal, entry: $entry:literal) => {
        HookPrograms {
            hook: Hook::$hook,
            programs: &[
                (concat!($name, "_entry"), Attach::Tracepoint),
                (concat!($name, "_exit"), Attach::Tracepoint),
            ],
            entry: $entry,
            need: Need::Always,
        }
    };
}

/// Every hook. `sched_switch` comes last, because it is what opens a CPU's books: by then all the
/// others are watching.
pub const HOOKS: &[HookPrograms] = &[
    pair!(IrqHandler, "irq_handler", entry: true),
    pair!(Softirq, "softirq", entry: true),
    pair!(LocalTimer, "local_timer", entry: true),
    pair!(Reschedule, "reschedule", entry: true),
    pair!(CallFunction, "call_function", entry: true),
    pair!(CallFunctionSingle, "call_function_single", entry: true),
    pair!(IrqWork, "irq_work", entry: true),
    pair!(ThermalApic, "thermal_apic", entry: false),
    pair!(ThresholdApic, "threshold_apic", entry: false),
    pair!(DeferredErrorApic, "deferred_error_apic", entry: false),
    pair!(ErrorApic, "error_apic", entry: false),
    pair!(SpuriousApic, "spurious_apic", entry: false),
    pair!(X86PlatformIpi, "x86_platform_ipi", entry: false),
    HookPrograms {
        hook: Hook::NmiHandler,
        programs: &[("nmi_handler", Attach::Tracepoint)],
        entry: true,
        need: Need::Always,
    },
    pair!(HrtimerExpire, "hrtimer_expire", entry: false),
    pair!(TimerExpire, "timer_expire", entry: false),
    HookPrograms {
        hook: Hook::TickStop,
        programs: &[("tick_stop", Attach::Tracepoint)],
        entry: false,
        need: Need::Always,
    },
    HookPrograms {
        hook: Hook::CsdFunction,
        programs: &[
            ("csd_function_entry", Attach::RawTracepoint),
            ("csd_function_exit", Attach::RawTracepoint),
        ],
        entry: false,
        need: Need::Always,
    },
    HookPrograms {
        hook: Hook::WorkqueueExecute,
        programs: &[
            ("workqueue_execute_start", Attach::Tracepoint),
            ("workqueue_execute_end", Attach::Tracepoint),
        ],
        entry: false,
        need: Need::Always,
    },
    HookPrograms {
        hook: Hook::PageFault,
        programs: &[
            ("page_fault_entry", Attach::FunctionEntry("handle_mm_fault")),
            ("page_fault_exit", Attach::FunctionExit("handle_mm_fault")),
        ],
        entry: false,
        need: Need::Always,
    },
    HookPrograms {
        hook: Hook::DirectReclaim,
        programs: &[
            ("mm_vmscan_direct_reclaim_begin", Attach::Tracepoint),
            ("mm_vmscan_direct_reclaim_end", Attach::Tracepoint),
        ],
        entry: false,
        need: Need::Always,
    },
    HookPrograms {
        hook: Hook::MemcgReclaim,
        programs: &[
            ("mm_vmscan_memcg_reclaim_begin", Attach::Tracepoint),
            ("mm_vmscan_memcg_reclaim_end", Attach::Tracepoint),
        ],
        entry: false,
        need: Need::Always,
    },
    HookPrograms {
        hook: Hook::SchedWaking,
        programs: &[("sched_waking", Attach::Tracepoint)],
        entry: false,
        need: Need::Spans,
    },
    HookPrograms {
        hook: Hook::WorkqueueQueueWork,
        programs: &[("workqueue_queue_work", Attach::Tracepoint)],
        entry: false,
        need: Need::Spans,
    },
    HookPrograms {
        hook: Hook::SoftirqRaise,
        programs: &[("softirq_raise", Attach::Tracepoint)],
        entry: false,
        need: Need::Spans,
    },
    HookPrograms {
        hook: Hook::SchedWakeup,
        programs: &[("sched_wakeup", Attach::Tracepoint)],
        entry: false,
        need: Need::Following,
    },
    HookPrograms {
        hook: Hook::SchedProcessFork,
        programs: &[("sched_process_fork", Attach::Tracepoint)],
        entry: false,
        need: Need::Following,
    },
    HookPrograms {
        hook: Hook::SchedProcessExec,
        programs: &[("sched_process_exec", Attach::Tracepoint)],
        entry: false,
        need: Need::Following,
    },
    HookPrograms {
        hook: Hook::SchedSwitch,
        programs: &[("sched_switch", Attach::Tracepoint)],
        entry: true,
        need: Need::Always,
    },
];
