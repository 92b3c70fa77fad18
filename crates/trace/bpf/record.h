/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * The data shared by the BPF programs and the Rust side. `cargo xtask bpf` generates
 * `src/record.rs` from the compiled object's type information and from the comments after the
 * fields and enumerators here.
 */
#ifndef TICKTAX_RECORD_H
#define TICKTAX_RECORD_H

/* Kinds of spans. A higher kind can interrupt a lower one. */
enum kind {
	KIND_IDLE = 0,	  /* the idle loop */
	KIND_TASK = 1,	  /* a thread */
	KIND_SOFTIRQ = 2, /* a softirq */
	KIND_IRQ = 3,	  /* an interrupt */
	KIND_NMI = 4,	  /* a non-maskable interrupt */
	KIND_WAIT = 5,	  /* a thread that is not running, which takes no CPU time */
	KIND_LATE = 6,	  /* a timer interrupt's delay since its timer was due, which takes no CPU time */
};

/* Context that a late timer interrupt interrupted. It is the `id` of a record of [`kind::LATE`]. */
enum interrupted {
	INTERRUPTED_KERNEL = 0, /* the kernel, or unknown */
	INTERRUPTED_USER = 1,	/* a program in user mode, where interrupts are always enabled */
	INTERRUPTED_IDLE = 2,	/* the idle loop */
};

/* The `id` of an interrupt is one of these architecture vectors, or an IRQ line below the first. */
enum vector {
	VECTOR_LOCAL_TIMER = 0x10000,
	VECTOR_RESCHEDULE,
	VECTOR_CALL_FUNCTION,
	VECTOR_CALL_FUNCTION_SINGLE,
	VECTOR_IRQ_WORK,
	VECTOR_THERMAL,
	VECTOR_THRESHOLD,
	VECTOR_DEFERRED_ERROR,
	VECTOR_APIC_ERROR,
	VECTOR_SPURIOUS,
	VECTOR_PLATFORM_IPI,
	VECTOR_UNTRACED_TIMER, /* an interrupt without a tracepoint in which high-resolution timers ran */
};

/*
 * `detail` is the address of a kernel function, or one of these. Values from DETAIL_WOKEN upwards
 * say what a followed thread does while off CPU. The bits that start at CALL_SHIFT and at
 * STACK_SHIFT say where it waits, and those at RELEASE_SHIFT where the lock that it waited for was
 * released. They are 0 if that is unknown.
 */
enum detail {
	DETAIL_NONE = 0,       /* no further detail is known */
	DETAIL_PAGE_FAULT = 1, /* a thread that handles a page fault */
	DETAIL_THROTTLED = 2,  /* a thread that is throttled because its cgroup's CPU quota is used up */
	DETAIL_RECLAIM = 3,    /* a thread that reclaims memory for its own allocation */
	DETAIL_WOKEN = 4,      /* a thread that has been runnable since it was woken */
	DETAIL_PREEMPTED = 5,  /* a thread that has been runnable since it was preempted */
	DETAIL_SLEEPING = 6,   /* a thread in an interruptible sleep */
	DETAIL_DISK = 7,       /* a thread that waits for a disk */
	DETAIL_LOCK = 8,       /* a thread in an uninterruptible sleep that is not for a disk */
	DETAIL_STOPPED = 9,    /* a thread that is stopped */
	DETAIL_FROZEN = 10,    /* a thread that is frozen */
	DETAIL_UNSEEN = 11,    /* state of a followed thread that has had no event yet */
	DETAIL_PARENT = 12,    /* state of a thread whose children will be followed, but not the thread itself */
	DETAIL_REBORN = 13,    /* an empty wait that marks when a new thread takes over a thread ID */
	DETAIL_MISSED = 14,    /* unknown, because the thread's switch away from its CPU was not reported */
	DETAIL_DEADLINE = 15,  /* a thread whose own deadline budget is used up */
	DETAIL_TIMER = 16,     /* time from a sleeping thread's requested expiry to its wake-up */
	DETAIL_SHORT_CALLS = 17, /* not an interval: the sums of an exiting thread's short system calls */
	DETAIL_CALL = 0x8000, /* a thread in a system call, whose number is in the low 13 bits */
	DETAIL_CALL_COMPAT = 0x4000, /* bit added to `CALL` if the number is that of a 32-bit system call */
};

enum flag {
	FLAG_KERNEL_THREAD = 1, /* a kernel thread */
	FLAG_FUNCTION = 2,	/* a function called within an interrupt or softirq */
	FLAG_MIGRATED = 4,	/* a wait that started on one CPU and ended on another */
	FLAG_REST = 8,		/* all sources of a kind that did not fit into the table of sums, taken together */
	FLAG_WOKE = 16,		/* an edge: at `start`, the source woke the thread whose ID is in `dur` */
	FLAG_QUEUED = 32,	/* an edge: the source queued the work item whose function's address is in `dur` */
	FLAG_STARTED = 48,	/* an edge, `WOKE` and `QUEUED` together: the source created the thread whose ID is in `dur` */
	FLAG_RAISED = 64,	/* an edge: the source raised the softirq whose number is in `dur` */
	FLAG_SAMPLED = 80,	/* an edge, `WOKE` and `RAISED` together: a timer interrupted the source in the place that `dur` describes (see `SAMPLE_STACK_SHIFT`) */
	FLAG_PROFILED = 96,	/* an edge, `QUEUED` and `RAISED` together: like `SAMPLED`, but from a profile's clock event */
	FLAG_UNREPORTED = 128,	/* time that belongs to no thread, because the kernel did not report a switch */
};

/* Delays that trigger the flight recorder. The first four also say why a thread is off CPU. */
enum trigger {
	TRIGGER_BLOCKED = 0,   /* a thread slept uninterruptibly until it was woken */
	TRIGGER_WOKEN = 1,     /* a thread waited for a CPU after it was woken */
	TRIGGER_PREEMPTED = 2, /* a thread waited for a CPU after it was preempted */
	TRIGGER_THROTTLED = 3, /* a thread could not run because its cgroup's quota was used up */
	TRIGGER_STRETCH = 4,   /* a kernel thread, interrupt or softirq ran long without interruption */
	TRIGGER_FRAME = 5,     /* a paced thread's frame started late */
};

/* The threads that a rule watches. */
enum who {
	WHO_ANY = 0,	 /* all threads except the recorder's */
	WHO_PROCESS = 1, /* the threads of one process */
	WHO_NAME = 2,	 /* threads with a certain name, and all threads of processes with that name */
	WHO_CGROUP = 3,	 /* threads in a cgroup, or in a cgroup below it */
};

/* Meanings of the stack in a [`StackNote`]. */
enum note {
	NOTE_SAMPLE = 1,  /* code that a timer interrupted */
	NOTE_WAIT = 2,	  /* where a thread was blocked until now */
	NOTE_RELEASE = 3, /* code that wakes this thread */
};

/* Meanings of a record of user code. */
enum code {
	CODE_CALL = 0,	/* code that waited in a system call */
	CODE_FAULT = 1, /* code that waited in a page fault */
	CODE_WAKER = 2, /* code that ends the wait of another thread */
};

/*
 * Flags of the tracepoint contention_begin (LCB_F_ in include/trace/events/lock.h), and two bits of
 * ticktax. They start at LOCK_SHIFT, above the low bits of the lock's address.
 */
enum lock {
	LOCK_SPIN = 1,	 /* the thread spins */
	LOCK_READ = 2,	 /* a lock that several readers can hold, for reading */
	LOCK_WRITE = 4,	 /* such a lock, for writing */
	LOCK_RT = 8,	 /* a real-time mutex */
	LOCK_PERCPU = 16, /* a per-CPU reader-writer semaphore */
	LOCK_MUTEX = 32, /* a mutex */
	LOCK_MMAP = 64,	 /* the lock of the thread's own address space */
	LOCK_KNOWN = 128, /* always set, to tell a lock from a length */
};

enum limit {
	COMM_LEN = 16,		 /* size of a thread name in bytes, including the terminating 0 */
	HISTOGRAM_BUCKETS = 140, /* number of buckets in a histogram of lengths */
	LATE_NS = 500000,	 /* minimum delay in ns at which a timer interrupt is recorded */
	LONG_NS = 917504,	 /* minimum length in ns at which intervals are recorded individually when summing */
	RESTS_PER_CPU = 16,	 /* number of entries per CPU for sources that do not fit into the table of sums */
	MAX_DEPTH = 8, /* maximum depth of a stack: thread, softirq, its function, IRQ, its function, three spare */
	MAX_CPUS = 1024, /* maximum number of CPUs */
	LOCK_SHIFT = 56, /* first bit of the flags, above the address */
	LEFT_SHIFT = 4, /* first of the bits in a [`RingEntry`]'s `kind` that say why a thread left its CPU */
	WAITING_SLOTS = 32768, /* number of slots for the times at which threads went off CPU (a power of two) */
	OPENING = 1, /* value of `opened` in [`CpuState`] until recording starts on that CPU */
	TRIGGER_RULES = 8, /* maximum number of trigger rules */
	TRIGGERS = 6, /* number of kinds of triggers */
	BURST = 16, /* maximum number of triggers per CPU within `BURST_NS` */
	BURST_NS = 1000000000, /* time in ns in which a CPU's triggers count as one burst */
	NAME_SLOTS = 32768, /* number of slots for thread names (a power of two) */
	SOFTIRQS = 16, /* upper limit for softirq numbers (a power of two) */
	CALL_SHIFT = 8, /* first bit of the system call in a wait's `detail`, in the form of `call` in [`CpuState`] */
	STACK_SHIFT = 32, /* first bit of the stack's key plus 1 in a wait's `detail` */
	RELEASE_SHIFT = 48, /* first bit of the key plus 1 of the waker's stack in a wait's `detail` */
	RELEASED_NS = 1000000, /* minimum length in ns of a wait for a lock after which the waker's stack is taken */
	PLACED_NS = 1000000, /* time in ns during which a stack is not taken again if its depth and system call are unchanged */
	STACK_DEPTH = 48, /* maximum number of frames in a stack */
	STACKS = 4096, /* number of buckets in each map of stacks (a power of two) */
	SAMPLED_NS = 1000000, /* minimum time in ns between two samples on a CPU, and after which a run is sampled if a thread waits for it */
	SAMPLE_EVERY_NS = 20000000, /* mean time in ns between two samples on a CPU, after a burst */
	SAMPLE_BURST = 32, /* number of samples on a CPU that may follow each other at each tick */
	SAMPLE_STACK_SHIFT = 48, /* first bit of the kernel stack's key plus 1 in a sample's `dur`. The bits below are the address in user mode */
	SAMPLE_IN_USER = 0xffff, /* value used instead of that key plus 1 if a profile's clock event interrupted user mode */
	PROFILE_STACKS = 8192, /* number of buckets in each map of stacks with a profile (a power of two) */
	MORE_STACKS = 16384, /* number that is added to the keys of `more_stacks` */
	CALL_LONG_NS = 50000, /* minimum length in ns at which a part of a system call is recorded individually */
	NOTES = 256, /* number of notes in a CPU's ring (a power of two) */
	VCPUS = 512, /* maximum number of threads that run vCPUs (a power of two) */
	EXIT_REASONS = 256, /* number of reasons for exits from a guest (a power of two) */
	EXIT_HIGH_FROM = 0x400, /* first of the high exit codes of AMD processors */
	EXIT_HIGH_AT = 0xf0, /* index of that exit code */
	EXIT_OTHER = 0xff, /* index of all exits with a reason that has no index */
	EXIT_NO_TRAP = 0x40, /* arm64: index of the first exit that is not a trap */
	TIMER_PERIODS = 8, /* number of frequent intervals that are kept for each vCPU's timer */
	WAIT_CLASSES = 4, /* number of classes of waits whose user code is recorded at separate rates */
	WAIT_BUDGETS = 8, /* number of rates: one for the waits of each class, and one for their wakers */
	WAIT_CODE_NS = 100000, /* minimum length in ns of an uninterruptible wait whose user code is recorded */
	WAIT_LONG_NS = 1000000, /* minimum length in ns of any other wait whose user code is recorded, and of a long uninterruptible one */
	WAIT_BURST = 16, /* number of records of user code for each CPU and class that may follow each other */
	RING_TIME_BITS = 40, /* number of bits in a [`RingEntry`]'s times, including the sign: up to 9 minutes */
};

/* One span, one cache line. */
struct span_record {
	__u64 start;   /* start in ns, on `CLOCK_MONOTONIC` */
	__u64 dur;     /* length in ns. For an edge, the object that it affects (see [`flag`]) */
	__s64 self_ns; /* self time in ns (`dur` minus interruptions), 0 for an edge, for a wait its [`lock`] */
	__u64 detail;  /* address of a kernel function, or one of the constants in [`detail`] */
	__u32 seq;     /* low bits of the record's number plus 1. Written last */
	__u32 tid;     /* thread ID. For an interrupt or softirq, an IRQ line, [`vector`] or softirq number */
	__u32 tgid;    /* process ID */
	__u8 kind;     /* one of the constants in [`kind`] */
	__u8 flags;    /* set of the bits in [`flag`] */
	__u16 cpu;     /* CPU number */
	char comm[COMM_LEN]; /* thread name, padded with zeros */
};

/*
 * A span or an edge in the flight recorder's ring: half a cache line, so that the ring reaches back
 * twice as far. The thread's name and process are in its `thread_name`.
 */
struct ring_entry {
	__u64 start;   /* start in ns, on `CLOCK_MONOTONIC` */
	__u32 dur;     /* low bits of the length in ns, or of an edge's effect */
	__u32 child;   /* low bits of the interrupted time within `dur`, in ns */
	__u32 detail;  /* low bits of `detail` in [`SpanRecord`] */
	__u32 tid;     /* as in [`SpanRecord`] */
	__u32 seal;    /* low half: tracepoint hits. High half: the ring's round, starting at 1. Written last */
	__u8 dur_high; /* bits 32 to 39 of `dur` */
	__u8 child_high; /* bits 32 to 39 of `child`, including the sign */
	__u8 kind;     /* as in [`SpanRecord`], plus why the thread left its CPU (see [`LEFT_SHIFT`]) */
	__u8 flags;    /* as in [`SpanRecord`] */
};

/* A stack in the flight recorder's ring of notes. */
struct stack_note {
	__u64 time;    /* when the stack was taken, in ns, on `CLOCK_MONOTONIC` */
	__u64 address; /* for a sample, the address in user mode, or 0 */
	__u64 detail;  /* for a sample, as in [`SpanRecord`] */
	__u32 tid;     /* as in [`SpanRecord`]. For a wait or a release, the thread that is woken */
	__u32 length;  /* size of the stack in bytes */
	__u32 seal;    /* low bits of the note's number plus 1, or 0 while it is being written. Written last */
	__u8 kind;     /* for a sample, as in [`SpanRecord`] */
	__u8 flags;    /* for a sample, as in [`SpanRecord`] */
	__u16 about;   /* one of the constants in [`note`] */
	__u64 frames[STACK_DEPTH]; /* addresses of kernel functions, innermost first */
};

/* Name and process of a thread that has left a CPU. */
struct thread_name {
	__u32 tid;     /* thread ID, or 0 if the entry is empty. Written last */
	__u32 tgid;    /* process ID */
	char comm[COMM_LEN]; /* thread name, padded with zeros */
};

/* The sum of a source's intervals on one CPU, without their times. For long recordings. */
struct sum_record {
	__u64 key;     /* key of the entry (`sum_key`), or 0 while the entry is free */
	__u64 detail;  /* as in [`SpanRecord`] */
	__u64 count;   /* number of intervals */
	__s64 self_ns; /* total self time of the intervals, in ns */
	__u64 wall;    /* total length of the intervals, in ns */
	__u64 max;     /* length of the longest interval, in ns */
	__u32 tid;     /* as in [`SpanRecord`] */
	__u32 tgid;    /* as in [`SpanRecord`] */
	__u8 kind;     /* as in [`SpanRecord`] */
	__u8 flags;    /* as in [`SpanRecord`] */
	__u16 cpu;     /* as in [`SpanRecord`] */
	__u32 reserved; /* unused */
	char comm[COMM_LEN]; /* as in [`SpanRecord`] */
	__u32 histogram[HISTOGRAM_BUCKETS]; /* number of intervals by length */
};

/* An interval open on a CPU. */
struct frame {
	__u64 start;  /* start in ns */
	__u64 child;  /* interrupted time in ns. 0 in every unused frame */
	__u64 detail; /* as in [`SpanRecord`] */
	__u32 id;     /* thread ID in the bottom frame. In other frames, like `tid` in [`SpanRecord`] */
	__u8 kind;    /* as in [`SpanRecord`] */
	__u8 flags;   /* as in [`SpanRecord`] */
	__u16 reserved; /* unused */
};

/* A throttled thread. */
struct throttled_wait {
	__u64 since;  /* when the thread was throttled, in ns */
	__u64 queue;  /* address of its `struct cfs_rq`, or 0 if that does not count throttled time */
	__u64 held;   /* total throttled time of that queue at `since`, in ns */
};

/* The state of a followed thread. */
struct followed_thread {
	__u64 since;  /* start of the state that `detail` describes, in ns */
	__u32 detail; /* one of the constants in [`detail`], or `NONE` while the thread runs */
	__u32 cpu;    /* CPU on which the thread ran last, or `MAX_CPUS` if unknown */
	__u32 tgid;   /* process ID */
	__u32 flags;  /* set of the bits in [`flag`] that its spans have */
	__u32 stack;  /* key of the stack with which the thread left its CPU, plus 1. 0 if unknown */
	__u32 call;   /* system call in which the thread left its CPU, as in [`CpuState`] */
	__u64 short_calls; /* total time in system calls that were not recorded individually, in ns */
	__u64 short_count; /* number of those system calls */
	__s64 asked;  /* expiry requested by the thread's current timed sleep, in ns, or 0 */
	__s64 latest; /* latest expiry that its timer slack allows, in ns */
	__u64 placed;  /* when the thread's stack was last taken, in ns */
	__u64 placed_frame; /* address of a frame on the kernel stack at that time, which shows its depth */
	__u32 placed_call; /* value of `call` at that time, plus `detail` in the upper 16 bits */
	__u32 placed_stack; /* value of `stack` at that time */
	__u64 frozen_at; /* when a freezer last tried to freeze the thread while it was off its CPU, in ns */
	__u32 woken_frozen; /* whether the thread was frozen when its wake-up began */
	__u32 release; /* key plus 1 of the stack of the thread that is waking this one. 0 if unknown */
	__u64 waited;  /* length of the longest wait in the current system call or page fault, in ns */
	__u64 waited_since; /* start of that wait, in ns */
	__u64 waited_detail; /* one of the constants in [`detail`], for that wait */
	__u64 waker_coded; /* start of the last wait that ended with a record of the waker's user code, in ns */
	__u64 lock;    /* kernel lock that the thread waits for, as a [`lock`], or 0 */
	char comm[COMM_LEN]; /* as in [`SpanRecord`] */
};

/* State of a CPU's accounting. Only that CPU writes it. */
struct cpu_state {
	struct frame stack[MAX_DEPTH]; /* open frames: a thread or the idle loop at index 0, interruptions above it */
	__u64 depth;       /* number of open frames above the bottom one */
	__u64 opened;      /* start of accounting in ns. 0 before the first switch, then `OPENING` until the start */
	__u64 last;        /* latest time that a program has read from the clock, in ns */
	__u64 head;        /* number of records claimed so far */
	__u64 numbers;     /* sum of the claimed records' numbers. Used only before Linux 5.12 */
	__u64 events;      /* number of tracepoint hits. If an increment is interrupted, a hit can be lost */
	__u64 thread;      /* address of the thread in the bottom frame, as reported by the last switch */
	__u64 seen;        /* when that thread was last seen on the CPU, in ns */
	__u64 seen_child;  /* `child` of the bottom frame at that time */
	__u64 lost;        /* number of spans lost because the buffer was full */
	__s64 lost_self;   /* self time of those spans, in ns */
	__u64 mismatched;  /* number of exits without an entry, plus entries that were nested too deeply */
	__u64 folded;      /* number of intervals whose source did not fit into the table of sums */
	__u64 unfollowed;  /* number of child threads that did not fit into the map of followed threads */
	__u64 missed;      /* number of times a thread was found without a reported switch to it */
	__u64 ticks_stopped; /* number of times the kernel stopped the tick */
	__u8 raised[SOFTIRQS]; /* for each softirq number, whether the softirq is raised and has not started yet */
	__u64 switches;    /* number of reported context switches */
	__u64 cut;         /* number of frames above the bottom one that were open at a context switch */
	__u32 seen_tgid;   /* process ID of the thread whose time is recorded, if it is not the current one */
	__u32 at_functions; /* number of running programs for function entries and exits. Used only before Linux 5.12 */
	char seen_comm[COMM_LEN]; /* name of the thread whose time is recorded, if it is not the current one */
	__u64 burst_began; /* start of the current burst of triggers, in ns */
	__u64 burst;       /* number of triggers emitted in this burst */
	__u64 suppressed;  /* number of triggers suppressed because of `BURST` or a full buffer */
	__u64 ended;       /* time of the first event after the end of recording, in ns. 0 before that event */
	__u64 end_thread;  /* address of the thread that was on the CPU at the time `ended` */
	__u32 end_tid;     /* ID of that thread */
	__u32 end_tgid;    /* process ID of that thread */
	char end_comm[COMM_LEN]; /* name of that thread */
	__u64 calls;       /* number of system calls entered on this CPU by any thread */
	__u32 call;        /* one of: `CALL_USER`; a system call's number plus `CALL_FIRST`; or 0 if not followed */
	__u32 short_count; /* number of the thread's system calls in `short_calls` */
	__u64 call_since;  /* while the thread is in a system call: start of this part of the call, in ns */
	__u64 call_child;  /* `child` of the bottom frame at that time */
	__u64 short_calls; /* time in unrecorded system calls since the thread arrived, in ns */
	__s64 asked;       /* expiry requested by the thread's current timed sleep, in ns, or 0 */
	__s64 latest;      /* latest expiry that its timer slack allows, in ns */
	__u32 fitting;     /* scratch space: one bit for each rule that matches the current delay */
	__u32 firing;      /* scratch space: one bit for each rule that the current delay triggers */
	__u64 late_due;    /* when the timer that is running now was due, in ns. 0 if it is not late */
	__u64 sampled;     /* when the last sample was taken, in ns */
	__u64 sample_due;  /* earliest time of the next sample, as far as the mean rate determines it, in ns */
	__u64 ticked;      /* first tick at which `switches` had the value in `ticked_switches`, in ns */
	__u64 ticked_switches; /* value of `switches` at the last tick */
	__u64 stacks_lost; /* number of samples without a kernel stack, because other stacks had taken their buckets */
	__u64 notes;       /* number of notes begun so far */
	__u64 note_due;    /* earliest time of the next note about a wait that triggers nothing, in ns */
	__u64 late_utime;  /* user time of the interrupted thread when that timer started to run, in ns */
	__u64 vcpu_charged; /* own time of the thread's current stretch that is in its [`VcpuRecord`] already, in ns */
	__u32 vcpu;        /* index of the thread's [`VcpuRecord`], plus 1. 0 if the thread runs no vCPU */
	__u32 vcpus_unfit; /* number of exits and entries of threads without room for a [`VcpuRecord`] */
	__u64 guest_timer; /* address of the guest's timer whose function runs on this CPU now, or 0 */
	__u64 waited;      /* as in [`FollowedThread`], for the current thread */
	__u64 waited_since; /* as in [`FollowedThread`], for the current thread */
	__u64 waited_detail; /* as in [`FollowedThread`], for the current thread */
	__u64 waker_coded; /* as in [`FollowedThread`], for the current thread */
	__u64 code_due[WAIT_BUDGETS]; /* earliest time of the next record of user code, in ns. First for each class, then its wakers */
};

/* Phases of a vCPU's thread. Each of them has a sum of the thread's own time. */
enum phase {
	PHASE_UNKNOWN = 0, /* before the first event of the thread's vCPU */
	PHASE_GUEST = 1,   /* from an entry into the guest to the next exit */
	PHASE_KVM = 2,	   /* from an exit to the next entry or to the return to user mode */
	PHASE_VMM = 3,	   /* from the return to user mode to the next entry */
};

/* Causes of a wake-up of a vCPU's thread. */
enum waker {
	WAKER_NONE = 0, /* it has not been woken */
	WAKER_TIMER = 1, /* the guest's timer */
	WAKER_OTHER = 2,
};

/* All exits of a vCPU that have the same reason. */
struct exit_sum {
	__u64 count;   /* number of exits */
	__u64 kvm_ns;  /* the thread's own time in the phase [`phase::KVM`], in ns */
	__u64 vmm_ns;  /* the thread's own time in the phase [`phase::VMM`], in ns */
	__u64 elapsed; /* time from the exits to the entries that follow, including sleep, in ns */
};

/*
 * A frequent interval between two expiries of a vCPU's timer. The vCPU has a slot for each of the
 * most frequent ones (Misra and Gries, "Finding repeated elements").
 */
struct timer_period {
	__u64 period;  /* the first interval, in ns. Others belong to the slot if they are similar */
	__u64 weight;  /* 0 if the slot is free. Decreases when an interval finds no slot */
	__u64 count;   /* number of intervals */
	__u64 sum;     /* sum of these intervals, in ns */
};

/* Sums of the timers that KVM runs for a vCPU, except `window` to `window_guest_ns`: see guest_timers.h. */
struct vcpu_timer {
	__u64 ticks;   /* number of expiries */
	__u64 pit_ticks; /* number of expiries of the emulated timer chip */
	__u64 armed;   /* number of times that the vCPU's thread started the timer of the local APIC */
	__u64 timer;   /* address of the timer that expired last */
	__u64 first;   /* when the first counted expiry was due, in ns */
	__u64 last;    /* when the last one was due, in ns */
	__u64 intervals; /* number of intervals between successive expiries of one timer */
	__u32 woken;   /* a `WAKER_` constant: cause of the latest wake-up since the thread last arrived on a CPU */
	__u32 window;  /* 1 if a timer woke the thread the last time */
	__u64 woken_ticks; /* `ticks` at that time, plus 1 unless a timer woke the thread */
	__u64 window_ticks; /* `woken_ticks` at the start of the window */
	__u64 window_exits; /* number of exits in the window */
	__u64 window_host_ns; /* the thread's own time in the window, except in the guest, in ns */
	__u64 window_guest_ns; /* the thread's own time in the guest in the window, in ns */
	__u64 windows; /* number of windows that are in the sums below */
	__u64 cost_ticks; /* number of expiries in these windows */
	__u64 cost_exits; /* sum of `window_exits` */
	__u64 cost_host_ns; /* sum of `window_host_ns`, in ns */
	__u64 cost_guest_ns; /* sum of `window_guest_ns`, in ns */
	__u64 cost_squares; /* sum of the squares of `window_host_ns`, in units of (16 ns)^2 */
	__u64 other_ticks; /* number of expiries in windows that are not in these sums */
	struct timer_period periods[TIMER_PERIODS]; /* frequent intervals */
};

/* Sums of a thread that runs a vCPU. */
struct vcpu_record {
	__u32 tid;      /* thread ID, or 0 if the entry is free. Written last */
	__u32 tgid;     /* process ID */
	__u32 phase;    /* one of the constants in [`phase`] */
	__u32 reason;   /* index in `exits` of the latest exit */
	__u64 since;    /* start of the stretch in which the first event was seen, in ns */
	__u64 exited;   /* time of the latest exit, in ns. 0 after an entry */
	__u64 unknown_ns; /* the thread's own time in the phase [`phase::UNKNOWN`] since `since`, in ns */
	__u64 guest_ns; /* the thread's own time in the phase [`phase::GUEST`], in ns */
	__u64 entries;  /* number of entries into the guest */
	__u64 returns;  /* number of returns to user mode */
	__u64 injected; /* number of interrupts injected into the guest */
	__u64 ends;     /* number of interrupts whose handling the guest ended at its local APIC */
	__u64 pv_ends;  /* number of these that the guest ended without an exit */
	__u64 polled;   /* number of halts that ended while KVM was polling */
	__u64 polled_ns; /* elapsed time of those halts in KVM, in ns */
	__u64 slept;    /* number of halts that ended after the thread had slept */
	__u64 slept_ns; /* elapsed time of those halts in KVM, including polling before the sleep, in ns */
	__u64 started; /* start of the thread on the kernel's clock. Distinguishes threads that had the same ID */
	char comm[COMM_LEN]; /* name of the thread, padded with zeros */
	struct vcpu_timer timer; /* the guest's timer */
	struct exit_sum exits[EXIT_REASONS]; /* sums by the reason of the exit (see `exit_index`) */
};

/* Values of `call` in [`CpuState`]. */
enum call {
	CALL_UNFOLLOWED = 0, /* the thread is not followed */
	CALL_USER = 1,	     /* a followed thread runs in user mode, or it is unknown where it runs */
	CALL_FIRST = 2,	     /* added to the number of the system call in which a followed thread runs */
};

enum run {
	RUN_RECORD = 1, /* record spans and sums */
	RUN_FOLLOW = 2, /* also record what followed threads do while off CPU */
	RUN_CALLS = 8,  /* also watch the system calls of followed threads */
	RUN_SECOND = 4, /* put the flight recorder's sums into the second table */
};

/* A trigger, as emitted to the reader. */
struct trigger_record {
	__u64 time;   /* when the delay ended and was noticed, in ns, on `CLOCK_MONOTONIC` */
	__u64 lasted; /* length of the delay, in ns */
	__u64 over;   /* limit of the rule at that time, in ns */
	__u64 detail; /* for [`trigger::STRETCH`], `detail` as in [`SpanRecord`] */
	__u32 tid;    /* as in [`SpanRecord`] */
	__u32 tgid;   /* process ID, or 0 if the delay does not belong to a process */
	__u16 cpu;    /* CPU on which the delay was noticed */
	__u8 trigger; /* one of the constants in [`trigger`] */
	__u8 kind;    /* for [`trigger::STRETCH`], one of the constants in [`kind`] */
	__u32 rule;   /* index of the rule in [`TriggerPlan`] */
	char comm[COMM_LEN]; /* thread name, padded with zeros */
};

/* A trigger rule: the delays it watches, and the threads. */
struct trigger_rule {
	__u64 over;     /* minimum length of a delay that fires the rule, in ns */
	__u64 cgroup;   /* number of the cgroup to watch */
	__u64 period;   /* for frames: time between two due times, in ns */
	__u64 due;      /* for frames: when one of them was due, in ns, on `CLOCK_MONOTONIC` */
	__u64 rearmed;  /* for frames: whether a frame is due one period after the previous one started */
	__u64 long_from; /* for frames: minimum CPU time of a run that counts as a frame, in ns. 0 if all runs count */
	__u64 armed;    /* for frames: number of the learnt rhythm. Different for each rhythm, and never 0 */
	__u32 triggers; /* one bit for each kind of [`trigger`] that the rule watches. 0 in an unused rule */
	__u32 who;      /* one of the constants in [`who`] */
	__u32 tgid;     /* ID of the process to watch */
	__u32 tid;      /* for frames: ID of the paced thread, or 0 if unknown */
	char comm[COMM_LEN]; /* thread name to watch, padded with zeros */
};

/* All rules; written by the reader. */
struct trigger_plan {
	__u64 limits[TRIGGERS]; /* shortest limit for each [`trigger`] in ns. 0 if all are counted, all bits set if none fires */
	__u32 counted[TRIGGERS]; /* for each [`trigger`], one bit for each rule that counts its delays */
	__u32 own;              /* process ID of the recorder */
	__u32 framed;           /* one bit for each value of the low 5 bits of a paced thread's ID */
	struct trigger_rule rules[TRIGGER_RULES]; /* list of rules. A delay counts for the first rule that matches it */
};

/* Delays seen by one counting rule, on one CPU. */
struct rule_histogram {
	__u64 counts[HISTOGRAM_BUCKETS]; /* number of delays by length */
};

/* Written by the reader; one cache line per CPU. */
struct cpu_control {
	__u64 tail; /* number of records that the reader has read */
	__u64 running; /* actions of the programs: a set of the bits in [`run`] */
	__u64 since;   /* start of recording in ns. Before that, the programs only maintain the stack */
	__u64 until;   /* end of recording in ns */
	__u64 reserved[4]; /* unused */
};

/* Uses all enumerations above, and types that no map holds, so that the BTF contains them. */
struct record_constants {
	enum kind kind;
	enum vector vector;
	enum interrupted interrupted;
	enum detail detail;
	enum flag flag;
	enum call call;
	enum run run;
	enum trigger trigger;
	enum note note;
	enum who who;
	enum code code;
	enum phase phase;
	enum lock lock;
	enum limit limit;
	struct trigger_record handed_out;
};

#endif
