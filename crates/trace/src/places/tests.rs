use super::{Place, release};

/// Stacks recorded on different kernel versions.
const STACKS: &str = include_str!("stacks.txt");

fn place(stack: &str) -> String {
    let functions: Vec<&str> = stack.split_whitespace().collect();
    let place = Place::from_stack(&functions);
    if place.is_frozen {
        return "frozen".to_owned();
    }
    let part = |word: &str, name: &str| match name {
        "" => String::new(),
        name => format!("{word}{name}"),
    };
    let parts = [
        part("in ", &place.call),
        part(" at ", &place.function),
        part("<", &place.caller),
    ];
    parts.concat().trim_start().to_owned()
}

#[test]
fn recorded_stacks_have_their_places() {
    let lines = STACKS.lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let [kernel, expected, stack] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        assert_eq!(place(stack), expected, "{kernel}: {stack}");
        // The tracer's own programs are above the switch.
        let traced = format!("bpf_prog_0123_sched_out bpf_trace_run4 {stack}");
        assert_eq!(place(&traced), expected, "{kernel}: {stack}");
    }
}

#[test]
fn a_stack_without_names_has_no_place() {
    assert_eq!(Place::from_stack(&[]), Place::default());
    assert_eq!(
        Place::from_stack(&["", "", "do_nanosleep"]),
        Place::default()
    );
    assert_eq!(place("__schedule schedule"), "");
    // Disk and page waits use general functions.
    let page = "__schedule schedule io_schedule folio_wait_bit_common filemap_fault __do_fault \
                handle_mm_fault exc_page_fault asm_exc_page_fault";
    assert_eq!(
        place(page),
        "in page_fault at folio_wait_bit_common<filemap_fault"
    );
    let commit = "__schedule schedule jbd2_log_wait_commit ext4_fsync_journal ext4_sync_file \
                  __x64_sys_fsync do_syscall_64";
    assert_eq!(place(commit), "in fsync at jbd2_log_wait_commit");
    let nfs =
        "__schedule schedule rpc_wait_bit_killable __wait_on_bit nfs_file_fsync __arm64_sys_fsync";
    assert_eq!(place(nfs), "in fsync at rpc_wait_bit_killable");
}

fn released(stack: &str) -> String {
    let functions: Vec<&str> = stack.split_whitespace().collect();
    let release = release(&functions);
    release.map_or_else(String::new, |code| {
        format!("{} <- {}", code.function, code.call)
    })
}

#[test]
fn the_code_that_released_a_lock_is_found() {
    // Stacks as Linux 6.18 shows them in a kernel tracer.
    let populate = "bpf_prog_0123_sched_waking bpf_trace_run1 try_to_wake_up wake_up_q rwsem_wake \
                    up_read __mm_populate do_mlock __x64_sys_mlock do_syscall_64";
    assert_eq!(released(populate), "__mm_populate <- mlock");
    let inode = "try_to_wake_up wake_up_q rwsem_wake.isra.0 up_write do_truncate do_ftruncate \
                 __x64_sys_ftruncate do_syscall_64 entry_SYSCALL_64_after_hwframe";
    assert_eq!(released(inode), "do_truncate <- ftruncate");
    let own = "try_to_wake_up wake_up_q __mutex_unlock_slowpath mutex_unlock __x64_sys_sync";
    assert_eq!(released(own), " <- sync");
    let worker = "try_to_wake_up autoremove_wake_function __wake_up_common __wake_up_common_lock \
                  wb_workfn process_one_work worker_thread kthread ret_from_fork";
    assert_eq!(released(worker), "wb_workfn <- ");
}

#[test]
fn interrupted_code_released_nothing() {
    let disk = "try_to_wake_up wake_up_process swake_up_locked complete blk_done common_interrupt \
                asm_common_interrupt read_zero vfs_read __x64_sys_read do_syscall_64";
    assert_eq!(released(disk), "blk_done <- ");
    let softirq = "try_to_wake_up complete blk_complete_reqs __do_softirq do_softirq \
                   __local_bh_enable_ip __x64_sys_sendto do_syscall_64";
    assert_eq!(released(softirq), "blk_complete_reqs <- ");
    assert_eq!(released("schedule __x64_sys_read"), "");
    assert_eq!(released("try_to_wake_up"), "");
    assert_eq!(released("try_to_wake_up __do_softirq"), "");
}

#[test]
fn signals_and_timers_release_nothing() {
    let signal = "try_to_wake_up wake_up_state signal_wake_up_state complete_signal \
                  __send_signal_locked do_send_sig_info __x64_sys_kill do_syscall_64";
    assert_eq!(released(signal), "");
    let short =
        "try_to_wake_up complete_signal __send_signal_locked do_send_sig_info __x64_sys_kill";
    assert_eq!(released(short), "");
    let timer = "try_to_wake_up wake_up_process process_timeout call_timer_fn __do_softirq";
    assert_eq!(released(timer), "");
    let jump = "try_to_wake_up call_timer_fn __run_timers __do_softirq";
    assert_eq!(released(jump), "");
}

/// When a thread is woken, its stack is read without the functions of the scheduler and of locks.
#[test]
fn a_stack_without_the_scheduler_has_a_place() {
    let mmap = [
        "vm_mmap_pgoff",
        "ksys_mmap_pgoff",
        "__x64_sys_mmap",
        "do_syscall_64",
    ];
    let place = Place::below_scheduler(&mmap);
    assert_eq!((&*place.call, &*place.function), ("mmap", "vm_mmap_pgoff"));
    let fork = ["kernel_clone", "__do_sys_vfork", "do_syscall_64"];
    let place = Place::below_scheduler(&fork);
    assert_eq!((&*place.call, &*place.function), ("vfork", "kernel_clone"));
    assert!(Place::below_scheduler(&["do_freezer_trap", "get_signal"]).is_frozen);
    assert_eq!(Place::below_scheduler(&[]), Place::default());
}

#[test]
fn only_slow_paths_of_locks_wait_for_a_lock() {
    let is_in_lock = |function: &str| {
        let place = Place::from_stack(&["__schedule", "schedule", function, "ext4_sync_file"]);
        place.is_in_lock()
    };
    assert!(is_in_lock("rwsem_down_read_slowpath"));
    assert!(is_in_lock("__mutex_lock.constprop.0"));
    assert!(is_in_lock("down"));
    // A lock that is still noted from an earlier wait must not appear in these.
    assert!(!is_in_lock("wait_for_completion"));
    assert!(!is_in_lock("folio_wait_bit_common"));
    assert!(!is_in_lock("futex_do_wait"));
    assert!(!is_in_lock(""));
}
