//! A recording: what one world (live machine, lab guest, simulator) did, on disk or in passing.

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
use crate::witness::Witnesses;
use crate::{Cpu, Histogram, Nanos, SourceId, Span};

mod edge;
mod part;
mod probes;

pub use edge::{Edge, EdgeKind, Effect};
pub use part::RecordingPart;
pub use probes::{BlockTimes, ClockReport, ProbeFailure, ProbeKind, ProbeReport, SoakReport};

/// Version of the format of recordings. A reader refuses all others.
pub const SCHEMA_VERSION: u32 = 2;

/// One row of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// A single interval.
    Span(Span),
    /// Many intervals of one source, summed over a window: a long recording keeps these instead.
    Sum(Sum),
    /// A frame of a paced loop.
    Frame(PacedFrame),
    /// One source made another able to run.
    Edge(Edge),
}

/// A frame of a paced loop, as a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacedFrame {
    /// From when it began until its work was done; its own time is the CPU time of the work.
    pub span: Span,
    /// When it was due, on `CLOCK_MONOTONIC`.
    pub due: Nanos,
}

impl PacedFrame {
    /// The row of `frame`, which ran on `cpu`.
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

    /// The frame that the row is of.
    pub fn frame(&self) -> Frame {
        Frame {
            due: self.due,
            began: self.span.start,
            ended: self.span.end(),
            cpu: self.span.self_time,
        }
    }
}

/// All intervals of one source on one CPU within a window of time that have no row of their own.
///
/// Where sums are kept, the intervals from [`Sum::TIMED_FROM`] on are rows of their own as far as there
/// was room for them, idling excepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    /// The window's place and length, and in `self_time` the sum of all intervals' own time.
    pub span: Span,
    /// How many intervals there were.
    pub count: u64,
    /// The longest, on the wall.
    pub max: Nanos,
    /// All of them by their length on the wall.
    pub histogram: Histogram,
}

impl Sum {
    /// The shortest length of the histogram's bucket of 1 ms (`LONG_NS` in `record.h`).
    pub const TIMED_FROM: Nanos = Nanos(917_504);

    /// Whether intervals are among them that should have had rows of their own: there was no room for
    /// them, or an earlier version summed everything. Their times are not known.
    pub fn has_long(&self) -> bool {
        let long = Histogram::bucket(Self::TIMED_FROM);
        self.max >= Self::TIMED_FROM || self.histogram.counts()[long..].iter().any(|&n| n > 0)
    }
}

/// Which of the three worlds a recording is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// A machine in use.
    #[default]
    Live,
    /// A kernel booted in a virtual machine of the lab.
    Lab,
    /// The model.
    Simulated,
}

/// How much the observer was able to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Every span with its name, from the kernel's tracepoints.
    Kernel,
    /// Probes' gaps and the differences of counters under `/proc`.
    Proc,
}

/// Everything about a recording but its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// [`SCHEMA_VERSION`] of the program that wrote it.
    pub schema: u32,
    /// Version of that program.
    pub tool_version: String,
    /// Which world it is of.
    pub world: World,
    /// How much could be seen.
    pub level: Level,
    /// The machine.
    pub machine: Machine,
    /// Start, as seconds since 1970 on the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Which part of a longer recording it is, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<RecordingPart>,
    /// The interval over which each CPU's books are kept.
    pub books: Vec<Books>,
    /// What could not be seen, and why.
    pub coverage: Coverage,
    /// How the probes' clock was checked and aligned with the tracer's.
    pub clock: Option<ClockReport>,
    /// The probes that ran, one a CPU.
    pub probes: Vec<ProbeReport>,
    /// The kernel's counters at the start.
    pub before: Counters,
    /// The kernel's counters at the end.
    pub after: Counters,
    /// What observing cost.
    pub cost: ToolCost,
    /// The command that was audited, where there was one.
    pub command: Option<CommandReport>,
    /// The program whose time was asked for, where there was one.
    #[serde(default)]
    pub victim: Option<VictimHeader>,
    /// Programs' threads that were not scheduled by the ordinary rules, at the begin or at the end.
    #[serde(default)]
    pub policies: Vec<ThreadPolicy>,
    /// The kernel's groups by session, in which programs were at the begin or at the end: none where they
    /// are off, `None` where they are not known.
    #[serde(default)]
    pub autogroups: Option<Vec<ProcessAutogroup>>,
    /// The soakers that ran, one a CPU.
    #[serde(default)]
    pub soakers: Vec<SoakReport>,
    /// Why it ended before the time that was asked for, where it did.
    #[serde(default)]
    pub ended_early: Option<EndedEarly>,
    /// Whose frames it was made for, where it is of `pace`.
    #[serde(default)]
    pub paced: Option<Paced>,
    /// What each thread did, where it is of programs that were replayed.
    #[serde(default)]
    pub replayed: Option<Vec<ReplayedTask>>,
    /// What the kernel's own counters say of how much was seen.
    #[serde(default)]
    pub witnesses: Option<Witnesses>,
    /// How late after it is due a step's frame may begin before the step is overshot, where that was
    /// asked for.
    #[serde(
        default,
        rename = "overshot_from_ns",
        skip_serializing_if = "Option::is_none"
    )]
    pub overshot_from: Option<Nanos>,
    /// What made a flight recorder keep it, in order of time; empty of any other recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<Trigger>,
}

/// Whose frames a recording was made for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Paced {
    /// Those of a loop of ticktax's own, or of one in the model: they are rows.
    Loop(Box<LoopRun>),
    /// Those of variants of a loop that ran by turns: they are rows, of a source for each turn.
    Turns(Box<LoopTurns>),
    /// Those of the followed program: they are found in its wake-ups.
    Program,
    /// None: datagrams at a pace, of which this is what both ends say. Whose stalls lost them is found in the rows.
    Packets(Box<PacketRun>),
}

/// Why a recording ended before the time that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndedEarly {
    /// The process or command that it was about ended.
    ProgramEnded,
    /// It was interrupted, by Ctrl-C or a signal.
    Interrupted,
}

impl Header {
    /// When the recording began, on `CLOCK_MONOTONIC`: when the first books were opened, of a part when
    /// those of the whole were. `None` where no CPU has books.
    pub fn begin(&self) -> Option<Nanos> {
        let books = self.books.iter().map(|books| books.begin).min();
        self.part.map(|part| part.begin).or(books)
    }

    /// When the recording ended: when the last books were closed, and not when the kernel's counters were read
    /// after that. Where no CPU has books these are all there is.
    pub fn end(&self) -> Nanos {
        let books = self.books.iter().map(|books| books.end).max();
        books.unwrap_or(self.after.at)
    }

    /// What the hypervisor's clock says that it took meanwhile from all CPUs of the books, whatever ran there;
    /// `None` where there is no such clock, or, in a guest, one that has never run.
    pub fn stolen(&self) -> Option<Nanos> {
        let mut books = self.books.iter();
        let first = books.next()?;
        let of = |books: &Books| self.after.steal_since(&self.before, books.cpu);
        let all = books.try_fold(of(first)?, |sum, books| Some(sum + of(books)?))?;
        let tells = self.machine.hypervisor.is_none() || self.after.tells_steal();
        tells.then_some(all)
    }

    /// From when on this recording's program was followed; `None` where it is about none.
    pub fn followed_since(&self) -> Option<Nanos> {
        let begin = self.victim.as_ref()?.begin;
        Some(self.part.map_or(begin, |part| begin.max(part.start())))
    }

    /// The loop of ticktax's own whose frames the rows are, where they are some.
    pub fn paced_loop(&self) -> Option<&LoopRun> {
        match &self.paced {
            Some(Paced::Loop(run)) => Some(run),
            Some(Paced::Turns(_) | Paced::Program | Paced::Packets(_)) | None => None,
        }
    }

    /// The variants of a loop whose frames the rows are, where they ran by turns.
    pub fn paced_turns(&self) -> Option<&LoopTurns> {
        match &self.paced {
            Some(Paced::Turns(turns)) => Some(turns),
            Some(Paced::Loop(_) | Paced::Program | Paced::Packets(_)) | None => None,
        }
    }

    /// The header of a recording of which nothing else is known yet.
    pub fn new(world: World, level: Level, tool_version: &str) -> Self {
        Self {
            schema: SCHEMA_VERSION,
            tool_version: tool_version.to_owned(),
            world,
            level,
            machine: Machine::default(),
            began_unix: 0,
            part: None,
            books: Vec::new(),
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
            soakers: Vec::new(),
            ended_early: None,
            paced: None,
            replayed: None,
            witnesses: None,
            overshot_from: None,
            triggers: Vec::new(),
        }
    }
}

/// The interval over which one CPU's time is accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Books {
    /// Which CPU.
    pub cpu: Cpu,
    /// Opened at, on `CLOCK_MONOTONIC`.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Closed at.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
}

impl Books {
    /// The time to account for.
    pub fn elapsed(&self) -> Nanos {
        self.end - self.begin
    }
}

/// What the observer could see, and what not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    /// What the tracer watched; nothing where there was none.
    pub attached: Vec<Hook>,
    /// What could not be seen, one by one.
    pub limitations: Vec<Limitation>,
    /// Losses while recording, by CPU.
    pub lost: Vec<Loss>,
    /// Whether every way into the kernel was watched, so that a gap without a span proves that
    /// the kernel ran nothing in it.
    pub every_entry_watched: bool,
}

impl Coverage {
    /// What was lost on `cpu`.
    pub fn lost_on(&self, cpu: Cpu) -> Loss {
        let lost = self.lost.iter().filter(|loss| loss.cpu == cpu);
        lost.fold(Loss::none(cpu), |sum, loss| Loss {
            cpu,
            events: sum.events + loss.events,
            self_time: sum.self_time + loss.self_time,
            gaps: sum.gaps + loss.gaps,
        })
    }

    /// Events lost on all CPUs.
    pub fn events_lost(&self) -> u64 {
        self.lost.iter().map(|loss| loss.events).sum()
    }
}

/// Events that were seen but could not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loss {
    /// Where.
    pub cpu: Cpu,
    /// How many spans, exactly; of a part of a recording, how many of the whole.
    pub events: u64,
    /// Their own time, exactly: it is in the books as unexplained.
    #[serde(rename = "self_ns")]
    pub self_time: Nanos,
    /// How many of a probe's gaps.
    pub gaps: u64,
}

impl Loss {
    /// Nothing was lost.
    pub const fn none(cpu: Cpu) -> Self {
        Self {
            cpu,
            events: 0,
            self_time: Nanos::ZERO,
            gaps: 0,
        }
    }
}

/// What observing cost, measured in the same run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCost {
    /// From the start of loading the tracer until it was attached.
    #[serde(rename = "load_time_ns")]
    pub load: Nanos,
    /// CPU time of the tool's threads during the recording, the probes' left out.
    #[serde(rename = "cpu_time_ns")]
    pub cpu: Nanos,
    /// Most memory that the process held, in bytes.
    pub memory_bytes: u64,
    /// Tracepoint hits that ran a program of the tracer.
    pub events: u64,
    /// CPU time inside the tracer's programs, where the kernel kept statistics of them.
    #[serde(rename = "tracer_time_ns")]
    pub tracer: Option<Nanos>,
    /// The nice value at which the tool emptied its buffers, -20 to 19, at the end.
    #[serde(default)]
    pub nice: i32,
    /// Whether it did so on other CPUs than the watched program ran on.
    #[serde(default)]
    pub apart: bool,
}

/// The audited command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandReport {
    /// What was run, with its arguments.
    pub argv: Vec<String>,
    /// Its process id.
    pub pid: i32,
    /// Its exit code; 128 + the signal's number when a signal ended it; `None` when it was still
    /// running as the audit ended.
    pub exit: Option<i32>,
}

/// Consumes a recording's rows as they come: a ledger, a file, a finder of beats.
pub trait RowSink {
    /// Takes one row. Rows of one CPU come in the order in which they ended; rows of different
    /// CPUs come in any order.
    fn row(&mut self, sources: &crate::SourceTable, row: &Row);
}

/// A recording whose rows can be replayed, however it is stored.
pub trait RowSource {
    /// Why a replay failed.
    type Error;

    /// Everything about the recording but its rows.
    fn header(&self) -> &Header;

    /// Gives every row to `each`, from the first one on, with a table that holds the row's source.
    /// Returns the table of all sources.
    ///
    /// # Errors
    /// The rows cannot be read. Those given before then are right.
    fn replay(
        &mut self,
        each: &mut dyn FnMut(&crate::SourceTable, &Row),
    ) -> Result<crate::SourceTable, Self::Error>;
}

impl Row {
    /// The CPU that it is of.
    pub fn cpu(&self) -> Cpu {
        self.span().cpu
    }

    /// Its source.
    pub fn source(&self) -> SourceId {
        self.span().source
    }

    /// The interval: the span itself, the window that was summed over, or the moment of an edge.
    pub fn span(&self) -> &Span {
        match self {
            Self::Span(span) => span,
            Self::Sum(sum) => &sum.span,
            Self::Frame(frame) => &frame.span,
            Self::Edge(edge) => &edge.span,
        }
    }
}
