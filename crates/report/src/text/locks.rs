//! Words for kernel locks.

use ticktax_model::victim::{MMAP_LOCK, VictimStatement};

/// Names a kernel lock for a line of the page, for example `mutex rtnl_mutex` or `mmap lock of db
/// for writing`. `lock` has the form of `OffCpu::lock`.
pub(super) fn lock_name(lock: &str, victim: &VictimStatement) -> String {
    let (kind, symbol) = match lock.split_once('=') {
        Some((kind, symbol)) => (kind, Some(symbol)),
        None => (lock, None),
    };
    let (kind, access) = kind.split_once(':').unwrap_or((kind, ""));
    let processes = victim.threads.as_ref().map_or(0, |times| times.processes);
    let name = match (kind, symbol) {
        (MMAP_LOCK, _) if processes > 1 => "mmap lock of its process".to_owned(),
        (MMAP_LOCK, _) => format!("mmap lock of {}", victim.name),
        (kind, Some(symbol)) => format!("{kind} {symbol}"),
        (kind, None) => kind.to_owned(),
    };
    match access {
        "read" => format!("{name} for reading"),
        "write" => format!("{name} for writing"),
        _ => name,
    }
}
