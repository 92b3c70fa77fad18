//! Extracts the watched program's figures from a statement, for comparisons of recordings and for
//! trials.

use ticktax_model::Nanos;
use ticktax_model::comparison::Measure;
use ticktax_model::statement::Statement;
use ticktax_model::victim::{ThreadState, VictimStatement};

/// Returns a figure for the watched program, which was observed for `wall`. Returns `None` if no
/// program was watched or the figure was not measured.
pub(crate) fn of_program(statement: &Statement, wall: Nanos, measure: Measure) -> Option<f64> {
    use Measure as M;
    let victim = statement.victim.as_ref()?;
    let frames = victim.frames.as_ref().map(|frames| &frames.figures);
    let minutes = wall.as_secs_f64() / 60.0;
    let latency = victim.threads.as_ref().and_then(|threads| threads.latency);
    match measure {
        M::WaitedShare => share(victim, ThreadState::Waiting),
        M::WaitedPerSecond => Some(time(victim, ThreadState::Waiting)?.share_of(wall)),
        M::ThrottledShare => share(victim, ThreadState::Throttled),
        M::RanShare => share(victim, ThreadState::Running),
        M::LatencyMedian => Some(latency?.lengths.median.0 as f64),
        M::LatencyP99 => Some(latency?.lengths.p99?.0 as f64),
        M::LatencyMax => Some(latency?.lengths.max.0 as f64),
        M::Fps => frames?.average_fps,
        M::Dropped => Some(frames?.dropped as f64 / minutes),
        M::LatePerMinute => Some(frames?.late as f64 / minutes),
        _ => None,
    }
}

/// Returns the total time that the program's threads spent in `state`, or `None` if it was not
/// measured.
pub(crate) fn time(victim: &VictimStatement, state: ThreadState) -> Option<Nanos> {
    sum(victim, |other| other == state)
}

/// Returns the time in `state` as a share of the time that the program needed a CPU. Returns `None`
/// if either time was not measured.
pub(crate) fn share(victim: &VictimStatement, state: ThreadState) -> Option<f64> {
    Some(time(victim, state)?.share_of(sum(victim, ThreadState::is_wanted)?))
}

/// Returns the total time that the threads spent in the states that `is_selected` accepts, or
/// `None` if it was not measured.
pub(crate) fn sum(
    victim: &VictimStatement,
    is_selected: impl Fn(ThreadState) -> bool,
) -> Option<Nanos> {
    let accounts = victim.threads.as_ref()?.accounts.iter();
    Some(
        accounts
            .filter(|account| is_selected(account.state))
            .map(|account| account.time)
            .sum(),
    )
}
