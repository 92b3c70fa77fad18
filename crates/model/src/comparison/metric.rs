//! The metrics of a comparison, and their units.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statement::Class;

/// A quantity that is known for the arms of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// Name of the metric, such as `time`. For a trial, this is the name on the command line.
    pub id: String,
    /// Unit of the metric's values.
    pub unit: Unit,
    /// Whether lower or higher values are better.
    pub better: Better,
    /// Class of the account that `id` names; `None` if the metric does not belong to an account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Class>,
}

impl Metric {
    /// Returns a metric that does not belong to an account.
    pub fn new(id: &str, unit: Unit, better: Better) -> Self {
        Self {
            id: id.to_owned(),
            unit,
            better,
            account: None,
        }
    }

    /// Returns which of ticktax's measures this metric is; `None` if it is not one of them.
    pub fn measure(&self) -> Option<Measure> {
        let mut measures = Measure::ALL.iter().filter(|_| self.account.is_none());
        measures.find(|measure| measure.id() == self.id).copied()
    }
}

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Seconds, which some other tools use.
    S,
    /// A share, 0 to 1.
    Share,
    /// Events per second.
    Hz,
    /// Events per minute.
    PerMinute,
    /// Number of events.
    Count,
    /// Bits per second.
    Bps,
    /// No unit, or an unknown unit.
    None,
}
/// Whether lower or higher values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower values are better, as for times and losses.
    Lower,
    /// Higher values are better, as for rates.
    Higher,
    /// Unknown.
    Unknown,
}

impl Better {
    /// All directions.
    pub const ALL: [Self; 3] = [Self::Lower, Self::Higher, Self::Unknown];

    /// Returns a description of this direction with examples, for use in help texts.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Lower => "Lower is better, for example times and losses",
            Self::Higher => "Higher is better, for example rates",
            Self::Unknown => "Report differences without judging them",
        }
    }

    /// Returns the name of the direction.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Higher => "higher",
            Self::Unknown => "unknown",
        }
    }
}

/// Declares [`Measure`] from a table of the measures.
macro_rules! measures {
    ($($(#[doc = $about:literal])+ $measure:ident $id:literal $unit:ident $better:ident;)+) => {
        /// A quantity that ticktax itself measures or predicts, as a metric of a comparison.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Measure {
            $($(#[doc = $about])+ $measure,)+
        }

        impl Measure {
            /// All measures.
            pub const ALL: &[Self] = &[$(Self::$measure),+];

            /// Returns the name of the metric.
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$measure => $id,)+
                }
            }

            /// Returns the unit of the measure's values.
            pub const fn unit(self) -> Unit {
                match self {
                    $(Self::$measure => Unit::$unit,)+
                }
            }

            /// Returns the metric.
            pub fn metric(self) -> Metric {
                let better = match self {
                    $(Self::$measure => Better::$better,)+
                };
                Metric::new(self.id(), self.unit(), better)
            }
        }
    };
}

measures! {
    /// Share of the program's runnable time that it spent waiting for a CPU.
    WaitedShare "waited_share" Share Lower;
    /// Time the program's threads waited for a CPU, per second of wall-clock time.
    WaitedPerSecond "waited_cores" Share Lower;
    /// Share of the program's runnable time that it was throttled by its CPU quota.
    ThrottledShare "throttled_share" Share Lower;
    /// Share of the program's runnable time that it was running.
    RanShare "ran_share" Share Higher;
    /// Median wake-up latency.
    LatencyMedian "latency_median_ns" Ns Lower;
    /// 99th percentile of the wake-up latency.
    LatencyP99 "latency_p99_ns" Ns Lower;
    /// Maximum wake-up latency.
    LatencyMax "latency_max_ns" Ns Lower;
    /// Frames per second.
    Fps "fps" Hz Higher;
    /// Frame periods in which no frame started, per minute.
    Dropped "dropped_per_minute" PerMinute Lower;
    /// Frames that started late, per minute.
    LatePerMinute "late_per_minute" PerMinute Lower;
    /// Steps of a fixed schedule that no frame reached in time, per minute.
    Overshot "overshot_per_minute" PerMinute Lower;
    /// Number of expected frames that are missing, either because they were dropped or because the
    /// frames slipped.
    Lost "lost_frames" Count Lower;
    /// Number of frames that started late.
    Late "late_frames" Count Lower;
    /// Mean time from a frame's due time to its start.
    LateMean "late_mean_ns" Ns Lower;
    /// Median time from a frame's due time to its start.
    LateMedian "late_median_ns" Ns Lower;
    /// 90th percentile of the time from a frame's due time to its start.
    LateP90 "late_p90_ns" Ns Lower;
    /// 99th percentile of the time from a frame's due time to its start.
    LateP99 "late_p99_ns" Ns Lower;
    /// Maximum time from a frame's due time to its start.
    LateMax "late_max_ns" Ns Lower;
    /// The program's CPU time, in cores (s/s).
    Cpu "cpu_cores" Share Lower;
    /// The program's CPU time according to `/proc/PID/stat`, which `top` shows, in cores (s/s).
    Top "top_cores" Share Lower;
    /// The program's CPU time, in cores (s/s), estimated from samples at the tick.
    Sampled "sampled_cores" Share Lower;
    /// Wake-ups of the program's thread, per second.
    Wakeups "wakeup_rate_hz" Hz Lower;
    /// Busy share of the time of all CPUs, 0 to 1.
    Busy "busy_share" Share Lower;
    /// Busy share of the time of all CPUs according to `/proc/stat`, 0 to 1.
    ShownBusy "shown_busy_share" Share Lower;
    /// Ticks per second on each CPU.
    TickRate "tick_rate_per_cpu_hz" Hz Unknown;
    /// Median length of a tick.
    TickMedian "tick_median_ns" Ns Lower;
    /// Ticks per second, summed over all CPUs.
    Ticks "tick_rate_hz" Hz Unknown;
    /// Time spent in ticks and the softirqs they raise, summed over all CPUs, in cores (s/s).
    TickCost "tick_cores" Share Lower;
    /// Time spent in ticks and the softirqs they raise, as a share of the time of all CPUs, 0 to 1.
    TickShare "tick_share" Share Lower;
    /// CPU time per payload byte, in ns.
    CpuPerByte "cpu_ns_per_byte" None Lower;
    /// Payload rate.
    Throughput "rate_bps" Bps Higher;
    /// CPU time of the sender's thread per payload byte, in ns.
    SenderPerByte "sender_ns_per_byte" None Lower;
    /// CPU time of the receiver's thread per payload byte, in ns.
    ReceiverPerByte "receiver_ns_per_byte" None Lower;
    /// CPU time of network softirqs per payload byte, in ns; 0 if nothing was traced.
    SoftirqPerByte "softirq_ns_per_byte" None Lower;
    /// Packets sent per payload byte. For TCP, packets are segments.
    PacketsPerByte "packets_per_byte" None Lower;
    /// Acknowledgements per payload byte.
    AcksPerByte "acks_per_byte" None Lower;
    /// System calls per payload byte, summed over both ends.
    CallsPerByte "calls_per_byte" None Lower;
}
