//! What became of a paced loop: the statement of a loop of our own, or of another process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CpuReading, CpuStatement, Figures, LoopSpec, PaceVariant, Wakeups};
use crate::beats::Periodicity;
use crate::limitation::Limitation;
use crate::machine::Machine;
use crate::policy::PolicyGrant;
use crate::recording::{ProbeFailure, World};
use crate::victim::LateFrames;
use crate::{Cpu, Nanos};

/// What happened to a paced loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PaceStatement {
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// Which world it is of.
    #[serde(default)]
    pub world: World,
    /// The machine.
    pub machine: Machine,
    /// Start, as seconds since 1970 on the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// For how long it was watched.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Whose loop.
    pub subject: Subject,
    /// What became of the frames; `None` where nothing repeats, or nothing was seen.
    pub figures: Option<Figures>,
    /// What held up the frames that were late, where that could be seen.
    #[serde(default)]
    pub late: Option<LateFrames>,
    /// CPU time, by every clock that tells it.
    pub cpu: CpuStatement,
    /// How often it was woken.
    pub wakeups: Option<Wakeups>,
    /// What could not be seen, and why.
    pub limitations: Vec<Limitation>,
    /// What ended it early, if anything did.
    pub ended_early: Option<PaceEnd>,
}

impl PaceStatement {
    /// The loop that ticktax ran, as the only variant of a comparison; `None` where it watched another.
    pub fn as_variant(&self) -> Option<PaceVariant> {
        let Subject::Loop(report) = &self.subject else {
            return None;
        };
        let own = self.cpu.readings.first();
        Some(PaceVariant {
            spec: report.spec,
            turns: 1,
            figures: self.figures.clone(),
            cpu_time: own.map_or(Nanos::ZERO, |it| it.time),
            elapsed: own.map_or(self.elapsed, |it| it.elapsed),
            readings: self.cpu.readings.clone(),
            margin: report.margin,
            by_turn: Vec::new(),
        })
    }
}

/// Whose loop it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// One that ticktax ran.
    Loop(LoopReport),
    /// A process that was there already, and was only watched.
    Process(ProcessReport),
}

/// A loop that ticktax ran: what it was asked for, and what it got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopReport {
    /// What it was asked for.
    #[serde(flatten)]
    pub spec: LoopSpec,
    /// Where it ran.
    pub cpu: Cpu,
    /// The scheduling policy that it asked for and got.
    pub policy: PolicyGrant,
    /// By how much the kernel may be late with this thread's timers, on purpose.
    #[serde(rename = "timer_slack_ns")]
    pub timer_slack: Option<Nanos>,
    /// How long before a frame is due [`SleepMethod::Hybrid`](super::SleepMethod::Hybrid) begins to spin.
    #[serde(rename = "margin_ns")]
    pub margin: Option<Nanos>,
    /// Frames that were run but not handed over, and are in none of the figures.
    pub frames_lost: u64,
}

/// How a loop of ticktax's own ran, or one in the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopRun {
    /// What it was asked for, and what it got.
    pub report: LoopReport,
    /// For how long it ran.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Its CPU time, by every clock that tells it; its thread's own comes first.
    pub readings: Vec<CpuReading>,
    /// How often it was woken.
    pub wakeups: Option<Wakeups>,
    /// The failure that ended it early, if one did.
    pub error: Option<ProbeFailure>,
}

/// Why a loop was not run or watched for as long as was asked. Its `id` is stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum PaceEnd {
    /// The loop could not go on.
    Failed {
        /// Why.
        failure: ProbeFailure,
    },
    /// The process that was watched ended.
    ProcessEnded {
        /// Its number.
        pid: i32,
    },
    /// It was interrupted.
    Interrupted,
    /// It was interrupted while variants were compared.
    InterruptedInTurn {
        /// In which turn, from 1.
        turn: u64,
        /// How many there were to be.
        turns: u64,
    },
}

/// A process that was watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessReport {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// The thread whose rhythm was taken for the frames', by its place in `threads`.
    pub chosen: Option<usize>,
    /// Its threads that were seen, the strongest rhythm first.
    pub threads: Vec<ThreadReport>,
}

/// A thread of a watched process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadReport {
    /// Its number.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// How often it was woken.
    pub wakeups: u64,
    /// How often it was woken on a CPU that idled.
    pub ended_idle: u64,
    /// CPU time of its runs.
    #[serde(rename = "cpu_time_ns")]
    pub cpu: Nanos,
    /// What in it repeats, the strongest first.
    pub rhythms: Vec<RhythmReport>,
    /// Why nothing does, nothing could be found, or what repeats is not taken for its process' frames.
    pub why_none: Option<String>,
}

/// What marks a frame of another program's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FrameMark {
    /// Every wakeup.
    Wakeups,
    /// Wakeups after which the thread worked far longer than usual: it polls the clock in naps.
    LongRuns,
}

/// Something in a thread that repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RhythmReport {
    /// Of which events.
    pub mark: FrameMark,
    /// Its period, and how surely that is one.
    #[serde(flatten)]
    pub rhythm: Periodicity,
    /// Its events' time as a share of the time watched.
    pub share: f64,
}
