//! Findings: settings that are configured but not in effect, or in effect but not configured, each
//! with a remedy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::knob::KnobProposal;
use crate::statement::Account;
use crate::{Moment, Nanos};

/// A finding: a verdict on the machine's settings that the user can act on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Name of the rule that produced the finding, such as `sysctl-not-in-effect`.
    pub rule: String,
    /// One-line summary.
    pub title: String,
    /// Configured value, and where it is configured.
    pub configured: String,
    /// Value in effect.
    pub effective: String,
    /// How the value in effect was determined.
    pub measured: String,
    /// Degree of certainty.
    pub confidence: Confidence,
    /// Importance.
    pub severity: Severity,
    /// Cost of the problem, if it can be determined.
    pub cost: Option<Cost>,
    /// Recommended action.
    pub remedy: String,
    /// A setting that fixes the problem, or that shows how much a fix would gain; `None` if no
    /// setting can do either at run time.
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
    /// Longest single interval of the lost time; `None` if the recording has no row for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Moment>,
}

impl Cost {
    /// Returns a cost that has only a description, because it could not be measured.
    pub fn unmeasured(what: impl Into<String>) -> Option<Self> {
        Some(Self::new(what, None))
    }

    /// Returns a cost described by `what`, with the CPU time lost if it was measured.
    pub fn new(what: impl Into<String>, time: Option<Nanos>) -> Self {
        Self {
            description: what.into(),
            time,
            longest: None,
        }
    }

    /// Returns a cost described by `what`. The CPU time lost is the time of `account`, or unknown
    /// if `account` is `None`.
    pub fn from_account(what: impl Into<String>, account: Option<&Account>) -> Self {
        Self {
            longest: account.and_then(|account| account.longest),
            ..Self::new(what, account.map(|account| account.time))
        }
    }

    /// Sets the longest single interval of lost time.
    #[must_use]
    pub fn at(mut self, longest: Option<Moment>) -> Self {
        self.longest = longest;
        self
    }
}

/// Certainty that a finding is right.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Other explanations exist.
    Possible,
    /// Other explanations are unlikely.
    Likely,
    /// The configured value and the value in effect were both read from the kernel or measured
    /// beyond doubt.
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
    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}

impl Severity {
    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Serious => "serious",
        }
    }
}
