//! How a kernel is configured: its tick and its preemption model.

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
    /// While the CPU idles (`CONFIG_NO_HZ_IDLE`).
    NohzIdle,
    /// While the CPU idles; on some also while they have a single task (`nohz_full=`).
    NohzFull {
        /// The CPUs whose tick also stops while they are busy.
        cpus: CpuList,
    },
}

impl TickMode {
    /// The words for the modes, as they are typed and printed.
    pub const WORDS: [&str; 3] = ["periodic", "nohz-idle", "nohz-full"];

    /// `nohz-full` on all of `count` CPUs, of which a list holds 8192 at most.
    pub fn nohz_full(count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self::NohzFull {
            cpus: CpuList::first(count.min(CpuList::MAX_CPU + 1)),
        }
    }

    /// The word for the mode, without its CPUs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Periodic => Self::WORDS[0],
            Self::NohzIdle => Self::WORDS[1],
            Self::NohzFull { .. } => Self::WORDS[2],
        }
    }
}

/// The word for it, and the CPUs of `nohz-full`.
impl fmt::Display for TickMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Self::NohzFull { cpus } => write!(f, " {cpus}"),
            Self::Periodic | Self::NohzIdle => Ok(()),
        }
    }
}

/// A fact about a kernel that can be known in more than one way.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum MachineFact {
    /// How often it ticks.
    TickRate,
    /// When the tick stops.
    TickMode,
    /// Whether timers end between ticks.
    HighResolution,
    /// How CPU time is counted.
    Accounting,
    /// The preemption model.
    Preemption,
}

/// How a fact about a kernel is known, where not from its build configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Known {
    /// The running kernel says so: by the resolution of its clocks, or in its version.
    Running,
    /// By the functions that it has, as its type information (BTF) lists them.
    Functions,
    /// By what it did in a self-test.
    SelfTest {
        /// Over so many ticks.
        ticks: u32,
    },
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("the running kernel says"),
            Self::Functions => f.write_str("by its functions"),
            Self::SelfTest { ticks } => write!(f, "by a self-test over {ticks} ticks"),
        }
    }
}

/// Where a kernel lets one thread take the CPU from another (`preempt=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preemption {
    /// In user mode alone (`PREEMPT_NONE`).
    None,
    /// And where the kernel's code offers it (`PREEMPT_VOLUNTARY`).
    Voluntary,
    /// Anywhere but in sections that forbid it (`PREEMPT`).
    Full,
    /// As full for real-time threads; others at the next tick (`PREEMPT_LAZY`).
    Lazy,
    /// Nearly everywhere, interrupt handlers included (`PREEMPT_RT`).
    Rt,
}

impl Preemption {
    /// Every model.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Voluntary,
        Self::Full,
        Self::Lazy,
        Self::Rt,
    ];

    /// The word for it, as in `preempt=`.
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

/// Why a word is not a preemption model.
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
    fn a_tick_mode_reads_back() {
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
    fn preemption_models_read_back() {
        for model in Preemption::ALL {
            assert_eq!(model.name().parse(), Ok(model));
            let json = serde_json::to_string(&model).unwrap();
            assert_eq!(json, format!("\"{model}\""));
        }
        assert!("maybe".parse::<Preemption>().is_err());
    }
}
