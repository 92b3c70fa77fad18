//! Typed limitations: what an observer could not see. `ticktax-report` turns them into text.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hook::Hook;
use crate::policy::PolicyGrant;
use crate::{Cpu, CpuList, Nanos};

/// Something that could not be observed, or not in the requested way. The `id` in recordings and
/// JSON is stable, so programs can rely on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Limitation {
    /// Level `kernel` is not available.
    KernelNotTraced {
        /// Error from the tracer.
        message: String,
        /// Whether root could have traced. If so, the user lacks privileges.
        #[serde(default)]
        needs_root: bool,
    },
    /// A hook could not be attached.
    HookMissing {
        /// Hook that could not be attached.
        hook: Hook,
        /// Why it could not be attached.
        reason: HookMissing,
    },
    /// `/proc/kallsyms` shows no addresses, so functions have no names.
    FunctionNamesHidden,
    /// Some settings could not be read.
    SettingsUnread {
        /// Paths of some of these settings.
        paths: Vec<String>,
        /// Number of files not listed in `paths`.
        #[serde(alias = "more")]
        paths_left_out: u64,
        /// Why they could not be read.
        reason: Unreadable,
    },
    /// CPUs went offline during the recording. Their accounts end with their last event.
    CpusWentOffline {
        /// CPUs that went offline.
        cpus: CpuList,
    },
    /// CPUs were plugged in during the recording. Their accounts start at their first context
    /// switch.
    CpusPluggedIn {
        /// CPUs that were plugged in.
        cpus: CpuList,
    },
    /// The accounts of some CPUs start at their first context switch, because a high-priority
    /// thread occupied the CPU.
    #[serde(alias = "books-began-late")]
    AccountsBeganLate {
        /// CPUs whose accounts start late.
        cpus: CpuList,
    },
    /// Some CPUs were not watched, so the watched program may have run there unseen.
    CpusNotWatched {
        /// CPUs that were not watched.
        cpus: CpuList,
    },
    /// The probe is not allowed to run on some CPUs.
    #[serde(alias = "cpus-full")]
    CpusNotProbed {
        /// CPUs without a probe.
        cpus: CpuList,
    },
    /// A probe runs under a different scheduling policy from the one that it requested.
    ProbePolicyRefused {
        /// CPU of the probe.
        cpu: Cpu,
        /// Requested and granted policy.
        policy: PolicyGrant,
    },
    /// Events were lost or read late, and the kernel refused the reader a real-time priority.
    PriorityRefused {
        /// The kernel's reason.
        reason: String,
    },
    /// The accounts include the hypervisor's time and the time of kernel entry and exit, which
    /// could not be separated.
    #[serde(alias = "outside-not-separated")]
    HypervisorTimeNotSeparated {
        /// Why no gaps were recorded, which would show that time separately.
        reason: NoGaps,
    },
    /// Only sums of intervals were recorded, so no single program could be followed.
    ProgramNotFollowed,
    /// Some threads were not followed. Their off-CPU time is derived from their run times and
    /// wake-ups.
    WaitsDerived {
        /// Number of threads.
        threads: u64,
    },
    /// Some threads of the watched program did not fit into the tracer's table.
    ThreadsNotFollowed {
        /// Number of threads.
        threads: u64,
    },
    /// The observation was more than 20 ms shorter or longer than requested.
    #[serde(alias = "length-not-kept")]
    LengthDiffers {
        /// Requested length.
        #[serde(rename = "requested_ns", alias = "asked_ns")]
        requested: Nanos,
        /// Actual length, on the CPU that was watched longest.
        #[serde(rename = "watched_ns")]
        watched: Nanos,
    },
    /// Part of an incident's history was overwritten in the flight recorder's ring buffer before it
    /// could be saved.
    RingTooShort {
        /// Requested length of history before the trigger.
        #[serde(rename = "requested_ns", alias = "asked_ns")]
        requested: Nanos,
        /// Length of history in the busiest CPU's ring buffer.
        #[serde(rename = "reached_ns")]
        reached: Nanos,
    },
    /// An incident's window ended early because its records reached the flight recorder's memory
    /// limit.
    WindowCutShort {
        /// Requested length of the window.
        #[serde(rename = "requested_ns", alias = "asked_ns")]
        requested: Nanos,
        /// Length of the window that was saved.
        #[serde(rename = "kept_ns")]
        kept: Nanos,
    },
    /// The machine was suspended.
    Suspended {
        /// Length of the suspension.
        #[serde(rename = "time_ns")]
        time: Nanos,
    },
    /// The time of day was changed.
    ClockSet {
        /// Size of the step; negative if the clock was set back.
        #[serde(rename = "step_ns", alias = "by_ns")]
        step: Nanos,
    },
    /// The kernel counted interrupts that no tracepoint reports.
    InterruptsNotTraced {
        /// CPU that handled the interrupts.
        cpu: Cpu,
        /// Interrupt, as described in `/proc/interrupts`.
        interrupt: String,
        /// Number of interrupts.
        count: u64,
    },
    /// Context switches occurred without a `sched_switch` event.
    SwitchesMissed {
        /// Number of times that a thread was found running although no switch to it was reported.
        count: u64,
    },
    /// A process ran according to the scheduler, but no event mentions it.
    ProcessNotTraced {
        /// Process name.
        name: String,
        /// Process id.
        pid: i32,
        /// CPU time according to the scheduler.
        #[serde(rename = "ran_ns")]
        ran: Nanos,
    },
    /// A process ran longer according to the scheduler than its events show.
    #[serde(alias = "process-traced-in-part")]
    ProcessPartlyTraced {
        /// Process name.
        name: String,
        /// Process id.
        pid: i32,
        /// CPU time according to the scheduler.
        #[serde(rename = "ran_ns")]
        ran: Nanos,
        /// Minimum CPU time missing from the events. It is either unexplained or charged to the
        /// threads that ran before the process.
        #[serde(rename = "missing_ns")]
        missing: Nanos,
    },
    /// The kernel counted more context switches than it reported. Not all of the resulting gaps
    /// were found.
    SwitchesUnreported {
        /// Minimum number of missing switches.
        count: u64,
    },
    /// Interrupts or softirqs were in progress when their thread was switched out.
    #[serde(alias = "frames-cut")]
    InterruptsSwitchedOut {
        /// Number of interrupts and softirqs.
        count: u64,
    },
    /// Exit events without an entry event, or entries nested too deeply.
    #[serde(alias = "borders-missed")]
    EntriesMissed {
        /// Number of events.
        count: u64,
    },
    /// The table of sums was full, so the sources of some intervals are not known.
    #[serde(alias = "sources-folded")]
    SourcesMerged {
        /// Number of intervals.
        intervals: u64,
    },
    /// The recording comes from a guest whose clock counts instructions.
    InstructionTime {
        /// Time per instruction.
        #[serde(rename = "instruction_ns")]
        instruction: Nanos,
    },
    /// The recording comes from a guest that uses the host's clock.
    HostTime,
    /// A paced process had more context switches than fit into memory.
    FollowingCutShort {
        /// Time after which the process was not followed any more.
        #[serde(rename = "after_ns")]
        after: Nanos,
    },
    /// Events of a paced process were lost.
    FrameEventsLost {
        /// Number of lost events.
        events: u64,
    },
    /// Only part of a recording is shown. Counters of the entire recording do not apply to the
    /// part. The numbers in all other limitations refer to the entire recording.
    PartOfRecording {
        /// Start of the part, relative to the start of the recording.
        #[serde(rename = "from_ns")]
        from: Nanos,
        /// End of the part, relative to the start of the recording.
        #[serde(rename = "to_ns")]
        to: Nanos,
    },
    /// The contents of some probe gaps are unknown: activities inside them have no times.
    GapContentsUnknown {
        /// CPUs on which these gaps occurred.
        cpus: CpuList,
    },
    /// The kernel's CPU-time counters were not read at both the start and the end of the recording.
    CountersUnread {
        /// CPUs whose counters were not read.
        cpus: CpuList,
    },
    /// Rows that sum intervals over windows have no times from which to find a period. If a
    /// recording contains sums, only long intervals and gaps have times.
    BeatTimesSummed {
        /// Number of such rows.
        rows: u64,
    },
    /// In some windows there was no room for the times of long intervals, so these were summed as
    /// well.
    BeatLongTimesSummed {
        /// Number of windows, over all sources.
        windows: u64,
        /// Sources that had too many such windows, so that they were not searched.
        sources: u64,
        /// Maximum number of such windows in a source that is still searched.
        #[serde(default = "default_max_windows")]
        max_windows: u64,
    },
    /// Only gaps were recorded, so the names of periodic sources are unknown.
    BeatSourcesUnnamed,
    /// All sources have too few events to find a period.
    BeatsTooFewEvents {
        /// Number of events needed.
        #[serde(default = "default_min_events")]
        min_events: u64,
    },
    /// The recording is too short to find periods above a limit.
    BeatPeriodsTooLong {
        /// Longest period that can be found.
        #[serde(rename = "max_period_ns", alias = "over_ns")]
        max_period: Nanos,
    },
    /// Some sources have too few events to find a period.
    BeatSourcesQuiet {
        /// Number of sources with too few events.
        sources: u64,
        /// Number of events needed.
        min_events: u64,
    },
    /// Some sources did not fit into memory, so they were not searched.
    BeatSourcesLeftOut {
        /// Number of sources that did not fit.
        sources: u64,
        /// Number of sources that fit.
        max: u64,
    },
    /// Some sources have more events than fit into memory. The rest of their events were not
    /// searched.
    BeatSourcesCutShort {
        /// Number of sources whose events were cut short.
        sources: u64,
    },
    /// Some of the events to be searched for periods were lost.
    BeatEventsLost {
        /// CPU that lost the events.
        cpu: Cpu,
        /// Number of lost events.
        events: u64,
    },
    /// Nothing was recorded during some periods.
    RecordingHoles {
        /// CPU on which nothing was recorded.
        cpu: Cpu,
        /// Minimum total length of the holes.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Number of holes.
        holes: u64,
    },
    /// Events of threads that move between CPUs arrived too late to be sorted in.
    BeatEventsUnordered {
        /// Number of events that arrived too late.
        events: u64,
    },
    /// The recording's file has no checksums, so damage would go unnoticed.
    NotVerified,
    /// Another limitation, as text.
    Other {
        /// Thing that could not be observed.
        #[serde(alias = "what")]
        topic: String,
        /// Reason.
        #[serde(alias = "why")]
        reason: String,
    },
}

/// Default for recordings that have no number for [`Limitation::BeatsTooFewEvents`].
fn default_min_events() -> u64 {
    5
}

/// Default for recordings that have no maximum for [`Limitation::BeatLongTimesSummed`].
fn default_max_windows() -> u64 {
    64
}

/// Why a hook is not attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HookMissing {
    /// The user excluded the hook.
    #[serde(alias = "on-request")]
    Excluded,
    /// This kernel does not have the tracepoint.
    NoTracepoint,
    /// This kernel does not have the function.
    NoFunction(String),
    /// This kernel does not allow attaching to the function.
    FunctionNotPermitted(String),
    /// The kernel refused to load the hook's program and returned this error.
    Refused(String),
}

impl fmt::Display for HookMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Excluded => f.write_str("left out on request"),
            Self::NoTracepoint => f.write_str("this kernel has no such tracepoint"),
            Self::NoFunction(function) => write!(f, "this kernel has no function {function}"),
            Self::FunctionNotPermitted(function) => {
                write!(
                    f,
                    "this kernel lets no program watch its function {function}"
                )
            }
            Self::Refused(message) => f.write_str(message),
        }
    }
}

/// Why a setting could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unreadable {
    /// Only root may read the setting.
    NeedsRoot,
    /// Reading the kernel log requires a capability (`CAP_SYSLOG`).
    NeedsSyslog,
    /// The path is a directory, a device or a pipe.
    NotAFile,
    /// The file exceeds the size limit.
    TooLong {
        /// Number of bytes that were read.
        read_bytes: u64,
    },
    /// There are more settings than ticktax examines.
    TooManySettings,
    /// There are more open files than ticktax examines.
    TooManyOpenFiles,
    /// The system returned this error.
    Failed(String),
}

/// Why a recording has no gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoGaps {
    /// No probe ran.
    NoProbe,
    /// A soaker, which does not read a clock, ran instead of a probe.
    Soaker,
}
