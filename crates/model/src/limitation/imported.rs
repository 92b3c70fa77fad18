//! Limitations of recordings that were converted from another tool's trace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CpuList, Nanos};

/// Something that a trace from another tool lacks, or that had to be inferred from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum ImportLimit {
    /// A trace has neither the machine's settings nor the kernel's counters.
    NoCounters {
        /// Format of the trace, such as `perf.data`.
        format: String,
    },
    /// Some events do not occur in the trace, so the activities that they report are not known.
    EventsNotRecorded {
        /// Names of the events.
        events: Vec<String>,
    },
    /// The trace has no wake-ups, so waits that follow sleep are not known.
    WakeupsNotRecorded,
    /// The trace has `sched_wakeup` events but no `sched_waking` events. A wake-up is then reported
    /// by the CPU that the thread was queued on, which can differ from the CPU of the waker.
    WakersUncertain,
    /// Threads that had gone to sleep ran again without a wake-up event.
    WakeupsMissed {
        /// Number of runs without a wake-up event.
        runs: u64,
    },
    /// The trace lacks some switches from idle time to a thread. Their times were inferred from the
    /// CPU time of the threads.
    SwitchesInferred {
        /// Number of switches.
        switches: u64,
    },
    /// The trace does not show which processes some threads belong to.
    ProcessesUnknown {
        /// Number of threads.
        threads: u64,
    },
    /// The trace contains no names for some threads.
    ThreadsUnnamed {
        /// Number of threads.
        threads: u64,
    },
    /// Some CPUs have no events.
    SilentCpus {
        /// CPUs without events.
        cpus: CpuList,
    },
    /// Some events have earlier timestamps than their predecessors on the same CPU.
    EventsUnordered {
        /// Number of these events.
        events: u64,
        /// Largest difference.
        #[serde(rename = "max_step_ns")]
        max_step: Nanos,
    },
    /// The timestamps are rounded.
    CoarseTimes {
        /// Unit of the timestamps.
        #[serde(rename = "unit_ns")]
        unit: Nanos,
    },
    /// The clock of the trace is not synchronised between CPUs.
    LocalClock {
        /// Name of the clock.
        clock: String,
    },
    /// The trace ends in the middle of an event.
    Truncated {
        /// Number of events before the damage.
        events: u64,
    },
    /// Some events could not be decoded.
    EventsUndecoded {
        /// Number of these events.
        events: u64,
    },
}
