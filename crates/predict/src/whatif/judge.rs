//! Computes a simulated run's figures in the same way as a recording's.

use ticktax_analysis::pace::{FrameStats, Terms};
use ticktax_analysis::{Auditor, figures, of_frames};
use ticktax_model::comparison::Measure;
use ticktax_model::pace::Frame;
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::{Nanos, SourceTable};
use ticktax_sim::{Frames, Setup, SetupError, Step, TaskId, follow, record};

/// A simulated run to compute figures for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedRun<'a> {
    /// The setup to simulate.
    pub(super) setup: &'a Setup,
    /// The task to observe.
    pub(super) task: Option<TaskId>,
    /// Whether the user gave the task's period. If not, it was estimated from the recording.
    pub(super) asked_for: bool,
}

/// Passes rows on to an auditor, and collects the frames of the observed task.
struct Judge {
    auditor: Auditor,
    frames: Frames,
}

impl RowSink for Judge {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.auditor.row(sources, row);
        self.frames.row(sources, row);
    }
}

/// Simulates the run and returns its figures.
pub(super) fn judge(run: SimulatedRun<'_>) -> Result<Vec<(Measure, f64)>, SetupError> {
    let mut judge = Judge {
        auditor: Auditor::new(&ticktax_sim::facts(run.setup)).without_beats(),
        frames: Frames::default(),
    };
    let Some(task) = run.task else {
        let (_, header, sources) = record(run.setup, &mut judge)?;
        return Ok(figures(&judge.auditor.finish(&header, &sources, 1), None));
    };
    let followed = follow(run.setup, task, &mut judge)?;
    let Judge {
        mut auditor,
        frames: Frames(frames),
    } = judge;
    let victim = followed.header.victim.as_ref();
    let pid = victim.and_then(|victim| victim.pid);
    if let Some(pid) = pid {
        auditor.list_program(pid);
    }
    let statement = auditor.finish(&followed.header, &followed.sources, 1);
    let mut figures = figures(&statement, pid);
    let elapsed = followed.report.elapsed;
    if elapsed > Nanos::ZERO {
        let sleeps = followed.report.tasks[task.index()].sleeps;
        figures.push((Measure::Wakeups, sleeps as f64 / elapsed.as_secs_f64()));
    }
    let mut stats = FrameStats::new(terms(&run, task, &frames));
    for frame in frames {
        stats.frame(frame);
    }
    if let Some(mut frame_figures) = stats.close().figures() {
        // A program with fixed steps follows its own schedule, so use the number of missed steps
        // that the simulator counted.
        let program = &run.setup.tasks[task.index()].program;
        if program
            .iter()
            .any(|step| matches!(step, Step::Every { .. }))
        {
            frame_figures.overshot = followed.report.tasks[task.index()].overshot;
        }
        figures.extend(of_frames(&frame_figures, elapsed));
    }
    Ok(figures)
}

/// Returns the criteria by which frames are judged. For a program without a period, the mean time
/// between its frames is used instead.
fn terms(run: &SimulatedRun<'_>, task: TaskId, frames: &[Frame]) -> Terms {
    let period = run.setup.tasks[task.index()].period();
    Terms {
        period: period.or_else(|| mean_interval(frames)).unwrap_or(Nanos(1)),
        overshot_from: None,
        asked_for: run.asked_for && period.is_some(),
    }
}

fn mean_interval(frames: &[Frame]) -> Option<Nanos> {
    let (first, last) = (frames.first()?, frames.last()?);
    let intervals = i64::try_from(frames.len()).ok()? - 1;
    (intervals > 0).then(|| Nanos((last.began - first.began).0 / intervals))
}

/// Simulates `setup` and passes its rows to `sink`. Returns the header of the recording.
///
/// # Errors
/// Returns an error if the setup is invalid.
pub fn rows(
    setup: &Setup,
    task: Option<TaskId>,
    sink: &mut dyn RowSink,
) -> Result<Header, SetupError> {
    match task {
        Some(task) => Ok(follow(setup, task, sink)?.header),
        None => Ok(record(setup, sink)?.1),
    }
}
