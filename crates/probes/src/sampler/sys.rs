//! A ring of samples shared with the kernel. Neither the system call that creates it nor the shared
//! memory has a safe wrapper.
#![expect(
    unsafe_code,
    reason = "perf_event_open and its shared memory have no safe wrapper"
)]

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use ticktax_model::{Cpu, Nanos};

/// Size of the kernel's `struct perf_event_attr` (version 5), in bytes.
const ATTR: usize = 112;
// From <linux/perf_event.h>.
const TYPE_SOFTWARE: u64 = 1;
const CPU_CLOCK: u64 = 0;
const SAMPLE_TID_TIME_CHAIN: u64 = 0x2 | 0x4 | 0x20;
const EXCLUDE_CHAIN_USER: u64 = 1 << 22;
const USE_CLOCK: u64 = 1 << 25;
const CLOEXEC: libc::c_ulong = 8;

/// Offsets within the first page of two positions: the end of the data that the kernel has written,
/// and the end of the data that this process has read.
const AT_HEAD: usize = 1024;
const AT_TAIL: usize = 1032;

/// Size of the area for samples, in bytes. It holds several seconds of samples from one CPU.
const ROOM: usize = 1 << 20;

/// A ring with the samples of one CPU. Dropping it stops the sampling.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<libc::c_void>,
    page: usize,
    _event: File,
}

impl Ring {
    /// Starts sampling `cpu`. The samples' timestamps are on `CLOCK_MONOTONIC`, as everywhere in
    /// ticktax.
    pub(super) fn open(cpu: Cpu, period: Nanos) -> nix::Result<Self> {
        let attr = attr(period);
        let cpu = libc::c_int::try_from(cpu.index()).map_err(|_| Errno::EINVAL)?;
        let (any, none): (libc::c_int, libc::c_int) = (-1, -1);
        // SAFETY: the kernel only reads `attr`, which contains its own length and outlives the
        // call. The other arguments are integers.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                attr.as_ptr(),
                any,
                cpu,
                none,
                CLOEXEC,
            )
        };
        let fd = Errno::result(fd)?;
        let fd = libc::c_int::try_from(fd).map_err(|_| Errno::EBADF)?;
        // SAFETY: the call above opened this descriptor, and nothing else owns it.
        let event = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?;
        let page = page
            .and_then(|size| usize::try_from(size).ok())
            .unwrap_or(4_096);
        let length = NonZeroUsize::new(page + ROOM).ok_or(Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: this creates a new mapping, at an address chosen by the kernel.
        let base = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &event, 0) }?;
        Ok(Self {
            base,
            page,
            _event: event,
        })
    }

    /// Returns the bytes that the kernel has written since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let head = self.position(AT_HEAD).load(Ordering::Acquire);
        let tail = self.position(AT_TAIL).load(Ordering::Relaxed);
        let length = usize::try_from(head.wrapping_sub(tail))
            .unwrap_or(0)
            .min(ROOM);
        let mut bytes = vec![0; length];
        let begin = usize::try_from(tail % ROOM as u64).unwrap_or(0);
        let (first, second) = bytes.split_at_mut(length.min(ROOM - begin));
        self.copy(begin, first);
        self.copy(0, second);
        self.position(AT_TAIL).store(head, Ordering::Release);
        bytes
    }

    /// Copies bytes from offset `from` in the sample area. The copied range must lie within
    /// [`ROOM`].
    fn copy(&self, from: usize, into: &mut [u8]) {
        // SAFETY: `from` plus the length is at most `ROOM`, so this is within the mapping.
        let from = unsafe { self.base.byte_add(self.page + from) };
        // SAFETY: the kernel does not write between the tail and the head that it published, and
        // `into` belongs to the caller.
        unsafe {
            into.as_mut_ptr()
                .copy_from_nonoverlapping(from.as_ptr().cast(), into.len());
        }
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: this is within the first page of the mapping.
        let place = unsafe { self.base.byte_add(at) };
        // SAFETY: this is an aligned 64-bit value, which both the kernel and this process access
        // atomically.
        unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this unmaps exactly what `open` mapped, and no references to it remain. If it
        // fails, the mapping stays until the process exits.
        let _ = unsafe { munmap(self.base, self.page + ROOM) };
    }
}

/// Builds a `struct perf_event_attr`, as 64-bit words.
fn attr(period: Nanos) -> [u64; ATTR / 8] {
    let mut words = [0; ATTR / 8];
    let mut halves = |at: usize, first: u64, second: u64| {
        words[at] = if cfg!(target_endian = "little") {
            first | second << 32
        } else {
            first << 32 | second
        };
    };
    halves(0, TYPE_SOFTWARE, ATTR as u64);
    // The second half of this word is the field clockid. The first half, sample_stack_user, stays
    // 0.
    halves(11, 0, libc::CLOCK_MONOTONIC.unsigned_abs().into());
    words[1] = CPU_CLOCK;
    words[2] = period.0.unsigned_abs();
    words[3] = SAMPLE_TID_TIME_CHAIN;
    words[5] = EXCLUDE_CHAIN_USER | USE_CLOCK;
    words
}
