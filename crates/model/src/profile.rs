//! A profile: accounts of CPU time, divided among the code in which samples found them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::statement::Class;

/// Default number of samples per second and CPU. Usual tick rates are not multiples of it, so
/// that the samples don't keep finding the work of the same timers.
pub const DEFAULT_HZ: u32 = 99;

/// Maximum number of samples per second and CPU.
pub const MAX_HZ: u32 = 10_000;

/// Stack of the time in an account that has no samples.
pub const NOT_SAMPLED: &str = "[not sampled]";

/// Stack of samples whose code is unknown.
pub const UNKNOWN: &str = "[unknown]";

/// Accounts of CPU time, divided among the code in which samples found them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// The time that is divided.
    pub scope: ProfileScope,
    /// Number of samples per second and CPU.
    pub rate_hz: u32,
    /// Number of samples in all accounts.
    pub samples: u64,
    /// Sum of all accounts.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// The accounts, largest first.
    pub accounts: Vec<ProfiledAccount>,
}

/// The time that a profile divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProfileScope {
    /// The time of all recorded CPUs.
    Machine,
    /// The time during which the analysed program ran.
    Program,
    /// The time that the analysed program waited for a CPU. Its accounts are what ran during that
    /// time.
    Waits,
}

impl ProfileScope {
    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Program => "program",
            Self::Waits => "waits",
        }
    }
}

/// An account and the code in which samples found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfiledAccount {
    /// Class.
    pub class: Class,
    /// Name of the activity, as users know it.
    pub name: String,
    /// Process id, if the account is a program.
    pub pid: Option<i32>,
    /// Time in this account.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of samples.
    pub samples: u64,
    /// The code, largest time first. The times add up to the account's time exactly.
    pub stacks: Vec<ProfiledStack>,
}

/// Code in which samples found an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfiledStack {
    /// Functions, outermost first, separated by semicolons, with `_[k]` after each kernel function.
    /// It is empty for time that has no further division.
    pub stack: String,
    /// The account's time, in proportion to the samples.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of samples.
    pub samples: u64,
}
