//! Seccomp filter that the agent installs once all BPF programs are attached.
//!
//! The filter is a second line of defence. By then, the agent has dropped its rights, so the
//! forbidden calls would only help an attacker who has taken it over. The filter lists forbidden
//! calls rather than allowed ones, so that it need not change when the C library starts to use a
//! new call.
//!
//! Since Linux 5.11, the kernel remembers which calls a filter always allows, so an allowed call
//! costs almost nothing extra.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

/// System calls that fail with `EPERM`.
const REFUSED: [i64; 48] = [
    // Running other programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    // Changing the user or group. `capset` stays allowed, because probe threads use it to drop
    // their capabilities.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    // Mounts and namespaces.
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
    // Changing the kernel itself, and using kernel features that attackers have often exploited.
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

/// Allowed `bpf` commands. They access maps that are already open, and read the kernel's
/// information about loaded programs.
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

/// Installs the filter permanently in all threads. Does nothing if the kernel has no seccomp or a
/// sandbox forbids the filter.
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

/// Returns the numbers of the calls to refuse in the x32 ABI of x86-64. They are the calls in
/// [`REFUSED`] and `bpf`, each with the x32 flag bit, and the 36 calls that only x32 has. Returns
/// nothing on architectures other than x86-64.
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
        // Filter only one thread, so that other tests are not affected.
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
