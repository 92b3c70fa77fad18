//! The pages about comparisons. Each kind of experiment has its own facts and wording, but all of
//! them show arms and effects in the same tables.

mod arms;
mod checks;
mod distributions;
mod effects;
mod kernels;
mod loops;
mod numbers;
mod prediction;
mod recordings;
mod sweep;
mod traffic;
mod trial;

use ticktax_model::comparison::{
    Arm, ArmEffect, Comparison, Experiment, Measure, Metric, Setting, Verdict,
};

use super::block::Written;
use super::page::clean;
use super::{Paged, TextStyle};

impl Paged for Comparison {
    fn page(&self, style: &TextStyle) -> Written {
        match &self.experiment {
            Experiment::Trial(record) => trial::page(self, record, style),
            Experiment::Numbers { .. } => numbers::page(self, style),
            Experiment::Distributions(record) => distributions::page(self, record, style),
            Experiment::Recordings(record) => recordings::page(self, record, style),
            Experiment::Prediction(record) => prediction::page(self, record, style),
            Experiment::Sweep(record) => sweep::page(self, record, style),
            Experiment::Kernels(record) => kernels::page(self, record, style),
            Experiment::Loops(record) => loops::page(self, record, style),
            Experiment::Traffic(record) => traffic::page(self, record, style),
        }
    }
}

/// Returns the name of an effect in a plot.
pub(crate) fn effect_title(comparison: &Comparison, effect: &ArmEffect) -> String {
    let metric = comparison.metrics.get(effect.metric);
    let metric = metric.map_or("", |metric| metric_title(metric));
    match (&comparison.experiment, comparison.arms.get(effect.arm)) {
        (Experiment::Trial(_), Some(arm)) => format!("{}: {metric}", arm.label),
        (Experiment::Traffic(record), _) => {
            format!("{}: {metric}", traffic::effect_name(record, &effect.terms))
        }
        _ => metric.to_owned(),
    }
}

/// Returns the word that a table shows for a verdict.
pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Differs => "differs",
        Verdict::NoDifferenceBeyond { .. } => "equal",
        Verdict::CannotTell { .. } => "unclear",
    }
}

/// Returns the title of a metric in a plot.
pub(crate) fn metric_title(metric: &Metric) -> &str {
    let Some(measure) = metric.measure() else {
        return &metric.id;
    };
    match measure {
        Measure::WaitedShare => "waited (% of CPU time needed)",
        Measure::WaitedPerSecond => "waited, per second",
        Measure::ThrottledShare => "throttled (% of CPU time needed)",
        Measure::RanShare => "ran (% of CPU time needed)",
        Measure::LatencyMedian => "wake-up latency, median",
        Measure::LatencyP99 => "wake-up latency, p99",
        Measure::LatencyMax => "wake-up latency, max",
        Measure::Fps => "frame rate",
        Measure::Dropped => "dropped frames",
        Measure::Overshot => "slots without a frame in time",
        Measure::Lost => "lost frames",
        Measure::Late | Measure::LatePerMinute => "late frames",
        Measure::LateMean => "start delay, mean",
        Measure::LateMedian => "start delay, median",
        Measure::LateP90 => "start delay, p90",
        Measure::LateP99 => "start delay, p99",
        Measure::LateMax => "start delay, max",
        Measure::Cpu => "CPU time of the program (% of one CPU)",
        Measure::Top => "CPU time of the program in top (% of one CPU)",
        Measure::Sampled => "CPU time of the program by sampling (% of one CPU)",
        Measure::Wakeups => "wake-ups of the thread",
        Measure::Busy => "busy time (% of all CPUs)",
        Measure::ShownBusy => "busy time in top (% of all CPUs)",
        Measure::TickRate => "ticks per CPU",
        Measure::TickMedian => "time per tick, median",
        Measure::Ticks => "ticks on all CPUs",
        Measure::TickCost => "tick time (% of one CPU)",
        Measure::TickShare => "tick time (% of all CPUs)",
        Measure::CpuPerByte => "CPU time per byte (ns)",
        Measure::Throughput => "throughput",
        Measure::SenderPerByte => "CPU time of the sender per byte (ns)",
        Measure::ReceiverPerByte => "CPU time of the receiver per byte (ns)",
        Measure::SoftirqPerByte => "CPU time of softirqs per byte (ns)",
        Measure::PacketsPerByte => "packets per byte",
        Measure::AcksPerByte => "acknowledgements per byte",
        Measure::CallsPerByte => "system calls per byte",
    }
}

/// Returns the name of an arm on the page of its comparison.
pub(crate) fn arm_name(comparison: &Comparison, arm: &Arm) -> String {
    let label = clean(&arm.label);
    match &comparison.experiment {
        Experiment::Trial(_) | Experiment::Recordings(_) => label,
        Experiment::Numbers { .. } | Experiment::Distributions(_) => {
            let file = values(arm, &["file"]);
            let name = values(arm, &["name"]);
            let colon = if name.is_empty() { "" } else { ": " };
            format!("{label} {file}{colon}{name}")
        }
        Experiment::Sweep(_) => format!("{label} {}", settings(arm, " ")),
        Experiment::Traffic(_) => {
            let values = arm.settings.iter().map(|setting| clean(&setting.value));
            format!("{label} {}", values.collect::<Vec<_>>().join(" "))
        }
        Experiment::Loops(_) => {
            let rest = values(arm, &["work", "sleep", "rule"]);
            format!("{}/s {rest}", values(arm, &["rate"]))
        }
        Experiment::Kernels(_) => {
            let names = ["kernel", "cmdline", "sleep", "rule"];
            format!("{} {}", arm.origin.name(), values(arm, &names))
        }
        Experiment::Prediction(_) => format!("{} {}", arm.origin.name(), settings(arm, " ")),
    }
}

/// Returns the non-empty values of an arm's settings that have these names.
fn values(arm: &Arm, names: &[&str]) -> String {
    let values = names.iter().filter_map(|name| arm.setting(name));
    let values = values.filter(|value| !value.is_empty()).map(clean);
    values.collect::<Vec<_>>().join(" ")
}

/// Formats an arm's settings, with `separator` between them.
fn settings(arm: &Arm, separator: &str) -> String {
    if arm.settings.is_empty() {
        return "unchanged".to_owned();
    }
    let settings: Vec<String> = arm.settings.iter().map(setting).collect();
    settings.join(separator)
}

fn setting(setting: &Setting) -> String {
    let target = match &*setting.target {
        "" | "the machine" => String::new(),
        target => format!(" ({})", clean(target)),
    };
    if setting.name == Setting::COMMAND {
        return clean(&setting.value);
    }
    format!("{}={}{target}", clean(&setting.name), clean(&setting.value))
}

/// Joins names, as in `a, b and c`.
fn listed(names: &[String]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        names => names.concat(),
    }
}
