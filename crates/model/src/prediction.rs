//! Figures that a model predicts for other settings, next to measured figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::machine::Machine;
use crate::trial::Unit;

/// Measured and predicted figures for several settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionStatement {
    /// Version of ticktax that wrote the document.
    pub tool_version: String,
    /// File from which the workload was taken: a recording or a scenario.
    pub load: String,
    /// Whether the file in `load` is a recording. Otherwise it is a scenario.
    pub recorded: bool,
    /// Machine on which the recording was made; `None` for a scenario.
    pub machine: Option<Machine>,
    /// Program whose loop and CPU time the figures describe.
    pub program: Option<String>,
    /// Length of each predicted run.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Number of runs per setting. A new random workload is drawn for each run.
    pub runs: u32,
    /// Probability that the figure of one more run would lie within the figure's interval.
    #[serde(rename = "interval_probability")]
    pub coverage: f64,
    /// Seed of the first run.
    pub seed: u64,
    /// Check of the model: its prediction for the settings of the measurement, compared with the
    /// measurement. `None` if no measurement can be compared with it.
    #[serde(default)]
    pub control: Option<Control>,
    /// One arm per setting. If there is a measurement, its arm comes first.
    #[serde(alias = "rows")]
    pub arms: Vec<PredictionArm>,
    /// Inputs of the model that were taken from the file in `load`.
    pub taken: Vec<String>,
    /// Assumptions on which the prediction is based.
    pub assumed: Vec<String>,
    /// Effects that the model ignores.
    pub left_out: Vec<String>,
}

/// The model's prediction for the settings of the measurement, compared with the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Control {
    /// Measured frames per second.
    #[serde(rename = "measured_fps")]
    pub measured: f64,
    /// Predicted frames per second: the median of the model's runs.
    #[serde(rename = "predicted_fps")]
    pub predicted: f64,
    /// Whether measurement and prediction differ by more than [`Control::LIMIT`]. If so, the model
    /// ignores an effect that matters for this workload, and its predictions for other settings are
    /// not reliable.
    pub failed: bool,
}

impl Control {
    /// Largest accepted error of the model, as a share of the measured value.
    pub const LIMIT: f64 = 0.03;

    /// Compares the frame rates of the `measured` and the `predicted` arm. Returns `None` if either
    /// arm has no frame rate.
    pub fn of(measured: &PredictionArm, predicted: &PredictionArm) -> Option<Self> {
        let value = |arm: &PredictionArm| arm.figure(Measure::Fps).map(|figure| figure.value);
        let (measured, predicted) = (value(measured)?, value(predicted)?);
        let mut control = Self {
            measured,
            predicted,
            failed: false,
        };
        control.failed = control.off().abs() > Self::LIMIT;
        Some(control)
    }

    /// Returns the model's error as a share of the measured value. It is positive if the prediction
    /// is too high.
    pub fn off(&self) -> f64 {
        self.predicted / self.measured.max(f64::MIN_POSITIVE) - 1.0
    }
}

/// An arm: the figures for one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionArm {
    /// Whether the figures were measured or predicted.
    pub origin: Origin,
    /// Changed settings, such as `hz=100`; empty for the unchanged settings.
    pub settings: Vec<String>,
    /// Figures for this setting.
    pub figures: Vec<Figure>,
}

impl PredictionArm {
    /// Returns the figure for `measure`; `None` if this arm has none.
    pub fn figure(&self, measure: Measure) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.measure == measure)
    }
}

/// Origin of the figures of an arm. It is always shown with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Figures measured on a machine.
    Measured,
    /// Figures measured in a recording that the model produced.
    Simulated,
    /// Figures predicted by the model.
    Predicted,
}

impl Origin {
    /// Returns the name of the origin.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
            Self::Predicted => "predicted",
        }
    }
}

/// One figure of an arm, such as its frame rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Measure.
    pub measure: Measure,
    /// Value of the figure. If there were several runs, the median of their values.
    pub value: f64,
    /// Range in which the value of one more run is expected; `None` if there was only one run.
    pub interval: Option<(f64, f64)>,
}

/// A quantity that can be measured and predicted.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Frames per second.
    Fps,
    /// Frame periods in which no frame started, per minute.
    #[serde(rename = "dropped_per_minute")]
    Dropped,
    /// Steps of a fixed schedule that no frame reached in time, per minute.
    #[serde(rename = "overshot_per_minute")]
    Overshot,
    /// Median time from a frame's due time to its start, in ns.
    #[serde(rename = "late_median_ns")]
    LateMedian,
    /// 99th percentile of the time from a frame's due time to its start, in ns.
    #[serde(rename = "late_p99_ns")]
    LateP99,
    /// Maximum time from a frame's due time to its start, in ns.
    #[serde(rename = "late_max_ns")]
    LateMax,
    /// The program's CPU time, in cores (s/s).
    #[serde(rename = "cpu_cores")]
    Cpu,
    /// The program's CPU time according to `/proc/PID/stat`, which `top` shows, in cores (s/s).
    #[serde(rename = "top_cores")]
    Top,
    /// The program's CPU time, in cores (s/s), as determined by samples at the tick.
    #[serde(rename = "sampled_cores")]
    Sampled,
    /// Wake-ups per second of the program's thread.
    #[serde(rename = "wakeup_rate_hz")]
    Wakeups,
    /// Share of the time of all CPUs that was not idle, 0 to 1.
    #[serde(rename = "busy_share")]
    Busy,
    /// Share of the time of all CPUs that was not idle according to `/proc/stat`, 0 to 1.
    #[serde(rename = "shown_busy_share")]
    ShownBusy,
    /// Ticks per second, summed over all CPUs.
    #[serde(rename = "tick_rate_hz")]
    Ticks,
    /// Time spent in ticks and in the softirqs that they raise, summed over all CPUs, in cores
    /// (s/s).
    #[serde(rename = "tick_cores")]
    TickCost,
    /// Time spent in ticks and in the softirqs that they raise, as a share of the time of all CPUs,
    /// 0 to 1.
    TickShare,
}

impl Measure {
    /// All measures.
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

    /// Unit of the measure's values.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Fps | Self::Wakeups | Self::Ticks => Unit::Hz,
            Self::Dropped | Self::Overshot => Unit::PerMinute,
            Self::LateMedian | Self::LateP99 | Self::LateMax => Unit::Ns,
            Self::Cpu
            | Self::Top
            | Self::Sampled
            | Self::Busy
            | Self::ShownBusy
            | Self::TickCost
            | Self::TickShare => Unit::Share,
        }
    }
}
