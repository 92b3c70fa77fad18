//! `nohz_full=` on the command line, and no CPU whose tick may stop while it is busy.

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
    // Without the option there is no such file; a machine without /sys proves nothing.
    let why = match (built, listed) {
        (Some(false), _) => "the kernel was built without CONFIG_NO_HZ_FULL",
        (_, Some(_)) if facts.cpus_in(NOHZ_FULL).is_none() => "no CPU is in the list",
        _ => return Vec::new(),
    };
    vec![Finding {
        rule: "nohz-full-without-effect".to_owned(),
        title: "The tick goes on on busy CPUs".to_owned(),
        configured: format!("nohz_full={asked} on the kernel's command line"),
        effective: format!("every busy CPU has its tick: {why}"),
        measured: format!("/{NOHZ_FULL}, and the kernel's build configuration"),
        confidence: Confidence::Certain,
        severity: Severity::Serious,
        cost: Some(cost(asked, facts.tick)),
        proposal: None,
        remedy: "use a kernel with CONFIG_NO_HZ_FULL=y; leave at least the CPU that boots out of \
                 the list"
            .to_owned(),
    }]
}

/// What the ticks took that came to the CPUs that were `asked` for while they were busy: as many times the mean of
/// all ticks, where that is known.
fn cost(asked: &str, tick: Option<&TickBill>) -> Cost {
    let cpus: Option<CpuList> = asked.parse().ok();
    let named = match &cpus {
        Some(cpus) if !cpus.is_empty() => cpus.named(),
        _ => "these CPUs".to_owned(),
    };
    let time = tick.zip(cpus).and_then(|(tick, cpus)| {
        let cost = tick.cost.as_ref()?;
        let meant: Vec<_> = tick
            .cpus
            .iter()
            .filter(|it| cpus.contains(it.cpu))
            .collect();
        let told = |it: &&CpuTicks| it.busy.or(it.probed).or(it.idle).is_some();
        let known = !meant.is_empty() && meant.iter().all(told);
        let busy = Ticks::sum(meant.iter().filter_map(|it| it.busy)).count;
        let all = tick.all().count;
        (known && all > 0).then(|| cost.time.times(busy as f64 / all as f64))
    });
    Cost::of(format!("the ticks of {named} while busy"), time)
}
