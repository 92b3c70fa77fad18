//! The settings of the group that a program belongs to.

use ticktax_model::group::{GroupMemory, GroupQuota, GroupSettings};
use ticktax_model::statement::{GroupAccount, Statement};
use ticktax_model::victim::VictimStatement;

use super::numbers::{bytes, percent};
use super::page::{Page, Tone, tied};

/// Writes one line with the settings of the program's group. Writes nothing if the group is unknown
/// or has no settings.
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
    use ticktax_model::group::{GroupMemory, GroupQuota, GroupSettings, GroupWeight};

    use super::words;

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
}
