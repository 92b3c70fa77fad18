//! System calls for programs that stall, which have no safe wrapper.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use ticktax_model::Nanos;

const PAGE: usize = 4_096;

pub(super) fn failed(what: &str) -> io::Error {
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Private memory that is unmapped when this value is dropped.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    length: NonZeroUsize,
}

impl Memory {
    /// Maps `length` bytes.
    pub fn new(length: usize) -> io::Result<Self> {
        Self::map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Maps `length` bytes in huge pages. The kernel must have enough of them (`vm.nr_hugepages`).
    pub fn huge(length: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
        Self::map(length, flags, -1, 0)
    }

    /// Maps the first `length` bytes of a file. Writes change only this mapping.
    pub fn of_file(file: &File, length: usize) -> io::Result<Self> {
        Self::map(length, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    }

    fn map(length: usize, flags: i32, file: i32, offset: i64) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let none = std::ptr::null_mut();
        // SAFETY: without MAP_FIXED, the kernel chooses an address that nothing uses.
        let start = unsafe { libc::mmap(none, length, access, flags, file, offset) };
        let length = NonZeroUsize::new(length).ok_or_else(|| io::Error::other("no length"))?;
        let start = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED);
        let start = start.ok_or_else(|| failed("mmap"))?;
        Ok(Self { start, length })
    }

    /// Writes to each page of this memory.
    pub fn touch(&mut self) {
        for page in 0..self.length.get() / PAGE {
            self.write(page);
        }
    }

    /// Writes to one page.
    pub fn write(&mut self, page: usize) {
        assert!(page * PAGE < self.length.get(), "no page {page}");
        // SAFETY: the page is part of the mapping.
        let byte = unsafe { self.start.add(page * PAGE) };
        // SAFETY: this value owns the mapping, which is writable.
        unsafe { byte.write_volatile(1) };
    }

    /// Reads from one page.
    pub fn read(&self, page: usize) -> u8 {
        assert!(page * PAGE < self.length.get(), "no page {page}");
        // SAFETY: the page is part of the mapping.
        let byte = unsafe { self.start.add(page * PAGE) };
        // SAFETY: the mapping is readable. Its file, if any, has this page.
        unsafe { byte.read_volatile() }
    }

    pub(super) fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> usize {
        self.length.get() / PAGE
    }

    /// Makes the kernel provide all pages now.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: locking a mapping does not change its contents.
        match unsafe { libc::mlock(self.start.as_ptr().cast(), self.length.get()) } {
            0 => Ok(()),
            _ => Err(failed("mlock")),
        }
    }

    /// Allows the kernel to reclaim the pages when it needs memory.
    pub fn release(&mut self) -> io::Result<()> {
        let (start, length) = (self.start.as_ptr().cast(), self.length.get());
        // SAFETY: this value owns the mapping, and nothing refers to its contents.
        match unsafe { libc::madvise(start, length, libc::MADV_FREE) } {
            0 => Ok(()),
            _ => Err(failed("madvise")),
        }
    }

    fn at<T>(&self, offset: u32) -> io::Result<NonNull<T>> {
        let (offset, size) = (offset as usize, size_of::<T>());
        let fits = offset + size <= self.length.get() && offset.is_multiple_of(align_of::<T>());
        // SAFETY: the value lies within the mapping.
        let place = fits.then(|| unsafe { self.start.add(offset) });
        Ok(place
            .ok_or_else(|| io::Error::other("outside of the memory"))?
            .cast())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing else refers to it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length.get()) };
    }
}

/// Runs `body` in a child process, which then exits, and returns the child's process ID. The
/// calling process must have a single thread.
pub fn fork(body: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: the process has a single thread, which continues in the child.
    match unsafe { libc::fork() } {
        -1 => Err(failed("fork")),
        0 => {
            body();
            // SAFETY: ends this process immediately.
            unsafe { libc::_exit(0) }
        }
        child => Ok(child),
    }
}

/// Reaps children that have exited.
pub fn reap() {
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    while unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } > 0 {}
}

/// Renames the calling thread. The kernel keeps the first 15 bytes.
pub fn rename(name: &str) {
    let mut bytes = [0_u8; 16];
    for (to, from) in bytes.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: `bytes` is a string that ends with a NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr()) };
}

/// Sets the timer slack of the calling thread, which stays the same across `exec`.
pub fn set_slack(slack: Nanos) {
    // SAFETY: this option takes a number.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack.0) };
}

/// The argument of `sched_setattr`.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Attributes {
    #[expect(clippy::cast_possible_truncation, reason = "it has 48 bytes")]
    const SIZE: u32 = size_of::<Self>() as u32;
}

fn set_attributes(attributes: &Attributes) -> io::Result<()> {
    // SAFETY: the kernel reads `size` bytes of the structure.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, attributes, 0) } {
        0 => Ok(()),
        _ => Err(failed("sched_setattr")),
    }
}

/// Gives the calling thread a `SCHED_DEADLINE` policy with `runtime` in each `period`.
pub fn set_deadline(runtime: Nanos, period: Nanos) -> io::Result<()> {
    set_attributes(&Attributes {
        size: Attributes::SIZE,
        policy: 6,
        runtime: runtime.0.unsigned_abs(),
        deadline: period.0.unsigned_abs(),
        period: period.0.unsigned_abs(),
        ..Attributes::default()
    })
}

/// Gives the calling thread a real-time priority under `SCHED_FIFO`.
pub fn set_fifo(priority: u32) -> io::Result<()> {
    set_attributes(&Attributes {
        size: Attributes::SIZE,
        policy: 1,
        priority,
        ..Attributes::default()
    })
}

/// Fills `bytes` with random numbers in a single system call.
pub fn random(bytes: &mut [u8]) {
    // SAFETY: `bytes` is valid for writes of its length.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
}

/// Offsets of the parts of a submission ring (`struct io_sqring_offsets`).
#[repr(C)]
#[derive(Debug, Default)]
struct SubmissionOffsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    reserved: [u32; 3],
}

/// Offsets of the parts of a completion ring (`struct io_cqring_offsets`).
#[repr(C)]
#[derive(Debug, Default)]
struct CompletionOffsets {
    head: u32,
    tail: u32,
    reserved: [u32; 8],
}

/// The argument of `io_uring_setup` (`struct io_uring_params`).
#[repr(C)]
#[derive(Debug, Default)]
struct RingParameters {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    sq: SubmissionOffsets,
    cq: CompletionOffsets,
}

/// An `io_uring` with a kernel thread that polls for submissions.
#[derive(Debug)]
pub struct PolledRing {
    file: i64,
    rings: Memory,
    /// The submission entries, of 64 bytes each. An entry with only zeros does nothing.
    _entries: Memory,
    parameters: RingParameters,
}

impl PolledRing {
    const SETUP_SQPOLL: u32 = 1 << 1;
    const NEED_WAKEUP: u32 = 1;
    const ENTER_SQ_WAKEUP: u32 = 1 << 1;
    const ENTRIES_OFFSET: i64 = 0x1000_0000;

    /// Creates a ring whose thread keeps polling for `idle_millis` after the last submission.
    pub fn new(idle_millis: u32) -> io::Result<Self> {
        let mut parameters = RingParameters {
            flags: Self::SETUP_SQPOLL,
            sq_thread_idle: idle_millis,
            ..RingParameters::default()
        };
        // SAFETY: the kernel reads and writes the structure, which is valid.
        let file = unsafe { libc::syscall(libc::SYS_io_uring_setup, 64, &raw mut parameters) };
        if file < 0 {
            return Err(failed("io_uring_setup"));
        }
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let descriptor = i32::try_from(file).map_err(io::Error::other)?;
        let length = parameters.sq.array + parameters.sq_entries * 4;
        let rings = Memory::map(length as usize, flags, descriptor, 0)?;
        let length = parameters.sq_entries as usize * 64;
        let entries = Memory::map(length, flags, descriptor, Self::ENTRIES_OFFSET)?;
        Ok(Self {
            file,
            rings,
            _entries: entries,
            parameters,
        })
    }

    fn word(&self, offset: u32) -> io::Result<&AtomicU32> {
        let place = self.rings.at::<AtomicU32>(offset)?;
        // SAFETY: the word lies within the mapping, which lives as long as `self`. The kernel
        // accesses it atomically.
        Ok(unsafe { place.as_ref() })
    }

    /// Submits a request that does nothing, and wakes the ring's thread if it sleeps.
    pub fn submit(&self) -> io::Result<()> {
        let (sq, cq) = (&self.parameters.sq, &self.parameters.cq);
        let tail = self.word(sq.tail)?;
        let next = tail.load(Ordering::Relaxed);
        let index = next & self.word(sq.mask)?.load(Ordering::Relaxed);
        self.word(sq.array + index * 4)?
            .store(index, Ordering::Relaxed);
        tail.store(next.wrapping_add(1), Ordering::Release);
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.word(sq.flags)?.load(Ordering::Acquire) & Self::NEED_WAKEUP != 0 {
            let number = libc::SYS_io_uring_enter;
            // SAFETY: this call only wakes the ring's thread.
            unsafe { libc::syscall(number, self.file, 1, 0, Self::ENTER_SQ_WAKEUP, 0, 0) };
        }
        let done = self.word(cq.tail)?.load(Ordering::Acquire);
        self.word(cq.head)?.store(done, Ordering::Release);
        Ok(())
    }
}
