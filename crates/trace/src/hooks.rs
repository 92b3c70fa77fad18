//! Which tracepoints are watched, and what is not seen without each of them.

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

/// Programs that make sense only together: all of them are attached, or none.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// What it is called in the coverage of a statement.
    pub name: &'static str,
    /// Programs of the object, with what each is attached to.
    pub programs: &'static [(&'static str, Attach)],
    /// What cannot be told apart without it.
    pub tells: &'static str,
    /// Whether it watches a way into the kernel that is used on every machine. Only when all of
    /// these are watched does a gap without a span prove that the kernel ran nothing.
    pub entry: bool,
    /// Whether it is of use only where threads are followed; elsewhere it would cost for nothing.
    pub following: bool,
}

/// A tracepoint pair `NAME_entry`, `NAME_exit`.
macro_rules! pair {
    ($name:literal, $tells:literal, entry: $entry:literal) => {
        Hook {
            name: $name,
            programs: &[
                (concat!($name, "_entry"), Attach::Tracepoint),
                (concat!($name, "_exit"), Attach::Tracepoint),
            ],
            tells: $tells,
            entry: $entry,
            following: false,
        }
    };
}

/// Every hook. `sched_switch` comes last, because it is what opens a CPU's books: by then all the
/// others are watching.
pub const HOOKS: &[Hook] = &[
    pair!("irq_handler", "device interrupts", entry: true),
    pair!("softirq", "softirqs", entry: true),
    pair!("local_timer", "the local timer's interrupts", entry: true),
    pair!("reschedule", "reschedule interrupts from other CPUs", entry: true),
    pair!("call_function", "function calls from other CPUs (to several)", entry: true),
    pair!("call_function_single", "function calls from other CPUs (to one)", entry: true),
    pair!("irq_work", "work that the kernel sends itself by interrupt", entry: true),
    pair!("thermal_apic", "thermal interrupts", entry: false),
    pair!("threshold_apic", "machine-check threshold interrupts", entry: false),
    pair!("deferred_error_apic", "deferred-error interrupts", entry: false),
    pair!("error_apic", "APIC error interrupts", entry: false),
    pair!("spurious_apic", "spurious interrupts", entry: false),
    pair!("x86_platform_ipi", "platform interrupts", entry: false),
    Hook {
        name: "nmi_handler",
        programs: &[("nmi_handler", Attach::Tracepoint)],
        tells: "non-maskable interrupts",
        entry: true,
        following: false,
    },
    pair!("hrtimer_expire", "which function a high-resolution timer ran", entry: false),
    pair!("timer_expire", "which function a timer of the wheel ran", entry: false),
    Hook {
        name: "tick_stop",
        programs: &[("tick_stop", Attach::Tracepoint)],
        tells: "how often the kernel stopped the tick",
        entry: false,
        following: false,
    },
    Hook {
        name: "csd_function",
        programs: &[
            ("csd_function_entry", Attach::RawTracepoint),
            ("csd_function_exit", Attach::RawTracepoint),
        ],
        tells: "which function another CPU asked for",
        entry: false,
        following: false,
    },
    Hook {
        name: "workqueue_execute",
        programs: &[
            ("workqueue_execute_start", Attach::Tracepoint),
            ("workqueue_execute_end", Attach::Tracepoint),
        ],
        tells: "which function a kernel worker ran",
        entry: false,
        following: false,
    },
    Hook {
        name: "page_fault",
        programs: &[
            ("page_fault_entry", Attach::FunctionEntry("handle_mm_fault")),
            ("page_fault_exit", Attach::FunctionExit("handle_mm_fault")),
        ],
        tells: "page faults apart from the program that has them",
        entry: false,
        following: false,
    },
    Hook {
        name: "direct_reclaim",
        programs: &[
            ("mm_vmscan_direct_reclaim_begin", Attach::Tracepoint),
            ("mm_vmscan_direct_reclaim_end", Attach::Tracepoint),
        ],
        tells: "reclaim of memory apart from the program that has to wait for it",
        entry: false,
        following: false,
    },
    Hook {
        name: "memcg_reclaim",
        programs: &[
            ("mm_vmscan_memcg_reclaim_begin", Attach::Tracepoint),
            ("mm_vmscan_memcg_reclaim_end", Attach::Tracepoint),
        ],
        tells: "reclaim for the limit of a memory cgroup apart from the program that has to do it",
        entry: false,
        following: false,
    },
    Hook {
        name: "sched_wakeup",
        programs: &[("sched_wakeup", Attach::Tracepoint)],
        tells: "when a thread was woken: all until it ran is counted as blocked",
        entry: false,
        following: true,
    },
    Hook {
        name: "sched_process_fork",
        programs: &[("sched_process_fork", Attach::Tracepoint)],
        tells: "threads and processes that the program starts meanwhile",
        entry: false,
        following: true,
    },
    Hook {
        name: "sched_process_exec",
        programs: &[("sched_process_exec", Attach::Tracepoint)],
        tells: "a program that another than the first thread replaces",
        entry: false,
        following: true,
    },
    Hook {
        name: "sched_switch",
        programs: &[("sched_switch", Attach::Tracepoint)],
        tells: "threads",
        entry: true,
        following: false,
    },
];
