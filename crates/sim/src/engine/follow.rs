//! One task followed: its frames, and why it was off its CPU, as a tracer follows a program.

use ticktax_model::Nanos;
use ticktax_model::SourceTable;
use ticktax_model::pace::Frame;
use ticktax_model::recording::{Header, Paced, Row, RowSink};
use ticktax_model::victim::OffCpuReason;

use super::Engine;
use crate::paced::{FrameSums, loop_run};
use crate::record::{Recorder, header};
use crate::report::Report;
use crate::setup::{Setup, SetupError};
use crate::task::{State, TaskId};

/// What came of a simulation in which a task was followed.
#[derive(Clone, Debug)]
pub struct Followed {
    /// What came of it as a whole.
    pub report: Report,
    /// The header of its recording; the task is its victim, and where it has a rhythm, its loop.
    pub header: Header,
    /// What the rows point into.
    pub sources: SourceTable,
}

/// Runs a simulation, hands the rows of its recording to `sink`, and follows `task`: its waits are
/// among the rows, as in a live recording of a program that was asked for, and its frames, as in one
/// of a loop. A [`Step::Frame`](crate::Step::Frame) begins a frame, and the next step that sleeps or
/// spins ends it; one that was not done at the end is left out. A frame was due when the wait before
/// it was to end.
///
/// # Errors
/// The setup cannot be run ([`Setup::check`]), or has no such task.
pub fn follow(setup: &Setup, task: TaskId, sink: &mut dyn RowSink) -> Result<Followed, SetupError> {
    setup.check()?;
    if task.index() >= setup.tasks.len() {
        return Err(SetupError {
            what: format!("task {}", task.0),
            why: "it is to be followed, and is not there".to_owned(),
        });
    }
    let mut engine = Engine::new(setup, Some(Recorder::new(setup, sink, Some(task))));
    engine.follower = Some(Follower::new(task));
    engine.go();
    let frames = engine.follower.as_ref().map(|follower| follower.frames);
    let (report, sources) = engine.close();
    let mut header = header(setup, &report, Some(task));
    let run = loop_run(setup, &report, &header, task, &frames.unwrap_or_default());
    header.paced = run.map(|run| Paced::Loop(Box::new(run)));
    Ok(Followed {
        report,
        header,
        sources: sources.unwrap_or_default(),
    })
}

/// Keeps the frames among rows.
#[derive(Debug, Default)]
pub struct Frames(pub Vec<Frame>);

impl RowSink for Frames {
    fn row(&mut self, _: &SourceTable, row: &Row) {
        if let Row::Frame(frame) = row {
            self.0.push(frame.frame());
        }
    }
}

/// Runs a simulation for the frames of `task` alone, as [`follow`] does.
///
/// # Errors
/// Where the setup makes no sense, or has no such task.
pub fn frames(setup: &Setup, task: TaskId) -> Result<(Followed, Vec<Frame>), SetupError> {
    let mut frames = Frames::default();
    let followed = follow(setup, task, &mut frames)?;
    Ok((followed, frames.0))
}

/// What is kept of a task that is followed.
#[derive(Debug)]
pub(super) struct Follower {
    task: TaskId,
    frames: FrameSums,
    /// The frame that is under way, and how much the task had run when it began.
    open: Option<(Frame, Nanos)>,
    /// Why the task is off its CPU, and since when.
    off: Option<(OffCpuReason, Nanos)>,
}

impl Follower {
    fn new(task: TaskId) -> Self {
        Self {
            task,
            frames: FrameSums::default(),
            open: None,
            off: None,
        }
    }
}

impl Engine<'_> {
    /// `task` begins a frame now.
    pub(super) fn begin_frame(&mut self, task: TaskId) {
        self.end_frame(task);
        let now = self.now;
        let notes = &mut self.tasks[task.index()];
        notes.report.frames += 1;
        if notes.due <= notes.frame_at {
            // Nothing said when it was due.
            notes.due = now;
        }
        notes.frame_at = now;
        let notes = &self.tasks[task.index()];
        if let Some(follower) = self.follower.as_mut().filter(|it| it.task == task) {
            let frame = Frame {
                due: notes.due.min(self.now),
                began: self.now,
                ended: self.now,
                cpu: Nanos::ZERO,
            };
            follower.open = Some((frame, notes.report.ran));
        }
    }

    /// The frame of `task`, if one is under way, has done its work.
    pub(super) fn end_frame(&mut self, task: TaskId) {
        let notes = &self.tasks[task.index()];
        let ran = notes.report.ran;
        let cpu = match notes.state {
            State::Running(cpu) => cpu,
            _ => notes.last_cpu,
        };
        if let Some(follower) = self.follower.as_mut().filter(|it| it.task == task)
            && let Some((frame, ran_before)) = follower.open.take()
        {
            let frame = Frame {
                ended: self.now,
                cpu: ran - ran_before,
                ..frame
            };
            follower.frames.add(&frame, cpu);
            if let Some(recorder) = &mut self.recorder {
                recorder.frame(cpu, &frame);
            }
        }
    }

    /// `task` is off its CPU from now on, or for another reason; a wait before that is handed on,
    /// as told by `cpu`.
    pub(super) fn is_off(&mut self, cpu: usize, task: TaskId, why: Option<OffCpuReason>) {
        let now = self.now;
        let Some(follower) = self.follower.as_mut().filter(|it| it.task == task) else {
            return;
        };
        let before = std::mem::replace(&mut follower.off, why.map(|why| (why, now)));
        if let (Some((why, since)), Some(recorder)) = (before, &mut self.recorder)
            // One that is woken and runs at once is a wake-up like any other.
            && (since < now || why == OffCpuReason::Woken)
        {
            recorder.wait(cpu, why, since, now);
        }
    }

    /// `task` leaves its CPU; `goes_on` where it could have run on.
    pub(super) fn leaves(&mut self, cpu: usize, task: TaskId, goes_on: bool) {
        let why = match self.tasks[task.index()].state {
            // Told when its quota is filled up.
            State::Throttled => None,
            _ if goes_on => Some(OffCpuReason::Preempted),
            State::Sleeping | State::Blocked | State::Waiting => Some(OffCpuReason::Sleeping),
            _ => None,
        };
        self.is_off(cpu, task, why);
    }

    /// Records the wait that is still under way.
    pub(super) fn end_waits(&mut self) {
        if let Some(task) = self.follower.as_ref().map(|follower| follower.task) {
            let cpu = self.tasks[task.index()].last_cpu;
            self.is_off(cpu, task, None);
        }
    }
}
