//! Determines when lost datagrams were sent. Uses the sender's answer if there is one. Otherwise,
//! assumes that the lost datagrams were evenly spaced between their neighbours.

use ticktax_model::Nanos;

use super::{Gap, LATEST};
use crate::departures::Departure;

/// The sender's answers about when the datagrams in gaps were sent, sorted by number.
#[derive(Debug, Default)]
pub(super) struct SenderTimes(Vec<Departure>);

impl SenderTimes {
    /// Adds the answer about the gap from `first` to `end` (exclusive). Returns `false` if the
    /// answer is invalid. A valid answer includes the gap's first and last datagrams.
    pub(super) fn take(&mut self, first: u64, end: u64, answer: &[Departure]) -> bool {
        let ends = answer.first().zip(answer.last());
        let is_whole = ends.is_some_and(|(from, to)| from.0 == first && to.0 + 1 == end);
        let in_order = answer
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let is_after = self.0.last().is_none_or(|last| last.0 < first);
        let is_valid = is_whole && in_order && is_after;
        if is_valid {
            let sane = |at: Nanos| Nanos(at.0.clamp(-LATEST.0, LATEST.0));
            self.0
                .extend(answer.iter().map(|&(number, at)| (number, sane(at))));
        }
        is_valid
    }

    /// Returns the known departures in a gap, including those of its first and last datagrams.
    pub(super) fn of_gap(&self, gap: &Gap) -> Vec<Departure> {
        let place = |number| self.0.partition_point(|known| known.0 < number);
        let answer = &self.0[place(gap.first)..place(gap.end)];
        if answer.is_empty() {
            return vec![(gap.first, gap.sent.0), (gap.end - 1, gap.sent.1)];
        }
        answer.to_vec()
    }
}

/// Interpolates when each datagram from the first to the last in `known` was sent.
pub(super) fn each(known: &[Departure]) -> impl Iterator<Item = Nanos> {
    let first = known.iter().take(1).map(|&(_, at)| at);
    let others = known.windows(2).flat_map(|pair| {
        let (from, to) = (pair[0], pair[1]);
        let numbers = from.0 + 1..=to.0;
        numbers.map(move |number| crate::departures::between(from, to, number))
    });
    first.chain(others)
}

/// Returns the number of the last datagram sent by `moment`. Returns `None` unless `known` extends
/// from before `moment` to after it.
pub(super) fn last_by(known: &[Departure], moment: Nanos) -> Option<u64> {
    let next = known.partition_point(|&(_, at)| at <= moment);
    let (from, to) = (known.get(next.checked_sub(1)?)?, known.get(next)?);
    let part = (moment - from.1).share_of(to.1 - from.1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the result lies between two datagram numbers"
    )]
    let steps = (part * (to.0 - from.0) as f64) as u64;
    Some(from.0 + steps)
}
