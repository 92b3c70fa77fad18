//! Assigns threads to the kernel's per-session scheduling groups (autogroups).

use std::collections::BTreeMap;

use ticktax_model::autogroup::Autogroup;
use ticktax_model::recording::{Header, World};

use super::threads::ThreadRows;

/// Group assigned to processes whose actual group is unknown.
const UNKNOWN: Autogroup = Autogroup {
    number: u32::MAX,
    nice: 0,
};

/// Sets each thread's group, and adds the assumptions that this required to `assumed`.
pub(super) fn set(
    threads: &mut BTreeMap<i32, ThreadRows>,
    header: &Header,
    assumed: &mut Vec<String>,
) {
    let Some(known) = &header.autogroups else {
        if header.world != World::Simulated {
            assumed.push(
                "CPU time is not divided among sessions first (autogroup), because the recording \
                 does not contain this setting"
                    .to_owned(),
            );
        }
        return;
    };
    let by_pid: BTreeMap<i32, Autogroup> =
        known.iter().map(|known| (known.pid, known.group)).collect();
    let mut unknown = 0;
    if by_pid.is_empty() {
        return;
    }
    for rows in threads.values_mut().filter(|rows| !rows.kernel) {
        let group = by_pid.get(&rows.pid).copied();
        unknown += usize::from(group.is_none());
        rows.autogroup = Some(group.unwrap_or(UNKNOWN));
    }
    if unknown > 0 && header.world != World::Simulated {
        assumed.push(format!(
            "the {unknown} threads of processes that started and ended during the recording share \
             one session group"
        ));
    }
}
