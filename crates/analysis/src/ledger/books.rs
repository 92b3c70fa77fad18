//! Time per class on one CPU, and a check that the accounts balance.

use ticktax_model::statement::{Account, Balance, Class, ClassTime, CpuAccounts};
use ticktax_model::{Cpu, Nanos};

/// Time per class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClassTimes([Nanos; Class::ALL.len()]);

impl ClassTimes {
    pub(super) fn add(&mut self, class: Class, time: Nanos) {
        self.0[class as usize] += time;
    }

    pub(super) fn shift(&mut self, from: Class, to: Class, time: Nanos) {
        self.0[from as usize] -= time;
        self.0[to as usize] += time;
    }

    pub(super) fn time_of(&self, class: Class) -> Nanos {
        self.0[class as usize]
    }

    pub(super) fn sum(&self) -> Nanos {
        self.0.iter().sum()
    }

    pub(super) fn to_books(self, cpu: Cpu, elapsed: Nanos) -> CpuAccounts {
        let classes = Class::ALL.into_iter().map(|class| ClassTime {
            class,
            time: self.time_of(class),
        });
        let classes = classes.filter(|part| part.time != Nanos::ZERO).collect();
        CpuAccounts {
            cpu,
            elapsed,
            classes,
        }
    }
}

/// Checks the statement's own figures: compares each CPU's classes with its elapsed time, and the
/// sum of all accounts with the elapsed time of all CPUs.
pub(super) fn balance(cpus: &[CpuAccounts], accounts: &[Account]) -> Balance {
    let off = cpus.iter().map(|books| {
        let accounted: Nanos = books.classes.iter().map(|part| part.time).sum();
        (books.cpu, accounted - books.elapsed)
    });
    Balance {
        elapsed: cpus.iter().map(|books| books.elapsed).sum(),
        accounted: accounts.iter().map(|account| account.time).sum(),
        imbalances: off
            .filter(|&(_, difference)| difference != Nanos::ZERO)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::statement::{Account, Class};
    use ticktax_model::{Cpu, Nanos};

    use super::{ClassTimes, balance};
    use crate::ledger::tally::LengthTally;

    fn account(class: Class, time: i64) -> Account {
        LengthTally::default().to_account(class, "x", Nanos(time))
    }

    #[test]
    fn shifting_keeps_the_sum() {
        let mut times = ClassTimes::default();
        times.add(Class::Probe, Nanos(100));
        times.shift(Class::Probe, Class::HypervisorOrFirmware, Nanos(30));
        assert_eq!(
            (
                times.time_of(Class::Probe),
                times.time_of(Class::HypervisorOrFirmware)
            ),
            (Nanos(70), Nanos(30))
        );
        assert_eq!(times.sum(), Nanos(100));
    }

    #[test]
    fn every_class_has_its_own_index() {
        for (index, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, index);
        }
    }

    #[test]
    fn errors_of_two_cpus_do_not_cancel() {
        let mut times = ClassTimes::default();
        times.add(Class::Idle, Nanos(100));
        let cpus = [
            times.to_books(Cpu(0), Nanos(90)),
            times.to_books(Cpu(1), Nanos(110)),
        ];
        let balance = balance(&cpus, &[account(Class::Idle, 200)]);
        assert_eq!(balance.elapsed, balance.accounted);
        assert_eq!(
            balance.imbalances,
            [(Cpu(0), Nanos(10)), (Cpu(1), Nanos(-10))]
        );
        assert!(!balance.balances());
    }
}
