//! The records of `bpf/record.h`, as Rust sees them.
//!
//! `tests/layout.rs` holds every field here against the type information that the compiled object
//! carries, so the two cannot drift apart.

/// `struct span_record`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanRecord {
    /// Start in ns, `CLOCK_MONOTONIC`.
    pub start: u64,
    /// Length on the wall in ns.
    pub dur: u64,
    /// Length in ns without what interrupted it.
    pub self_ns: i64,
    /// Address of a kernel function, or [`detail`].
    pub detail: u64,
    /// Low bits of the record's number + 1; written last.
    pub seq: u32,
    /// Thread; IRQ line, [`vector`] or softirq number where it is none.
    pub tid: u32,
    /// Process.
    pub tgid: u32,
    /// [`kind`].
    pub kind: u8,
    /// [`flag`]s.
    pub flags: u8,
    /// CPU number.
    pub cpu: u16,
    /// The thread's name, padded with zeros.
    pub comm: [u8; 16],
}

/// `struct sum_record`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SumRecord {
    /// What the entry is keyed by; 0 while it is free.
    pub key: u64,
    /// As in [`SpanRecord`].
    pub detail: u64,
    /// Intervals.
    pub count: u64,
    /// Their own time in ns.
    pub self_ns: i64,
    /// Their time on the wall in ns.
    pub wall: u64,
    /// The longest, on the wall, in ns.
    pub max: u64,
    /// As in [`SpanRecord`].
    pub tid: u32,
    /// As in [`SpanRecord`].
    pub tgid: u32,
    /// As in [`SpanRecord`].
    pub kind: u8,
    /// As in [`SpanRecord`].
    pub flags: u8,
    /// As in [`SpanRecord`].
    pub cpu: u16,
    /// Nothing.
    pub reserved: u32,
    /// As in [`SpanRecord`].
    pub comm: [u8; 16],
    /// Intervals by length on the wall.
    pub histogram: [u32; ticktax_model::Histogram::BUCKETS],
}

/// `struct frame`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    /// Start in ns.
    pub start: u64,
    /// Time in ns in what interrupted it.
    pub child: u64,
    /// As in [`SpanRecord`].
    pub detail: u64,
    /// The thread at the bottom of the stack; as `tid` in [`SpanRecord`] above it.
    pub id: u32,
    /// As in [`SpanRecord`].
    pub kind: u8,
    /// As in [`SpanRecord`].
    pub flags: u8,
    /// Nothing.
    pub reserved: u16,
}

/// `MAX_DEPTH`.
pub const MAX_DEPTH: usize = 8;

/// `RESTS_PER_CPU`.
pub const RESTS_PER_CPU: usize = 16;

/// `MAX_CPUS`.
pub const MAX_CPUS: usize = 1024;

/// `struct cpu_state`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuState {
    /// What the CPU is in the middle of.
    pub stack: [Frame; MAX_DEPTH],
    /// How many frames stand above the bottom.
    pub depth: u64,
    /// When the books were opened, in ns; 0 before.
    pub opened: u64,
    /// The latest time seen, in ns.
    pub last: u64,
    /// Records written.
    pub head: u64,
    /// Tracepoint hits; an approximation, since one may interrupt another's count.
    pub events: u64,
    /// Spans that found the buffer full.
    pub lost: u64,
    /// Their own time in ns.
    pub lost_self: i64,
    /// Exits without their entry, and entries too deep.
    pub mismatched: u64,
    /// Spans that found the table of sums full.
    pub folded: u64,
    /// Children that found the table of followed threads full.
    pub unfollowed: u64,
    /// Switches that the kernel did not tell of.
    pub missed: u64,
    /// Times that the kernel stopped the tick.
    pub ticks_stopped: u64,
    /// Nothing.
    pub reserved: [u64; 4],
}

/// `struct cpu_control`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuControl {
    /// Records read.
    pub tail: u64,
    /// What the programs do: [`run`].
    pub running: u64,
    /// From when on they do not, in ns.
    pub until: u64,
    /// Nothing.
    pub reserved: [u64; 5],
}

/// `enum kind`.
pub mod kind {
    /// The idle loop.
    pub const IDLE: u8 = 0;
    /// A thread.
    pub const TASK: u8 = 1;
    /// A softirq.
    pub const SOFTIRQ: u8 = 2;
    /// An interrupt.
    pub const IRQ: u8 = 3;
    /// A non-maskable interrupt.
    pub const NMI: u8 = 4;
    /// A thread that is not allowed to run.
    pub const WAIT: u8 = 5;
}

/// `RUN_…`.
pub mod run {
    /// Record.
    pub const RECORD: u64 = 1;
    /// Also what becomes of the followed threads while they are off their CPU.
    pub const FOLLOW: u64 = 2;
}

/// `struct life`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// From when on the thread does what `detail` says, in ns.
    pub since: u64,
    /// [`detail`]; none while it runs.
    pub detail: u32,
    /// Where it ran last.
    pub cpu: u32,
    /// Process.
    pub tgid: u32,
    /// [`flag`]s of its spans.
    pub flags: u32,
    /// As in [`SpanRecord`].
    pub comm: [u8; 16],
}

/// `FLAG_…`.
pub mod flag {
    /// The thread is the kernel's.
    pub const KERNEL_THREAD: u8 = 1;
    /// The frame is a function's, within an interrupt or softirq.
    pub const FUNCTION: u8 = 2;
    /// The wait ended on another CPU than it began on.
    pub const MIGRATED: u8 = 4;
    /// The entry holds all sources of its kind that the table of sums has no room for.
    pub const REST: u8 = 8;
}

/// `enum detail`, and what else is no address.
pub mod detail {
    /// Nothing more is known.
    pub const NONE: u64 = 0;
    /// A page fault being handled.
    pub const PAGE_FAULT: u64 = 1;
    /// The CPU quota of the thread's cgroup is used up.
    pub const THROTTLED: u64 = 2;
    /// Memory being reclaimed by a thread that wants some.
    pub const RECLAIM: u64 = 3;
    /// The thread may run since something woke it.
    pub const WOKEN: u64 = 4;
    /// The thread may run, and gave way to another.
    pub const PREEMPTED: u64 = 5;
    /// The thread waits for something, and a signal would wake it.
    pub const SLEEPING: u64 = 6;
    /// The thread waits for a disk.
    pub const DISK: u64 = 7;
    /// The thread waits for something else that no signal interrupts.
    pub const LOCK: u64 = 8;
    /// The thread is stopped or frozen.
    pub const STOPPED: u64 = 9;
    /// Nothing has been seen of the thread yet.
    pub const UNSEEN: u64 = 10;
    /// The thread is not followed; its children will be.
    pub const PARENT: u64 = 11;
    /// From here on the thread's number is a new thread's.
    pub const REBORN: u64 = 12;
    /// Not known: the kernel did not tell of the switch at which the thread left its CPU.
    pub const MISSED: u64 = 13;
}

/// `enum vector`: the architecture's own interrupts, in the order of their numbers.
pub mod vector {
    /// The first vector's number; IRQ lines lie below.
    pub const FIRST: u32 = 0x10000;
    /// Names by number from [`FIRST`], as the kernel's tracepoints call them.
    pub const NAMES: [&str; 11] = [
        "local_timer",
        "reschedule",
        "call_function",
        "call_function_single",
        "irq_work",
        "thermal",
        "threshold",
        "deferred_error",
        "apic_error",
        "spurious",
        "platform_ipi",
    ];
}
