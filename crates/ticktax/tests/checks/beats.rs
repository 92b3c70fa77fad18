//! Checks disturbances with a known period. ticktax must find this period and name its source, and
//! must not report any other period for it.

use libtest_mimic::Failed;
use ticktax_inject::Truth;
use ticktax_model::Nanos;
use ticktax_model::beats::{BeatKind, BeatLine, BeatStatement};

use super::check;

/// Returns the periods found in the injecting thread's on-CPU times. Periods of its sleeps, which
/// may also be found if the thread is followed, are left out.
fn beats<'a>(truth: &Truth, all: &'a BeatStatement) -> Vec<&'a BeatLine> {
    let beats = all.beats.iter();
    let runs = beats.filter(|line| line.kind == BeatKind::Thread);
    runs.filter(|line| line.tids.contains(&truth.tid)).collect()
}

/// Returns the only period of the injecting thread. Fails unless exactly one period was found.
fn only<'a>(truth: &Truth, all: &'a BeatStatement) -> Result<&'a BeatLine, Failed> {
    match beats(truth, all)[..] {
        [line] => Ok(line),
        ref lines => Err(format!("{} beats of the thread: {all:#?}", lines.len()).into()),
    }
}

/// Checks that the thread's period was found with a low false-alarm probability, together with the
/// timer that wakes the thread.
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

/// Checks that the thread has only one period, caused by the timer on which the injector waits (a
/// timerfd).
pub(crate) fn is_caused_by_its_timer(truth: &Truth, all: &BeatStatement) -> Result<(), Failed> {
    let line = only(truth, all)?;
    let right = line.chain == ["local_timer timerfd_tmrproc", &*line.name];
    check(right, || format!("{line:#?}"))
}

pub(crate) fn has_no_period(truth: &Truth, all: &BeatStatement) -> Result<(), Failed> {
    let lines = beats(truth, all);
    check(lines.is_empty(), || format!("{lines:#?}"))
}
