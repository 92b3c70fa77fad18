/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Samples the code that a timer interrupt interrupts, if it keeps another thread waiting for this
 * CPU, or if it belongs to a followed thread. A sample is an edge from the interrupted softirq or
 * thread. Its `dur` contains the key of the kernel stack and the address in user mode.
 *
 * With a profile, a clock event on each CPU also samples the softirq or thread that it interrupts.
 *
 * Only the innermost address in user mode is taken. The addresses of its callers would often be
 * wrong, because most programs are built without frame pointers.
 */
#ifndef TICKTAX_SAMPLE_H
#define TICKTAX_SAMPLE_H

#include "follow.h"

/*
 * Returns the number of runnable threads on this CPU's run queue, including the current thread. If
 * the kernel does not show it, returns a number that counts as somebody waiting.
 */
static __always_inline __u32 runnable_here(struct task_struct *task)
{
	struct cfs_rq *queue = 0;
	struct rq *rq = 0;
	__u32 runnable = ~0U;

	if (!bpf_core_field_exists(task->se.cfs_rq) || !bpf_core_field_exists(queue->rq))
		return runnable;
	/* Every thread, of any scheduling policy, has a queue of its cgroup on its CPU. */
	bpf_probe_read_kernel(&queue, sizeof(queue), __builtin_preserve_access_index(&task->se.cfs_rq));
	bpf_probe_read_kernel(&rq, sizeof(rq), __builtin_preserve_access_index(&queue->rq));
	bpf_probe_read_kernel(&runnable, sizeof(runnable),
			      __builtin_preserve_access_index(&rq->nr_running));
	return runnable;
}

/*
 * Returns the start of the current thread's run. Page faults and work items split a run, so the
 * number of switches at each tick also shows how long a thread has been running.
 */
static __always_inline __u64 run_since(struct here *here)
{
	struct cpu_state *state = here->state;

	if (state->ticked_switches != state->switches || !state->ticked) {
		state->ticked_switches = state->switches;
		state->ticked = here->now;
	}
	return state->stack[0].start < state->ticked ? state->stack[0].start : state->ticked;
}

/* Returns whether the interrupted code is worth a sample. `level` is the index of its frame. */
static __always_inline int is_sampled(struct here *here, struct task_struct *task, __u64 level)
{
	struct cpu_state *state = here->state;
	__u64 since = run_since(here);
	__u32 tid = FIELD(task, pid);

	if (here->now - state->sampled < SAMPLED_NS || state->sample_due > here->now)
		return 0;
	if (here->running & RUN_FOLLOW && tid && followed(tid))
		return 1;
	/* A softirq delays even the thread that it interrupts. */
	if (level && here->now - state->stack[1].start >= SAMPLED_NS)
		return tid || runnable_here(task) >= 1;
	return here->now - since >= SAMPLED_NS && runnable_here(task) >= 2;
}

/*
 * Notes a sample. On average, one is taken per SAMPLE_EVERY_NS, because a sample at each tick would
 * take up to 1 % of a busy CPU. After a quiet time, a burst covers a stall without gaps.
 */
static __always_inline void note_sample(struct here *here)
{
	struct cpu_state *state = here->state;
	__u64 earliest = here->now - SAMPLE_BURST * SAMPLE_EVERY_NS;

	state->sampled = here->now;
	if (state->sample_due < earliest)
		state->sample_due = earliest;
	state->sample_due += SAMPLE_EVERY_NS;
}

/* Returns the level of the frame below all open interrupts: the interrupted softirq or thread. */
static __always_inline __u64 level_below_interrupts(struct cpu_state *state)
{
	__u64 level = state->depth;

	for (int i = 0; i < MAX_DEPTH; i++) {
		if (level == 0 || state->stack[level & (MAX_DEPTH - 1)].kind != KIND_IRQ)
			break;
		level--;
	}
	return level;
}

/*
 * Returns the address in user mode of the thread that a sample found, or 0 if it has none or if the
 * sample found a softirq.
 */
static __always_inline __u64 user_address(void *ctx, struct task_struct *task, __u64 level)
{
	__u64 address = 0;

	if (level == 0 && !(FIELD(task, flags) & PF_KTHREAD))
		bpf_get_stack(ctx, &address, sizeof(address), BPF_F_USER_STACK);
	return address;
}

/*
 * Emits a sample of the frame at `level`. `stack` is the kernel stack's key plus 1, 0 or
 * SAMPLE_IN_USER.
 */
static __always_inline void emit_sample(void *ctx, struct here *here, struct task_struct *task,
					__u64 level, __u64 stack, __u8 flag)
{
	const struct frame *frame = &here->state->stack[level & (MAX_DEPTH - 1)];
	__u64 what, address = user_address(ctx, task, level);
	struct frame sampled = {};

	sampled.start = here->now;
	sampled.detail = frame->detail;
	sampled.id = frame->id;
	sampled.kind = frame->kind;
	sampled.flags = frame->flags | flag;
	what = stack << SAMPLE_STACK_SHIFT | (address & ((1ULL << SAMPLE_STACK_SHIFT) - 1));
	hand_out(here, &sampled, what, 0, task);
}

/* Writes a sample of the frame at `level` to the flight recorder's notes. */
static __always_inline void write_sample(void *ctx, struct here *here, struct task_struct *task,
					 __u64 level)
{
	const struct frame *frame = &here->state->stack[level & (MAX_DEPTH - 1)];
	struct stack_note *note;
	__u64 number;

	note = begin_note(here, NOTE_SAMPLE, frame->id, &number);
	if (!note)
		return;
	note->detail = frame->detail;
	note->kind = frame->kind;
	note->flags = frame->flags;
	note->address = user_address(ctx, task, level);
	end_note(note, number,
		 bpf_get_stack(ctx, note->frames, sizeof(note->frames), OWN_FRAMES));
}

/*
 * Returns whether accounting has started here, and anything but idle time was interrupted. Sets
 * `level` to the index of the interrupted frame.
 */
static __always_inline int finds_code(struct here *here, struct task_struct *task, __u64 *level)
{
	struct cpu_state *state;

	if (!arrive(here))
		return 0;
	state = here->state;
	if (state->opened <= OPENING || state->thread != (__u64)task)
		return 0;
	*level = level_below_interrupts(state);
	return state->stack[*level & (MAX_DEPTH - 1)].kind != KIND_IDLE;
}

/* Handles a timer interrupt, whose frame has been pushed. */
static __always_inline int sample(void *ctx)
{
	struct task_struct *task = current_task();
	struct here here;
	__u64 level, stack;

	if (!finds_code(&here, task, &level) || level == here.state->depth ||
	    !is_sampled(&here, task, level))
		return 0;
	note_sample(&here);
	if (flight) {
		write_sample(ctx, &here, task, level);
		return 0;
	}
	stack = kernel_stack(ctx, 0);
	if (unlikely(!stack))
		add(&here.state->stacks_lost, 1);
	emit_sample(ctx, &here, task, level, stack, FLAG_SAMPLED);
	return 0;
}

#define EFAULT 14

/*
 * Returns the key of the interrupted kernel stack plus 1, SAMPLE_IN_USER if user mode was
 * interrupted, or 0 if the stack is unknown. A clock event's stack starts with the interrupted
 * function, so it can't be shortened to get another bucket.
 */
static __always_inline __u64 profiled_stack(void *ctx, struct cpu_state *state)
{
	long key = bpf_get_stackid(ctx, &stacks, 0);

	if (likely(key >= 0))
		return key + 1;
	if (key == -EFAULT)
		return SAMPLE_IN_USER;
	key = bpf_get_stackid(ctx, &more_stacks, 0);
	if (key >= 0)
		return key + 1 + MORE_STACKS;
	add(&state->stacks_lost, 1);
	return 0;
}

/* Handles a clock event of a profile, which interrupts a softirq, a thread or idle time. */
static __always_inline int profile(void *ctx)
{
	struct task_struct *task = current_task();
	struct here here;
	__u64 level;

	if (finds_code(&here, task, &level))
		emit_sample(ctx, &here, task, level, profiled_stack(ctx, here.state),
			    FLAG_PROFILED);
	return 0;
}

#endif
