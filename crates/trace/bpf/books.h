/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * The bookkeeping: the stack of what a CPU is in the middle of. How what ends on it is handed out, as a
 * span or as part of a sum, is in hand_out.h.
 */
#ifndef TICKTAX_BOOKS_H
#define TICKTAX_BOOKS_H

#include "kernel.h"
#include "record.h"
#include "histogram.h"
#include "atomic.h"

/* Set by the loader. */
volatile const __u32 ring_mask = 0;	/* records a CPU - 1; a power of two - 1 */
volatile const __u32 ring_order = 0;	/* log2 of records a CPU */
volatile const __u32 summing = 0;	/* sums in place of spans shorter than LONG_NS */
volatile const __u32 sum_mask = 0;	/* entries of the table of sums - 1 */
volatile const __u32 flight = 0;	/* the flight recorder: sums, and beside them a ring that is overwritten */
volatile const __u32 stores_in_order = 0; /* CPUs see each other's stores in the order in which they were made, as on x86 */
volatile const struct record_constants record_constants = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader: CPUs << ring_order, but for the flight recorder */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct span_record);
} spans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader: sum_mask + 1, for the flight recorder twice that */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sum_record);
} sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader: CPUs * RESTS_PER_CPU, for the flight recorder twice that */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sum_record);
} rests SEC(".maps");

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
	__u64 running;
	__u64 began; /* sched_switch: when the thread that leaves had come */
	__u32 cpu;
	__u32 left; /* flight recorder, while a thread's stretch ends at a switch: why it leaves */
};

/*
 * The books of all CPUs open at one moment, so that a wake-up on one of them is seen wherever it leads. Until
 * then the stack is kept as it is afterwards, and nothing is handed out. The first event from that moment on
 * cuts off what was before it. Where something has happened in between (the reader told this CPU the moment
 * too late), they open now.
 *
 * It is claimed in one step, because an event that comes in between may be about to do the same. What such
 * a one charges to a frame after that stays.
 */
static __noinline void open_books(struct here *here)
{
	struct cpu_state *state = here->state;
	__u64 since = here->control->since, child[MAX_DEPTH];

	if (here->now < since)
		return;
	if (state->last > since)
		since = here->now;
	for (int i = 0; i < MAX_DEPTH; i++)
		child[i] = state->stack[i].child;
	if (!claim(&state->opened, OPENING, since))
		return;
	for (int i = 0; i < MAX_DEPTH; i++) {
		state->stack[i].start = since;
		add(&state->stack[i].child, -child[i]);
	}
	state->last = since;
	state->seen = since;
	state->seen_child = 0;
	state->mismatched = 0;
	state->missed = 0;
	state->cut = 0;
	state->ticks_stopped = 0;
}

/*
 * Who is on this CPU as the first event comes after the end of recording: nobody may have switched since
 * then, so that the reader knows the name of whoever was here at the end, and whether it was the thread
 * that the last switch named.
 */
static __noinline void note_end(struct cpu_state *state, __u64 now)
{
	struct task_struct *task;

	if (state->ended)
		return;
	task = current_task();
	state->end_thread = (__u64)task;
	state->end_tid = FIELD(task, pid);
	state->end_tgid = FIELD(task, tgid);
	copy_name(state->end_comm, task);
	barrier();
	state->ended = now;
}

static __always_inline int arrive(struct here *here)
{
	__u32 cpu = bpf_get_smp_processor_id();

	here->control = bpf_map_lookup_elem(&controls, &cpu);
	if (!here->control)
		return 0;
	here->running = here->control->running;
	if (!here->running)
		return 0;
	here->state = bpf_map_lookup_elem(&states, &cpu);
	if (!here->state)
		return 0;
	here->cpu = cpu;
	if (flight)
		here->left = 0;
	here->now = bpf_ktime_get_ns();
	/* All CPUs stop at one moment, so that no thread is seen to leave one and not to come. */
	if (unlikely(here->now >= here->control->until)) {
		note_end(here->state, here->now);
		return 0;
	}
	here->state->events++;
	if (unlikely(here->state->opened == OPENING))
		open_books(here);
	return 1;
}

/* What a global function, which is given no pointers, finds again of `here`. */
static __always_inline int find_books(struct here *here, __u32 cpu)
{
	here->control = bpf_map_lookup_elem(&controls, &cpu);
	here->state = bpf_map_lookup_elem(&states, &cpu);
	if (!here->control || !here->state)
		return 0;
	here->running = here->control->running;
	here->cpu = cpu;
	return 1;
}

/* Odd, so that every bit of a word makes a difference; the golden ratio's. */
#define MIXER 0x9e3779b97f4a7c15ULL

/*
 * The last store of a record, its mark: a reader on another CPU that sees it sees the record whole. Where
 * CPUs may see stores in another order than they were made in, all other bits of the record are mixed into the mark, so that a half-written record has
 * the wrong one; crates/trace/src/seal.rs.
 */
static __always_inline void publish(void *record, __u32 words, __u32 *mark, __u32 value)
{
	const __u64 *word = record;
	__u64 mixed = 0;

	if (!stores_in_order) {
		*mark = 0;
#pragma unroll
		for (__u32 i = 0; i < words; i++)
			mixed = (mixed + word[i]) * MIXER;
		value ^= mixed >> 32;
	}
	/* A locked instruction would cost as much as the rest of the record. */
	barrier();
	*(volatile __u32 *)mark = value;
}

#include "trigger.h"
#include "frames.h"
#include "ring.h"
#include "hand_out.h"

/* The function that a worker thread is in the middle of. */
static __noinline __u64 work_in_progress(struct task_struct *task)
{
	struct worker *worker = 0;
	struct kthread *kthread;
	void *function = 0;

	if (bpf_core_field_exists(task->worker_private))
		kthread = FIELD(task, worker_private);
	else
		kthread = (void *)FIELD(task, set_child_tid);
	bpf_probe_read_kernel(&worker, sizeof(worker),
			      __builtin_preserve_access_index(&kthread->data));
	bpf_probe_read_kernel(&function, sizeof(function),
			      __builtin_preserve_access_index(&worker->current_func));
	return (__u64)function;
}

/*
 * Who is at the bottom of the stack from now on, and what it does. Its number and its sort stand there until it leaves: each
 * look at a thread is checked.
 */
static __always_inline void set_current(struct here *here, struct task_struct *task)
{
	struct frame *base = &here->state->stack[0];
	__u32 id = FIELD(task, pid), flags = FIELD(task, flags);
	__u64 kind = id ? KIND_TASK : KIND_IDLE, sort = flags & PF_KTHREAD ? FLAG_KERNEL_THREAD : 0;

	here->state->thread = (__u64)task;
	base->detail = unlikely(flags & PF_WQ_WORKER) ? work_in_progress(task) : DETAIL_NONE;
	*name_in(base) = id | kind << KIND_AT | sort << FLAGS_AT;
}

/* follow.h: the followed thread `tid` was last seen here at `seen`, and has left since. */
static void lose_thread(__u32 tid, __u64 seen);
/* follow.h: the thread is here now, and came at `seen` or later. */
static void find_thread(struct here *here, struct task_struct *task, __u64 seen);

/* Whether the thread that the last switch named still has its number; keeps its name then. */
static __always_inline int name_known(struct cpu_state *state)
{
	struct task_struct *known = (void *)state->thread;
	__u32 pid = ~0U;

	bpf_probe_read_kernel(&pid, sizeof(pid), __builtin_preserve_access_index(&known->pid));
	bpf_probe_read_kernel(&state->seen_tgid, sizeof(state->seen_tgid),
			      __builtin_preserve_access_index(&known->tgid));
	bpf_probe_read_kernel(&state->seen_comm, sizeof(state->seen_comm),
			      __builtin_preserve_access_index(&known->comm));
	return pid == state->stack[0].id;
}

/*
 * Whether an interrupt was booked since this program read the clock: it came between two of its
 * instructions.
 */
static __always_inline int was_interrupted(const struct here *here)
{
	return here->state->last > here->now;
}

/*
 * The thread on this CPU, the running one, is not the one that the last switch named: the kernel left a switch out
 * (6.18 in a virtual machine does, some times a second). The thread that was known has the time
 * until it was last seen. Whose the time since then was, nobody can say.
 *
 * It is claimed in one step, because a program that this one interrupts may be about to do the same. Returns
 * `now`, which may be later then. A global function, which the verifier looks at once and not wherever it is called.
 */
__noinline __u64 lost_sight(__u32 cpu, __u64 now, __u32 left)
{
	struct task_struct *task = current_task();
	__u64 start, seen, seen_child, child;
	struct here books = {}, *here = &books;
	struct frame ended = {}, *base;
	struct cpu_state *state;

	if (!find_books(here, cpu))
		return now;
	here->now = now;
	here->left = left;
	state = here->state;
	base = &state->stack[0];
	start = base->start;
	seen = state->seen;
	seen_child = state->seen_child;
	if (now < start)
		return now;
	if (seen <= start || seen > here->now || !name_known(state)) {
		seen = start;
		seen_child = 0;
	}
	if (unlikely(was_interrupted(here)))
		here->now = bpf_ktime_get_ns();
	child = base->child;
	/* An interrupt since the clock was read is in that, and after the end: the next look claims it. */
	if (unlikely(was_interrupted(here)))
		return here->now;
	if (!claim(&base->start, start, here->now))
		return here->now;
	add(&base->child, -child);
	ended.start = start;
	ended.child = seen_child;
	ended.detail = base->detail;
	ended.id = base->id;
	ended.kind = base->kind;
	ended.flags = base->flags;
	if (here->running & RUN_FOLLOW)
		lose_thread(base->id, seen);
	state->last = here->now;
	state->missed++;
	set_current(here, task);
	if (seen > start)
		account(here, &ended, seen, 0);
	ended.start = seen;
	ended.child = child - seen_child;
	ended.detail = DETAIL_NONE;
	ended.id = 0;
	ended.kind = KIND_TASK;
	ended.flags = FLAG_UNREPORTED;
	account(here, &ended, here->now, task);
	if (here->running & RUN_FOLLOW)
		find_thread(here, task, seen);
	return here->now;
}

/* How often is tried again what an interrupt came between. */
#define TRIES 4

/*
 * Nothing stands on the bottom of the stack now: is the thread there the one that is known? The time
 * at which it was seen, and the interrupts until then, belong together.
 */
static __always_inline void look(struct here *here, struct task_struct *task)
{
	struct cpu_state *state = here->state;

	if (unlikely(state->thread != (__u64)task)) {
		here->now = lost_sight(here->cpu, here->now, here->left);
		return;
	}
	for (int i = 0; i < TRIES; i++) {
		if (unlikely(was_interrupted(here)))
			here->now = bpf_ktime_get_ns();
		state->seen = here->now;
		state->seen_child = state->stack[0].child;
		barrier();
		if (likely(!was_interrupted(here)))
			return;
	}
}

/*
 * An interrupt came since the clock was read. Reads it again, and takes what interrupts charged to `frame` until
 * then: returns that. What comes later is still to be charged.
 */
static __noinline __u64 catch_up(struct here *here, struct frame *frame)
{
	__u64 child = 0;

	for (int i = 0; i < TRIES && was_interrupted(here); i++) {
		here->now = bpf_ktime_get_ns();
		child += take(&frame->child);
	}
	return child;
}

/*
 * Begins something on top of what the CPU is in the middle of. An interrupt before `depth` is
 * raised is charged to the frame below, after it to the new frame, whose `child` is 0 already. Where
 * one came since the clock was read, the frame begins after it, and all of them are the frame's below.
 */
static __noinline void push(struct here *here, __u8 kind, __u32 id, __u64 detail, __u8 flags)
{
	struct cpu_state *state = here->state;
	__u64 depth = state->depth + 1;
	struct frame *frame, *below;

	if (unlikely(!state->opened))
		return;
	if (unlikely(depth >= MAX_DEPTH)) {
		state->mismatched++;
		return;
	}
	state->depth = depth;
	barrier();
	frame = &state->stack[depth & (MAX_DEPTH - 1)];
	if (unlikely(was_interrupted(here))) {
		below = &state->stack[(depth - 1) & (MAX_DEPTH - 1)];
		add(&below->child, catch_up(here, frame));
	}
	frame->start = here->now;
	frame->detail = detail;
	frame->id = id;
	frame->kind = kind;
	frame->flags = flags;
	state->last = here->now;
}

/*
 * What interrupts charged to a frame. Mostly that is nothing, and a locked instruction costs as much as a few look-ups;
 * where it is something, it is taken in one step, because the next interrupt may add to it meanwhile.
 */
static __always_inline __u64 take_child(struct frame *frame)
{
	return frame->child ? take(&frame->child) : 0;
}

/*
 * Ends what is on top. An interrupt since the clock was read was within what ends, which then ends after
 * it. One that came too late for that, before `depth` is lowered, is charged to the frame below.
 */
static __always_inline void end_top(struct here *here)
{
	struct cpu_state *state = here->state;
	__u64 depth = state->depth;
	struct frame *frame, *below;
	struct frame ended;
	__u64 later = 0;

	if (depth == 0 || depth >= MAX_DEPTH)
		return;
	frame = &state->stack[depth & (MAX_DEPTH - 1)];
	below = &state->stack[(depth - 1) & (MAX_DEPTH - 1)];
	ended.start = frame->start;
	ended.detail = frame->detail;
	ended.id = frame->id;
	ended.kind = frame->kind;
	ended.flags = frame->flags;
	ended.child = take_child(frame);
	if (unlikely(was_interrupted(here)))
		ended.child += catch_up(here, frame);
	state->last = here->now;
	barrier();
	state->depth = depth - 1;
	barrier();
	/* In one step: the next interrupt's frame stands in the same place. */
	if (unlikely(frame->child)) {
		later = take(&frame->child);
		state->last = bpf_ktime_get_ns();
	}
	add(&below->child, here->now - ended.start + later);
	account(here, &ended, here->now, current_task());
}

/*
 * The same where more than one frame is to be ended, which most programs may have to and hardly ever do. Returns `now`,
 * which may be later then. A global function, which the verifier looks at once and not for each frame.
 */
__noinline __u64 end_another(__u32 cpu, __u64 now)
{
	struct here here = {};

	if (!find_books(&here, cpu))
		return now;
	here.now = now;
	end_top(&here);
	return here.now;
}

/* Ends what stands above `level`. Who is at the bottom then is for others to look at. */
__noinline __u64 unwind(__u32 cpu, __u64 now, __u32 level)
{
	struct cpu_state *state = bpf_map_lookup_elem(&states, &cpu);

	if (!state)
		return now;
#pragma unroll
	for (int i = 0; i < MAX_DEPTH; i++) {
		if (state->depth <= level)
			break;
		now = end_another(cpu, now);
	}
	return now;
}

/*
 * Ends what was begun by the push with the same kind, id and flags, and whatever stands on it: its
 * own end was missed, because the kernel skips a program that is running on the CPU already.
 */
static __noinline void pop(struct here *here, __u8 kind, __u32 id, __u8 flags)
{
	struct cpu_state *state = here->state;
	__u64 level = state->depth;

	if (unlikely(!state->opened))
		return;
	for (int i = 0; i < MAX_DEPTH; i++) {
		struct frame *frame = &state->stack[level & (MAX_DEPTH - 1)];

		if (level == 0 || level >= MAX_DEPTH)
			break;
		if (likely(frame->kind == kind && frame->flags == flags &&
			   ((flags & FLAG_FUNCTION) || frame->id == id)))
			goto found;
		level--;
	}
	state->mismatched++;
	return;
found:
	if (unlikely(state->depth > level)) {
		state->mismatched += state->depth - level;
		here->now = unwind(here->cpu, here->now, level);
	}
	if (unlikely(state->depth != level))
		return;
	end_top(here);
	if (level == 1)
		look(here, current_task());
}

/*
 * At a switch: ends the stretch of the thread at the bottom of the stack, and begins the next one's, which set_current()
 * names. Nothing but an NMI can come between.
 */
static __always_inline void end_stretch(struct here *here, struct task_struct *task)
{
	struct frame *base = &here->state->stack[0];
	__u64 dur = here->now - base->start;
	/* See end_top() for an NMI just here. */
	__s64 self = dur - take_child(base);

	here->state->last = here->now;
	account_switch(here, base, dur, self, task);
	base->start = here->now;
}

/*
 * Within a thread's time on its CPU: ends its stretch and begins its next one, which does `detail`.
 *
 * The programs that do this can be interrupted and, on kernels that preempt, switched away from
 * between any two instructions. So the stretch is claimed in one step: nobody else hands it out, and
 * nobody hands out what another took. Where a switch comes between that step and the next, the time
 * of interrupts before it is taken off the stretch after it; the sum stays right. Interrupts since the
 * clock was read are the next stretch's.
 */
static __noinline void split_stretch(struct here *here, struct task_struct *task, __u64 detail)
{
	struct cpu_state *state = here->state;
	struct frame *base = &state->stack[0];
	struct frame ended;

	if (unlikely(state->thread != (__u64)task)) {
		here->now = lost_sight(here->cpu, here->now, here->left);
		if (state->thread != (__u64)task)
			return;
	}
	for (int i = 0; i < TRIES; i++) {
		ended.start = base->start;
		ended.detail = base->detail;
		/* The switch away from this thread, and the one back, may have come meanwhile. */
		if (unlikely(here->now < ended.start || was_interrupted(here)))
			here->now = bpf_ktime_get_ns();
		if (here->now < ended.start)
			return;
		ended.child = base->child;
		/* An interrupt since the clock was read is in that, and in the stretch to come. */
		if (unlikely(was_interrupted(here)))
			continue;
		if (claim(&base->start, ended.start, here->now))
			goto claimed;
	}
	return;
claimed:
	add(&base->child, -ended.child);
	ended.id = base->id;
	ended.kind = base->kind;
	ended.flags = base->flags;
	base->detail = detail;
	state->last = here->now;
	account(here, &ended, here->now, task);
}

/*
 * Emits an edge: what the CPU is in the middle of made something else able to run. `flag` says
 * what sort of edge it is, `effect` what it leads to.
 */
static __always_inline void edge(struct here *here, __u8 flag, __u64 effect)
{
	struct cpu_state *state = here->state;
	const struct frame *top = &state->stack[state->depth & (MAX_DEPTH - 1)];
	struct task_struct *task = current_task();
	struct frame cause = {};

	if (unlikely(state->opened <= OPENING))
		return;
	/* So that no thread is named that is not here any more. */
	if (state->depth == 0)
		look(here, task);
	cause.start = here->now;
	cause.detail = top->detail;
	cause.id = top->id;
	cause.kind = top->kind;
	cause.flags = top->flags | flag;
	hand_out(here, &cause, effect, 0, task);
}

#endif
