/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * What the BPF programs and the Rust side say to each other. `src/record.rs` is generated from the
 * type information that the compiled object has of it (`cargo xtask bpf`), with the comments that
 * stand behind fields and enumerators here.
 */
#ifndef TICKTAX_RECORD_H
#define TICKTAX_RECORD_H

/* Who may interrupt whom, lowest first. */
enum kind {
	KIND_IDLE = 0,	  /* the idle loop */
	KIND_TASK = 1,	  /* a thread */
	KIND_SOFTIRQ = 2, /* a softirq */
	KIND_IRQ = 3,	  /* an interrupt */
	KIND_NMI = 4,	  /* a non-maskable interrupt */
	KIND_WAIT = 5,	  /* a thread that is not allowed to run; no CPU's time */
};

/* `id` of an interrupt from the first on is an architecture's own vector; below it, an IRQ line. */
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
	VECTOR_UNTRACED_TIMER, /* an interrupt without a tracepoint, in which high-resolution timers ran */
};

/*
 * `detail` is the address of a kernel function, or one of these. From DETAIL_WOKEN on they say what
 * a followed thread is doing while it is off its CPU.
 */
enum detail {
	DETAIL_NONE = 0,       /* nothing more is known */
	DETAIL_PAGE_FAULT = 1, /* a page fault is handled */
	DETAIL_THROTTLED = 2,  /* the CPU quota of the thread's cgroup is used up */
	DETAIL_RECLAIM = 3,    /* memory is reclaimed by a thread that wants some */
	DETAIL_WOKEN = 4,      /* may run since something woke it */
	DETAIL_PREEMPTED = 5,  /* may run, and gave way to another */
	DETAIL_SLEEPING = 6,   /* waits, and a signal would wake it */
	DETAIL_DISK = 7,       /* waits for a disk */
	DETAIL_LOCK = 8,       /* uninterruptible, and not for a disk */
	DETAIL_STOPPED = 9,    /* stopped or frozen */
	DETAIL_UNSEEN = 10,    /* of a followed thread's state alone: followed, but nothing has happened to it yet */
	DETAIL_PARENT = 11,    /* likewise: not followed itself; its children will be */
	DETAIL_REBORN = 12,    /* an empty wait: from here on the number is a new thread's */
	DETAIL_MISSED = 13,    /* not known: `sched_switch` of its leaving was missed */
};

enum flag {
	FLAG_KERNEL_THREAD = 1, /* the thread is the kernel's */
	FLAG_FUNCTION = 2,	/* a function's frame within an interrupt or softirq */
	FLAG_MIGRATED = 4,	/* a wait that ended on another CPU than it began on */
	FLAG_REST = 8,		/* all sources of a kind that the table of sums has no room for */
	FLAG_WOKE = 16,		/* no span: at `start` the source woke the thread whose number is in `dur` */
	FLAG_QUEUED = 32,	/* likewise: it queued the work item whose function's address is in `dur` */
	FLAG_RAISED = 64,	/* likewise: it raised the softirq whose number is in `dur` */
	FLAG_UNREPORTED = 128,	/* no thread: whose time it was the kernel did not report */
};

/* What freezes the flight recorder's ring. The first four are also why a thread is off its CPU. */
enum trigger {
	TRIGGER_BLOCKED = 0,   /* off its CPU, uninterruptibly, until something woke it */
	TRIGGER_WOKEN = 1,     /* waited for a CPU since something woke it */
	TRIGGER_PREEMPTED = 2, /* waited for a CPU since another took its place */
	TRIGGER_THROTTLED = 3, /* off its CPU because the quota of its cgroup was used up */
	TRIGGER_STRETCH = 4,   /* a kernel thread, interrupt or softirq had a CPU in one piece */
	TRIGGER_FRAME = 5,     /* a paced thread's frame began later than it was due */
};

/* Whose waits are looked at. */
enum who {
	WHO_ANY = 0,	 /* every thread's but the recorder's */
	WHO_PROCESS = 1, /* those of a process */
	WHO_NAME = 2,	 /* those of threads and processes of one name */
	WHO_CGROUP = 3,	 /* those of threads in a cgroup, or below it */
};

enum limit {
	COMM_LEN = 16,		 /* bytes of a thread's name, with a 0 at the end */
	HISTOGRAM_BUCKETS = 140, /* buckets of a histogram of lengths */
	LONG_NS = 917504,	 /* ns: intervals from this length on keep their times beside sums; the bucket of 1 ms begins here */
	RESTS_PER_CPU = 16,	 /* entries for sources that the table of sums has no room for */
	MAX_DEPTH = 8, /* task, softirq, its function, irq, its function, and three to spare */
	MAX_CPUS = 1024, /* numbers of CPUs */
	LEFT_SHIFT = 4, /* in a [`RingEntry`], `kind` of a thread's stretch holds from this bit on why it left its CPU, a [`detail`] */
	WAITING_SLOTS = 32768, /* threads off their CPUs of which the flight recorder knows since when; a power of two */
	OPENING = 1, /* in a [`CpuState`], instead of the time since when the books are open: it is known who is there, and nothing is recorded yet */
	TRIGGER_RULES = 8, /* rules of what is a trigger */
	TRIGGERS = 6, /* kinds of triggers */
	BURST = 16, /* triggers that a CPU hands out within `BURST_NS` */
	BURST_NS = 1000000000, /* ns */
	NAME_SLOTS = 32768, /* threads whose names the flight recorder keeps beside its ring; a power of two */
	SOFTIRQS = 16, /* numbers of softirqs, of which the kernel has 10; a power of two */
	RING_TIME_BITS = 40, /* bits of a [`RingEntry`]'s times, that of the sign among them: 9 minutes */
};

/* One span, one cache line. */
struct span_record {
	__u64 start;   /* ns, `CLOCK_MONOTONIC` */
	__u64 dur;     /* ns on the wall; of an edge, what it leads to: see [`flag`] */
	__s64 self_ns; /* ns: `dur` without what interrupted it; of an edge 0 */
	__u64 detail;  /* a kernel function's address, or one of [`detail`] */
	__u32 seq;     /* low bits of the record's number + 1, written last */
	__u32 tid;     /* thread; IRQ line, [`vector`] or softirq number where it is none */
	__u32 tgid;    /* process */
	__u8 kind;     /* one of [`kind`] */
	__u8 flags;    /* some of [`flag`] */
	__u16 cpu;     /* CPU number */
	char comm[COMM_LEN]; /* the thread's name, padded with zeros */
};

/*
 * A span or an edge in the flight recorder's ring: half a cache line, so that the ring reaches back twice
 * as far. Who a thread is stands in its `thread_name`.
 */
struct ring_entry {
	__u64 start;   /* ns, `CLOCK_MONOTONIC` */
	__u32 dur;     /* ns on the wall; of an edge, what it leads to; low bits */
	__u32 child;   /* ns of `dur` that are not its own; low bits */
	__u32 detail;  /* as in [`SpanRecord`]; low bits */
	__u32 tid;     /* as in [`SpanRecord`] */
	__u32 seal;    /* low 16 bits of the CPU's tracepoint hits; above, in which round of the ring it was written, from 1 on; written last */
	__u8 dur_high; /* bits 32 to 39 of `dur` */
	__u8 child_high; /* bits 32 to 39 of `child`, the sign among them */
	__u8 kind;     /* as in [`SpanRecord`]; see also [`LEFT_SHIFT`] */
	__u8 flags;    /* as in [`SpanRecord`] */
};

/* Who a thread is that has left a CPU. */
struct thread_name {
	__u32 tid;     /* its number, written last; 0 while there is none */
	__u32 tgid;    /* its process */
	char comm[COMM_LEN]; /* its name, padded with zeros */
};

/* All intervals of one source on one CPU that have no times, for long recordings. */
struct sum_record {
	__u64 key;     /* what the entry is keyed by (`sum_key`); 0 while it is free */
	__u64 detail;  /* as in [`SpanRecord`] */
	__u64 count;   /* intervals */
	__s64 self_ns; /* their own time, ns */
	__u64 wall;    /* their time on the wall, ns */
	__u64 max;     /* the longest on the wall, ns */
	__u32 tid;     /* as in [`SpanRecord`] */
	__u32 tgid;    /* as in [`SpanRecord`] */
	__u8 kind;     /* as in [`SpanRecord`] */
	__u8 flags;    /* as in [`SpanRecord`] */
	__u16 cpu;     /* as in [`SpanRecord`] */
	__u32 reserved; /* nothing */
	char comm[COMM_LEN]; /* as in [`SpanRecord`] */
	__u32 histogram[HISTOGRAM_BUCKETS]; /* intervals by length on the wall */
};

/* A frame of what a CPU is in the middle of. */
struct frame {
	__u64 start;  /* ns */
	__u64 child;  /* ns spent in what interrupted it; 0 in every frame that is not in use */
	__u64 detail; /* as in [`SpanRecord`] */
	__u32 id;     /* the thread at the bottom of the stack; as `tid` in [`SpanRecord`] above it */
	__u8 kind;    /* as in [`SpanRecord`] */
	__u8 flags;   /* as in [`SpanRecord`] */
	__u16 reserved; /* nothing */
};

/* A thread that the quota of a cgroup keeps off its CPU. */
struct throttled_wait {
	__u64 since;  /* ns: when it was taken off */
	__u64 queue;  /* address of the queue that it was taken off, a `struct cfs_rq`; 0 where that does not tell for how long */
	__u64 held;   /* ns: for how long a quota had held that queue before */
};

/* Where a followed thread stands. */
struct followed_thread {
	__u64 since;  /* ns: from when on it does what `detail` says */
	__u32 detail; /* one of [`detail`]; none while it runs */
	__u32 cpu;    /* where it ran last; `MAX_CPUS` where that is not known */
	__u32 tgid;   /* process */
	__u32 flags;  /* [`flag`]s of its spans */
	char comm[COMM_LEN]; /* as in [`SpanRecord`] */
};

/* One CPU's books in progress. Only that CPU writes it. */
struct cpu_state {
	struct frame stack[MAX_DEPTH]; /* at 0 the thread, or idling; what interrupts it above */
	__u64 depth;       /* frames above the bottom */
	__u64 opened;      /* since when the books are open, ns; 0 before the first context switch, from then on `OPENING` until they are to open */
	__u64 last;        /* latest time seen, ns */
	__u64 head;        /* records claimed */
	__u64 numbers;     /* the sum of their numbers; kept before Linux 5.12 alone */
	__u64 events;      /* tracepoint hits; one may interrupt the count of another */
	__u64 thread;      /* address of the thread at the bottom of the stack, by the last switch */
	__u64 seen;        /* when that thread was last seen there, ns */
	__u64 seen_child;  /* `child` of the bottom of the stack then */
	__u64 lost;        /* spans that found the buffer full */
	__s64 lost_self;   /* their own time, ns */
	__u64 mismatched;  /* exits without their entry, entries too deep */
	__u64 folded;      /* spans that found the table of sums full */
	__u64 unfollowed;  /* children that found the table of followed threads full */
	__u64 missed;      /* times that a thread was found which no switch had put there */
	__u64 ticks_stopped; /* times that the kernel stopped the tick */
	__u8 raised[SOFTIRQS]; /* by a softirq's number, whether it is raised and did not begin */
	__u64 switches;    /* context switches that were reported */
	__u64 cut;         /* frames above the bottom that were open at a switch */
	__u32 seen_tgid;   /* of what is handed out and was not the running thread's: the process of whose it was */
	__u32 at_functions; /* programs at functions' entries and exits that are running; kept before Linux 5.12 alone */
	char seen_comm[COMM_LEN]; /* its thread's name */
	__u64 burst_began; /* ns: since when triggers are counted in `burst` */
	__u64 burst;       /* triggers handed out since then */
	__u64 suppressed;  /* triggers that were not handed out: too many, or no room */
	__u64 ended;       /* ns: when the first event came after the end of recording; 0 before */
	__u64 end_thread;  /* address of the thread that was here then */
	__u32 end_tid;     /* its number */
	__u32 end_tgid;    /* its process */
	char end_comm[COMM_LEN]; /* its name */
	__u32 fitting;     /* while a wait is looked at: a bit for each rule that it fits */
	__u32 firing;      /* likewise, by which it is a trigger */
};

enum run {
	RUN_RECORD = 1, /* record */
	RUN_FOLLOW = 2, /* also what becomes of the followed threads while they are off their CPU */
	RUN_SECOND = 4, /* the flight recorder's sums go to the second table */
};

/* A trigger, as it is handed out. */
struct trigger_record {
	__u64 time;   /* ns, `CLOCK_MONOTONIC`: when it was noticed, at its end */
	__u64 lasted; /* ns */
	__u64 over;   /* ns: from how long on the rule fired then */
	__u64 detail; /* of a stretch, as in [`SpanRecord`] */
	__u32 tid;    /* as in [`SpanRecord`] */
	__u32 tgid;   /* process; 0 where it is none */
	__u16 cpu;    /* where it was noticed */
	__u8 trigger; /* one of [`trigger`] */
	__u8 kind;    /* of a stretch, one of [`kind`] */
	__u32 rule;   /* number of the rule */
	char comm[COMM_LEN]; /* the thread's name, padded with zeros */
};

/* What is a trigger, and whose. */
struct trigger_rule {
	__u64 over;     /* ns: from how long on */
	__u64 cgroup;   /* number of the cgroup */
	__u64 period;   /* ns: of frames, from when one is due to when the next one is */
	__u64 due;      /* ns: of frames, when one was due, `CLOCK_MONOTONIC` */
	__u64 rearmed;  /* of frames, whether one is due a period after the last began, so that there is no grid */
	__u64 long_from; /* ns: of frames, the CPU time from which on a run is one; 0 where each is */
	__u64 armed;    /* of frames, a number of its own for each rhythm that was learnt; never 0 */
	__u32 triggers; /* a bit for each of [`trigger`] that it is about; 0 where there is no rule */
	__u32 who;      /* one of [`who`] */
	__u32 tgid;     /* process */
	__u32 tid;      /* of frames, the thread that has them; 0 where none is known */
	char comm[COMM_LEN]; /* the name, padded with zeros */
};

/* All of them; written by the reader. */
struct trigger_plan {
	__u64 limits[TRIGGERS]; /* ns, by [`trigger`]: the least of all rules, 0 where one counts; all bits set for never */
	__u32 counted[TRIGGERS]; /* by [`trigger`]: a bit for each rule that counts what it is about */
	__u32 own;              /* the recorder's process */
	__u32 framed;           /* a bit by the low 5 bits of each thread that has frames */
	struct trigger_rule rules[TRIGGER_RULES]; /* the first that fits counts */
};

/* What a rule is about, on one CPU. */
struct rule_histogram {
	__u64 counts[HISTOGRAM_BUCKETS]; /* by length */
};

/* Written by the reader, one a CPU, a cache line each. */
struct cpu_control {
	__u64 tail; /* records read */
	__u64 running; /* what the programs do: some of [`run`] */
	__u64 since;   /* ns: nothing is recorded before, only noted who is where */
	__u64 until;   /* ns: nothing is recorded from then on */
	__u64 reserved[4]; /* nothing */
};

/* Names every enumeration above, and what no map holds, so that the object's type information has them. */
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
