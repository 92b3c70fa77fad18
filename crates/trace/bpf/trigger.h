/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * The flight recorder's triggers: what lasted so long that the ring is worth keeping.
 *
 * Since when a thread is off its CPU stands in `waiting`, a table in which a thread's number gives its
 * place: one store when it leaves or is woken, one look when it comes, and no lock. Two threads with one
 * place push each other out, which can lose a trigger and make none. books.h includes this after the
 * maps.
 */
#ifndef TICKTAX_TRIGGER_H
#define TICKTAX_TRIGGER_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader: WAITING_SLOTS for the flight recorder */
	__type(key, __u32);
	__type(value, __u64);
} waiting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct trigger_plan);
} trigger_plans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536); /* the loader: a page where nothing triggers */
} triggers SEC(".maps");

/*
 * An entry of `waiting`: the time, the bits of the thread's number that its place does not tell, and one of
 * `enum trigger`. Times are compared modulo 2^55 ns, a year.
 */
#define WAITING_TIME 9
#define WAITING_TAG (127ULL << 2)
#define WAITING_WHY 3ULL

static __always_inline __u64 waiting_tag(__u32 tid)
{
	return ((__u64)tid / WAITING_SLOTS) << 2 & WAITING_TAG;
}

static __always_inline __u64 waiting_entry(__u64 time, __u32 tid, __u64 why)
{
	return time << WAITING_TIME | waiting_tag(tid) | why;
}

static __always_inline __u64 *waiting_slot(__u32 tid)
{
	__u32 place = tid & (WAITING_SLOTS - 1);

	return bpf_map_lookup_elem(&waiting, &place);
}

static __always_inline int is_of(__u64 entry, __u32 tid)
{
	return entry && (entry & WAITING_TAG) == waiting_tag(tid);
}

static __always_inline __u64 waited_until(__u64 entry, __u64 now)
{
	return ((now << WAITING_TIME) - (entry >> WAITING_TIME << WAITING_TIME)) >> WAITING_TIME;
}

static __always_inline struct trigger_plan *plan_of_triggers(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&trigger_plans, &first);
}

/* Whether this CPU may hand out another: a bad second must not become a bad second of triggers. */
static __always_inline int may_trigger(struct here *here)
{
	struct cpu_state *state = here->state;

	if (here->now - state->burst_began >= BURST_NS) {
		state->burst_began = here->now;
		state->burst = 0;
	}
	if (state->burst >= BURST) {
		state->suppressed++;
		return 0;
	}
	state->burst++;
	return 1;
}

#define CGROUP_LEVELS 12

static __noinline int is_in_cgroup(struct task_struct *task, __u64 wanted)
{
	struct cgroup_subsys_state *css = 0;
	struct css_set *set = 0;
	struct cgroup *group = 0;
	struct kernfs_node *node = 0;
	__u64 id = 0;

	if (!bpf_core_field_exists(task->cgroups))
		return 0;
	bpf_probe_read_kernel(&set, sizeof(set), __builtin_preserve_access_index(&task->cgroups));
	bpf_probe_read_kernel(&group, sizeof(group),
			      __builtin_preserve_access_index(&set->dfl_cgrp));
	for (int i = 0; i < CGROUP_LEVELS; i++) {
		if (!group)
			return 0;
		bpf_probe_read_kernel(&node, sizeof(node),
				      __builtin_preserve_access_index(&group->kn));
		bpf_probe_read_kernel(&id, sizeof(id), __builtin_preserve_access_index(&node->id));
		if (id == wanted)
			return 1;
		bpf_probe_read_kernel(&css, sizeof(css),
				      __builtin_preserve_access_index(&group->self.parent));
		if (!css)
			return 0;
		bpf_probe_read_kernel(&group, sizeof(group),
				      __builtin_preserve_access_index(&css->cgroup));
	}
	return 0;
}

static __always_inline int is_named(const struct task_struct *task, const struct trigger_rule *rule)
{
	return *(const __u64 *)&task->comm[0] == *(const __u64 *)&rule->comm[0] &&
	       *(const __u64 *)&task->comm[8] == *(const __u64 *)&rule->comm[8];
}

static __always_inline int is_wanted(struct task_struct *task, const struct trigger_rule *rule)
{
	if (rule->who == WHO_ANY)
		return 1;
	if (rule->who == WHO_PROCESS)
		return task->tgid == rule->tgid;
	if (rule->who == WHO_NAME)
		return is_named(task, rule) || is_named(task->group_leader, rule);
	return is_in_cgroup(task, rule->cgroup);
}

#define NO_RULE (~0U)

/* The first rule that this is a trigger by. `task` is 0 where it is the kernel's. */
static __always_inline __u32 rule_of(struct trigger_plan *plan, struct task_struct *task, __u64 lasted,
				     __u64 why)
{
	for (__u32 i = 0; i < TRIGGER_RULES; i++) {
		const struct trigger_rule *rule = &plan->rules[i];

		if (!(rule->triggers >> (why & 7) & 1) || lasted < rule->over)
			continue;
		if (!task || is_wanted(task, rule))
			return i;
	}
	return NO_RULE;
}

static __always_inline void hand_over(struct here *here, struct trigger_record *record)
{
	record->time = here->now;
	record->cpu = here->cpu;
	/* Wakes the reader by an interrupt of this CPU's, after the lock of the run queue. */
	if (bpf_ringbuf_output(&triggers, record, sizeof(*record), 0))
		here->state->suppressed++;
}

static __noinline void trigger_wait(struct here *here, struct task_struct *task, __u64 lasted, __u64 why)
{
	struct trigger_plan *plan = plan_of_triggers();
	struct trigger_record record = {};

	if (!plan || task->tgid == plan->own)
		return;
	record.rule = rule_of(plan, task, lasted, why);
	if (record.rule == NO_RULE || !may_trigger(here))
		return;
	record.lasted = lasted;
	record.trigger = why;
	record.tid = task->pid;
	record.tgid = task->tgid;
	((__u64 *)record.comm)[0] = *(const __u64 *)&task->comm[0];
	((__u64 *)record.comm)[1] = *(const __u64 *)&task->comm[8];
	hand_over(here, &record);
}

static __always_inline int is_too_long(__u64 lasted, __u64 why)
{
	struct trigger_plan *plan = plan_of_triggers();

	return plan && lasted >= plan->limits[why & WAITING_WHY];
}

/* At a switch: from now on the thread is off its CPU. `left` is one of `enum detail`. */
static __always_inline void note_leaving(struct here *here, struct task_struct *task, __u32 left)
{
	__u32 tid = task->pid;
	__u64 *slot = waiting_slot(tid);

	if (!slot || !tid)
		return;
	if (left == DETAIL_PREEMPTED)
		*slot = waiting_entry(here->now, tid, TRIGGER_PREEMPTED);
	else if (left == DETAIL_DISK || left == DETAIL_LOCK)
		*slot = waiting_entry(here->now, tid, TRIGGER_BLOCKED);
	else if (left == DETAIL_THROTTLED)
		*slot = waiting_entry(here->now, tid, TRIGGER_THROTTLED);
	else if (is_of(*slot, tid))
		*slot = 0;
}

/* From now on the thread waits for a CPU, unless it does already. */
static __always_inline void note_waking(struct here *here, struct task_struct *task)
{
	__u32 tid = task->pid;
	__u64 *slot = waiting_slot(tid);
	__u64 entry, why, lasted;

	if (!slot)
		return;
	entry = *slot;
	why = entry & WAITING_WHY;
	if (is_of(entry, tid) && why != TRIGGER_WOKEN) {
		if (why != TRIGGER_BLOCKED)
			return;
		lasted = waited_until(entry, here->now);
		if (unlikely(is_too_long(lasted, TRIGGER_BLOCKED)))
			trigger_wait(here, task, lasted, TRIGGER_BLOCKED);
	}
	*slot = waiting_entry(here->now, tid, TRIGGER_WOKEN);
}

/* At a switch: the thread has a CPU. */
static __always_inline void look_at_wait(struct here *here, struct task_struct *task)
{
	__u32 tid = task->pid;
	__u64 *slot = waiting_slot(tid);
	__u64 entry, lasted;

	if (!slot || !tid)
		return;
	entry = *slot;
	if (!is_of(entry, tid))
		return;
	*slot = 0;
	lasted = waited_until(entry, here->now);
	if (unlikely(is_too_long(lasted, entry & WAITING_WHY)))
		trigger_wait(here, task, lasted, entry & WAITING_WHY);
}

/* What ended had its CPU in one piece: was it the kernel's, and too long? */
static __always_inline void look_at_stretch(struct here *here, const struct frame *frame, __u64 dur,
					    struct task_struct *task)
{
	struct trigger_plan *plan = plan_of_triggers();
	struct trigger_record record = {};

	if (likely(!plan || dur < plan->limits[TRIGGER_STRETCH]))
		return;
	if (frame->flags & (FLAG_FUNCTION | FLAG_UNREPORTED))
		return;
	if (frame->kind == KIND_TASK ? !(frame->flags & FLAG_KERNEL_THREAD) :
				       frame->kind < KIND_SOFTIRQ || frame->kind > KIND_NMI)
		return;
	record.rule = rule_of(plan, 0, dur, TRIGGER_STRETCH);
	if (record.rule == NO_RULE || !may_trigger(here))
		return;
	record.lasted = dur;
	record.detail = frame->detail;
	record.trigger = TRIGGER_STRETCH;
	record.kind = frame->kind;
	record.tid = frame->id;
	if (frame->kind == KIND_TASK && task) {
		record.tgid = task->tgid;
		((__u64 *)record.comm)[0] = *(const __u64 *)&task->comm[0];
		((__u64 *)record.comm)[1] = *(const __u64 *)&task->comm[8];
	}
	hand_over(here, &record);
}

#endif
