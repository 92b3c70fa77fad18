//! Watches the writes that disks complete, with the inode whose page is written and the thread that
//! submitted it.

use std::path::Path;

use ticktax_model::Nanos;
use ticktax_model::storage::{DeviceNumber, DiskWrite, PageOwner, Writer};

use crate::error::TraceError;
use crate::load::{BTF, read_btf};
use crate::standalone::{Attached, Object};

/// The programs, which `cargo xtask bpf` builds from `bpf/writes.bpf.c`. The completions are
/// attached first, so that no write is remembered whose end cannot be seen.
const OBJECT: Object = Object {
    code: aya::include_bytes_aligned!("../bpf/writes.bpf.o"),
    programs: &["block_rq_complete", "block_bio_complete", "block_bio_queue"],
    replacements: &[],
    events: "write_events",
    lost: "writes_lost",
    bytes: 24 << 20,
};

/// Size of a `struct write_event`.
const EVENT_BYTES: usize = 112;
/// `s_magic` of the file system whose inodes are block devices (`BDEVFS_MAGIC`).
const BLOCK_DEVICES: u64 = 0x6264_6576;
/// Start of the description of a worker thread that writes dirty data.
const FLUSHER: &str = "flush-";

/// Flags of an event, as in `bpf/writes.bpf.c`.
mod flag {
    pub(super) const META: u32 = 1;
    pub(super) const FUA: u32 = 2;
    pub(super) const FLUSH: u32 = 4;
    pub(super) const SWAP: u32 = 8;
    pub(super) const OWNED: u32 = 16;
    pub(super) const KERNEL_THREAD: u32 = 32;
}

/// Watches the writes to all disks. Watching stops when this is dropped.
pub struct WriteWatch(Attached);

/// Writes that did not fit into the buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostWrites {
    /// Number of writes.
    pub writes: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl std::fmt::Debug for WriteWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteWatch").finish_non_exhaustive()
    }
}

impl WriteWatch {
    /// Starts watching.
    ///
    /// # Errors
    /// Returns an error if the kernel or the caller's rights do not allow it.
    pub fn begin() -> Result<Self, TraceError> {
        let types = read_btf(Path::new(BTF))?;
        OBJECT.attach(&types, &[]).map(Self)
    }

    /// Returns the writes that were completed since the last call, in the order of completion.
    pub fn take(&mut self) -> Vec<DiskWrite> {
        self.0.take(decode)
    }

    /// Returns how many writes did not fit into the buffers.
    pub fn lost(&self) -> LostWrites {
        LostWrites {
            writes: self.0.lost(0),
            bytes: self.0.lost(1),
        }
    }
}

/// Decodes a `struct write_event`. Returns `None` if it is incomplete.
fn decode(bytes: &[u8]) -> Option<DiskWrite> {
    let bytes: &[u8; EVENT_BYTES] = bytes.get(..EVENT_BYTES)?.try_into().ok()?;
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let id = |at: usize| i32::try_from(word(at)?).ok();
    let text = |from: usize, to: usize| {
        let text = bytes.get(from..to)?.split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    let flags = word(64)?;
    let has = |flag: u32| flags & flag != 0;
    let owner = PageOwner {
        // The kernel's own encoding of device numbers (include/linux/kdev_t.h).
        file_system: DeviceNumber {
            major: word(40)? >> 20,
            minor: word(40)? & 0xf_ffff,
        },
        inode: long(24)?,
        is_block_device: long(32)? == BLOCK_DEVICES,
    };
    Some(DiskWrite {
        queued: Nanos(long(0)?.cast_signed()),
        completed: Nanos(long(8)?.cast_signed()),
        disk: DeviceNumber {
            major: word(48)?,
            minor: word(52)?,
        },
        sector: long(16)?,
        bytes: u64::from(word(44)?),
        owner: has(flag::OWNED).then_some(owner),
        is_metadata: has(flag::META),
        is_fua: has(flag::FUA),
        is_flush: has(flag::FLUSH),
        is_swap: has(flag::SWAP),
        writer: Writer {
            pid: id(56)?,
            tid: id(60)?,
            name: text(72, 88)?,
            is_kernel_thread: has(flag::KERNEL_THREAD),
            is_flusher: text(88, 112)?.starts_with(FLUSHER),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::{EVENT_BYTES, decode, flag};

    fn event(flags: u32, magic: u64, description: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for long in [5_u64, 9, 2_048, 77, magic] {
            bytes.extend(long.to_ne_bytes());
        }
        for word in [259 << 20 | 3, 8_192_u32, 259, 0, 12, 13, flags, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(b"kworker/u4:1\0\0\0\0");
        bytes.extend(description);
        bytes.resize(EVENT_BYTES, 0);
        bytes
    }

    #[test]
    fn a_write_is_decoded() {
        let flags = flag::OWNED | flag::META | flag::FLUSH | flag::KERNEL_THREAD;
        let write = decode(&event(flags, 0xef53, b"flush-259:0\0")).unwrap();
        assert_eq!((write.queued.0, write.completed.0), (5, 9));
        assert_eq!((write.sector, write.bytes), (2_048, 8_192));
        assert_eq!(write.disk.to_string(), "259:0");
        let owner = write.owner.unwrap();
        assert_eq!(owner.file_system.to_string(), "259:3");
        assert_eq!((owner.inode, owner.is_block_device), (77, false));
        assert!(write.is_metadata && write.is_flush && !write.is_fua && !write.is_swap);
        let writer = write.writer;
        assert_eq!((writer.pid, writer.tid), (12, 13));
        assert_eq!(writer.name, "kworker/u4:1");
        assert!(writer.is_kernel_thread && writer.is_flusher);
    }

    #[test]
    fn a_page_without_inode_has_no_owner() {
        let write = decode(&event(flag::FUA | flag::SWAP, 0, b"")).unwrap();
        assert_eq!(write.owner, None);
        assert!(write.is_fua && write.is_swap && !write.writer.is_flusher);
        let device = decode(&event(flag::OWNED, 0x6264_6576, b"")).unwrap();
        assert!(device.owner.unwrap().is_block_device);
    }

    #[test]
    fn an_incomplete_event_is_ignored() {
        let whole = event(0, 0, b"");
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end]), None);
        }
    }
}
