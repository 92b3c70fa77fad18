//! Why a CPU's columns are not what was traced.

use std::cmp::Reverse;

use ticktax_model::Nanos;
use ticktax_model::accounting::{Bias, BiasKind, CpuCheck};

use super::check::{Case, Samples};

/// Standard deviations from which a program is said to depend on the tick.
const SIGNIFICANT: f64 = 5.0;
/// By so much the columns, each in steps of 10 ms, may be off.
const COLUMNS_STEP: Nanos = Nanos::from_millis(20);
/// The least share of a CPU's time that is worth naming.
const WORTH_NAMING: f64 = 0.001;

/// Why `cpu` differs, on which `entry_exit` was getting into and out of the kernel.
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
        causes.extend(lost(&samples, cpu.uncounted));
    }
    causes.extend(interrupts(case, cpu, entry_exit));
    causes.extend(stolen(cpu));
    let unexplained = cpu.unexplained;
    causes.push(plain(
        BiasKind::NotReported,
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

/// What sampling makes of all that ran, ticks that did not come left aside.
fn sampling(samples: &Samples<'_>) -> Bias {
    let busy = samples.cpu.busy();
    let found = samples.charged(busy.found(samples.by));
    let lost = samples.charged(busy.lost(samples.by));
    let time = found + lost - busy.on_cpu;
    plain(BiasKind::Sampling, time, busy.on_cpu, found)
}

/// Programs that depend on the tick.
fn phases(case: &Case<'_>, samples: &Samples<'_>) -> Vec<Bias> {
    let Samples { by, tick, cpu } = *samples;
    let mut phases: Vec<Bias> = cpu
        .programs()
        .filter(|(_, charge)| charge.deviations(by, tick).abs() >= SIGNIFICANT)
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

/// Ticks that were due while a task ran, and did not come, as far as the columns are short of them: where they are
/// not, the kernel charged them and reported no interrupt. One that is so late that somebody else is on the CPU when
/// it comes looks like a lost one.
fn lost(samples: &Samples<'_>, uncounted: Nanos) -> Option<Bias> {
    let lost = samples.charged(samples.cpu.busy().lost(samples.by));
    let time = if lost <= uncounted + COLUMNS_STEP {
        lost
    } else {
        uncounted
    };
    let told = lost > Nanos::ZERO && time >= lost.min(COLUMNS_STEP);
    told.then(|| plain(BiasKind::TicksLost, -time, time, Nanos::ZERO))
}

/// Interrupts, where the kernel does not measure them.
fn interrupts(case: &Case<'_>, cpu: &CpuCheck, entry_exit: Nanos) -> Option<Bias> {
    let ran = cpu.interrupts?;
    if case.counting.interrupts_measured? {
        return None;
    }
    let shown = cpu.columns.irq + cpu.columns.softirq;
    // What interrupted a program is in its time. What interrupted idling or a probe is in no busy
    // column, but for what ticks found of it: softirqs, wherever they ran.
    let samples = case.check.on(cpu.cpu);
    let samples = samples.filter(|_| case.check.has_spans(case.header));
    let missing = samples.map_or(Nanos::ZERO, |samples| {
        let (idle, probe) = (samples.idle(), samples.probe());
        (idle.on_cpu - idle.ran) + (probe.on_cpu - probe.ran)
    });
    // So is getting into and out of the kernel around them, which is taken out of the probe's time.
    let missing = missing + entry_exit;
    let unseen = 1.0 - shown.share_of(ran).min(1.0);
    Some(plain(
        BiasKind::InterruptsNotMeasured,
        -missing.times(unseen),
        ran,
        shown,
    ))
}

/// The hypervisor's time, where its clock says less than was seen, or more. What it took of somebody
/// who was running is in that one's time by the books: the columns are short of it.
fn stolen(cpu: &CpuCheck) -> Option<Bias> {
    let (outside, steal) = (cpu.outside?, cpu.columns.steal);
    let kind = if outside > steal {
        BiasKind::StolenSilently
    } else {
        BiasKind::StolenUnseen
    };
    (outside != steal).then(|| plain(kind, outside - steal, outside, steal))
}
