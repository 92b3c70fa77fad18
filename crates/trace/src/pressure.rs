//! Watches the pauses of throttled writers, and direct reclaim.

use std::path::Path;

use ticktax_model::Nanos;
use ticktax_model::pressure::{PressureEvent, PressureWait, ThrottledWrite};

use crate::error::TraceError;
use crate::load::{BTF, read_btf};
use crate::standalone::{Attached, Object};

/// The programs, which `cargo xtask bpf` builds from `bpf/pressure.bpf.c`. The ends of waits are
/// attached first, so that no wait is remembered whose end cannot be seen.
const OBJECT: Object = Object {
    code: aya::include_bytes_aligned!("../bpf/pressure.bpf.o"),
    programs: &[
        "sched_switch",
        "mm_vmscan_direct_reclaim_end",
        "mm_vmscan_direct_reclaim_begin",
        "balance_dirty_pages",
    ],
    replacements: &[("balance_dirty_pages", "balance_dirty_pages_by_pointer")],
    events: "pressure_events",
    lost: "pressure_lost",
    bytes: 7 << 20,
};

/// Size of a `struct pressure_event`.
const EVENT_BYTES: usize = 128;
/// Kinds of events, as in `bpf/pressure.bpf.c`.
const PAUSE: u32 = 1;
const RECLAIM: u32 = 2;

/// Watches all threads. Watching stops when this is dropped.
pub struct PressureWatch(Attached);

impl std::fmt::Debug for PressureWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PressureWatch").finish_non_exhaustive()
    }
}

impl PressureWatch {
    /// Starts watching.
    ///
    /// # Errors
    /// Returns an error if the kernel or the caller's rights do not allow it.
    pub fn begin() -> Result<Self, TraceError> {
        let types = read_btf(Path::new(BTF))?;
        OBJECT.attach(&types, &[]).map(Self)
    }

    /// Returns the waits that ended since the last call.
    pub fn take(&mut self) -> Vec<PressureEvent> {
        self.0.take(decode)
    }

    /// Returns how many waits did not fit into the buffers.
    pub fn lost(&self) -> u64 {
        self.0.lost(0)
    }
}

/// Decodes a `struct pressure_event`. Returns `None` if it is incomplete.
fn decode(bytes: &[u8]) -> Option<PressureEvent> {
    let bytes: &[u8; EVENT_BYTES] = bytes.get(..EVENT_BYTES)?.try_into().ok()?;
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let text = |from: usize, to: usize| {
        let text = bytes.get(from..to)?.split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    // Counters that are kept per CPU can be slightly below zero.
    let count = |at: usize| Some(u64::try_from(long(at)?.cast_signed()).unwrap_or(0));
    let kind = match word(16)? {
        PAUSE => PressureWait::Throttled(ThrottledWrite {
            dirty: long(48)?,
            limit: long(56)?,
            device_dirty: long(64)?,
            device_limit: long(72)?,
            bandwidth_hz: long(80)?,
            device_waiting: count(88)?,
            device_writing: count(96)?,
            free: long(104)?,
            device: text(112, 128)?,
        }),
        RECLAIM => PressureWait::Reclaim,
        _ => return None,
    };
    Some(PressureEvent {
        pid: i32::try_from(word(20)?).ok()?,
        name: text(32, 48)?,
        length: Nanos(long(8)?.cast_signed()),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pressure::PressureWait;

    use super::{EVENT_BYTES, PAUSE, RECLAIM, decode};

    fn event(kind: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for long in [5_u64, 9] {
            bytes.extend(long.to_ne_bytes());
        }
        for word in [kind, 12, 13, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(b"gamesrv\0\0\0\0\0\0\0\0\0");
        for long in [100_i64, 120, 7, 8, 2_560, -3, 4, 90] {
            bytes.extend(long.to_ne_bytes());
        }
        bytes.extend(b"7:0\0");
        bytes.resize(EVENT_BYTES, 0);
        bytes
    }

    #[test]
    fn a_pause_is_decoded() {
        let found = decode(&event(PAUSE)).unwrap();
        assert_eq!((found.pid, found.length), (12, Nanos(9)));
        assert_eq!(found.name, "gamesrv");
        let PressureWait::Throttled(write) = found.kind else {
            panic!("{found:?}");
        };
        assert_eq!(write.device, "7:0");
        assert_eq!((write.dirty, write.limit, write.free), (100, 120, 90));
        assert_eq!((write.device_dirty, write.device_limit), (7, 8));
        assert_eq!((write.device_waiting, write.device_writing), (0, 4));
        assert_eq!(write.bandwidth_hz, 2_560);
    }

    #[test]
    fn incomplete_and_unknown_events_are_ignored() {
        let found = decode(&event(RECLAIM)).unwrap();
        assert_eq!(found.kind, PressureWait::Reclaim);
        assert_eq!(decode(&event(3)), None);
        let whole = event(PAUSE);
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end]), None);
        }
    }
}
