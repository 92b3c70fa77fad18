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

/* `detail` is the address of a kernel function, or one of these. */
enum detail {
	DETAIL_NONE = 0,
	DETAIL_PAGE_FAULT = 1,
	DETAIL_THROTTLED = 2,
};

#define FLAG_KERNEL_THREAD 1
#define FLAG_FUNCTION 2 /* a function's frame within an interrupt or softirq */
#define FLAG_REST 4 /* all sources of a kind that the table of sums has no room for */

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
	__u64 reserved[7];
};

/* Written by the reader, one a CPU, a cache line each. */
struct cpu_control {
	__u64 tail; /* records read */
	__u64 running;
	__u64 reserved[6];
};

#define MAX_CPUS 1024

#endif
