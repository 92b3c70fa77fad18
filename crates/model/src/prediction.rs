//! What a model predicts under other settings, beside what was measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::machine::Machine;

/// What was measured, and what is predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionStatement {
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// The file that the work was taken from.
    pub load: String,
    /// Whether that is a recording; otherwise it is a scenario.
    pub recorded: bool,
    /// The machine of the recording.
    pub machine: Option<Machine>,
    /// The program that the figures are about.
    pub program: Option<String>,
    /// How long each predicted run is.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// How many runs there are of each setting, each with the work drawn again.
    pub runs: u32,
    /// The probability with which one more such run lies within an interval.
    #[serde(rename = "interval_probability")]
    pub coverage: f64,
    /// The first seed.
    pub seed: u64,
    /// Whether the model gives what was measured where nothing is changed; `None` where nothing was
    /// measured that it could be held against.
    #[serde(default)]
    pub control: Option<Control>,
    /// A row a setting; what was measured comes first.
    pub rows: Vec<PredictionRow>,
    /// What was taken from the file.
    pub taken: Vec<String>,
    /// What was assumed.
    pub assumed: Vec<String>,
    /// What the model leaves out.
    pub left_out: Vec<String>,
}

/// What the model gives for the machine as it was, beside what was measured there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Control {
    /// Frames a second that were measured.
    #[serde(rename = "measured_fps")]
    pub measured: f64,
    /// What the model gives, the median of its runs.
    #[serde(rename = "predicted_fps")]
    pub predicted: f64,
    /// Whether the two differ by more than [`Control::LIMIT`]: then the model leaves out something that
    /// matters here, and what it says of other settings is worth little.
    pub failed: bool,
}

impl Control {
    /// By how much the model may be off, as a share of what was measured.
    pub const LIMIT: f64 = 0.03;

    /// The control of a model that gives the row `predicted` where `measured` was measured; `None`
    /// where either has no frames.
    pub fn of(measured: &PredictionRow, predicted: &PredictionRow) -> Option<Self> {
        let value = |row: &PredictionRow| row.figure(Measure::Fps).map(|figure| figure.value);
        let (measured, predicted) = (value(measured)?, value(predicted)?);
        let mut control = Self {
            measured,
            predicted,
            failed: false,
        };
        control.failed = control.off().abs() > Self::LIMIT;
        Some(control)
    }

    /// By how much the model is off, as a share of what was measured.
    pub fn off(&self) -> f64 {
        self.predicted / self.measured.max(f64::MIN_POSITIVE) - 1.0
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionRow {
    /// Whether it was measured or predicted.
    pub origin: Origin,
    /// What was set, such as `hz=100`; nothing for the settings of the file itself.
    pub settings: Vec<String>,
    /// What is known of it.
    pub figures: Vec<Figure>,
}

impl PredictionRow {
    /// What it says of `measure`.
    pub fn figure(&self, measure: Measure) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.measure == measure)
    }
}

/// Where numbers are from. They are never shown without saying so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A machine was watched.
    Measured,
    /// The recording is of the model's own making.
    Simulated,
    /// A model ran.
    Predicted,
}

impl Origin {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
            Self::Predicted => "predicted",
        }
    }
}

/// A number of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Of what.
    pub measure: Measure,
    /// The value; of several runs, the median.
    pub value: f64,
    /// The least and the most that one more run is to be expected between; `None` where there was
    /// one run.
    pub interval: Option<(f64, f64)>,
}

/// What is measured and predicted.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Frames a second.
    Fps,
    /// Slots without a frame, a minute.
    #[serde(rename = "dropped_per_minute")]
    Dropped,
    /// Steps of a fixed schedule that no frame was in time for, a minute.
    #[serde(rename = "overshot_per_minute")]
    Overshot,
    /// From when a frame was due to its begin, the median, ns.
    #[serde(rename = "late_median_ns")]
    LateMedian,
    /// The same, the time that 99 of 100 stay below, ns.
    #[serde(rename = "late_p99_ns")]
    LateP99,
    /// The same, the longest, ns.
    #[serde(rename = "late_max_ns")]
    LateMax,
    /// CPU time of the program, in cores (s/s).
    #[serde(rename = "cpu_cores")]
    Cpu,
    /// The same as `/proc/PID/stat` has it, which `top` shows, in cores (s/s).
    #[serde(rename = "top_cores")]
    Top,
    /// The same as samples at the tick make it, in cores (s/s).
    #[serde(rename = "sampled_cores")]
    Sampled,
    /// Wakeups of the program's thread, a second.
    #[serde(rename = "wakeup_rate_hz")]
    Wakeups,
    /// The share of all CPUs' time that was not idle, 0 to 1.
    #[serde(rename = "busy_share")]
    Busy,
    /// The same as `/proc/stat` has it, 0 to 1.
    #[serde(rename = "shown_busy_share")]
    ShownBusy,
    /// Ticks a second, on all CPUs.
    #[serde(rename = "tick_rate_hz")]
    Ticks,
    /// Time in ticks and in the softirqs that they raise, in cores (s/s), on all CPUs.
    #[serde(rename = "tick_cores")]
    TickCost,
    /// The same as a share of all CPUs' time, 0 to 1.
    TickShare,
}

impl Measure {
    /// Every measure.
    pub const ALL: [Self; 15] = [
        Self::Fps,
        Self::Dropped,
        Self::Overshot,
        Self::LateMedian,
        Self::LateP99,
        Self::LateMax,
        Self::Cpu,
        Self::Top,
        Self::Sampled,
        Self::Wakeups,
        Self::Busy,
        Self::ShownBusy,
        Self::Ticks,
        Self::TickCost,
        Self::TickShare,
    ];
}
