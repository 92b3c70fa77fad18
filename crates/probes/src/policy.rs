//! Sets the scheduling policy of a probe's thread and reports whether the kernel granted it.

use nix::errno::Errno;
use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};

use crate::{ProbeError, sys};

/// Returns an error if a real-time priority is outside 1 to 99.
pub(crate) fn validate(policy: SchedulingPolicy) -> Result<(), ProbeError> {
    match policy.real_time() {
        Some(priority) if !(1..=99).contains(&priority) => Err(ProbeError::Priority { priority }),
        _ => Ok(()),
    }
}

pub(crate) fn apply_to(tid: i32, policy: SchedulingPolicy) -> Result<(), Errno> {
    match policy {
        SchedulingPolicy::Idle => sys::set_scheduler(tid, libc::SCHED_IDLE, 0),
        SchedulingPolicy::Other => sys::set_scheduler(tid, libc::SCHED_OTHER, 0),
        SchedulingPolicy::Fifo(priority) => sys::set_scheduler(tid, libc::SCHED_FIFO, priority),
        SchedulingPolicy::RoundRobin(priority) => sys::set_scheduler(tid, libc::SCHED_RR, priority),
    }
}

/// Requests a policy for the calling thread. If the kernel refuses it, sets `SCHED_OTHER` instead.
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
    // Set the fallback explicitly, because the thread has inherited the policy of its creator. If a
    // seccomp filter forbids even that, the inherited policy is an ordinary one.
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
    fn a_refused_policy_falls_back_to_other_and_keeps_the_reason() {
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
    fn the_requested_policy_is_granted() {
        let grant = obtain_by(SchedulingPolicy::Idle, |_| Ok(()));
        assert_eq!(
            (grant.granted, grant.refusal),
            (SchedulingPolicy::Idle, None)
        );
    }

    #[test]
    fn priorities_outside_1_to_99_are_refused() {
        for priority in [0, 100, 255] {
            assert!(
                validate(SchedulingPolicy::Fifo(priority)).is_err(),
                "{priority}"
            );
        }
        assert_eq!(validate(SchedulingPolicy::Fifo(99)), Ok(()));
    }
}
