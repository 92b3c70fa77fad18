//! Memory shared with the BPF programs. All unsafe code in this crate is here.
#![expect(unsafe_code, reason = "maps are shared with the kernel through mmap")]

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::thread::JoinHandleExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use std::thread::JoinHandle;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::record::{
    CpuControl, CpuState, FollowedThread, RingEntry, RuleHistogram, SpanRecord, StackNote,
    SumRecord, ThreadName, ThrottledWait, TriggerPlan, TriggerRecord, VcpuRecord, run,
};
use crate::seal::Sealed;

/// Returns the nice value of the calling thread.
pub(crate) fn own_nice() -> i32 {
    // SAFETY: the call takes and returns numbers; 0 is the calling thread, which exists.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Sets the nice value of the calling thread. Returns whether the kernel allowed it.
pub(crate) fn set_own_nice(nice: i32) -> bool {
    // SAFETY: the call takes and returns numbers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

/// Returns freed memory to the kernel. Without this call, the C library would keep it, and keep
/// more of it the larger the freed blocks were.
pub(crate) fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call takes a number, the bytes to keep at the top, and touches no memory in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The kernel's `struct sched_param`.
#[repr(C)]
struct SchedParam {
    priority: libc::c_int,
}

/// Scheduling policy of thread `tid`, including the flag `SCHED_RESET_ON_FORK`.
pub(crate) fn scheduler(tid: libc::pid_t) -> nix::Result<libc::c_int> {
    // SAFETY: the call takes and returns numbers.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) };
    nix::errno::Errno::result(policy).map(|policy| libc::c_int::try_from(policy).unwrap_or(0))
}

/// Sets the scheduling policy and the real-time priority of thread `tid`.
///
/// Makes the system call directly, because `sched_setscheduler` in musl always fails.
pub(crate) fn set_scheduler(
    tid: libc::pid_t,
    policy: libc::c_int,
    priority: u8,
) -> nix::Result<()> {
    let param = SchedParam {
        priority: priority.into(),
    };
    // SAFETY: the kernel reads `param`, which has its layout and outlives the call.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, policy, &raw const param) };
    nix::errno::Errno::result(result).map(drop)
}

/// First version of the kernel's `struct sched_attr`, which all kernels accept.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    _size: u32,
    pub(crate) policy: u32,
    _flags: u64,
    _nice: i32,
    _priority: u32,
    /// Budget under `SCHED_DEADLINE` in ns, with its deadline and period.
    pub(crate) runtime: u64,
    pub(crate) deadline: u64,
    pub(crate) period: u64,
}

/// Returns the scheduling attributes of thread `tid`. 0 stands for the calling thread.
pub(crate) fn attributes(tid: libc::pid_t) -> nix::Result<Attributes> {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the kernel writes at most `size` bytes to `attributes`, which outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            tid,
            &raw mut attributes,
            size,
            0_u32,
        )
    };
    nix::errno::Errno::result(result).map(|_| attributes)
}

/// Gives a thread that this process started a real-time priority, whether or not it has run yet.
/// Returns whether the kernel allowed it.
pub(crate) fn set_real_time<T>(thread: &JoinHandle<T>, priority: u8) -> bool {
    // SAFETY: `sched_param` consists of numbers, and zero is a valid value for each.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority.into();
    // `pthread_t` is an integer in glibc and a pointer in musl.
    #[allow(clippy::unnecessary_cast, reason = "necessary for musl")]
    let thread = thread.as_pthread_t() as libc::pthread_t;
    // SAFETY: the handle exists, so the thread has not been joined, and its id is valid.
    unsafe { libc::pthread_setschedparam(thread, libc::SCHED_FIFO, &raw const param) == 0 }
}

/// Types that can be copied from memory that the kernel may write at any time.
///
/// # Safety
/// Every bit pattern must be a valid value of the type. This holds for integers, arrays of
/// integers, and `repr(C)` structs that consist of these and have no padding.
pub(crate) unsafe trait Shared: Copy {}

// SAFETY: `repr(C)`, only integers, no padding (`cargo xtask bpf` rejects padding).
unsafe impl Shared for SpanRecord {}
// SAFETY: as above.
unsafe impl Shared for SumRecord {}
// SAFETY: as above.
unsafe impl Shared for CpuState {}
// SAFETY: as above.
unsafe impl Shared for CpuControl {}
// SAFETY: as above.
unsafe impl Shared for TriggerPlan {}
// SAFETY: as above.
unsafe impl Shared for RuleHistogram {}
// SAFETY: as above.
unsafe impl Shared for RingEntry {}
// SAFETY: as above.
unsafe impl Shared for ThreadName {}
// SAFETY: as above.
unsafe impl Shared for StackNote {}
// SAFETY: as above.
unsafe impl Shared for VcpuRecord {}

// SAFETY: `repr(C)`, only integers, no padding (`cargo xtask bpf` rejects padding).
unsafe impl aya::Pod for FollowedThread {}
// SAFETY: as above.
unsafe impl aya::Pod for ThrottledWait {}

/// Parses a trigger record. Returns `None` if there are too few bytes.
pub(crate) fn trigger_record(bytes: &[u8]) -> Option<TriggerRecord> {
    if bytes.len() < size_of::<TriggerRecord>() {
        return None;
    }
    // SAFETY: there are enough bytes, and any bits are a `TriggerRecord`: only integers, no
    // padding.
    Some(unsafe { bytes.as_ptr().cast::<TriggerRecord>().read_unaligned() })
}

/// A kernel array map that is mapped into this process.
pub(crate) struct SharedArray<T: Shared> {
    base: NonNull<T>,
    len: usize,
    bytes: NonZeroUsize,
}

// SAFETY: the memory belongs to no thread; every access is volatile or atomic.
unsafe impl<T: Shared> Send for SharedArray<T> {}

impl<T: Shared> SharedArray<T> {
    /// Maps the first `len` entries of `map`, which must be an array map whose entries have the
    /// size of `T`.
    pub(crate) fn map(map: impl AsFd, len: usize) -> nix::Result<Self> {
        let bytes = NonZeroUsize::new(len * size_of::<T>()).ok_or(nix::Error::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice cannot alias Rust's memory.
        let base = unsafe { mmap(None, bytes, access, MapFlags::MAP_SHARED, map, 0) }?;
        Ok(Self {
            base: base.cast(),
            len,
            bytes,
        })
    }

    fn entry(&self, index: usize) -> NonNull<T> {
        assert!(index < self.len, "entry {index} of {}", self.len);
        // SAFETY: the mapping has `len` entries, and `index` is one of them.
        unsafe { self.base.add(index) }
    }

    /// Copies the entry at `index`. If the kernel is writing to the entry at the same time, the
    /// copy may be torn.
    pub(crate) fn read(&self, index: usize) -> T {
        // SAFETY: the entry is mapped and aligned, and any bits are a `T` (see `Shared`).
        unsafe { self.entry(index).read_volatile() }
    }
}

impl SharedArray<TriggerPlan> {
    /// Writes the rules. The BPF programs may read them while they are only partly written. Each
    /// limit is one word, so the programs see either its old value or its new one.
    pub(crate) fn write(&self, plan: &TriggerPlan) {
        // SAFETY: the entry is mapped and aligned, and the kernel only reads it.
        unsafe { self.entry(0).write_volatile(*plan) }
    }
}

impl SharedArray<SumRecord> {
    /// Returns the number of intervals in the entry at `index`.
    pub(crate) fn count(&self, index: usize) -> u64 {
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let field = unsafe { &raw mut (*entry).count };
        // SAFETY: the field is aligned for a u64, and the kernel writes it with one instruction.
        unsafe { AtomicU64::from_ptr(field) }.load(Ordering::Acquire)
    }
}

impl<T: Shared> Drop for SharedArray<T> {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours alone, and no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.base.cast(), self.bytes.get()) };
        debug_assert_eq!(unmapped, Ok(()), "unmapping a map");
    }
}

impl SharedArray<SpanRecord> {
    /// Returns the record at `index`, or `None` if it is not record number `seq` or is not
    /// completely written. For the meaning of `sealed`, see [`seal`](crate::seal).
    pub(crate) fn take(&self, index: usize, seq: u32, sealed: bool) -> Option<SpanRecord> {
        if sealed {
            let record = self.read(index);
            return (record.mark() == seq).then_some(record);
        }
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let field = unsafe { &raw mut (*entry).seq };
        // SAFETY: the field is aligned for a u32, and the kernel writes it with one instruction.
        let written = unsafe { AtomicU32::from_ptr(field) };
        (written.load(Ordering::Acquire) == seq).then(|| self.read(index))
    }
}

impl SharedArray<CpuState> {
    /// Returns the number of records that the BPF programs on CPU `index` have claimed so far.
    pub(crate) fn head(&self, index: usize) -> u64 {
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let field = unsafe { &raw mut (*entry).head };
        // SAFETY: the field is aligned for a u64, and the kernel writes it with one instruction.
        unsafe { AtomicU64::from_ptr(field) }.load(Ordering::Acquire)
    }
}

impl SharedArray<SumRecord> {
    /// Returns the number of intervals in the entry at `index`, and their self time. This is much
    /// cheaper than reading the entire entry.
    pub(crate) fn sum(&self, index: usize) -> (u64, i64) {
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let count = unsafe { &raw mut (*entry).count };
        // SAFETY: the field lies within a mapped entry.
        let time = unsafe { &raw mut (*entry).self_ns };
        // SAFETY: the field is aligned for a u64, and the kernel writes it with one instruction.
        let count = unsafe { AtomicU64::from_ptr(count) }.load(Ordering::Acquire);
        // SAFETY: as above, for an i64.
        let time = unsafe { AtomicI64::from_ptr(time) }.load(Ordering::Acquire);
        (count, time)
    }

    /// Frees the entry at `index`, so that the BPF programs may use it for any source. Call this
    /// only when no BPF program will add to the entry any more. A later addition would be lost or
    /// attributed to the wrong source.
    pub(crate) fn free(&self, index: usize) {
        let key = self.entry(index).as_ptr().cast::<u64>();
        // SAFETY: an entry is `WORDS` words, and the first is its key (asserted in `record.rs`).
        let others = unsafe { key.add(1) };
        // SAFETY: these words are mapped and aligned, zero is a valid value, and no other code
        // writes them.
        unsafe { others.write_bytes(0, Self::WORDS - 1) };
        // SAFETY: the key is aligned for a u64; the programs take the entry once they see 0.
        unsafe { AtomicU64::from_ptr(key) }.store(0, Ordering::Release);
    }

    /// Number of words in an entry.
    const WORDS: usize = size_of::<SumRecord>() / size_of::<u64>();
}

impl SharedArray<VcpuRecord> {
    /// Returns the process of the thread that the entry at `index` belongs to, or `None` if the
    /// entry is free. This is much cheaper than reading the entire entry.
    pub(crate) fn process(&self, index: usize) -> Option<u32> {
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let tid = unsafe { &raw mut (*entry).tid };
        // SAFETY: the field lies within a mapped entry.
        let tgid = unsafe { &raw mut (*entry).tgid };
        // SAFETY: the field is aligned for a u32, and the kernel writes it with one instruction.
        let tid = unsafe { AtomicU32::from_ptr(tid) }.load(Ordering::Acquire);
        // SAFETY: as above. The kernel writes this field before the other one.
        let tgid = unsafe { AtomicU32::from_ptr(tgid) }.load(Ordering::Acquire);
        (tid != 0).then_some(tgid)
    }
}

impl SharedArray<RingEntry> {
    /// Returns the entry at `index`, or `None` if it does not belong to this `round` of the ring or
    /// is not completely written. For the meaning of `sealed`, see [`seal`](crate::seal). The
    /// returned entry's mark no longer contains the bits that were mixed into it.
    pub(crate) fn take(&self, index: usize, round: u16, sealed: bool) -> Option<RingEntry> {
        let is_round = |seal: u32| seal >> 16 == u32::from(round);
        if sealed {
            let mut entry = self.read(index);
            fence(Ordering::Acquire);
            let is_same = entry == self.read(index);
            entry.seal = entry.mark();
            return (is_same && is_round(entry.seal)).then_some(entry);
        }
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let field = unsafe { &raw mut (*entry).seal };
        // SAFETY: the field is aligned for a u32, and the kernel writes it with one instruction.
        let seal = unsafe { AtomicU32::from_ptr(field) }.load(Ordering::Acquire);
        is_round(seal).then(|| self.read(index))
    }
}

impl SharedArray<ThreadName> {
    /// Returns the name and process of thread `tid`, or `None` if the entry at `index` belongs to
    /// another thread.
    pub(crate) fn find(&self, index: usize, tid: u32) -> Option<ThreadName> {
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let field = unsafe { &raw mut (*entry).tid };
        // SAFETY: the field is aligned for a u32, and the kernel writes it with one instruction.
        let written = unsafe { AtomicU32::from_ptr(field) };
        if written.load(Ordering::Acquire) != tid {
            return None;
        }
        let name = self.read(index);
        fence(Ordering::Acquire);
        (written.load(Ordering::Acquire) == tid).then_some(name)
    }
}

impl SharedArray<StackNote> {
    /// Returns the note at `index`, or `None` if its mark is not `seal`.
    pub(crate) fn take(&self, index: usize, seal: u32) -> Option<StackNote> {
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let field = unsafe { &raw mut (*entry).seal };
        // SAFETY: the field is aligned for a u32, and the kernel writes it with one instruction.
        let written = unsafe { AtomicU32::from_ptr(field) };
        if written.load(Ordering::Acquire) != seal {
            return None;
        }
        let note = self.read(index);
        fence(Ordering::Acquire);
        (written.load(Ordering::Acquire) == seal).then_some(note)
    }
}

impl SharedArray<CpuControl> {
    /// Number of records of CPU `index` that have been read.
    pub(crate) fn tail(&self, index: usize) -> u64 {
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let field = unsafe { &raw mut (*entry).tail };
        // SAFETY: the field is aligned for a u64, and only the reader writes it, atomically.
        unsafe { AtomicU64::from_ptr(field) }.load(Ordering::Acquire)
    }

    /// Tells the BPF programs on CPU `index` that all records before `tail` have been read.
    pub(crate) fn set_tail(&self, index: usize, tail: u64) {
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let field = unsafe { &raw mut (*entry).tail };
        // SAFETY: the field is aligned for a u64, and the kernel only reads it.
        unsafe { AtomicU64::from_ptr(field) }.store(tail, Ordering::Release);
    }

    /// Selects what the BPF programs on CPU `index` do: a set of [`run`] flags, or 0 to do nothing.
    pub(crate) fn set_running(&self, index: usize, running: u64) {
        let known = run::RECORD | run::FOLLOW | run::SECOND | run::CALLS;
        debug_assert_eq!(running & !known, 0, "unknown bits");
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let field = unsafe { &raw mut (*entry).running };
        // SAFETY: the field is aligned for a u64, and the kernel only reads it.
        unsafe { AtomicU64::from_ptr(field) }.store(running, Ordering::Release);
    }

    /// Makes recording on CPU `index` start at the time `since`, in ns.
    pub(crate) fn set_since(&self, index: usize, since: u64) {
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let field = unsafe { &raw mut (*entry).since };
        // SAFETY: the field is aligned for a u64, and the kernel only reads it.
        unsafe { AtomicU64::from_ptr(field) }.store(since, Ordering::Release);
    }

    /// Stops recording on CPU `index` at time `until`, in ns.
    pub(crate) fn set_until(&self, index: usize, until: u64) {
        let entry = self.entry(index).as_ptr();
        // SAFETY: the field lies within a mapped entry.
        let field = unsafe { &raw mut (*entry).until };
        // SAFETY: the field is aligned for a u64, and the kernel only reads it.
        unsafe { AtomicU64::from_ptr(field) }.store(until, Ordering::Release);
    }
}
