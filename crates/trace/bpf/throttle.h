/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/* Waits of threads that a quota keeps off their CPU: from being taken off it to the next switch to them. */
#ifndef TICKTAX_THROTTLE_H
#define TICKTAX_THROTTLE_H

#include "books.h"

/* When each throttled thread was taken off its CPU, by thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THROTTLED);
	__type(key, __u32);
	__type(value, __u64);
} throttled SEC(".maps");

/* How many there are, so that a switch looks only where there is something to find. */
__s64 throttled_now = 0;

/* Of a wait that began while the books were not open yet, what is in them. */
static __always_inline __u64 within_books(const struct here *here, __u64 start)
{
	__u64 since = here->control->since;

	return start < since ? since : start;
}

static __noinline void begin_wait(struct here *here, struct task_struct *task)
{
	__u32 tid = task->pid;

	if (!bpf_map_update_elem(&throttled, &tid, &here->now, 0))
		__sync_fetch_and_add(&throttled_now, 1);
}

static __noinline void forget_wait(struct task_struct *task)
{
	__u32 tid = task->pid;

	if (!bpf_map_delete_elem(&throttled, &tid))
		__sync_fetch_and_add(&throttled_now, -1);
}

static __noinline void end_wait(struct here *here, struct task_struct *task)
{
	struct cpu_state *state = here->state;
	struct frame ended = {};
	__u32 tid = task->pid;
	__u64 *since = bpf_map_lookup_elem(&throttled, &tid);

	if (!since)
		return;
	ended.start = within_books(here, *since);
	ended.detail = DETAIL_THROTTLED;
	ended.id = tid;
	ended.kind = KIND_WAIT;
	forget_wait(task);
	/* At a switch the thread that comes is not the running one yet. */
	state->seen_tgid = task->tgid;
	copy_name(state->seen_comm, task);
	account(here, &ended, here->now, 0);
}

#endif
