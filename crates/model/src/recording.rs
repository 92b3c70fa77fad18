//! A recording of a real machine, a lab guest or the simulator, in memory or in a file.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::autogroup::ProcessAutogroup;
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

mod edge;
mod part;
mod probes;

pub use edge::{Edge, EdgeKind, Effect};
pub use part::RecordingPart;
pub use probes::{BlockTimes, ClockReport, ProbeFailure, ProbeKind, ProbeReport, SoakReport};

/// Version of the recording format that this program writes.
pub const SCHEMA_VERSION: u32 = 3;

/// Oldest version that this program reads. Version 2 differs only in the names of some header
/// fields, which the fields list as aliases.
pub const OLDEST_SCHEMA_VERSION: u32 = 2;

/// One row of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// A single interval.
    Span(Span),
    /// Many intervals of one source, summed over a window. Long recordings contain sums instead of
    /// spans.
    Sum(Sum),
    /// A frame of a paced loop.
    Frame(PacedFrame),
    /// A wake-up edge: one source made another runnable.
    Edge(Edge),
}

/// A frame of a paced loop, as a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacedFrame {
    /// The interval from the frame's start to the end of its work. Its self time is the CPU time of
    /// the work.
    pub span: Span,
    /// Due time, on `CLOCK_MONOTONIC`.
    pub due: Nanos,
}

impl PacedFrame {
    /// The row for a `frame` that ran on `cpu`.
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

    /// The frame in the row.
    pub fn frame(&self) -> Frame {
        Frame {
            due: self.due,
            began: self.span.start,
            ended: self.span.end(),
            cpu: self.span.self_time,
        }
    }
}

/// All intervals of one source on one CPU within a window, except intervals that have their own
/// rows.
///
/// In recordings with sums, intervals of at least [`Sum::TIMED_FROM`] get their own rows as long as
/// there is room. Idle intervals do not.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    /// The window. Its `self_time` is the sum of the intervals' self times.
    pub span: Span,
    /// Number of intervals.
    pub count: u64,
    /// Longest wall-clock length.
    pub max: Nanos,
    /// Wall-clock lengths of all intervals.
    pub histogram: Histogram,
}

impl Sum {
    /// Lower bound of the histogram bucket that contains 1 ms (`LONG_NS` in `record.h`).
    pub const TIMED_FROM: Nanos = Nanos(917_504);

    /// Whether the sum includes intervals that are long enough for their own rows. Either there was
    /// no room for them, or an earlier version summed everything. Their times are unknown.
    pub fn has_long(&self) -> bool {
        let long = Histogram::bucket(Self::TIMED_FROM);
        self.max >= Self::TIMED_FROM || self.histogram.counts()[long..].iter().any(|&n| n > 0)
    }
}

/// Origin of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// A real machine.
    #[default]
    Live,
    /// A kernel booted in a virtual machine of the lab.
    Lab,
    /// The simulator.
    Simulated,
}

/// Capability level of the observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Every span with its name, from kernel tracepoints.
    Kernel,
    /// Only probe gaps, and the increase of counters in `/proc`.
    Proc,
}

/// Everything in a recording except its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// Format version: the writer's [`SCHEMA_VERSION`].
    pub schema: u32,
    /// Version of ticktax that wrote the recording.
    pub tool_version: String,
    /// Origin: a real machine, a lab guest or the simulator.
    pub world: World,
    /// Capability level, which limits what could be observed.
    pub level: Level,
    /// Machine.
    pub machine: Machine,
    /// Start, in seconds since 1970 by the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Position within a longer recording, if this is part of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<RecordingPart>,
    /// Intervals over which the CPUs' time is accounted for.
    #[serde(alias = "books")]
    pub cpus: Vec<CpuInterval>,
    /// Coverage and limitations of the observation.
    pub coverage: Coverage,
    /// How the probes' clock was checked and aligned with the tracer's clock.
    pub clock: Option<ClockReport>,
    /// Probes, one per CPU.
    pub probes: Vec<ProbeReport>,
    /// Kernel counters at the start.
    pub before: Counters,
    /// Kernel counters at the end.
    pub after: Counters,
    /// Cost of the observation.
    pub cost: ToolCost,
    /// The audited command, if there was one.
    pub command: Option<CommandReport>,
    /// The analysed program, if there is one.
    #[serde(default)]
    pub victim: Option<VictimHeader>,
    /// Threads of programs whose scheduling policy was not the default at the start or at the end.
    #[serde(default)]
    pub policies: Vec<ThreadPolicy>,
    /// Autogroups of programs that existed at the start or at the end. Empty if autogroups are off,
    /// `None` if unknown.
    #[serde(default)]
    pub autogroups: Option<Vec<ProcessAutogroup>>,
    /// Process ids by cgroup path, at the start or at the end. Paths are in the hierarchy with the
    /// CPU controller. The root cgroup is omitted. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroups: Option<BTreeMap<String, BTreeSet<i32>>>,
    /// Soakers, one per CPU.
    #[serde(default)]
    pub soakers: Vec<SoakReport>,
    /// Why the recording ended before the requested time, if it did.
    #[serde(default)]
    pub ended_early: Option<EndedEarly>,
    /// Kind of frames or datagrams in the recording, if `pace` made it.
    #[serde(default)]
    pub paced: Option<Paced>,
    /// Result of each replayed thread, if this is a recording of a replay.
    #[serde(default)]
    pub replayed: Option<Vec<ReplayedTask>>,
    /// Kernel counters that show how complete the events are.
    #[serde(default, alias = "witnesses")]
    pub cross_checks: Option<CrossChecks>,
    /// Delay above which a frame's step counts as overshot, if requested.
    #[serde(
        default,
        rename = "overshot_threshold_ns",
        alias = "overshot_from_ns",
        skip_serializing_if = "Option::is_none"
    )]
    pub overshot_threshold: Option<Nanos>,
    /// Triggers that made the flight recorder save this recording, in time order. Empty for other
    /// recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<Trigger>,
}

/// The kind of frames or datagrams in a recording made by `pace`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Paced {
    /// Frames of a loop that ticktax or the model ran, stored as rows.
    Loop(Box<LoopRun>),
    /// Frames of loops that took turns, stored as rows. Each turn has its own source.
    Turns(Box<LoopTurns>),
    /// Frames of the watched program. The analysis finds them in the program's wake-ups.
    Program,
    /// No frames but datagrams sent at a fixed rate, with both ends' reports. The rows show the
    /// stalls that lost datagrams.
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
}

impl Header {
    /// Start of the recording, on `CLOCK_MONOTONIC`: the earliest start of a CPU's accounts. For a
    /// part, the start of the entire recording. `None` if no CPU has accounts.
    pub fn begin(&self) -> Option<Nanos> {
        let books = self.cpus.iter().map(|books| books.begin).min();
        self.part.map(|part| part.begin).or(books)
    }

    /// End of the recording, on `CLOCK_MONOTONIC`: the latest end of a CPU's accounts. If no CPU
    /// has accounts, when the final counters were read, which is later.
    pub fn end(&self) -> Nanos {
        let books = self.cpus.iter().map(|books| books.end).max();
        books.unwrap_or(self.after.at)
    }

    /// Stolen time of all CPUs with accounts, according to the hypervisor's steal clock; `None` if
    /// the machine lacks such a clock, or if it never advanced in a guest.
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

    /// Time since which the watched program has been followed; `None` if no program is watched.
    pub fn followed_since(&self) -> Option<Nanos> {
        let begin = self.victim.as_ref()?.begin;
        Some(self.part.map_or(begin, |part| begin.max(part.start())))
    }

    /// ticktax's loop, if the rows contain the frames of a single loop.
    pub fn paced_loop(&self) -> Option<&LoopRun> {
        match &self.paced {
            Some(Paced::Loop(run)) => Some(run),
            Some(Paced::Turns(_) | Paced::Program | Paced::Packets(_)) | None => None,
        }
    }

    /// The loops that took turns, if the rows contain their frames.
    pub fn paced_turns(&self) -> Option<&LoopTurns> {
        match &self.paced {
            Some(Paced::Turns(turns)) => Some(turns),
            Some(Paced::Loop(_) | Paced::Program | Paced::Packets(_)) | None => None,
        }
    }

    /// A header with only these values set.
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
            soakers: Vec::new(),
            ended_early: None,
            paced: None,
            replayed: None,
            cross_checks: None,
            overshot_threshold: None,
            triggers: Vec::new(),
        }
    }
}

/// The interval over which one CPU's time is accounted for.
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
    /// Length of the interval. The CPU's accounts must add up to it.
    pub fn elapsed(&self) -> Nanos {
        self.end - self.begin
    }
}

/// Coverage of the observation, with its limitations and losses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    /// Hooks that the tracer watched; empty if there was no tracer.
    pub attached: Vec<Hook>,
    /// Limitations.
    pub limitations: Vec<Limitation>,
    /// Losses during the recording, by CPU.
    pub lost: Vec<Loss>,
    /// Whether every kernel entry was watched. If so, a gap without a span proves that the kernel
    /// ran nothing.
    pub every_entry_watched: bool,
}

impl Coverage {
    /// Total losses on `cpu`.
    pub fn lost_on(&self, cpu: Cpu) -> Loss {
        let lost = self.lost.iter().filter(|loss| loss.cpu == cpu);
        lost.fold(Loss::none(cpu), |sum, loss| Loss {
            cpu,
            events: sum.events + loss.events,
            self_time: sum.self_time + loss.self_time,
            gaps: sum.gaps + loss.gaps,
        })
    }

    /// Number of events lost on all CPUs.
    pub fn events_lost(&self) -> u64 {
        self.lost.iter().map(|loss| loss.events).sum()
    }
}

/// Events that were observed but could not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loss {
    /// CPU.
    pub cpu: Cpu,
    /// Exact number of lost spans. For part of a recording, the number for the entire recording.
    pub events: u64,
    /// Exact self time of the lost spans. It is unexplained in the accounts.
    #[serde(rename = "self_ns")]
    pub self_time: Nanos,
    /// Number of lost probe gaps.
    pub gaps: u64,
}

impl Loss {
    /// No losses on `cpu`.
    pub const fn none(cpu: Cpu) -> Self {
        Self {
            cpu,
            events: 0,
            self_time: Nanos::ZERO,
            gaps: 0,
        }
    }
}

/// Cost of the observation, measured while it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCost {
    /// Time to load and attach the tracer.
    #[serde(rename = "load_time_ns")]
    pub load: Nanos,
    /// CPU time of ticktax's threads during the recording, except probe threads.
    #[serde(rename = "cpu_time_ns")]
    pub cpu: Nanos,
    /// Peak memory use of the process, in bytes.
    pub memory_bytes: u64,
    /// Number of tracepoint hits that ran one of the tracer's BPF programs.
    pub events: u64,
    /// CPU time inside the tracer's BPF programs, if the kernel collected statistics.
    #[serde(rename = "tracer_time_ns")]
    pub tracer: Option<Nanos>,
    /// Nice value, -20 to 19, that the thread draining the tracer's buffers had at the end.
    #[serde(default)]
    pub nice: i32,
    /// Whether the thread draining the buffers avoided the watched program's CPUs.
    #[serde(default, alias = "apart")]
    pub avoided_program_cpus: bool,
    /// CPU time that the thread draining the buffers used at a real-time priority, because a buffer
    /// was more than half full.
    #[serde(default, rename = "raised_time_ns")]
    pub raised: Nanos,
}

/// The audited command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandReport {
    /// Command and arguments.
    pub argv: Vec<String>,
    /// Process id.
    pub pid: i32,
    /// Exit code, or 128 + signal number if a signal ended the command; `None` if it was still
    /// running when the audit ended.
    pub exit: Option<i32>,
}

/// A consumer of a recording's rows, such as a ledger, a file or a search for periodic sources.
pub trait RowSink {
    /// Takes one row. The rows of one CPU arrive in the order in which they ended. Rows of
    /// different CPUs arrive in any order.
    fn row(&mut self, sources: &crate::SourceTable, row: &Row);
}

/// A recording whose rows can be replayed, no matter how it is stored.
pub trait RowSource {
    /// Why a replay failed.
    type Error;

    /// Everything in the recording except its rows.
    fn header(&self) -> &Header;

    /// Passes every row to `each`, in order, with a table that contains the row's source. Returns
    /// the table of all sources.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be read. Rows passed before the error are valid.
    fn replay(
        &mut self,
        each: &mut dyn FnMut(&crate::SourceTable, &Row),
    ) -> Result<crate::SourceTable, Self::Error>;
}

impl Row {
    /// CPU of the row.
    pub fn cpu(&self) -> Cpu {
        self.span().cpu
    }

    /// Source of the row. For an edge, the source that caused it.
    pub fn source(&self) -> SourceId {
        self.span().source
    }

    /// The row's interval: the span itself, a sum's window, or the instant of an edge.
    pub fn span(&self) -> &Span {
        match self {
            Self::Span(span) => span,
            Self::Sum(sum) => &sum.span,
            Self::Frame(frame) => &frame.span,
            Self::Edge(edge) => &edge.span,
        }
    }
}
