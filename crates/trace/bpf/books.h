/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Accounting: the stack of intervals that are open on a CPU. When an interval ends, hand_out.h
 * emits it as a span or as part of a sum.
 */
#ifndef TICKTAX_BOOKS_H
#define TICKTAX_BOOKS_H

#include "kernel.h"
#include "record.h"
#include "histogram.h"
#include "atomic.h"

/* Set by the loader. */
volatile const __u32 ring_mask = 0;	/* records per CPU - 1; a power of two - 1 */
volatile const __u32 ring_order = 0;	/* log2 of the records per CPU */
volatile const __u32 summing = 0;	/* sum spans shorter than LONG_NS */
volatile const __u32 sum_mask = 0;	/* entries of the table of sums - 1 */
volatile const __u32 flight = 0;	/* the flight recorder: sums plus a ring that is overwritten */
volatile const __u32 stores_in_order = 0; /* CPUs see each other's stores in program order, as on x86 */
volatile const struct record_constants record_constants = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets CPUs << ring_order, except for the flight recorder */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct span_record);
} spans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets sum_mask + 1, or twice that (flight recorder) */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sum_record);
} sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets CPUs * RESTS_PER_CPU, or twice that (flight recorder) */
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

/* The context in which a program runs. */
struct here {
	struct cpu_state *state;
	struct cpu_control *control;
	__u64 now;
	__u64 running;
	__u64 began; /* sched_switch: when the leaving thread got the CPU */
	__u32 cpu;
	__u32 left; /* flight recorder, while a thread's run ends at a switch: why it leaves */
};

/*
 * Starts accounting on this CPU. All CPUs start at the same moment, so a wake-up on one of them is
 * seen no matter where it leads. Until then, the stack is maintained but nothing is emitted. The
 * first event after that moment cuts off everything earlier. If this CPU learned of the moment too
 * late and has had an event since, it starts now.
 *
 * The start is claimed in one step, because an event in between may be about to claim it too. Any
 * time that such an event charges to a frame afterwards is kept.
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
	state->vcpu_charged = 0;
}

/*
 * Notes which thread is on this CPU at the first event after the end of recording. If there has
 * been no switch since the end, that thread was also running at the end. The reader learns the
 * thread's name, and whether it is the one that the last switch reported.
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
	/* All CPUs stop together. Otherwise, a thread could be seen leaving but not arriving. */
	if (unlikely(here->now >= here->control->until)) {
		note_end(here->state, here->now);
		return 0;
	}
	here->state->events++;
	if (unlikely(here->state->opened == OPENING))
		open_books(here);
	return 1;
}

/* Rebuilds parts of `here` in a global function, which cannot take pointers. */
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

/* Odd, so that every input bit matters. Derived from the golden ratio. */
#define MIXER 0x9e3779b97f4a7c15ULL

/*
 * A record's mark is stored last. If a reader on another CPU sees the mark, it sees the complete
 * record. Where CPUs may see stores out of order, all other bits are mixed into the mark, so that a
 * half-written record has a wrong mark: see crates/trace/src/seal.rs.
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

#include "notes.h"
#include "trigger.h"
#include "frames.h"
#include "ring.h"
#include "hand_out.h"

/* The function that a worker thread is currently executing. */
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
 * Sets the thread at the bottom of the stack, and what it does. Its ID and type are kept there
 * until it leaves, because every access to a thread is checked.
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

/* calls.h: same as account(), for a part of a thread's run. */
static void account_run(struct here *here, struct frame *ended, __u64 end, struct task_struct *task);
/* guests.h: the vCPU's thread on this CPU has ended a part of its run with `self` ns of own time. */
static void charge_vcpu_part(struct here *here, __u64 self);
/* follow.h: the followed thread `tid` was last seen here at `seen`, and has left since then. */
static void lose_thread(struct here *here, __u32 tid, __u64 seen);
/* follow.h: the thread is here now, and arrived no earlier than `seen`. */
static void find_thread(struct here *here, struct task_struct *task, __u64 seen);

/* Whether the last switch's thread still has its ID. Also saves its name. */
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
 * Whether an interrupt was accounted for after this program had read the clock, and thus between
 * two of its instructions.
 */
static __always_inline int was_interrupted(const struct here *here)
{
	return here->state->last > here->now;
}

/*
 * The current thread is not the one from the last switch, so the kernel did not report a switch.
 * (Linux 6.18 in a virtual machine omits a few per second.) The known thread is charged until it
 * was last seen. The time since then belongs to no known thread.
 *
 * The time is claimed in one step, because an interrupted program may be about to claim it too.
 * Returns `now`, which may have moved on. A global function, which the verifier checks only once.
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
	/* `child` includes an interrupt after the clock was read, so retry next time. */
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
	state->last = here->now;
	state->missed++;
	state->vcpu = 0;
	set_current(here, task);
	if (seen > start)
		account_run(here, &ended, seen, 0);
	if (here->running & RUN_FOLLOW)
		lose_thread(here, ended.id, seen);
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

/* Number of retries after an interrupt. */
#define TRIES 4

/*
 * No frame is left above the bottom of the stack, so check that the current thread is the known
 * one. The time at which it was seen must match the interrupts charged up to then.
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
 * Handles an interrupt that arrived after the clock was read: reads the clock again, then takes and
 * returns the time that interrupts had charged to `frame` by then. Later ones stay charged to it.
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
 * Pushes a frame onto the stack. Until `depth` is raised, interrupts are charged to the frame
 * below, and afterwards to the new frame, whose `child` is already 0. If one arrived after the
 * clock was read, the new frame starts after it, and all of them belong to the frame below.
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
 * Takes the time that interrupts charged to a frame. It is usually 0, which saves an expensive
 * locked instruction. If not, it is taken in one step, because the next interrupt may add to it.
 */
static __always_inline __u64 take_child(struct frame *frame)
{
	return frame->child ? take(&frame->child) : 0;
}

/*
 * Ends the top frame. An interrupt after the clock was read belongs to this frame, which then ends
 * later. If it comes too late for that, but before `depth` is lowered, the frame below gets it.
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
	/* Take it in one step, because the next interrupt's frame uses the same slot. */
	if (unlikely(frame->child)) {
		later = take(&frame->child);
		state->last = bpf_ktime_get_ns();
	}
	add(&below->child, here->now - ended.start + later);
	account(here, &ended, here->now, current_task());
}

/*
 * Same as end_top(), for further frames, which are rare. Returns `now`, which may have become
 * later. A global function, which the verifier checks only once instead of for every frame.
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

/* Ends all frames above `level`. Callers must check the thread at the bottom themselves. */
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

/* Values of `mask` for pop(): every bit of the id must match, only "is a vector", or none. */
#define EXACT_ID (~0U)
#define ANY_VECTOR (~(VECTOR_LOCAL_TIMER - 1U))
#define ANY_ID 0U

/*
 * Ends the topmost frame with this kind, these flags, and this id as far as `mask` compares it.
 * Also ends all frames above. Their ends were missed, because the kernel skips a program that is
 * already running on the CPU.
 */
static __noinline void pop(struct here *here, __u8 kind, __u32 id, __u32 mask, __u8 flags)
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
			   (frame->id & mask) == (id & mask)))
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
 * At a switch, ends the run of the thread at the bottom of the stack and starts the next run.
 * set_current() then adds the thread to it. Only an NMI can come in between.
 */
static __always_inline void end_stretch(struct here *here, struct task_struct *task)
{
	struct frame *base = &here->state->stack[0];
	__u64 dur = here->now - base->start;
	/* See end_top() for an NMI that arrives here. */
	__s64 self = dur - take_child(base);

	here->state->last = here->now;
	account_switch(here, base, dur, self, task);
	charge_vcpu_part(here, self);
	base->start = here->now;
}

/*
 * Emits an edge: the top frame has made something else runnable. `flag` is the kind of edge, and
 * `effect` is the thing made runnable.
 */
static __always_inline void edge(struct here *here, __u8 flag, __u64 effect)
{
	struct cpu_state *state = here->state;
	const struct frame *top = &state->stack[state->depth & (MAX_DEPTH - 1)];
	struct task_struct *task = current_task();
	struct frame cause = {};

	if (unlikely(state->opened <= OPENING))
		return;
	/* Make sure that the named thread is still the one here. */
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
