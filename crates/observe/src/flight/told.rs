//! A recorder's plan, events and status.

use ticktax_model::incident::{TriggerSpec, TriggerTarget};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::pace::FrameRhythm;
use ticktax_model::recording::{Header, Row};
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_probes::PolicyGrant;
use ticktax_probes::gaps::GapProbe;
use ticktax_trace::FrozenRows;

/// The plan of a recorder.
#[derive(Clone, Debug, PartialEq)]
pub struct RecorderPlan {
    /// The CPUs; `None` means all that are online now or plugged in later.
    pub cpus: Option<CpuList>,
    /// The triggers that freeze the ring. [`Signal`](ticktax_model::incident::TriggerKind::Signal)
    /// in this list has no effect: see [`Recorder::trigger`](super::Recorder::trigger).
    pub triggers: Vec<TriggerSpec>,
    /// Time to keep before the start of the triggering delay.
    pub before: Nanos,
    /// Time to keep after the last trigger.
    pub after: Nanos,
    /// Maximum length of a window. Later triggers freeze the next one.
    pub longest: Nanos,
    /// Interval at which sums are emitted.
    pub window: Nanos,
    /// The probe for gap triggers.
    pub probe: GapProbe,
    /// Interval at which percentile thresholds are updated. Their hour has sixty of these.
    pub minute: Nanos,
    /// Memory limit for the rings of all CPUs together, in bytes.
    pub ring_bytes: u64,
    /// Initial size of the rings. `None` means a quarter of [`RecorderPlan::ring_bytes`], or more
    /// if the initial event rate needs it.
    pub ring_first: Option<u64>,
    /// Whether to replace rings that reach back less than [`RecorderPlan::before`] with larger
    /// ones. This needs the same rights as the start, and the memory of both for a moment.
    pub ring_grows: bool,
    /// Memory limit for a window while it is kept, in bytes. A record takes about ten bytes. A
    /// window that needs more ends early.
    pub window_bytes: usize,
}

impl Default for RecorderPlan {
    /// Two seconds around a trigger, windows of up to ten seconds, at most 64 MiB of rings of fixed
    /// size, no triggers.
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

/// Facts known before the first event.
#[derive(Clone, Debug)]
pub struct RecorderStarted {
    /// The machine.
    pub machine: Machine,
    /// The CPUs watched from the start.
    pub cpus: CpuList,
    /// Blind spots on this kernel.
    pub limitations: Vec<Limitation>,
    /// Records in each CPU's ring at the start.
    pub ring_records: usize,
    /// Memory of the rings and tables, in bytes.
    pub buffer_bytes: u64,
    /// The kind of gap probe on the CPUs in [`RecorderStarted::probed`].
    pub probe: GapProbe,
    /// The CPUs with a gap probe.
    pub probed: CpuList,
    /// The scheduling policy that the probes were denied, if any.
    pub probe_refused: Option<PolicyGrant>,
    /// When accounting started, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
}

/// Status of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderStatus {
    /// Number of tracepoint hits so far.
    pub events: u64,
    /// Number of triggers suppressed so far: more than 16 on a CPU within a second.
    pub suppressed: u64,
    /// Current number of records in each CPU's ring.
    pub ring_records: usize,
    /// Reach of the ring that wraps first, back from now; `None` if none has wrapped yet.
    pub reach: Option<Nanos>,
    /// CPU time of the thread that drives the recorder, since the start.
    pub cpu: Nanos,
    /// Peak memory of the process including the rings and tables, in bytes.
    pub memory_bytes: u64,
}

/// Status of a trigger whose threshold is a percentile of the delays in its last hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PercentileStatus {
    /// The trigger.
    pub trigger: TriggerSpec,
    /// Number of observed delays within the hour.
    pub seen: u64,
    /// Number of delays needed for a threshold.
    pub enough: u64,
    /// The current threshold; `None` while too few delays are known. The trigger does not fire
    /// then.
    pub limit: Option<Nanos>,
}

/// A program with frame triggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameStatus {
    /// The program as the user named it.
    pub target: TriggerTarget,
    /// The process ID; 0 until the process exists.
    pub pid: i32,
    /// The program's name, if known.
    pub name: String,
    /// State of its frame detection.
    pub state: FrameState,
}

/// State of a program's frame detection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameState {
    /// Not searched for yet, or searched for again because the thread has ended.
    Sought,
    /// Due times are known, so a lost frame triggers.
    Known {
        /// The rhythm that was found last.
        rhythm: FrameRhythm,
        /// Length of the recording it was found in.
        learnt_in: Nanos,
    },
    /// No rhythm was found, with the reason. The search is repeated.
    Unknown(String),
    /// No process or several processes have the name. The search is repeated.
    Absent,
    /// The process with the given ID has ended.
    Ended,
}

/// The last seconds of a program with frame triggers.
#[derive(Clone, Debug)]
pub struct ProgramWindow {
    /// Process ID.
    pub pid: i32,
    /// Start of the events of every CPU, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
    /// Their end.
    pub end: Nanos,
    /// The sources of the rows.
    pub sources: SourceTable,
    /// The rows of every CPU, and the waits of the process's threads.
    pub rows: FrozenRows,
}

/// The sums of one window of time.
#[derive(Clone, Debug)]
pub struct SumsWindow {
    /// Start, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
    /// End, on `CLOCK_MONOTONIC`.
    pub end: Nanos,
    /// The sources of the rows.
    pub sources: SourceTable,
    /// [`Row::Sum`]s. The last window also has a span for each open interval.
    pub rows: Vec<Row>,
}

/// Everything recorded around some triggers, so far or completely.
#[derive(Clone, Debug)]
pub struct FrozenWindow {
    /// The header, as in any recording. It includes [`Header::triggers`].
    pub header: Header,
    /// Number of triggers, from the first on, that an earlier version of this window contained.
    pub told: usize,
    /// Whether the window is complete. Otherwise recording continues, and a later version includes
    /// this one.
    pub over: bool,
    /// The sources of the rows.
    pub sources: SourceTable,
    /// The rows, created on demand as often as needed.
    pub rows: FrozenRows,
    /// Triggers in the window that did not fit into the header, excluding those counted in earlier
    /// versions.
    pub left_out: u64,
}

/// One step of a recorder.
#[derive(Debug)]
pub enum RecorderEvent<'a> {
    /// The first event.
    Started(&'a RecorderStarted),
    /// A window of sums is complete.
    Sums(Box<SumsWindow>),
    /// A window around a trigger is complete, or must be shown before it is.
    Frozen(Box<FrozenWindow>),
    /// Recorded events in which to search for a program's frames. Pass the result to
    /// [`Recorder::set_rhythm`](super::Recorder::set_rhythm).
    Program(Box<ProgramWindow>),
    /// The timeout has passed, or [`Waker::wake`](super::Waker::wake) was called.
    Idle,
    /// The last event, returned again and again.
    Ended(RecorderStatus),
}
