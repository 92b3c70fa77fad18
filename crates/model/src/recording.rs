//! Recordings of a real machine, a lab guest or the simulator, in memory or in a file.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::autogroup::ProcessAutogroup;
use crate::group::{GroupList, GroupMove};
use crate::hook::Hook;
use crate::incident::Trigger;
use crate::limitation::Limitation;
use crate::machine::{Counters, Machine};
use crate::pace::{Frame, LoopRun, LoopTurns};
use crate::packets::PacketRun;
use crate::replay::ReplayedTask;
use crate::victim::{ThreadPolicy, VictimHeader};
use crate::witness::CrossChecks;
use crate::{Cpu, Histogram, Nanos, SourceId, Span};

mod code_file;
mod edge;
mod part;
mod probes;
mod stack;
mod wait_code;

pub use code_file::{CodeFile, CodeFunction};
pub use edge::{Edge, EdgeKind, Effect};
pub use part::RecordingPart;
pub use probes::{BlockTimes, ClockReport, ProbeFailure, ProbeKind, ProbeReport, SoakReport};
pub use stack::{Frame as StackFrame, Stack};
pub use wait_code::{CodePlace, WaitCode};

/// Version of the recording format that this version of ticktax writes.
pub const SCHEMA_VERSION: u32 = 4;

/// Oldest version of the recording format that this version of ticktax reads. Version 2 differs
/// only in the names of some header fields, which are accepted as aliases.
pub const OLDEST_SCHEMA_VERSION: u32 = 2;

/// One row of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// A single interval.
    Span(Span),
    /// Sum of one source's intervals over a time window. Long recordings contain sums instead of
    /// spans.
    Sum(Sum),
    /// A frame of a paced loop.
    Frame(PacedFrame),
    /// A wake-up edge: a source made a thread, work item or softirq runnable.
    Edge(Edge),
}

/// A row that describes a frame of a paced loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacedFrame {
    /// Interval from the start of the frame to the end of its work. The span's self time is the CPU
    /// time of the work.
    pub span: Span,
    /// When the frame was due, on `CLOCK_MONOTONIC`.
    pub due: Nanos,
}

impl PacedFrame {
    /// Returns the row for `frame`, which ran on `cpu`.
    pub fn new(frame: &Frame, cpu: Cpu, source: SourceId) -> Self {
        Self {
            span: Span {
                cpu,
                start: frame.began,
                dur: frame.ended - frame.began,
                self_time: frame.cpu,
                source,
            },
            due: frame.due,
        }
    }

    /// Returns the frame that the row describes.
    pub fn frame(&self) -> Frame {
        Frame {
            due: self.due,
            began: self.span.start,
            ended: self.span.end(),
            cpu: self.span.self_time,
        }
    }
}

/// Sum of one source's intervals on one CPU within a time window, excluding intervals that have
/// their own rows.
///
/// In recordings with sums, intervals of at least [`Sum::TIMED_FROM`] get their own rows as long as
/// there is room. Idle intervals never do.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    /// The time window. The span's `self_time` is the sum of all intervals' self times.
    pub span: Span,
    /// Number of intervals.
    pub count: u64,
    /// Longest wall-clock length.
    pub max: Nanos,
    /// Wall-clock lengths of the intervals.
    pub histogram: Histogram,
}

impl Sum {
    /// Minimum length of intervals that get their own rows. It is the lower bound of the histogram
    /// bucket that contains 1 ms (`LONG_NS` in `record.h`).
    pub const TIMED_FROM: Nanos = Nanos(917_504);

    /// Returns whether the sum includes intervals long enough for their own rows. The times of
    /// these intervals are unknown, either because there was no room for their rows or because the
    /// recording was made by an earlier version, which did not write them.
    pub fn has_long(&self) -> bool {
        let long = Histogram::bucket(Self::TIMED_FROM);
        self.max >= Self::TIMED_FROM || self.histogram.counts()[long..].iter().any(|&n| n > 0)
    }
}

/// World that a recording was made in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// A real machine.
    #[default]
    Live,
    /// A virtual machine in the lab, in which the kernel was booted.
    Lab,
    /// The simulator.
    Simulated,
}

/// Capability level: how much the observer could see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Every span with its name, from the kernel's tracepoints.
    Kernel,
    /// Only the gaps that probes see, and the growth of the counters in `/proc`.
    Proc,
}

/// The header of a recording: everything except its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// Version of the recording format, which is the [`SCHEMA_VERSION`] of the ticktax that wrote
    /// it.
    pub schema: u32,
    /// Version of ticktax that wrote the recording.
    pub tool_version: String,
    /// Whether the recording comes from a real machine, a lab guest or the simulator.
    pub world: World,
    /// Capability level, which limits what could be observed.
    pub level: Level,
    /// Machine.
    pub machine: Machine,
    /// Start of the recording, in seconds since 1970 by the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Position within a longer recording; `None` if this is not part of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<RecordingPart>,
    /// For each CPU, the interval over which its time is accounted for.
    #[serde(alias = "books")]
    pub cpus: Vec<CpuInterval>,
    /// Completeness of the observation: its limitations and losses.
    pub coverage: Coverage,
    /// Checks of the clock that the probes read, and its alignment with the tracer's clock.
    pub clock: Option<ClockReport>,
    /// Reports of the probes, one per CPU.
    pub probes: Vec<ProbeReport>,
    /// Kernel counters at the start of the recording.
    pub before: Counters,
    /// Kernel counters at the end of the recording.
    pub after: Counters,
    /// Cost of the observation.
    pub cost: ToolCost,
    /// The command that was audited, if any.
    pub command: Option<CommandReport>,
    /// The analysed program, if any.
    #[serde(default)]
    pub victim: Option<VictimHeader>,
    /// Program threads that did not have the default scheduling policy at the start or end of the
    /// recording.
    #[serde(default)]
    pub policies: Vec<ThreadPolicy>,
    /// Autogroup of each process that existed at the start or end of the recording, if it was in
    /// one. Empty if autogroups are turned off; `None` if that is unknown.
    #[serde(default)]
    pub autogroups: Option<Vec<ProcessAutogroup>>,
    /// Process ids in each cgroup at any time during the recording, by cgroup path. If the tracer
    /// could not watch cgroups, only those at the start or end are included. The paths belong to
    /// the hierarchy with the CPU controller, and the root cgroup is omitted. `None` if the cgroups
    /// are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroups: Option<BTreeMap<String, BTreeSet<i32>>>,
    /// Processes and threads that moved to another cgroup, in chronological order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_moves: Vec<GroupMove>,
    /// Names of the groups that the cgroups belong to.
    #[serde(default, skip_serializing_if = "GroupList::is_empty")]
    pub groups: GroupList,
    /// Reports of the soakers, one per CPU.
    #[serde(default)]
    pub soakers: Vec<SoakReport>,
    /// Why the recording ended before the requested time; `None` if it did not.
    #[serde(default)]
    pub ended_early: Option<EndedEarly>,
    /// Loop or traffic that `ticktax pace` ran or watched; `None` in recordings made by another
    /// verb.
    #[serde(default)]
    pub paced: Option<Paced>,
    /// Result of each thread of a replayed scenario; `None` if the recording is not of a replay.
    #[serde(default)]
    pub replayed: Option<Vec<ReplayedTask>>,
    /// Kernel counters that show whether the recorded events are complete.
    #[serde(default, alias = "witnesses")]
    pub cross_checks: Option<CrossChecks>,
    /// Delay above which a frame's step counts as overshot; `None` if none was requested.
    #[serde(
        default,
        rename = "overshot_threshold_ns",
        alias = "overshot_from_ns",
        skip_serializing_if = "Option::is_none"
    )]
    pub overshot_threshold: Option<Nanos>,
    /// Number of samples per second and CPU of the profile; `None` if no profile was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_hz: Option<u32>,
    /// Triggers that made the flight recorder save this recording, in chronological order. Empty
    /// for other recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<Trigger>,
    /// Files whose code was sampled in user mode, with the names of the sampled functions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code_files: Vec<CodeFile>,
    /// Virtual machines that ran on this machine; `None` if none was seen, or if KVM was not
    /// traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<crate::guests::GuestSums>,
}

/// Loop or traffic that `ticktax pace` ran or watched in a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Paced {
    /// A loop that ticktax or the model ran. Its frames are stored as rows.
    Loop(Box<LoopRun>),
    /// Several loops that took turns. Their frames are stored as rows, with a separate source for
    /// each turn.
    Turns(Box<LoopTurns>),
    /// The loop of the watched program. Its frames are not stored, because the analysis finds them
    /// in the program's wake-ups.
    Program,
    /// Not a loop, but datagrams sent at a fixed rate, with the reports of both ends. The rows show
    /// the stalls that caused losses.
    Packets(Box<PacketRun>),
}

/// Why a recording ended before the requested time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndedEarly {
    /// The watched process or command exited.
    #[serde(alias = "program_ended")]
    ProgramExited,
    /// Ctrl-C or a signal ended the recording.
    Interrupted,
    /// ticktax came close to the memory limit of its control group.
    MemoryLimit,
}

impl Header {
    /// Returns the start of the recording on `CLOCK_MONOTONIC`, which is the earliest start of any
    /// CPU's accounts. For part of a longer recording, returns the start of the longer one. Returns
    /// `None` if no CPU has accounts.
    pub fn begin(&self) -> Option<Nanos> {
        let books = self.cpus.iter().map(|books| books.begin).min();
        self.part.map(|part| part.begin).or(books)
    }

    /// Returns the end of the recording on `CLOCK_MONOTONIC`, which is the latest end of any CPU's
    /// accounts. If no CPU has accounts, returns the somewhat later time at which the final
    /// counters were read.
    pub fn end(&self) -> Nanos {
        let books = self.cpus.iter().map(|books| books.end).max();
        books.unwrap_or(self.after.at)
    }

    /// Returns the time stolen from all CPUs that have accounts, according to the hypervisor's
    /// steal clock. Returns `None` if the machine has no such clock, or if it is a guest whose
    /// clock never advanced.
    pub fn stolen(&self) -> Option<Nanos> {
        let mut books = self.cpus.iter();
        let first = books.next()?;
        let stolen_from = |books: &CpuInterval| self.after.steal_since(&self.before, books.cpu);
        let all = books.try_fold(stolen_from(first)?, |sum, books| {
            Some(sum + stolen_from(books)?)
        })?;
        let is_reported = self.machine.hypervisor.is_none() || self.after.tells_steal();
        is_reported.then_some(all)
    }

    /// Returns when ticktax started to follow the watched program; `None` if no program is watched.
    pub fn followed_since(&self) -> Option<Nanos> {
        let begin = self.victim.as_ref()?.begin;
        Some(self.part.map_or(begin, |part| begin.max(part.start())))
    }

    /// Returns ticktax's loop; `None` unless the rows contain the frames of a single loop.
    pub fn paced_loop(&self) -> Option<&LoopRun> {
        match &self.paced {
            Some(Paced::Loop(run)) => Some(run),
            Some(Paced::Turns(_) | Paced::Program | Paced::Packets(_)) | None => None,
        }
    }

    /// Returns the loops that took turns; `None` unless the rows contain their frames.
    pub fn paced_turns(&self) -> Option<&LoopTurns> {
        match &self.paced {
            Some(Paced::Turns(turns)) => Some(turns),
            Some(Paced::Loop(_) | Paced::Program | Paced::Packets(_)) | None => None,
        }
    }

    /// Returns a header with only the arguments and the format version set.
    pub fn new(world: World, level: Level, tool_version: &str) -> Self {
        Self {
            schema: SCHEMA_VERSION,
            tool_version: tool_version.to_owned(),
            world,
            level,
            machine: Machine::default(),
            began_unix: 0,
            part: None,
            cpus: Vec::new(),
            coverage: Coverage::default(),
            clock: None,
            probes: Vec::new(),
            before: Counters::default(),
            after: Counters::default(),
            cost: ToolCost::default(),
            command: None,
            victim: None,
            policies: Vec::new(),
            autogroups: None,
            cgroups: None,
            group_moves: Vec::new(),
            groups: GroupList::default(),
            soakers: Vec::new(),
            ended_early: None,
            paced: None,
            replayed: None,
            cross_checks: None,
            overshot_threshold: None,
            triggers: Vec::new(),
            code_files: Vec::new(),
            guests: None,
            profile_hz: None,
        }
    }
}

/// The interval over which the time of one CPU is accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuInterval {
    /// CPU.
    pub cpu: Cpu,
    /// Start, on `CLOCK_MONOTONIC`.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// End, on `CLOCK_MONOTONIC`.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
}

impl CpuInterval {
    /// Returns the length of the interval, which the CPU's accounts must add up to.
    pub fn elapsed(&self) -> Nanos {
        self.end - self.begin
    }
}

/// Completeness of an observation: its limitations and losses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    /// Hooks (tracepoints and functions) that the tracer watched; empty if there was no tracer.
    pub attached: Vec<Hook>,
    /// Limitations.
    pub limitations: Vec<Limitation>,
    /// Events lost during the recording, by CPU.
    pub lost: Vec<Loss>,
    /// Whether every entry into the kernel was watched. If so, a gap without any recorded span
    /// proves that the kernel ran nothing.
    pub every_entry_watched: bool,
}

impl Coverage {
    /// Returns the sum of all losses on `cpu`.
    pub fn lost_on(&self, cpu: Cpu) -> Loss {
        let lost = self.lost.iter().filter(|loss| loss.cpu == cpu);
        lost.fold(Loss::none(cpu), |sum, loss| Loss {
            cpu,
            events: sum.events + loss.events,
            self_time: sum.self_time + loss.self_time,
            gaps: sum.gaps + loss.gaps,
        })
    }

    /// Returns whether the recording was converted from another tool's trace, so that ticktax did
    /// not run on the machine.
    pub fn is_imported(&self) -> bool {
        let mut limitations = self.limitations.iter();
        limitations.any(|limitation| matches!(limitation, Limitation::Imported { .. }))
    }

    /// Returns the number of events lost on all CPUs.
    pub fn events_lost(&self) -> u64 {
        self.lost.iter().map(|loss| loss.events).sum()
    }
}

/// Events on one CPU that were observed but could not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loss {
    /// CPU.
    pub cpu: Cpu,
    /// Exact number of spans lost. For part of a longer recording, this is the number for the
    /// longer one.
    pub events: u64,
    /// Exact self time of the lost spans. The accounts contain it as unexplained time.
    #[serde(rename = "self_ns")]
    pub self_time: Nanos,
    /// Number of lost probe gaps.
    pub gaps: u64,
}

impl Loss {
    /// Returns an empty loss record for `cpu`.
    pub const fn none(cpu: Cpu) -> Self {
        Self {
            cpu,
            events: 0,
            self_time: Nanos::ZERO,
            gaps: 0,
        }
    }
}

/// Cost of the observation itself, measured while it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCost {
    /// Time taken to load and attach the tracer.
    #[serde(rename = "load_time_ns")]
    pub load: Nanos,
    /// CPU time of ticktax's threads during the recording, except probe threads.
    #[serde(rename = "cpu_time_ns")]
    pub cpu: Nanos,
    /// Peak memory use of the process, in bytes.
    pub memory_bytes: u64,
    /// Number of tracepoint events that ran one of the tracer's BPF programs.
    pub events: u64,
    /// CPU time used by the tracer's BPF programs; `None` if the kernel did not collect statistics
    /// about them.
    #[serde(rename = "tracer_time_ns")]
    pub tracer: Option<Nanos>,
    /// Nice value (-20 to 19), at the end of the recording, of the thread that reads the tracer's
    /// buffers.
    #[serde(default)]
    pub nice: i32,
    /// Whether the thread that reads the tracer's buffers stayed off the watched program's CPUs.
    #[serde(default, alias = "apart")]
    pub avoided_program_cpus: bool,
    /// CPU time that the thread reading the buffers used at a real-time priority because a buffer
    /// was more than half full.
    #[serde(
        default,
        rename = "raised_time_ns",
        skip_serializing_if = "Nanos::is_zero"
    )]
    pub raised: Nanos,
}

/// The audited command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandReport {
    /// Command and arguments.
    pub argv: Vec<String>,
    /// Process id.
    pub pid: i32,
    /// Exit code of the command. If a signal ended it, 128 plus the number of the signal. `None` if
    /// it was still running when the audit ended.
    pub exit: Option<i32>,
}

/// A consumer of a recording's rows, such as a ledger, a file writer or the search for periodic
/// sources.
pub trait RowSink {
    /// Takes one row. The rows of one CPU arrive in order of end time. The order between different
    /// CPUs is not defined.
    fn row(&mut self, sources: &crate::SourceTable, row: &Row);
}

/// A recording whose rows can be read repeatedly, no matter where it is stored.
pub trait RowSource {
    /// Why the rows could not be read.
    type Error;

    /// Returns the header, which contains everything except the rows.
    fn header(&self) -> &Header;

    /// Passes each row, in order, to `each`, along with a table that contains the row's source.
    /// Returns the table of all sources.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be read. The rows passed to `each` before the error are
    /// valid.
    fn replay(
        &mut self,
        each: &mut dyn FnMut(&crate::SourceTable, &Row),
    ) -> Result<crate::SourceTable, Self::Error>;
}

impl Row {
    /// Returns the CPU of the row.
    pub fn cpu(&self) -> Cpu {
        self.span().cpu
    }

    /// Returns the source of the row. For an edge, this is the source that made something runnable.
    pub fn source(&self) -> SourceId {
        self.span().source
    }

    /// Returns the interval of the row: the span itself, the window of a sum, the frame's interval,
    /// or the instant of an edge.
    pub fn span(&self) -> &Span {
        match self {
            Self::Span(span) => span,
            Self::Sum(sum) => &sum.span,
            Self::Frame(frame) => &frame.span,
            Self::Edge(edge) => &edge.span,
        }
    }
}
