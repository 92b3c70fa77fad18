// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0
/*
 * The tracer: keeps a stack of what each CPU is in the middle of, and hands out a span, or adds to
 * a sum, whenever something on it ends.
 *
 * The bottom of the stack is a thread or idling; sched_switch ends one and begins the next at the
 * same instant, so these tile the CPU's time. Interrupts and softirqs are pushed on top and popped.
 * A span's own time is its length less that of what was pushed directly on it. Summed over a CPU,
 * own times therefore telescope to the time between the first and the last switch: the books
 * balance by construction, and the reader checks that they do.
 *
 * A softirq's program can itself be interrupted, between any two of its instructions, by an
 * interrupt whose program pushes, pops and adds to `child`. The order of the stores in push() and
 * pop() keeps the sum exact then, too; see there.
 */
#include "kernel.h"
#include "record.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Set by the loader. */
volatile const __u32 ring_mask = 0;	/* records a CPU - 1; a power of two - 1 */
volatile const __u32 ring_order = 0;	/* log2 of records a CPU */
volatile const __u32 summing = 0;	/* sums in place of spans */
volatile const __u32 sum_mask = 0;	/* entries of the table of sums - 1 */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader: CPUs << ring_order */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct span_record);
} spans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader: sum_mask + 1 */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sum_record);
} sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct cpu_state);
} states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct cpu_control);
} controls SEC(".maps");

/* Everything that one run of a program needs to know. */
struct here {
	struct cpu_state *state;
	struct cpu_control *control;
	__u64 now;
	__u32 cpu;
};

static __always_inline int arrive(struct here *here)
{
	__u32 cpu = bpf_get_smp_processor_id();

	here->control = bpf_map_lookup_elem(&controls, &cpu);
	if (!here->control || !here->control->running)
		return 0;
	here->state = bpf_map_lookup_elem(&states, &cpu);
	if (!here->state)
		return 0;
	here->cpu = cpu;
	here->now = bpf_ktime_get_ns();
	here->state->events++;
	return 1;
}

/* The bucket of a log-linear histogram with four steps an octave; crates/model/src/histogram.rs. */
static __always_inline __u32 bucket(__u64 value)
{
	__u32 octave = 0, index;
	__u64 rest = value;

	if (value < 4)
		return value;
	if (rest >> 32) { octave += 32; rest >>= 32; }
	if (rest >> 16) { octave += 16; rest >>= 16; }
	if (rest >> 8) { octave += 8; rest >>= 8; }
	if (rest >> 4) { octave += 4; rest >>= 4; }
	if (rest >> 2) { octave += 2; rest >>= 2; }
	if (rest >> 1) octave += 1;
	index = (octave - 1) * 4 + ((value >> (octave - 2)) & 3);
	return index < HISTOGRAM_BUCKETS ? index : HISTOGRAM_BUCKETS - 1;
}

/* In two words: a helper that copies bytes costs as much as all the rest. */
static __always_inline void copy_name(char *to, const struct task_struct *task)
{
	((__u64 *)to)[0] = *(const __u64 *)&task->comm[0];
	((__u64 *)to)[1] = *(const __u64 *)&task->comm[8];
}

/* Never 0: the lowest bit says that the entry is taken. */
static __always_inline __u64 sum_key(const struct frame *frame, __u32 cpu, __u32 tid)
{
	return ((__u64)tid << 32) | ((__u64)(cpu & 0xffff) << 16) | ((__u64)frame->kind << 8) |
	       ((__u64)frame->flags << 1) | 1;
}

#define SUM_PROBES 8

/* The entry for this source on this CPU; 0 when the table has no room left for it. */
static __always_inline struct sum_record *sum_entry(__u64 key, __u64 detail)
{
	__u64 hash = (key ^ (detail * 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
	__u32 at = hash >> 40;

#pragma unroll
	for (int i = 0; i < SUM_PROBES; i++) {
		__u32 index = (at + i) & sum_mask;
		struct sum_record *sum = bpf_map_lookup_elem(&sums, &index);

		if (!sum)
			return 0;
		if (likely(sum->key == key && sum->detail == detail))
			return sum;
		if (sum->key == 0 && __sync_val_compare_and_swap(&sum->key, 0, key) == 0) {
			sum->detail = detail;
			return sum;
		}
	}
	return 0;
}

static __noinline void add_to_sum(struct here *here, const struct frame *frame, __u64 dur,
				  __s64 self)
{
	__u32 tid = frame->id;
	struct sum_record *sum = sum_entry(sum_key(frame, here->cpu, tid), frame->detail);
	__u32 index;

	if (unlikely(!sum)) {
		__sync_fetch_and_add(&here->state->folded, 1);
		__sync_fetch_and_add(&here->state->folded_self, self);
		return;
	}
	if (unlikely(sum->count == 0)) {
		sum->tid = tid;
		sum->kind = frame->kind;
		sum->flags = frame->flags;
		sum->cpu = here->cpu;
		if (frame->kind == KIND_TASK) {
			struct task_struct *task = bpf_get_current_task_btf();

			sum->tgid = task->tgid;
			copy_name(sum->comm, task);
		}
	}
	/* The reader takes entries whose count is not 0: all that names the entry stands before. */
	barrier();
	sum->count++;
	sum->self += self;
	sum->wall += dur;
	if (dur > sum->max)
		sum->max = dur;
	index = bucket(dur);
	if (index < HISTOGRAM_BUCKETS)
		sum->histogram[index]++;
}

/* Room for interrupts that come between the look at `tail` and the claim of a record. */
#define RING_SLACK 16

static __always_inline void hand_out(struct here *here, const struct frame *frame, __u64 dur,
				     __s64 self)
{
	struct cpu_state *state = here->state;
	struct span_record *span;
	__u64 number;
	__u32 index;

	if (unlikely(state->head - here->control->tail + RING_SLACK > ring_mask)) {
		__sync_fetch_and_add(&state->lost, 1);
		__sync_fetch_and_add(&state->lost_self, self);
		return;
	}
	/* An interrupt may claim the next record before this one is written: hence atomic. */
	number = __sync_fetch_and_add(&state->head, 1);
	index = (here->cpu << ring_order) | (number & ring_mask);
	span = bpf_map_lookup_elem(&spans, &index);
	if (!span)
		return;
	span->start = frame->start;
	span->dur = dur;
	span->self = self;
	span->detail = frame->detail;
	span->kind = frame->kind;
	span->flags = frame->flags;
	span->cpu = here->cpu;
	span->tid = frame->id;
	if (frame->kind == KIND_TASK) {
		struct task_struct *task = bpf_get_current_task_btf();

		span->tgid = task->tgid;
		copy_name(span->comm, task);
	}
	/* Full order, so that the reader on another CPU sees the record whole. */
	__sync_lock_test_and_set(&span->seq, (__u32)number + 1);
}

/* A thread's stretch is accounted for while it is still the current one. */
static __always_inline void account(struct here *here, const struct frame *frame, __u64 end)
{
	__u64 dur = end - frame->start;
	__s64 self = dur - frame->child;

	if (summing)
		add_to_sum(here, frame, dur, self);
	else
		hand_out(here, frame, dur, self);
}

/*
 * Begins something on top of what the CPU is in the middle of. An interrupt before `depth` is
 * raised is charged to the frame below, after it to the new frame, whose `child` is 0 already.
 */
static __noinline void push(struct here *here, __u8 kind, __u32 id, __u64 detail, __u8 flags)
{
	struct cpu_state *state = here->state;
	__u64 depth = state->depth + 1;
	struct frame *frame;

	if (unlikely(!state->opened))
		return;
	if (unlikely(depth >= MAX_DEPTH)) {
		state->mismatched++;
		return;
	}
	state->depth = depth;
	barrier();
	frame = &state->stack[depth & (MAX_DEPTH - 1)];
	frame->start = here->now;
	frame->detail = detail;
	frame->id = id;
	frame->kind = kind;
	frame->flags = flags;
	state->last = here->now;
}

/*
 * Ends what was begun by the push with the same kind, id and flags. `child` is taken and cleared
 * in one step; what an interrupt adds to it between that and the lowering of `depth` stays there
 * for the slot's next frame, so that it is counted late by one frame but never lost.
 */
static __noinline void pop(struct here *here, __u8 kind, __u32 id, __u8 flags)
{
	struct cpu_state *state = here->state;
	__u64 depth = state->depth;
	struct frame *frame, *below;
	struct frame ended;

	if (unlikely(!state->opened))
		return;
	if (unlikely(depth == 0 || depth >= MAX_DEPTH)) {
		state->mismatched++;
		return;
	}
	frame = &state->stack[depth & (MAX_DEPTH - 1)];
	below = &state->stack[(depth - 1) & (MAX_DEPTH - 1)];
	if (unlikely(frame->kind != kind || frame->flags != flags ||
		     (!(flags & FLAG_FUNCTION) && frame->id != id))) {
		state->mismatched++;
		return;
	}
	ended.start = frame->start;
	ended.detail = frame->detail;
	ended.id = frame->id;
	ended.kind = kind;
	ended.flags = flags;
	ended.child = __sync_lock_test_and_set(&frame->child, 0);
	barrier();
	state->depth = depth - 1;
	__sync_fetch_and_add(&below->child, here->now - ended.start);
	state->last = here->now;
	account(here, &ended, here->now);
}

static __always_inline int enter(__u8 kind, __u32 id, __u64 detail, __u8 flags)
{
	struct here here;

	if (arrive(&here))
		push(&here, kind, id, detail, flags);
	return 0;
}

static __always_inline int leave(__u8 kind, __u32 id, __u8 flags)
{
	struct here here;

	if (arrive(&here))
		pop(&here, kind, id, flags);
	return 0;
}

/* A function within the interrupt or softirq at the top: a frame of the same name. */
static __always_inline int enter_function(__u64 function)
{
	struct here here;
	struct frame *top;

	if (!arrive(&here))
		return 0;
	/* At depth 0 (a thread that runs timers or calls itself) there is nothing to name. */
	if (here.state->depth == 0)
		return 0;
	top = &here.state->stack[here.state->depth & (MAX_DEPTH - 1)];
	push(&here, top->kind, top->id, function, FLAG_FUNCTION);
	return 0;
}

static __always_inline int leave_function(void)
{
	struct here here;
	struct frame *top;

	if (!arrive(&here) || here.state->depth == 0)
		return 0;
	top = &here.state->stack[here.state->depth & (MAX_DEPTH - 1)];
	if (top->flags & FLAG_FUNCTION)
		pop(&here, top->kind, top->id, FLAG_FUNCTION);
	return 0;
}

/* Ends the stretch of the running thread at the bottom of the stack and begins its next one. */
static __noinline void turn_page(struct here *here, struct task_struct *task, __u64 detail)
{
	struct frame *base = &here->state->stack[0];
	struct frame ended;

	ended.start = base->start;
	ended.detail = base->detail;
	ended.id = task->pid;
	ended.kind = task->pid ? KIND_TASK : KIND_IDLE;
	ended.flags = task->flags & PF_KTHREAD ? FLAG_KERNEL_THREAD : 0;
	/* See pop() for an interrupt just here. */
	ended.child = __sync_lock_test_and_set(&base->child, 0);
	base->start = here->now;
	base->detail = detail;
	here->state->last = here->now;
	account(here, &ended, here->now);
}

/* Who is at the bottom of the stack from now on: for the reader that finds the frame open. */
static __always_inline void seat(struct here *here, struct task_struct *task)
{
	struct frame *base = &here->state->stack[0];

	base->id = task->pid;
	base->kind = task->pid ? KIND_TASK : KIND_IDLE;
	base->flags = task->flags & PF_KTHREAD ? FLAG_KERNEL_THREAD : 0;
}

/* The function that a worker thread is in the middle of. */
static __always_inline __u64 work_in_progress(struct task_struct *task)
{
	struct worker *worker = 0;
	struct kthread *kthread;
	void *function = 0;

	if (likely(!(task->flags & PF_WQ_WORKER)))
		return DETAIL_NONE;
	if (!bpf_core_field_exists(task->worker_private))
		return DETAIL_NONE;
	kthread = task->worker_private;
	bpf_probe_read_kernel(&worker, sizeof(worker),
			      __builtin_preserve_access_index(&kthread->data));
	bpf_probe_read_kernel(&function, sizeof(function),
			      __builtin_preserve_access_index(&worker->current_func));
	return (__u64)function;
}

SEC("tp_btf/sched_switch")
int sched_switch(__u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	struct cpu_state *state;
	struct here here;

	if (!arrive(&here))
		return 0;
	state = here.state;
	if (unlikely(!state->opened)) {
		state->opened = here.now;
		state->last = here.now;
		state->depth = 0;
		state->stack[0].start = here.now;
		state->stack[0].child = 0;
		state->stack[0].detail = work_in_progress(next);
		seat(&here, next);
		return 0;
	}
	/*
	 * No frame is open at a switch, unless an exit was missed, or softirqs run in threads
	 * that can be preempted (PREEMPT_RT): what is left of those counts as the thread's.
	 */
	if (unlikely(state->depth)) {
#pragma unroll
		for (int i = MAX_DEPTH - 1; i > 0; i--) {
			if (state->depth == i)
				pop(&here, state->stack[i].kind, state->stack[i].id,
				    state->stack[i].flags);
		}
	}
	turn_page(&here, prev, work_in_progress(next));
	seat(&here, next);
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int workqueue_execute_start(__u64 *ctx)
{
	struct work_struct *work = (void *)ctx[0];
	struct here here;

	if (arrive(&here) && here.state->opened && here.state->depth == 0)
		turn_page(&here, bpf_get_current_task_btf(), (__u64)work->func);
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int workqueue_execute_end(__u64 *ctx)
{
	struct here here;

	if (arrive(&here) && here.state->opened && here.state->depth == 0)
		turn_page(&here, bpf_get_current_task_btf(), DETAIL_NONE);
	return 0;
}

/*
 * A fault that sleeps (its page comes from a disk) is split by the switch; the stretch after it
 * counts as the thread's own, since nothing marks a thread as faulting.
 */
SEC("fentry/handle_mm_fault")
int page_fault_entry(__u64 *ctx)
{
	struct here here;

	if (arrive(&here) && here.state->opened && here.state->depth == 0)
		turn_page(&here, bpf_get_current_task_btf(), DETAIL_PAGE_FAULT);
	return 0;
}

SEC("fexit/handle_mm_fault")
int page_fault_exit(__u64 *ctx)
{
	struct here here;

	if (arrive(&here) && here.state->opened && here.state->depth == 0)
		turn_page(&here, bpf_get_current_task_btf(), DETAIL_NONE);
	return 0;
}

SEC("tp_btf/softirq_entry")
int softirq_entry(__u64 *ctx)
{
	return enter(KIND_SOFTIRQ, ctx[0], DETAIL_NONE, 0);
}

SEC("tp_btf/softirq_exit")
int softirq_exit(__u64 *ctx)
{
	return leave(KIND_SOFTIRQ, ctx[0], 0);
}

SEC("tp_btf/irq_handler_entry")
int irq_handler_entry(__u64 *ctx)
{
	return enter(KIND_IRQ, ctx[0], DETAIL_NONE, 0);
}

SEC("tp_btf/irq_handler_exit")
int irq_handler_exit(__u64 *ctx)
{
	return leave(KIND_IRQ, ctx[0], 0);
}

/* An architecture's own interrupt: the entry and the exit of its tracepoint pair. */
#define VECTOR_PROGRAMS(name, vector)                                                              \
	SEC("tp_btf/" #name "_entry")                                                              \
	int name##_entry(__u64 *ctx)                                                               \
	{                                                                                          \
		return enter(KIND_IRQ, vector, DETAIL_NONE, 0);                                    \
	}                                                                                          \
	SEC("tp_btf/" #name "_exit")                                                               \
	int name##_exit(__u64 *ctx)                                                                \
	{                                                                                          \
		return leave(KIND_IRQ, vector, 0);                                                 \
	}

VECTOR_PROGRAMS(local_timer, VECTOR_LOCAL_TIMER)
VECTOR_PROGRAMS(reschedule, VECTOR_RESCHEDULE)
VECTOR_PROGRAMS(call_function, VECTOR_CALL_FUNCTION)
VECTOR_PROGRAMS(call_function_single, VECTOR_CALL_FUNCTION_SINGLE)
VECTOR_PROGRAMS(irq_work, VECTOR_IRQ_WORK)
VECTOR_PROGRAMS(thermal_apic, VECTOR_THERMAL)
VECTOR_PROGRAMS(threshold_apic, VECTOR_THRESHOLD)
VECTOR_PROGRAMS(deferred_error_apic, VECTOR_DEFERRED_ERROR)
VECTOR_PROGRAMS(error_apic, VECTOR_ERROR)
VECTOR_PROGRAMS(spurious_apic, VECTOR_SPURIOUS)
VECTOR_PROGRAMS(x86_platform_ipi, VECTOR_PLATFORM_IPI)

SEC("tp_btf/hrtimer_expire_entry")
int hrtimer_expire_entry(__u64 *ctx)
{
	struct hrtimer *timer = (void *)ctx[0];

	return enter_function((__u64)timer->function);
}

SEC("tp_btf/hrtimer_expire_exit")
int hrtimer_expire_exit(__u64 *ctx)
{
	return leave_function();
}

SEC("tp_btf/timer_expire_entry")
int timer_expire_entry(__u64 *ctx)
{
	struct timer_list *timer = (void *)ctx[0];

	return enter_function((__u64)timer->function);
}

SEC("tp_btf/timer_expire_exit")
int timer_expire_exit(__u64 *ctx)
{
	return leave_function();
}

/*
 * The function that another CPU asked this one to call. A raw tracepoint, because the verifier
 * accepts no pointer to a function among the typed arguments of the other sort.
 */
SEC("raw_tp/csd_function_entry")
int csd_function_entry(__u64 *ctx)
{
	return enter_function(ctx[0]);
}

SEC("raw_tp/csd_function_exit")
int csd_function_exit(__u64 *ctx)
{
	return leave_function();
}

/* Comes once an NMI's handler has ended, with its length. */
SEC("tp_btf/nmi_handler")
int nmi_handler(__u64 *ctx)
{
	__u64 handler = ctx[0], length = ctx[1];
	struct here here;
	struct frame *top;
	struct frame ended = {};

	if (!arrive(&here) || !here.state->opened)
		return 0;
	top = &here.state->stack[here.state->depth & (MAX_DEPTH - 1)];
	__sync_fetch_and_add(&top->child, length);
	ended.start = here.now - length;
	ended.detail = handler;
	ended.kind = KIND_NMI;
	account(&here, &ended, here.now);
	return 0;
}
