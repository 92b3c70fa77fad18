//! A kernel's configuration of the timer tick and of preemption.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::CpuList;

/// When a CPU's timer tick stops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TickMode {
    /// Never (`CONFIG_HZ_PERIODIC`, `nohz=off`).
    #[default]
    Periodic,
    /// The tick stops while the CPU is idle (`CONFIG_NO_HZ_IDLE`).
    NohzIdle,
    /// The tick stops while the CPU is idle. On some CPUs, it also stops while only one task is
    /// runnable (`nohz_full=`).
    NohzFull {
        /// CPUs on which the tick also stops while one task is runnable.
        cpus: CpuList,
    },
}

impl TickMode {
    /// Names of the modes in text form.
    pub const WORDS: [&str; 3] = ["periodic", "nohz-idle", "nohz-full"];

    /// Returns the mode `nohz-full` on CPUs 0 to `count - 1`. `count` is capped at 8192, the number
    /// of CPUs that a list can contain.
    pub fn nohz_full(count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self::NohzFull {
            cpus: CpuList::first(count.min(CpuList::MAX_CPU + 1)),
        }
    }

    /// Returns the name of the mode, without its CPUs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Periodic => Self::WORDS[0],
            Self::NohzIdle => Self::WORDS[1],
            Self::NohzFull { .. } => Self::WORDS[2],
        }
    }
}

/// Formats the mode as its name, followed by the CPUs for `nohz-full`.
impl fmt::Display for TickMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Self::NohzFull { cpus } => write!(f, " {cpus}"),
            Self::Periodic | Self::NohzIdle => Ok(()),
        }
    }
}

/// A fact about a kernel that can be established in several ways.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum MachineFact {
    /// Tick frequency.
    TickRate,
    /// When the tick stops.
    TickMode,
    /// Whether timers can expire between ticks (high-resolution timers).
    HighResolution,
    /// How the kernel accounts CPU time.
    Accounting,
    /// The preemption model.
    Preemption,
}

/// How a fact about a kernel was established, if not from the kernel's build configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Evidence {
    /// The running kernel reported it through the resolution of its clocks or its version string.
    #[serde(alias = "running")]
    RunningKernel,
    /// The functions listed in the kernel's type information (BTF) imply it.
    #[serde(alias = "functions")]
    Btf,
    /// The kernel's behaviour in a self-test showed it.
    SelfTest {
        /// Number of ticks that the self-test observed.
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
    /// In user mode and at explicit preemption points in kernel code (`PREEMPT_VOLUNTARY`).
    Voluntary,
    /// Anywhere except in code that disables preemption (`PREEMPT`).
    Full,
    /// Anywhere, as with `PREEMPT`, when a real-time thread becomes runnable; otherwise only at the
    /// next tick (`PREEMPT_LAZY`).
    Lazy,
    /// Almost anywhere, including most interrupt handlers (`PREEMPT_RT`).
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

    /// Returns the name of the model, as used in `preempt=`.
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

/// Error for text that is not the name of a preemption model.
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
