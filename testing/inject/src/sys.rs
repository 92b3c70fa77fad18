//! System calls that have no safe wrapper. All unsafe code in this crate is here.
#![expect(unsafe_code, reason = "raw system calls, memory mappings and fork")]

pub mod absent;
#[cfg(target_arch = "x86_64")]
pub(crate) mod guest_memory;
pub mod system_clock;
pub mod victims;

use std::ffi::c_void;
use std::fs::File;
use std::net::UdpSocket;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use ticktax_model::{Cpu, Nanos};

/// The smallest page size on any supported machine. If the machine's pages are larger, some are
/// touched more than once, which does no harm.
const PAGE: usize = 4096;

/// Gives the calling thread the policy `SCHED_FIFO`. Threads that it starts do not inherit the
/// policy.
pub(crate) fn set_fifo(priority: i32) -> nix::Result<()> {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // musl's `sched_setscheduler` does nothing, so make the system call directly. The kernel's
    // `struct sched_param` is just this number.
    let param: libc::c_int = priority;
    // SAFETY: `param` is a complete sched_param and outlives the call. 0 means the caller.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const param) };
    Errno::result(result).map(drop)
}

/// Gives the calling thread precedence over ordinary threads (nice -20). Requires root.
pub(crate) fn favour_self() -> nix::Result<()> {
    // SAFETY: setpriority takes three integers. PRIO_PROCESS and 0 mean the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    Errno::result(result).map(drop)
}

/// Registers this process for [`membarrier`]. The registration lasts until the process exits or
/// calls `exec`.
pub(crate) fn membarrier_register() -> nix::Result<()> {
    membarrier_call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// Issues a memory barrier on every CPU that is running a thread of this process. The kernel sends
/// each of these CPUs an interrupt.
pub(crate) fn membarrier() -> nix::Result<()> {
    membarrier_call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

fn membarrier_call(command: libc::c_int) -> nix::Result<()> {
    // SAFETY: membarrier takes three integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    Errno::result(result).map(drop)
}

/// Enables the interface `lo` in the network namespace of `socket`.
pub(crate) fn bring_lo_up(socket: &UdpSocket) -> nix::Result<()> {
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(c"lo".to_bytes()) {
        // `c_char` is signed on some architectures, but `l` and `o` always fit into it.
        *to = libc::c_char::try_from(*from).unwrap_or_default();
    }
    let up = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(i16::MAX);
    let request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: up },
    };
    let socket = socket.as_raw_fd();
    let (flags, request) = (libc::SIOCSIFFLAGS, &raw const request);
    // SAFETY: SIOCSIFFLAGS reads the ifreq that `request` points to, and keeps no pointer to it.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, socket, flags, request) };
    Errno::result(result).map(drop)
}

/// Opens a socket that sees every IPv4 packet arriving in its network namespace.
pub(crate) fn packet_socket() -> nix::Result<OwnedFd> {
    let protocol = u16::try_from(libc::ETH_P_IP).unwrap_or(0).to_be();
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes three integers.
    let result = unsafe { libc::socket(libc::AF_PACKET, kind, protocol.into()) };
    let fd = Errno::result(result)?;
    // SAFETY: the descriptor is new, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a filter that inspects each packet in `steps` slow steps and then drops it. Each step
/// computes where the packet's headers end.
pub(crate) fn filter_slowly(socket: impl AsFd, steps: u16) -> nix::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt: 0,
        jf: 0,
        k,
    };
    let headers = (libc::SKF_AD_OFF + libc::SKF_AD_PAY_OFFSET).cast_unsigned();
    let step = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, headers);
    let mut program = vec![step; steps.into()];
    program.push(statement(libc::BPF_RET | libc::BPF_K, 0));
    let filter = libc::sock_fprog {
        len: steps.saturating_add(1),
        filter: program.as_mut_ptr(),
    };
    let size = libc::socklen_t::try_from(size_of::<libc::sock_fprog>()).unwrap_or(0);
    // SAFETY: the kernel copies `len` statements from `program`, which outlives the call. It keeps
    // no pointer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size,
        )
    };
    Errno::result(result).map(drop)
}

/// Writes the dirty pages of a file and waits for the disk. The file system's journal is not
/// involved.
pub(crate) fn write_pages(file: &File) -> nix::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: sync_file_range takes only integers. 0 bytes from 0 means the complete file.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
    Errno::result(result).map(drop)
}

/// A perf event on one CPU. It counts until this value is dropped.
#[derive(Debug)]
struct CpuEvent(File);

impl CpuEvent {
    /// Opens an event. `attr` is version 5 of `struct perf_event_attr` (`<linux/perf_event.h>`) as
    /// 64-bit words. This function fills in the size of the struct.
    fn open(cpu: Cpu, mut attr: [u64; 14]) -> nix::Result<Self> {
        let size = size_of_val(&attr) as u64;
        attr[0] |= second_half(size);
        let cpu = libc::c_int::try_from(cpu.index()).map_err(|_| Errno::EINVAL)?;
        let (any, none): (libc::c_int, libc::c_int) = (-1, -1);
        let cloexec: libc::c_ulong = 8;
        // SAFETY: the kernel reads `attr`, which contains its own length and outlives the call. The
        // other arguments are numbers.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                attr.as_ptr(),
                any,
                cpu,
                none,
                cloexec,
            )
        };
        let opened = Errno::result(opened)?;
        let opened = libc::c_int::try_from(opened).map_err(|_| Errno::EBADF)?;
        // SAFETY: the call above opened the descriptor, so it has no other owner.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(opened) })))
    }
}

/// Returns a 64-bit word whose first 32-bit half, in memory order, is `number`.
const fn first_half(number: u64) -> u64 {
    if cfg!(target_endian = "little") {
        number
    } else {
        number << 32
    }
}

/// Returns a 64-bit word whose second 32-bit half, in memory order, is `number`.
const fn second_half(number: u64) -> u64 {
    if cfg!(target_endian = "little") {
        number << 32
    } else {
        number
    }
}

/// Counts the cycles of a CPU until this value is dropped. Interrupts the CPU every `cycles`
/// cycles.
#[derive(Debug)]
pub(crate) struct CycleCounter(CpuEvent);

impl CycleCounter {
    pub(crate) fn start(cpu: Cpu, cycles: u64) -> nix::Result<Self> {
        // The words describe a hardware event that counts cycles, with this period and with all
        // options off.
        let mut attr = [0; 14];
        attr[2] = cycles;
        CpuEvent::open(cpu, attr).map(Self)
    }

    /// Returns the number of cycles counted so far.
    pub(crate) fn read(&self) -> nix::Result<u64> {
        let mut value = [0; 8];
        let read = nix::unistd::read(&self.0.0, &mut value)?;
        if read < value.len() {
            return Err(Errno::EIO);
        }
        Ok(u64::from_ne_bytes(value))
    }
}

/// A clock that takes periodic samples on one CPU until this value is dropped. At each sample, the
/// CPU sends itself an interrupt (`irq_work`) that wakes the reader.
#[derive(Debug)]
pub(crate) struct SampledClock {
    samples: Mapping,
    _event: CpuEvent,
}

impl SampledClock {
    /// Size of a sample, including the record's header (`struct perf_event_header`). It contains
    /// only an address.
    const SAMPLE: u64 = 16;
    /// Offset of `data_head` in `struct perf_event_mmap_page`. The field contains the number of
    /// bytes written so far.
    const HEAD: usize = 1024;

    pub(crate) fn start(cpu: Cpu, period: Nanos) -> nix::Result<Self> {
        const SOFTWARE: u64 = 1;
        const CPU_CLOCK: u64 = 0;
        const WITH_ADDRESS: u64 = 1;
        let mut attr = [0; 14];
        attr[0] = first_half(SOFTWARE);
        attr[1] = CPU_CLOCK;
        attr[2] = period.0.cast_unsigned();
        attr[3] = WITH_ADDRESS;
        // Make the kernel wake the reader at each sample.
        attr[6] = first_half(1);
        let event = CpuEvent::open(cpu, attr)?;
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?;
        let page = page
            .and_then(|size| usize::try_from(size).ok())
            .ok_or(Errno::EINVAL)?;
        // The mapping is a control page and a data page. It is read-only, so the kernel overwrites
        // old data.
        let samples = Mapping::of_file(&event.0, 2 * page)?;
        Ok(Self {
            samples,
            _event: event,
        })
    }

    /// Returns the number of samples taken so far. If the kernel throttles the clock, it writes a
    /// record that counts as two samples.
    pub(crate) fn samples(&self) -> u64 {
        // SAFETY: the mapping has two pages, which is more than `HEAD` plus a word.
        let head = unsafe { self.samples.start.cast::<u8>().add(Self::HEAD) };
        // SAFETY: the address is readable and aligned, because `HEAD` is 1024 bytes into a page.
        // The mapping lives as long as `self`. The kernel writes the word atomically.
        let bytes: u64 = unsafe { head.cast().read_volatile() };
        bytes / Self::SAMPLE
    }
}

/// A memory mapping, which is unmapped when this value is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<c_void>,
    bytes: NonZeroUsize,
}

impl Mapping {
    /// Maps `pages` private pages without touching them.
    pub(crate) fn private(pages: u32) -> nix::Result<Self> {
        Self::new(pages as usize * PAGE, MapFlags::MAP_PRIVATE)
    }

    fn new(bytes: usize, flags: MapFlags) -> nix::Result<Self> {
        let bytes = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses the address, so it replaces none of our mappings.
        let start = unsafe { mmap_anonymous(None, bytes, access, flags) }?;
        Ok(Self { start, bytes })
    }

    /// Maps the first `bytes` bytes of `file` for reading.
    fn of_file(file: &File, bytes: usize) -> nix::Result<Self> {
        let bytes = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
        // SAFETY: the kernel chooses the address, so it replaces none of our mappings.
        let start = unsafe {
            mmap(
                None,
                bytes,
                ProtFlags::PROT_READ,
                MapFlags::MAP_SHARED,
                file,
                0,
            )
        }?;
        Ok(Self { start, bytes })
    }

    /// Writes to each page, which forces the kernel to allocate it.
    pub(crate) fn touch(&mut self) {
        for offset in (0..self.bytes.get()).step_by(PAGE) {
            // SAFETY: `offset` is less than `bytes`, so the address is in the mapping.
            let place = unsafe { self.start.cast::<u8>().add(offset) };
            // SAFETY: the address is writable, and `&mut self` guarantees exclusive access.
            unsafe { place.write_volatile(1) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mmap returned these bounds, and all borrows of the mapping have ended.
        let result = unsafe { munmap(self.start, self.bytes.get()) };
        debug_assert_eq!(result, Ok(()));
    }
}

/// A function at a fixed address, written in machine code.
#[derive(Debug)]
pub(crate) struct FixedLoop(Mapping);

impl FixedLoop {
    /// Places `code`, which must be a function for x86-64 that takes one integer, at `address`.
    pub(crate) fn new(address: u64, code: &[u8]) -> nix::Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Errno::ENOSYS);
        }
        let place = usize::try_from(address).ok().and_then(NonZeroUsize::new);
        let place = place.ok_or(Errno::EINVAL)?;
        let bytes = NonZeroUsize::new(PAGE.max(code.len())).ok_or(Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE | ProtFlags::PROT_EXEC;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: MAP_FIXED_NOREPLACE fails if the mapping would replace another one.
        let start = unsafe { mmap_anonymous(Some(place), bytes, access, flags) }?;
        // SAFETY: the mapping is writable, new, and at least as long as `code`.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), start.cast().as_ptr(), code.len()) };
        Ok(Self(Mapping { start, bytes }))
    }

    pub(crate) fn run(&self, argument: u64) {
        let start = self.0.start.as_ptr();
        // SAFETY: `new` placed a function with this signature there. It is never changed.
        let function: extern "C" fn(u64) = unsafe { std::mem::transmute(start) };
        function(argument);
    }
}

/// Integers that a process shares with a child process.
#[derive(Debug)]
pub(crate) struct SharedWords(Mapping);

// SAFETY: the mapping is only accessed through atomics, and unmapped once, by its owner.
unsafe impl Send for SharedWords {}
// SAFETY: see `Send`.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Creates `count` integers with the initial value 0.
    pub(crate) fn new(count: usize) -> nix::Result<Self> {
        let bytes = count * size_of::<AtomicI64>();
        let mut mapping = Mapping::new(bytes, MapFlags::MAP_SHARED)?;
        mapping.touch();
        let shared = Self(mapping);
        for word in shared.words() {
            word.store(0, Ordering::Relaxed);
        }
        Ok(shared)
    }

    pub(crate) fn words(&self) -> &[AtomicI64] {
        let count = self.0.bytes.get() / size_of::<AtomicI64>();
        // SAFETY: the mapping is page-aligned, contains `count` words, and lives as long as `self`.
        // Any bits are a valid i64. Both processes access it only through atomics.
        unsafe { std::slice::from_raw_parts(self.0.start.cast().as_ptr(), count) }
    }
}

/// A child process with a single thread. The child is killed and reaped when this value is dropped.
#[derive(Debug)]
pub(crate) struct Child(Pid);

impl Child {
    /// Runs `body` in a child process, which then exits. If the parent has several threads, `body`
    /// must not allocate memory, lock anything or print. Otherwise, it could wait forever for a
    /// lock that another thread held at the time of the fork.
    pub(crate) fn fork(body: impl FnOnce()) -> nix::Result<Self> {
        // SAFETY: the child only runs `body`, which follows the rule above, and _exit.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Self(child)),
            ForkResult::Child => {
                let end = ExitOnDrop;
                body();
                drop(end);
                unreachable!("the child has ended")
            }
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.0
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The child has not been reaped yet, so its PID cannot belong to another process.
        let _ = kill(self.0, Signal::SIGKILL);
        while waitpid(self.0, None) == Err(Errno::EINTR) {}
    }
}

/// Blocks this thread uninterruptibly while a child process sleeps for `length`.
pub(crate) fn wait_for_child(length: Nanos) -> nix::Result<()> {
    let request = libc::timespec {
        tv_sec: length.0 / 1_000_000_000,
        tv_nsec: length.0 % 1_000_000_000,
    };
    let flags = libc::c_long::from(libc::CLONE_VFORK | libc::SIGCHLD);
    // SAFETY: without CLONE_VM this is a fork. The child has its own memory, continues on its own
    // copy of the stack, and only calls nanosleep and _exit. The kernel ignores the other
    // arguments.
    let child =
        unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    if child == 0 {
        // SAFETY: the request is a valid timespec, and the null pointer discards the remaining
        // time.
        unsafe { libc::nanosleep(&raw const request, std::ptr::null_mut()) };
        // SAFETY: _exit takes an integer and does not return.
        unsafe { libc::_exit(0) }
    }
    let child = Errno::result(child)?;
    let child = Pid::from_raw(i32::try_from(child).map_err(|_| Errno::EINVAL)?);
    while waitpid(child, None) == Err(Errno::EINTR) {}
    Ok(())
}

/// A guard that exits the process when it is dropped, even after a panic, without running the
/// parent's exit handlers.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        // SAFETY: _exit takes an integer and does not return.
        unsafe { libc::_exit(0) }
    }
}

/// Number of `SIGALRM` signals that this process has received.
static ALARMS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_alarm(_: libc::c_int) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of `SIGALRM` signals that this process has received since [`handle_alarms`]
/// was called.
pub(crate) fn alarms() -> u64 {
    ALARMS.load(Ordering::Relaxed)
}

/// Starts counting the `SIGALRM` signals that this process receives. This cannot be undone, so call
/// it only in a child process.
pub(crate) fn handle_alarms() -> nix::Result<()> {
    let handler = SigHandler::Handler(count_alarm);
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler only increments an atomic, which is async-signal-safe.
    unsafe { sigaction(Signal::SIGALRM, &action) }.map(drop)
}

/// Arms a timer that sends this process a `SIGALRM` after `wait`, which must be at least 1 µs.
pub(crate) fn set_alarm(wait: Nanos) -> nix::Result<()> {
    // Round up, because the alarm must never be early.
    let micros = ((wait.0 + 999) / 1_000).max(1);
    let zero = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let value = libc::timeval {
        tv_sec: micros / 1_000_000,
        tv_usec: micros % 1_000_000,
    };
    let once = libc::itimerval {
        it_interval: zero,
        it_value: value,
    };
    // SAFETY: `once` is a valid itimerval, and the pointer to the old one can be null.
    let result =
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const once, std::ptr::null_mut()) };
    Errno::result(result).map(drop)
}
