//! Findings: settings that are configured but not in effect, or in effect but not configured, with
//! advice on what to do about them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::knob::KnobProposal;
use crate::statement::Account;
use crate::{Moment, Nanos};

/// A verdict that the user can act on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Rule that produced the finding, such as `sysctl-not-in-effect`.
    pub rule: String,
    /// One-line summary.
    pub title: String,
    /// The configured value, and where it is configured.
    pub configured: String,
    /// The value in effect.
    pub effective: String,
    /// How the value in effect was determined.
    pub measured: String,
    /// Degree of certainty.
    pub confidence: Confidence,
    /// Importance.
    pub severity: Severity,
    /// Cost, if it can be determined.
    pub cost: Option<Cost>,
    /// Recommended action.
    pub remedy: String,
    /// A setting that fixes the problem or shows what a fix would gain; `None` if no run-time
    /// setting does either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<KnobProposal>,
}

/// The cost of a problem that a finding describes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// Description.
    #[serde(alias = "what")]
    pub description: String,
    /// CPU time lost during the recording, if it was measured.
    #[serde(rename = "time_ns")]
    pub time: Option<Nanos>,
    /// Longest interval that contributes to the cost, if the recording has a row for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Moment>,
}

impl Cost {
    /// A cost with a description but no measurement.
    pub fn unmeasured(what: impl Into<String>) -> Option<Self> {
        Some(Self::new(what, None))
    }

    /// A cost in CPU time, if it was measured.
    pub fn new(what: impl Into<String>, time: Option<Nanos>) -> Self {
        Self {
            description: what.into(),
            time,
            longest: None,
        }
    }

    /// A cost equal to the CPU time of `account`, if there is one.
    pub fn from_account(what: impl Into<String>, account: Option<&Account>) -> Self {
        Self {
            longest: account.and_then(|account| account.longest),
            ..Self::new(what, account.map(|account| account.time))
        }
    }

    /// Sets the longest interval.
    #[must_use]
    pub fn at(mut self, longest: Option<Moment>) -> Self {
        self.longest = longest;
        self
    }
}

/// How certain a finding is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Other explanations exist.
    Possible,
    /// Other explanations are unlikely.
    Likely,
    /// Both values were read from the kernel or measured beyond doubt.
    Certain,
}

/// Importance of a finding. Pages list the most severe first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Information only.
    Note,
    /// A requested setting or service is not in effect.
    Warning,
    /// The problem costs time or loses data now.
    Serious,
}

impl Confidence {
    /// Name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}

impl Severity {
    /// Name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Serious => "serious",
        }
    }
}
