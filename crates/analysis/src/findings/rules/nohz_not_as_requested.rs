//! Finds idle CPUs that stop their tick, or fail to stop it, contrary to the configuration.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};

use super::super::Facts;

use ticktax_model::CpuList;
use ticktax_model::tick::{Basis, CpuTicks};

/// Minimum idle time, in seconds, before a CPU is judged.
const MIN_IDLE: f64 = 1.0;
/// An idle CPU counts as not stopping its tick if its tick rate is at least this share of the full
/// rate.
const ALMOST_ALL: f64 = 0.9;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(tick) = facts.tick.filter(|tick| tick.basis == Basis::Spans) else {
        return Vec::new();
    };
    let off = matches!(facts.parameter("nohz"), Some("off" | "0" | "n"));
    let stops = |cpu: &&CpuTicks| cpu.stopped.unwrap_or(0) > 0;
    let stopping: u64 = tick.cpus.iter().filter_map(|cpu| cpu.stopped).sum();
    let (configured, effective, cost) = if off && tick.cpus.iter().any(|cpu| stops(&cpu)) {
        (
            "nohz=off on the kernel's command line".to_owned(),
            format!("the kernel stopped the tick {stopping} times"),
            "none expected, except that idle CPUs wake up later than with a tick",
        )
    } else if let Some(goes_on) = goes_on_while_idle(facts, off) {
        (
            "a kernel built to stop the tick of idle CPUs, not overridden on the command line"
                .to_owned(),
            goes_on,
            "power, and exits to the hypervisor in a virtual machine",
        )
    } else {
        return Vec::new();
    };
    vec![Finding {
        rule: "nohz-not-as-requested".to_owned(),
        title: "The tick of idle CPUs is not as configured".to_owned(),
        configured,
        effective,
        measured: "ticks during idle periods, and the tracepoint tick_stop".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Cost::unmeasured(cost),
        proposal: None,
        remedy: "check nohz and the clock event device in /proc/timer_list, and the spelling in \
            /proc/cmdline"
            .to_owned(),
    }]
}

fn goes_on_while_idle(facts: &Facts<'_>, off: bool) -> Option<String> {
    let tick = facts.tick?;
    let hz = f64::from(tick.hz_configured?);
    let may_stop =
        facts.configured.built("NO_HZ_COMMON")? && !facts.configured.built("HZ_PERIODIC")?;
    if off || !may_stop {
        return None;
    }
    let goes_on = tick.cpus.iter().filter_map(|cpu| {
        let idle = cpu.idle?;
        let full = idle.time.as_secs_f64() >= MIN_IDLE && idle.rate()? > ALMOST_ALL * hz;
        (full && cpu.stopped == Some(0)).then_some(cpu.cpu)
    });
    let goes_on: CpuList = goes_on.collect();
    (!goes_on.is_empty()).then(|| {
        let cpus = goes_on.named();
        format!("it continued at {hz:.0} Hz while {cpus} idled")
    })
}
