//! Differences between two recordings or two statements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beats::BeatLine;
use crate::machine::Machine;
use crate::recording::{Level, World};
use crate::statement::Class;
use crate::trial::{Contrast, Unit};
use crate::{Cpu, Nanos};

/// The changes between a first recording and a second one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeStatement {
    /// Version of ticktax that wrote the document.
    pub tool_version: String,
    /// First recording.
    pub first: ComparedRecording,
    /// Second recording.
    pub second: ComparedRecording,
    /// Upper limit on the probability that at least one change marked as certain is due to chance.
    #[serde(rename = "false_alarm_probability")]
    pub family_alarm: f64,
    /// Changes in the accounts that occur in at least one of the recordings, largest change first.
    /// Each value is a share of the time of all CPUs. Processes with the same name share one
    /// account.
    pub accounts: Vec<AccountChange>,
    /// Periodic sources that occur in only one of the recordings, or whose period changed.
    pub beats: Vec<BeatChange>,
    /// Number of periodic sources that have the same period in both recordings.
    pub beats_kept: u64,
    /// Changes in the measures of the analysed program. Empty unless both recordings have such a
    /// program.
    pub program: Vec<MeasureChange>,
    /// Changes in the measures of the timer tick.
    pub tick: Vec<MeasureChange>,
}

/// One of the compared recordings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRecording {
    /// File.
    pub file: String,
    /// Whether the recording comes from a real machine, a virtual lab or the simulator.
    pub world: World,
    /// Capability level, which limits what could be observed.
    pub level: Level,
    /// Machine.
    pub machine: Machine,
    /// Wall-clock start time, in seconds since 1970.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Length of the recording in wall-clock time.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// CPUs.
    pub cpus: Vec<Cpu>,
    /// Name of the analysed program.
    pub program: Option<String>,
    /// Number of equal parts into which the recording was divided to compute confidence intervals;
    /// `None` for a statement, because it contains only sums.
    pub blocks: Option<u64>,
    /// Whether the recording's file lacks checksums, so that damage would go unnoticed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_verified: bool,
}

/// The values of one number in both recordings, with their difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Value in the first recording; `None` if it was not measured there.
    pub first: Option<f64>,
    /// Value in the second recording; `None` if it was not measured there.
    pub second: Option<f64>,
    /// Difference between the recordings (second minus first), with its confidence interval and the
    /// conclusion. The interval is missing unless the value was measured in several parts of both
    /// recordings.
    #[serde(flatten)]
    pub contrast: Contrast,
}

impl Change {
    /// Returns the second value minus the first; `None` if either value is missing.
    pub fn difference(&self) -> Option<f64> {
        Some(self.second? - self.first?)
    }
}

/// The change of one account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountChange {
    /// Class of the account.
    pub class: Class,
    /// Name of the account.
    pub name: String,
    /// Share of the time of all CPUs that belongs to this account, 0 to 1.
    pub share: Change,
    /// Number of the account's intervals per second of wall-clock time.
    pub rate_hz: Change,
}

/// A periodic source that occurs in only one of the recordings, or whose period changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatChange {
    /// The source in the first recording; `None` if it does not occur there.
    pub first: Option<BeatLine>,
    /// The source in the second recording; `None` if it does not occur there.
    pub second: Option<BeatLine>,
}

/// A measure of a program or of the tick. Its name includes the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeMeasure {
    /// Share of the program's runnable time that it spent waiting for a CPU.
    WaitedShare,
    /// Time that the program's threads waited for a CPU, per second of wall-clock time.
    WaitedPerSecond,
    /// Share of the program's runnable time in which its CPU quota throttled it.
    ThrottledShare,
    /// Share of the program's runnable time in which it was running.
    RanShare,
    /// Median wake-up latency.
    LatencyMedianNs,
    /// 99th percentile of the wake-up latency.
    LatencyP99Ns,
    /// Maximum wake-up latency.
    LatencyMaxNs,
    /// Frame rate of the program's loop, in frames per second.
    RateFps,
    /// Frame periods in which no frame started, per minute.
    DroppedPerMinute,
    /// Frames that started late, per minute.
    LatePerMinute,
    /// Ticks per second on each CPU.
    TickRateHz,
    /// Median length of a tick.
    TickMedianNs,
    /// Share of the time of all CPUs that the tick used.
    TickShare,
}

impl ChangeMeasure {
    /// Unit of the measure's values.
    pub const fn unit(self) -> Unit {
        match self {
            Self::WaitedShare
            | Self::WaitedPerSecond
            | Self::ThrottledShare
            | Self::RanShare
            | Self::TickShare => Unit::Share,
            Self::LatencyMedianNs
            | Self::LatencyP99Ns
            | Self::LatencyMaxNs
            | Self::TickMedianNs => Unit::Ns,
            Self::RateFps | Self::TickRateHz => Unit::Hz,
            Self::DroppedPerMinute | Self::LatePerMinute => Unit::PerMinute,
        }
    }
}

/// The change in one measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasureChange {
    /// Measure.
    pub measure: ChangeMeasure,
    /// Change.
    pub change: Change,
}
