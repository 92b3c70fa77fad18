/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Detects late frames of paced threads, which trigger the flight recorder. The reader learns from
 * the ring which thread runs frames and how often, and stores this in a rule. The next due time is
 * kept here, because only a switch shows when a frame started. books.h includes this after
 * trigger.h.
 *
 * Frames and due times are the same as in crates/analysis/src/pace/frames.rs, except that only past
 * frames determine the grid.
 */
#ifndef TICKTAX_FRAMES_H
#define TICKTAX_FRAMES_H

/* Thread states. A run lasts from one sleep to the next; preemption does not end it. */
#define STANDS_RUNNING 1
#define STANDS_READY 2
#define STANDS_ASLEEP 3

/* State of one rule's thread. Written by the CPU on which the thread arrives or leaves. */
struct frame_clock {
	__u64 armed;  /* the rhythm that `due` belongs to */
	__u64 due;    /* ns: when the next frame is due */
	__u64 began;  /* ns: when the run started */
	__u64 came;   /* ns: when the thread got its CPU */
	__u64 ran;    /* ns: CPU time of the run before `came` */
	__u64 late;   /* ns: how late the last frame started */
	__u64 least;  /* ns: smallest delay after the start of a slot in this round */
	__u32 round;  /* number of frames in this round */
	__u32 cpu;    /* CPU on which the run started */
	__u32 stands; /* one of the states above; 0 before the thread was seen */
	__u32 is_run; /* whether the start of the run was seen */
	__u32 blind;  /* whether a frame may have started unseen since the last one */
	__u32 unused; /* unused */
	__u64 left;   /* the thread's switch count when it was last seen leaving a CPU */
};

/* Frames per round. The earliest frame of a round marks where slots start. */
#define ROUND 64
#define NEVER_LATE (~0ULL)

/*
 * A frame may start up to a quarter of a period early (period / EARLY). After skipped slots, it may
 * start up to an eighth of a period early (period / EARLY_AFTER_LOST).
 */
#define EARLY 4
#define EARLY_AFTER_LOST 8

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRIGGER_RULES);
	__type(key, __u32);
	__type(value, struct frame_clock);
} frame_clocks SEC(".maps");

static __always_inline struct frame_clock *frame_clock(__u32 rule)
{
	__u32 place = rule;

	return bpf_map_lookup_elem(&frame_clocks, &place);
}

/*
 * Returns whether the new run is a frame, and stores how late it is. Only one run per slot counts.
 * Timers never fire early, so a frame before the expected start of its slot marks the actual start.
 * If every frame in a round was late, the one with the smallest delay marks it. The loop has then
 * restarted, or its clock differs slightly from the learnt rate.
 *
 * Frames start within about 100 us of the start of their slot. If the previous slot is empty, a
 * frame just before the start of a slot counts for that slot. If it counted as a very late frame of
 * the previous slot, the next frame would be due immediately.
 */
static __always_inline int is_frame(struct frame_clock *clock, const struct trigger_rule *rule)
{
	__u64 began = clock->began, period = rule->period, slot = began, late = 0, within;

	if (clock->armed != rule->armed) {
		clock->armed = rule->armed;
		clock->due = rule->due;
		clock->round = 0;
		clock->least = NEVER_LATE;
		clock->blind = 1;
	}
	if (began + period / EARLY < clock->due)
		return 0;
	if (began > clock->due)
		late = began - clock->due;
	if (late && !rule->rearmed) {
		slot = clock->due + (late + period / EARLY_AFTER_LOST) / period * period;
		if (late < slot - clock->due)
			late = slot - clock->due;
	}
	within = began > slot ? began - slot : 0;
	clock->due = slot + period;
	if (clock->blind) {
		clock->blind = 0;
		return 0;
	}
	clock->late = late;
	if (within < clock->least)
		clock->least = within;
	clock->round++;
	if (clock->round >= ROUND) {
		clock->due += clock->least;
		clock->round = 0;
		clock->least = NEVER_LATE;
	}
	return 1;
}

/*
 * Updates a frame clock when the rule's thread arrives on a CPU or leaves it. `what` is the
 * thread's new state. Returns whether a run counts as a frame now. A run counts when it starts or,
 * if only long runs count, when it ends after running long enough. After a missed switch, a frame
 * may have started without being noticed. The next frame then only sets the slot.
 */
static __always_inline int step_frame(struct frame_clock *clock, const struct trigger_rule *rule, __u32 cpu,
				      __u64 now, __u32 what, __u64 left)
{
	__u32 stood = clock->stands;

	clock->stands = what;
	if (what == STANDS_RUNNING) {
		clock->came = now;
		/* Both an arrival and a departure were missed. */
		if (clock->left != left)
			clock->blind = 1;
		if (stood == STANDS_READY)
			return 0;
		clock->is_run = stood == STANDS_ASLEEP;
		clock->began = now;
		clock->ran = 0;
		clock->cpu = cpu;
		if (!clock->is_run) {
			clock->blind = 1;
			return 0;
		}
		return !rule->long_from && is_frame(clock, rule);
	}
	clock->left = left;
	if (stood != STANDS_RUNNING) {
		clock->is_run = 0;
		clock->blind = 1;
		return 0;
	}
	clock->ran += now - clock->came;
	return what == STANDS_ASLEEP && clock->is_run && rule->long_from &&
	       clock->ran >= rule->long_from && is_frame(clock, rule);
}

/* Emits a trigger for the late frame of a rule's thread, which is `task`. */
static __always_inline void hand_out_frame(struct cpu_state *state, const struct trigger_plan *plan, __u32 rule,
					   const struct task_struct *task)
{
	struct frame_clock *clock = frame_clock(rule);
	struct trigger_record *record;

	if (!clock)
		return;
	record = begin_trigger(state);
	if (!record)
		return;
	record->time = clock->began;
	record->lasted = clock->late;
	record->over = plan->rules[rule].over;
	record->detail = 0;
	record->tid = plan->rules[rule].tid;
	record->cpu = clock->cpu;
	record->trigger = TRIGGER_FRAME;
	record->kind = 0;
	record->rule = rule;
	bpf_probe_read_kernel(&record->tgid, sizeof(record->tgid),
			      __builtin_preserve_access_index(&task->tgid));
	bpf_probe_read_kernel(&record->comm, sizeof(record->comm),
			      __builtin_preserve_access_index(&task->comm));
	bpf_ringbuf_submit(record, 0);
}

/*
 * The slow path of watch_frames(), for threads that may have a rule. This is a global function,
 * which the verifier checks only once. Rules for the same thread share a rhythm, so any of their
 * clocks will do.
 */
__noinline int follow_frames(__u32 cpu, __u64 now, __u32 tid, __u32 what)
{
	struct cpu_state *state = bpf_map_lookup_elem(&states, &cpu);
	struct trigger_plan *plan = plan_of_triggers();
	volatile __u32 *fitting, *firing;
	const struct task_struct *task;
	struct frame_clock *clock;
	__u64 left = 0, forced = 0;
	__u32 counted, first;

	if (!state || !plan || !tid)
		return 0;
	/* An arriving thread is already in `state->thread`, and a leaving one is still current. */
	if (what == STANDS_RUNNING)
		task = (const void *)state->thread;
	else
		task = current_task();
	bpf_probe_read_kernel(&left, sizeof(left), __builtin_preserve_access_index(&task->nvcsw));
	bpf_probe_read_kernel(&forced, sizeof(forced), __builtin_preserve_access_index(&task->nivcsw));
	left += forced;
	/* rules_of_wait() explains why these are not local variables. */
	fitting = &state->fitting;
	firing = &state->firing;
	*fitting = 0;
	*firing = 0;
#pragma unroll
	for (__u32 i = 0; i < TRIGGER_RULES; i++) {
		const struct trigger_rule *rule = &plan->rules[i];

		if (rule->tid != tid)
			continue;
		clock = frame_clock(i);
		if (!clock || !step_frame(clock, rule, cpu, now, what, left))
			continue;
		*fitting |= 1U << i;
		if (clock->late >= rule->over)
			*firing |= 1U << i;
	}
	counted = *fitting & plan->counted[TRIGGER_FRAME];
	if (counted) {
		clock = frame_clock(bits_set((counted & -counted) - 1) & (TRIGGER_RULES - 1));
		if (clock)
			count_length(cpu, counted, clock->late);
	}
	first = *firing;
	if (!first || !may_trigger(state, now))
		return 0;
	first = bits_set((first & -first) - 1) & (TRIGGER_RULES - 1);
	hand_out_frame(state, plan, first, task);
	return 0;
}

/*
 * Updates the frame clocks at a switch. `what` is the new state of the thread that arrives or
 * leaves. Returns early if no rule can match.
 */
static __always_inline void watch_frames(struct here *here, const struct trigger_plan *plan, __u32 tid, __u32 what)
{
	if (likely(!plan || !(plan->framed >> (tid & 31) & 1)))
		return;
	follow_frames(here->cpu, here->now, tid, what);
}

#endif
