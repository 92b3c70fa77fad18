//! How large the ring is.

use std::time::Duration;

use ticktax_host::Proc;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use super::RecorderPlan;

/// Sources that each table of sums holds, each counted once a CPU: 5 MiB for both.
pub(super) const SOURCES: u32 = 1 << 12;

/// For how long the rate is measured.
const MEASURED: Duration = Duration::from_millis(250);

/// For how long a ring is to reach back.
const REACH: Nanos = Nanos::from_secs(5);

/// By how much more the rate may be, on one CPU and later, than it is at the start.
const HEADROOM: u64 = 4;

/// Bytes of a record.
const RECORD: u64 = 32;

/// Records for each CPU's ring, by the rate at which this machine makes them now, where the plan does not say.
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

/// The same for a machine where so many switches, interrupts and softirqs happen in a second, with `room` for
/// so many rings in `bytes`. A power of two: the largest for which there is room, or down to a quarter of it. The
/// rate at which a machine starts says little about its worst hour.
fn size(rate: u64, online: usize, room: usize, bytes: u64) -> u32 {
    // Each makes a span, and about every second one an edge; a ring holds those of one CPU.
    let all = rate.saturating_add(rate / 2);
    let each = all / (online as u64).max(1);
    let seconds = REACH.0.unsigned_abs() / 1_000_000_000;
    let wanted = each.saturating_mul(seconds * HEADROOM);
    let largest = largest(room, bytes);
    let smallest = (largest / 4).max(1 << 10);
    records(wanted.clamp(smallest, largest).next_power_of_two())
}

/// Records for each ring in place of `now`, which reach back for `reach`, with `room` for so many rings in `bytes`;
/// `None` where they can be no larger.
pub(super) fn more(now: usize, reach: Nanos, room: usize, bytes: u64) -> Option<u32> {
    let (now, reach) = (now as u64, reach.0.max(1).unsigned_abs());
    let wanted = u128::from(now) * u128::from(REACH.0.unsigned_abs()) / u128::from(reach);
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    let size = wanted.min(largest(room, bytes)).next_power_of_two();
    (size > now).then(|| records(size))
}

/// The most records of each ring, where there are `room` of them in so many bytes; a power of two.
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

    #[test]
    fn rings_that_are_too_short_become_as_large_as_five_seconds_ask_for_and_allowed() {
        let all = 64 << 20;
        let quarter = 1 << 18;
        // 16 MiB that reach back for 1.05 s, for 2.6 s.
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
