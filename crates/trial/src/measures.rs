//! Extracts the watched program's figures from a statement. Used when comparing recordings and in
//! trials.

use ticktax_model::Nanos;
use ticktax_model::changes::ChangeMeasure;
use ticktax_model::statement::Statement;
use ticktax_model::victim::{ThreadState, VictimStatement};

/// A figure for the watched program, observed over `wall`. `None` if there is no watched program or
/// the figure was not measured.
pub(crate) fn of_program(
    statement: &Statement,
    wall: Nanos,
    measure: ChangeMeasure,
) -> Option<f64> {
    use ChangeMeasure as M;
    let victim = statement.victim.as_ref()?;
    let frames = victim.frames.as_ref().map(|frames| &frames.figures);
    let minutes = wall.as_secs_f64() / 60.0;
    let latency = victim.threads.as_ref().and_then(|threads| threads.latency);
    match measure {
        M::WaitedShare => share(victim, ThreadState::Waiting),
        M::WaitedPerSecond => Some(time(victim, ThreadState::Waiting)?.share_of(wall)),
        M::ThrottledShare => share(victim, ThreadState::Throttled),
        M::RanShare => share(victim, ThreadState::Running),
        M::LatencyMedianNs => Some(latency?.lengths.median.0 as f64),
        M::LatencyP99Ns => Some(latency?.lengths.p99?.0 as f64),
        M::LatencyMaxNs => Some(latency?.lengths.max.0 as f64),
        M::RateFps => frames?.average_fps,
        M::DroppedPerMinute => Some(frames?.dropped as f64 / minutes),
        M::LatePerMinute => Some(frames?.late as f64 / minutes),
        M::TickRateHz | M::TickMedianNs | M::TickShare => None,
    }
}

/// Total time that the program's threads spent in `state`.
pub(crate) fn time(victim: &VictimStatement, state: ThreadState) -> Option<Nanos> {
    sum(victim, |other| other == state)
}

/// Time in `state`, as a share of the time in which the program needed the CPU.
pub(crate) fn share(victim: &VictimStatement, state: ThreadState) -> Option<f64> {
    Some(time(victim, state)?.share_of(sum(victim, ThreadState::is_wanted)?))
}

/// Total time in all states that `is_selected` accepts.
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
