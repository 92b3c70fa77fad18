//! Tests that details of wait rows are classified correctly.

use ticktax_model::victim::{BlockedOn, OffCpu};

use super::place;

fn on(detail: &str) -> Option<BlockedOn> {
    place(&OffCpu::parse(detail).unwrap())
}

#[test]
fn a_place_shows_what_the_thread_waits_for() {
    use BlockedOn::{
        AddressSpace, Child, Deadline, Disk, Frozen, FrozenFileSystem, Input, Lock, Memory,
        Stopped, Thread, Timer, Writeback,
    };
    for (detail, expected) in [
        ("sleeping in clock_nanosleep at do_nanosleep", Timer),
        (
            "sleeping in poll at poll_schedule_timeout.constprop.0",
            Input,
        ),
        ("sleeping in epoll_wait at ep_poll, moved", Input),
        ("sleeping in read at n_tty_read", Input),
        ("disk in write at folio_wait_bit<shrink_folio_list", Memory),
        ("disk in read at folio_wait_bit<filemap_get_pages", Disk),
        ("sleeping in futex at futex_wait_queue", Thread),
        ("sleeping in read at anon_pipe_read", Thread),
        ("sleeping in recvfrom at unix_stream_read_generic", Thread),
        ("sleeping in wait4 at do_wait", Child),
        (
            "lock in vfork at wait_for_completion_killable<kernel_clone",
            Child,
        ),
        (
            "lock in mmap at rwsem_down_write_slowpath<vm_mmap_pgoff",
            AddressSpace,
        ),
        ("lock in munmap at rwsem_down_write_slowpath", AddressSpace),
        (
            "lock in page_fault at rwsem_down_read_slowpath<do_user_addr_fault",
            AddressSpace,
        ),
        (
            "lock in read at rwsem_down_read_slowpath<ext4_file_read_iter",
            Lock,
        ),
        (
            "lock in write at percpu_rwsem_wait<vfs_write",
            FrozenFileSystem,
        ),
        (
            "lock in openat at percpu_rwsem_wait<mnt_want_write",
            FrozenFileSystem,
        ),
        // A driver that sleeps for a time.
        ("lock in ioctl at drv_reset", Lock),
        ("lock in clone at percpu_rwsem_wait<cgroup_can_fork", Lock),
        (
            "lock in write at percpu_rwsem_wait<cgroup_attach_lock",
            Lock,
        ),
        (
            "lock in page_fault at rwsem_down_read_slowpath<filemap_fault",
            Lock,
        ),
        ("disk in write at balance_dirty_pages", Writeback),
        ("disk in fsync at jbd2_log_wait_commit", Disk),
        ("lock in fsync at jbd2_log_wait_commit", Disk),
        ("lock in write at reclaim_throttle", Memory),
        ("lock in ioctl at __mutex_lock.constprop.0", Lock),
        ("frozen at do_freezer_trap", Frozen),
        ("stopped", Stopped),
        ("deadline", Deadline),
    ] {
        assert_eq!(on(detail), Some(expected), "{detail}");
    }
}

#[test]
fn a_reason_alone_shows_only_the_kind_of_sleep() {
    assert_eq!(on("sleeping"), Some(BlockedOn::Unknown));
    assert_eq!(on("lock"), Some(BlockedOn::Lock));
    assert_eq!(on("disk, moved"), Some(BlockedOn::Disk));
    for detail in ["woken", "preempted, moved", "throttled", "missed", "reborn"] {
        assert_eq!(on(detail), None, "{detail}");
    }
}
