//! What changed between two recordings, or two statements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beats::BeatLine;
use crate::machine::Machine;
use crate::recording::{Level, World};
use crate::statement::Class;
use crate::{Cpu, Nanos};

/// What changed from a first recording to a second one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeStatement {
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// The first recording.
    pub first: ComparedRecording,
    /// The second one.
    pub second: ComparedRecording,
    /// The probability that any of the changes marked as certain is chance.
    #[serde(rename = "false_alarm_probability")]
    pub family_alarm: f64,
    /// The accounts of either, the largest change first; shares of the time of all CPUs. Processes of
    /// one name are one account.
    pub accounts: Vec<AccountChange>,
    /// What repeats in only one of them, or with another period.
    pub beats: Vec<BeatChange>,
    /// How many beats are in both with the same period.
    pub beats_kept: u64,
    /// The program whose time was asked for, where both have one.
    pub program: Vec<MeasureChange>,
    /// The tick.
    pub tick: Vec<MeasureChange>,
}

/// One of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRecording {
    /// Its file.
    pub file: String,
    /// Which world it is of.
    pub world: World,
    /// How much could be seen.
    pub level: Level,
    /// The machine.
    pub machine: Machine,
    /// Start, as seconds since 1970 on the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// How long it is on the wall.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Its CPUs.
    pub cpus: Vec<Cpu>,
    /// The name of the program whose time was asked for.
    pub program: Option<String>,
    /// The parts of equal length by which intervals were made; `None` for a statement, which has only
    /// sums.
    pub blocks: Option<u64>,
    /// Whether its file has no checksums, so that a change in it would not be noticed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_verified: bool,
}

/// One number in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// In the first; `None` where it was not measured there.
    pub first: Option<f64>,
    /// In the second.
    pub second: Option<f64>,
    /// The lower end of the 95 % interval of second − first.
    pub difference_low: Option<f64>,
    /// The upper end of it.
    pub difference_high: Option<f64>,
    /// Whether it changed by more than chance, all numbers of this comparison together; `None` where
    /// there is no interval.
    pub certain: Option<bool>,
}

impl Change {
    /// Second − first; `None` where one of them is missing.
    pub fn difference(&self) -> Option<f64> {
        Some(self.second? - self.first?)
    }
}

/// An account in both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountChange {
    /// Its class.
    pub class: Class,
    /// Its name.
    pub name: String,
    /// Its share of the time of all CPUs, 0 to 1.
    pub share: Change,
    /// How many intervals a second of the wall.
    pub rate_hz: Change,
}

/// A beat that is in one of them only, or in both with different periods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatChange {
    /// As it was in the first.
    pub first: Option<BeatLine>,
    /// As it is in the second.
    pub second: Option<BeatLine>,
}

/// What is measured of a program or of the tick. The unit is part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeMeasure {
    /// The share of the time that the program wanted for which it waited for a CPU.
    WaitedShare,
    /// The time for which its threads waited for a CPU, per second of the wall.
    WaitedPerSecond,
    /// The share of the time that the program wanted for which its quota held it.
    ThrottledShare,
    /// The share of the time that the program wanted for which it ran.
    RanShare,
    /// The median time from a wake-up until it ran.
    LatencyMedianNs,
    /// What 99 of 100 of these stay below.
    LatencyP99Ns,
    /// The longest of them.
    LatencyMaxNs,
    /// Frames a second of its loop.
    RateFps,
    /// Slots without a frame, per minute.
    DroppedPerMinute,
    /// Frames that began late, per minute.
    LatePerMinute,
    /// Ticks a second on each CPU.
    TickRateHz,
    /// The median length of a tick.
    TickMedianNs,
    /// The share of all CPUs' time that the tick took.
    TickShare,
}

impl ChangeMeasure {
    /// Whether it is a time in ns.
    pub const fn is_time(self) -> bool {
        matches!(
            self,
            Self::LatencyMedianNs | Self::LatencyP99Ns | Self::LatencyMaxNs | Self::TickMedianNs
        )
    }

    /// Whether it is a share, 0 to 1.
    pub const fn is_share(self) -> bool {
        matches!(
            self,
            Self::WaitedShare
                | Self::WaitedPerSecond
                | Self::ThrottledShare
                | Self::RanShare
                | Self::TickShare
        )
    }
}

/// Such a number in both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasureChange {
    /// What is measured.
    pub measure: ChangeMeasure,
    /// What became of it.
    pub change: Change,
}
