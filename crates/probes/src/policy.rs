//! How a probe's thread is scheduled: what was asked for, and what the kernel granted.

use std::fmt;

use nix::errno::Errno;

use crate::{ProbeError, sys};

/// A scheduling policy of Linux, as far as probes use them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SchedulingPolicy {
    /// `SCHED_IDLE`: runs when nothing else wants the CPU. A spin probe then disturbs least, and
    /// sees every other task as a gap.
    #[default]
    Idle,
    /// `SCHED_OTHER`: shares the CPU fairly, as programs do by default.
    Other,
    /// `SCHED_FIFO` with a priority of 1 to 99: runs before every ordinary task, so that what is
    /// still seen comes from interrupts, the kernel, the hypervisor and the firmware.
    ///
    /// The kernel keeps a part of each second (by default 50 ms) for other tasks: real-time
    /// throttling, or the fair server since Linux 6.12. A spin probe sees that part as gaps.
    Fifo(u8),
}

impl SchedulingPolicy {
    /// Refuses a priority that the kernel does not have.
    pub(crate) fn validate(self) -> Result<(), ProbeError> {
        match self {
            Self::Fifo(priority) if !(1..=99).contains(&priority) => {
                Err(ProbeError::Priority { priority })
            }
            _ => Ok(()),
        }
    }

    /// Puts a thread of this process under this policy.
    pub(crate) fn apply_to(self, tid: i32) -> Result<(), Errno> {
        match self {
            Self::Idle => sys::set_scheduler(tid, libc::SCHED_IDLE, 0),
            Self::Other => sys::set_scheduler(tid, libc::SCHED_OTHER, 0),
            Self::Fifo(priority) => sys::set_scheduler(tid, libc::SCHED_FIFO, priority),
        }
    }
}

impl fmt::Display for SchedulingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("SCHED_IDLE"),
            Self::Other => f.write_str("SCHED_OTHER"),
            Self::Fifo(priority) => write!(f, "SCHED_FIFO:{priority}"),
        }
    }
}

/// The policy that a thread asked for, beside the one that it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyGrant {
    /// What was asked for.
    pub requested: SchedulingPolicy,
    /// What the thread ran under.
    pub granted: SchedulingPolicy,
    /// The kernel's reason, when the two differ.
    pub refusal: Option<&'static str>,
}

impl PolicyGrant {
    /// Puts the calling thread under `requested`, or under `SCHED_OTHER` if that is refused.
    pub(crate) fn obtain(requested: SchedulingPolicy) -> Self {
        Self::obtain_by(requested, |policy| policy.apply_to(sys::THIS_THREAD))
    }

    fn obtain_by(
        requested: SchedulingPolicy,
        apply: impl Fn(SchedulingPolicy) -> Result<(), Errno>,
    ) -> Self {
        let Err(errno) = apply(requested) else {
            return Self {
                requested,
                granted: requested,
                refusal: None,
            };
        };
        // A thread inherits its creator's policy, so the fallback is set, not assumed. Where even
        // that is forbidden (a seccomp filter), the creator was an ordinary program.
        let granted = SchedulingPolicy::Other;
        let _ = apply(granted);
        Self {
            requested,
            granted,
            refusal: Some(errno.desc()),
        }
    }
}

impl fmt::Display for PolicyGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.granted)?;
        let Some(why) = self.refusal else {
            return Ok(());
        };
        write!(f, " ({} was refused: {why}", self.requested)?;
        if matches!(self.requested, SchedulingPolicy::Fifo(_)) {
            f.write_str("; it needs CAP_SYS_NICE or a higher RLIMIT_RTPRIO")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::{PolicyGrant, SchedulingPolicy};

    #[test]
    fn a_refusal_falls_back_and_says_so() {
        let grant = PolicyGrant::obtain_by(SchedulingPolicy::Fifo(50), |policy| match policy {
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
        let grant = PolicyGrant::obtain_by(SchedulingPolicy::Idle, |_| Ok(()));
        assert_eq!(
            (grant.granted, grant.refusal),
            (SchedulingPolicy::Idle, None)
        );
        assert_eq!(grant.to_string(), "SCHED_IDLE");
    }

    #[test]
    fn priorities_outside_the_kernels_range_are_refused() {
        for priority in [0, 100, 255] {
            assert!(
                SchedulingPolicy::Fifo(priority).validate().is_err(),
                "{priority}"
            );
        }
        assert_eq!(SchedulingPolicy::Fifo(99).validate(), Ok(()));
    }
}
