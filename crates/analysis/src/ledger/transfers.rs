//! Accounts for time that is not part of any row's self time: the time of lost rows, and the time
//! that leaves a probe's account when its gaps are judged.

use ticktax_model::Nanos;
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::recording::{Loss, ProbeKind};
use ticktax_model::statement::{Account, Class, Part};

use super::CpuLedger;
use super::accounts::{AccountId, Registry};
use super::books::ClassTimes;
use super::settled::Settled;
use super::tally::{LengthTally, Tally, sort_parts};

/// Name of the account for time in which the kernel provably ran nothing.
pub(super) const HYPERVISOR_OR_FIRMWARE: &str = "hypervisor or firmware";
/// Name of the part of an account that exceeds the cost of entering and leaving the kernel.
const BEYOND: &str = "beyond entry and exit";

/// Time to be added to accounts on top of the rows' self time, summed over all CPUs.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    entry_exit: LengthTally,
    /// Entry and exit time, indexed by the account of the rows that it surrounds.
    around: Vec<Tally>,
    outside: LengthTally,
    /// Excess of residuals over entry and exit that is outside time.
    beyond_outside: Tally,
    /// Excess of residuals over entry and exit that is not proven to be outside time.
    beyond_unexplained: Tally,
    /// Time moved from `outside` to steal.
    steal: Nanos,
    lost: Tally,
    /// Empty gaps that prove nothing.
    unproven: LengthTally,
    /// Gaps that may be missing rows.
    unmatched: LengthTally,
    from_probe: Nanos,
}

impl Transfers {
    /// Books the self time of lost rows as unexplained.
    pub(super) fn book_loss(&mut self, loss: Loss, classes: &mut ClassTimes) {
        self.lost.merge(&Tally {
            time: loss.self_time,
            count: loss.events,
            longest: Nanos::ZERO,
        });
        classes.add(Class::Unexplained, loss.self_time);
    }

    /// Moves the residuals of the spinning probe's gaps out of the probe's account.
    ///
    /// Lost rows and rows without times are already booked elsewhere and are not part of the
    /// probe's self time. If they were in a gap, only part of the gap's residual is in the probe's
    /// account. The worst case is assumed: all their time is in gaps that may contain such rows, so
    /// only the remainder is moved.
    ///
    /// A gap with known rows keeps its residual as entry and exit even if events were lost. The
    /// time of events lost within it then leaves the probe's account twice and can overdraw the
    /// account.
    pub(super) fn book_gaps(
        &mut self,
        cpu: &CpuLedger,
        settled: &Settled,
        loss: Loss,
        classes: &mut ClassTimes,
    ) {
        let Some(book) = cpu.gaps.book(ProbeKind::Spin) else {
            return;
        };
        let mut unmatched = book.unmatched.clone();
        let mut elsewhere = loss.self_time;
        if settled.unplaceable {
            unmatched.merge(&book.empty);
            unmatched.merge(&book.all_around);
        } else {
            self.move_out(
                classes,
                Class::HypervisorOrFirmware,
                settled.outside.tally.time,
            );
            self.outside.merge(&settled.outside);
            let mut unproven = settled.unproven.clone();
            elsewhere = withhold(&mut unproven, elsewhere);
            self.move_out(classes, Class::Unexplained, unproven.tally.time);
            self.unproven.merge(&unproven);
            self.book_residuals(settled, classes);
        }
        withhold(&mut unmatched, elsewhere + cpu.queue.unplaced());
        self.move_out(classes, Class::Unexplained, unmatched.tally.time);
        self.unmatched.merge(&unmatched);
    }

    /// Moves residuals around named rows. They become entry and exit, up to the bound.
    fn book_residuals(&mut self, settled: &Settled, classes: &mut ClassTimes) {
        self.move_out(classes, Class::EntryExit, settled.entry_exit.tally.time);
        self.entry_exit.merge(&settled.entry_exit);
        if self.around.len() < settled.around.len() {
            self.around.resize(settled.around.len(), Tally::default());
        }
        self.around
            .iter_mut()
            .zip(&settled.around)
            .for_each(|(sum, tally)| sum.merge(tally));
        self.move_out(
            classes,
            Class::HypervisorOrFirmware,
            settled.beyond_outside.time,
        );
        self.beyond_outside.merge(&settled.beyond_outside);
        self.move_out(classes, Class::Unexplained, settled.beyond_unexplained.time);
        self.beyond_unexplained.merge(&settled.beyond_unexplained);
    }

    fn move_out(&mut self, classes: &mut ClassTimes, to: Class, time: Nanos) {
        classes.shift(Class::Probe, to, time);
        self.from_probe += time;
    }

    /// Books stolen time as steal instead of outside time, up to the amount of outside time. Any
    /// stolen time beyond that is part of other rows, where it cannot be identified.
    pub(super) fn book_steal(&mut self, stolen: Nanos, classes: &mut ClassTimes) {
        let stolen = stolen.min(classes.time_of(Class::HypervisorOrFirmware));
        if stolen > Nanos::ZERO {
            classes.shift(Class::HypervisorOrFirmware, Class::Steal, stolen);
            self.steal += stolen;
        }
    }

    /// Adds all transfers to `accounts`, which already contain the rows.
    pub(super) fn apply(self, accounts: &mut Vec<Account>, registry: &Registry) {
        give(accounts, Class::Probe, "probe", -self.from_probe);
        give(accounts, Class::Steal, "steal", self.steal);
        accounts.push(self.outside_account());
        accounts.push(self.entry_exit_account(registry));
        accounts.push(self.unexplained_account(&registry.unreported()));
        accounts.retain(|account| account.time != Nanos::ZERO || account.intervals.count > 0);
    }

    fn outside_account(&self) -> Account {
        let time = self.outside.tally.time + self.beyond_outside.time - self.steal;
        let mut lengths = self.outside.clone();
        lengths.tally.count += self.beyond_outside.count;
        let mut account =
            lengths.to_account(Class::HypervisorOrFirmware, HYPERVISOR_OR_FIRMWARE, time);
        if !self.beyond_outside.is_empty() {
            let max = &mut account.intervals.max;
            *max = (*max).max(self.beyond_outside.max());
            // It is unknown which gaps contained the stolen time, so just cap this part at the
            // remaining time.
            let beyond = Tally {
                time: self.beyond_outside.time.min(time),
                ..self.beyond_outside
            };
            account.parts = vec![beyond.into_part(BEYOND.to_owned())];
        }
        account
    }

    fn entry_exit_account(&self, registry: &Registry) -> Account {
        let time = self.entry_exit.tally.time;
        let mut account = self
            .entry_exit
            .to_account(Class::EntryExit, "entry and exit", time);
        let around = (0u32..).map(AccountId).zip(&self.around);
        let around = around.filter(|(_, tally)| !tally.is_empty());
        let parts = around
            .map(|(id, tally)| tally.into_part(format!("around {}", registry.describe(id).1)));
        // Programs with the same name share one part.
        account.parts = merged(parts.collect());
        account
    }

    fn unexplained_account(&self, unreported: &LengthTally) -> Account {
        let mut lengths = self.unproven.clone();
        lengths.merge(unreported);
        lengths.merge(&self.unmatched);
        let time = lengths.tally.time + self.lost.time + self.beyond_unexplained.time;
        lengths.tally.count += self.lost.count + self.beyond_unexplained.count;
        let mut account = lengths.to_account(Class::Unexplained, "unexplained", time);
        // If no lengths are known, neither is the maximum.
        let known = account.intervals.median.is_some();
        account.intervals.max = account.intervals.max.filter(|_| known);
        let parts = [
            (UNREPORTED, &unreported.tally),
            ("lost events", &self.lost),
            (BEYOND, &self.beyond_unexplained),
            ("gaps without a span", &self.unproven.tally),
            ("gaps that could not be matched", &self.unmatched.tally),
        ];
        let parts = parts.into_iter().filter(|(_, tally)| !tally.is_empty());
        account.parts = parts
            .map(|(name, tally)| tally.into_part(name.to_owned()))
            .collect();
        // The length of a lost event is unknown and recorded as 0.
        for part in &mut account.parts {
            part.max = part.max.filter(|&longest| longest > Nanos::ZERO);
        }
        sort_parts(&mut account.parts);
        account
    }
}

/// Removes up to `time` from `lengths`, and returns the time that could not be removed. If all time
/// is removed, no intervals remain. Otherwise, the longest interval is capped at the remaining
/// time.
fn withhold(lengths: &mut LengthTally, time: Nanos) -> Nanos {
    let withheld = time.max(Nanos::ZERO).min(lengths.tally.time);
    lengths.tally.time -= withheld;
    if lengths.tally.time == Nanos::ZERO {
        *lengths = LengthTally::default();
    }
    lengths.tally.longest = lengths.tally.longest.min(lengths.tally.time);
    time - withheld
}

/// Adds `time` to the account with this name, creating it if needed.
fn give(accounts: &mut Vec<Account>, class: Class, name: &str, time: Nanos) {
    if time == Nanos::ZERO {
        return;
    }
    match accounts
        .iter_mut()
        .find(|account| account.class == class && account.name == name)
    {
        Some(account) => account.time += time,
        None => accounts.push(LengthTally::default().to_account(class, name, time)),
    }
}

fn merged(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    parts.dedup_by(|next, kept| {
        let same = next.name == kept.name;
        if same {
            kept.time += next.time;
            kept.count += next.count;
            kept.max = kept.max.max(next.max);
        }
        same
    });
    sort_parts(&mut parts);
    parts
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::super::tally::LengthTally;
    use super::withhold;

    #[test]
    fn no_interval_is_longer_than_the_remaining_time() {
        let mut lengths = LengthTally::default();
        lengths.add(Nanos(4_000), Nanos(4_000));
        lengths.add(Nanos(1_000), Nanos(1_000));
        assert_eq!(withhold(&mut lengths, Nanos(3_000)), Nanos::ZERO);
        let left = (lengths.tally.time, lengths.tally.max());
        assert_eq!(left, (Nanos(2_000), Some(Nanos(2_000))));
        // A gap whose entire time was booked elsewhere is not an interval of this account.
        assert_eq!(withhold(&mut lengths, Nanos(2_500)), Nanos(500));
        assert_eq!((lengths.tally.count, lengths.tally.max()), (0, None));
    }
}
