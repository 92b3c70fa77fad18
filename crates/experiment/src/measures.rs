//! What a statement says of the program that it is about, one number each: the same for a comparison of two
//! recordings and for a trial.

use ticktax_model::Nanos;
use ticktax_model::changes::ChangeMeasure;
use ticktax_model::statement::Statement;
use ticktax_model::victim::{ThreadState, VictimStatement};

/// One number about the program that was asked for; `None` where it was not measured, or there is no program. `wall` is
/// how long was watched.
pub(crate) fn of_program(
    statement: &Statement,
    wall: Nanos,
    measure: ChangeMeasure,
) -> Option<f64> {
    use ChangeMeasure as M;
    let victim = statement.victim.as_ref()?;
    let frames = victim.frames.as_ref().map(|frames| &frames.figures);
    let minutes = wall.as_secs_f64() / 60.0;
    let latency = victim.threads.as_ref().and_then(|it| it.latency);
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

/// How long its threads were in a state, together.
pub(crate) fn time(victim: &VictimStatement, state: ThreadState) -> Option<Nanos> {
    sum(victim, |it| it == state)
}

/// The part that a state had of the time that the program wanted.
pub(crate) fn share(victim: &VictimStatement, state: ThreadState) -> Option<f64> {
    Some(time(victim, state)?.share_of(sum(victim, ThreadState::is_wanted)?))
}

/// The time of these states.
pub(crate) fn sum(victim: &VictimStatement, of: impl Fn(ThreadState) -> bool) -> Option<Nanos> {
    let accounts = victim.threads.as_ref()?.accounts.iter();
    Some(accounts.filter(|it| of(it.state)).map(|it| it.time).sum())
}
