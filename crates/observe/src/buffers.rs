//! Chooses the size of the span buffers.

use ticktax_host::Proc;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

/// Size of a record, in bytes.
const RECORD: u64 = 64;

/// Usual minimum number of records per CPU (4 MiB). Only a shortage of memory allows fewer.
const USUAL: u64 = 1 << 16;

/// Maximum number of records per CPU (64 MiB).
const LARGEST: u64 = 1 << 20;

/// Number of records per CPU when memory is very short (64 KiB).
const SMALLEST: u64 = 1 << 10;

/// The buffers together may take at most 1/`SHARE` of the available memory.
const SHARE: u64 = 16;

/// Factor by which a CPU's event rate may exceed its rate at the start.
const HEADROOM: u64 = 2;

/// Seconds of events that a buffer should hold if its reader is raised to a real-time priority once
/// the buffer is half full. The reader then waits for at most 50 ms.
const SECONDS_RAISED: u64 = 1;

/// Seconds of events that a buffer should hold if its reader has to wait its turn for the CPU.
/// Competing with two programs in groups of weight 262,144, the reader waits for 0.8 s.
const SECONDS_WAITING: u64 = 4;

/// Measures the rate of events while a session starts.
pub(crate) struct RateMeter {
    begin: Nanos,
    count: Option<u64>,
}

impl RateMeter {
    pub(crate) fn start(proc: &Proc) -> Self {
        Self {
            begin: now(),
            count: proc.activity(),
        }
    }

    /// Returns how many context switches, interrupts and softirqs occur per second on all CPUs
    /// together, or 0 if unknown.
    pub(crate) fn rate(&self, proc: &Proc) -> u64 {
        let Some((before, after)) = self.count.zip(proc.activity()) else {
            return 0;
        };
        let elapsed = u128::from((now() - self.begin).0.max(1).unsigned_abs());
        let rate = u128::from(after.saturating_sub(before)) * 1_000_000_000 / elapsed;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// The properties of a machine that determine the size of the buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Events per second on all CPUs together.
    pub(crate) rate: u64,
    /// Number of CPUs on which these events occur.
    pub(crate) online: usize,
    /// Number of buffers. CPUs that aren't plugged in have one too.
    pub(crate) buffers: usize,
    /// Available memory in bytes, if known.
    pub(crate) available: Option<u64>,
    /// Whether the reader is raised to a real-time priority when a buffer is half full.
    pub(crate) is_raised: bool,
}

impl Room {
    /// Returns the number of records per buffer, which is a power of two from 2^10 to 2^20.
    pub(crate) fn records(self) -> u32 {
        // Each event produces a span, and about every second one also produces an edge.
        let all = self.rate.saturating_add(self.rate / 2);
        let each = all / (self.online as u64).max(1);
        let seconds = if self.is_raised {
            SECONDS_RAISED
        } else {
            SECONDS_WAITING
        };
        let wanted = each.saturating_mul(seconds * HEADROOM).max(USUAL);
        let most = self.available.map_or(USUAL, |bytes| {
            bytes / SHARE / RECORD / (self.buffers as u64).max(1)
        });
        let most = 1 << most.clamp(SMALLEST, LARGEST).ilog2();
        let records = wanted.min(most).next_power_of_two();
        u32::try_from(records).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{LARGEST, Room, SMALLEST, USUAL};

    const GIB: u64 = 1 << 30;

    fn records(rate: u64, is_raised: bool, available: Option<u64>) -> u64 {
        let room = Room {
            rate,
            online: 2,
            buffers: 2,
            available,
            is_raised,
        };
        room.records().into()
    }

    #[test]
    fn a_buffer_grows_with_the_event_rate() {
        assert_eq!(records(0, true, Some(8 * GIB)), USUAL);
        assert_eq!(records(20_000, true, Some(8 * GIB)), USUAL);
        // At twice this rate, each of the two CPUs produces 300,000 records per second. The result
        // is rounded up to a power of two.
        assert_eq!(records(200_000, true, Some(64 * GIB)), 1 << 19);
        assert_eq!(records(50_000, true, Some(8 * GIB)), 1 << 17);
        // A reader that waits its turn needs room for four seconds instead of one.
        assert_eq!(records(20_000, false, Some(8 * GIB)), 1 << 17);
        assert_eq!(records(u64::MAX, false, Some(64 * GIB)), LARGEST);
    }

    #[test]
    fn buffers_never_take_more_than_a_sixteenth_of_the_memory() {
        for megabytes in [64, 100, 1_000, 8_000] {
            let available = megabytes << 20;
            let bytes = records(u64::MAX, false, Some(available)) * 64 * 2;
            assert!(bytes <= available / 16, "{bytes} of {available}");
            assert!(bytes > available / 64, "{bytes} of {available}");
        }
        assert_eq!(records(u64::MAX, true, Some(0)), SMALLEST);
        // If the available memory is unknown, the usual size is used.
        assert_eq!(records(u64::MAX, true, None), USUAL);
    }
}
