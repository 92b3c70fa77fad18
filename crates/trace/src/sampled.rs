//! Turns the stack of a sample into the code that a timer interrupt interrupted.
//!
//! A kernel stack starts with the tracer and the interrupt, which are the same in every sample. The
//! interrupted code follows. Under an interrupted softirq, the stack continues with a thread that
//! has nothing to do with the softirq. These parts and the functions that every thread or system
//! call starts with are removed.
//!
//! If the interrupted code is a BPF program that traces the kernel, for example one of ticktax's
//! own, the thread or softirq merely has to wait for it. One frame then stands for the program and
//! its callers.

use ticktax_model::recording::Stack;

use crate::places::call_of;

/// Functions in which the kernel enters an interrupt, on x86 and arm64. The interrupted code is
/// directly below.
const ENTRIES: [&str; 7] = [
    "asm_sysvec_apic_timer_interrupt",
    "asm_common_interrupt",
    "apic_timer_interrupt",
    "el0_irq",
    "el0t_64_irq",
    "el1_irq",
    "el1h_64_irq",
];

/// Functions that call the handlers of softirqs. Older kernels have two names for one of them.
const SOFTIRQS: [&str; 3] = [
    "__do_softirq",
    "__softirqentry_text_start",
    "handle_softirqs",
];

/// Prefixes of the functions with which system calls and kernel threads start.
const STARTS: [&str; 14] = [
    "do_el0_svc",
    "do_syscall_64",
    "el0_",
    "el0t_",
    "entry_SYSCALL",
    "invoke_syscall",
    "kthread",
    "process_one_work",
    "process_scheduled_works",
    "ret_from_fork",
    "run_ksoftirqd",
    "smpboot_thread_fn",
    "worker_thread",
    "x64_sys_call",
];

/// Prefixes of functions that only enable interrupts again, or that compilers insert. If an
/// interrupt had to wait, it comes in one of the former, and its caller is the function that had
/// disabled interrupts.
const ENDS: [&str; 8] = [
    "__fentry__",
    "__local_bh_enable",
    "__raw_spin_unlock",
    "__x86_",
    "_raw_read_unlock",
    "_raw_spin_unlock",
    "_raw_write_unlock",
    "asm_",
];

/// Prefixes of the functions with which the kernel calls a tracing BPF program at a tracepoint or a
/// probe.
const TRACING: [&str; 6] = [
    "__bpf_trace_",
    "bpf_trace_run",
    "kprobe_multi_link_prog_run",
    "perf_trace_run_bpf_submit",
    "trace_call_bpf",
    "uprobe_prog_run",
];

/// Prefix of the code that calls tracing programs at the entry and exit of a function. In between,
/// it calls the function itself.
const TRAMPOLINE: &str = "bpf_trampoline_";

/// Prefix of the functions that trampolines call before and after a program.
const AROUND: &str = "__bpf_prog_";

/// Prefixes of BPF programs and of the functions around them.
const PROGRAMS: [&str; 2] = [AROUND, "bpf_prog_"];

/// Prefix of the functions at which security modules attach BPF programs. The kernel calls these in
/// the same way as tracing programs, but they make decisions for the thread.
const SECURITY: &str = "bpf_lsm_";

/// Returns whether the innermost function belongs to a tracing program, directly or through
/// functions that the program called.
fn is_tracing(functions: &[&str]) -> bool {
    functions.iter().enumerate().any(|(depth, name)| {
        let caller = functions.get(depth + 1);
        let called = depth.checked_sub(1).map(|inner| functions[inner]);
        let is_program = called.is_none_or(|called| has_prefix(called, &PROGRAMS));
        // Trampolines have no names on some kernels.
        let is_unnamed = name.is_empty() && called.is_some_and(|name| name.starts_with(AROUND));
        let is_trampoline = name.starts_with(TRAMPOLINE) && is_program || is_unnamed;
        (has_prefix(name, &TRACING) || is_trampoline)
            && caller.is_none_or(|caller| !caller.starts_with(SECURITY))
    })
}

/// Returns the innermost functions up to the interrupt or softirq that they belong to, if any. The
/// others belong to interrupted code.
pub(crate) fn above_interrupts<'a, 'b>(functions: &'a [&'b str]) -> &'a [&'b str] {
    let is_entry = |name: &&str| {
        name.starts_with("asm_sysvec_") || ENTRIES.contains(name) || SOFTIRQS.contains(name)
    };
    let entry = functions.iter().position(is_entry);
    &functions[..entry.unwrap_or(functions.len())]
}

/// Returns whether system calls or kernel threads start with this function.
pub(crate) fn is_start(function: &str) -> bool {
    has_prefix(function, &STARTS)
}

fn has_prefix(function: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| function.starts_with(prefix))
}

/// Returns the position of the interrupted code's innermost frame, if the stack shows it.
pub(crate) fn interrupted_at(functions: &[&str]) -> Option<usize> {
    let entry = functions.iter().position(|name| ENTRIES.contains(name))?;
    Some(entry + 1)
}

/// Returns the interrupted kernel code. It is empty if the interrupt came in user mode, and `None`
/// if the stack does not show what was interrupted. `functions` are those on the kernel stack,
/// innermost first, where unknown ones are empty.
pub(crate) fn kernel_code(functions: &[&str], is_softirq: bool) -> Option<Stack> {
    Some(code_on(
        &functions[interrupted_at(functions)?..],
        is_softirq,
    ))
}

/// Returns the code on a kernel stack that starts with the interrupted function.
pub(crate) fn code_on(functions: &[&str], is_softirq: bool) -> Stack {
    let mut code = functions;
    if is_softirq {
        let handler = code.iter().position(|name| SOFTIRQS.contains(name));
        // The softirq's own function calls nothing, or has not called anything yet.
        code = match handler {
            Some(0) => &code[..1],
            Some(handler) => &code[..handler],
            None => code,
        };
    }
    if is_tracing(code) {
        return Stack::tracing();
    }
    while let [rest @ .., last] = code
        && is_start(last)
    {
        code = rest;
    }
    while let [first, rest @ ..] = code
        && !rest.is_empty()
        && has_prefix(first, &ENDS)
    {
        code = rest;
    }
    let names = code.iter().rev().filter(|name| !name.is_empty());
    Stack::from_kernel(names.map(|name| call_of(name).unwrap_or(name)))
}

#[cfg(test)]
mod tests;
