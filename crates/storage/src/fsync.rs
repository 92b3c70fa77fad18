//! Fsyncs a small file, with and without another file's dirty data.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{gettid, syncfs};
use ticktax_host::Proc;
use ticktax_model::Nanos;
use ticktax_model::storage::{
    BlockDevice, CounterCheck, DeviceNumber, DiskWrite, FileWrite, ForeignData, Fsync, FsyncStudy,
    FsyncWrites, Mount, StorageLimitation,
};
use ticktax_trace::WriteWatch;

use crate::error::StorageError;
use crate::files::{BLOCK, ForeignFile, SmallFile};
use crate::owners::{Owner, Owners, waits};
use crate::summary;

/// Space that must stay free, apart from the files.
const SPARE: u64 = 16 << 20;
/// Part of the foreign data, in percent, that must still be dirty for another fsync in the same
/// block.
const STILL_DIRTY: u64 = 90;

/// Plan of a measurement.
#[derive(Clone, Debug)]
pub struct FsyncPlan {
    /// Directory for the files.
    pub folder: PathBuf,
    /// Size of the foreign file.
    pub foreign_bytes: u64,
    /// How the foreign file's data becomes dirty.
    pub foreign: ForeignData,
    /// How the small file is written.
    pub write: FileWrite,
    /// Number of pairs of blocks: one without foreign data, and one with it.
    pub pairs: u64,
    /// Maximum number of fsyncs per block.
    pub fsyncs: u64,
}

impl FsyncPlan {
    /// Returns the space that the files need at most.
    fn needed_bytes(&self) -> u64 {
        let appends = match self.write {
            FileWrite::Append => self.pairs.saturating_mul(2 * self.fsyncs),
            FileWrite::Overwrite => 0,
        };
        let appended = appends.saturating_mul(BLOCK);
        self.foreign_bytes
            .saturating_add(appended)
            .saturating_add(SPARE)
    }
}

/// Measures fsyncs as planned. When `stop` returns `true`, returns the measurements so far. Removes
/// the files in any case.
///
/// # Errors
/// Returns an error if the directory cannot be used or written, or if it is on no disk.
pub fn study(plan: &FsyncPlan, stop: &dyn Fn() -> bool) -> Result<FsyncStudy, StorageError> {
    let place = Place::find(&plan.folder, plan.needed_bytes())?;
    let failed = |action| StorageError::file(action, &plan.folder);
    let mut small = SmallFile::create(&plan.folder, plan.write)?;
    let mut foreign = ForeignFile::create(&plan.folder, plan.foreign, plan.foreign_bytes)?;
    foreign.prepare(stop).map_err(failed("write"))?;
    let owners = Owners {
        file_system: place.file_system,
        device: place.device.clone(),
        file: small.file.inode().map_err(failed("examine"))?,
        foreign: foreign.file.inode().map_err(failed("examine"))?,
        caller: gettid().as_raw(),
    };
    let mut limitations = Vec::new();
    let watch = WriteWatch::begin().map_err(|error| {
        limitations.push(StorageLimitation::NotTraced {
            why: error.to_string(),
        });
    });
    let mut run = Run {
        proc: Proc::default(),
        disk: place.device.disk_number,
        owners: &owners,
        watch: watch.ok(),
        observed_bytes: 0,
        fsyncs: Vec::new(),
        first: None,
    };
    run.settle(&small).map_err(failed("sync"))?;
    run.observed_bytes = 0;
    let before = run.counter();
    let is_complete = run.pairs(plan, &mut small, &mut foreign, stop)?;
    if !is_complete {
        limitations.push(StorageLimitation::Interrupted);
    }
    let counted = before.zip(run.counter());
    let check = counted.map(|(before, after)| CounterCheck {
        observed_bytes: run.observed_bytes,
        counted_bytes: after.saturating_sub(before),
    });
    if check.is_none() {
        limitations.push(StorageLimitation::NoCounters);
    }
    let check = check.filter(|_| run.watch.is_some());
    limitations.extend(run.lost());
    let study = FsyncStudy {
        mount: place.mount,
        write: plan.write,
        write_bytes: BLOCK,
        foreign: plan.foreign,
        foreign_bytes: plan.foreign_bytes,
        fsyncs: run.fsyncs,
        check,
        limitations,
        ..FsyncStudy::default()
    };
    summary::summarise(study).ok_or_else(|| StorageError::Interrupted {
        path: plan.folder.clone(),
    })
}

/// The file system in which a directory lies.
struct Place {
    mount: Mount,
    device: BlockDevice,
    file_system: DeviceNumber,
}

impl Place {
    fn find(folder: &Path, needed: u64) -> Result<Self, StorageError> {
        let path = || folder.to_owned();
        let unusable = |error: io::Error| StorageError::Directory {
            path: path(),
            why: error.kind(),
        };
        let real = fs::canonicalize(folder).map_err(unusable)?;
        if !real.is_dir() {
            return Err(unusable(io::ErrorKind::NotADirectory.into()));
        }
        let found = Proc::default().mount_of(&real);
        let (mount, file_system) = found.ok_or_else(|| StorageError::NoMount { path: path() })?;
        let Some(device) = mount.device.clone() else {
            return Err(StorageError::NoDevice {
                path: path(),
                file_system: mount.file_system,
                upper: mount.upper,
            });
        };
        if mount.is_read_only {
            return Err(StorageError::ReadOnly { path: path() });
        }
        let space = statvfs(&real).map_err(|errno| unusable(errno.into()))?;
        let free = space
            .blocks_available()
            .saturating_mul(space.fragment_size());
        if free < needed {
            return Err(StorageError::Full {
                path: path(),
                needed_mib: needed.div_ceil(1 << 20),
                free_mib: free >> 20,
            });
        }
        Ok(Self {
            mount,
            device,
            file_system,
        })
    }
}

/// A number of fsyncs of the same kind.
struct Block {
    pair: u64,
    with_foreign: bool,
    fsyncs: u64,
}

/// The state of a measurement.
struct Run<'a> {
    proc: Proc,
    disk: DeviceNumber,
    owners: &'a Owners,
    watch: Option<WriteWatch>,
    /// Bytes of all writes to the disk that were observed.
    observed_bytes: u64,
    fsyncs: Vec<Fsync>,
    /// Start of the first fsync, on `CLOCK_MONOTONIC`.
    first: Option<Nanos>,
}

impl Run<'_> {
    /// Writes all dirty data of the file system.
    fn settle(&mut self, small: &SmallFile) -> io::Result<()> {
        syncfs(small.file.handle())?;
        self.take();
        Ok(())
    }

    /// Does all fsyncs. Returns `false` if `stop` ended this early.
    fn pairs(
        &mut self,
        plan: &FsyncPlan,
        small: &mut SmallFile,
        foreign: &mut ForeignFile,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, StorageError> {
        let failed = |action| StorageError::file(action, &plan.folder);
        for pair in 0..plan.pairs {
            // The order alternates, so that a steady drift does not look like an effect.
            for with_foreign in [pair % 2 == 1, pair % 2 == 0] {
                let block = Block {
                    pair,
                    with_foreign,
                    fsyncs: plan.fsyncs,
                };
                let done = self.block(&block, small, foreign, stop);
                done.map_err(failed("write"))?;
                self.settle(small).map_err(failed("sync"))?;
            }
            if stop() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the writes that were completed since the last call.
    fn take(&mut self) -> Vec<DiskWrite> {
        let writes = self.watch.as_mut().map_or_else(Vec::new, WriteWatch::take);
        let here = writes.iter().filter(|write| write.disk == self.disk);
        self.observed_bytes += here.map(|write| write.bytes).sum::<u64>();
        writes
    }

    fn counter(&self) -> Option<u64> {
        self.proc.written_bytes(self.disk)
    }

    fn lost(&self) -> Option<StorageLimitation> {
        let lost = self.watch.as_ref()?.lost();
        (lost.writes > 0).then_some(StorageLimitation::Lost {
            writes: lost.writes,
            bytes: lost.bytes,
        })
    }

    fn block(
        &mut self,
        block: &Block,
        small: &mut SmallFile,
        foreign: &mut ForeignFile,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let mut dirty = 0;
        if block.with_foreign {
            foreign.make_dirty(stop)?;
            dirty = foreign.bytes();
        }
        for _ in 0..block.fsyncs {
            if stop() {
                break;
            }
            let early = self.take();
            dirty = dirty.saturating_sub(self.foreign_bytes(&early));
            small.write()?;
            let counted = self.counter();
            let start = now();
            small.file.handle().sync_all()?;
            let end = now();
            let disk_bytes = self
                .counter()
                .zip(counted)
                .map(|(after, before)| after.saturating_sub(before));
            let mut done = Fsync {
                pair: block.pair,
                with_foreign: block.with_foreign,
                start: start - *self.first.get_or_insert(start),
                length: end - start,
                dirty_foreign_bytes: None,
                disk_bytes,
                own: None,
                meanwhile: None,
                waits: None,
            };
            let writes = self.take();
            let started: Vec<&DiskWrite> = writes
                .iter()
                .filter(|write| !self.owners.is_repeated(write))
                .collect();
            let before = started.iter().filter(|write| write.queued < start);
            dirty = dirty.saturating_sub(self.foreign_bytes(before.copied()));
            if self.watch.is_some() {
                done.dirty_foreign_bytes = Some(dirty);
                self.attribute(&started, &mut done, start, end);
            }
            let after = started.iter().filter(|write| write.queued >= start);
            let written = match self.watch {
                Some(_) => self.foreign_bytes(after.copied()),
                // Without owners, all that the disk has written may be foreign data.
                None => disk_bytes.unwrap_or(0),
            };
            dirty = dirty.saturating_sub(written);
            self.fsyncs.push(done);
            if block.with_foreign && dirty * 100 < foreign.bytes() * STILL_DIRTY {
                break;
            }
        }
        Ok(())
    }

    /// Divides the writes that were in flight during an fsync into its own and those of others. A
    /// write submitted before the fsync is not its own.
    fn attribute(&self, writes: &[&DiskWrite], done: &mut Fsync, start: Nanos, end: Nanos) {
        let during = writes
            .iter()
            .copied()
            .filter(|write| write.queued <= end && start <= write.completed);
        let (own, others): (Vec<_>, Vec<_>) =
            during.partition(|write| start <= write.queued && self.owners.is_own(write));
        let sum = |writes: &[&DiskWrite]| {
            let mut sum = FsyncWrites::default();
            for write in writes {
                self.owners.add(write, &mut sum);
            }
            sum
        };
        done.own = Some(sum(&own));
        done.meanwhile = Some(sum(&others));
        done.waits = Some(waits(self.owners, &own, start, end));
    }

    /// Returns how much of the foreign file's data these writes contain.
    fn foreign_bytes<'w>(&self, writes: impl IntoIterator<Item = &'w DiskWrite>) -> u64 {
        let writes = writes.into_iter().filter(|write| {
            !self.owners.is_repeated(write) && self.owners.owner(write) == Owner::Foreign
        });
        writes.map(|write| write.bytes).sum()
    }
}

/// Returns the time on the clock that the tracer uses.
pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC);
    time.map_or(Nanos::ZERO, |time| {
        Nanos::from_secs(time.tv_sec()) + Nanos(time.tv_nsec())
    })
}
