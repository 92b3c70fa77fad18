//! Scheduling policies: those that ticktax requests for its own threads, those that the kernel
//! grants, and the non-default policies of other programs.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Linux scheduling policy that a probe can use. Recordings and JSON use the kernel's names:
/// `SCHED_IDLE`, `SCHED_OTHER`, `SCHED_FIFO:50`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum SchedulingPolicy {
    /// `SCHED_IDLE`: the thread runs only when no other thread wants the CPU. With this policy, a
    /// spin probe disturbs other threads least, and every one of them appears as a gap.
    #[default]
    Idle,
    /// `SCHED_OTHER`: the thread gets a fair share of the CPU. This is the default policy of
    /// programs.
    Other,
    /// `SCHED_FIFO` with a priority of 1 to 99: the thread runs before every ordinary thread. The
    /// gaps that a probe still sees come from interrupts, the kernel, the hypervisor or the
    /// firmware.
    ///
    /// The kernel reserves part of each second (50 ms by default) for ordinary threads, through
    /// real-time throttling or, since Linux 6.12, the fair server. A spin probe sees that part as
    /// gaps.
    Fifo(u8),
    /// `SCHED_RR` with a priority of 1 to 99: like `SCHED_FIFO`, except that threads with the same
    /// priority take turns.
    RoundRobin(u8),
}

impl SchedulingPolicy {
    /// Returns the priority if this is a real-time policy, or `None`.
    pub const fn real_time(self) -> Option<u8> {
        match self {
            Self::Idle | Self::Other => None,
            Self::Fifo(priority) | Self::RoundRobin(priority) => Some(priority),
        }
    }
}

impl fmt::Display for SchedulingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("SCHED_IDLE"),
            Self::Other => f.write_str("SCHED_OTHER"),
            Self::Fifo(priority) => write!(f, "SCHED_FIFO:{priority}"),
            Self::RoundRobin(priority) => write!(f, "SCHED_RR:{priority}"),
        }
    }
}

/// A program thread's scheduling, if it is not the default. Recordings and JSON write it as users
/// know it: `FIFO 10`, `RR 1`, `DEADLINE`, `nice -20`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum SpecialPolicy {
    /// `SCHED_FIFO` with a priority of 1 to 99.
    Fifo(u8),
    /// `SCHED_RR` with a priority of 1 to 99.
    RoundRobin(u8),
    /// `SCHED_DEADLINE`, whose threads run before those of `SCHED_FIFO` and `SCHED_RR`.
    Deadline,
    /// `SCHED_OTHER` or `SCHED_BATCH` with a nice value from -20 to 19 that is not 0. `SCHED_IDLE`
    /// is treated as nice 19.
    Nice(i8),
}

impl SpecialPolicy {
    /// The lowest priority that ordinary threads can have.
    pub const LOWEST: Self = Self::Nice(19);

    /// Returns whether threads with this policy run before every ordinary thread, regardless of
    /// nice values.
    pub const fn goes_first(self) -> bool {
        !matches!(self, Self::Nice(_))
    }

    /// Returns whether real-time throttling and the fair server limit threads with this policy.
    /// They limit `SCHED_FIFO` and `SCHED_RR`, but not `SCHED_DEADLINE`, which has a separate
    /// budget (`kernel/sched/rt.c`, `kernel/sched/deadline.c`).
    pub const fn is_throttled(self) -> bool {
        matches!(self, Self::Fifo(_) | Self::RoundRobin(_))
    }
}

impl fmt::Display for SpecialPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo(priority) => write!(f, "FIFO {priority}"),
            Self::RoundRobin(priority) => write!(f, "RR {priority}"),
            Self::Deadline => f.write_str("DEADLINE"),
            Self::Nice(nice) => write!(f, "nice {nice}"),
        }
    }
}

/// Error for text that is not a [`SpecialPolicy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not FIFO N, RR N, DEADLINE or nice N")]
pub struct SpecialPolicyError(String);

impl FromStr for SpecialPolicy {
    type Err = SpecialPolicyError;

    fn from_str(text: &str) -> Result<Self, SpecialPolicyError> {
        let (name, number) = text.split_once(' ').unwrap_or((text, ""));
        let policy = match name {
            "FIFO" => number.parse().ok().map(Self::Fifo),
            "RR" => number.parse().ok().map(Self::RoundRobin),
            "nice" => number.parse().ok().map(Self::Nice),
            "DEADLINE" => Some(Self::Deadline),
            _ => None,
        };
        policy.ok_or_else(|| SpecialPolicyError(text.to_owned()))
    }
}

impl TryFrom<String> for SpecialPolicy {
    type Error = SpecialPolicyError;

    fn try_from(text: String) -> Result<Self, SpecialPolicyError> {
        text.parse()
    }
}

impl From<SpecialPolicy> for String {
    fn from(policy: SpecialPolicy) -> Self {
        policy.to_string()
    }
}

/// Error for text that is not a scheduling policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid policy `{0}`: choose idle, other, fifo:1 to fifo:99, or rr:1 to rr:99")]
pub struct PolicyError(String);

impl FromStr for SchedulingPolicy {
    type Err = PolicyError;

    /// Parses a policy as written in files or on the command line: `SCHED_FIFO:50`, `fifo:50`, or
    /// just `fifo` for priority 50.
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        const MIDDLE: u8 = 50;
        let short = text.strip_prefix("SCHED_").unwrap_or(text);
        let (name, priority) = match short.split_once(':') {
            Some((name, priority)) => (name, Some(priority.parse::<u8>().ok())),
            None => (short, None),
        };
        let priority = match priority {
            None => Some(MIDDLE),
            Some(priority) => priority.filter(|priority| (1..=99).contains(priority)),
        };
        let policy = match name.to_ascii_lowercase().as_str() {
            "idle" if name == short => Some(Self::Idle),
            "other" if name == short => Some(Self::Other),
            "fifo" => priority.map(Self::Fifo),
            "rr" => priority.map(Self::RoundRobin),
            _ => None,
        };
        policy.ok_or_else(|| PolicyError(text.to_owned()))
    }
}

impl TryFrom<String> for SchedulingPolicy {
    type Error = PolicyError;

    fn try_from(text: String) -> Result<Self, PolicyError> {
        text.parse()
    }
}

impl From<SchedulingPolicy> for String {
    fn from(policy: SchedulingPolicy) -> Self {
        policy.to_string()
    }
}

/// The policy that one of ticktax's threads requested, and the one it got.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyGrant {
    /// Requested policy.
    pub requested: SchedulingPolicy,
    /// Granted policy.
    pub granted: SchedulingPolicy,
    /// The kernel's error when it refused the requested policy; `None` if it was granted.
    pub refusal: Option<String>,
}

impl PolicyGrant {
    /// Returns the grant for a thread that requested `policy` and got it.
    pub const fn full(policy: SchedulingPolicy) -> Self {
        Self {
            requested: policy,
            granted: policy,
            refusal: None,
        }
    }
}

impl fmt::Display for PolicyGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.granted)?;
        let Some(why) = &self.refusal else {
            return Ok(());
        };
        write!(f, " ({} was refused: {why}", self.requested)?;
        if self.requested.real_time().is_some() {
            f.write_str("; it needs CAP_SYS_NICE or a higher RLIMIT_RTPRIO")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::{PolicyGrant, SchedulingPolicy, SpecialPolicy};

    #[test]
    fn special_policies_round_trip() {
        use SpecialPolicy::{Deadline, Fifo, Nice, RoundRobin};
        for (policy, name) in [
            (Fifo(10), "FIFO 10"),
            (RoundRobin(1), "RR 1"),
            (Deadline, "DEADLINE"),
            (Nice(-20), "nice -20"),
        ] {
            assert_eq!(policy.to_string(), name);
            assert_eq!(name.parse(), Ok(policy));
        }
        for bad in ["", "FIFO", "FIFO x", "nice 1000", "SCHED_FIFO:1"] {
            assert!(bad.parse::<SpecialPolicy>().is_err(), "{bad}");
        }
    }

    #[test]
    fn scheduling_policies_use_the_kernels_names_and_round_trip() {
        use SchedulingPolicy::{Fifo, Idle, Other, RoundRobin};
        for (policy, name) in [
            (Idle, "SCHED_IDLE"),
            (Other, "SCHED_OTHER"),
            (Fifo(50), "SCHED_FIFO:50"),
            (RoundRobin(1), "SCHED_RR:1"),
        ] {
            assert_eq!(policy.to_string(), name);
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(
                serde_json::from_str::<SchedulingPolicy>(&json).unwrap(),
                policy
            );
        }
        for (typed, policy) in [
            ("idle", Idle),
            ("fifo", Fifo(50)),
            ("fifo:99", Fifo(99)),
            ("rr:1", RoundRobin(1)),
        ] {
            assert_eq!(typed.parse(), Ok(policy));
        }
        for bad in [
            "",
            "fifo:0",
            "fifo:100",
            "SCHED_FIFO:300",
            "SCHED_DEADLINE",
            "fifo:",
            "idle:3",
        ] {
            let error = bad.parse::<SchedulingPolicy>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{bad}`")), "{error}");
        }
    }

    #[test]
    fn a_refusal_names_the_missing_right() {
        let grant = PolicyGrant {
            requested: SchedulingPolicy::Fifo(50),
            granted: SchedulingPolicy::Other,
            refusal: Some("Operation not permitted".to_owned()),
        };
        assert_eq!(
            grant.to_string(),
            "SCHED_OTHER (SCHED_FIFO:50 was refused: Operation not permitted; \
             it needs CAP_SYS_NICE or a higher RLIMIT_RTPRIO)"
        );
        assert_eq!(
            PolicyGrant::full(SchedulingPolicy::Idle).to_string(),
            "SCHED_IDLE"
        );
    }
}
