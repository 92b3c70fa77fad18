//! Plan, events and status of a flight recorder.

use ticktax_model::incident::{TriggerSpec, TriggerTarget};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::pace::{FrameRhythm, NoRhythm};
use ticktax_model::recording::{Header, Row};
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_probes::PolicyGrant;
use ticktax_probes::gaps::GapProbe;
use ticktax_trace::FrozenRows;

/// The plan for a flight recorder: CPUs, triggers, windows and memory.
#[derive(Clone, Debug, PartialEq)]
pub struct RecorderPlan {
    /// CPUs to watch; `None` means all that are online now or plugged in later.
    pub cpus: Option<CpuList>,
    /// Triggers that freeze the ring. [`Signal`](ticktax_model::incident::TriggerKind::Signal) in
    /// this list has no effect: see [`Recorder::trigger`](super::Recorder::trigger).
    pub triggers: Vec<TriggerSpec>,
    /// Time to keep before the start of the triggering delay.
    pub before: Nanos,
    /// Time to keep after the last trigger.
    pub after: Nanos,
    /// Maximum length of a window. A trigger beyond it starts the next window.
    pub longest: Nanos,
    /// Interval at which sums are emitted.
    pub window: Nanos,
    /// Probe for gap triggers.
    pub probe: GapProbe,
    /// Interval at which percentile thresholds are updated. A threshold covers the last sixty
    /// intervals.
    pub minute: Nanos,
    /// Memory limit for all CPUs' rings together, in bytes.
    pub ring_bytes: u64,
    /// Initial memory of all rings, in bytes. `None` means a quarter of
    /// [`RecorderPlan::ring_bytes`], or more if the event rate at the start requires it.
    pub ring_first: Option<u64>,
    /// Whether rings that do not reach back by [`RecorderPlan::before`] are replaced with larger
    /// ones. The replacement needs the same rights as the start and, for a short time, the memory
    /// of both.
    pub ring_grows: bool,
    /// Memory limit for a window being kept, in bytes. A record takes about ten bytes. A window
    /// that needs more ends early.
    pub window_bytes: usize,
}

impl Default for RecorderPlan {
    /// Two seconds around a trigger, windows of up to ten seconds, rings of fixed size with 64 MiB
    /// at most, and no triggers.
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
    /// CPUs that are watched from the start.
    pub cpus: CpuList,
    /// The tracer's blind spots on this kernel.
    pub limitations: Vec<Limitation>,
    /// Number of records in each CPU's ring at the start.
    pub ring_records: usize,
    /// Memory of the rings and tables, in bytes.
    pub buffer_bytes: u64,
    /// Kind of gap probe on the CPUs in [`RecorderStarted::probed`].
    pub probe: GapProbe,
    /// CPUs with a gap probe.
    pub probed: CpuList,
    /// Scheduling policy that the kernel refused to grant the probes, if any.
    pub probe_refused: Option<PolicyGrant>,
    /// When the accounts start, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
}

/// Status of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderStatus {
    /// Number of tracepoint hits so far.
    pub events: u64,
    /// Number of triggers suppressed so far because their CPU had more than 16 within a second.
    pub suppressed: u64,
    /// Current number of records in each CPU's ring.
    pub ring_records: usize,
    /// Shortest time that any ring reaches back from now. `None` if no ring has wrapped yet.
    pub reach: Option<Nanos>,
    /// CPU time that the thread driving the recorder has used since the start.
    pub cpu: Nanos,
    /// Peak memory of the process, including the rings and tables, in bytes.
    pub memory_bytes: u64,
}

/// Status of a trigger whose threshold is a percentile of the last hour's delays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PercentileStatus {
    /// The trigger.
    pub trigger: TriggerSpec,
    /// Number of delays observed in the last hour.
    pub seen: u64,
    /// Number of delays needed to set a threshold.
    pub enough: u64,
    /// Current threshold. `None` while too few delays are known: the trigger then does not fire.
    pub limit: Option<Nanos>,
}

/// Status of a program with frame triggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameStatus {
    /// Program, as the user named it.
    pub target: TriggerTarget,
    /// Process id; 0 until the process exists.
    pub pid: i32,
    /// Name of the program, if known.
    pub name: String,
    /// State of the search for the program's frames.
    pub state: FrameState,
}

/// State of the search for a program's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameState {
    /// Not searched for yet, or due to be searched for again because the thread has exited.
    Sought,
    /// The frames' due times are known, so lost frames trigger.
    Known {
        /// The rhythm found last.
        rhythm: FrameRhythm,
        /// Length of the recording in which it was found.
        learnt_in: Nanos,
    },
    /// No rhythm was found, for the given reason. The search will be repeated.
    Unknown(NoRhythm),
    /// No process, or more than one, has the name. The search will be repeated.
    Absent,
    /// The process with the given id has exited.
    Ended,
}

/// The last seconds of a program with frame triggers.
#[derive(Clone, Debug)]
pub struct ProgramWindow {
    /// Process ID.
    pub pid: i32,
    /// Start of the events, on `CLOCK_MONOTONIC`. Every CPU's events are available from then on.
    pub begin: Nanos,
    /// End of the events, on `CLOCK_MONOTONIC`.
    pub end: Nanos,
    /// Sources of the rows.
    pub sources: SourceTable,
    /// Rows of every CPU, and waits of the process's threads.
    pub rows: FrozenRows,
}

/// The sums of one window of time.
#[derive(Clone, Debug)]
pub struct SumsWindow {
    /// Start, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
    /// End, on `CLOCK_MONOTONIC`.
    pub end: Nanos,
    /// Sources of the rows.
    pub sources: SourceTable,
    /// [`Row::Sum`]s. The last window also has a span for each interval that was still open.
    pub rows: Vec<Row>,
}

/// Everything recorded around one or more triggers, so far or completely.
#[derive(Clone, Debug)]
pub struct FrozenWindow {
    /// Header, as in any recording. It includes [`Header::triggers`].
    pub header: Header,
    /// Number of triggers that an earlier version of this window already contained. They come
    /// first.
    pub told: usize,
    /// Whether the window is complete. If not, recording continues, and a later version will
    /// include all of this one.
    pub over: bool,
    /// Sources of the rows.
    pub sources: SourceTable,
    /// The rows. They can be iterated any number of times.
    pub rows: FrozenRows,
    /// Number of the window's triggers that did not fit into the header, except those counted in
    /// earlier versions.
    pub left_out: u64,
}

/// One event of a flight recorder.
#[derive(Debug)]
pub enum RecorderEvent<'a> {
    /// The first event.
    Started(&'a RecorderStarted),
    /// A window of sums is complete.
    Sums(Box<SumsWindow>),
    /// A window around a trigger is complete, or its triggers must be reported before it is
    /// complete.
    Frozen(Box<FrozenWindow>),
    /// Recorded events in which to search for a program's frames. Pass the result to
    /// [`Recorder::set_rhythm`](super::Recorder::set_rhythm).
    Program(Box<ProgramWindow>),
    /// The timeout has passed, or [`Waker::wake`](super::Waker::wake) was called.
    Idle,
    /// The last event. All further calls return it again.
    Ended(RecorderStatus),
}
