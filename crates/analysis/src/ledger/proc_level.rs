//! Accounts at level `proc`, computed from the kernel's counters instead of rows.
//!
//! On most kernels, `/proc/stat` counts whole ticks, so a CPU's accounts match its elapsed time
//! only to within a few ticks. The signed difference is `unexplained`. It is negative if the kernel
//! counted more time than has passed.

use ticktax_model::recording::{Header, ProbeKind, SoakReport};
use ticktax_model::statement::{Account, Class};
use ticktax_model::{Cpu, Nanos};

use super::books::ClassTimes;
use super::gaps::GapBook;
use super::tally::LengthTally;

/// Returns whether the kernel's counters for `cpu` were read both before and after the recording.
pub(super) fn has_counters(header: &Header, cpu: Cpu) -> bool {
    [&header.before, &header.after]
        .iter()
        .all(|counters| counters.cpu_times.contains_key(&cpu.0))
}

/// Returns the time per class on `cpu`. The times add up to `elapsed`. If the counters were not
/// read, all time except the probe's is unexplained.
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
        // The kernel counts the probe's loop as niced time. The loop's time is exact, but the
        // counters are sampled, so they may show less than that. Nothing is then charged to niced
        // programs. If a soaker ended early without reporting its time, it is unknown how to split
        // the remaining niced time.
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

/// Returns the time that spinning probes' loops and soakers ran on `cpu`. A probe's loop ran for
/// the probe's measuring time minus its gaps.
fn loop_time(header: &Header, cpu: Cpu, gaps: Option<&GapBook>) -> Nanos {
    let probes = header.probes.iter();
    let spinning = probes.filter(|report| report.cpu == cpu && report.probe == ProbeKind::Spin);
    let watched: Nanos = spinning.map(|report| report.end - report.begin).sum();
    // A soaker that was moved did its work on a different CPU.
    let soakers = header.soakers.iter();
    let soakers = soakers.filter(|soaker| soaker.cpu == cpu && soaker.ended_early.is_none());
    let soaked: Nanos = soakers.map(SoakReport::time).sum();
    soaked + (watched - gaps.map_or(Nanos::ZERO, GapBook::time)).max(Nanos::ZERO)
}

/// Returns the accounts summed over all CPUs. They have no intervals, because counters contain only
/// total times.
pub(super) fn accounts(cpus: &[ClassTimes]) -> Vec<Account> {
    let time_of = |class| cpus.iter().map(|classes| classes.time_of(class)).sum();
    let accounts = Class::ALL.into_iter();
    let accounts = accounts.filter_map(|class| Some((class, class.counted_account()?)));
    let accounts = accounts.map(|(class, name)| Account {
        sampled: !matches!(class, Class::Probe | Class::Unexplained),
        ..LengthTally::default().to_account(class, name, time_of(class))
    });
    accounts
        .filter(|account| account.time != Nanos::ZERO)
        .collect()
}
