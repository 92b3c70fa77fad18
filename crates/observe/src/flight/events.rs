//! The plan, the events and the status of a flight recorder.

use ticktax_model::incident::{TriggerSpec, TriggerTarget};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::pace::{FrameRhythm, NoRhythm};
use ticktax_model::recording::{Header, Row};
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_probes::PolicyGrant;
use ticktax_probes::gaps::GapProbe;
use ticktax_trace::FrozenRows;

/// Plan for a flight recorder: the CPUs, triggers, windows and memory limits.
#[derive(Clone, Debug, PartialEq)]
pub struct RecorderPlan {
    /// CPUs to watch. `None` means all CPUs that are online now or are plugged in later.
    pub cpus: Option<CpuList>,
    /// Triggers that make the recorder keep a window.
    /// [`Signal`](ticktax_model::incident::TriggerKind::Signal) has no effect in this list. For
    /// that kind, call [`Recorder::trigger`](super::Recorder::trigger) instead.
    pub triggers: Vec<TriggerSpec>,
    /// Time to keep before the start of the delay that fired the trigger.
    pub before: Nanos,
    /// Time to keep after the last trigger.
    pub after: Nanos,
    /// Maximum length of a window. A trigger after the end of a window opens the next one.
    pub longest: Nanos,
    /// Interval at which sums are emitted.
    pub window: Nanos,
    /// Kind of probe that measures gaps for gap triggers.
    pub probe: GapProbe,
    /// Interval at which percentile thresholds are updated. A threshold is a percentile of the
    /// delays in the last 60 intervals.
    pub minute: Nanos,
    /// Memory limit for the rings of all CPUs together, in bytes.
    pub ring_bytes: u64,
    /// Initial memory limit for all rings together, in bytes. `None` means a quarter of
    /// [`RecorderPlan::ring_bytes`], or more if the event rate at the start requires it.
    pub ring_first: Option<u64>,
    /// Whether rings that reach back less than [`RecorderPlan::before`] are replaced with larger
    /// ones. Replacing them requires the same rights as starting the recorder. It also briefly
    /// requires memory for the old and the new rings at the same time.
    pub ring_grows: bool,
    /// Memory limit for a window that is being kept, in bytes. A record takes about ten bytes. A
    /// window that needs more ends early.
    pub window_bytes: usize,
}

impl Default for RecorderPlan {
    /// Returns a plan with two seconds before and after a trigger, windows of up to ten seconds,
    /// rings of a fixed size that take at most 64 MiB, and no triggers.
    fn default() -> Self {
        Self {
            cpus: None,
            triggers: Vec::new(),
            before: Nanos::from_secs(2),
            after: Nanos::from_secs(2),
            longest: Nanos::from_secs(10),
            window: Nanos::from_secs(10),
            probe: GapProbe::Sleep,
            minute: Nanos::from_secs(60),
            ring_bytes: 64 << 20,
            ring_first: None,
            ring_grows: false,
            window_bytes: 28 << 20,
        }
    }
}

/// Facts about a recorder that are known before the first event.
#[derive(Clone, Debug)]
pub struct RecorderStarted {
    /// The machine.
    pub machine: Machine,
    /// CPUs that are watched from the start.
    pub cpus: CpuList,
    /// The tracer's blind spots on this kernel.
    pub limitations: Vec<Limitation>,
    /// Number of records in each CPU's ring at the start.
    pub ring_records: usize,
    /// Memory that the rings and tables take, in bytes.
    pub buffer_bytes: u64,
    /// Kind of the gap probes on the CPUs in [`RecorderStarted::probed`].
    pub probe: GapProbe,
    /// CPUs on which a gap probe runs.
    pub probed: CpuList,
    /// Scheduling policy that the kernel refused to grant to the probes. `None` if it granted the
    /// requested policy.
    pub probe_refused: Option<PolicyGrant>,
    /// When the accounts start, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
}

/// Status of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderStatus {
    /// Number of tracepoint hits so far.
    pub events: u64,
    /// Number of triggers suppressed so far, for example because their CPU had more than 16
    /// triggers within a second.
    pub suppressed: u64,
    /// Current number of records in each CPU's ring.
    pub ring_records: usize,
    /// Reach of the rings, back from now. If some rings reach further than others, this is the
    /// shortest reach. `None` if no ring has been full yet.
    pub reach: Option<Nanos>,
    /// CPU time that the thread driving the recorder has used since the start.
    pub cpu: Nanos,
    /// Peak memory of the process, including the rings and tables, in bytes.
    pub memory_bytes: u64,
}

/// Status of a trigger whose threshold is a percentile of the delays in the last hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PercentileStatus {
    /// The trigger.
    pub trigger: TriggerSpec,
    /// Number of delays counted in the last hour.
    pub seen: u64,
    /// Number of delays needed to set a threshold.
    pub enough: u64,
    /// Current threshold. `None` if too few delays have been counted. The trigger does not fire
    /// until then.
    pub limit: Option<Nanos>,
}

/// Status of a program with frame triggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameStatus {
    /// Program with the frame triggers, as named by the user.
    pub target: TriggerTarget,
    /// Process ID, or 0 as long as no such process exists.
    pub pid: i32,
    /// Name of the program, or an empty string if it is unknown.
    pub name: String,
    /// State of the search for the program's frames.
    pub state: FrameState,
}

/// State of the search for a program's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameState {
    /// The rhythm has not been searched for yet, or must be searched for again because the thread
    /// that ran the frames has exited.
    Sought,
    /// The due times of the frames are known, so lost frames fire the trigger.
    Known {
        /// The most recently found rhythm.
        rhythm: FrameRhythm,
        /// Length of the recording in which the rhythm was found.
        learnt_in: Nanos,
    },
    /// The search found no rhythm, for this reason. It will be repeated.
    Unknown(NoRhythm),
    /// Either no process has the name or several have it. The check will be repeated.
    Absent,
    /// The process was selected by its ID and has exited.
    Ended,
}

/// The last few seconds recorded for a program that has frame triggers.
#[derive(Clone, Debug)]
pub struct ProgramWindow {
    /// Process ID.
    pub pid: i32,
    /// Start of the recording, on `CLOCK_MONOTONIC`. From this time, the events of every CPU are
    /// available.
    pub begin: Nanos,
    /// End of the recording, on `CLOCK_MONOTONIC`.
    pub end: Nanos,
    /// Sources of the rows.
    pub sources: SourceTable,
    /// Rows of every CPU, plus the waits of the process's threads.
    pub rows: FrozenRows,
}

/// Sums that cover one window of time.
#[derive(Clone, Debug)]
pub struct SumsWindow {
    /// Start, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
    /// End, on `CLOCK_MONOTONIC`.
    pub end: Nanos,
    /// Sources of the rows.
    pub sources: SourceTable,
    /// Rows of the kind [`Row::Sum`]. The last window also contains a span for each interval that
    /// was still open.
    pub rows: Vec<Row>,
}

/// Everything recorded around one or more triggers. The window may still be growing.
#[derive(Clone, Debug)]
pub struct FrozenWindow {
    /// Header, as in any other recording. It includes [`Header::triggers`].
    pub header: Header,
    /// Number of triggers in the header that were already in an earlier version of this window.
    /// They come first in the list.
    pub reported: usize,
    /// Whether the window is complete. If not, recording continues, and a later version of the
    /// window will contain everything in this one.
    pub over: bool,
    /// Sources of the rows.
    pub sources: SourceTable,
    /// Rows of the window. They can be iterated any number of times.
    pub rows: FrozenRows,
    /// Number of triggers in the window that did not fit into the header. Triggers that an earlier
    /// version already counted are not included.
    pub left_out: u64,
}

/// One event of a flight recorder.
#[derive(Debug)]
pub enum RecorderEvent<'a> {
    /// The first event.
    Started(&'a RecorderStarted),
    /// A window of sums is complete.
    Sums(Box<SumsWindow>),
    /// A window around one or more triggers. Either it is complete, or its triggers are due to be
    /// reported before it is.
    Frozen(Box<FrozenWindow>),
    /// Recorded events in which to search for the rhythm of a program's frames. Pass the result of
    /// the search to [`Recorder::set_rhythm`](super::Recorder::set_rhythm).
    Program(Box<ProgramWindow>),
    /// The timeout has passed, or [`Waker::wake`](super::Waker::wake) was called.
    Idle,
    /// The last event. Every later call returns it again.
    Ended(RecorderStatus),
}
