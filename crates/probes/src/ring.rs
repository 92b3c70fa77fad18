//! A lock-free ring between a measuring thread and the collector.

use rtrb::{Consumer, Producer, RingBuffer};
use ticktax_model::Cpu;

use crate::ProbeError;

/// Minimum and maximum capacity, in entries per CPU. An entry takes 16 bytes, or 32 for a frame.
const CAPACITY: (usize, usize) = (16, 1 << 24);

/// Reading end of one CPU's ring.
#[derive(Debug)]
pub(crate) struct Outlet<T> {
    cpu: Cpu,
    entries: Consumer<T>,
}

/// Creates a CPU's ring and touches all of its memory.
pub(crate) fn ring<T: Copy + Default>(
    cpu: Cpu,
    capacity: usize,
) -> Result<(Producer<T>, Outlet<T>), ProbeError> {
    let (min, max) = CAPACITY;
    if !(min..=max).contains(&capacity) {
        return Err(ProbeError::RingCapacity { capacity, min, max });
    }
    let (mut producer, mut entries) = RingBuffer::new(capacity);
    // Fill the ring once, so that the kernel maps all of its pages before the measurement.
    while producer.push(T::default()).is_ok() {}
    while entries.pop().is_ok() {}
    Ok((producer, Outlet { cpu, entries }))
}

/// Passes all entries in the rings to `sink`, one CPU after the other, and oldest first for each
/// CPU.
///
/// From each ring, this reads only the entries present at that moment. It therefore returns even if
/// the writer is faster.
pub(crate) fn drain<T>(outlets: &mut [Outlet<T>], mut sink: impl FnMut(Cpu, T)) {
    for outlet in outlets {
        for _ in 0..outlet.entries.slots() {
            let Ok(entry) = outlet.entries.pop() else {
                break;
            };
            sink(outlet.cpu, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Cpu;

    use super::{drain, ring};

    #[test]
    fn a_fresh_ring_is_empty_and_holds_its_capacity() {
        let (mut producer, outlet) = ring(Cpu(3), 16).unwrap();
        let accepted = (0..20).filter(|n| producer.push(*n).is_ok()).count();
        let mut seen = Vec::new();
        drain(&mut [outlet], |cpu, n: i32| seen.push((cpu, n)));
        assert_eq!(accepted, 16);
        assert_eq!(seen, (0..16).map(|n| (Cpu(3), n)).collect::<Vec<_>>());
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for capacity in [0, 15, usize::MAX] {
            assert!(ring::<u64>(Cpu(0), capacity).is_err(), "{capacity}");
        }
    }
}
