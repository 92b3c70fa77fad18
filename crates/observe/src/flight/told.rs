//! What a recorder is asked for, and what it tells.

use ticktax_model::incident::{TriggerSpec, TriggerTarget};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::pace::FrameRhythm;
use ticktax_model::recording::{Header, Row};
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_probes::PolicyGrant;
use ticktax_probes::gaps::GapProbe;
use ticktax_trace::FrozenRows;

/// What to record.
#[derive(Clone, Debug, PartialEq)]
pub struct RecorderPlan {
    /// Which CPUs; `None`: all that are online, and those that are plugged in later.
    pub cpus: Option<CpuList>,
    /// What freezes the ring. [`Signal`](ticktax_model::incident::TriggerKind::Signal) among them changes nothing: see
    /// [`Recorder::trigger`](super::Recorder::trigger).
    pub triggers: Vec<TriggerSpec>,
    /// What is kept before the beginning of what triggered.
    pub before: Nanos,
    /// And after the last trigger.
    pub after: Nanos,
    /// The longest window: what triggers after it freezes the next one.
    pub longest: Nanos,
    /// How often sums are handed out.
    pub window: Nanos,
    /// What looks for gaps, where a trigger is about them.
    pub probe: GapProbe,
    /// How often thresholds that are percentiles are set anew; sixty of these are their hour.
    pub minute: Nanos,
    /// Most memory for the rings of all CPUs together, in bytes.
    pub ring_bytes: u64,
    /// What they take at the start; `None`: a quarter of that, or as much more as the rate of events asks for then.
    pub ring_first: Option<u64>,
    /// Whether rings that reach back for less than [`RecorderPlan::before`] give way to larger ones. That takes the
    /// rights that starting took, and for a moment the memory of both.
    pub ring_grows: bool,
    /// Most memory for a window while it is kept, in bytes; it holds some ten bytes of each record. A window
    /// that needs more ends early.
    pub window_bytes: usize,
}

impl Default for RecorderPlan {
    /// Two seconds around a trigger, windows of ten seconds, at most 64 MiB of rings, which stay as they are; no
    /// trigger.
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

/// What is known before the first event.
#[derive(Clone, Debug)]
pub struct RecorderStarted {
    /// The machine.
    pub machine: Machine,
    /// The CPUs that are watched from the beginning.
    pub cpus: CpuList,
    /// What cannot be seen on this kernel.
    pub limitations: Vec<Limitation>,
    /// Records that each CPU's ring holds at the start.
    pub ring_records: usize,
    /// Memory of the rings and tables, in bytes.
    pub buffer_bytes: u64,
    /// What looks for gaps on the CPUs of [`RecorderStarted::probed`].
    pub probe: GapProbe,
    /// The CPUs that have a probe, where a trigger is about gaps.
    pub probed: CpuList,
    /// The scheduling policy that the probes did not get, where they did not.
    pub probe_refused: Option<PolicyGrant>,
    /// When the books were opened, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
}

/// How a recorder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderStatus {
    /// Tracepoint hits so far.
    pub events: u64,
    /// Triggers so far that the kernel did not hand out: more than 16 on a CPU within a second.
    pub suppressed: u64,
    /// Records that each CPU's ring holds by now.
    pub ring_records: usize,
    /// For how long the ring that comes round soonest reaches back; `None` where none has come round.
    pub reach: Option<Nanos>,
    /// CPU time of the thread that drives it, since it was started.
    pub cpu: Nanos,
    /// Most memory that the process held, with the rings and tables, in bytes.
    pub memory_bytes: u64,
}

/// A trigger whose threshold is a percentile of its own last hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PercentileStatus {
    /// The trigger.
    pub trigger: TriggerSpec,
    /// What it was about within the hour, as far as that has been watched.
    pub seen: u64,
    /// Of how many a threshold is told.
    pub enough: u64,
    /// From how long on it fires; `None` while too few are known, and it does not.
    pub limit: Option<Nanos>,
}

/// A program whose frames triggers are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameStatus {
    /// How it was named.
    pub target: TriggerTarget,
    /// The process; 0 before there is one.
    pub pid: i32,
    /// Its name, as far as that is known.
    pub name: String,
    /// What is known of its frames.
    pub state: FrameState,
}

/// What a recorder knows of a program's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameState {
    /// They were not looked for yet, or are looked for anew because their thread has ended.
    Sought,
    /// When they are due: a lost one triggers.
    Known {
        /// The rhythm that was found last.
        rhythm: FrameRhythm,
        /// What it was found in.
        learnt_in: Nanos,
    },
    /// They have no rhythm, in words why. They are looked for again.
    Unknown(String),
    /// No process has the name, or several have. It is looked for again.
    Absent,
    /// The process that was named by its number has ended.
    Ended,
}

/// The last seconds of a program whose frames triggers are about.
#[derive(Clone, Debug)]
pub struct ProgramWindow {
    /// The process.
    pub pid: i32,
    /// From when on every CPU's events are there, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
    /// Until when.
    pub end: Nanos,
    /// The sources that the rows name.
    pub sources: SourceTable,
    /// Those of every CPU, and what the process' threads did off them.
    pub rows: FrozenRows,
}

/// The sums of one window of time.
#[derive(Clone, Debug)]
pub struct SumsWindow {
    /// On `CLOCK_MONOTONIC`.
    pub begin: Nanos,
    /// Likewise.
    pub end: Nanos,
    /// The sources that the rows name.
    pub sources: SourceTable,
    /// [`Row::Sum`]s; of the last window also a span for each thing that a CPU was in the middle of.
    pub rows: Vec<Row>,
}

/// Everything that was recorded around some triggers, as far as it has come.
#[derive(Clone, Debug)]
pub struct FrozenWindow {
    /// As of any recording; [`Header::triggers`] are in it.
    pub header: Header,
    /// How many of these, from the first on, windows that were handed out before had as well.
    pub told: usize,
    /// Whether it is over. Else recording goes on, and another comes that holds all of this.
    pub over: bool,
    /// The sources that the rows name.
    pub sources: SourceTable,
    /// Made when they are asked for, as often as that is.
    pub rows: FrozenRows,
    /// Triggers within it that are not in the header: there were too many. Those of windows before are not among them.
    pub left_out: u64,
}

/// One step of a recorder.
#[derive(Debug)]
pub enum RecorderEvent<'a> {
    /// Comes first, and once.
    Started(&'a RecorderStarted),
    /// A window of sums is over.
    Sums(Box<SumsWindow>),
    /// Something triggered, and what is to be kept after it has passed, or the time after which it is to be told of.
    Frozen(Box<FrozenWindow>),
    /// A program's frames are to be looked for in these: [`Recorder::set_rhythm`](super::Recorder::set_rhythm) takes
    /// what was found.
    Program(Box<ProgramWindow>),
    /// Nothing, for as long as asked, or until [`Waker::wake`](super::Waker::wake).
    Idle,
    /// Comes last, again and again.
    Ended(RecorderStatus),
}
