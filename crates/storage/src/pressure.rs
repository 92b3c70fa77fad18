//! Watches throttled writers and dirty data for a while.

mod causes;
mod sums;

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use ticktax_host::{Proc, soft_mounts};
use ticktax_model::Nanos;
use ticktax_model::pressure::{
    DirtyMemory, PressedDevice, PressedProgram, PressureLimitation, PressureVerdict, WritePressure,
};
use ticktax_model::storage::{DeviceNumber, Mount};
use ticktax_trace::PressureWatch;

use self::sums::Sums;
use crate::fsync::now;

/// Time between two samples of dirty data.
const INTERVAL: Duration = Duration::from_millis(100);
/// Number of samples between two readings of the counters of waiting processes, which may exit.
const SAMPLES_PER_READING: u64 = 5;
/// A program that was not throttled is reported if it made this much data dirty.
const NOTABLE_BYTES: u64 = 1 << 20;
/// Maximum number of programs reported.
const MOST_PROGRAMS: usize = 100;

/// Watches the machine for `length`, or until `stop` returns true.
pub fn watch_pressure(length: Nanos, stop: &dyn Fn() -> bool) -> WritePressure {
    let mut limitations = Vec::new();
    let tracer = PressureWatch::begin().map_err(|error| {
        limitations.push(PressureLimitation::NotTraced {
            why: error.to_string(),
        });
    });
    let mut run = Run::new(tracer.ok());
    let start = now();
    let is_complete = run.watch(start + length, stop);
    let length = now() - start;
    if !is_complete {
        limitations.push(PressureLimitation::Interrupted);
    }
    limitations.extend(run.missing());
    let mounts = run.proc.mounts().unwrap_or_default();
    let mut found = WritePressure {
        length,
        memory: run.memory(),
        devices: run.devices(&mounts),
        programs: run.tracer.is_some().then(|| run.programs()),
        verdict: None,
        causes: Vec::new(),
        soft_mounts: soft_mounts(&mounts),
        limitations,
    };
    if let Some(programs) = &mut found.programs {
        let causes = causes::causes(programs, &found.devices, found.memory.both);
        programs.truncate(MOST_PROGRAMS);
        found.verdict = Some(if !causes.is_empty() {
            PressureVerdict::Others
        } else if programs.iter().any(|program| program.throttled.count > 0) {
            PressureVerdict::Own
        } else {
            PressureVerdict::Quiet
        });
        found.causes = causes;
    }
    found
}

/// Counters of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    dirtied: Option<u64>,
    faults: Option<u64>,
}

/// The state of a run.
struct Run {
    proc: Proc,
    tracer: Option<PressureWatch>,
    sums: Sums,
    /// Names of the devices with dirty data, and whether debugfs shows their state.
    bdis: Vec<String>,
    has_debugfs: bool,
    /// Counters of the machine, of disks and of processes at the start.
    before: Option<ticktax_host::DirtyCounters>,
    written_before: BTreeMap<String, u64>,
    counted_before: BTreeMap<i32, Counted>,
}

impl Run {
    fn new(tracer: Option<PressureWatch>) -> Self {
        let proc = Proc::default();
        let bdis = proc.dirty_devices();
        let has_debugfs = bdis.iter().any(|bdi| proc.device_counters(bdi).is_some());
        let written = bdis
            .iter()
            .filter_map(|bdi| Some((bdi.clone(), proc.written_bytes(disk_number(bdi)?)?)));
        let mut run = Self {
            before: proc.dirty_counters(),
            written_before: written.collect(),
            counted_before: BTreeMap::new(),
            sums: Sums::default(),
            bdis,
            has_debugfs,
            tracer,
            proc,
        };
        if run.tracer.is_some() {
            let pids = run.proc.processes().into_iter();
            run.counted_before = pids.map(|pid| (pid, run.count(pid))).collect();
            // Waits during the preparation are not part of the run.
            run.take();
            run.sums = Sums::default();
        }
        run
    }

    fn count(&self, pid: i32) -> Counted {
        Counted {
            dirtied: self.proc.dirtied_by(pid),
            faults: self.proc.major_faults_of(pid),
        }
    }

    /// Takes samples until `end`. Returns `false` if `stop` ended this early.
    fn watch(&mut self, end: Nanos, stop: &dyn Fn() -> bool) -> bool {
        let mut samples = 0_u64;
        loop {
            self.sample();
            samples += 1;
            let left = u64::try_from((end - now()).0).unwrap_or(0);
            let is_last = left == 0;
            if is_last || samples.is_multiple_of(SAMPLES_PER_READING) {
                self.read_processes();
            }
            if is_last {
                return true;
            }
            if stop() {
                self.read_processes();
                return false;
            }
            thread::sleep(INTERVAL.min(Duration::from_nanos(left)));
        }
    }

    fn sample(&mut self) {
        self.take();
        if let Some(counters) = self.proc.dirty_counters() {
            self.sums.add_machine(counters);
        }
        if self.has_debugfs {
            for bdi in &self.bdis {
                if let Some(counters) = self.proc.device_counters(bdi) {
                    self.sums.add_device(bdi, counters);
                }
            }
        }
    }

    fn take(&mut self) {
        let events = self.tracer.as_mut().map(PressureWatch::take);
        for event in events.unwrap_or_default() {
            self.sums.add_event(&event, !self.has_debugfs);
        }
    }

    /// Reads the counters of all processes that have waited.
    fn read_processes(&mut self) {
        let pids: Vec<i32> = self.sums.programs.keys().copied().collect();
        for pid in pids {
            self.read_process(pid);
        }
    }

    fn read_process(&mut self, pid: i32) {
        let (after, before) = (self.count(pid), self.counted_before.get(&pid).copied());
        // A process that started during the run started with zero.
        let before = before.unwrap_or(Counted {
            dirtied: Some(0),
            faults: Some(0),
        });
        let since = |after: Option<u64>, before: Option<u64>| after?.checked_sub(before?);
        let group = self.proc.unified_group_of(pid);
        let program = self.sums.programs.entry(pid).or_default();
        program.dirtied_bytes = since(after.dirtied, before.dirtied).or(program.dirtied_bytes);
        program.major_faults = since(after.faults, before.faults).or(program.major_faults);
        program.cgroup = group.or_else(|| program.cgroup.take());
    }

    fn missing(&self) -> Vec<PressureLimitation> {
        let mut missing = Vec::new();
        let lost = self.tracer.as_ref().map_or(0, PressureWatch::lost);
        if lost > 0 {
            missing.push(PressureLimitation::Lost { waits: lost });
        }
        if self.before.is_none() {
            missing.push(PressureLimitation::NoCounters);
        }
        if !self.has_debugfs {
            missing.push(match self.tracer {
                Some(_) => PressureLimitation::DevicesAtPauses,
                None => PressureLimitation::NoDevices,
            });
        }
        missing
    }

    fn memory(&self) -> DirtyMemory {
        let mut memory = self.sums.memory();
        let both = self.before.zip(self.proc.dirty_counters());
        if let Some((before, after)) = both {
            memory.limit_bytes = Some(after.limit);
            memory.background_bytes = Some(after.background);
            memory.dirtied_bytes = after.dirtied.checked_sub(before.dirtied);
            memory.written_bytes = after.written.checked_sub(before.written);
            let swapped = after.swapped_in.zip(before.swapped_in);
            memory.swapped_in_bytes = swapped.and_then(|(after, before)| after.checked_sub(before));
        }
        memory
    }

    /// Returns the devices that have mounts, dirty data or throttled writers.
    fn devices(&self, mounts: &[Mount]) -> Vec<PressedDevice> {
        let mut names = self.bdis.clone();
        names.extend(self.sums.devices.keys().cloned());
        names.sort();
        names.dedup();
        let mut devices: Vec<PressedDevice> = names
            .into_iter()
            .map(|bdi| self.device(bdi, mounts))
            .filter(|device| {
                let is_dirty = device.dirty.is_some_and(|level| level.max_bytes > 0);
                let is_written = device.written_bytes.is_some_and(|bytes| bytes > 0);
                is_dirty || is_written || !device.mounts.is_empty()
            })
            .collect();
        let level = |level: Option<ticktax_model::pressure::ByteLevel>| {
            level.map_or(0, |level| level.max_bytes)
        };
        devices
            .sort_by_key(|device| std::cmp::Reverse(level(device.dirty) + level(device.writeback)));
        devices
    }

    fn device(&self, bdi: String, mounts: &[Mount]) -> PressedDevice {
        let number = disk_number(&bdi);
        let here = mounts.iter().filter(|mount| {
            let device = mount.device.as_ref();
            device.is_some_and(|device| Some(device.disk_number) == number)
        });
        let here: Vec<&Mount> = here.collect();
        let disk = here.iter().find_map(|mount| mount.device.as_ref());
        let written = number.and_then(|number| {
            let after = self.proc.written_bytes(number)?;
            after.checked_sub(*self.written_before.get(&bdi)?)
        });
        let levels = self.sums.devices.get(&bdi).copied().unwrap_or_default();
        PressedDevice {
            disk: disk.map(|device| device.disk.clone()),
            mounts: here.iter().map(|mount| mount.path.clone()).collect(),
            dirty: levels.dirty.level(),
            writeback: levels.writeback.level(),
            written_bytes: written,
            bandwidth_bytes_hz: levels.bandwidth_hz,
            max_ratio_percent: self.proc.dirty_share(&bdi),
            bdi,
        }
    }

    /// Returns the programs that waited or wrote, starting with the longest wait.
    fn programs(&mut self) -> Vec<PressedProgram> {
        for pid in self.proc.processes() {
            if self.sums.programs.contains_key(&pid) {
                continue;
            }
            let before = self.counted_before.get(&pid).copied();
            let before = before.unwrap_or_default().dirtied.unwrap_or(0);
            let dirtied = self.proc.dirtied_by(pid).unwrap_or(0);
            if dirtied.saturating_sub(before) >= NOTABLE_BYTES {
                self.read_process(pid);
            }
        }
        let programs = std::mem::take(&mut self.sums.programs);
        let mut programs: Vec<PressedProgram> = programs
            .into_iter()
            .map(|(pid, program)| PressedProgram { pid, ..program })
            .map(|program| self.named(program))
            .collect();
        programs.sort_by_key(|program| {
            let waited = program.throttled.time + program.reclaim.time;
            std::cmp::Reverse((waited, program.dirtied_bytes))
        });
        programs
    }

    /// Adds the name of a program that never waited.
    fn named(&self, mut program: PressedProgram) -> PressedProgram {
        if program.name.is_empty() {
            program.name = self.proc.program(program.pid).unwrap_or_default();
        }
        program
    }
}

/// Returns the number of a disk from the name of its dirty data. Names of network file systems and
/// of Btrfs stand for no disk.
fn disk_number(bdi: &str) -> Option<DeviceNumber> {
    let (major, minor) = bdi.split_once(':')?;
    let number = DeviceNumber {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    };
    (number.major != 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::disk_number;

    #[test]
    fn names_of_disks_are_numbers() {
        assert_eq!(disk_number("7:1").unwrap().to_string(), "7:1");
        assert_eq!(disk_number("btrfs-1"), None);
        assert_eq!(disk_number("0:45"), None);
    }
}
