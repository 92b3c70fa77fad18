//! Follows one task the way the tracer follows a program: records the task's frames, and the
//! reasons why it was not running.

use ticktax_model::Nanos;
use ticktax_model::SourceTable;
use ticktax_model::pace::Frame;
use ticktax_model::recording::{Header, Paced, Row, RowSink};
use ticktax_model::victim::OffCpuReason;

use super::Engine;
use crate::paced::{FrameSums, loop_run};
use crate::record::{Recorder, header};
use crate::report::Report;
use crate::setup::{Setup, SetupError, SetupFault, SetupPart};
use crate::task::{State, TaskId};

/// Results of a simulation in which a task was followed.
#[derive(Clone, Debug)]
pub struct Followed {
    /// Report on the entire simulation.
    pub report: Report,
    /// Header of the recording, with the task as the audited program. If the task is a paced loop,
    /// the header also contains its frame statistics.
    pub header: Header,
    /// Table of the sources that rows refer to.
    pub sources: SourceTable,
}

/// Runs a simulation and passes the rows of its recording to `sink`, including the waits and frames
/// of `task`.
///
/// Waits are recorded as for a live program, and frames as for a paced loop. A
/// [`Step::Frame`](crate::Step::Frame) starts a frame, and the next step that sleeps or spins ends
/// it. A frame is due at the intended end of the preceding wait. A frame still in progress at the
/// end of the simulation is omitted.
///
/// # Errors
/// Returns an error if the setup is invalid ([`Setup::check`]), or if `task` does not exist.
pub fn follow(setup: &Setup, task: TaskId, sink: &mut dyn RowSink) -> Result<Followed, SetupError> {
    setup.check()?;
    if task.index() >= setup.tasks.len() {
        return Err(SetupError {
            part: SetupPart::Task(task.0.to_string()),
            fault: SetupFault::NotFollowed,
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

/// A sink that collects frames and ignores all other rows.
#[derive(Debug, Default)]
pub struct Frames(pub Vec<Frame>);

impl RowSink for Frames {
    fn row(&mut self, _: &SourceTable, row: &Row) {
        if let Row::Frame(frame) = row {
            self.0.push(frame.frame());
        }
    }
}

/// Runs a simulation like [`follow`], and collects the frames of `task`.
///
/// # Errors
/// Returns an error if the setup is invalid, or if `task` does not exist.
pub fn frames(setup: &Setup, task: TaskId) -> Result<(Followed, Vec<Frame>), SetupError> {
    let mut frames = Frames::default();
    let followed = follow(setup, task, &mut frames)?;
    Ok((followed, frames.0))
}

/// The followed task, and its frame and wait in progress.
#[derive(Debug)]
pub(super) struct Follower {
    task: TaskId,
    frames: FrameSums,
    /// The frame in progress, and the task's CPU time at its start.
    open: Option<(Frame, Nanos)>,
    /// Why the task is not running, and since when; `None` if it is running, or if the reason is
    /// recorded elsewhere.
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
    pub(super) fn begin_frame(&mut self, task: TaskId) {
        self.end_frame(task);
        let now = self.now;
        let notes = &mut self.tasks[task.index()];
        notes.report.frames += 1;
        if notes.due <= notes.frame_at {
            // The program has not set a due time since the last frame, so count this frame as on
            // time.
            notes.due = now;
        }
        notes.frame_at = now;
        let notes = &self.tasks[task.index()];
        if let Some(follower) = self
            .follower
            .as_mut()
            .filter(|follower| follower.task == task)
        {
            let frame = Frame {
                due: notes.due.min(self.now),
                began: self.now,
                ended: self.now,
                cpu: Nanos::ZERO,
            };
            follower.open = Some((frame, notes.report.ran));
        }
    }

    pub(super) fn end_frame(&mut self, task: TaskId) {
        let notes = &self.tasks[task.index()];
        let ran = notes.report.ran;
        let cpu = match notes.state {
            State::Running(cpu) => cpu,
            _ => notes.last_cpu,
        };
        if let Some(follower) = self
            .follower
            .as_mut()
            .filter(|follower| follower.task == task)
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

    /// Sets the reason why `task` is not running, or `None` if it is running or the reason is
    /// recorded elsewhere. Emits the wait that ends now as a row of `cpu`.
    pub(super) fn is_off(&mut self, cpu: usize, task: TaskId, why: Option<OffCpuReason>) {
        let now = self.now;
        let Some(follower) = self
            .follower
            .as_mut()
            .filter(|follower| follower.task == task)
        else {
            return;
        };
        let before = std::mem::replace(&mut follower.off, why.map(|why| (why, now)));
        if let (Some((why, since)), Some(recorder)) = (before, &mut self.recorder)
            // Record a wake-up even if the task ran immediately.
            && (since < now || why == OffCpuReason::Woken)
        {
            recorder.wait(cpu, why, since, now);
        }
    }

    /// Records that `task` stops running on `cpu`. `goes_on` is true if it remains runnable.
    pub(super) fn leaves(&mut self, cpu: usize, task: TaskId, goes_on: bool) {
        let why = match self.tasks[task.index()].state {
            // Throttled time is recorded when the quota is refilled.
            State::Throttled => None,
            _ if goes_on => Some(OffCpuReason::Preempted),
            State::Sleeping | State::Blocked | State::Waiting => Some(OffCpuReason::Sleeping),
            _ => None,
        };
        self.is_off(cpu, task, why);
    }

    /// Records the wait in progress at the end of the simulation.
    pub(super) fn end_waits(&mut self) {
        if let Some(task) = self.follower.as_ref().map(|follower| follower.task) {
            let cpu = self.tasks[task.index()].last_cpu;
            self.is_off(cpu, task, None);
        }
    }
}
