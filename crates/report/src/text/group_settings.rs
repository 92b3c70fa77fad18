//! The settings and counters of the groups that programs belong to.

use ticktax_model::Nanos;
use ticktax_model::group::{
    Group, GroupCounters, GroupMemory, GroupQuota, GroupSettings, GroupThrottling,
};
use ticktax_model::statement::{GroupAccount, Statement};
use ticktax_model::victim::VictimStatement;

use super::numbers::{bytes, grouped, percent};
use super::page::{Page, Tone, tied};

/// Maximum number of groups whose counters are listed.
const MAX_GROUPS: usize = 8;

/// Minimum length of kernel work that a machine's page mentions.
const NOTEWORTHY: Nanos = Nanos::from_millis(10);

/// Writes a line with the settings of the program's group, and another with its counters. Writes
/// nothing if the group is unknown.
pub(super) fn write(page: &mut Page, statement: &Statement, victim: &VictimStatement) {
    let is_its = |group: &&GroupAccount| match victim.pid {
        Some(pid) => group.pids.contains(&pid),
        None => group.name == victim.name,
    };
    let Some(group) = statement.groups.iter().find(is_its) else {
        return;
    };
    let settings = group.group.settings.as_deref().map(words);
    if let Some(settings) = settings.filter(|settings| !settings.is_empty()) {
        let label = format!("Settings of {}: ", group.name);
        page.paragraph(Tone::Plain, &label, &settings.join(", "));
    }
    write_counters(page, &group.name, &group.group);
    write_work(page, group);
}

/// Writes a line about the kernel work queued by threads in the group.
fn write_work(page: &mut Page, group: &GroupAccount) {
    let work = group.served_by.iter();
    let work = work.filter(|work| work.time > Nanos::ZERO).map(|work| {
        let (time, share) = (tied(work.time), tied(percent(work.share())));
        format!("{} {time} ({share} queued by the group)", work.function)
    });
    let work: Vec<String> = work.collect();
    if !work.is_empty() {
        let label = format!("Kernel work for {}: ", group.name);
        page.paragraph(Tone::Plain, &label, &work.join(", "));
    }
}

/// Writes the counters of all groups that reached one of their limits, and the kernel work that
/// groups queued. A program's page shows only the program's group.
pub(super) fn limited(page: &mut Page, statement: &Statement) {
    if statement.victim.is_some() {
        return;
    }
    let is_limited = |group: &&GroupAccount| {
        let counters = group.group.counters.as_deref();
        let has_work = group.served_by.iter().any(|work| work.time >= NOTEWORTHY);
        has_work
            || counters.is_some_and(|counters| {
                let mut quotas = counters.throttling.iter();
                quotas.any(GroupThrottling::is_noteworthy) || !counters.memory.is_empty()
            })
    };
    for group in statement.groups.iter().filter(is_limited).take(MAX_GROUPS) {
        write_counters(page, &group.name, &group.group);
        write_work(page, group);
    }
}

fn write_counters(page: &mut Page, name: &str, group: &Group) {
    let counters = group.counters.as_deref().map(counted);
    if let Some(counters) = counters.filter(|counters| !counters.is_empty()) {
        let label = format!("Counters of {name}: ");
        page.paragraph(Tone::Plain, &label, &counters.join(", "));
    }
}

/// Describes the counters that increased.
fn counted(counters: &GroupCounters) -> Vec<String> {
    let mut words = Vec::new();
    for level in &counters.throttling {
        let path = &level.path;
        if level.throttled_periods > 0 {
            let (throttled, periods) = (grouped(level.throttled_periods), grouped(level.periods));
            let time = tied(level.throttled);
            words.push(format!(
                "throttled in {throttled} of {periods} periods, {time} in total ({path})"
            ));
        }
        if let Some(bursts) = level.bursts.filter(|&bursts| bursts > 0) {
            let burst = tied(level.burst.unwrap_or_default());
            let bursts = grouped(bursts);
            words.push(format!(
                "above the quota in {bursts} periods, {burst} in total ({path})"
            ));
        }
    }
    for level in &counters.memory {
        let path = &level.path;
        let mut add = |what: &str, count: u64| {
            if count > 0 {
                words.push(format!(
                    "{what} {} ({path})",
                    tied(format!("{} x", grouped(count)))
                ));
            }
        };
        add("memory.high reached", level.high);
        add("memory limit reached", level.max);
        add("process killed for lack of memory", level.oom_kills);
    }
    for (resource, stalled) in &counters.pressure {
        let resource = match &**resource {
            "cpu" => "CPU time",
            "io" => "disks",
            resource => resource,
        };
        if stalled.some > Nanos::ZERO {
            words.push(format!("stalled for {resource} {}", tied(stalled.some)));
        }
    }
    words
}

fn words(settings: &GroupSettings) -> Vec<String> {
    let mut words: Vec<String> = settings
        .weights
        .iter()
        .map(|level| tied(format!("CPU weight {} ({})", level.weight, level.path)))
        .collect();
    let mut add = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| tied(format!("{name} {value}"))));
    };
    add(
        "idle scheduling",
        settings.idle.as_ref().map(|path| format!("({path})")),
    );
    add("quota", settings.quota.as_ref().map(quota));
    add("real-time budget", settings.real_time.as_ref().map(quota));
    add("CPUs", settings.cpus.as_ref().map(ToString::to_string));
    add(
        "minimum utilisation",
        settings.utilisation_min_share.map(percent),
    );
    add(
        "maximum utilisation",
        settings.utilisation_max_share.map(percent),
    );
    add(
        "frozen",
        settings.frozen.as_ref().map(|path| format!("({path})")),
    );
    add("memory.high", settings.memory_high.as_ref().map(memory));
    add("memory limit", settings.memory_max.as_ref().map(memory));
    add(
        "disk weight",
        settings.io_weight.map(|weight| weight.to_string()),
    );
    words
}

fn quota(limit: &GroupQuota) -> String {
    let burst = if limit.burst.is_zero() {
        String::new()
    } else {
        format!(", burst {}", limit.burst)
    };
    format!(
        "{} per {}{burst} ({})",
        limit.quota, limit.period, limit.path
    )
}

fn memory(limit: &GroupMemory) -> String {
    format!("{} ({})", bytes(limit.bytes), limit.path)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::group::{
        GroupCounters, GroupMemory, GroupMemoryEvents, GroupQuota, GroupSettings, GroupThrottling,
        GroupWeight,
    };
    use ticktax_model::machine::Pressure;

    use super::{counted, words};

    #[test]
    fn every_setting_is_shown_with_the_cgroup_that_sets_it() {
        let limit = |quota| GroupQuota {
            path: "/a".to_owned(),
            quota: Nanos::from_millis(quota),
            period: Nanos::from_millis(100),
            burst: Nanos::from_millis(quota / 10),
        };
        let memory = |bytes| GroupMemory {
            path: "/m".to_owned(),
            bytes,
        };
        let settings = GroupSettings {
            weights: vec![GroupWeight {
                path: "/a".to_owned(),
                weight: 20,
                file: None,
            }],
            idle: Some("/a/b".to_owned()),
            quota: Some(limit(50)),
            cpus: Some("2-3".parse().unwrap()),
            cpus_file: None,
            real_time: Some(limit(0)),
            utilisation_min_share: Some(0.125),
            utilisation_max_share: Some(0.4),
            frozen: Some("/f".to_owned()),
            memory_high: Some(memory(1 << 20)),
            memory_max: Some(memory(2 << 20)),
            io_weight: Some(70),
        };
        let text = words(&settings)
            .join(", ")
            .replace(crate::text::page::TIE, " ");
        let expected = "CPU weight 20 (/a), idle scheduling (/a/b), \
            quota 50.0 ms per 100 ms, burst 5.00 ms (/a), real-time budget 0 ns per 100 ms (/a), \
            CPUs 2-3, minimum utilisation 12.5 %, maximum utilisation 40.0 %, frozen (/f), \
            memory.high 1.0 MiB (/m), memory limit 2.0 MiB (/m), disk weight 70";
        assert_eq!(text, expected);
        assert!(words(&GroupSettings::default()).is_empty());
    }

    #[test]
    fn every_counter_that_increased_is_shown() {
        let level = |throttled_periods, bursts| GroupThrottling {
            path: "/a".to_owned(),
            periods: 1_200,
            throttled_periods,
            throttled: Nanos::from_millis(340),
            bursts,
            burst: bursts.map(|_| Nanos::from_millis(20)),
        };
        let events = |high, max, oom_kills| GroupMemoryEvents {
            path: "/m".to_owned(),
            high,
            max,
            oom_kills,
        };
        let stalled = |some| Pressure {
            some: Nanos::from_millis(some),
            full: Nanos::ZERO,
        };
        let counters = GroupCounters {
            throttling: vec![level(0, None), level(12, Some(3))],
            memory: vec![events(4, 0, 0), events(0, 5, 1)],
            pressure: [("cpu", 150), ("io", 0), ("memory", 7)]
                .map(|(resource, some)| (resource.to_owned(), stalled(some)))
                .into(),
        };
        let text = counted(&counters).join(", ");
        let expected = "throttled in 12 of 1 200 periods, 340 ms in total (/a), \
            above the quota in 3 periods, 20.0 ms in total (/a), memory.high reached 4 x (/m), \
            memory limit reached 5 x (/m), process killed for lack of memory 1 x (/m), \
            stalled for CPU time 150 ms, stalled for memory 7.00 ms";
        assert_eq!(text.replace(crate::text::page::TIE, " "), expected);
        assert!(counted(&GroupCounters::default()).is_empty());
    }
}
