//! Seccomp filter that the agent installs once all BPF programs are attached.
//!
//! The filter is a second line of defence. The agent has no rights by then, so these calls would
//! only help an attacker who has taken it over. A list of forbidden calls stays correct when the C
//! library starts to use another call; a list of allowed calls would not.
//!
//! Kernels since 5.11 remember which calls a filter always allows, so those cost almost nothing.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

/// System calls that fail with `EPERM`.
const REFUSED: [i64; 48] = [
    // Other programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    // Other users. `capset` is missing because probe threads drop their capabilities with it.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    // Other file systems and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    // The kernel, and parts of it that attacks have often used.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_personality,
];

/// Allowed `bpf` commands: they read and write open maps, and read program counters.
const BPF_COMMANDS: [u64; 10] = [
    1,  // BPF_MAP_LOOKUP_ELEM
    2,  // BPF_MAP_UPDATE_ELEM
    3,  // BPF_MAP_DELETE_ELEM
    4,  // BPF_MAP_GET_NEXT_KEY
    15, // BPF_OBJ_GET_INFO_BY_FD
    21, // BPF_MAP_LOOKUP_AND_DELETE_ELEM
    24, // BPF_MAP_LOOKUP_BATCH
    25, // BPF_MAP_LOOKUP_AND_DELETE_BATCH
    26, // BPF_MAP_UPDATE_BATCH
    27, // BPF_MAP_DELETE_BATCH
];

/// Installs the filter permanently in all threads. Does nothing if the kernel lacks seccomp or a
/// sandbox forbids it.
pub(super) fn install() {
    if let Ok(program) = program() {
        let _ = apply_filter_all_threads(&program);
    }
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for number in REFUSED.into_iter().chain(x32_numbers()) {
        rules.insert(number, Vec::new());
    }
    let is_other = |command| {
        let length = SeccompCmpArgLen::Dword;
        SeccompCondition::new(0, length, SeccompCmpOp::Ne, command)
    };
    let is_other: Result<_, _> = BPF_COMMANDS.into_iter().map(is_other).collect();
    rules.insert(libc::SYS_bpf, vec![SeccompRule::new(is_other?)?]);
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()
}

/// Returns the calls refused in the x32 ABI of x86-64: those above and `bpf`, each with a flag bit,
/// and the 36 that only x32 has.
fn x32_numbers() -> impl Iterator<Item = i64> {
    const BIT: i64 = 1 << 30;
    let numbers = REFUSED.into_iter().chain([libc::SYS_bpf]).chain(512..548);
    let is_x32 = cfg!(target_arch = "x86_64");
    numbers.filter(move |_| is_x32).map(|number| number | BIT)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use nix::errno::Errno;

    use super::*;

    #[test]
    fn forbidden_calls_fail_and_others_work() {
        // Filter one thread only, so that other tests are not affected.
        let filtered = thread::spawn(|| {
            seccompiler::apply_filter(&program().unwrap()).unwrap();
            let started = Command::new("/bin/true").status();
            let unshared = nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS);
            let file = tempfile::tempfile().map(|_| ());
            (started, unshared, file)
        });
        let (started, unshared, file) = filtered.join().unwrap();
        let refused = started.expect_err("a program ran");
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        assert_eq!(unshared, Err(Errno::EPERM));
        file.unwrap();
    }
}
