//! Reads the mounted file systems, their effective options, and the devices below them.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ticktax_model::storage::{BlockDevice, DeviceNumber, Journal, Mount};

use super::Proc;
use super::configured::fstab::{fields, same_place, unescaped};

/// Maximum depth of devices built from other devices.
const DEEPEST: u32 = 8;
/// File systems that keep data although no block device is below them.
const WITHOUT_DEVICE: [&str; 12] = [
    "overlay", "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "zfs", "bcachefs", "tmpfs",
    "ramfs",
];

impl Proc {
    /// Returns the mounts that keep files, in the order in which they were mounted, without those
    /// that are hidden by another mount at the same directory. Returns `None` if the list cannot be
    /// read.
    pub fn mounts(&self) -> Option<Vec<Mount>> {
        let lines = self.text("proc/self/mountinfo")?;
        let lines: Vec<Line> = lines.lines().filter_map(Line::parse).collect();
        let fstab = self.text("etc/fstab").unwrap_or_default();
        let mut seen = BTreeSet::new();
        let mut mounts: Vec<Mount> = Vec::new();
        for line in lines.iter().rev() {
            if seen.insert(&line.path)
                && let Some(mount) = self.mount(line, &fstab)
            {
                mounts.push(mount);
            }
        }
        mounts.reverse();
        Some(mounts)
    }

    /// Returns the mount that contains an existing absolute path without symbolic links. Unlike
    /// [`mounts`](Self::mounts), this includes all types of file systems.
    pub fn mount_of(&self, path: &Path) -> Option<(Mount, DeviceNumber)> {
        let text = self.text("proc/self/mountinfo")?;
        let lines: Vec<Line> = text.lines().filter_map(Line::parse).collect();
        let contains = |line: &&Line| path.starts_with(Path::new(&line.path));
        // The last of the mounts at the same directory is on top.
        let line = lines
            .iter()
            .filter(contains)
            .max_by_key(|line| line.path.len())?;
        let fstab = self.text("etc/fstab").unwrap_or_default();
        let mount = self.mount(line, &fstab);
        let mount = mount.unwrap_or_else(|| line.plain());
        Some((mount, line.number))
    }

    /// Returns a mount with everything that is known about it, or `None` if it keeps no files.
    fn mount(&self, line: &Line, fstab: &str) -> Option<Mount> {
        let kind = line.kind.as_str();
        let device = self.device_of(line);
        let is_remote = kind == "fuse" || kind.starts_with("fuse.");
        if device.is_none() && !is_remote && !WITHOUT_DEVICE.contains(&kind) {
            return None;
        }
        let mut mount = line.plain();
        mount.fstab_type = fstab_type(fstab, &line.path, kind);
        let name = device.as_ref().map(|device| device.name.clone());
        mount.device = device;
        match kind {
            "ext2" | "ext3" | "ext4" => self.add_ext4(&mut mount, &name.unwrap_or_default()),
            "xfs" => {
                mount.journal = Some(Journal::Metadata);
                // Since 4.19, nothing can disable them.
                mount.barriers = Some(!has(&mount, "nobarrier"));
                mount.delayed_allocation = Some(true);
            }
            "btrfs" => {
                mount.journal = Some(Journal::CopyOnWrite);
                mount.barriers = Some(!has(&mount, "nobarrier"));
                mount.delayed_allocation = Some(true);
            }
            _ => {}
        }
        Some(mount)
    }

    /// Adds the settings that the ext4 driver reports, including default ones.
    fn add_ext4(&self, mount: &mut Mount, device: &str) {
        let Some(options) = self.text(&format!("proc/fs/ext4/{device}/options")) else {
            return;
        };
        mount.options = options.lines().map(str::to_owned).collect();
        let journal = mount
            .options
            .iter()
            .find_map(|option| option.strip_prefix("data="));
        mount.journal = match journal {
            Some("ordered") => Some(Journal::Ordered),
            Some("writeback") => Some(Journal::Writeback),
            Some("journal") => Some(Journal::Data),
            Some(_) => None,
            None => Some(Journal::None),
        };
        mount.barriers = Some(has(mount, "barrier"));
        mount.delayed_allocation = Some(has(mount, "delalloc"));
    }

    fn device_of(&self, line: &Line) -> Option<BlockDevice> {
        if line.number.major != 0 {
            return self.block_device(line.number, DEEPEST);
        }
        // Each of these file systems has its own anonymous device number.
        if line.kind != "btrfs" {
            return None;
        }
        let name = Path::new(&line.source).file_name()?.to_str()?;
        let number = self.text(&format!("sys/class/block/{name}/dev"));
        let number = number.and_then(|text| number_in(&text)).or_else(|| {
            let metadata = std::fs::metadata(self.root.join(line.source.strip_prefix('/')?));
            Some(split(metadata.ok()?.rdev()))
        })?;
        self.block_device(number, DEEPEST)
    }

    /// Reads what is known about a block device.
    fn block_device(&self, number: DeviceNumber, depth: u32) -> Option<BlockDevice> {
        let folder = format!("sys/dev/block/{number}");
        let uevent = self.text(&format!("{folder}/uevent"))?;
        let value = |key: &str| {
            let mut lines = uevent.lines();
            lines.find_map(|line| line.strip_prefix(key).map(str::to_owned))
        };
        let name = value("DEVNAME=")?;
        let is_partition = self.text(&format!("{folder}/partition")).is_some();
        let whole = if is_partition {
            format!("{folder}/..")
        } else {
            folder.clone()
        };
        let disk_number = self.text(&format!("{whole}/dev"));
        let disk_number = disk_number.and_then(|text| number_in(&text));
        let disk = self.text(&format!("{whole}/uevent")).and_then(|text| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix("DEVNAME=").map(str::to_owned))
        });
        let flag = |file: &str| {
            let text = self.text(&format!("{whole}/queue/{file}"))?;
            match text.as_str() {
                "0" => Some(false),
                "1" => Some(true),
                _ => None,
            }
        };
        let sectors =
            |file: &str| -> Option<u64> { self.text(&format!("{folder}/{file}"))?.parse().ok() };
        Some(BlockDevice {
            number,
            first_sector: sectors("start").unwrap_or(0),
            sectors: sectors("size").unwrap_or(0),
            disk: disk.unwrap_or_else(|| name.clone()),
            disk_number: disk_number.unwrap_or(number),
            write_cache: self.text(&format!("{whole}/queue/write_cache")),
            fua: flag("fua"),
            rotational: flag("rotational"),
            below: self.below(&whole, depth),
            backing_file: self.text(&format!("{whole}/loop/backing_file")),
            name,
        })
    }

    fn below(&self, folder: &str, depth: u32) -> Vec<BlockDevice> {
        let Some(deeper) = depth.checked_sub(1) else {
            return Vec::new();
        };
        let names = self.names(&format!("{folder}/slaves"));
        let device = |name: &String| {
            let number = self.text(&format!("{folder}/slaves/{name}/dev"))?;
            self.block_device(number_in(&number)?, deeper)
        };
        names.iter().filter_map(device).collect()
    }

    /// Returns the bytes that a disk has written since the machine started. Returns `None` if the
    /// disk does not count them.
    pub fn written_bytes(&self, disk: DeviceNumber) -> Option<u64> {
        let folder = format!("sys/dev/block/{disk}");
        if self.text(&format!("{folder}/queue/iostats")).as_deref() == Some("0") {
            return None;
        }
        let counters = self.text(&format!("{folder}/stat"))?;
        // The seventh number counts sectors of 512 bytes (Documentation/block/stat.rst).
        let sectors: u64 = counters.split_ascii_whitespace().nth(6)?.parse().ok()?;
        sectors.checked_mul(512)
    }
}

fn has(mount: &Mount, option: &str) -> bool {
    mount.options.iter().any(|found| found == option)
}

fn number_in(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(DeviceNumber {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

/// Splits a device number of the C library.
fn split(number: u64) -> DeviceNumber {
    let part = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    DeviceNumber {
        major: part(nix::sys::stat::major(number)),
        minor: part(nix::sys::stat::minor(number)),
    }
}

/// Returns the type that `fstab` has for a directory if it differs from the actual type.
fn fstab_type(fstab: &str, path: &str, actual: &str) -> Option<String> {
    let mut kinds = fstab.lines().filter_map(|line| {
        let [_, place, kind, _] = fields(line)?;
        same_place(&place, path).then_some(kind)
    });
    // A list of types or `auto` leaves the choice to mount(8).
    kinds
        .next_back()
        .filter(|kind| kind != "auto" && kind.split(',').all(|kind| kind != actual))
}

/// A line of `mountinfo`.
struct Line {
    number: DeviceNumber,
    path: String,
    options: Vec<String>,
    kind: String,
    source: String,
}

impl Line {
    /// Parses a line (proc(5)). Returns `None` if it is incomplete.
    fn parse(line: &str) -> Option<Self> {
        let (first, second) = line.split_once(" - ")?;
        let mut first = first.split(' ').skip(2);
        let number = number_in(first.next()?)?;
        let path = unescaped(first.nth(1)?);
        let options = first.next()?;
        let mut second = second.split(' ');
        let (kind, source) = (second.next()?.to_owned(), unescaped(second.next()?));
        let mut all: Vec<String> = Vec::new();
        for option in options.split(',').chain(second.next()?.split(',')) {
            if !all.iter().any(|found| found == option) {
                all.push(option.to_owned());
            }
        }
        Some(Self {
            number,
            path,
            options: all,
            kind,
            source,
        })
    }

    fn plain(&self) -> Mount {
        let upper = self
            .options
            .iter()
            .find_map(|option| option.strip_prefix("upperdir="));
        Mount {
            path: self.path.clone(),
            file_system: self.kind.clone(),
            source: self.source.clone(),
            // The mount's own options come first. A read-only file system has `ro` only later.
            is_read_only: self.options.iter().any(|option| option == "ro"),
            upper: upper.map(unescaped),
            options: self.options.clone(),
            ..Mount::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use ticktax_model::storage::{DeviceNumber, Journal};

    use super::Proc;

    /// Writes the files of a machine: `(path, text)`.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MOUNTS: &str = "\
22 1 0:21 / /proc rw - proc proc rw
25 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
26 25 0:40 / /data\\040set rw - btrfs /dev/sdb rw,nobarrier
27 25 0:41 / /box rw - overlay overlay rw,lowerdir=/l,upperdir=/up,workdir=/w
28 25 0:42 / /hidden rw - tmpfs tmpfs rw
29 25 253:0 / /hidden ro - xfs /dev/mapper/v rw
incomplete line
";

    fn mounted() -> tempfile::TempDir {
        machine(&[
            ("proc/self/mountinfo", MOUNTS),
            (
                "proc/fs/ext4/nvme0n1p2/options",
                "rw\ndelalloc\nbarrier\ndata=writeback\n",
            ),
            (
                "etc/fstab",
                "# /dev/x / btrfs\n/dev/a / xfs d 0 1\n/dev/b /hidden xfs,ext4\n",
            ),
            (
                "sys/dev/block/259:2/uevent",
                "MAJOR=259\nDEVNAME=nvme0n1p2\n",
            ),
            ("sys/dev/block/259:2/partition", "2\n"),
            ("sys/dev/block/uevent", "DEVNAME=nvme0n1\n"),
            ("sys/dev/block/dev", "259:0\n"),
            ("sys/dev/block/queue/write_cache", "write back\n"),
            ("sys/dev/block/queue/fua", "1\n"),
            ("sys/class/block/sdb/dev", "8:16\n"),
            ("sys/dev/block/8:16/uevent", "DEVNAME=sdb\n"),
            ("sys/dev/block/253:0/uevent", "DEVNAME=dm-0\n"),
            ("sys/dev/block/253:0/slaves/sdb/dev", "8:16\n"),
            (
                "sys/dev/block/8:16/stat",
                "1 2 3 4 5 6 70 8 9 10 11 12 13 14 15 16 17\n",
            ),
        ])
    }

    #[test]
    fn mounts_have_their_devices_and_effective_options() {
        let root = mounted();
        let mounts = Proc::at(root.path()).mounts().unwrap();
        let paths: Vec<&str> = mounts.iter().map(|mount| mount.path.as_str()).collect();
        assert_eq!(paths, ["/", "/data set", "/box", "/hidden"]);
        let [ext4, btrfs, overlay, xfs] = &mounts[..] else {
            panic!("{mounts:?}");
        };
        assert_eq!(ext4.journal, Some(Journal::Writeback));
        assert_eq!(
            (ext4.barriers, ext4.delayed_allocation),
            (Some(true), Some(true))
        );
        assert_eq!(ext4.fstab_type.as_deref(), Some("xfs"));
        let disk = ext4.device.as_ref().unwrap();
        assert_eq!(
            (disk.name.as_str(), disk.disk.as_str()),
            ("nvme0n1p2", "nvme0n1")
        );
        assert_eq!(disk.write_cache.as_deref(), Some("write back"));
        assert_eq!(disk.fua, Some(true));
        assert_eq!(btrfs.barriers, Some(false));
        assert_eq!(btrfs.device.as_ref().unwrap().name, "sdb");
        assert_eq!(overlay.upper.as_deref(), Some("/up"));
        assert!(xfs.is_read_only && xfs.fstab_type.is_none());
        let names = |device: &ticktax_model::storage::BlockDevice| device.below[0].name.clone();
        assert_eq!(names(xfs.device.as_ref().unwrap()), "sdb");
    }

    #[test]
    fn a_path_belongs_to_the_nearest_mount() {
        let root = mounted();
        let proc = Proc::at(root.path());
        let kind = |path: &str| proc.mount_of(Path::new(path)).unwrap().0.file_system;
        assert_eq!(kind("/proc/1"), "proc");
        assert_eq!(kind("/boxes"), "ext4");
        assert_eq!(kind("/box/a"), "overlay");
        assert_eq!(kind("/hidden"), "xfs");
    }

    #[test]
    fn a_disk_counts_the_bytes_that_it_wrote() {
        let root = mounted();
        let proc = Proc::at(root.path());
        let of = |major, minor| proc.written_bytes(DeviceNumber { major, minor });
        assert_eq!(of(8, 16), Some(70 * 512));
        assert_eq!(of(8, 17), None);
    }
}
