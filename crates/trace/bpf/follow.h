/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Follows threads: records their waits while they are off CPU.
 *
 * A followed thread has an entry in `threads` until it exits. The reader inserts the first threads,
 * and their children are added automatically. A wait lasts from a switch to the wake-up, or from
 * the wake-up to the next switch, and starts exactly when the previous interval ended. A thread's
 * waits and its spans on CPUs thus cover its time without gaps, which the reader checks.
 *
 * Only one CPU at a time writes a thread's entry, because the kernel switches and wakes a thread
 * under its run-queue lock, and no other CPU knows about a new thread.
 */
#ifndef TICKTAX_FOLLOW_H
#define TICKTAX_FOLLOW_H

#include "throttle.h"

/* Maximum number of followed threads. */
#define MAX_FOLLOWED 16384

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FOLLOWED); /* the loader sets 1 if no thread is followed */
	__type(key, __u32);
	__type(value, struct followed_thread);
} threads SEC(".maps");

static __always_inline struct followed_thread *followed(__u32 tid)
{
	struct followed_thread *thread = bpf_map_lookup_elem(&threads, &tid);

	return thread && thread->detail != DETAIL_PARENT ? thread : 0;
}

static __always_inline __u32 state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return ((struct task_struct___before_5_14 *)task)->state;
}

/* The flag is one bit among others, and its position differs between kernels. */
static __always_inline int is_in_iowait(struct task_struct *task)
{
	__u64 word = 0;

	if (!bpf_core_field_exists(task->in_iowait))
		return 0;
	bpf_probe_read_kernel(&word, sizeof(word),
			      (void *)task + __builtin_preserve_field_info(
						     task->in_iowait, BPF_FIELD_BYTE_OFFSET));
	word <<= __builtin_preserve_field_info(task->in_iowait, BPF_FIELD_LSHIFT_U64);
	return word >> __builtin_preserve_field_info(task->in_iowait, BPF_FIELD_RSHIFT_U64) != 0;
}

/*
 * Same as account(), for any thread. Sums contain no times, so no waits are emitted when summing.
 */
static __always_inline void account_followed(struct here *here, const struct frame *frame, __u64 end,
					     struct task_struct *task)
{
	__u64 dur = end - frame->start;

	if (unlikely(here->state->opened == OPENING) || summing)
		return;
	hand_out(here, frame, dur, dur, task);
}

/* Emits the wait from the thread's last change until `end`. */
static __noinline void end_absence(struct here *here, struct followed_thread *thread, struct task_struct *task,
				   __u64 end)
{
	struct frame ended = {};

	/* end_wait() reports throttled threads, whether followed or not. */
	if (thread->detail == DETAIL_THROTTLED)
		return;
	/* If the wait started before the first event, only the reader knows the start. */
	ended.start = thread->since ? within_books(here, thread->since) : 0;
	ended.detail = thread->detail;
	ended.id = FIELD(task, pid);
	ended.kind = KIND_WAIT;
	ended.flags = thread->flags;
	if (thread->detail == DETAIL_NONE)
		ended.detail = DETAIL_MISSED;
	if ((thread->detail == DETAIL_WOKEN || thread->detail == DETAIL_PREEMPTED) &&
	    thread->cpu != here->cpu && thread->cpu < MAX_CPUS)
		ended.flags |= FLAG_MIGRATED;
	account_followed(here, &ended, end, task);
}

/* Returns why a thread that is not throttled leaves its CPU. */
static __always_inline __u32 why_absent(struct task_struct *task, __u32 state, int preempted)
{
	if (preempted || state == 0)
		return DETAIL_PREEMPTED;
	if (state & (TASK_STOPPED | TASK_TRACED | TASK_FROZEN))
		return DETAIL_STOPPED;
	if (state & TASK_RTLOCK_WAIT)
		return DETAIL_LOCK;
	if (!(state & TASK_UNINTERRUPTIBLE) || state & TASK_NOLOAD)
		return DETAIL_SLEEPING;
	return is_in_iowait(task) ? DETAIL_DISK : DETAIL_LOCK;
}

static __noinline void sched_out(struct here *here, struct task_struct *task, int preempted,
			      int throttled_here)
{
	__u32 tid = task->pid, state;
	struct followed_thread *thread = followed(tid);

	if (!thread)
		return;
	state = state_of(task);
	if (state & TASK_DEAD && !preempted) {
		bpf_map_delete_elem(&threads, &tid);
		return;
	}
	/* The thread arrived before following or accounting had started. */
	if (unlikely(thread->detail != DETAIL_NONE))
		end_absence(here, thread, task,
			    here->began > thread->since ? here->began : thread->since);
	thread->detail = throttled_here ? DETAIL_THROTTLED : why_absent(task, state, preempted);
	thread->since = here->now;
	thread->cpu = here->cpu;
	copy_name(thread->comm, task);
}

static __noinline void sched_in(struct here *here, struct task_struct *task)
{
	struct followed_thread *thread = followed(task->pid);

	if (!thread)
		return;
	/* If the thread is already running, its departure was not seen. */
	end_absence(here, thread, task, here->now);
	thread->detail = DETAIL_NONE;
	thread->since = here->now;
}

/* From `seen` on, the thread's activity is unknown until it is seen again. */
static __noinline void lose_thread(__u32 tid, __u64 seen)
{
	struct followed_thread *thread = followed(tid);

	/* The thread may already run on another CPU, and may have started there after `seen`. */
	if (thread && thread->detail == DETAIL_NONE && thread->since < seen)
		thread->since = seen;
}

/* It is unknown when the thread arrived, so the time from `seen` on counts as missed. */
static __noinline void find_thread(struct here *here, struct task_struct *task, __u64 seen)
{
	struct followed_thread *thread = followed(FIELD(task, pid));

	if (!thread)
		return;
	if (thread->detail != DETAIL_NONE) {
		if (seen < thread->since)
			seen = thread->since;
		end_absence(here, thread, task, seen);
		thread->detail = DETAIL_NONE;
		thread->since = seen;
	}
	end_absence(here, thread, task, here->now);
	thread->since = here->now;
}

static __always_inline int wake(struct task_struct *task)
{
	struct followed_thread *thread = followed(task->pid);
	struct here here;

	/* The thread was not blocked: either it had not left its CPU yet, or it is throttled. */
	if (likely(!thread) || thread->detail < DETAIL_SLEEPING || thread->detail > DETAIL_UNSEEN)
		return 0;
	if (!arrive(&here) || !(here.running & RUN_FOLLOW))
		return 0;
	end_absence(&here, thread, task, here.now);
	thread->detail = DETAIL_WOKEN;
	thread->since = here.now;
	return 0;
}

/* Marks that the thread ID belongs to a new thread from now on. IDs are reused. */
static __noinline void mark_birth(struct here *here, struct task_struct *task)
{
	struct frame born = {};

	born.start = here->now;
	born.detail = DETAIL_REBORN;
	born.id = task->pid;
	born.kind = KIND_WAIT;
	account_followed(here, &born, here->now, task);
}

/* Follows a child of a followed thread: either a thread or a new process. */
static __always_inline int follow_child(struct task_struct *parent, struct task_struct *child)
{
	__u32 tid = parent->pid;
	struct followed_thread born = {};
	struct here here;

	if (likely(!bpf_map_lookup_elem(&threads, &tid)))
		return 0;
	if (!arrive(&here) || !(here.running & RUN_FOLLOW))
		return 0;
	tid = child->pid;
	born.since = here.now;
	born.detail = DETAIL_WOKEN;
	born.cpu = MAX_CPUS;
	born.tgid = child->tgid;
	copy_name(born.comm, child);
	if (bpf_map_update_elem(&threads, &tid, &born, 0))
		add(&here.state->unfollowed, 1);
	else
		mark_birth(&here, child);
	return 0;
}

/* A thread that executes another program takes over the ID of its process's first thread. */
static __always_inline int change_number(struct task_struct *task, __u32 before)
{
	struct followed_thread *thread;
	struct followed_thread moved;
	struct here here;
	__u32 tid = task->pid;

	if (likely(before == tid))
		return 0;
	thread = followed(before);
	if (!thread || !arrive(&here) || !here.state->opened)
		return 0;
	/* The thread's current run continues under the new ID. */
	if (here.state->thread == (__u64)task)
		here.state->stack[0].id = tid;
	moved = *thread;
	bpf_map_delete_elem(&threads, &before);
	bpf_map_update_elem(&threads, &tid, &moved, 0);
	mark_birth(&here, task);
	return 0;
}

#endif
