use super::kernel_code;

/// The frames of the tracer and the interrupt, innermost first.
const INTERRUPT: [&str; 5] = [
    "bpf_prog_e13f_stack_sample",
    "bpf_trace_run1",
    "__sysvec_apic_timer_interrupt",
    "sysvec_apic_timer_interrupt",
    "asm_sysvec_apic_timer_interrupt",
];

fn code(below: &[&str], is_softirq: bool) -> Option<String> {
    let functions: Vec<&str> = INTERRUPT.iter().chain(below).copied().collect();
    Some(kernel_code(&functions, is_softirq)?.to_string())
}

#[test]
fn a_system_call_starts_with_its_name() {
    let below = [
        "zap_pte_range",
        "unmap_page_range",
        "__x64_sys_munmap",
        "x64_sys_call",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
    ];
    let expected = "munmap_[k];unmap_page_range_[k];zap_pte_range_[k]";
    assert_eq!(code(&below, false).as_deref(), Some(expected));
}

#[test]
fn a_work_item_starts_with_its_function() {
    let below = [
        "_raw_spin_unlock_irqrestore",
        "ext4_writepages",
        "wb_workfn",
        "process_one_work",
        "worker_thread",
        "kthread",
        "ret_from_fork",
        "ret_from_fork_asm",
    ];
    let expected = "wb_workfn_[k];ext4_writepages_[k]";
    assert_eq!(code(&below, false).as_deref(), Some(expected));
}

#[test]
fn the_thread_below_a_softirq_is_left_out() {
    let below = [
        "br_handle_frame",
        "net_rx_action",
        "__do_softirq",
        "irq_exit_rcu",
        "sysvec_apic_timer_interrupt",
        "asm_sysvec_apic_timer_interrupt",
        "do_user_work",
    ];
    let expected = "net_rx_action_[k];br_handle_frame_[k]";
    assert_eq!(code(&below, true).as_deref(), Some(expected));
    assert_eq!(code(&below[2..], true).as_deref(), Some("__do_softirq_[k]"));
}

#[test]
fn user_mode_differs_from_an_unknown_stack() {
    assert_eq!(code(&[], false).as_deref(), Some(""));
    assert_eq!(kernel_code(&["", "", ""], false), None);
    assert_eq!(kernel_code(&[], false), None);
}

#[test]
fn unknown_functions_are_left_out() {
    let below = ["", "vfs_write", "", "do_syscall_64"];
    assert_eq!(code(&below, false).as_deref(), Some("vfs_write_[k]"));
}
