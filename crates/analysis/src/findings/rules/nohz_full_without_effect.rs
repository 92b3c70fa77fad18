//! Finds `nohz_full=` on the command line of a kernel that cannot stop the tick on any busy CPU.

use ticktax_model::CpuList;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::tick::{CpuTicks, TickBill, Ticks};

use super::super::Facts;

const NOHZ_FULL: &str = "sys/devices/system/cpu/nohz_full";

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(asked) = facts.parameter("nohz_full") else {
        return Vec::new();
    };
    let built = facts.configured.built("NO_HZ_FULL");
    let listed = facts.configured.file(NOHZ_FULL);
    // The list of these CPUs is missing if the kernel lacks the option, but also if /sys is not
    // mounted.
    let why = match (built, listed) {
        (Some(false), _) => "the kernel was built without CONFIG_NO_HZ_FULL",
        (_, Some(_)) if facts.cpus_in(NOHZ_FULL).is_none() => "its list of CPUs is empty",
        _ => return Vec::new(),
    };
    vec![Finding {
        rule: "nohz-full-without-effect".to_owned(),
        title: "Busy CPUs still tick".to_owned(),
        configured: format!("nohz_full={asked} on the kernel's command line"),
        effective: format!("every busy CPU ticks: {why}"),
        measured: format!("/{NOHZ_FULL}, and the kernel's build configuration"),
        confidence: Confidence::Certain,
        severity: Severity::Serious,
        cost: Some(cost(asked, facts.tick)),
        proposal: None,
        remedy:
            "use a kernel with CONFIG_NO_HZ_FULL=y, and leave at least the boot CPU out of the \
            list"
                .to_owned(),
    }]
}

/// Returns the cost of the ticks that hit the requested CPUs while they were busy. If the number of
/// such ticks is known, the cost is that number multiplied by the mean cost of all ticks.
fn cost(asked: &str, tick: Option<&TickBill>) -> Cost {
    let cpus: Option<CpuList> = asked.parse().ok();
    let named = match &cpus {
        Some(cpus) if !cpus.is_empty() => cpus.named(),
        _ => "these CPUs".to_owned(),
    };
    let time = tick.zip(cpus).and_then(|(tick, cpus)| {
        let cost = tick.cost.as_ref()?;
        let requested: Vec<_> = tick
            .cpus
            .iter()
            .filter(|ticks| cpus.contains(ticks.cpu))
            .collect();
        let is_known = |ticks: &&CpuTicks| ticks.busy.or(ticks.probed).or(ticks.idle).is_some();
        let known = !requested.is_empty() && requested.iter().all(is_known);
        let busy = Ticks::sum(requested.iter().filter_map(|ticks| ticks.busy)).count;
        let all = tick.all().count;
        (known && all > 0).then(|| cost.time.times(busy as f64 / all as f64))
    });
    Cost::new(format!("ticks of {named} while busy"), time)
}
