//! The BPF programs for each hook. `ticktax-report` describes what is lost if a hook is missing.

use ticktax_model::hook::Hook;

/// Place that a BPF program is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// The tracepoint that has the program's name. Its arguments have BTF types.
    Tracepoint,
    /// The tracepoint that has the program's name. Its arguments are untyped.
    RawTracepoint,
    /// The tracepoint with this name. The program is also attached to other tracepoints.
    Shared(&'static str),
    /// The entry of this kernel function.
    FunctionEntry(&'static str),
    /// The return of this kernel function.
    FunctionExit(&'static str),
    /// The clock events of a profile.
    Clock,
    /// KVM's tracepoint that has the program's name.
    Kvm,
}

/// Condition under which a hook is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Always.
    Always,
    /// When spans are recorded. The hook provides edges, which sums cannot contain.
    Spans,
    /// When threads are followed.
    Following,
    /// When spans are recorded. Sums cannot contain samples.
    Samples,
    /// When a profile is recorded.
    Profile,
    /// When spans are recorded, except by the flight recorder, or when threads are followed.
    SpansOrFollowing,
    /// When KVM is loaded, except by the flight recorder.
    Guests,
}

/// The BPF programs for one hook. They are attached all together or not at all, because one of them
/// alone is useless.
#[derive(Clone, Copy, Debug)]
pub struct HookPrograms {
    /// Hook that the programs watch.
    pub hook: Hook,
    /// Names of the programs in the BPF object, each with the place it is attached to.
    pub programs: &'static [(&'static str, Attach)],
    /// Whether the hook watches an entry into the kernel that exists on every machine. Only if all
    /// such hooks are attached does a gap without a span prove that the kernel ran nothing.
    pub entry: bool,
    /// Condition under which the hook is attached. At other times, it would only add overhead.
    pub need: Need,
    /// The only architecture that has the hook, as in `std::env::consts::ARCH`. `None` if every
    /// architecture has it.
    pub only_on: Option<&'static str>,
}

impl HookPrograms {
    /// Returns whether kernels for `arch` can have the hook. If they cannot, it is not reported as
    /// missing.
    pub fn is_on(&self, arch: &str) -> bool {
        self.only_on.is_none_or(|only| only == arch)
    }
}

/// x86 has separate interrupt vectors, each with its own tracepoints. Other architectures use
/// interrupt lines instead.
const X86: Option<&str> = Some("x86_64");

/// Creates the entry for a pair of tracepoints, `NAME_entry` and `NAME_exit`.
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
            only_on: None,
        }
    };
}

/// Creates the entry for an x86 interrupt vector. All vectors share the program for their exits.
macro_rules! vector {
    ($hook:ident, $name:literal, entry: $entry:literal) => {
        HookPrograms {
            hook: Hook::$hook,
            programs: &[
                (concat!($name, "_entry"), Attach::Tracepoint),
                ("vector_exit", Attach::Shared(concat!($name, "_exit"))),
            ],
            entry: $entry,
            need: Need::Always,
            only_on: X86,
        }
    };
}

/// Creates the entry for one of KVM's tracepoints.
macro_rules! kvm {
    ($hook:ident, $($name:literal),+; on: $on:expr) => {
        HookPrograms {
            hook: Hook::$hook,
            programs: &[$(($name, Attach::Kvm)),+],
            entry: false,
            need: Need::Guests,
            only_on: $on,
        }
    };
}

/// All hooks.
///
/// On arm64, everything that interrupts a CPU uses an interrupt line, including the local timer,
/// cross-CPU calls and pseudo-NMIs, so `irq_handler` sees all of it. `sched_switch` comes last
/// because it starts a CPU's accounting, and all other hooks must be attached by then.
pub const HOOKS: &[HookPrograms] = &[
    pair!(IrqHandler, "irq_handler", entry: true),
    pair!(Softirq, "softirq", entry: true),
    vector!(LocalTimer, "local_timer", entry: true),
    // This must follow `local_timer`, whose program pushes the frame that this one expects.
    HookPrograms {
        hook: Hook::StackSample,
        programs: &[("stack_sample", Attach::Shared("local_timer_entry"))],
        entry: false,
        need: Need::Samples,
        only_on: X86,
    },
    HookPrograms {
        hook: Hook::ProfileClock,
        programs: &[("profile_sample", Attach::Clock)],
        entry: false,
        need: Need::Profile,
        only_on: None,
    },
    vector!(Reschedule, "reschedule", entry: true),
    vector!(CallFunction, "call_function", entry: true),
    vector!(CallFunctionSingle, "call_function_single", entry: true),
    vector!(IrqWork, "irq_work", entry: true),
    vector!(ThermalApic, "thermal_apic", entry: false),
    vector!(ThresholdApic, "threshold_apic", entry: false),
    vector!(DeferredErrorApic, "deferred_error_apic", entry: false),
    vector!(ErrorApic, "error_apic", entry: false),
    vector!(SpuriousApic, "spurious_apic", entry: false),
    vector!(X86PlatformIpi, "x86_platform_ipi", entry: false),
    HookPrograms {
        hook: Hook::NmiHandler,
        programs: &[("nmi_handler", Attach::Tracepoint)],
        entry: true,
        need: Need::Always,
        only_on: X86,
    },
    pair!(HrtimerExpire, "hrtimer_expire", entry: false),
    pair!(TimerExpire, "timer_expire", entry: false),
    HookPrograms {
        hook: Hook::TickStop,
        programs: &[("tick_stop", Attach::Tracepoint)],
        entry: false,
        need: Need::Always,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::CsdFunction,
        programs: &[
            ("csd_function_entry", Attach::RawTracepoint),
            ("csd_function_exit", Attach::RawTracepoint),
        ],
        entry: false,
        need: Need::Always,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::WorkqueueExecute,
        programs: &[
            ("workqueue_execute_start", Attach::Tracepoint),
            ("workqueue_execute_end", Attach::Tracepoint),
        ],
        entry: false,
        need: Need::Always,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::PageFault,
        programs: &[
            ("page_fault_entry", Attach::FunctionEntry("handle_mm_fault")),
            ("page_fault_exit", Attach::FunctionExit("handle_mm_fault")),
        ],
        entry: false,
        need: Need::Always,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::PageFaultUser,
        programs: &[
            ("page_fault_user", Attach::Tracepoint),
            ("page_fault_code", Attach::FunctionExit("handle_mm_fault")),
        ],
        entry: false,
        need: Need::Following,
        only_on: X86,
    },
    HookPrograms {
        hook: Hook::DirectReclaim,
        programs: &[
            (
                "reclaim_begin",
                Attach::Shared("mm_vmscan_direct_reclaim_begin"),
            ),
            (
                "reclaim_end",
                Attach::Shared("mm_vmscan_direct_reclaim_end"),
            ),
        ],
        entry: false,
        need: Need::Always,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::MemcgReclaim,
        programs: &[
            (
                "reclaim_begin",
                Attach::Shared("mm_vmscan_memcg_reclaim_begin"),
            ),
            ("reclaim_end", Attach::Shared("mm_vmscan_memcg_reclaim_end")),
        ],
        entry: false,
        need: Need::Always,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::SchedWaking,
        programs: &[("sched_waking", Attach::Tracepoint)],
        entry: false,
        need: Need::Spans,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::WorkqueueQueueWork,
        programs: &[("workqueue_queue_work", Attach::Tracepoint)],
        entry: false,
        need: Need::Spans,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::SoftirqRaise,
        programs: &[("softirq_raise", Attach::Tracepoint)],
        entry: false,
        need: Need::Spans,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::SchedWakeup,
        programs: &[("sched_wakeup", Attach::Tracepoint)],
        entry: false,
        need: Need::Following,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::TaskNewtask,
        programs: &[
            ("task_newtask", Attach::Tracepoint),
            ("thread_started", Attach::Shared("task_newtask")),
        ],
        entry: false,
        need: Need::SpansOrFollowing,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::SchedProcessExec,
        programs: &[("sched_process_exec", Attach::Tracepoint)],
        entry: false,
        need: Need::Following,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::SystemCalls,
        programs: &[
            ("sys_enter", Attach::Tracepoint),
            ("sys_exit", Attach::Tracepoint),
        ],
        entry: false,
        need: Need::Following,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::HrtimerStart,
        programs: &[("hrtimer_start", Attach::Tracepoint)],
        entry: false,
        need: Need::Following,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::LockContention,
        programs: &[
            ("contention_begin", Attach::Tracepoint),
            ("contention_end", Attach::Tracepoint),
        ],
        entry: false,
        need: Need::Following,
        only_on: None,
    },
    HookPrograms {
        hook: Hook::FreezeTask,
        programs: &[("freeze_task", Attach::FunctionEntry("freeze_task"))],
        entry: false,
        need: Need::Following,
        only_on: None,
    },
    kvm!(KvmExit, "kvm_exit", "kvm_entry"; on: None),
    kvm!(KvmUserspaceExit, "kvm_userspace_exit"; on: None),
    kvm!(KvmVcpuWakeup, "kvm_vcpu_wakeup"; on: None),
    kvm!(KvmInjVirq, "kvm_inj_virq"; on: X86),
    kvm!(KvmEoi, "kvm_eoi", "kvm_pv_eoi"; on: X86),
    HookPrograms {
        hook: Hook::GuestTimers,
        programs: &[
            ("guest_timer_ends", Attach::Shared("hrtimer_expire_exit")),
            ("vcpu_woken", Attach::Shared("sched_waking")),
            ("guest_timer_starts", Attach::Shared("hrtimer_start")),
            (
                "guest_timer_expires",
                Attach::Shared("hrtimer_expire_entry"),
            ),
        ],
        entry: false,
        need: Need::Guests,
        only_on: X86,
    },
    HookPrograms {
        hook: Hook::SchedSwitch,
        programs: &[("sched_switch", Attach::Tracepoint)],
        entry: true,
        need: Need::Always,
        only_on: None,
    },
];

#[cfg(test)]
mod tests {
    use ticktax_model::hook::Hook;

    use super::HOOKS;

    fn entries(arch: &str) -> Vec<Hook> {
        let present = HOOKS.iter().filter(|hook| hook.entry && hook.is_on(arch));
        present.map(|hook| hook.hook).collect()
    }

    #[test]
    fn each_architecture_has_its_own_kernel_entries() {
        use Hook::{IrqHandler, LocalTimer, NmiHandler, SchedSwitch, Softirq};
        assert_eq!(entries("aarch64"), [IrqHandler, Softirq, SchedSwitch]);
        let x86 = entries("x86_64");
        assert!(x86.contains(&LocalTimer) && x86.contains(&NmiHandler));
        assert_eq!(x86.len(), 9);
    }
}
