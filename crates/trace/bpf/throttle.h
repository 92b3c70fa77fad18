/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/* Waits of throttled threads, from the switch away from a thread to the next switch to it. */
#ifndef TICKTAX_THROTTLE_H
#define TICKTAX_THROTTLE_H

#include "books.h"

/* Maximum number of throttled threads. */
#define MAX_THROTTLED 16384

/* Throttled threads by thread ID. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THROTTLED);
	__type(key, __u32);
	__type(value, struct throttled_wait);
} throttled SEC(".maps");

/*
 * When each quota timer that may end a thread's throttling last ran, or 0 if it has not run yet.
 * The key is the timer's address. This is needed before 6.6, where queues do not count throttled
 * time. After a refill, a thread is no longer throttled and waits for a CPU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_THROTTLED);
	__type(key, __u64);
	__type(value, __u64);
} refills SEC(".maps");

/* Maximum number of nested cgroups to check. Any ancestor's quota can throttle a thread. */
#define MAX_NESTED 8

/* Value for an unlimited quota: RUNTIME_INF in kernel/sched/sched.h. */
#define NO_QUOTA (~0ULL)

/*
 * Returns whether to split a wait into its throttled part and the wait for a CPU that follows. Only
 * individual spans can show these parts.
 */
static __always_inline int splits_waits(void)
{
	return !summing && !flight;
}

/* Number of throttled threads. While it is 0, switches need no look-up. */
__s64 throttled_now = 0;

/* Returns the start of a wait, but no earlier than the start of accounting. */
static __always_inline __u64 within_books(const struct here *here, __u64 start)
{
	__u64 since = here->control->since;

	return start < since ? since : start;
}

static __always_inline void await_refill(struct hrtimer *timer)
{
	__u64 key = (__u64)timer, never = 0;

	bpf_map_update_elem(&refills, &key, &never, BPF_NOEXIST);
}

/* Registers the timers that may end the throttling of `task`. */
static __noinline void await_refills(struct task_struct *task)
{
	struct task_group *group;

	if (!bpf_core_field_exists(task->sched_task_group) ||
	    !bpf_core_field_exists(((struct task_group *)0)->cfs_bandwidth))
		return;
	group = task->sched_task_group;
	for (int level = 0; level < MAX_NESTED; level++) {
		if (!group)
			break;
		if (group->cfs_bandwidth.quota != NO_QUOTA) {
			await_refill(&group->cfs_bandwidth.period_timer);
			await_refill(&group->cfs_bandwidth.slack_timer);
		}
		group = group->parent;
	}
}

/* Stores the time if `timer` may refill the quota of a throttled thread's cgroup. */
static __always_inline void note_refill(const struct here *here, struct hrtimer *timer)
{
	__u64 key = (__u64)timer, *at;

	if (likely(throttled_now <= 0) || !splits_waits())
		return;
	at = bpf_map_lookup_elem(&refills, &key);
	if (at)
		*at = here->now;
}

/*
 * Returns the total time for which a quota (the queue's own or an ancestor's) has throttled a
 * queue. The kernel adds to it when the queue has quota again. If threads have overrun their quota,
 * this may take more than one refill.
 */
static __always_inline __u64 held_so_far(const struct cfs_rq *queue)
{
	__u64 time = 0;

	bpf_probe_read_kernel(&time, sizeof(time),
			      __builtin_preserve_access_index(&queue->throttled_clock_self_time));
	return time;
}

/*
 * Returns for how long the queue has been throttled now, or 0 if it is not throttled. A thread that
 * is woken joins a queue that may have been throttled long before.
 */
static __always_inline __u64 held_now(const struct cfs_rq *queue)
{
	__u64 since = 0, clock = 0;
	struct rq *rq = 0;

	if (!bpf_core_field_exists(queue->throttled_clock_self) ||
	    !bpf_core_field_exists(queue->rq) || !bpf_core_field_exists(rq->clock))
		return 0;
	bpf_probe_read_kernel(&since, sizeof(since),
			      __builtin_preserve_access_index(&queue->throttled_clock_self));
	bpf_probe_read_kernel(&rq, sizeof(rq), __builtin_preserve_access_index(&queue->rq));
	bpf_probe_read_kernel(&clock, sizeof(clock), __builtin_preserve_access_index(&rq->clock));
	return since && clock > since ? clock - since : 0;
}

static __noinline void begin_wait(struct here *here, struct task_struct *task)
{
	struct throttled_wait wait = { .since = here->now };
	struct cfs_rq *queue = task->se.cfs_rq;
	__u32 tid = task->pid;

	if (!splits_waits())
		goto known;
	if (bpf_core_field_exists(queue->throttled_clock_self_time)) {
		wait.queue = (__u64)queue;
		wait.held = held_so_far(queue) + held_now(queue);
	} else {
		await_refills(task);
	}
known:
	if (!bpf_map_update_elem(&throttled, &tid, &wait, 0))
		add((__u64 *)&throttled_now, 1);
}

static __noinline void forget_wait(struct task_struct *task)
{
	__u32 tid = task->pid;

	if (!bpf_map_delete_elem(&throttled, &tid))
		add((__u64 *)&throttled_now, -1);
}

static __always_inline __u64 later_refill(__u64 latest, struct hrtimer *timer)
{
	__u64 key = (__u64)timer;
	__u64 *at = bpf_map_lookup_elem(&refills, &key);

	return at && *at > latest ? *at : latest;
}

/* Returns when a cgroup of `task` was last refilled, or 0 if that was not after `since`. */
static __noinline __u64 refilled_after(struct task_struct *task, __u64 since)
{
	struct task_group *group;
	__u64 latest = since;

	if (!bpf_core_field_exists(task->sched_task_group) ||
	    !bpf_core_field_exists(((struct task_group *)0)->cfs_bandwidth))
		return 0;
	group = task->sched_task_group;
	for (int level = 0; level < MAX_NESTED; level++) {
		if (!group)
			break;
		latest = later_refill(latest, &group->cfs_bandwidth.period_timer);
		latest = later_refill(latest, &group->cfs_bandwidth.slack_timer);
		group = group->parent;
	}
	return latest > since ? latest : 0;
}

/* Returns when throttling of `task` ended, or 0 if unknown. */
static __always_inline __u64 held_until(struct task_struct *task, const struct throttled_wait *wait)
{
	const struct cfs_rq *queue = (void *)wait->queue;
	__u64 time;

	/* Check again: the verifier does not know that `queue` is 0 without this field. */
	if (!bpf_core_field_exists(queue->throttled_clock_self_time) || !queue)
		return refilled_after(task, wait->since);
	time = held_so_far(queue);
	/* If the time is unchanged, that queue got no quota: the thread has changed queues. */
	return time > wait->held ? wait->since + (time - wait->held) : 0;
}

static __noinline void end_wait(struct here *here, struct task_struct *task)
{
	struct cpu_state *state = here->state;
	struct frame ended = {};
	__u32 tid = task->pid;
	const struct throttled_wait *wait = bpf_map_lookup_elem(&throttled, &tid);
	__u64 until = 0;

	if (!wait)
		return;
	/* A span's own time is the throttled part of its wait. */
	if (splits_waits())
		until = held_until(task, wait);
	if (until && until < here->now)
		ended.child = here->now - until;
	ended.start = within_books(here, wait->since);
	ended.detail = DETAIL_THROTTLED;
	ended.id = tid;
	ended.kind = KIND_WAIT;
	forget_wait(task);
	/* At a switch, the arriving thread is not the current one yet. */
	state->seen_tgid = task->tgid;
	copy_name(state->seen_comm, task);
	account(here, &ended, here->now, 0);
}

#endif
