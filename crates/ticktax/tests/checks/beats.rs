//! Disturbances of known rhythm: what repeats must be found and named, and nothing else.

use libtest_mimic::Failed;
use ticktax_inject::Truth;
use ticktax_model::Nanos;
use ticktax_model::beats::{BeatKind, BeatLine, BeatStatement};

use super::check;

/// The beats of the runs of the thread that made the events. A thread that is followed may have
/// beats of its sleep as well.
fn beats<'a>(truth: &Truth, all: &'a BeatStatement) -> Vec<&'a BeatLine> {
    let beats = all.beats.iter();
    let runs = beats.filter(|line| line.kind == BeatKind::Thread);
    runs.filter(|line| line.tids.contains(&truth.tid)).collect()
}

/// The one beat of the thread that made the events.
fn only<'a>(truth: &Truth, all: &'a BeatStatement) -> Result<&'a BeatLine, Failed> {
    match beats(truth, all)[..] {
        [line] => Ok(line),
        ref lines => Err(format!("{} beats of the thread: {all:#?}", lines.len()).into()),
    }
}

/// A thread has its period, which chance does not make, and the timer that wakes it.
pub(crate) fn has_its_period_and_its_timer(
    truth: &Truth,
    period: Nanos,
    all: &BeatStatement,
) -> Result<(), Failed> {
    let line = only(truth, all)?;
    let off = line.rhythm.period / period.0 as f64 - 1.0;
    check(off.abs() < 1e-3, || format!("off by {off}: {line:#?}"))?;
    check(line.rhythm.false_alarm < 1e-6, || format!("{line:#?}"))?;
    is_of_its_timer(truth, all)
}

/// The cause of a thread's one beat is the timer that it set to sleep: the injector waits for a
/// timer's file.
pub(crate) fn is_of_its_timer(truth: &Truth, all: &BeatStatement) -> Result<(), Failed> {
    let line = only(truth, all)?;
    let right = line.chain == ["local_timer timerfd_tmrproc", &*line.name];
    check(right, || format!("{line:#?}"))
}

/// A thread that runs at random times has no beat.
pub(crate) fn has_none(truth: &Truth, all: &BeatStatement) -> Result<(), Failed> {
    let lines = beats(truth, all);
    check(lines.is_empty(), || format!("{lines:#?}"))
}
