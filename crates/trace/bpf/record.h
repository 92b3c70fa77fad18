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
	KIND_WAIT = 5,	  /* a thread that is not running; takes no CPU time */
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
 * `detail` is the address of a kernel function, or one of these. From DETAIL_WOKEN on, they are
 * what a followed thread does while off CPU.
 */
enum detail {
	DETAIL_NONE = 0,       /* nothing more is known */
	DETAIL_PAGE_FAULT = 1, /* handles a page fault */
	DETAIL_THROTTLED = 2,  /* throttled: the CPU quota of the thread's cgroup is used up */
	DETAIL_RECLAIM = 3,    /* reclaims memory for its own allocation */
	DETAIL_WOKEN = 4,      /* runnable since a wake-up */
	DETAIL_PREEMPTED = 5,  /* runnable since it was preempted */
	DETAIL_SLEEPING = 6,   /* sleeps interruptibly */
	DETAIL_DISK = 7,       /* waits for a disk */
	DETAIL_LOCK = 8,       /* sleeps uninterruptibly, but not for a disk */
	DETAIL_STOPPED = 9,    /* stopped or frozen */
	DETAIL_UNSEEN = 10,    /* followed thread's state only: no event seen yet */
	DETAIL_PARENT = 11,    /* followed thread's state only: only its children will be followed */
	DETAIL_REBORN = 12,    /* an empty wait: from here on the ID belongs to a new thread */
	DETAIL_MISSED = 13,    /* unknown: the thread's switch away was not reported */
};

enum flag {
	FLAG_KERNEL_THREAD = 1, /* a kernel thread */
	FLAG_FUNCTION = 2,	/* a function's frame in an interrupt or softirq */
	FLAG_MIGRATED = 4,	/* a wait that ended on a different CPU from the one on which it started */
	FLAG_REST = 8,		/* all sources of a kind that did not fit into the table of sums */
	FLAG_WOKE = 16,		/* an edge: at `start` the source woke the thread with the ID in `dur` */
	FLAG_QUEUED = 32,	/* an edge: the source queued the work item with the function in `dur` */
	FLAG_RAISED = 64,	/* an edge: the source raised the softirq in `dur` */
	FLAG_UNREPORTED = 128,	/* no thread: the kernel did not report whose time it was */
};

/* Delays that trigger the flight recorder. The first four also say why a thread is off CPU. */
enum trigger {
	TRIGGER_BLOCKED = 0,   /* slept uninterruptibly until it was woken */
	TRIGGER_WOKEN = 1,     /* waited for a CPU after a wake-up */
	TRIGGER_PREEMPTED = 2, /* waited for a CPU after it was preempted */
	TRIGGER_THROTTLED = 3, /* off CPU because the cgroup's quota was used up */
	TRIGGER_STRETCH = 4,   /* a kernel thread, interrupt or softirq ran without a break */
	TRIGGER_FRAME = 5,     /* a paced thread's frame started late */
};

/* The threads that a rule watches. */
enum who {
	WHO_ANY = 0,	 /* all threads except the recorder's */
	WHO_PROCESS = 1, /* the threads of a process */
	WHO_NAME = 2,	 /* threads and processes with a name */
	WHO_CGROUP = 3,	 /* threads in a cgroup or below it */
};

enum limit {
	COMM_LEN = 16,		 /* size of a thread name, including the terminating 0 */
	HISTOGRAM_BUCKETS = 140, /* number of buckets in a histogram of lengths */
	LONG_NS = 917504,	 /* minimum length of intervals that keep their times when summing, ns */
	RESTS_PER_CPU = 16,	 /* number of entries for sources that do not fit into the table of sums */
	MAX_DEPTH = 8, /* thread, softirq, its function, IRQ, its function, and three spare */
	MAX_CPUS = 1024, /* maximum number of CPUs */
	LEFT_SHIFT = 4, /* in a [`RingEntry`], `kind` contains why the thread left, from this bit on */
	WAITING_SLOTS = 32768, /* slots for the start of threads' off-CPU time; a power of two */
	OPENING = 1, /* value of `opened` in [`CpuState`] until recording starts on that CPU */
	TRIGGER_RULES = 8, /* maximum number of trigger rules */
	TRIGGERS = 6, /* number of trigger kinds */
	BURST = 16, /* maximum number of triggers per CPU within `BURST_NS` */
	BURST_NS = 1000000000, /* length of a burst of triggers in ns */
	NAME_SLOTS = 32768, /* slots for thread names; a power of two */
	SOFTIRQS = 16, /* limit for softirq numbers; a power of two */
	RING_TIME_BITS = 40, /* bits of a time in a [`RingEntry`], including the sign: 9 minutes */
};

/* One span, one cache line. */
struct span_record {
	__u64 start;   /* start, ns, `CLOCK_MONOTONIC` */
	__u64 dur;     /* length, ns; for an edge, its effect: see [`flag`] */
	__s64 self_ns; /* self time, ns: `dur` minus interruptions; 0 for an edge */
	__u64 detail;  /* address of a kernel function, or one of [`detail`] */
	__u32 seq;     /* low bits of the record's number + 1, written last */
	__u32 tid;     /* thread ID; for other kinds, IRQ line, [`vector`] or softirq number */
	__u32 tgid;    /* process ID */
	__u8 kind;     /* one of [`kind`] */
	__u8 flags;    /* set of [`flag`] */
	__u16 cpu;     /* CPU number */
	char comm[COMM_LEN]; /* thread name, padded with zeros */
};

/*
 * A span or an edge in the flight recorder's ring: half a cache line, so that the ring reaches back
 * twice as far. The thread's name and process are in its `thread_name`.
 */
struct ring_entry {
	__u64 start;   /* start, ns, `CLOCK_MONOTONIC` */
	__u32 dur;     /* low bits of the length in ns, or of an edge's effect */
	__u32 child;   /* low bits of the interrupted part of `dur`, ns */
	__u32 detail;  /* low bits of `detail` in [`SpanRecord`] */
	__u32 tid;     /* as in [`SpanRecord`] */
	__u32 seal;    /* low half: tracepoint hits; high half: round of the ring, from 1; written last */
	__u8 dur_high; /* bits 32 to 39 of `dur` */
	__u8 child_high; /* bits 32 to 39 of `child`, including the sign */
	__u8 kind;     /* as in [`SpanRecord`]; see also [`LEFT_SHIFT`] */
	__u8 flags;    /* as in [`SpanRecord`] */
};

/* Name and process of a thread that has left a CPU. */
struct thread_name {
	__u32 tid;     /* thread ID, written last; 0 if the entry is empty */
	__u32 tgid;    /* process ID */
	char comm[COMM_LEN]; /* thread name, padded with zeros */
};

/* The sum of a source's intervals on one CPU, without their times. For long recordings. */
struct sum_record {
	__u64 key;     /* key of the entry (`sum_key`); 0 while it is free */
	__u64 detail;  /* as in [`SpanRecord`] */
	__u64 count;   /* number of intervals */
	__s64 self_ns; /* self time of the intervals, ns */
	__u64 wall;    /* total length of the intervals, ns */
	__u64 max;     /* longest interval, ns */
	__u32 tid;     /* as in [`SpanRecord`] */
	__u32 tgid;    /* as in [`SpanRecord`] */
	__u8 kind;     /* as in [`SpanRecord`] */
	__u8 flags;    /* as in [`SpanRecord`] */
	__u16 cpu;     /* as in [`SpanRecord`] */
	__u32 reserved; /* unused */
	char comm[COMM_LEN]; /* as in [`SpanRecord`] */
	__u32 histogram[HISTOGRAM_BUCKETS]; /* intervals by length */
};

/* An interval open on a CPU. */
struct frame {
	__u64 start;  /* start, ns */
	__u64 child;  /* interrupted time, ns; 0 in every unused frame */
	__u64 detail; /* as in [`SpanRecord`] */
	__u32 id;     /* thread ID at the bottom of the stack; above it like `tid` in [`SpanRecord`] */
	__u8 kind;    /* as in [`SpanRecord`] */
	__u8 flags;   /* as in [`SpanRecord`] */
	__u16 reserved; /* unused */
};

/* A throttled thread. */
struct throttled_wait {
	__u64 since;  /* when it was throttled, ns */
	__u64 queue;  /* address of its `struct cfs_rq`; 0 if the queue does not count throttled time */
	__u64 held;   /* throttled time of that queue until then, ns */
};

/* The state of a followed thread. */
struct followed_thread {
	__u64 since;  /* when it started to do what `detail` says, ns */
	__u32 detail; /* one of [`detail`]; `NONE` while it runs */
	__u32 cpu;    /* CPU on which it ran last; `MAX_CPUS` if unknown */
	__u32 tgid;   /* process ID */
	__u32 flags;  /* [`flag`]s of its spans */
	char comm[COMM_LEN]; /* as in [`SpanRecord`] */
};

/* State of a CPU's accounting. Only that CPU writes it. */
struct cpu_state {
	struct frame stack[MAX_DEPTH]; /* index 0 is the thread or idle; interruptions are above it */
	__u64 depth;       /* number of frames above the bottom */
	__u64 opened;      /* start of accounting, ns; 0 before the first switch, `OPENING` until the start */
	__u64 last;        /* latest time seen, ns */
	__u64 head;        /* number of records claimed */
	__u64 numbers;     /* sum of the claimed records' numbers; before Linux 5.12 */
	__u64 events;      /* number of tracepoint hits; an interrupted increment can lose one */
	__u64 thread;      /* address of the thread at the bottom of the stack, from the last switch */
	__u64 seen;        /* when that thread was last seen there, ns */
	__u64 seen_child;  /* `child` of the bottom frame at that time */
	__u64 lost;        /* spans lost because the buffer was full */
	__s64 lost_self;   /* self time of the lost spans, ns */
	__u64 mismatched;  /* exits without an entry, and entries nested too deeply */
	__u64 folded;      /* spans that did not fit into the table of sums */
	__u64 unfollowed;  /* children that did not fit into the table of followed threads */
	__u64 missed;      /* times that a thread was found without a reported switch to it */
	__u64 ticks_stopped; /* times that the kernel stopped the tick */
	__u8 raised[SOFTIRQS]; /* for each softirq number, whether it is raised but has not started */
	__u64 switches;    /* number of reported context switches */
	__u64 cut;         /* frames above the bottom that were open at a switch */
	__u32 seen_tgid;   /* process ID of the time's owner, if that is not the current thread */
	__u32 at_functions; /* programs running at functions' entries and exits; before Linux 5.12 */
	char seen_comm[COMM_LEN]; /* thread name of that owner */
	__u64 burst_began; /* start of the current burst of triggers, ns */
	__u64 burst;       /* triggers emitted in this burst */
	__u64 suppressed;  /* triggers suppressed: too many, or the buffer was full */
	__u64 ended;       /* time of the first event after the end of recording, ns; 0 before */
	__u64 end_thread;  /* address of the thread that was on the CPU then */
	__u32 end_tid;     /* that thread's ID */
	__u32 end_tgid;    /* that thread's process ID */
	char end_comm[COMM_LEN]; /* that thread's name */
	__u32 fitting;     /* scratch: one bit for each rule that matches the delay */
	__u32 firing;      /* scratch: one bit for each rule that the delay triggers */
};

enum run {
	RUN_RECORD = 1, /* record spans and sums */
	RUN_FOLLOW = 2, /* also record what followed threads do while off CPU */
	RUN_SECOND = 4, /* put the flight recorder's sums into the second table */
};

/* A trigger, as emitted to the reader. */
struct trigger_record {
	__u64 time;   /* when the delay was noticed, at its end, ns, `CLOCK_MONOTONIC` */
	__u64 lasted; /* length of the delay, ns */
	__u64 over;   /* the rule's limit at that time, ns */
	__u64 detail; /* for [`trigger::STRETCH`], like `detail` in [`SpanRecord`] */
	__u32 tid;    /* as in [`SpanRecord`] */
	__u32 tgid;   /* process ID; 0 for a delay without a process */
	__u16 cpu;    /* CPU on which it was noticed */
	__u8 trigger; /* one of [`trigger`] */
	__u8 kind;    /* for [`trigger::STRETCH`], one of [`kind`] */
	__u32 rule;   /* number of the rule */
	char comm[COMM_LEN]; /* thread name, padded with zeros */
};

/* A trigger rule: the delays it watches, and the threads. */
struct trigger_rule {
	__u64 over;     /* minimum length of the delay, ns */
	__u64 cgroup;   /* number of the cgroup */
	__u64 period;   /* for frames: time from one due frame to the next, ns */
	__u64 due;      /* for frames: when one of them was due, ns, `CLOCK_MONOTONIC` */
	__u64 rearmed;  /* for frames: whether one is due one period after the previous one started */
	__u64 long_from; /* for frames: minimum CPU time of a run, ns; 0 if every run counts */
	__u64 armed;    /* for frames: number of the learnt rhythm, different for each; never 0 */
	__u32 triggers; /* one bit for each [`trigger`] that it watches; 0 in an unused rule */
	__u32 who;      /* one of [`who`] */
	__u32 tgid;     /* process ID */
	__u32 tid;      /* for frames: the paced thread; 0 if unknown */
	char comm[COMM_LEN]; /* thread name, padded with zeros */
};

/* All rules; written by the reader. */
struct trigger_plan {
	__u64 limits[TRIGGERS]; /* shortest limit by [`trigger`], ns; 0: counted; all bits set: never */
	__u32 counted[TRIGGERS]; /* by [`trigger`]: one bit for each counting rule */
	__u32 own;              /* process ID of the recorder */
	__u32 framed;           /* one bit per low 5 bits of each paced thread's ID */
	struct trigger_rule rules[TRIGGER_RULES]; /* the first rule that matches counts */
};

/* Delays seen by one counting rule, on one CPU. */
struct rule_histogram {
	__u64 counts[HISTOGRAM_BUCKETS]; /* number of delays by length */
};

/* Written by the reader; one cache line per CPU. */
struct cpu_control {
	__u64 tail; /* number of records read */
	__u64 running; /* activity of the programs: a set of [`run`] */
	__u64 since;   /* start of recording, ns; before that only the stack is maintained */
	__u64 until;   /* end of recording, ns */
	__u64 reserved[4]; /* unused */
};

/* Uses all enumerations above, and types that no map holds, so that the BTF contains them. */
struct record_constants {
	enum kind kind;
	enum vector vector;
	enum detail detail;
	enum flag flag;
	enum run run;
	enum trigger trigger;
	enum who who;
	enum limit limit;
	struct trigger_record handed_out;
};

#endif
