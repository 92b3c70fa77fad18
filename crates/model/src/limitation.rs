//! Limitations: what an observation could not see, as types. `ticktax-report` turns them into text.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hook::Hook;
use crate::policy::PolicyGrant;
use crate::{Cpu, CpuList, Nanos};

mod imported;

pub use imported::ImportLimit;

/// Something that could not be observed, or not the way it was requested. Programs can rely on each
/// variant's `id`, which is the same in all versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Limitation {
    /// Level `kernel` was not available, so the kernel was not traced.
    KernelNotTraced {
        /// Error message of the tracer.
        message: String,
        /// Whether root could have traced the kernel. If so, the user only lacks privileges.
        #[serde(default)]
        needs_root: bool,
    },
    /// A hook (a tracepoint or kernel function that ticktax watches) could not be attached.
    HookMissing {
        /// Hook that could not be attached.
        hook: Hook,
        /// Why it could not be attached.
        reason: HookMissing,
    },
    /// `/proc/kallsyms` shows no addresses, so functions have no names.
    FunctionNamesHidden,
    /// ticktax stopped watching system calls at some point, because tracing such a high rate of
    /// calls would have been expensive.
    SystemCallsUnwatched {
        /// Number of system calls per second on the busiest CPU.
        calls_per_s: u64,
    },
    /// Virtual machines were running, but their exits were not traced from the start.
    GuestsNotTraced {
        /// Number of virtual machines.
        machines: u64,
    },
    /// Virtual machines seemed to run, but ticktax had no right to trace them.
    GuestsNeedRights {
        /// Number of virtual machines.
        machines: u64,
    },
    /// Some vCPUs did not fit into the tracer's table, so their exits are missing.
    VcpusNotCounted {
        /// Number of entries and exits, halts and interrupts of these vCPUs.
        events: u64,
    },
    /// Containers or pods have no name, because the state of their runtime could not be read.
    GroupsUnnamed {
        /// Number of containers and pods without a name.
        groups: u64,
        /// Why the state could not be read.
        reason: GroupsUnnamed,
    },
    /// Processes that ran only during the recording may have no group, because ticktax did not see
    /// processes change cgroups.
    GroupChangesUnseen {
        /// Why ticktax did not see them.
        reason: GroupChangesUnseen,
    },
    /// Processes or threads moved to another group. All of a process's time is charged to its last
    /// group.
    GroupsChanged {
        /// Number of processes that moved.
        processes: u64,
        /// Number of threads that moved without their process.
        threads: u64,
    },
    /// Some settings could not be read.
    SettingsUnread {
        /// Paths of the unreadable files, or of some of them.
        paths: Vec<String>,
        /// Number of unreadable files beyond those in `paths`.
        #[serde(alias = "more")]
        paths_left_out: u64,
        /// Why these files could not be read.
        reason: Unreadable,
    },
    /// CPUs went offline during the recording. Their accounts end with the last event on each CPU.
    CpusWentOffline {
        /// CPUs that went offline.
        cpus: CpuList,
    },
    /// CPUs were plugged in during the recording. Their accounts start with the first context
    /// switch on each CPU.
    CpusPluggedIn {
        /// CPUs that were plugged in.
        cpus: CpuList,
    },
    /// A high-priority thread occupied some CPUs when the recording started. Their accounts start
    /// late, with the first context switch on each CPU.
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
        /// CPUs on which no probe ran.
        cpus: CpuList,
    },
    /// A probe was refused the scheduling policy it requested, so it ran with a different one.
    ProbePolicyRefused {
        /// CPU on which the probe ran.
        cpu: Cpu,
        /// The requested and the granted scheduling policy.
        policy: PolicyGrant,
    },
    /// Events were lost or read late, and the kernel refused to give the reader a real-time
    /// priority.
    PriorityRefused {
        /// The kernel's reason.
        reason: String,
    },
    /// The accounts include time that belongs to the hypervisor or to kernel entry and exit,
    /// because it could not be separated.
    #[serde(alias = "outside-not-separated")]
    HypervisorTimeNotSeparated {
        /// Why no gaps were recorded.
        reason: NoGaps,
    },
    /// Timer interrupts could not be checked for delays, which would have revealed stolen time.
    LateTimersNotSeen {
        /// Why the delays are unknown.
        reason: NoLateTimers,
    },
    /// Only sums of intervals were recorded, so no single program could be followed.
    ProgramNotFollowed,
    /// The tracer did not follow some threads. Their off-CPU time was derived from their run times
    /// and wake-ups.
    WaitsDerived {
        /// Number of threads.
        threads: u64,
    },
    /// Some threads of the watched program were not followed because they did not fit into the
    /// tracer's table.
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
    /// The recording ended early because ticktax came close to the memory limit of its control
    /// group.
    EndedAtMemoryLimit {
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// The flight recorder's ring buffer overwrote part of an incident's history before it could be
    /// saved.
    RingTooShort {
        /// Requested length of the history before the trigger.
        #[serde(rename = "requested_ns", alias = "asked_ns")]
        requested: Nanos,
        /// Length of the history saved from the busiest CPU's ring buffer.
        #[serde(rename = "reached_ns")]
        reached: Nanos,
    },
    /// The recorded window around an incident ended early because its rows reached the flight
    /// recorder's memory limit.
    WindowCutShort {
        /// Requested length of the window.
        #[serde(rename = "requested_ns", alias = "asked_ns")]
        requested: Nanos,
        /// Length of the window that was saved.
        #[serde(rename = "kept_ns")]
        kept: Nanos,
    },
    /// The machine was suspended during the recording.
    Suspended {
        /// Time that the machine was suspended.
        #[serde(rename = "time_ns")]
        time: Nanos,
    },
    /// The time of day was changed during the recording.
    ClockSet {
        /// Size of the change; negative if the clock was set back.
        #[serde(rename = "step_ns", alias = "by_ns")]
        step: Nanos,
    },
    /// The kernel counted interrupts that no tracepoint event reported.
    InterruptsNotTraced {
        /// CPU that handled the interrupts.
        cpu: Cpu,
        /// Name of the interrupt, as in `/proc/interrupts`.
        interrupt: String,
        /// Number of interrupts.
        count: u64,
    },
    /// Some context switches were not reported by a `sched_switch` event.
    SwitchesMissed {
        /// Number of times a thread was found running even though no switch to it had been
        /// reported.
        count: u64,
    },
    /// The scheduler reports that a process ran, but no event mentions it.
    ProcessNotTraced {
        /// Process name.
        name: String,
        /// Process id.
        pid: i32,
        /// CPU time that the process used according to the scheduler.
        #[serde(rename = "ran_ns")]
        ran: Nanos,
    },
    /// The scheduler reports that a process ran longer than its events show.
    #[serde(alias = "process-traced-in-part")]
    ProcessPartlyTraced {
        /// Process name.
        name: String,
        /// Process id.
        pid: i32,
        /// CPU time that the process used according to the scheduler.
        #[serde(rename = "ran_ns")]
        ran: Nanos,
        /// Minimum CPU time missing from the events. The accounts contain it as unexplained time or
        /// as time of the threads that ran before the process.
        #[serde(rename = "missing_ns")]
        missing: Nanos,
    },
    /// The kernel counted more context switches than it reported, and only some of the resulting
    /// gaps were found.
    SwitchesUnreported {
        /// Minimum number of context switches that were not reported.
        count: u64,
    },
    /// Interrupts or softirqs were still in progress when the interrupted thread was switched out.
    /// The rest of their time counts as the thread's.
    #[serde(alias = "frames-cut")]
    InterruptsSwitchedOut {
        /// Number of these interrupts and softirqs.
        count: u64,
    },
    /// Some interrupts or functions have no entry or exit event, or entries were nested too deeply.
    /// The time of these interrupts and functions counts toward the activity around them.
    #[serde(alias = "borders-missed")]
    EntriesMissed {
        /// Number of events.
        count: u64,
    },
    /// The table of stacks had no room for some samples, so the code that they found is unknown.
    StacksLost {
        /// Number of samples.
        samples: u64,
    },
    /// Some samples of user-mode code have no function name.
    FunctionsUnnamed {
        /// Number of samples.
        samples: u64,
        /// Files that the code belongs to, most samples first, or some of them.
        files: Vec<String>,
        /// Number of files beyond those in `files`.
        files_left_out: u64,
        /// Why the functions in these files have no names.
        reason: FunctionsUnnamed,
    },
    /// The table of sums was full, so the sources of some intervals are unknown.
    #[serde(alias = "sources-folded")]
    SourcesMerged {
        /// Number of intervals.
        intervals: u64,
    },
    /// The recording comes from a lab guest whose clock counts instructions.
    InstructionTime {
        /// Time per instruction.
        #[serde(rename = "instruction_ns")]
        instruction: Nanos,
    },
    /// The recording comes from a lab guest that uses the host's clock, which includes the host's
    /// noise.
    HostTime,
    /// A paced process had more context switches than fit into memory, so it was followed only part
    /// of the way.
    FollowingCutShort {
        /// Time at which ticktax stopped following the process.
        #[serde(rename = "after_ns")]
        after: Nanos,
    },
    /// Events of a paced process were lost, so frames may be missing or seem late.
    FrameEventsLost {
        /// Number of lost events.
        events: u64,
    },
    /// Only part of a recording is shown, so counters that cover all of it cannot be used. The
    /// numbers in all other limitations still refer to the entire recording.
    PartOfRecording {
        /// Start of the part, relative to the start of the recording.
        #[serde(rename = "from_ns")]
        from: Nanos,
        /// End of the part, relative to the start of the recording.
        #[serde(rename = "to_ns")]
        to: Nanos,
    },
    /// The contents of some probe gaps are unknown, because the recording lacks the times of the
    /// activities in them.
    GapContentsUnknown {
        /// CPUs on which these gaps occurred.
        cpus: CpuList,
    },
    /// The kernel's CPU-time counters could not be read at both ends of the recording.
    CountersUnread {
        /// CPUs whose counters were not read.
        cpus: CpuList,
    },
    /// Some rows are sums of intervals over a time window. They do not give the times of single
    /// intervals, so periods cannot be found in them. In a recording with such rows, only gaps and
    /// long intervals have times.
    BeatTimesSummed {
        /// Number of rows that sum intervals.
        rows: u64,
    },
    /// Some windows had no room for the times of long intervals, which were therefore summed like
    /// the short ones.
    BeatLongTimesSummed {
        /// Number of windows with summed long intervals, over all sources.
        windows: u64,
        /// Number of sources that were not searched for periods because they had too many windows
        /// with summed long intervals.
        sources: u64,
        /// Maximum number of windows with summed long intervals. A source with more of them is not
        /// searched for periods.
        #[serde(default = "default_max_windows")]
        max_windows: u64,
    },
    /// Only probe gaps were recorded, so the names of periodic sources are unknown.
    BeatSourcesUnnamed,
    /// No source has enough events for a period to be found.
    BeatsTooFewEvents {
        /// Minimum number of events in which a period can be found.
        #[serde(default = "default_min_events")]
        min_events: u64,
    },
    /// The recording is too short to find periods longer than `max_period`.
    BeatPeriodsTooLong {
        /// Longest period that can be found.
        #[serde(rename = "max_period_ns", alias = "over_ns")]
        max_period: Nanos,
    },
    /// Some sources have too few events for a period to be found.
    BeatSourcesQuiet {
        /// Number of sources with too few events.
        sources: u64,
        /// Minimum number of events in which a period can be found.
        min_events: u64,
    },
    /// Some sources did not fit into memory and were not searched for periods.
    BeatSourcesLeftOut {
        /// Number of sources that did not fit into memory.
        sources: u64,
        /// Number of sources that fit into memory.
        max: u64,
    },
    /// Some sources had more events than fit into memory. The excess events were not searched for
    /// periods.
    BeatSourcesCutShort {
        /// Number of sources that had too many events.
        sources: u64,
    },
    /// Some events were lost before they could be searched for periods.
    BeatEventsLost {
        /// CPU that lost the events.
        cpu: Cpu,
        /// Number of lost events.
        events: u64,
    },
    /// For some time, nothing was recorded on a CPU.
    RecordingHoles {
        /// CPU on which nothing was recorded.
        cpu: Cpu,
        /// Minimum total time without any recording.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Number of intervals without a recording.
        holes: u64,
    },
    /// Events of threads that move between CPUs arrived too late to be sorted by time.
    BeatEventsUnordered {
        /// Number of events that arrived too late.
        events: u64,
    },
    /// The recording's file has no checksums, so damage to the file would go unnoticed.
    NotVerified,
    /// The recording was converted from another tool's trace, which lacks something that ticktax
    /// would have recorded.
    Imported {
        /// The thing that the trace lacks.
        limit: ImportLimit,
    },
    /// A limitation without its own variant, as text.
    Other {
        /// The thing that could not be observed.
        #[serde(alias = "what")]
        topic: String,
        /// The reason.
        #[serde(alias = "why")]
        reason: String,
    },
}

/// Returns the default of `min_events` in [`Limitation::BeatsTooFewEvents`], for recordings that
/// lack this field.
fn default_min_events() -> u64 {
    5
}

/// Returns the default of `max_windows` in [`Limitation::BeatLongTimesSummed`], for recordings that
/// lack this field.
fn default_max_windows() -> u64 {
    64
}

/// Why functions in user mode have no names.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionsUnnamed {
    /// The files were stripped of their symbols, and no debug information of the same build is
    /// installed.
    Stripped,
    /// The files have symbols, but not for these functions. Functions in assembly often lack a size.
    NotInTable,
    /// The code was generated by the process, which lists no functions in a perf map.
    NoPerfMap,
    /// The files were deleted, replaced or changed, their processes had exited, or permission to
    /// read them was denied.
    Unreadable,
    /// There was no room for more files, offsets or names, or no time to read the symbols.
    TooMany,
}

/// Why a hook could not be attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HookMissing {
    /// The user excluded the hook.
    #[serde(alias = "on-request")]
    Excluded,
    /// This kernel does not have the tracepoint.
    NoTracepoint,
    /// This kernel does not have this function.
    NoFunction(String),
    /// This kernel does not allow programs to attach to this function.
    FunctionNotPermitted(String),
    /// The kernel refused to load the hook's BPF program and returned this error.
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
                    "this kernel does not allow tracing its function {function}"
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
    /// The setting is in the kernel log, which requires the capability `CAP_SYSLOG` to read.
    NeedsSyslog,
    /// The path is a directory, a device or a pipe.
    NotAFile,
    /// The file exceeds the size limit.
    TooLong {
        /// Number of bytes that were read before the limit was reached.
        read_bytes: u64,
    },
    /// There are more settings than ticktax examines.
    TooManySettings,
    /// There are more open files than ticktax examines.
    TooManyOpenFiles,
    /// The system returned this error.
    Failed(String),
}

/// Why a recording contains no probe gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoGaps {
    /// No probe ran.
    NoProbe,
    /// A soaker, which does not read a clock, ran instead of a probe.
    Soaker,
}

/// Why the delays of timer interrupts are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoLateTimers {
    /// Only sums of intervals were recorded.
    Sums,
    /// No high-resolution timer of the tick was traced.
    NoTick,
}

/// Why ticktax did not see processes change cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum GroupChangesUnseen {
    /// ticktax ran in a cgroup namespace, where the paths of cgroups differ from those in the
    /// tracer's events.
    Namespace,
    /// The kernel did not accept the programs that watch the changes.
    Refused {
        /// The kernel's reason.
        message: String,
    },
    /// There were more changes than fit into memory.
    TooMany {
        /// Number of changes that were not kept.
        changes: u64,
    },
}

/// Why the name of a container or pod is unknown. If there are several reasons, the later variants
/// take precedence.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum GroupsUnnamed {
    /// No known runtime has any state for it.
    NoState,
    /// The state contains no name, or it is not in a known format.
    UnknownFormat,
    /// Permission to read the state was denied.
    Denied,
}
