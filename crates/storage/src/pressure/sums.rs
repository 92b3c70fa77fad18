//! Sums of samples and waits.

use std::collections::BTreeMap;

use ticktax_host::{DeviceCounters, DirtyCounters, Proc};
use ticktax_model::pressure::{
    ByteLevel, DevicePauses, DirtyMemory, PressedProgram, PressureEvent, PressureWait,
    ThrottledWrite,
};

/// A pause is at the machine's limit if its limit is at least this share of it, in percent. The
/// limit changes slightly with free memory, and is higher for real-time threads.
const SAME_LIMIT: u64 = 80;

/// Sum and maximum of samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Level {
    sum: u128,
    max: u64,
    count: u64,
}

impl Level {
    pub(super) fn add(&mut self, bytes: u64) {
        self.sum += u128::from(bytes);
        self.max = self.max.max(bytes);
        self.count += 1;
    }

    /// Returns the mean and the maximum, or `None` without samples.
    pub(super) fn level(self) -> Option<ByteLevel> {
        let mean = self.sum.checked_div(u128::from(self.count))?;
        Some(ByteLevel {
            mean_bytes: u64::try_from(mean).unwrap_or(u64::MAX),
            max_bytes: self.max,
            samples: self.count,
        })
    }
}

/// Samples of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceSums {
    pub(super) dirty: Level,
    pub(super) writeback: Level,
    pub(super) bandwidth_hz: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Sums {
    dirty: Level,
    writeback: Level,
    both: Level,
    /// Number of samples in which the kernel throttled writers.
    throttling: u64,
    /// The machine's limit in the last sample.
    limit: u64,
    /// Samples by the device's name in `/sys/class/bdi`.
    pub(super) devices: BTreeMap<String, DeviceSums>,
    /// Programs by process.
    pub(super) programs: BTreeMap<i32, PressedProgram>,
}

impl Sums {
    pub(super) fn add_machine(&mut self, counters: DirtyCounters) {
        let both = counters.dirty.saturating_add(counters.writeback);
        self.dirty.add(counters.dirty);
        self.writeback.add(counters.writeback);
        self.both.add(both);
        // The kernel lets writers run freely below this mean (`dirty_freerun_ceiling`).
        let is_throttling = both > u64::midpoint(counters.limit, counters.background);
        self.throttling += u64::from(is_throttling);
        self.limit = counters.limit;
    }

    pub(super) fn add_device(&mut self, bdi: &str, counters: DeviceCounters) {
        let sums = self.devices.entry(bdi.to_owned()).or_default();
        sums.dirty.add(counters.dirty);
        sums.writeback.add(counters.writeback);
        sums.bandwidth_hz = Some(counters.bandwidth_hz);
    }

    /// Adds a wait. `samples_device` tells whether it is also a sample of the device.
    pub(super) fn add_event(&mut self, event: &PressureEvent, samples_device: bool) {
        let program = self.programs.entry(event.pid).or_default();
        program.name.clone_from(&event.name);
        let write = match &event.kind {
            PressureWait::Reclaim => return program.reclaim.add(event.length),
            PressureWait::Throttled(write) => write,
        };
        program.throttled.add(event.length);
        let known = program
            .devices
            .iter()
            .position(|pauses| pauses.bdi == write.device);
        let index = known.unwrap_or_else(|| {
            program.devices.push(DevicePauses {
                bdi: write.device.clone(),
                ..DevicePauses::default()
            });
            program.devices.len() - 1
        });
        let pauses = &mut program.devices[index];
        pauses.waits.add(event.length);
        let limit = write.limit.saturating_mul(Proc::page_bytes());
        let is_shared = write.dirty > write.free;
        if !is_shared {
            pauses.at_device_limit += event.length;
        } else if limit.saturating_mul(100) >= self.limit.saturating_mul(SAME_LIMIT) {
            pauses.at_machine_limit += event.length;
        }
        if is_shared && write.device_dirty.saturating_mul(2) < write.dirty {
            pauses.behind_other_devices += event.length;
        }
        let device = write.device.clone();
        if samples_device {
            self.add_device(&device, state(write));
        }
    }

    /// Returns what the samples say about the machine.
    pub(super) fn memory(&self) -> DirtyMemory {
        let share = (self.throttling * 100).checked_div(self.both.count);
        DirtyMemory {
            dirty: self.dirty.level(),
            writeback: self.writeback.level(),
            both: self.both.level(),
            throttling_percent: share,
            ..DirtyMemory::default()
        }
    }
}

/// Returns the state of the device in bytes.
fn state(write: &ThrottledWrite) -> DeviceCounters {
    let bytes = |pages: u64| pages.saturating_mul(Proc::page_bytes());
    DeviceCounters {
        dirty: bytes(write.device_waiting),
        writeback: bytes(write.device_writing),
        bandwidth_hz: bytes(write.bandwidth_hz),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_host::{DirtyCounters, Proc};
    use ticktax_model::Nanos;
    use ticktax_model::pressure::{PressureEvent, PressureWait, ThrottledWrite};

    use super::Sums;

    fn pause(length: i64, limit: u64, free: u64, device_dirty: u64) -> PressureEvent {
        PressureEvent {
            pid: 7,
            name: "dd".to_owned(),
            length: Nanos(length),
            kind: PressureWait::Throttled(ThrottledWrite {
                device: "7:0".to_owned(),
                dirty: 100,
                limit,
                free,
                device_dirty,
                device_limit: 60,
                device_waiting: 30,
                device_writing: 5,
                bandwidth_hz: 512,
            }),
        }
    }

    #[test]
    fn pauses_are_divided_by_what_filled_the_limit() {
        let page = Proc::page_bytes();
        let mut sums = Sums::default();
        sums.add_machine(DirtyCounters {
            dirty: 80 * page,
            writeback: 15 * page,
            limit: 120 * page,
            background: 60 * page,
            ..DirtyCounters::default()
        });
        sums.add_event(&pause(1, 120, 90, 50), true);
        sums.add_event(&pause(10, 120, 90, 49), true);
        sums.add_event(&pause(100, 90, 80, 60), true);
        sums.add_event(&pause(10_000, 120, 100, 9), true);
        let reclaim = PressureEvent {
            kind: PressureWait::Reclaim,
            ..pause(1_000, 0, 0, 0)
        };
        sums.add_event(&reclaim, true);
        let program = &sums.programs[&7];
        assert_eq!(program.throttled.time, Nanos(10_111));
        assert_eq!(
            (program.throttled.count, program.throttled.max.0),
            (4, 10_000)
        );
        assert_eq!(program.reclaim.time, Nanos(1_000));
        let pauses = &program.devices[0];
        assert_eq!(pauses.behind_other_devices, Nanos(10));
        assert_eq!(pauses.at_machine_limit, Nanos(11));
        assert_eq!(pauses.at_device_limit, Nanos(10_000));
        let device = sums.devices["7:0"];
        assert_eq!(device.dirty.level().unwrap().max_bytes, 30 * page);
        assert_eq!(device.bandwidth_hz, Some(512 * page));
        assert_eq!(sums.memory().throttling_percent, Some(100));
    }

    #[test]
    fn without_samples_nothing_is_known() {
        let memory = Sums::default().memory();
        assert_eq!((memory.both, memory.throttling_percent), (None, None));
    }
}
