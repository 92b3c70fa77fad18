//! Kernel configuration: the tick and the preemption model.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::CpuList;

/// Conditions under which a CPU's tick stops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TickMode {
    /// Never (`CONFIG_HZ_PERIODIC`, `nohz=off`).
    #[default]
    Periodic,
    /// While the CPU idles (`CONFIG_NO_HZ_IDLE`).
    NohzIdle,
    /// While the CPU idles and, on some CPUs, while only one task is runnable (`nohz_full=`).
    NohzFull {
        /// CPUs whose tick also stops while they are busy.
        cpus: CpuList,
    },
}

impl TickMode {
    /// Names of the modes, as typed and printed.
    pub const WORDS: [&str; 3] = ["periodic", "nohz-idle", "nohz-full"];

    /// `nohz-full` on `count` CPUs, limited to the 8192 CPUs that a list can hold.
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

/// The name, followed by the CPUs for `nohz-full`.
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
    /// Conditions under which the tick stops.
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
pub enum Known {
    /// The running kernel reports the fact, through the resolution of its clocks or its version
    /// string.
    Running,
    /// The functions in the kernel's type information (BTF) imply the fact.
    Functions,
    /// The kernel's behaviour in a self-test shows the fact.
    SelfTest {
        /// Number of ticks in the self-test.
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

/// Points at which a kernel allows preemption (`preempt=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preemption {
    /// Only in user mode (`PREEMPT_NONE`).
    None,
    /// Also at points that the kernel's code marks (`PREEMPT_VOLUNTARY`).
    Voluntary,
    /// Anywhere except in sections that forbid it (`PREEMPT`).
    Full,
    /// As in full preemption for real-time threads, but only at the next tick for others
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

/// A word that is not a preemption model.
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
