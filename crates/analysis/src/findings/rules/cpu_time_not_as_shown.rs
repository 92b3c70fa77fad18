//! Finds CPUs that were busier or less busy than `top` shows.

use ticktax_model::Nanos;
use ticktax_model::accounting::{BiasKind, CpuCheck, SpareTimeSource};
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

/// Minimum error to report, as a share of a CPU's time.
const WORTH_REPORTING: f64 = 0.05;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let checks = facts.accounting.map_or(&[][..], |check| &check.cpus);
    let wrong = |cpu: &&CpuCheck| {
        cpu.surely_off()
            .is_some_and(|off| off.abs() >= WORTH_REPORTING)
    };
    checks
        .iter()
        .filter(wrong)
        .map(|cpu| finding(facts, cpu))
        .collect()
}

fn finding(facts: &Facts<'_>, cpu: &CpuCheck) -> Finding {
    let off = cpu.off().unwrap_or_default();
    let way = if off < 0.0 { "busier" } else { "less busy" };
    let busy = cpu.busy_share.unwrap_or_default();
    let by_books = facts.header.level == ticktax_model::recording::Level::Kernel;
    let soaked = cpu
        .spare
        .filter(|left| left.measured_by == SpareTimeSource::Soaker)
        .map(|left| left.time.share_of(left.watched));
    let measured = match (by_books, soaked) {
        (true, None) => "every span of the CPU's time".to_owned(),
        (true, Some(soaked)) => format!(
            "every span of the CPU's time; the soak probe ran for {:.1} %",
            soaked * 100.0
        ),
        (false, _) => "the CPU time that a lowest-priority thread received".to_owned(),
    };
    // A cause is relevant only if its error has the same sign as the CPU's. If the CPU looks less
    // busy than it was, too few ticks hit the program. If it looks busier, too many did. Programs
    // that share the CPU with it have the opposite error.
    let phase = cpu.causes.iter().find(|cause| {
        cause.kind == BiasKind::TickPhase && (cause.time < Nanos::ZERO) == (off < 0.0)
    });
    let interferer = phase.and_then(|cause| cause.program.as_deref());
    let remedy = match interferer {
        Some(name) => format!(
            "use the CPU time of {name} itself (/proc/PID/stat, cpuacct), which is exact; sampling \
             at the tick misses a program that runs in phase with the tick"
        ),
        None => {
            "for a program, use its own CPU time (/proc/PID/stat, cpuacct), which is exact; for a \
             CPU, use --probe soak"
                .to_owned()
        }
    };
    Finding {
        rule: "cpu-time-not-as-shown".to_owned(),
        title: format!("CPU {} is {way} than top shows", cpu.cpu),
        configured: format!("/proc/stat: {:.1} % busy", cpu.shown_share * 100.0),
        effective: effective(cpu, busy),
        measured,
        confidence: if by_books {
            Confidence::Certain
        } else {
            Confidence::Likely
        },
        severity: Severity::Warning,
        cost: Some(Cost::new(
            "capacity planning based on wrong CPU use",
            cpu.busy.map(|busy| {
                let shown = Nanos(busy.0.min(cpu.shown_busy.0));
                Nanos(busy.0.max(cpu.shown_busy.0)) - shown
            }),
        )),
        proposal: None,
        remedy,
    }
}

/// Describes how busy the CPU was and how much of its time is unexplained.
fn effective(cpu: &CpuCheck, busy: f64) -> String {
    let unexplained = cpu.unexplained.share_of(cpu.elapsed);
    let rest = if unexplained < 0.000_5 {
        String::new()
    } else {
        format!(", {:.1} % unexplained", unexplained * 100.0)
    };
    format!("{:.1} % busy{rest}", busy * 100.0)
}
