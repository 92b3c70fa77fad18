//! A run of the model, judged as a recording is.

use ticktax_analysis::pace::{FrameStats, Terms};
use ticktax_analysis::{Auditor, figures, of_frames};
use ticktax_experiment::whatif::Run;
use ticktax_model::Nanos;
use ticktax_model::pace::Frame;
use ticktax_model::prediction::{Figure, Measure};
use ticktax_model::recording::RecordingWriter;
use ticktax_sim::{Setup, SetupError, TaskId};

use crate::failure::Failure;

/// Runs it and tells what it gave. `asked_for` says whether the period is what the loop was asked
/// for, rather than what was found in it.
pub(super) fn judge(run: &Run<'_>, asked_for: bool) -> Result<Vec<Figure>, SetupError> {
    let mut auditor = Auditor::new(&ticktax_sim::facts(run.setup)).without_beats();
    let Some(task) = run.task else {
        let (_, header, sources) = ticktax_sim::record(run.setup, &mut auditor)?;
        return Ok(figures(&auditor.finish(&header, &sources, 1), None));
    };
    let followed = ticktax_sim::follow(run.setup, task, &mut auditor)?;
    let pid = followed
        .header
        .victim
        .as_ref()
        .and_then(|victim| victim.pid);
    if let Some(pid) = pid {
        auditor.list_program(pid);
    }
    let statement = auditor.finish(&followed.header, &followed.sources, 1);
    let mut figures = figures(&statement, pid);
    let elapsed = followed.report.elapsed;
    if elapsed > Nanos::ZERO {
        let sleeps = followed.report.tasks[task.index()].sleeps;
        figures.push(Figure {
            measure: Measure::Wakeups,
            value: sleeps as f64 / elapsed.as_secs_f64(),
            interval: None,
        });
    }
    let tick = 1_000_000_000
        / i64::try_from(run.setup.machine.hz)
            .unwrap_or(i64::MAX)
            .max(1);
    let mut book = FrameStats::new(Terms {
        period: run
            .period
            .or_else(|| mean_interval(&followed.frames))
            .unwrap_or(Nanos(1)),
        overshot_from: Nanos(tick),
        asked_for: asked_for && run.period.is_some(),
    });
    for frame in &followed.frames {
        book.frame(*frame);
    }
    if let Some(told) = book.close().figures() {
        figures.extend(of_frames(&told, elapsed));
    }
    Ok(figures)
}

/// The mean time from frame to frame, of a program that names none.
fn mean_interval(frames: &[Frame]) -> Option<Nanos> {
    let (first, last) = (frames.first()?, frames.last()?);
    let intervals = i64::try_from(frames.len()).ok()? - 1;
    (intervals > 0).then(|| Nanos((last.began - first.began).0 / intervals))
}

/// Runs it once more, into a file.
pub(super) fn save(
    setup: &Setup,
    task: Option<TaskId>,
    mut file: RecordingWriter,
) -> Result<(), Failure> {
    let wrong = |error: SetupError| Failure::Prediction(error.to_string());
    let header = match task {
        Some(task) => {
            ticktax_sim::follow(setup, task, &mut file)
                .map_err(wrong)?
                .header
        }
        None => ticktax_sim::record(setup, &mut file).map_err(wrong)?.1,
    };
    Ok(file.finish(&header)?)
}
