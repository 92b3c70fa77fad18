/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Triggers of the flight recorder: delays that are long enough to save the ring.
 *
 * The table `waiting`, indexed by thread ID, stores when each thread went off CPU. This costs one
 * store when the thread leaves or is woken, one look-up when it runs again, and no lock. Two
 * threads that share a slot evict each other. This can lose a trigger but never causes a false one.
 * books.h includes this after the maps.
 */
#ifndef TICKTAX_TRIGGER_H
#define TICKTAX_TRIGGER_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets WAITING_SLOTS for the flight recorder */
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

/* Histograms of the delays seen by counting rules: one per rule and CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets CPUs * TRIGGER_RULES for the flight recorder */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct rule_histogram);
} rule_lengths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536); /* the loader sets one page if there are no triggers */
} triggers SEC(".maps");

/*
 * Layout of an entry of `waiting`: the time, the bits of the thread ID that the slot does not
 * imply, and one of `enum trigger`. Times are compared modulo 2^55 ns, which is more than a year.
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

/* Returns whether this CPU may emit another trigger. Limits the number of triggers per second. */
static __always_inline int may_trigger(struct cpu_state *state, __u64 now)
{
	if (now - state->burst_began >= BURST_NS) {
		state->burst_began = now;
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
	struct name name = name_of(task);

	return name.words[0] == *(const __u64 *)&rule->comm[0] &&
	       name.words[1] == *(const __u64 *)&rule->comm[8];
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

/*
 * Counts the length of a delay for each rule in `rules`, a set of bits. Only rules whose threshold
 * is a percentile count lengths. The reader computes the threshold from the counts.
 */
static __always_inline void count_length(__u32 cpu, __u32 rules, __u64 length)
{
	__u32 at = bucket(length);

#pragma unroll
	for (__u32 i = 0; i < TRIGGER_RULES; i++) {
		__u32 place = cpu * TRIGGER_RULES + i, index = at;
		struct rule_histogram *histogram;

		if (!(rules >> i & 1))
			continue;
		histogram = bpf_map_lookup_elem(&rule_lengths, &place);
		/* Makes the compiler use the index that was checked. */
		barrier_var(index);
		if (histogram && index < HISTOGRAM_BUCKETS)
			add(&histogram->counts[index], 1);
	}
}

/* Same as count_length(), but a global function, which the verifier checks only once. */
__noinline int count_wait(__u32 cpu, __u32 rules, __u64 length)
{
	count_length(cpu, rules, length);
	return 0;
}

#define NO_RULE (~0U)

/*
 * Stores the rules that match a thread's wait, and the rules that it triggers, as sets of bits in
 * the CPU's state. If these were local variables, the verifier would track every possible value
 * from rule to rule.
 */
static __always_inline void rules_of_wait(struct cpu_state *state, const struct trigger_plan *plan,
					  struct task_struct *task, __u64 lasted, __u64 why)
{
	volatile __u32 *fitting = &state->fitting, *firing = &state->firing;
	__u32 counted = plan->counted[why & WAITING_WHY];

	*fitting = 0;
	*firing = 0;
#pragma unroll
	for (__u32 i = 0; i < TRIGGER_RULES; i++) {
		const struct trigger_rule *rule = &plan->rules[i];

		if (!(rule->triggers >> (why & WAITING_WHY) & 1))
			continue;
		if (lasted < rule->over && !(counted >> i & 1))
			continue;
		if (!is_wanted(task, rule))
			continue;
		*fitting |= 1U << i;
		if (lasted >= rule->over)
			*firing |= 1U << i;
	}
}

/* Returns the first rule that an uninterrupted run of kernel code triggers, or NO_RULE. */
static __always_inline __u32 rule_of_stretch(const struct trigger_plan *plan, __u64 lasted)
{
#pragma unroll
	for (__u32 i = 0; i < TRIGGER_RULES; i++) {
		const struct trigger_rule *rule = &plan->rules[i];

		if (rule->triggers >> TRIGGER_STRETCH & 1 && lasted >= rule->over)
			return i;
	}
	return NO_RULE;
}

/*
 * Reserves a record in the ring buffer, or returns 0 if the buffer is full. A record on the stack
 * would be too large for old kernels.
 */
static __always_inline struct trigger_record *begin_trigger(struct cpu_state *state)
{
	struct trigger_record *record = bpf_ringbuf_reserve(&triggers, sizeof(*record), 0);

	if (!record)
		state->suppressed++;
	return record;
}

static __noinline void trigger_wait(struct here *here, struct task_struct *task, __u64 lasted, __u64 why)
{
	struct trigger_plan *plan = plan_of_triggers();
	struct cpu_state *state = here->state;
	struct trigger_record *record;
	__u32 counted, firing, rule;

	if (!plan || task->tgid == plan->own)
		return;
	rules_of_wait(state, plan, task, lasted, why);
	counted = plan->counted[why & WAITING_WHY];
	if (counted)
		count_wait(here->cpu, state->fitting & counted, lasted);
	firing = state->firing;
	if (!firing || !may_trigger(state, here->now))
		return;
	record = begin_trigger(state);
	if (!record)
		return;
	/* Index of the lowest set bit, computed without a branch. */
	rule = bits_set((firing & -firing) - 1) & (TRIGGER_RULES - 1);
	record->time = here->now;
	record->lasted = lasted;
	record->over = plan->rules[rule].over;
	record->detail = 0;
	record->tid = task->pid;
	record->tgid = task->tgid;
	record->cpu = here->cpu;
	record->trigger = why;
	record->kind = 0;
	record->rule = rule;
	copy_name(record->comm, task);
	/* Wakes the reader with an interrupt on this CPU, once the run-queue lock is released. */
	bpf_ringbuf_submit(record, 0);
}

/* Returns whether a delay reaches the limit, which is 0 if all delays must be counted. */
static __always_inline int is_too_long(const struct trigger_plan *plan, __u64 lasted, __u64 why)
{
	return plan && lasted >= plan->limits[why & WAITING_WHY];
}

/* At a switch, stores when and why (`left`, one of `enum detail`) a thread goes off CPU. */
static __always_inline void note_leaving(struct here *here, __u32 tid, __u32 left)
{
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

/*
 * Stores at a wake-up that the thread starts to wait for a CPU, unless it is waiting already.
 * Checks whether the thread was blocked for too long.
 */
static __always_inline void note_waking(void *ctx, struct here *here, struct task_struct *task,
					__u32 tid)
{
	__u64 *slot = waiting_slot(tid);
	__u64 entry, why, lasted;
	int is_long;

	if (!slot)
		return;
	entry = *slot;
	why = entry & WAITING_WHY;
	if (is_of(entry, tid) && why != TRIGGER_WOKEN) {
		if (why != TRIGGER_BLOCKED)
			return;
		lasted = waited_until(entry, here->now);
		is_long = is_too_long(plan_of_triggers(), lasted, TRIGGER_BLOCKED);
		if (unlikely(lasted >= RELEASED_NS && (is_long || may_note(here))))
			note_wait(ctx, here, task);
		if (unlikely(is_long))
			trigger_wait(here, task, lasted, TRIGGER_BLOCKED);
	}
	*slot = waiting_entry(here->now, tid, TRIGGER_WOKEN);
}

/* At a switch, checks whether the arriving thread waited too long. */
static __always_inline void look_at_wait(struct here *here, const struct trigger_plan *plan,
					 struct task_struct *task, __u32 tid)
{
	__u64 *slot = waiting_slot(tid);
	__u64 entry, lasted;

	if (!slot || !tid)
		return;
	entry = *slot;
	if (!is_of(entry, tid))
		return;
	*slot = 0;
	lasted = waited_until(entry, here->now);
	if (unlikely(is_too_long(plan, lasted, entry & WAITING_WHY)))
		trigger_wait(here, task, lasted, entry & WAITING_WHY);
}

/*
 * Counts an uninterrupted run of kernel code, and emits a trigger if a rule matches. `what` is the
 * kind, with the ID in its upper half. A global function, which the verifier checks only once.
 */
__noinline int trigger_stretch(__u32 cpu, __u64 now, __u64 lasted, __u64 detail, __u64 what)
{
	struct cpu_state *state = bpf_map_lookup_elem(&states, &cpu);
	struct trigger_plan *plan = plan_of_triggers();
	struct trigger_record *record;
	struct task_struct *task;
	__u32 rule;

	if (!plan || !state)
		return 0;
	if (plan->counted[TRIGGER_STRETCH])
		count_length(cpu, plan->counted[TRIGGER_STRETCH], lasted);
	rule = rule_of_stretch(plan, lasted);
	if (rule == NO_RULE || !may_trigger(state, now))
		return 0;
	record = begin_trigger(state);
	if (!record)
		return 0;
	record->time = now;
	record->lasted = lasted;
	record->over = plan->rules[rule & (TRIGGER_RULES - 1)].over;
	record->detail = detail;
	record->tid = what >> 32;
	record->tgid = 0;
	record->cpu = cpu;
	record->trigger = TRIGGER_STRETCH;
	record->kind = what;
	record->rule = rule;
	((__u64 *)record->comm)[0] = 0;
	((__u64 *)record->comm)[1] = 0;
	/* At a switch, the leaving thread is still the current one. */
	task = current_task();
	if ((__u8)what == KIND_TASK && FIELD(task, pid) == (__u32)(what >> 32)) {
		record->tgid = FIELD(task, tgid);
		copy_name(record->comm, task);
	}
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/* Checks whether the interval that just ended was kernel code that ran too long without a break. */
static __always_inline void look_at_stretch(struct here *here, const struct frame *frame, __u64 dur)
{
	struct trigger_plan *plan = plan_of_triggers();

	if (likely(!plan || dur < plan->limits[TRIGGER_STRETCH]))
		return;
	if (frame->flags & (FLAG_FUNCTION | FLAG_UNREPORTED))
		return;
	if (frame->kind == KIND_TASK ? !(frame->flags & FLAG_KERNEL_THREAD) :
				       frame->kind < KIND_SOFTIRQ || frame->kind > KIND_NMI)
		return;
	trigger_stretch(here->cpu, here->now, dur, frame->detail,
			(__u64)frame->id << 32 | frame->kind);
}

#endif
