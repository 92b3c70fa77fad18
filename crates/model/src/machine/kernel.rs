//! A kernel's configuration of the tick and of preemption.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::CpuList;

/// When a CPU's tick stops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TickMode {
    /// Never (`CONFIG_HZ_PERIODIC`, `nohz=off`).
    #[default]
    Periodic,
    /// While the CPU is idle (`CONFIG_NO_HZ_IDLE`).
    NohzIdle,
    /// While the CPU is idle and, on some CPUs, also while only one task is runnable
    /// (`nohz_full=`).
    NohzFull {
        /// CPUs whose tick also stops while they are busy.
        cpus: CpuList,
    },
}

impl TickMode {
    /// Names of the modes, as parsed and displayed.
    pub const WORDS: [&str; 3] = ["periodic", "nohz-idle", "nohz-full"];

    /// `nohz-full` on CPUs 0 to `count - 1`, with `count` limited to the 8192 CPUs that a list can
    /// contain.
    pub fn nohz_full(count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self::NohzFull {
            cpus: CpuList::first(count.min(CpuList::MAX_CPU + 1)),
        }
    }

    /// Name of the mode, without its CPUs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Periodic => Self::WORDS[0],
            Self::NohzIdle => Self::WORDS[1],
            Self::NohzFull { .. } => Self::WORDS[2],
        }
    }
}

/// The mode's name. For `nohz-full`, its CPUs follow.
impl fmt::Display for TickMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Self::NohzFull { cpus } => write!(f, " {cpus}"),
            Self::Periodic | Self::NohzIdle => Ok(()),
        }
    }
}

/// A fact about a kernel that can be established in more than one way.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum MachineFact {
    /// Tick frequency.
    TickRate,
    /// When the tick stops.
    TickMode,
    /// Whether timers can expire between ticks.
    HighResolution,
    /// How CPU time is accounted.
    Accounting,
    /// The preemption model.
    Preemption,
}

/// How a fact about a kernel was established, if not from its build configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Evidence {
    /// Reported by the running kernel, through the resolution of its clocks or its version string.
    #[serde(alias = "running")]
    RunningKernel,
    /// Implied by the functions in the kernel's type information (BTF).
    #[serde(alias = "functions")]
    Btf,
    /// Shown by the kernel's behaviour in a self-test.
    SelfTest {
        /// Number of ticks in the self-test.
        ticks: u32,
    },
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunningKernel => f.write_str("the running kernel says"),
            Self::Btf => f.write_str("by its functions"),
            Self::SelfTest { ticks } => write!(f, "by a self-test over {ticks} ticks"),
        }
    }
}

/// Where the kernel can be preempted (`preempt=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preemption {
    /// Only in user mode (`PREEMPT_NONE`).
    None,
    /// Also at explicit preemption points in kernel code (`PREEMPT_VOLUNTARY`).
    Voluntary,
    /// Anywhere except in sections that disable preemption (`PREEMPT`).
    Full,
    /// Like full preemption for real-time threads. Others are only preempted at the next tick
    /// (`PREEMPT_LAZY`).
    Lazy,
    /// Almost everywhere, including interrupt handlers (`PREEMPT_RT`).
    Rt,
}

impl Preemption {
    /// All models.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Voluntary,
        Self::Full,
        Self::Lazy,
        Self::Rt,
    ];

    /// Name as in `preempt=`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Voluntary => "voluntary",
            Self::Full => "full",
            Self::Lazy => "lazy",
            Self::Rt => "rt",
        }
    }
}

impl fmt::Display for Preemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for a word that is not a preemption model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown preemption model `{0}`")]
pub struct PreemptionError(String);

impl FromStr for Preemption {
    type Err = PreemptionError;

    fn from_str(word: &str) -> Result<Self, PreemptionError> {
        let found = Self::ALL.into_iter().find(|model| model.name() == word);
        found.ok_or_else(|| PreemptionError(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Preemption, TickMode};

    #[test]
    fn tick_modes_round_trip() {
        let full = || TickMode::NohzFull {
            cpus: "2-7".parse().unwrap(),
        };
        for (mode, json, text) in [
            (TickMode::Periodic, r#""periodic""#, "periodic"),
            (TickMode::NohzIdle, r#""nohz-idle""#, "nohz-idle"),
            (full(), r#"{"nohz-full":{"cpus":"2-7"}}"#, "nohz-full 2-7"),
        ] {
            assert_eq!(serde_json::to_string(&mode).unwrap(), json);
            assert_eq!(serde_json::from_str::<TickMode>(json).unwrap(), mode);
            assert_eq!(mode.to_string(), text);
        }
        assert!(serde_json::from_str::<TickMode>(r#""nohz""#).is_err());
    }

    #[test]
    fn preemption_models_round_trip() {
        for model in Preemption::ALL {
            assert_eq!(model.name().parse(), Ok(model));
            let json = serde_json::to_string(&model).unwrap();
            assert_eq!(json, format!("\"{model}\""));
        }
        assert!("maybe".parse::<Preemption>().is_err());
    }
}
