//! Chooses the size of the flight recorder's rings.

use std::time::Duration;

use ticktax_host::Proc;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use super::RecorderPlan;

/// Number of sources that each table of sums can hold. A source counts once for each CPU. The two
/// tables together take 5 MiB.
pub(super) const SOURCES: u32 = 1 << 12;

/// Duration of the initial measurement of the event rate.
const MEASURED: Duration = Duration::from_millis(250);

/// Time that a ring should reach back.
const REACH: Nanos = Nanos::from_secs(5);

/// Factor by which a CPU's event rate may later exceed the rate measured at the start.
const HEADROOM: u64 = 4;

/// Size of a record in a ring, in bytes.
const RECORD: u64 = 32;

/// Returns the number of records that each ring should have. Unless the plan sets a size, it
/// depends on the current event rate.
pub(super) fn records_per_cpu(proc: &Proc, online: usize, room: usize, plan: &RecorderPlan) -> u32 {
    if let Some(bytes) = plan.ring_first {
        return records(largest(room, bytes.min(plan.ring_bytes)));
    }
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

/// Returns the number of records per ring for a machine with `rate` switches, interrupts and
/// softirqs per second, on which `room` rings share `bytes` of memory. The result is a power of
/// two, at most the largest possible size and at least a quarter of it. The lower limit exists
/// because the rate at the start says little about the busiest hour.
fn size(rate: u64, online: usize, room: usize, bytes: u64) -> u32 {
    // Each event produces a span, and about every second one also produces an edge. A ring holds
    // the records of one CPU.
    let all = rate.saturating_add(rate / 2);
    let each = all / (online as u64).max(1);
    let seconds = REACH.0.unsigned_abs() / 1_000_000_000;
    let wanted = each.saturating_mul(seconds * HEADROOM);
    let largest = largest(room, bytes);
    let smallest = (largest / 4).max(1 << 10);
    records(wanted.clamp(smallest, largest).next_power_of_two())
}

/// Returns the number of records that each larger ring should have. The current rings have `now`
/// records each and reach back by `reach`. `room` rings share `bytes` of memory. Returns `None` if
/// the rings need not or cannot grow.
pub(super) fn more(now: usize, reach: Nanos, room: usize, bytes: u64) -> Option<u32> {
    let (now, reach) = (now as u64, reach.0.max(1).unsigned_abs());
    let wanted = u128::from(now) * u128::from(REACH.0.unsigned_abs()) / u128::from(reach);
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    let size = wanted.min(largest(room, bytes)).next_power_of_two();
    (size > now).then(|| records(size))
}

/// Returns the maximum number of records per ring, a power of two, if `room` rings share `bytes` of
/// memory.
fn largest(room: usize, bytes: u64) -> u64 {
    let share = (bytes / RECORD / (room as u64).max(1)).clamp(1 << 10, 1 << 22);
    1 << share.ilog2()
}

fn records(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(1 << 22)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{RECORD, largest, more, size};

    #[test]
    fn a_ring_gets_a_quarter_of_the_limit_or_what_the_rate_needs() {
        let mib = |records: u32, cpus: u32| (u64::from(records) * u64::from(cpus) * RECORD) >> 20;
        assert_eq!(mib(size(0, 2, 2, 64 << 20), 2), 16);
        // Two CPUs, with 10,000, 20,000 and 500,000 events per second in total.
        assert_eq!(mib(size(10_000, 2, 2, 64 << 20), 2), 16);
        assert_eq!(mib(size(20_000, 2, 2, 64 << 20), 2), 32);
        assert_eq!(mib(size(500_000, 2, 2, 64 << 20), 2), 64);
        assert_eq!(mib(size(500_000, 2, 2, 100 << 20), 2), 64);
        // 256 CPUs, whose rings get 1/16 MiB each.
        assert_eq!(mib(size(1_000, 256, 256, 64 << 20), 256), 16);
        assert_eq!(size(500_000, 1, 1 << 12, 1 << 20), 1 << 10);
    }

    #[test]
    fn the_largest_ring_holds_four_seconds_of_half_a_million_records() {
        let records = u64::from(size(500_000, 2, 2, 64 << 20)) * 2;
        assert!(records >= 4 * 500_000, "{records}");
    }

    #[test]
    fn short_rings_grow_to_five_seconds_within_the_limit() {
        let all = 64 << 20;
        let quarter = 1 << 18;
        // Two rings of 8 MiB each. They reach back 1.05 s in the first case and 2.6 s in the
        // second.
        assert_eq!(
            more(quarter, Nanos::from_millis(1_050), 2, all),
            Some(1 << 20)
        );
        assert_eq!(
            more(quarter, Nanos::from_millis(2_600), 2, all),
            Some(1 << 19)
        );
        assert_eq!(more(quarter, Nanos::from_secs(6), 2, all), None);
        assert_eq!(more(1 << 20, Nanos(1), 2, all), None);
        assert_eq!(more(quarter, Nanos::ZERO, 2, all), Some(1 << 20));
        assert_eq!(largest(2, all), 1 << 20);
    }
}
