//! What an observer could not see, as types. `ticktax-report` has the words for them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hook::Hook;
use crate::policy::PolicyGrant;
use crate::{Cpu, CpuList, Nanos};

/// Something that could not be seen, or not as asked for. In recordings and JSON its `id` is stable:
/// programs may rely on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Limitation {
    /// The level `kernel` is out of reach.
    KernelNotTraced {
        /// The tracer's error.
        message: String,
        /// Whether root might do it: an ordinary user asked.
        #[serde(default)]
        needs_root: bool,
    },
    /// A hook could not be attached.
    HookMissing {
        /// Which.
        hook: Hook,
        /// Why.
        reason: HookMissing,
    },
    /// `/proc/kallsyms` shows no addresses, so that functions have no names.
    FunctionNamesHidden,
    /// Settings that could not be read.
    SettingsUnread {
        /// Some of their files.
        paths: Vec<String>,
        /// How many more files there are.
        more: u64,
        /// Why.
        reason: Unreadable,
    },
    /// CPUs that were taken offline meanwhile: their books end with the last event seen there.
    CpusWentOffline {
        /// Which.
        cpus: CpuList,
    },
    /// CPUs that were plugged in meanwhile: their books begin with their first context switch.
    CpusPluggedIn {
        /// Which.
        cpus: CpuList,
    },
    /// CPUs whose books begin with their first context switch, because a thread of high priority
    /// held them.
    BooksBeganLate {
        /// Which.
        cpus: CpuList,
    },
    /// CPUs that were not watched, where a followed program may have run.
    CpusNotWatched {
        /// Which.
        cpus: CpuList,
    },
    /// CPUs that the probe may not run on.
    CpusNotProbed {
        /// Which.
        cpus: CpuList,
    },
    /// CPUs that the probe was kept off, because they were full and it would have had a share of them: the kernel
    /// shares CPU time by session first.
    CpusFull {
        /// Which.
        cpus: CpuList,
    },
    /// A probe runs under another scheduling policy than it asked for.
    ProbePolicyRefused {
        /// Where.
        cpu: Cpu,
        /// What it asked for and got.
        policy: PolicyGrant,
    },
    /// Time of the hypervisor, and of entering and leaving the kernel, is in other accounts.
    OutsideNotSeparated {
        /// Why there are no gaps to tell it by.
        reason: NoGaps,
    },
    /// Sums of intervals do not tell what happened to one program.
    ProgramNotFollowed,
    /// Threads of the followed program for which there was no room.
    ThreadsNotFollowed {
        /// How many.
        threads: u64,
    },
    /// The watching was not as long as asked, by more than 20 ms.
    LengthNotKept {
        /// How long it was to be.
        #[serde(rename = "asked_ns")]
        asked: Nanos,
        /// How long it was, on the CPU that was watched longest.
        #[serde(rename = "watched_ns")]
        watched: Nanos,
    },
    /// The flight recorder's ring had been overwritten before what was to be kept.
    RingTooShort {
        /// How much was to be kept before the trigger.
        #[serde(rename = "asked_ns")]
        asked: Nanos,
        /// How far back the ring of the CPU that had the most to record reached.
        #[serde(rename = "reached_ns")]
        reached: Nanos,
    },
    /// A flight recorder's window ended early, because its records took all the memory that it may have.
    WindowCutShort {
        /// How long it was to be.
        #[serde(rename = "asked_ns")]
        asked: Nanos,
        /// How long it was.
        #[serde(rename = "kept_ns")]
        kept: Nanos,
    },
    /// The machine was suspended.
    Suspended {
        /// For how long.
        #[serde(rename = "time_ns")]
        time: Nanos,
    },
    /// The time of day was set.
    ClockSet {
        /// By how much; below zero where it was set back.
        #[serde(rename = "by_ns")]
        by: Nanos,
    },
    /// Interrupts that the kernel counted but no tracepoint shows.
    InterruptsNotTraced {
        /// On which CPU.
        cpu: Cpu,
        /// Which, as `/proc/interrupts` describes them.
        interrupt: String,
        /// How many.
        count: u64,
    },
    /// Context switches without their `sched_switch` event.
    SwitchesMissed {
        /// How many times a thread was found that no switch had put there.
        count: u64,
    },
    /// A process that was on a CPU, by the scheduler's own account, and of which no event told.
    ProcessNotTraced {
        /// Its name.
        name: String,
        /// Its process id.
        pid: i32,
        /// For how long, by the scheduler.
        #[serde(rename = "ran_ns")]
        ran: Nanos,
    },
    /// A process that was on a CPU for longer, by the scheduler's own account, than its events say.
    ProcessTracedInPart {
        /// Its name.
        name: String,
        /// Its process id.
        pid: i32,
        /// For how long, by the scheduler.
        #[serde(rename = "ran_ns")]
        ran: Nanos,
        /// How much of that no event told of, at least: it is unexplained, or in the time of the threads
        /// that it displaced.
        #[serde(rename = "missing_ns")]
        missing: Nanos,
    },
    /// The kernel counted more context switches than it reported, and not all that they left open was
    /// found.
    SwitchesUnreported {
        /// How many more, at least.
        count: u64,
    },
    /// Interrupts or softirqs that were in progress when their thread was switched away from.
    FramesCut {
        /// How many.
        count: u64,
    },
    /// Exits without their entry, or entries nested too deeply.
    BordersMissed {
        /// How many.
        count: u64,
    },
    /// Intervals whose sources found no place in the table of sums.
    SourcesFolded {
        /// How many intervals.
        intervals: u64,
    },
    /// A guest whose time is its number of instructions.
    InstructionTime {
        /// How long an instruction takes.
        #[serde(rename = "instruction_ns")]
        instruction: Nanos,
    },
    /// A guest whose time is the host's.
    HostTime,
    /// A paced process switched more often than there is memory for.
    FollowingCutShort {
        /// How long it was followed.
        #[serde(rename = "after_ns")]
        after: Nanos,
    },
    /// Events of a paced process were lost.
    FrameEventsLost {
        /// How many.
        events: u64,
    },
    /// Only a part of a recording is shown: what was counted over the whole does not tell of it. The numbers of
    /// other limitations beside this one are the whole's.
    PartOfRecording {
        /// Where the part begins, after the begin of the whole.
        #[serde(rename = "from_ns")]
        from: Nanos,
        /// Where it ends.
        #[serde(rename = "to_ns")]
        to: Nanos,
    },
    /// Gaps of the probe whose contents have no place in time.
    GapContentsUnknown {
        /// On which CPUs.
        cpus: CpuList,
    },
    /// The kernel's counters of CPU time were not read at both ends.
    CountersUnread {
        /// Of which CPUs.
        cpus: CpuList,
    },
    /// Rows that sum intervals over windows have no times to find beats in: where sums are kept, only
    /// long intervals and gaps have.
    BeatTimesSummed {
        /// How many rows.
        rows: u64,
    },
    /// Windows in which long intervals were summed too, because there was no room for their times.
    BeatLongTimesSummed {
        /// How many, of all sources together.
        windows: u64,
        /// Sources that it happened to so often that they were not searched.
        sources: u64,
        /// How often it may happen to a source that is searched.
        #[serde(default = "sixty_four")]
        max_windows: u64,
    },
    /// Only gaps were recorded: their beats have no names.
    BeatSourcesUnnamed,
    /// No source has the events that a period needs.
    BeatsTooFewEvents {
        /// How many that are.
        #[serde(default = "five")]
        min_events: u64,
    },
    /// Periods that are too long for the recording.
    BeatPeriodsTooLong {
        /// From here on.
        #[serde(rename = "over_ns")]
        over: Nanos,
    },
    /// Sources with fewer events than a period needs.
    BeatSourcesQuiet {
        /// How many.
        sources: u64,
        /// The events that a period needs.
        min_events: u64,
    },
    /// Sources for which there is no memory.
    BeatSourcesLeftOut {
        /// How many.
        sources: u64,
        /// How many there is memory for.
        max: u64,
    },
    /// Sources with more events than there is memory for.
    BeatSourcesCutShort {
        /// How many.
        sources: u64,
    },
    /// Events that were lost, which beats are found in.
    BeatEventsLost {
        /// On which CPU.
        cpu: Cpu,
        /// How many.
        events: u64,
    },
    /// Times when nothing at all was recorded.
    RecordingHoles {
        /// On which CPU.
        cpu: Cpu,
        /// Their sum, at least.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// How many.
        holes: u64,
    },
    /// Events of threads that move between CPUs which came too late to be put in order.
    BeatEventsUnordered {
        /// How many.
        events: u64,
    },
    /// The recording's file has no checksums, so that a change in it would not be noticed.
    NotVerified,
    /// Anything else.
    Other {
        /// What could not be seen.
        what: String,
        /// Why.
        why: String,
    },
}

/// The events that a period needed where [`Limitation::BeatsTooFewEvents`] does not say.
fn five() -> u64 {
    5
}

/// The most windows where [`Limitation::BeatLongTimesSummed`] does not say.
fn sixty_four() -> u64 {
    64
}

/// Why a hook is not attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HookMissing {
    /// It was asked for.
    OnRequest,
    /// This kernel has no such tracepoint.
    NoTracepoint,
    /// This kernel has no such function.
    NoFunction(String),
    /// This kernel lets no program watch the function.
    FunctionNotPermitted(String),
    /// The kernel's loader gave this error.
    Refused(String),
}

impl fmt::Display for HookMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnRequest => f.write_str("left out on request"),
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
    /// Only root may read it.
    NeedsRoot,
    /// Reading the kernel's log needs a capability.
    NeedsSyslog,
    /// It is a folder, a device or a pipe.
    NotAFile,
    /// It is longer than is read.
    TooLong {
        /// How many bytes were read.
        read_bytes: u64,
    },
    /// There are more settings than are looked at.
    TooManySettings,
    /// There are more open files than are looked at.
    TooManyOpenFiles,
    /// The system gave this error.
    Failed(String),
}

/// Why there are no gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoGaps {
    /// No probe ran.
    NoProbe,
    /// A soaker ran, which reads no clock.
    Soaker,
}
