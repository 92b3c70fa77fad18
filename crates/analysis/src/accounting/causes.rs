//! Finds causes of the difference between a CPU's columns in `/proc/stat` and its traced time.

use std::cmp::Reverse;

use ticktax_model::Nanos;
use ticktax_model::accounting::{Bias, BiasKind, CpuCheck};

use super::check::{Case, Samples};

/// A program's bursts depend on the tick if the number of ticks that hit them deviates from the
/// expected number by at least this many standard deviations.
const SIGNIFICANT: f64 = 5.0;
/// Allowance for rounding in the sum of a CPU's columns. Each column has a resolution of 10 ms.
const COLUMNS_STEP: Nanos = Nanos::from_millis(20);
/// A cause is reported if it explains at least this share of a CPU's time.
const WORTH_NAMING: f64 = 0.001;

pub(super) fn causes(
    case: &Case<'_>,
    cpu: &CpuCheck,
    samples: Option<Samples<'_>>,
    entry_exit: Nanos,
) -> Vec<Bias> {
    let mut causes = Vec::new();
    if let Some(samples) = samples {
        causes.push(sampling(&samples));
        causes.extend(phases(case, &samples));
        causes.extend(late(case, &samples));
        causes.extend(lost(&samples, cpu.uncounted));
    }
    causes.extend(interrupts(case, cpu, entry_exit));
    causes.extend(stolen(cpu));
    let unexplained = cpu.unexplained;
    causes.push(plain(
        BiasKind::SwitchesNotReported,
        unexplained,
        unexplained,
        unexplained,
    ));
    let worth = |time: Nanos| size(time).share_of(cpu.elapsed) >= WORTH_NAMING;
    causes.retain(|cause| {
        let hidden = cause.kind == BiasKind::InterruptsNotMeasured;
        let counted = cause.kind == BiasKind::TicksLost;
        counted || worth(cause.time) || hidden && worth(cause.sampled - cause.ran)
    });
    causes.sort_by_key(|cause| Reverse(size(cause.time)));
    causes
}

fn size(time: Nanos) -> Nanos {
    time.max(-time)
}

fn plain(kind: BiasKind, time: Nanos, ran: Nanos, sampled: Nanos) -> Bias {
    Bias {
        kind,
        time,
        program: None,
        pid: None,
        ran,
        sampled,
    }
}

/// Returns the net effect of sampling on a CPU's busy time. Lost ticks count as if they had fired.
fn sampling(samples: &Samples<'_>) -> Bias {
    let busy = samples.cpu.busy();
    let found = samples.charged(busy.found(samples.by));
    let lost = samples.charged(busy.lost(samples.by));
    let time = found + lost - busy.on_cpu;
    plain(BiasKind::Sampling, time, busy.on_cpu, found)
}

/// Returns the effect of sampling on each program whose bursts depend on the tick.
///
/// A program runs at the ticks only if ticks were due while it ran. If ticks are held up, for
/// example because interrupts are masked, they hit whichever program runs next, at any phase.
fn phases(case: &Case<'_>, samples: &Samples<'_>) -> Vec<Bias> {
    let Samples { by, tick, cpu } = *samples;
    let mut phases: Vec<Bias> = cpu
        .programs()
        .filter(|(_, charge)| {
            let hidden = charge.deviations(by, tick) <= -SIGNIFICANT;
            hidden || charge.deviations_of_due(by, tick) >= SIGNIFICANT
        })
        .map(|(pid, charge)| {
            let found = samples.charged(charge.found(by));
            Bias {
                program: case.names.get(&pid).cloned(),
                pid: Some(pid),
                ..plain(
                    BiasKind::TickPhase,
                    found + samples.charged(charge.lost(by)) - charge.on_cpu,
                    charge.on_cpu,
                    found,
                )
            }
        })
        .collect();
    phases.sort_by_key(|phase| phase.pid);
    phases
}

/// Returns, for each program, the time of the ticks that hit it although they were due before it
/// ran.
fn late(case: &Case<'_>, samples: &Samples<'_>) -> Vec<Bias> {
    let by = samples.by;
    let programs = samples.cpu.programs();
    let late = programs.filter(|(_, charge)| charge.late(by) > 0);
    let mut late: Vec<Bias> = late
        .map(|(pid, charge)| Bias {
            program: case.names.get(&pid).cloned(),
            pid: Some(pid),
            ..plain(
                BiasKind::TicksLate,
                samples.charged(charge.late(by)),
                charge.on_cpu,
                samples.charged(charge.found(by)),
            )
        })
        .collect();
    late.sort_by_key(|bias| bias.pid);
    late
}

/// Returns the time of the ticks that did not fire even though they were due while a task ran. The
/// columns fall short of the elapsed time by `uncounted`. If the lost ticks exceed that, the kernel
/// must have charged the excess without reporting an interrupt, so only `uncounted` is returned.
/// Returns `None` if no ticks were lost, or if the columns do not fall short.
///
/// A tick also looks lost if it is so late that the CPU has switched to another task.
fn lost(samples: &Samples<'_>, uncounted: Nanos) -> Option<Bias> {
    let lost = samples.charged(samples.cpu.busy().lost(samples.by));
    let time = if lost <= uncounted + COLUMNS_STEP {
        lost
    } else {
        uncounted
    };
    let is_reported = lost > Nanos::ZERO && time >= lost.min(COLUMNS_STEP);
    is_reported.then(|| plain(BiasKind::TicksLost, -time, time, Nanos::ZERO))
}

/// Returns the effect of interrupts on a CPU's columns. Returns `None` if the kernel measures
/// interrupt time, or if it is unknown whether it does.
fn interrupts(case: &Case<'_>, cpu: &CpuCheck, entry_exit: Nanos) -> Option<Bias> {
    let ran = cpu.interrupts?;
    if case.counting.interrupts_measured? {
        return None;
    }
    let shown = cpu.columns.irq + cpu.columns.softirq;
    // Time in interrupts that hit a program counts as the program's time. Time in interrupts that
    // hit the idle task or a probe is in no busy column, except for softirq time that a tick
    // happened to sample.
    let samples = case.check.on(cpu.cpu);
    let samples = samples.filter(|_| case.check.has_spans(case.header));
    let missing = samples.map_or(Nanos::ZERO, |samples| {
        let (idle, probe) = (samples.idle(), samples.probe());
        (idle.on_cpu - idle.ran) + (probe.on_cpu - probe.ran)
    });
    // Kernel entry and exit around those interrupts is missing too, because the ledger moves it out
    // of the probe's time.
    let missing = missing + entry_exit;
    let unseen = 1.0 - shown.share_of(ran).min(1.0);
    Some(plain(
        BiasKind::InterruptsNotMeasured,
        -missing.times(unseen),
        ran,
        shown,
    ))
}

/// Returns the difference between the steal counter and the CPU time that the hypervisor or
/// firmware was observed to use. Returns `None` if the two are equal. Time stolen from a running
/// task is part of the task's traced time but is not in the columns.
fn stolen(cpu: &CpuCheck) -> Option<Bias> {
    let (outside, steal) = (cpu.hypervisor_or_firmware?, cpu.columns.steal);
    let kind = if outside > steal {
        BiasKind::StealNotReported
    } else {
        BiasKind::StealNotObserved
    };
    (outside != steal).then(|| plain(kind, outside - steal, outside, steal))
}
