//! Reads dirty memory: of the machine, of devices, and of processes.

use nix::unistd::{SysconfVar, sysconf};
use ticktax_model::Nanos;
use ticktax_model::pressure::SoftMount;
use ticktax_model::storage::Mount;

use super::Proc;

/// Mount options with which requests to a server fail after a while.
const SOFT: [&str; 2] = ["soft", "softerr"];
/// Network file systems that have these options.
const NETWORK: [&str; 4] = ["nfs", "nfs4", "cifs", "smb3"];

/// Dirty memory of the machine in bytes, from `/proc/vmstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyCounters {
    /// Data that is dirty and not being written.
    pub dirty: u64,
    /// Data that is being written.
    pub writeback: u64,
    /// Allowed amount of dirty data.
    pub limit: u64,
    /// Amount of dirty data at which the kernel starts to write.
    pub background: u64,
    /// Data that became dirty since the machine started.
    pub dirtied: u64,
    /// Data that the kernel has written since then.
    pub written: u64,
    /// Memory that was read back from swap since then.
    pub swapped_in: Option<u64>,
}

/// Dirty data of a device in bytes, from debugfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Data that is dirty and not being written.
    pub dirty: u64,
    /// Data that is being written.
    pub writeback: u64,
    /// The kernel's estimate of the device's speed, in bytes per second.
    pub bandwidth_hz: u64,
}

impl Proc {
    /// Returns the size of a page in bytes.
    pub fn page_bytes() -> u64 {
        let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        size.and_then(|size| u64::try_from(size).ok())
            .unwrap_or(4_096)
    }

    /// Reads the machine's dirty memory. Returns `None` if the kernel does not report it.
    pub fn dirty_counters(&self) -> Option<DirtyCounters> {
        dirty_counters(&self.text("proc/vmstat")?, Self::page_bytes())
    }

    /// Returns the names of all devices with dirty data, for example `8:0`.
    pub fn dirty_devices(&self) -> Vec<String> {
        self.names("sys/class/bdi")
    }

    /// Reads the dirty data of a device. Returns `None` without debugfs, which only root can read.
    pub fn device_counters(&self, bdi: &str) -> Option<DeviceCounters> {
        device_counters(&self.text(&format!("sys/kernel/debug/bdi/{bdi}/stats"))?)
    }

    /// Returns the largest share of the dirty limit that a device may use, in percent.
    pub fn dirty_share(&self, bdi: &str) -> Option<u64> {
        let text = self.text(&format!("sys/class/bdi/{bdi}/max_ratio"))?;
        text.parse().ok()
    }

    /// Returns how much data of files a process has made dirty. Returns `None` if the kernel does
    /// not count it or the caller cannot read it.
    pub fn dirtied_by(&self, pid: i32) -> Option<u64> {
        let text = self.text(&format!("proc/{pid}/io"))?;
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
    }

    /// Returns how often a process had to wait for a disk to read a page.
    pub fn major_faults_of(&self, pid: i32) -> Option<u64> {
        let text = self.text(&format!("proc/{pid}/stat"))?;
        // The name, which can contain anything, ends with the last parenthesis. The number after
        // it is the third of the line, and major faults are the twelfth (proc(5)).
        let (_, numbers) = text.rsplit_once(") ")?;
        numbers.split(' ').nth(9)?.parse().ok()
    }

    /// Returns the cgroup of a process in the unified hierarchy.
    pub fn unified_group_of(&self, pid: i32) -> Option<String> {
        let text = self.text(&format!("proc/{pid}/cgroup"))?;
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("0::").map(str::to_owned))
    }
}

fn dirty_counters(vmstat: &str, page_bytes: u64) -> Option<DirtyCounters> {
    let bytes = |name: &str| -> Option<u64> {
        let value = |line: &str| {
            let pages = line.strip_prefix(name)?.strip_prefix(' ')?;
            pages.parse::<u64>().ok()?.checked_mul(page_bytes)
        };
        vmstat.lines().find_map(value)
    };
    Some(DirtyCounters {
        dirty: bytes("nr_dirty")?,
        writeback: bytes("nr_writeback")?,
        limit: bytes("nr_dirty_threshold")?,
        background: bytes("nr_dirty_background_threshold")?,
        dirtied: bytes("nr_dirtied")?,
        written: bytes("nr_written")?,
        swapped_in: bytes("pswpin"),
    })
}

fn device_counters(stats: &str) -> Option<DeviceCounters> {
    let bytes = |name: &str| -> Option<u64> {
        let value = |line: &str| {
            let text = line.strip_prefix(name)?.strip_prefix(':')?.trim();
            let text = text.strip_suffix("kBps").or(text.strip_suffix("kB"))?;
            text.trim().parse::<u64>().ok()?.checked_mul(1_024)
        };
        stats.lines().find_map(value)
    };
    Some(DeviceCounters {
        dirty: bytes("BdiReclaimable")?,
        writeback: bytes("BdiWriteback")?,
        bandwidth_hz: bytes("BdiWriteBandwidth")?,
    })
}

/// Returns the network mounts on which a write can fail because the server is slow.
pub fn soft_mounts(mounts: &[Mount]) -> Vec<SoftMount> {
    mounts.iter().filter_map(soft_mount).collect()
}

fn soft_mount(mount: &Mount) -> Option<SoftMount> {
    let is_network = NETWORK.contains(&mount.file_system.as_str());
    if !is_network || mount.is_read_only {
        return None;
    }
    let option = mount
        .options
        .iter()
        .find(|&option| SOFT.contains(&&**option))?;
    let number = |name: &str| -> Option<i64> {
        let mut options = mount.options.iter();
        options.find_map(|option| option.strip_prefix(name)?.parse().ok())
    };
    Some(SoftMount {
        path: mount.path.clone(),
        file_system: mount.file_system.clone(),
        source: mount.source.clone(),
        option: option.clone(),
        // In tenths of a second (nfs(5)).
        timeout: number("timeo=").map(|tenths| Nanos::from_millis(tenths.saturating_mul(100))),
        repetitions: number("retrans=").and_then(|count| u64::try_from(count).ok()),
    })
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::storage::Mount;

    use super::{DirtyCounters, device_counters, dirty_counters, soft_mounts};

    #[test]
    fn counters_become_bytes() {
        let text = "nr_dirty 3\nnr_writeback 2\nnr_writeback_temp 9\nnr_dirtied 8\nnr_written 7\n\
            nr_dirty_threshold 900\nnr_dirty_background_threshold 450\n";
        let expected = DirtyCounters {
            dirty: 12_288,
            writeback: 8_192,
            limit: 3_686_400,
            background: 1_843_200,
            dirtied: 32_768,
            written: 28_672,
            swapped_in: None,
        };
        assert_eq!(dirty_counters(text, 4_096), Some(expected));
        assert_eq!(dirty_counters("nr_dirty 3\n", 4_096), None);
    }

    #[test]
    fn a_devices_counters_come_from_debugfs() {
        let text = "BdiWriteback:                4 kB\nBdiReclaimable:            100 kB\n\
            BdiDirtyThresh:        81424 kB\nBdiWriteBandwidth:      2048 kBps\n";
        let found = device_counters(text).unwrap();
        assert_eq!((found.dirty, found.writeback), (102_400, 4_096));
        assert_eq!(found.bandwidth_hz, 2 << 20);
        assert_eq!(device_counters("BdiWriteback: 4 kB\n"), None);
    }

    #[test]
    fn soft_network_mounts_are_listed() {
        let mount = |kind: &str, options: &str| Mount {
            file_system: kind.to_owned(),
            options: options.split(',').map(str::to_owned).collect(),
            ..Mount::default()
        };
        let found = soft_mounts(&[
            mount("nfs4", "rw,softerr,timeo=600,retrans=2"),
            mount("nfs4", "rw,hard,timeo=600,retrans=2"),
            mount("cifs", "rw,soft"),
            mount("ext4", "rw,soft"),
        ]);
        let [nfs, cifs] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(nfs.option, "softerr");
        assert_eq!(nfs.timeout, Some(Nanos::from_millis(60_000)));
        assert_eq!(nfs.repetitions, Some(2));
        assert_eq!((cifs.timeout, cifs.repetitions), (None, None));
    }
}
