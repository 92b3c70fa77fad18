//! How large the ring is.

use std::time::Duration;

use ticktax_host::Proc;
use ticktax_probes::clock::now;

use super::RecorderPlan;

/// Sources that each table of sums holds, each counted once a CPU: 5 MiB for both.
pub(super) const SOURCES: u32 = 1 << 12;

/// For how long the rate is measured.
const MEASURED: Duration = Duration::from_millis(250);

/// For how many seconds a ring is to reach back.
const REACH: u64 = 5;

/// By how much more the rate may be, on one CPU and later, than it is at the start.
const HEADROOM: u64 = 4;

/// Bytes of a record.
const RECORD: u64 = 32;

/// Records for each CPU's ring, by the rate at which this machine makes them now.
pub(super) fn records_per_cpu(proc: &Proc, online: usize, room: usize, plan: &RecorderPlan) -> u32 {
    let begin = now();
    let before = proc.activity();
    std::thread::sleep(MEASURED);
    let after = proc.activity();
    let elapsed = u64::try_from((now() - begin).0).unwrap_or(0).max(1);
    let count = before
        .zip(after)
        .map_or(0, |(before, after)| after.saturating_sub(before));
    let rate = u128::from(count) * 1_000_000_000 / u128::from(elapsed);
    size(
        u64::try_from(rate).unwrap_or(u64::MAX),
        online,
        room,
        plan.ring_bytes,
    )
}

/// The same for a machine where so many switches, interrupts and softirqs happen in a second, with `room` for
/// so many rings in `bytes`. A power of two: the largest for which there is room, or down to a quarter of it. A
/// ring cannot grow, and the rate at which a machine starts says little about its worst hour.
fn size(rate: u64, online: usize, room: usize, bytes: u64) -> u32 {
    // Each makes a span, and about every second one an edge; a ring holds those of one CPU.
    let records = rate.saturating_add(rate / 2);
    let each = records / (online as u64).max(1);
    let wanted = each.saturating_mul(REACH * HEADROOM);
    let share = (bytes / RECORD / (room as u64).max(1)).clamp(1 << 10, 1 << 22);
    let largest: u64 = 1 << share.ilog2();
    let smallest = (largest / 4).max(1 << 10);
    let size = wanted.clamp(smallest, largest).next_power_of_two();
    u32::try_from(size).unwrap_or(1 << 22)
}

#[cfg(test)]
mod tests {
    use super::{RECORD, size};

    #[test]
    fn a_ring_takes_a_quarter_of_what_it_may_or_as_much_as_the_rate_asks_for() {
        let mib = |records: u32, cpus: u32| (u64::from(records) * u64::from(cpus) * RECORD) >> 20;
        assert_eq!(mib(size(0, 2, 2, 64 << 20), 2), 16);
        // 10,000, 20,000 and 500,000 a second on two CPUs.
        assert_eq!(mib(size(10_000, 2, 2, 64 << 20), 2), 16);
        assert_eq!(mib(size(20_000, 2, 2, 64 << 20), 2), 32);
        assert_eq!(mib(size(500_000, 2, 2, 64 << 20), 2), 64);
        assert_eq!(mib(size(500_000, 2, 2, 100 << 20), 2), 64);
        // 256 CPUs have a sixteenth of a MiB each.
        assert_eq!(mib(size(1_000, 256, 256, 64 << 20), 256), 16);
        assert_eq!(size(500_000, 1, 1 << 12, 1 << 20), 1 << 10);
    }

    #[test]
    fn all_of_it_reaches_back_for_four_seconds_at_half_a_million_records_a_second() {
        let records = u64::from(size(500_000, 2, 2, 64 << 20)) * 2;
        assert!(records >= 4 * 500_000, "{records}");
    }
}
