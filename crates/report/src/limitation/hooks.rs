//! Describes hooks that could not be attached.

use ticktax_model::hook::Hook;
use ticktax_model::limitation::HookMissing;

use super::{Words, sentences, unstopped};

/// Effect of an interrupt that is not traced.
const INTERRUPTED: &str = "Their time is charged to the activity that they interrupted.";
/// Effect of a function that is not traced.
const CALLER: &str = "Their time is charged to the interrupt or thread that called them.";

/// Effect of waits whose code is not traced.
const WITHOUT_CODE: &str = "Their user code and their files are unknown.";

/// Effect of context switches that are not traced.
const NO_THREADS: &str = "The figures do not show individual threads.";

/// Effect of an activity of the program that is not traced.
const OWN: &str = "Time spent there counts as the program's own time.";

/// Describes a hook that could not be attached, and the effect on the figures.
pub(super) fn hook_missing(hook: Hook, reason: &HookMissing) -> Words {
    let (subject, effect) = needed_for(hook);
    let reason = match reason {
        HookMissing::Excluded => format!("the hook {hook} was excluded"),
        HookMissing::NoTracepoint => format!("this kernel has no tracepoint for the hook {hook}"),
        HookMissing::NoFunction(function) => {
            format!("this kernel has no function {function} (hook {hook})")
        }
        HookMissing::FunctionNotPermitted(function) => {
            format!("this kernel does not allow tracing its function {function} (hook {hook})")
        }
        HookMissing::Refused(message) => {
            format!(
                "the kernel refused the hook {hook} ({})",
                unstopped(message)
            )
        }
    };
    sentences(format!("{subject} not traced, because {reason}."), effect)
}

/// Returns the subject and verb of a sentence about the information that only `hook` provides, and
/// a sentence about the effect on the figures.
fn needed_for(hook: Hook) -> (&'static str, &'static str) {
    match hook {
        Hook::IrqHandler => ("Device interrupts were", INTERRUPTED),
        Hook::Softirq => ("Softirqs were", INTERRUPTED),
        Hook::LocalTimer => ("Local timer interrupts were", INTERRUPTED),
        Hook::Reschedule => ("Reschedule IPIs were", INTERRUPTED),
        Hook::CallFunction => ("Multi-CPU function-call IPIs were", INTERRUPTED),
        Hook::CallFunctionSingle => ("Single-CPU function-call IPIs were", INTERRUPTED),
        Hook::IrqWork => ("irq_work interrupts were", INTERRUPTED),
        Hook::ThermalApic => ("Thermal interrupts were", INTERRUPTED),
        Hook::ThresholdApic => ("Machine-check threshold interrupts were", INTERRUPTED),
        Hook::DeferredErrorApic => ("Deferred-error interrupts were", INTERRUPTED),
        Hook::ErrorApic => ("APIC error interrupts were", INTERRUPTED),
        Hook::SpuriousApic => ("Spurious interrupts were", INTERRUPTED),
        Hook::X86PlatformIpi => ("Platform interrupts were", INTERRUPTED),
        Hook::NmiHandler => ("Non-maskable interrupts were", INTERRUPTED),
        Hook::HrtimerExpire => ("hrtimer callbacks were", CALLER),
        Hook::TimerExpire => ("Timer-wheel callbacks were", CALLER),
        Hook::TickStop => (
            "Tick stops were",
            "The report does not show how often the tick stopped.",
        ),
        Hook::CsdFunction => ("Functions requested by other CPUs were", CALLER),
        Hook::WorkqueueExecute => ("Workqueue functions were", CALLER),
        Hook::PageFault => ("Page faults were", OWN),
        Hook::PageFaultUser => ("Waits in page faults were", WITHOUT_CODE),
        Hook::DirectReclaim => ("Direct reclaim was", OWN),
        Hook::MemcgReclaim => ("Memory-cgroup reclaim was", OWN),
        Hook::SchedWaking => (
            "Thread wakers were",
            "The causes of periodic threads are unknown.",
        ),
        Hook::WorkqueueQueueWork => (
            "The sources of queued work items were",
            "The causes of periodic work items are unknown.",
        ),
        Hook::SoftirqRaise => (
            "The sources of raised softirqs were",
            "The causes of periodic softirqs are unknown.",
        ),
        Hook::SchedWakeup => (
            "Wake-ups were",
            "A woken thread counts as blocked while it waits for a CPU.",
        ),
        Hook::TaskNewtask => (
            "Forks were",
            "Threads and processes that the program started during the recording are missing.",
        ),
        Hook::SchedProcessExec => (
            "exec calls were",
            "Programs exec'd by a non-main thread are missing.",
        ),
        Hook::SystemCalls => (
            "System calls were",
            "Long system calls count as the program's own code.",
        ),
        Hook::HrtimerStart => (
            "The requested wake-up times of sleeping threads were",
            "It is unknown whether their timers fired late.",
        ),
        Hook::FreezeTask => (
            "Freezers were",
            "The time at which a freezer stopped a sleeping thread is unknown.",
        ),
        Hook::StackSample | Hook::ProfileClock | Hook::LockContention => needed_for_code(hook),
        Hook::KvmExit
        | Hook::KvmUserspaceExit
        | Hook::KvmVcpuWakeup
        | Hook::KvmInjVirq
        | Hook::KvmEoi
        | Hook::GuestTimers => needed_for_guests(hook),
        Hook::SchedSwitch => ("Context switches were", NO_THREADS),
    }
}

/// Same as [`needed_for`], for a hook that names code or locks.
fn needed_for_code(hook: Hook) -> (&'static str, &'static str) {
    match hook {
        Hook::StackSample => (
            "Stacks of busy CPUs were",
            "The functions that kept threads waiting are unknown.",
        ),
        Hook::ProfileClock => (
            "Functions were",
            "The report shows accounts without their functions.",
        ),
        _ => (
            "Contended kernel locks (reported since Linux 5.19) were",
            "Waits show the code that asked for a lock, but not which lock it was.",
        ),
    }
}

/// Same as [`needed_for`], for a hook that watches KVM.
fn needed_for_guests(hook: Hook) -> (&'static str, &'static str) {
    match hook {
        Hook::KvmUserspaceExit => (
            "Returns from KVM to the processes of virtual machines were",
            "Time in these processes counts as time in KVM.",
        ),
        Hook::KvmVcpuWakeup => (
            "Halts of virtual machines were",
            "The report does not show how long KVM polled.",
        ),
        Hook::KvmInjVirq => (
            "Interrupts injected into virtual machines were",
            "The report does not count them.",
        ),
        Hook::KvmEoi => (
            "Ends of interrupts in virtual machines were",
            "The report does not show how many of them caused an exit.",
        ),
        Hook::GuestTimers => (
            "Timers of virtual machines were",
            "The report does not show the cost of their timer ticks.",
        ),
        _ => (
            "Exits of virtual machines were",
            "The report does not show what virtual machines cost.",
        ),
    }
}
