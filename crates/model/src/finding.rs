//! Findings: what is configured and not in effect, or the other way round, with what to do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::knob::KnobProposal;
use crate::statement::Account;
use crate::{Moment, Nanos};

/// A verdict that a person can act on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The rule that found it, such as `sysctl-not-in-effect`.
    pub rule: String,
    /// One line.
    pub title: String,
    /// What is configured, and where.
    pub configured: String,
    /// What is in effect.
    pub effective: String,
    /// How that was measured.
    pub measured: String,
    /// How sure it is.
    pub confidence: Confidence,
    /// How much it matters.
    pub severity: Severity,
    /// What it costs, where that can be told.
    pub cost: Option<Cost>,
    /// What to do.
    pub remedy: String,
    /// A setting that does it, or shows what it is worth; `None` where none does while the machine runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<KnobProposal>,
}

/// What a finding costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// In words.
    pub what: String,
    /// CPU time that it took during the recording, where it was measured.
    #[serde(rename = "time_ns")]
    pub time: Option<Nanos>,
    /// The longest interval of it that has a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Moment>,
}

impl Cost {
    /// A cost that was not measured.
    pub fn said(what: impl Into<String>) -> Option<Self> {
        Some(Self::of(what, None))
    }

    /// A cost of so much CPU time, where it was measured.
    pub fn of(what: impl Into<String>, time: Option<Nanos>) -> Self {
        Self {
            what: what.into(),
            time,
            longest: None,
        }
    }

    /// A cost that is all of an account, where that has any.
    pub fn of_account(what: impl Into<String>, account: Option<&Account>) -> Self {
        Self {
            longest: account.and_then(|account| account.longest),
            ..Self::of(what, account.map(|account| account.time))
        }
    }

    /// The same cost, of which this is the longest interval.
    #[must_use]
    pub fn at(mut self, longest: Option<Moment>) -> Self {
        self.longest = longest;
        self
    }
}

/// How sure a finding is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Other explanations exist.
    Possible,
    /// Other explanations are far-fetched.
    Likely,
    /// Both sides were read from the kernel, or measured beyond doubt.
    Certain,
}

/// How much a finding matters; a page lists the worst first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Note,
    /// Something that was asked for does not happen.
    Warning,
    /// It costs time, or data, now.
    Serious,
}

impl Confidence {
    /// The word for it, as files write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}

impl Severity {
    /// The word for it, as files write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Serious => "serious",
        }
    }
}
