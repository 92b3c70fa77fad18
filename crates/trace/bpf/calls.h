/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * System calls of followed threads, while they are on a CPU.
 *
 * Most system calls are so short that a record for each would cost more than the call. Entering a
 * call therefore only notes the time. When the call ends, its own time is added to a sum if it is
 * below CALL_LONG_NS. Otherwise, the thread's run is split, and the part in the call gets its own
 * record.
 *
 * A switch, a page fault or reclaim splits a run anyway. The part of the call before the split is
 * then judged separately, and the next part starts where the run continues.
 *
 * `call` is 0 unless a followed thread is on the CPU. For any other thread, a system call thus
 * costs only one look-up and one comparison at entry, and the same at exit.
 */
#ifndef TICKTAX_CALLS_H
#define TICKTAX_CALLS_H

#include "throttle.h"

static __always_inline struct cpu_state *state_here(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&states, &cpu);
}

/* Same as account(), where threads are followed and nothing is summed. */
static __always_inline void record_part(struct here *here, const struct frame *frame, __u64 end,
					__u64 what)
{
	__u64 dur = end - frame->start;

	hand_out(here, frame, dur, dur - frame->child, whose(what));
}

/*
 * Emits the last part of a run, which ended at `end` while its thread was in a system call. `what`
 * has the form that sum_up() takes. A global function, which the verifier checks only once.
 */
__noinline int account_call(__u64 what, __u64 start, __u64 child, __u64 end)
{
	struct here here = {};
	struct frame ended = {};
	struct cpu_state *state;
	__u64 since, own;

	if (!find_books(&here, (what >> CPU_AT) - 1 & (MAX_CPUS - 1)))
		return 0;
	state = here.state;
	if (state->opened <= OPENING)
		return 0;
	ended.start = start;
	ended.child = child;
	ended.id = what;
	ended.kind = what >> KIND_AT & 7;
	ended.flags = what >> FLAGS_AT;
	since = state->call_since;
	if (since < start) {
		since = start;
		state->call_child = 0;
	}
	/* Another thread may have come in between. */
	if (since > end)
		goto whole;
	own = end - since - (child - state->call_child);
	if ((__s64)own < CALL_LONG_NS) {
		state->short_calls += own;
		state->short_count++;
		goto whole;
	}
	if (since > start) {
		ended.child = state->call_child;
		record_part(&here, &ended, since, what);
	}
	ended.start = since;
	ended.child = child - (since > start ? state->call_child : 0);
	ended.detail = DETAIL_CALL + state->call - CALL_FIRST;
whole:
	record_part(&here, &ended, end, what);
	return 0;
}

/* Returns whether the last part of a run has to be judged by account_call(). */
static __always_inline int ends_in_call(const struct here *here, __u64 detail)
{
	return unlikely(here->state->call >= CALL_FIRST && here->running & RUN_CALLS &&
			detail == DETAIL_NONE);
}

/* `task` is the current thread, or 0 as for account(). */
static __always_inline void account_run(struct here *here, struct frame *ended, __u64 end,
					struct task_struct *task)
{
	__u64 what;

	if (!ends_in_call(here, ended->detail)) {
		account(here, ended, end, task);
		return;
	}
	what = sum_key(frame_name(ended), here->cpu);
	if (!task)
		what |= SEEN_BEFORE;
	account_call(what, ended->start, ended->child, end);
}

/* Same as end_stretch(), if the thread is in a system call. */
static __always_inline void end_stretch_in_call(struct here *here)
{
	struct frame *base = &here->state->stack[0];
	__u64 what = sum_key(*name_in(base), here->cpu), start = base->start;
	__u64 child = take_child(base);

	here->state->last = here->now;
	base->start = here->now;
	account_call(what, start, child, here->now);
	charge_vcpu_part(here, here->now - start - child);
}

/*
 * Splits the current thread's run: ends one part and starts the next one, which does `detail`.
 *
 * Programs that do this can be interrupted between any two instructions and, on preemptible
 * kernels, even switched away from. The part is therefore claimed in one step, so that it is
 * emitted exactly once. If a switch follows right after the claim, the time of earlier interrupts
 * is subtracted from the next part instead, and the sum stays right. An interrupt that arrives
 * after the clock was read belongs to the next part.
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
		/* Since then, this thread may have been switched away from and back. */
		if (unlikely(here->now < ended.start || was_interrupted(here)))
			here->now = bpf_ktime_get_ns();
		if (here->now < ended.start)
			return;
		ended.child = base->child;
		/* `child` includes an interrupt after the clock was read: the next part's. */
		if (unlikely(was_interrupted(here)))
			continue;
		if (claim(&base->start, ended.start, here->now))
			goto claimed;
	}
	return;
claimed:
	add(&base->child, -ended.child);
	charge_vcpu_part(here, here->now - ended.start - ended.child);
	ended.id = base->id;
	ended.kind = base->kind;
	ended.flags = base->flags;
	base->detail = detail;
	state->last = here->now;
	account_run(here, &ended, here->now, task);
	state->call_since = here->now;
	state->call_child = 0;
}

/* System calls of 32-bit programs have their own numbers. */
static __always_inline int is_compat(struct task_struct *task)
{
	if (bpf_core_field_exists(task->thread_info.status))
		return FIELD(task, thread_info.status) & TS_COMPAT;
	if (bpf_core_field_exists(task->thread_info.flags))
		return FIELD(task, thread_info.flags) & TIF_32BIT;
	return 0;
}

static __noinline void enter_call(__u64 number)
{
	struct task_struct *task = current_task();
	struct cpu_state *state;
	struct here here;

	if (!arrive(&here))
		return;
	state = here.state;
	if (!state->opened || state->depth)
		return;
	look(&here, task);
	/* look() may have found that another thread is here. */
	if (!state->call)
		return;
	state->call_since = state->seen;
	state->call_child = state->seen_child;
	state->asked = 0;
	state->waited = 0;
	state->call = CALL_FIRST + (number & 0x1fff);
	if (unlikely(is_compat(task)))
		state->call |= DETAIL_CALL_COMPAT;
}

/* Ends the part of a run that ends with a system call, unless the call is too short. */
static __noinline void leave_call(void)
{
	struct task_struct *task = current_task();
	struct cpu_state *state;
	struct frame *base;
	struct here here;
	__u64 start, child;

	if (!arrive(&here))
		return;
	state = here.state;
	base = &state->stack[0];
	if (!state->opened || state->depth || base->detail != DETAIL_NONE)
		goto left;
	look(&here, task);
	/* look() may have found that another thread is here. */
	if (state->call < CALL_FIRST || !(here.running & RUN_CALLS))
		goto left;
	start = base->start;
	child = state->seen_child;
	if (state->seen - state->call_since < CALL_LONG_NS) {
		if (state->opened > OPENING) {
			state->short_calls += state->seen - state->call_since -
					      (child - state->call_child);
			state->short_count++;
		}
	} else if (start <= state->seen && claim(&base->start, start, state->seen)) {
		add(&base->child, -child);
		if (state->last < state->seen)
			state->last = state->seen;
		account_call(sum_key(*name_in(base), here.cpu), start, child, state->seen);
		charge_vcpu_part(&here, state->seen - start - child);
	}
left:
	state->waited = 0;
	if (state->call)
		state->call = CALL_USER;
}

/*
 * Handles a followed thread that is leaving this CPU or has left it. `thread` is its entry. Once
 * system calls are no longer watched, the call in `state` may have ended already.
 */
static __always_inline void leave_with_call(struct here *here, struct followed_thread *thread)
{
	struct cpu_state *state = here->state;

	thread->call = here->running & RUN_CALLS ? state->call : CALL_UNFOLLOWED;
	thread->waited = state->waited;
	thread->waited_since = state->waited_since;
	thread->waited_detail = state->waited_detail;
	if (state->short_count) {
		add(&thread->short_calls, state->short_calls);
		add(&thread->short_count, state->short_count);
		state->short_calls = 0;
		state->short_count = 0;
	}
	state->call = CALL_UNFOLLOWED;
}

/* Handles a followed thread that arrives. It continues the system call in which it left. */
static __always_inline void arrive_in_call(struct here *here, __u32 call)
{
	struct cpu_state *state = here->state;

	state->call_since = here->now;
	state->call_child = 0;
	state->waited = 0;
	state->short_calls = 0;
	state->short_count = 0;
	state->call = call >= CALL_FIRST && here->running & RUN_CALLS ? call : CALL_USER;
}

/*
 * Notes the timer of a timed sleep. The kernel also starts other timers while the thread is
 * current, but only a sleep's timer wakes the thread itself. Its times may be on a different clock.
 */
static __always_inline void note_timer(struct cpu_state *state, struct hrtimer *timer)
{
	struct hrtimer_sleeper *sleeper = (void *)timer;
	struct task_struct *woken = 0;
	__s64 offset;

	bpf_probe_read_kernel(&woken, sizeof(woken), __builtin_preserve_access_index(&sleeper->task));
	if (woken != current_task())
		return;
	offset = timer->base->offset;
	state->asked = timer->_softexpires - offset;
	state->latest = timer->node.expires - offset;
}

#endif
