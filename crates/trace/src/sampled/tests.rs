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

/// Stacks of a thread that creates a process while ticktax traces it. In the second one, the
/// interrupt came in the tracer's program itself, whose name is unknown.
const CREATED: [&[&str]; 2] = [
    &[
        "htab_map_update_elem",
        "bpf_prog_2c3a_task_newtask",
        "bpf_trace_run2",
        "__bpf_trace_task_newtask",
        "copy_process",
        "kernel_clone",
        "__do_sys_vfork",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
    ],
    &[
        "",
        "bpf_trace_run2",
        "copy_process",
        "kernel_clone",
        "__do_sys_vfork",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
    ],
];

#[test]
fn a_tracing_program_is_not_the_threads_code() {
    for below in CREATED {
        let tracing = code(below, false);
        assert_eq!(tracing.as_deref(), Some("tracing (BPF)_[k]"));
        assert_eq!(
            super::code_on(below, false).to_string(),
            "tracing (BPF)_[k]"
        );
    }
    let fault = [
        "bpf_get_current_task",
        "bpf_prog_5d1c_page_fault_entry",
        "bpf_trampoline_6442508297",
        "handle_mm_fault",
        "do_user_addr_fault",
    ];
    assert_eq!(code(&fault, false).as_deref(), Some("tracing (BPF)_[k]"));
    // Some kernels have no names for trampolines.
    let unnamed = [
        "migrate_disable",
        "__bpf_prog_enter_recur",
        "",
        "handle_mm_fault",
    ];
    assert_eq!(code(&unnamed, false).as_deref(), Some("tracing (BPF)_[k]"));
    let receiving = [
        "bpf_get_stackid_raw_tp",
        "bpf_prog_77aa_waking",
        "bpf_trace_run1",
        "try_to_wake_up",
        "net_rx_action",
        "handle_softirqs",
        "bpf_trace_run2",
        "vfs_read",
    ];
    assert_eq!(code(&receiving, true).as_deref(), Some("tracing (BPF)_[k]"));
    // The softirq had interrupted a thread that was being traced.
    let expected = Some("net_rx_action_[k]");
    assert_eq!(code(&receiving[4..], true).as_deref(), expected);
}

#[test]
fn a_function_that_is_traced_is_the_threads_code() {
    // The program at the function's exit is called by a trampoline, which also calls the function.
    let fault = [
        "clear_page_erms",
        "__handle_mm_fault",
        "handle_mm_fault",
        "bpf_trampoline_6442508297",
        "faultin_page",
        "__mm_populate",
        "__x64_sys_mlock",
    ];
    let code = code(&fault, false).unwrap();
    assert!(code.starts_with("mlock_[k];__mm_populate_[k]"), "{code}");
    assert!(code.ends_with("clear_page_erms_[k]"), "{code}");
}

#[test]
fn bpf_programs_that_filter_are_the_threads_code() {
    let filter = [
        "bpf_prog_a90d",
        "sk_filter_trim_cap",
        "unix_dgram_sendmsg",
        "__sys_sendto",
    ];
    let expected = "sendto_[k];unix_dgram_sendmsg_[k];sk_filter_trim_cap_[k];bpf_prog_a90d_[k]";
    assert_eq!(code(&filter, false).as_deref(), Some(expected));
    let security = [
        "bpf_prog_11ef_check",
        "bpf_trampoline_6442508298",
        "bpf_lsm_file_open",
        "security_file_open",
    ];
    let security = code(&security, false).unwrap();
    assert!(security.starts_with("security_file_open_[k]"), "{security}");
    let unnamed = ["__bpf_prog_exit", "", "bpf_lsm_file_open", "vfs_open"];
    let unnamed = code(&unnamed, false).unwrap();
    assert!(unnamed.starts_with("vfs_open_[k]"), "{unnamed}");
}
