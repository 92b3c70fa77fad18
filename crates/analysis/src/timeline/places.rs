//! Determines what a blocked thread waits for, from the place in the kernel where it waits.
//!
//! [`RULES`] is a list of rules, and the first rule that matches a wait decides. To support another
//! place, add a rule.

use ticktax_model::victim::{BlockedOn, MMAP_LOCK, OffCpu, OffCpuReason};

/// A rule for waits. A list that is empty matches every wait.
#[derive(Clone, Copy)]
struct Rule {
    on: BlockedOn,
    /// Beginnings of the names of kernel functions in which the thread can wait. The compiler and
    /// later kernels append to these names.
    functions: &'static [&'static str],
    /// Beginnings of the names of functions that asked for the lock.
    callers: &'static [&'static str],
    /// System calls in which the thread can wait.
    syscalls: &'static [&'static str],
    /// Whether the rule matches only if it is unknown who asked for the lock.
    without_caller: bool,
}

const fn rule(on: BlockedOn, functions: &'static [&'static str]) -> Rule {
    Rule {
        on,
        functions,
        callers: &[],
        syscalls: &[],
        without_caller: false,
    }
}

const fn called_by(rule: Rule, callers: &'static [&'static str]) -> Rule {
    Rule { callers, ..rule }
}

const fn within(rule: Rule, syscalls: &'static [&'static str]) -> Rule {
    Rule { syscalls, ..rule }
}

/// Like [`within`], but a known caller that no other rule names shows that the lock is another one.
const fn only_within(rule: Rule, syscalls: &'static [&'static str]) -> Rule {
    Rule {
        syscalls,
        without_caller: true,
        ..rule
    }
}

/// Slow paths of reader-writer semaphores, which also protect address spaces.
const RWSEM: &[&str] = &[
    "rwsem_down_",
    "down_read",
    "down_write",
    "__down_read",
    "__down_write",
];

/// Functions that take the lock of an address space.
const ADDRESS_SPACE: &[&str] = &[
    "vm_mmap",
    "ksys_mmap",
    "do_mmap",
    "vm_munmap",
    "__vm_munmap",
    "do_munmap",
    "do_mprotect",
    "mprotect",
    "do_user_addr_fault",
    "do_page_fault",
    "exc_page_fault",
    "lock_mm_and_find_vma",
    "lock_vma_under_rcu",
    "get_mmap_lock",
    "mmap_read_lock",
    "mmap_write_lock",
    "do_mlock",
    "apply_mlockall",
    "do_mremap",
    "mremap",
    "do_madvise",
    "madvise",
    "dup_mm",
    "exit_mmap",
    "exit_mm",
    "populate_vma",
    "__mm_populate",
    "mm_populate",
    "__get_user_pages",
    "get_user_pages",
    "gup_",
    "__gup",
    "internal_get_user_pages",
    "fixup_user_fault",
    "khugepaged",
    "do_brk",
    "faultin_page",
    "do_exit",
    "mmget",
    "proc_pid_cmdline",
    "__access_remote_vm",
];

/// System calls that change the address space.
const MEMORY_CALLS: &[&str] = &[
    "mmap",
    "mmap_pgoff",
    "munmap",
    "mprotect",
    "pkey_mprotect",
    "mremap",
    "brk",
    "madvise",
    "process_madvise",
    "mlock",
    "mlock2",
    "mlockall",
    "munlock",
    "munlockall",
    "msync",
    "mincore",
    "remap_file_pages",
    "page_fault",
    "shmat",
    "shmdt",
    "mbind",
    "move_pages",
    "migrate_pages",
    "userfaultfd",
    "process_vm_readv",
    "process_vm_writev",
];

/// System calls that change a file system. They wait while it is frozen.
const WRITE_CALLS: &[&str] = &[
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev2",
    "open",
    "openat",
    "openat2",
    "creat",
    "truncate",
    "ftruncate",
    "fallocate",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "mknod",
    "mknodat",
    "chmod",
    "fchmod",
    "fchmodat",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "utimensat",
    "setxattr",
    "fsetxattr",
    "sendfile",
    "sendfile64",
    "splice",
    "copy_file_range",
    "io_submit",
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
    "msync",
    "page_fault",
];

/// Functions that take a reference to a file system in order to change it.
const FILE_SYSTEM: &[&str] = &[
    "sb_start",
    "__sb_start",
    "mnt_want_write",
    "file_start_write",
    "kiocb_start_write",
    "vfs_write",
    "vfs_fallocate",
    "ext4_journal",
    "__ext4_journal",
    "jbd2_journal_start",
    "xfs_trans_alloc",
    "btrfs_start_transaction",
    "start_transaction",
    "f2fs_",
];

const RULES: &[Rule] = &[
    rule(
        BlockedOn::Frozen,
        &["__refrigerator", "do_freezer_trap", "refrigerator"],
    ),
    rule(
        BlockedOn::Stopped,
        &["do_signal_stop", "ptrace_stop", "do_jobctl_trap"],
    ),
    rule(BlockedOn::Writeback, &["balance_dirty_pages"]),
    rule(
        BlockedOn::Memory,
        &[
            "throttle_direct_reclaim",
            "reclaim_throttle",
            "wait_iff_congested",
            "congestion_wait",
            "mem_cgroup_handle_over_high",
            "__mem_cgroup_handle_over_high",
            "mem_cgroup_oom",
            "try_charge",
            "mem_cgroup_wait",
            "shrink_",
            "do_try_to_free_pages",
            "try_to_free_",
            "__alloc_pages",
            "out_of_memory",
            "compact_zone",
            "too_many_isolated",
        ],
    ),
    // Reclaim waits for a page that is being written to the disk.
    called_by(
        rule(
            BlockedOn::Memory,
            &["folio_wait", "__folio_wait", "wait_on_page"],
        ),
        &["shrink_"],
    ),
    // A frozen file system. Its lock also has other users, so the call or the caller decides.
    called_by(
        rule(
            BlockedOn::FrozenFileSystem,
            &["percpu_rwsem_wait", "__percpu_down_read"],
        ),
        FILE_SYSTEM,
    ),
    only_within(
        rule(
            BlockedOn::FrozenFileSystem,
            &["percpu_rwsem_wait", "__percpu_down_read"],
        ),
        WRITE_CALLS,
    ),
    rule(
        BlockedOn::FrozenFileSystem,
        &[
            "ext4_journal_check_start",
            "__sb_start_write",
            "jbd2_journal_wait_updates",
        ],
    ),
    called_by(rule(BlockedOn::AddressSpace, RWSEM), ADDRESS_SPACE),
    only_within(rule(BlockedOn::AddressSpace, RWSEM), MEMORY_CALLS),
    rule(
        BlockedOn::AddressSpace,
        &[
            "__vma_start_write",
            "vma_start_write",
            "vma_mark_detached",
            "__vma_enter_locked",
        ],
    ),
    // Timed sleeps. A driver that sleeps with `msleep` or `usleep_range` makes the program wait, so
    // the place is the driver's function.
    rule(
        BlockedOn::Timer,
        &[
            "do_nanosleep",
            "hrtimer_nanosleep",
            "common_nsleep",
            "timerfd_read",
        ],
    ),
    within(
        rule(BlockedOn::Timer, &[]),
        &[
            "nanosleep",
            "clock_nanosleep",
            "clock_nanosleep_time32",
            "nanosleep_time32",
        ],
    ),
    // Children. A process that calls vfork waits until its child runs another program.
    rule(
        BlockedOn::Child,
        &["do_wait", "kernel_wait4", "wait_for_vfork_done"],
    ),
    called_by(
        rule(
            BlockedOn::Child,
            &["wait_for_completion", "__wait_for_common"],
        ),
        &[
            "kernel_clone",
            "wait_for_vfork_done",
            "_do_fork",
            "do_fork",
            "__do_sys_vfork",
        ],
    ),
    within(
        rule(BlockedOn::Child, &[]),
        &["wait4", "waitid", "waitpid", "vfork"],
    ),
    within(
        rule(
            BlockedOn::Child,
            &["wait_for_completion", "__wait_for_common"],
        ),
        &["clone", "clone3", "fork"],
    ),
    // Other threads.
    rule(
        BlockedOn::Thread,
        &[
            "futex_",
            "__futex",
            "do_futex",
            "rt_mutex_wait_proxy_lock",
            "pipe_",
            "anon_pipe_",
            "wait_for_partner",
            "fifo_",
            "unix_stream_",
            "unix_dgram_",
            "unix_wait_for_peer",
            "unix_accept",
            "do_msgrcv",
            "do_msgsnd",
            "do_semtimedop",
            "__do_semtimedop",
            "wq_sleep",
            "locks_lock_inode_wait",
            "flock_lock_inode_wait",
            "posix_lock_inode_wait",
            "do_lock_file_wait",
            "__break_lease",
            "eventfd_read",
            "eventfd_write",
        ],
    ),
    called_by(
        rule(
            BlockedOn::Thread,
            &["__skb_wait_for_more_packets", "sock_alloc_send_pskb"],
        ),
        &["unix_"],
    ),
    within(
        rule(BlockedOn::Thread, &[]),
        &[
            "futex",
            "futex_time32",
            "futex_wait",
            "futex_waitv",
            "msgrcv",
            "msgsnd",
            "semop",
            "semtimedop",
            "mq_timedreceive",
            "mq_timedsend",
            "flock",
        ],
    ),
    // Input.
    rule(
        BlockedOn::Input,
        &[
            "ep_poll",
            "do_epoll_wait",
            "poll_schedule_timeout",
            "do_poll",
            "do_sys_poll",
            "do_select",
            "core_sys_select",
            "__skb_wait_for_more_packets",
            "sk_wait_data",
            "wait_woken",
            "inet_csk_accept",
            "inet_csk_wait_for_connect",
            "sk_stream_wait",
            "tcp_recvmsg",
            "tcp_sendmsg",
            "udp_recvmsg",
            "inet_wait_for_connect",
            "__inet_stream_connect",
            "sock_alloc_send_pskb",
            "n_tty_read",
            "tty_wait",
            "inotify_read",
            "fanotify_read",
            "signalfd_",
            "do_sigtimedwait",
            "sigsuspend",
            "do_pause",
            "io_cqring_wait",
            "io_wqe_worker",
            "io_wq_worker",
            "io_sq_thread",
            "io_sqd_",
            "read_events",
            "do_io_getevents",
            "wait_for_common",
            "packet_recvmsg",
            "packet_poll",
            "virtio",
            "vsock_",
            "perf_read",
            "ring_buffer_wait",
        ],
    ),
    within(
        rule(BlockedOn::Input, &[]),
        &[
            "poll",
            "ppoll",
            "select",
            "pselect6",
            "epoll_wait",
            "epoll_pwait",
            "epoll_pwait2",
            "recvfrom",
            "recvmsg",
            "recvmmsg",
            "accept",
            "accept4",
            "connect",
            "pause",
            "rt_sigsuspend",
            "rt_sigtimedwait",
            "io_uring_enter",
            "io_getevents",
            "io_pgetevents",
        ],
    ),
    // Other locks of the kernel, and work that it waits for.
    rule(
        BlockedOn::Lock,
        &[
            "__mutex_lock",
            "mutex_lock",
            "rwsem_down_",
            "down_read",
            "down_write",
            "__down",
            "down_interruptible",
            "down_killable",
            "percpu_rwsem_wait",
            "__percpu_down_read",
            "rt_mutex",
            "rtlock",
            "__rt_mutex",
            "rwbase_",
            "wait_for_completion",
            "__wait_for_common",
            "__wait_rcu_gp",
            "synchronize_rcu",
            "wait_rcu_exp_gp",
            "__flush_work",
        ],
    ),
];

/// Returns what a thread waited for in a wait with this detail. Returns `None` if the thread could
/// have run, or if the reason is unknown.
pub(crate) fn place(off: &OffCpu<'_>) -> Option<BlockedOn> {
    use OffCpuReason::{
        Deadline, Disk, Frozen, Lock, Missed, Preempted, Reborn, Sleeping, Stopped, Throttled,
        Timer, Woken,
    };
    match off.reason {
        Woken | Preempted | Throttled | Missed | Reborn | Timer => return None,
        Frozen => return Some(BlockedOn::Frozen),
        Deadline => return Some(BlockedOn::Deadline),
        Stopped => return Some(BlockedOn::Stopped),
        Sleeping | Disk | Lock => {}
    }
    // The lock itself is better evidence than the functions.
    if off.lock.is_some_and(|lock| lock.starts_with(MMAP_LOCK)) {
        return Some(BlockedOn::AddressSpace);
    }
    let found = RULES.iter().find(|rule| matches(rule, off));
    let on = found.map(|rule| rule.on);
    // A wait for a disk is one even if the thread waits in a lock of the file system.
    Some(match (off.reason, on) {
        (Disk, Some(on @ (BlockedOn::Writeback | BlockedOn::Memory))) => on,
        (Disk, _) => BlockedOn::Disk,
        (Lock, Some(on)) if on.stall().is_some() || on == BlockedOn::Child => on,
        (Lock, _) if is_disk(off) => BlockedOn::Disk,
        (Lock, _) => BlockedOn::Lock,
        (_, on) => on.unwrap_or(BlockedOn::Unknown),
    })
}

/// Beginnings of the names of functions in which a thread waits for a disk, without having been
/// marked as waiting for one.
const DISK: &[&str] = &[
    "jbd2_",
    "wait_transaction",
    "wait_on_buffer",
    "__wait_on_buffer",
    "submit_bio_wait",
    "blk_",
    "folio_wait_",
    "wait_on_page",
    "xlog_",
    "xfs_",
    "ext4_",
    "btrfs_",
    "wb_wait_for",
    "do_get_write_access",
    "add_transaction_credits",
    "writeback_",
    "bdev_",
    "rq_qos_wait",
    "inode_wait_for_writeback",
    "dio_",
    "nfs_",
    "rpc_wait",
];

fn is_disk(off: &OffCpu<'_>) -> bool {
    starts(off.function, DISK)
}

fn matches(rule: &Rule, off: &OffCpu<'_>) -> bool {
    let is_call = |call: &str| rule.syscalls.contains(&call);
    (rule.functions.is_empty() || starts(off.function, rule.functions))
        && (rule.callers.is_empty() || starts(off.caller, rule.callers))
        && (rule.syscalls.is_empty() || off.syscall.is_some_and(is_call))
        && !(rule.without_caller && off.caller.is_some())
}

fn starts(name: Option<&str>, beginnings: &[&str]) -> bool {
    name.is_some_and(|name| beginnings.iter().any(|begin| name.starts_with(begin)))
}

#[cfg(test)]
mod tests;
