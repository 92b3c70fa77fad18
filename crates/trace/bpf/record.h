/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * What the BPF programs and the Rust side say to each other. `src/record.rs` mirrors it; a test
 * holds that mirror against the type information in the compiled object.
 */
#ifndef TICKTAX_RECORD_H
#define TICKTAX_RECORD_H

/* Who may interrupt whom, lowest first. */
enum kind {
	KIND_IDLE = 0,
	KIND_TASK = 1,
	KIND_SOFTIRQ = 2,
	KIND_IRQ = 3,
	KIND_NMI = 4,
	KIND_WAIT = 5, /* a thread that is not allowed to run; no CPU's time */
};

/* `id` of an interrupt from VECTOR on is an architecture's own vector; below it, an IRQ line. */
#define VECTOR 0x10000
enum vector {
	VECTOR_LOCAL_TIMER = VECTOR,
	VECTOR_RESCHEDULE,
	VECTOR_CALL_FUNCTION,
	VECTOR_CALL_FUNCTION_SINGLE,
	VECTOR_IRQ_WORK,
	VECTOR_THERMAL,
	VECTOR_THRESHOLD,
	VECTOR_DEFERRED_ERROR,
	VECTOR_ERROR,
	VECTOR_SPURIOUS,
	VECTOR_PLATFORM_IPI,
};

/*
 * `detail` is the address of a kernel function, or one of these. From DETAIL_WOKEN on they say what
 * a followed thread is doing while it is off its CPU.
 */
enum detail {
	DETAIL_NONE = 0,
	DETAIL_PAGE_FAULT = 1,
	DETAIL_THROTTLED = 2,
	DETAIL_RECLAIM = 3,
	DETAIL_WOKEN = 4,     /* may run since something woke it */
	DETAIL_PREEMPTED = 5, /* may run, and gave way to another */
	DETAIL_SLEEPING = 6,
	DETAIL_DISK = 7,
	DETAIL_LOCK = 8, /* uninterruptible, and not for a disk */
	DETAIL_STOPPED = 9,
	DETAIL_UNSEEN = 10, /* of a struct life alone: followed, but nothing has happened to it yet */
	DETAIL_PARENT = 11, /* likewise: not followed itself; its children will be */
	DETAIL_REBORN = 12, /* an empty wait: from here on the number is a new thread's */
	DETAIL_MISSED = 13, /* not known: the kernel did not tell when it left its CPU */
};

#define FLAG_KERNEL_THREAD 1
#define FLAG_FUNCTION 2 /* a function's frame within an interrupt or softirq */
#define FLAG_MIGRATED 4 /* a wait that ended on another CPU than it began on */
#define FLAG_REST 8 /* all sources of a kind that the table of sums has no room for */

#define COMM_LEN 16

/* One span, one cache line. */
struct span_record {
	__u64 start;  /* ns, CLOCK_MONOTONIC */
	__u64 dur;    /* ns */
	__s64 self;   /* ns: dur without what interrupted it */
	__u64 detail; /* a kernel address, or enum detail */
	__u32 seq;    /* low bits of the record's number + 1, written last */
	__u32 tid;    /* thread; IRQ line, vector or softirq number where it is none */
	__u32 tgid;   /* process */
	__u8 kind;
	__u8 flags;
	__u16 cpu;
	char comm[COMM_LEN];
};

/* All intervals of one source on one CPU, for long recordings. */
#define HISTOGRAM_BUCKETS 140
#define RESTS_PER_CPU 16
struct sum_record {
	__u64 key;    /* see sum_key(); 0: free */
	__u64 detail;
	__u64 count;
	__s64 self;
	__u64 wall;
	__u64 max;
	__u32 tid;
	__u32 tgid;
	__u8 kind;
	__u8 flags;
	__u16 cpu;
	__u32 reserved;
	char comm[COMM_LEN];
	__u32 histogram[HISTOGRAM_BUCKETS];
};

/* A frame of what a CPU is in the middle of. */
struct frame {
	__u64 start;
	__u64 child; /* ns spent in what interrupted it; 0 in every frame that is not in use */
	__u64 detail;
	__u32 id;
	__u8 kind;
	__u8 flags;
	__u16 reserved;
};

/* Threads that can be throttled at one time. */
#define MAX_THROTTLED 16384

/* Threads that can be followed at one time. */
#define MAX_FOLLOWED 16384

/* Where a followed thread stands. */
struct life {
	__u64 since;  /* ns: from when on it does what `detail` says */
	__u32 detail; /* enum detail; DETAIL_NONE while it runs */
	__u32 cpu;    /* where it ran last */
	__u32 tgid;
	__u32 flags;  /* of its spans */
	char comm[COMM_LEN];
};

/* Deepest nesting: task, softirq, its function, irq, its function, and three to spare. */
#define MAX_DEPTH 8

/* One CPU's books in progress. Only that CPU writes it. */
struct cpu_state {
	struct frame stack[MAX_DEPTH]; /* [0]: the thread, or idling */
	__u64 depth;
	__u64 opened;      /* when the books were opened: the first context switch; 0: not yet */
	__u64 last;        /* latest time seen */
	__u64 head;        /* records written */
	__u64 events;      /* tracepoint hits */
	__u64 lost;        /* spans that found the buffer full */
	__s64 lost_self;   /* their own time, ns */
	__u64 mismatched;  /* exits without their entry, entries too deep */
	__u64 folded;      /* spans that found the table of sums full */
	__u64 unfollowed;  /* children that found the table of followed threads full */
	__u64 missed;      /* switches that the kernel did not tell of */
	__u64 ticks_stopped; /* times that the kernel stopped the tick */
	__u64 reserved[4];
};

#define RUN_RECORD 1
#define RUN_FOLLOW 2 /* also what becomes of the threads in `lives` while they are off their CPU */

/* Written by the reader, one a CPU, a cache line each. */
struct cpu_control {
	__u64 tail; /* records read */
	__u64 running; /* RUN_... */
	__u64 until;   /* ns: nothing is recorded from then on */
	__u64 reserved[5];
};

#define MAX_CPUS 1024

#endif
