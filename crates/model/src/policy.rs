//! Scheduling policies: those that ticktax requested and got for its own threads, and programs'
//! non-default policies.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Linux scheduling policy that probes can use. Recordings and JSON use the kernel's names:
/// `SCHED_IDLE`, `SCHED_OTHER`, `SCHED_FIFO:50`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum SchedulingPolicy {
    /// `SCHED_IDLE`: runs only if nothing else wants the CPU. A spin probe then disturbs least and
    /// sees every other task as a gap.
    #[default]
    Idle,
    /// `SCHED_OTHER`: shares the CPU fairly. The default for programs.
    Other,
    /// `SCHED_FIFO` with a priority of 1 to 99: runs before every ordinary task. The remaining gaps
    /// come from interrupts, the kernel, the hypervisor or the firmware.
    ///
    /// The kernel reserves part of each second (50 ms by default) for other tasks, by real-time
    /// throttling or, since Linux 6.12, by the fair server. A spin probe sees that part as gaps.
    Fifo(u8),
    /// `SCHED_RR` with a priority of 1 to 99: like `SCHED_FIFO`, but alternates with threads of
    /// equal priority.
    RoundRobin(u8),
}

impl SchedulingPolicy {
    /// The priority of a real-time policy; `None` for other policies.
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

/// Non-default scheduling of a program's thread, written as users write it: `FIFO 10`, `RR 1`,
/// `DEADLINE`, `nice -20`. Recordings and JSON use this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum SpecialPolicy {
    /// `SCHED_FIFO` with a priority of 1 to 99.
    Fifo(u8),
    /// `SCHED_RR` with a priority of 1 to 99.
    RoundRobin(u8),
    /// `SCHED_DEADLINE`, which takes precedence over `SCHED_FIFO` and `SCHED_RR`.
    Deadline,
    /// `SCHED_OTHER` or `SCHED_BATCH` with a non-zero nice value of -20 to 19. `SCHED_IDLE` counts
    /// as 19.
    Nice(i8),
}

impl SpecialPolicy {
    /// Lowest priority of ordinary threads.
    pub const LOWEST: Self = Self::Nice(19);

    /// Whether threads with this policy run before every ordinary thread, regardless of nice
    /// values.
    pub const fn goes_first(self) -> bool {
        !matches!(self, Self::Nice(_))
    }

    /// Whether real-time throttling or the fair server limits this policy. They limit `SCHED_FIFO`
    /// and `SCHED_RR`, but not `SCHED_DEADLINE`, which has a separate budget (`kernel/sched/rt.c`,
    /// `kernel/sched/deadline.c`).
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
    /// `fifo`, which means priority 50.
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

/// The policy that a thread requested, and the policy that it got.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyGrant {
    /// Requested policy.
    pub requested: SchedulingPolicy,
    /// Granted policy.
    pub granted: SchedulingPolicy,
    /// The system's error, if the granted policy is not the requested one.
    pub refusal: Option<String>,
}

impl PolicyGrant {
    /// The requested policy was granted.
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
