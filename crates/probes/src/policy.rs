//! Scheduling a probe's thread: what was asked for, and what the kernel granted.

use nix::errno::Errno;
use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};

use crate::{ProbeError, sys};

/// Refuses a priority that the kernel does not have.
pub(crate) fn validate(policy: SchedulingPolicy) -> Result<(), ProbeError> {
    match policy.real_time() {
        Some(priority) if !(1..=99).contains(&priority) => Err(ProbeError::Priority { priority }),
        _ => Ok(()),
    }
}

/// Puts a thread of this process under `policy`.
pub(crate) fn apply_to(tid: i32, policy: SchedulingPolicy) -> Result<(), Errno> {
    match policy {
        SchedulingPolicy::Idle => sys::set_scheduler(tid, libc::SCHED_IDLE, 0),
        SchedulingPolicy::Other => sys::set_scheduler(tid, libc::SCHED_OTHER, 0),
        SchedulingPolicy::Fifo(priority) => sys::set_scheduler(tid, libc::SCHED_FIFO, priority),
        SchedulingPolicy::RoundRobin(priority) => sys::set_scheduler(tid, libc::SCHED_RR, priority),
    }
}

/// Puts the calling thread under `requested`, or under `SCHED_OTHER` if that is refused.
pub(crate) fn obtain(requested: SchedulingPolicy) -> PolicyGrant {
    obtain_by(requested, |policy| apply_to(sys::THIS_THREAD, policy))
}

fn obtain_by(
    requested: SchedulingPolicy,
    apply: impl Fn(SchedulingPolicy) -> Result<(), Errno>,
) -> PolicyGrant {
    let Err(errno) = apply(requested) else {
        return PolicyGrant::full(requested);
    };
    // A thread inherits its creator's policy, so the fallback is set, not assumed. Where even
    // that is forbidden (a seccomp filter), the creator was an ordinary program.
    let granted = SchedulingPolicy::Other;
    let _ = apply(granted);
    PolicyGrant {
        requested,
        granted,
        refusal: Some(errno.desc().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::{SchedulingPolicy, obtain_by, validate};

    #[test]
    fn a_refusal_falls_back_and_says_so() {
        let grant = obtain_by(SchedulingPolicy::Fifo(50), |policy| match policy {
            SchedulingPolicy::Fifo(_) => Err(Errno::EPERM),
            _ => Ok(()),
        });
        assert_eq!(grant.granted, SchedulingPolicy::Other);
        assert_eq!(
            grant.to_string(),
            "SCHED_OTHER (SCHED_FIFO:50 was refused: Operation not permitted; \
             it needs CAP_SYS_NICE or a higher RLIMIT_RTPRIO)"
        );
    }

    #[test]
    fn a_grant_is_what_was_asked_for() {
        let grant = obtain_by(SchedulingPolicy::Idle, |_| Ok(()));
        assert_eq!(
            (grant.granted, grant.refusal),
            (SchedulingPolicy::Idle, None)
        );
    }

    #[test]
    fn priorities_outside_the_kernels_range_are_refused() {
        for priority in [0, 100, 255] {
            assert!(
                validate(SchedulingPolicy::Fifo(priority)).is_err(),
                "{priority}"
            );
        }
        assert_eq!(validate(SchedulingPolicy::Fifo(99)), Ok(()));
    }
}
