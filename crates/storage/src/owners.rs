//! Decides whose data a write contains, and whether the write belongs to an fsync.

use ticktax_model::Nanos;
use ticktax_model::storage::{BlockDevice, DeviceNumber, DiskWrite, FsyncWaits, FsyncWrites};

/// Start of the name of ext4's journal threads.
const JOURNAL_THREAD: &str = "jbd2/";
/// Last of the inodes that contain metadata in Btrfs (1) and F2FS (1 and 2).
const LAST_METADATA_INODE: u64 = 2;

/// The files, the file system and the thread, by which writes are attributed.
pub(crate) struct Owners {
    /// Number of the file system.
    pub(crate) file_system: DeviceNumber,
    /// Device that contains the file system.
    pub(crate) device: BlockDevice,
    /// Inode number of the small file.
    pub(crate) file: u64,
    /// Inode number of the foreign file.
    pub(crate) foreign: u64,
    /// Thread that calls fsync.
    pub(crate) caller: i32,
}

/// Owner of written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    File,
    Metadata,
    Foreign,
    OtherFile,
    Elsewhere,
    Unknown,
}

impl Owners {
    pub(crate) fn owner(&self, write: &DiskWrite) -> Owner {
        let is_here = self.device.contains(write);
        match write.owner {
            Some(owner) if !owner.is_block_device => {
                if owner.file_system != self.file_system {
                    Owner::Elsewhere
                } else if owner.inode == self.file {
                    // A journal of data contains pages of files.
                    Owner::File
                } else if owner.inode == self.foreign {
                    Owner::Foreign
                } else if owner.inode <= LAST_METADATA_INODE {
                    Owner::Metadata
                } else {
                    Owner::OtherFile
                }
            }
            owner => {
                // A journal's copies of blocks belong to no inode.
                let is_metadata = owner.is_some()
                    || write.is_metadata
                    || write.writer.name.starts_with(JOURNAL_THREAD);
                // Metadata of another file system, or on another device of the same one.
                if is_metadata && is_here && !write.is_swap {
                    Owner::Metadata
                } else {
                    Owner::Unknown
                }
            }
        }
    }

    /// Returns whether a write was submitted for an fsync, if it was submitted during it: by the
    /// calling thread, or by a thread of the file system. The flusher writes on its own account.
    pub(crate) fn is_own(&self, write: &DiskWrite) -> bool {
        let writer = &write.writer;
        if writer.tid == self.caller {
            return true;
        }
        let is_here = match write.owner {
            Some(owner) if !owner.is_block_device => owner.file_system == self.file_system,
            _ => self.device.contains(write) && self.owner(write) == Owner::Metadata,
        };
        let is_flush_here = is_empty_flush(write) && write.disk == self.device.disk_number;
        writer.is_kernel_thread && !writer.is_flusher && (is_here || is_flush_here)
    }

    /// Returns whether a write repeats one to the file system's device: devices such as LVM's pass
    /// their writes on to the devices below them.
    pub(crate) fn is_repeated(&self, write: &DiskWrite) -> bool {
        let below = self.device.below.iter().flat_map(BlockDevice::numbers);
        below.into_iter().any(|number| number == write.disk)
    }

    /// Adds a write to a sum.
    pub(crate) fn add(&self, write: &DiskWrite, sum: &mut FsyncWrites) {
        if write.disk == self.device.disk_number {
            sum.flushes += u64::from(write.is_flush);
            sum.fua_writes += u64::from(write.is_fua);
        }
        if write.bytes == 0 {
            return;
        }
        let bytes = match self.owner(write) {
            Owner::File => &mut sum.file_bytes,
            Owner::Metadata => &mut sum.metadata_bytes,
            Owner::Foreign => &mut sum.foreign_bytes,
            Owner::OtherFile => &mut sum.other_file_bytes,
            Owner::Elsewhere => &mut sum.elsewhere_bytes,
            Owner::Unknown => &mut sum.unknown_bytes,
        };
        *bytes += write.bytes;
    }
}

/// Divides the time from `start` to `end` of an fsync by the writes that it submitted.
pub(crate) fn waits(owners: &Owners, own: &[&DiskWrite], start: Nanos, end: Nanos) -> FsyncWaits {
    let time = |is_meant: &dyn Fn(Owner) -> bool| {
        let meant = own.iter().filter(|write| {
            let owner = match write.bytes {
                0 => Owner::Metadata,
                _ => owners.owner(write),
            };
            is_meant(owner)
        });
        let clip = |write: &&&DiskWrite| (write.queued.max(start), write.completed.min(end));
        union(meant.map(|write| clip(&write)).collect())
    };
    FsyncWaits {
        file: time(&|owner| owner == Owner::File),
        metadata: time(&|owner| owner == Owner::Metadata),
        others: time(&|owner| !matches!(owner, Owner::File | Owner::Metadata)),
        nothing: end - start - time(&|_| true),
    }
}

/// Returns the time that intervals cover together.
fn union(mut intervals: Vec<(Nanos, Nanos)>) -> Nanos {
    intervals.sort_unstable();
    let (mut sum, mut until) = (Nanos::ZERO, Nanos(i64::MIN));
    for (from, to) in intervals {
        let from = from.max(until);
        if to > from {
            sum += to - from;
            until = to;
        }
    }
    sum
}

fn is_empty_flush(write: &DiskWrite) -> bool {
    write.bytes == 0 && write.is_flush
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::storage::{
        BlockDevice, DeviceNumber, DiskWrite, FsyncWrites, PageOwner, Writer,
    };

    use super::{Owner, Owners, waits};

    const PARTITION: DeviceNumber = DeviceNumber {
        major: 259,
        minor: 2,
    };
    const DISK: DeviceNumber = DeviceNumber {
        major: 259,
        minor: 0,
    };
    const OTHER: DeviceNumber = DeviceNumber { major: 8, minor: 0 };

    fn owners() -> Owners {
        Owners {
            file_system: PARTITION,
            device: BlockDevice {
                number: PARTITION,
                disk_number: DISK,
                first_sector: 2_048,
                sectors: 1_000,
                ..BlockDevice::default()
            },
            file: 12,
            foreign: 13,
            caller: 70,
        }
    }

    /// Returns a write to the partition by the calling thread.
    fn write(owner: Option<PageOwner>) -> DiskWrite {
        DiskWrite {
            queued: Nanos(1),
            completed: Nanos(2),
            disk: DISK,
            sector: 2_050,
            bytes: 4_096,
            owner,
            is_metadata: false,
            is_fua: false,
            is_flush: false,
            is_swap: false,
            writer: Writer {
                pid: 70,
                tid: 70,
                name: "ticktax".to_owned(),
                is_kernel_thread: false,
                is_flusher: false,
            },
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "`write` takes an option")]
    fn inode(file_system: DeviceNumber, inode: u64) -> Option<PageOwner> {
        Some(PageOwner {
            file_system,
            inode,
            is_block_device: false,
        })
    }

    fn thread(name: &str, is_flusher: bool) -> Writer {
        Writer {
            pid: 9,
            tid: 9,
            name: name.to_owned(),
            is_kernel_thread: true,
            is_flusher,
        }
    }

    #[test]
    fn data_belongs_to_its_inode() {
        let owners = owners();
        let owner = |owner| owners.owner(&write(owner));
        assert_eq!(owner(inode(PARTITION, 12)), Owner::File);
        assert_eq!(owner(inode(PARTITION, 13)), Owner::Foreign);
        assert_eq!(owner(inode(PARTITION, 14)), Owner::OtherFile);
        // Equal inode number, but another file system.
        assert_eq!(owner(inode(OTHER, 12)), Owner::Elsewhere);
        assert_eq!(owner(None), Owner::Unknown);
        let marked = |owner| {
            owners.owner(&DiskWrite {
                is_metadata: true,
                ..write(owner)
            })
        };
        // A journal that contains data, and a file system whose metadata has an inode.
        assert_eq!(marked(inode(PARTITION, 13)), Owner::Foreign);
        assert_eq!(marked(inode(PARTITION, 1)), Owner::Metadata);
        assert_eq!(owner(inode(PARTITION, 1)), Owner::Metadata);
    }

    #[test]
    fn pages_of_the_device_are_metadata_of_its_file_system() {
        let owners = owners();
        let device = Some(PageOwner {
            file_system: OTHER,
            inode: 1,
            is_block_device: true,
        });
        assert_eq!(owners.owner(&write(device)), Owner::Metadata);
        // Another partition of the same disk.
        let beyond = DiskWrite {
            sector: 3_048,
            ..write(device)
        };
        assert_eq!(owners.owner(&beyond), Owner::Unknown);
        let journal = DiskWrite {
            writer: thread("jbd2/nvme0n1p2-8", false),
            ..write(None)
        };
        assert_eq!(owners.owner(&journal), Owner::Metadata);
        let marked = DiskWrite {
            is_metadata: true,
            ..write(None)
        };
        assert_eq!(owners.owner(&marked), Owner::Metadata);
        let swap = DiskWrite {
            is_swap: true,
            ..write(None)
        };
        assert_eq!(owners.owner(&swap), Owner::Unknown);
    }

    #[test]
    fn the_flusher_and_other_programs_write_on_their_own_account() {
        let owners = owners();
        let by = |writer: Writer, owner| {
            owners.is_own(&DiskWrite {
                writer,
                ..write(owner)
            })
        };
        let foreign = inode(PARTITION, 13);
        assert!(owners.is_own(&write(foreign)));
        assert!(by(thread("jbd2/nvme0n1p2-8", false), foreign));
        assert!(!by(thread("kworker/u4:1", true), foreign));
        let other = Writer {
            is_kernel_thread: false,
            ..thread("dd", false)
        };
        assert!(!by(other, foreign));
        // The journal of another file system, and its flush of another disk.
        let journal = thread("jbd2/sda1-8", false);
        assert!(!by(journal.clone(), inode(OTHER, 13)));
        let flush = |disk| {
            owners.is_own(&DiskWrite {
                disk,
                bytes: 0,
                is_flush: true,
                writer: journal.clone(),
                ..write(None)
            })
        };
        assert!(!flush(OTHER));
        assert!(flush(DISK));
    }

    #[test]
    fn sums_are_kept_by_owner() {
        let owners = owners();
        let mut sum = FsyncWrites::default();
        for write in [
            write(inode(PARTITION, 12)),
            write(inode(PARTITION, 13)),
            write(inode(PARTITION, 13)),
            DiskWrite {
                bytes: 0,
                is_flush: true,
                ..write(None)
            },
            DiskWrite {
                is_fua: true,
                is_metadata: true,
                ..write(None)
            },
        ] {
            owners.add(&write, &mut sum);
        }
        let expected = FsyncWrites {
            file_bytes: 4_096,
            metadata_bytes: 4_096,
            foreign_bytes: 8_192,
            flushes: 1,
            fua_writes: 1,
            ..FsyncWrites::default()
        };
        assert_eq!(sum, expected);
        assert_eq!((sum.bytes(), sum.others_bytes()), (16_384, 8_192));
    }

    #[test]
    fn waits_are_unions_within_the_fsync() {
        let owners = owners();
        let between = |owner, queued, completed| DiskWrite {
            queued: Nanos(queued),
            completed: Nanos(completed),
            ..write(owner)
        };
        let flush = DiskWrite {
            bytes: 0,
            is_flush: true,
            ..between(None, 70, 90)
        };
        let writes = [
            between(inode(PARTITION, 13), 20, 50),
            between(inode(PARTITION, 12), 5, 20),
            // It ends after the fsync.
            between(inode(PARTITION, 13), 40, 200),
            flush,
            between(inode(PARTITION, 14), 10, 15),
        ];
        let own: Vec<&DiskWrite> = writes.iter().collect();
        let found = waits(&owners, &own, Nanos(0), Nanos(100));
        assert_eq!(found.file, Nanos(15));
        assert_eq!(found.metadata, Nanos(20));
        assert_eq!(found.others, Nanos(5 + 80));
        assert_eq!(found.nothing, Nanos(5));
        let none = waits(&owners, &[], Nanos(0), Nanos(100));
        assert_eq!(none.nothing, Nanos(100));
    }
}
