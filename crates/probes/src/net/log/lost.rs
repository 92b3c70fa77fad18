//! When those that never came were sent: as the sender says, else evenly between those around them.

use ticktax_model::Nanos;

use super::{Gap, LATEST};
use crate::net::departures::Departure;

/// What the sender has said about gaps, in order.
#[derive(Debug, Default)]
pub(super) struct Told(Vec<Departure>);

impl Told {
    /// Takes what was said about a gap: its first, its last and what is between; false where that is not it.
    pub(super) fn take(&mut self, (first, end): (u64, u64), said: &[Departure]) -> bool {
        let ends = said.first().zip(said.last());
        let is_whole = ends.is_some_and(|(from, to)| from.0 == first && to.0 + 1 == end);
        let in_order = said
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let is_after = self.0.last().is_none_or(|last| last.0 < first);
        let is_it = is_whole && in_order && is_after;
        if is_it {
            let sane = |at: Nanos| Nanos(at.0.clamp(-LATEST.0, LATEST.0));
            self.0.extend(said.iter().map(|it| (it.0, sane(it.1))));
        }
        is_it
    }

    /// What is known of a gap: its first, its last and what is between.
    pub(super) fn of(&self, gap: &Gap) -> Vec<Departure> {
        let place = |number| self.0.partition_point(|it| it.0 < number);
        let said = &self.0[place(gap.first)..place(gap.end)];
        if said.is_empty() {
            return vec![(gap.first, gap.sent.0), (gap.end - 1, gap.sent.1)];
        }
        said.to_vec()
    }
}

/// When each of those was sent that `known` goes from and to.
pub(super) fn each(known: &[Departure]) -> impl Iterator<Item = Nanos> {
    let first = known.iter().take(1).map(|it| it.1);
    let others = known.windows(2).flat_map(|pair| {
        let (from, to) = (pair[0], pair[1]);
        let numbers = from.0 + 1..=to.0;
        numbers.map(move |number| crate::net::departures::between(from, to, number))
    });
    first.chain(others)
}

/// The last of those that were sent by a moment, where `known` has one before and one after it.
pub(super) fn last_by(known: &[Departure], moment: Nanos) -> Option<u64> {
    let next = known.partition_point(|it| it.1 <= moment);
    let (from, to) = (known.get(next.checked_sub(1)?)?, known.get(next)?);
    let part = (moment - from.1).share_of(to.1 - from.1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between two numbers of datagrams"
    )]
    let steps = (part * (to.0 - from.0) as f64) as u64;
    Some(from.0 + steps)
}
