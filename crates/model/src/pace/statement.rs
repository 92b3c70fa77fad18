//! The analysis of a paced loop, whether ticktax or another process runs it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CpuReading, CpuStatement, Figures, LoopSpec, PaceArm, Wakeups};
use crate::beats::Periodicity;
use crate::limitation::Limitation;
use crate::machine::Machine;
use crate::policy::PolicyGrant;
use crate::recording::{ProbeFailure, World};
use crate::victim::LateFrames;
use crate::{Cpu, Nanos};

/// Analysis of a paced loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PaceStatement {
    /// Version of ticktax that wrote the document.
    pub tool_version: String,
    /// Whether the loop ran on a real machine, in a lab guest or in the simulator.
    #[serde(default)]
    pub world: World,
    /// Machine.
    pub machine: Machine,
    /// Start, in seconds since 1970 by the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Time that the loop was watched.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// The loop, if ticktax ran it, or the process that runs it.
    pub subject: Subject,
    /// Frame statistics; `None` if no frame period was found or nothing was observed.
    pub figures: Option<Figures>,
    /// Causes of late frames; `None` if they could not be determined.
    #[serde(default)]
    pub late: Option<LateFrames>,
    /// CPU time according to each available clock.
    pub cpu: CpuStatement,
    /// Number of times the loop woke up, if known.
    pub wakeups: Option<Wakeups>,
    /// Limitations.
    pub limitations: Vec<Limitation>,
    /// Why the observation stopped early; `None` if it ran to the end.
    pub ended_early: Option<PaceEnd>,
}

impl PaceStatement {
    /// Returns ticktax's own loop as the only arm of a comparison; `None` if another process ran
    /// the loop.
    pub fn as_arm(&self) -> Option<PaceArm> {
        let Subject::Loop(report) = &self.subject else {
            return None;
        };
        let own = self.cpu.readings.first();
        Some(PaceArm {
            spec: report.spec,
            turns: 1,
            figures: self.figures.clone(),
            cpu_time: own.map_or(Nanos::ZERO, |reading| reading.time),
            elapsed: own.map_or(self.elapsed, |reading| reading.elapsed),
            readings: self.cpu.readings.clone(),
            margin: report.margin,
            by_turn: Vec::new(),
        })
    }
}

/// The analysed loop: either ticktax's own or another process's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A loop that ticktax ran.
    Loop(LoopReport),
    /// The loop of an existing process, which ticktax only watched.
    Process(ProcessReport),
}

/// A loop that ticktax ran: its specification, and the conditions under which it ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopReport {
    /// Specification.
    #[serde(flatten)]
    pub spec: LoopSpec,
    /// CPU on which the loop ran.
    pub cpu: Cpu,
    /// Requested and granted scheduling policy.
    pub policy: PolicyGrant,
    /// Timer slack of the loop's thread: how much the kernel may delay the thread's timers.
    #[serde(rename = "timer_slack_ns")]
    pub timer_slack: Option<Nanos>,
    /// Time that [`SleepMethod::Hybrid`](super::SleepMethod::Hybrid) spins before each frame is
    /// due.
    #[serde(rename = "margin_ns")]
    pub margin: Option<Nanos>,
    /// Number of frames that ran but could not be reported. All other figures exclude them.
    pub frames_lost: u64,
}

/// Results of a loop that ticktax or the model ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopRun {
    /// Specification and conditions of the loop.
    pub report: LoopReport,
    /// Wall-clock duration of the loop.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// CPU time according to each available clock. The thread's own clock comes first.
    pub readings: Vec<CpuReading>,
    /// Number of times the loop woke up, if known.
    pub wakeups: Option<Wakeups>,
    /// Error that stopped the loop early; `None` if it ran to the end.
    pub error: Option<ProbeFailure>,
}

/// Why a loop did not run, or was not watched, for the requested time. Each reason has a stable
/// `id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum PaceEnd {
    /// The loop failed.
    Failed {
        /// Error that stopped the loop.
        failure: ProbeFailure,
    },
    /// The watched process exited.
    ProcessExited {
        /// Process id.
        pid: i32,
    },
    /// The loop was interrupted by the user or by a signal.
    Interrupted,
    /// A comparison of several arms was interrupted by the user or by a signal.
    InterruptedInTurn {
        /// Number of the turn that was interrupted, from 1.
        turn: u64,
        /// Planned number of turns, over all arms.
        turns: u64,
    },
}

/// A watched process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessReport {
    /// Process id.
    pub pid: i32,
    /// Process name.
    pub name: String,
    /// Index in `threads` of the thread whose period serves as the frame period.
    pub chosen: Option<usize>,
    /// Observed threads, strongest period first.
    pub threads: Vec<ThreadReport>,
}

/// A thread of a watched process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadReport {
    /// Thread id.
    pub tid: i32,
    /// Thread name.
    pub name: String,
    /// Number of wake-ups.
    pub wakeups: u64,
    /// Number of wake-ups that ended a CPU's idle period.
    pub idle_exits: u64,
    /// CPU time of the thread.
    #[serde(rename = "cpu_time_ns")]
    pub cpu: Nanos,
    /// Periodic sequences of events in the thread, strongest first.
    pub periods: Vec<RhythmReport>,
    /// Why the thread has no periodic events, or why they do not count as the process's frames;
    /// `None` if they do.
    pub no_frames_reason: Option<String>,
}

/// Kind of events that mark the frames of another program's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FrameMark {
    /// All wake-ups.
    Wakeups,
    /// Wake-ups followed by far more work than usual. All others only poll the clock.
    LongRuns,
}

/// A periodic sequence of events in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RhythmReport {
    /// Kind of events in the sequence.
    pub events: FrameMark,
    /// Period and significance.
    #[serde(flatten)]
    pub rhythm: Periodicity,
    /// Total time of the events as a share of the observed time, 0 to 1.
    pub share: f64,
}
