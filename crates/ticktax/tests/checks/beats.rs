//! Disturbances with a known rhythm. ticktax must find and name their period, and report no other.

use libtest_mimic::Failed;
use ticktax_inject::Truth;
use ticktax_model::Nanos;
use ticktax_model::beats::{BeatKind, BeatLine, BeatStatement};

use super::check;

/// Returns the periodic on-CPU times of the injecting thread. A followed thread may also have
/// periodic sleeps.
fn beats<'a>(truth: &Truth, all: &'a BeatStatement) -> Vec<&'a BeatLine> {
    let beats = all.beats.iter();
    let runs = beats.filter(|line| line.kind == BeatKind::Thread);
    runs.filter(|line| line.tids.contains(&truth.tid)).collect()
}

/// Returns the only periodic activity of the injecting thread. Fails unless there is exactly one.
fn only<'a>(truth: &Truth, all: &'a BeatStatement) -> Result<&'a BeatLine, Failed> {
    match beats(truth, all)[..] {
        [line] => Ok(line),
        ref lines => Err(format!("{} beats of the thread: {all:#?}", lines.len()).into()),
    }
}

/// Checks that the thread's period was found with a low false-alarm probability, together with the
/// timer that wakes it.
pub(crate) fn has_its_period_and_its_timer(
    truth: &Truth,
    period: Nanos,
    all: &BeatStatement,
) -> Result<(), Failed> {
    let line = only(truth, all)?;
    let off = line.rhythm.period / period.0 as f64 - 1.0;
    check(off.abs() < 1e-3, || format!("off by {off}: {line:#?}"))?;
    check(line.rhythm.false_alarm < 1e-6, || format!("{line:#?}"))?;
    is_caused_by_its_timer(truth, all)
}

/// Checks that the only period of the thread is caused by its sleep timer: the injector waits on a
/// timerfd.
pub(crate) fn is_caused_by_its_timer(truth: &Truth, all: &BeatStatement) -> Result<(), Failed> {
    let line = only(truth, all)?;
    let right = line.chain == ["local_timer timerfd_tmrproc", &*line.name];
    check(right, || format!("{line:#?}"))
}

/// Checks that a thread that runs at random times has no period.
pub(crate) fn has_no_period(truth: &Truth, all: &BeatStatement) -> Result<(), Failed> {
    let lines = beats(truth, all);
    check(lines.is_empty(), || format!("{lines:#?}"))
}
