//! Kernel build options that some boot parameters depend on.

use std::collections::BTreeMap;

use super::super::facts::config_value;

const OPTIONS: [&str; 9] = [
    "CPU_ISOLATION",
    "HIGH_RES_TIMERS",
    "HZ",
    "HZ_PERIODIC",
    "NO_HZ_COMMON",
    "NO_HZ_FULL",
    "NO_HZ_IDLE",
    "RT_GROUP_SCHED",
    "RT_GROUP_SCHED_DEFAULT_DISABLED",
];

pub(super) fn build_options(config: Option<&str>) -> BTreeMap<String, String> {
    let Some(config) = config else {
        return BTreeMap::new();
    };
    let value = |option: &&str| {
        let value = config_value(config, &format!("CONFIG_{option}"))?;
        Some(((*option).to_owned(), value))
    };
    OPTIONS.iter().filter_map(value).collect()
}
