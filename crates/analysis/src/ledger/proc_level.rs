//! The books at level `proc`, where there are no rows to sum: the kernel's own counters.
//!
//! `/proc/stat` counts whole ticks on most kernels, so a CPU's accounts add up to its elapsed time
//! to within some ticks only. The difference is `unexplained`, with its sign: a negative one says
//! that the kernel counted more time than passed.

use ticktax_model::recording::{Header, ProbeKind, SoakReport};
use ticktax_model::statement::{Account, Class};
use ticktax_model::{Cpu, Nanos};

use super::books::ClassTimes;
use super::gaps::GapBook;
use super::tally::LengthTally;

/// Whether the kernel's counters of `cpu` were read at both ends.
pub(super) fn has_counters(header: &Header, cpu: Cpu) -> bool {
    [&header.before, &header.after]
        .iter()
        .all(|counters| counters.cpu_times.contains_key(&cpu.0))
}

/// The time of each class on `cpu`, which add up to `elapsed`. Without counters all that is not
/// the probe's is unexplained.
pub(super) fn class_times(
    header: &Header,
    cpu: Cpu,
    elapsed: Nanos,
    gaps: Option<&GapBook>,
) -> ClassTimes {
    let mut classes = ClassTimes::default();
    let probe = loop_time(header, cpu, gaps);
    classes.add(Class::Probe, probe);
    let counters = [&header.before, &header.after].map(|counters| counters.cpu_times.get(&cpu.0));
    if let [Some(before), Some(after)] = counters {
        let passed = after.since(before);
        // The probe's loop is a nice program to the kernel. It is known exactly and they are
        // sampled, so what the samples miss of it is no program's debt.
        // One that did not say what it got leaves that column's other shares unknown.
        let mut soakers = header.soakers.iter();
        let unknown = soakers.any(|s| s.cpu == cpu && s.ended_early.is_some());
        let nice = if unknown {
            Nanos::ZERO
        } else {
            (passed.nice - probe).max(Nanos::ZERO)
        };
        classes.add(Class::Program, passed.user + nice);
        classes.add(Class::KernelThread, passed.system);
        classes.add(Class::Irq, passed.irq);
        classes.add(Class::Softirq, passed.softirq);
        classes.add(Class::Steal, passed.steal);
        classes.add(Class::Idle, passed.idle + passed.iowait);
    }
    classes.add(Class::Unexplained, elapsed - classes.sum());
    classes
}

/// How long the loops of spinning probes and soakers ran on `cpu`: of the former all the time that they
/// measured but the gaps.
fn loop_time(header: &Header, cpu: Cpu, gaps: Option<&GapBook>) -> Nanos {
    let probes = header.probes.iter();
    let spinning = probes.filter(|report| report.cpu == cpu && report.probe == ProbeKind::Spin);
    let watched: Nanos = spinning.map(|report| report.end - report.begin).sum();
    // One that was moved did its work elsewhere.
    let soakers = header.soakers.iter();
    let soakers = soakers.filter(|soaker| soaker.cpu == cpu && soaker.ended_early.is_none());
    let soaked: Nanos = soakers.map(SoakReport::time).sum();
    soaked + (watched - gaps.map_or(Nanos::ZERO, GapBook::time)).max(Nanos::ZERO)
}

/// The accounts of all CPUs together. They have no intervals: the counters say only how much time.
pub(super) fn accounts(cpus: &[ClassTimes]) -> Vec<Account> {
    let of_all = |class| cpus.iter().map(|classes| classes.of(class)).sum();
    let accounts = Class::ALL.into_iter();
    let accounts = accounts.filter_map(|class| Some((class, class.counted_account()?)));
    let accounts = accounts.map(|(class, name)| Account {
        sampled: !matches!(class, Class::Probe | Class::Unexplained),
        ..LengthTally::default().to_account(class, name, of_all(class))
    });
    accounts
        .filter(|account| account.time != Nanos::ZERO)
        .collect()
}
