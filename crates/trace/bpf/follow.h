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

#include "calls.h"

/* Maximum number of followed threads. */
#define MAX_FOLLOWED 16384

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FOLLOWED); /* the loader sets 1 if no thread is followed */
	__type(key, __u32);
	__type(value, struct followed_thread);
} threads SEC(".maps");

/*
 * The kernel stacks of waits and samples. A stack is never replaced. `more_stacks` takes stacks whose
 * bucket in `stacks` belongs to another stack.
 */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, STACKS); /* the loader sets 1 if no stacks are taken */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, STACK_DEPTH * sizeof(__u64));
} stacks SEC(".maps"), more_stacks SEC(".maps");

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

/*
 * Returns whether a thread cannot run because its cgroup's quota is used up. Since 6.18, the thread
 * has a flag for this. Before 6.18, such a thread is runnable, and its run queue is throttled.
 */
static __always_inline int is_throttled(struct task_struct *task)
{
	if (bpf_core_field_exists(task->throttled))
		return task->throttled;
	if (!bpf_core_field_exists(((struct cfs_rq *)0)->throttle_count))
		return 0;
	return state_of(task) == 0 && task->se.cfs_rq && task->se.cfs_rq->throttle_count > 0;
}

static __always_inline int is_in_iowait(struct task_struct *task)
{
	return bpf_core_field_exists(task->in_iowait) && READ_BITS(task, in_iowait) != 0;
}

/*
 * Same as account(), for any thread. The self time of a wait equals its length, so `lock` takes its
 * place unless it is 0. Sums contain no times, so no waits are emitted when summing.
 */
static __always_inline void account_followed(struct here *here, const struct frame *frame, __u64 end,
					     struct task_struct *task, __u64 lock)
{
	__u64 dur = end - frame->start;

	if (unlikely(here->state->opened == OPENING) || summing)
		return;
	hand_out(here, frame, dur, lock && !flight ? lock : dur, task);
}

/* Returns whether the thread is blocked, which means that the place where it waits explains why. */
static __always_inline int waits_somewhere(const struct followed_thread *thread)
{
	return thread->detail >= DETAIL_SLEEPING && thread->detail <= DETAIL_LOCK;
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
	if (waits_somewhere(thread))
		ended.detail |= (__u64)thread->call << CALL_SHIFT | (__u64)thread->stack << STACK_SHIFT |
				(__u64)thread->release << RELEASE_SHIFT;
	ended.id = FIELD(task, pid);
	ended.kind = KIND_WAIT;
	ended.flags = thread->flags;
	if (thread->detail == DETAIL_NONE)
		ended.detail = DETAIL_MISSED;
	if ((thread->detail == DETAIL_WOKEN || thread->detail == DETAIL_PREEMPTED) &&
	    thread->cpu != here->cpu && thread->cpu < MAX_CPUS)
		ended.flags |= FLAG_MIGRATED;
	account_followed(here, &ended, end, task, waits_somewhere(thread) ? thread->lock : 0);
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

/* Same as above, for a followed thread, with states that few threads ever have. */
static __always_inline __u32 why_away(struct task_struct *task, __u32 state, int preempted)
{
	__u32 why = why_absent(task, state, preempted);

	/* A real-time priority below 0 is that of a deadline thread. */
	if (why == DETAIL_PREEMPTED && task->prio < 0 && READ_BITS(task, dl.dl_throttled))
		/* A thread that yields gives the rest of its budget back. */
		return READ_BITS(task, dl.dl_yielded) ? DETAIL_SLEEPING : DETAIL_DEADLINE;
	if (why == DETAIL_STOPPED && state & TASK_FROZEN)
		return DETAIL_FROZEN;
	if (why == DETAIL_SLEEPING && bpf_core_field_exists(task->frozen) && READ_BITS(task, frozen))
		return DETAIL_FROZEN;
	return why;
}

/* Number of innermost frames to skip, because they belong to this program. */
#define OWN_FRAMES 2
#define EEXIST 17

/*
 * Returns the key of the current stack plus 1, or 0 if other stacks have taken its buckets. In each
 * map, retrying without the innermost frame, which belongs to this program, finds another bucket.
 */
static __always_inline __u32 kernel_stack(void *ctx, __u64 skipped)
{
	long key = bpf_get_stackid(ctx, &stacks, BPF_F_FAST_STACK_CMP | skipped);

	if (likely(key >= 0))
		return key + 1;
	key = bpf_get_stackid(ctx, &stacks, BPF_F_FAST_STACK_CMP | (skipped + 1));
	if (key >= 0)
		return key + 1;
	key = bpf_get_stackid(ctx, &more_stacks, BPF_F_FAST_STACK_CMP | skipped);
	if (key < 0)
		key = bpf_get_stackid(ctx, &more_stacks, BPF_F_FAST_STACK_CMP | (skipped + 1));
	return key < 0 ? 0 : key + 1 + MORE_STACKS;
}

/*
 * Same as above, for a followed thread that leaves its CPU.
 *
 * Taking a stack takes about 2 us, which would slow down a thread that sleeps very often. Such a
 * thread usually sleeps in the same place again: at the same stack depth, in the same system call
 * and within a short time. The last stack is then good enough.
 */
static __always_inline __u32 place_of(void *ctx, struct here *here, struct followed_thread *thread)
{
	__u64 before = thread->placed_frame, frame;
	__u32 call = thread->call | thread->detail << 16;

	if (summing)
		return 0;
	/* `ctx` lies on the stack. Reading it back makes it a number for the verifier. */
	thread->placed_frame = (__u64)ctx;
	frame = *(volatile __u64 *)&thread->placed_frame;
	if (frame == before && thread->placed_call == call && thread->call >= CALL_FIRST &&
	    here->now - thread->placed < PLACED_NS)
		return thread->placed_stack;
	thread->placed = here->now;
	thread->placed_call = call;
	thread->placed_stack = kernel_stack(ctx, OWN_FRAMES);
	return thread->placed_stack;
}

/* A followed thread exits. Its entry and sums vanish, so the sums are emitted as a record. */
static __always_inline void report_calls(struct here *here, struct followed_thread *thread,
					 struct task_struct *task)
{
	struct frame calls = {};

	if (!thread->short_count || here->state->opened == OPENING || summing)
		return;
	calls.start = here->now;
	calls.detail = DETAIL_SHORT_CALLS | thread->short_count << 32;
	calls.id = task->pid;
	calls.kind = KIND_WAIT;
	hand_out(here, &calls, 0, thread->short_calls, task);
}

/* The lowest bit of `how` says whether the thread is preempted, the next whether it is throttled. */
static __noinline void sched_out(void *ctx, struct here *here, struct task_struct *task, int how)
{
	__u32 tid = task->pid, state;
	struct followed_thread *thread = followed(tid);

	if (!thread)
		return;
	leave_with_call(here, thread);
	state = state_of(task);
	if (state & TASK_DEAD && !(how & 1)) {
		report_calls(here, thread, task);
		bpf_map_delete_elem(&threads, &tid);
		return;
	}
	/* The thread arrived before following or accounting had started. */
	if (unlikely(thread->detail != DETAIL_NONE))
		end_absence(here, thread, task,
			    here->began > thread->since ? here->began : thread->since);
	thread->detail = how & 2 ? DETAIL_THROTTLED : why_away(task, state, how & 1);
	thread->since = here->now;
	thread->cpu = here->cpu;
	thread->asked = here->state->asked;
	thread->latest = here->state->latest;
	thread->woken_frozen = 0;
	thread->release = 0;
	thread->stack = waits_somewhere(thread) ? place_of(ctx, here, thread) : 0;
	copy_name(thread->comm, task);
	/* The verifier refuses a function that leaves a pointer to the stack in this register. */
	asm volatile("r0 = 0" ::: "r0");
}

static __noinline void sched_in(struct here *here, struct task_struct *task)
{
	struct followed_thread *thread = followed(task->pid);

	if (!thread)
		return;
	/* If the thread is already running, its departure was not seen. */
	end_absence(here, thread, task, here->now);
	here->state->asked = thread->detail == DETAIL_PREEMPTED ? thread->asked : 0;
	here->state->latest = thread->latest;
	thread->detail = DETAIL_NONE;
	thread->stack = 0;
	thread->since = here->now;
	arrive_in_call(here, thread->call);
	here->state->waited = thread->waited;
	here->state->waited_since = thread->waited_since;
	here->state->waited_detail = thread->waited_detail;
	here->state->waker_coded = thread->waker_coded;
}

/* The thread's activity is unknown from `seen` until the thread is seen again. */
static __noinline void lose_thread(struct here *here, __u32 tid, __u64 seen)
{
	struct followed_thread *thread = followed(tid);

	if (!thread)
		return;
	thread->lock = 0;
	leave_with_call(here, thread);
	/* The thread may already run on another CPU, and may have started there after `seen`. */
	if (thread->detail == DETAIL_NONE && thread->since < seen)
		thread->since = seen;
}

/* It is unknown when the thread arrived, so the time since `seen` counts as missed. */
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
	thread->stack = 0;
	thread->lock = 0;
	arrive_in_call(here, CALL_USER);
}

/* Notes when a freezer freezes a thread. A thread that is asleep stays where it is. */
static __always_inline int note_freeze(struct task_struct *task)
{
	struct followed_thread *thread = followed(task->pid);

	if (unlikely(thread && !(state_of(task) & TASK_FROZEN)))
		thread->frozen_at = bpf_ktime_get_ns();
	return 0;
}

/* The thread that is being woken was frozen until now. */
static __noinline void note_thaw(__u32 tid)
{
	struct followed_thread *thread = followed(tid);

	if (thread)
		thread->woken_frozen = 1;
}

/*
 * A thread that waited for a lock is being woken, usually by the thread that has just released the
 * lock. The stack shows in which function it did so.
 */
static __noinline void note_release(void *ctx, struct here *here, __u32 tid)
{
	struct followed_thread *thread = followed(tid);

	if (!thread || thread->detail != DETAIL_LOCK || here->now - thread->since < RELEASED_NS ||
	    summing)
		return;
	thread->release = kernel_stack(ctx, 0);
}

/*
 * Emits the time from the expiry that a sleeping thread requested to its wake-up. The record's own
 * time is the part that the thread's timer slack allows.
 */
static __noinline void end_timer(struct here *here, struct followed_thread *thread,
				 struct task_struct *task)
{
	__u64 asked = thread->asked, slack = thread->latest - thread->asked;
	struct frame late = {};

	if (here->state->opened == OPENING || summing || thread->detail != DETAIL_SLEEPING ||
	    asked < thread->since || asked > here->now)
		return;
	late.start = within_books(here, asked);
	late.detail = DETAIL_TIMER;
	late.id = task->pid;
	late.kind = KIND_WAIT;
	hand_out(here, &late, here->now - late.start,
		 slack < here->now - late.start ? slack : here->now - late.start, task);
}

/*
 * Handles a thread that was frozen while asleep. If the time of the freeze is unknown, the thread
 * was still asleep when the freezer came, so it was frozen when its timer expired at the latest.
 */
static __noinline void end_sleep_before_freeze(struct here *here, struct followed_thread *thread,
					       struct task_struct *task)
{
	__u64 at = thread->frozen_at;

	if (at <= thread->since)
		at = thread->asked;
	if (at <= thread->since || at >= here->now)
		return;
	end_absence(here, thread, task, at);
	thread->detail = DETAIL_FROZEN;
	thread->since = at;
}

/* Notes the length of a wait that ends now, if it is the longest in its system call. */
static __always_inline void note_length(struct followed_thread *thread, __u64 now)
{
	if (!waits_somewhere(thread) || now - thread->since <= thread->waited)
		return;
	thread->waited = now - thread->since;
	thread->waited_since = thread->since;
	thread->waited_detail = thread->detail;
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
	if (thread->asked)
		end_timer(&here, thread, task);
	if (unlikely(thread->woken_frozen))
		end_sleep_before_freeze(&here, thread, task);
	end_absence(&here, thread, task, here.now);
	note_length(thread, here.now);
	thread->detail = DETAIL_WOKEN;
	thread->stack = 0;
	thread->since = here.now;
	/* The thread joined a queue whose cgroup has used up its quota. */
	if (unlikely(is_throttled(task))) {
		thread->detail = DETAIL_THROTTLED;
		begin_wait(&here, task);
	}
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
	account_followed(here, &born, here->now, task, 0);
}

/*
 * The current thread has created a child: either a thread or a new process. Follows the child if
 * the current thread is followed.
 */
static __always_inline int follow_child(struct task_struct *child)
{
	__u32 tid = FIELD(current_task(), pid);
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

/*
 * A thread that calls exec takes over the ID of its process's first thread. The first thread may
 * still wait for a CPU, on which it will exit. Its entry makes room for the other thread.
 */
static __always_inline int change_number(struct task_struct *task, __u32 before)
{
	struct followed_thread *thread, *first;
	struct here here;
	__u32 tid = task->pid;

	if (likely(before == tid))
		return 0;
	thread = followed(before);
	if (!thread || !arrive(&here) || !here.state->opened)
		return 0;
	first = followed(tid);
	if (first && first->detail != DETAIL_NONE)
		end_absence(&here, first, task, here.now);
	/* The thread's current run ends under its old ID, and continues under the new one. */
	split_stretch(&here, task, DETAIL_NONE);
	if (here.state->thread == (__u64)task)
		here.state->stack[0].id = tid;
	bpf_map_update_elem(&threads, &tid, thread, 0);
	bpf_map_delete_elem(&threads, &before);
	mark_birth(&here, task);
	return 0;
}

#endif
