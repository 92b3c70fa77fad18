//! Assigns the residuals of one CPU's gaps to accounts. This happens at the end, when the proofs,
//! the clock uncertainty and the bounds on entry and exit are known.

use std::cmp::Reverse;

use ticktax_model::Nanos;
use ticktax_model::witness::{CpuProof, Proof};

use super::accounts::Registry;
use super::entry_exit::{Bounds, Residuals};
use super::gaps::{GapBook, is_near};
use super::tally::{LengthTally, Tally};

/// How the residuals of one side (long, short or yielded gaps) are divided among accounts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    pub(super) entry_exit: Nanos,
    pub(super) outside: Nanos,
    pub(super) unexplained: Nanos,
}

/// The gaps on one CPU, assigned to accounts.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) proof: Proof,
    /// Whether the times of some rows on this CPU are unknown.
    pub(super) unplaceable: bool,
    /// Shares of each side, in this order: long, short and yielded gaps.
    pub(super) shares: [Shares; 3],
    /// Empty gaps in which the kernel provably ran nothing.
    pub(super) outside: LengthTally,
    /// All other empty gaps, in which the kernel may have run something.
    pub(super) unproven: LengthTally,
    /// The part of the residuals that counts as entry and exit.
    pub(super) entry_exit: LengthTally,
    /// Entry and exit time, indexed by the account of the gap's first row.
    pub(super) around: Vec<Tally>,
    /// Excess over entry and exit that counts as outside time.
    pub(super) beyond_outside: Tally,
    /// Excess over entry and exit that could contain a missed kernel entry.
    pub(super) beyond_unexplained: Tally,
    /// Minimum length of an empty gap that could contain a missed kernel entry.
    suspect_from: Nanos,
    /// Largest error in the position of a gap's edges.
    uncertainty: Nanos,
}

impl Settled {
    /// Assigns the gaps in `book` to accounts. `bounds` applies to a spinning probe's residuals.
    pub(super) fn new(
        book: &GapBook,
        proof: &CpuProof,
        unplaceable: bool,
        bounds: &Bounds,
        registry: &Registry,
        uncertainty: Nanos,
    ) -> Self {
        let mut settled = Self {
            proof: proof.proof,
            unplaceable,
            shares: [Shares::default(); 3],
            outside: book.empty.clone(),
            unproven: LengthTally::default(),
            entry_exit: book.all_around.clone(),
            around: book.around.clone(),
            beyond_outside: Tally::default(),
            beyond_unexplained: Tally::default(),
            suspect_from: Nanos::MAX,
            uncertainty,
        };
        settled.settle_empty(book);
        settled.settle_residuals(book, bounds, registry);
        settled
    }

    /// Returns whether all kernel entries on this CPU are known.
    pub(super) fn is_proven(&self) -> bool {
        !self.unplaceable && matches!(self.proof, Proof::Proven | Proof::Unconfirmed)
    }

    /// Returns whether an empty gap of this length counts as outside time. `near` is its distance
    /// from the nearest row.
    pub(super) fn is_outside(&self, length: Nanos, near: Option<u8>) -> bool {
        let known = self.is_proven() || matches!(self.proof, Proof::Bounded(_));
        known && !self.unplaceable && length < self.suspect_from && !is_near(near, self.uncertainty)
    }

    fn settle_empty(&mut self, book: &GapBook) {
        let mut unproven = [Tally::default(); 3];
        if self.unplaceable || self.proof == Proof::Unproven {
            self.suspect_from = Nanos::ZERO;
        } else if let Proof::Bounded(unseen) = self.proof {
            self.suspect_from = book.suspect_from(unseen, self.uncertainty);
        }
        if self.suspect_from == Nanos::ZERO {
            self.unproven = std::mem::take(&mut self.outside);
            for (shares, side) in self.shares.iter_mut().zip(book.sides()) {
                shares.unexplained = side.empty;
            }
            return;
        }
        for (tally, side) in unproven.iter_mut().zip(book.sides()) {
            *tally = side.near(self.uncertainty);
        }
        let mut longest = Nanos::ZERO;
        for gap in book.longest_empty() {
            if is_near(gap.near, self.uncertainty) {
                continue;
            }
            if gap.length >= self.suspect_from {
                unproven[gap.side].add(gap.length, gap.length);
            } else {
                longest = longest.max(gap.length);
            }
        }
        for ((shares, side), unproven) in self.shares.iter_mut().zip(book.sides()).zip(unproven) {
            shares.unexplained = unproven.time;
            shares.outside = side.empty - unproven.time;
            self.unproven.tally.merge(&unproven);
        }
        // The outside and unproven gaps have no separate distributions. That is acceptable, because
        // only the few longest gaps were moved from one to the other.
        if !self.unproven.tally.is_empty() {
            self.unproven.histogram.record(self.unproven.tally.longest);
            self.outside.tally.time -= self.unproven.tally.time;
            self.outside.tally.count -= self.unproven.tally.count;
            self.outside.tally.longest = longest;
        }
    }

    fn settle_residuals(&mut self, book: &GapBook, bounds: &Bounds, registry: &Registry) {
        let unplaceable = self.unplaceable;
        let mut longest = Nanos::ZERO;
        let mut beyond = Vec::new();
        for (signature, sides) in book.residuals.iter().enumerate() {
            let bound = bounds.bound(signature);
            for (side, residuals) in sides.iter().enumerate() {
                let split = residuals.split(bound);
                longest = longest.max(split.longest);
                if split.beyond.count == 0 {
                    continue;
                }
                beyond.extend(residuals.beyond(bound).map(|tally| (side, tally)));
                let account = registry.account_of(bounds.first(signature)).index();
                self.around[account].time -= split.beyond.time;
                let most = bound.map_or(Nanos::ZERO, |bound| bound.most);
                let kept = &mut self.around[account].longest;
                *kept = (*kept).min(most);
                self.shares[side].entry_exit -= split.beyond.time;
            }
        }
        self.settle_beyond(beyond);
        for (shares, side) in self.shares.iter_mut().zip(book.sides()) {
            shares.entry_exit += side.around;
            if unplaceable {
                shares.unexplained += std::mem::take(&mut shares.entry_exit);
            }
        }
        let beyond = self.beyond_outside.time + self.beyond_unexplained.time;
        if beyond > Nanos::ZERO {
            self.entry_exit.tally.time -= beyond;
            self.entry_exit.tally.longest = longest;
        }
    }
}

impl Settled {
    /// Assigns the excess over entry and exit to outside time. The longest residuals could contain
    /// missed entries, so their excess stays unexplained. `beyond` groups residuals by length and
    /// gives the side of each group.
    fn settle_beyond(&mut self, mut beyond: Vec<(usize, Tally)>) {
        let mut suspect = match self.proof {
            _ if self.is_proven() => 0,
            Proof::Bounded(unseen) if !self.unplaceable => unseen,
            _ => u64::MAX,
        };
        beyond.sort_by_key(|&(_, tally)| Reverse(tally.longest));
        for (side, tally) in beyond {
            let taken = suspect.min(tally.count);
            suspect -= taken;
            let part = i128::from(tally.time.0) * i128::from(taken) / i128::from(tally.count);
            let unexplained = Nanos(i64::try_from(part).expect("a part of a time"));
            self.shares[side].unexplained += unexplained;
            self.shares[side].outside += tally.time - unexplained;
            for (booked, time, count) in [
                (&mut self.beyond_unexplained, unexplained, taken),
                (
                    &mut self.beyond_outside,
                    tally.time - unexplained,
                    tally.count - taken,
                ),
            ] {
                if count > 0 {
                    let longest = tally.longest;
                    booked.merge(&Tally {
                        time,
                        count,
                        longest,
                    });
                }
            }
        }
    }
}

/// Returns all residuals in `books`, each with its signature.
pub(super) fn residuals<'a>(
    books: impl Iterator<Item = &'a GapBook> + 'a,
) -> impl Iterator<Item = (usize, &'a Residuals)> + 'a {
    books.flat_map(|book| {
        let by_signature = book.residuals.iter().enumerate();
        by_signature.flat_map(|(signature, sides)| sides.iter().map(move |one| (signature, one)))
    })
}
