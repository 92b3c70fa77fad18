/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Frames of a paced thread that begin late, as triggers of the flight recorder. Which thread has a program's frames, and how
 * often one is due, the reader learns from the ring and says in a rule; when the next one is due is kept here, since only a
 * switch knows when one began. books.h includes this after trigger.h.
 *
 * What is a frame, and when it was due, is as crates/analysis/src/pace/frames.rs has it, but for what only the frames to come
 * would tell: where the grid lies is told by those before.
 */
#ifndef TICKTAX_FRAMES_H
#define TICKTAX_FRAMES_H

/* Where a thread stands. A run of it goes on from a sleep to the next one; being preempted does not end it. */
#define STANDS_RUNNING 1
#define STANDS_READY 2
#define STANDS_ASLEEP 3

/* Of one rule, what its thread does. Written by the CPU that the thread comes to or leaves. */
struct frame_clock {
	__u64 armed;  /* the rhythm that `due` goes by */
	__u64 due;    /* ns: when the next frame is */
	__u64 began;  /* ns: when the run began */
	__u64 came;   /* ns: when the thread came to its CPU */
	__u64 ran;    /* ns: CPU time of the run before that */
	__u64 late;   /* ns: how late the last frame began */
	__u64 least;  /* ns: the least that a frame of this round was late within its slot */
	__u32 round;  /* frames of this round */
	__u32 cpu;    /* where the run began */
	__u32 stands; /* one of those above; 0 before it was seen */
	__u32 is_run; /* whether the begin of the run was seen */
	__u32 blind;  /* whether a frame may have begun since the last one, and was not seen */
	__u32 unused; /* nothing */
	__u64 left;   /* how often the thread had left a CPU when it was last seen to */
};

/* Frames of a round, the earliest of which says where slots begin. */
#define ROUND 64
#define NEVER_LATE (~0ULL)

/* Parts of a period by which a frame may begin before its slot: of the next one, and where slots without a frame lie between. */
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
 * Whether the run that began is a frame, and how late it was: one frame a slot, and whatever else wakes the thread in it is
 * none. A timer may be late and never early, so a frame that comes early says where slots begin; and where all frames of a
 * round were late, so does the earliest of them: the loop began anew, or its clock is not quite as fast as was learnt.
 *
 * Frames come some 100 us around their slot's begin. One that comes just before it, and after a slot without a frame, is
 * the later slot's: taken for a very late one of the slot before, it would have the next frame be due at once.
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
 * The thread of a rule came, or left as `what` says. Returns whether it has a frame by that: a run is one as it begins or,
 * where long ones are, once it was long enough and is over. Where a switch was missed a frame may have begun unseen, so
 * the next one only says which slot it is.
 */
static __always_inline int step_frame(struct frame_clock *clock, const struct trigger_rule *rule, __u32 cpu,
				      __u64 now, __u32 what, __u64 left)
{
	__u32 stood = clock->stands;

	clock->stands = what;
	if (what == STANDS_RUNNING) {
		clock->came = now;
		/* It came and left meanwhile, and neither was seen. */
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

/* Its thread is the one that comes or leaves, whose address the caller has. */
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
 * The rest of watch_frames(), for the threads that a rule may be about. A global function, which the verifier looks at once.
 * Rules about one thread go by one rhythm, so any of their clocks tells how late it is.
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
	/* The one that comes is `thread` already, and the one that leaves is still the running one. */
	if (what == STANDS_RUNNING)
		task = (const void *)state->thread;
	else
		task = current_task();
	bpf_probe_read_kernel(&left, sizeof(left), __builtin_preserve_access_index(&task->nvcsw));
	bpf_probe_read_kernel(&forced, sizeof(forced), __builtin_preserve_access_index(&task->nivcsw));
	left += forced;
	/* See rules_of_wait(). */
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

/* At a switch: a thread comes to this CPU or leaves it, as `what` says. One that no rule can be about is done with at once. */
static __always_inline void watch_frames(struct here *here, const struct trigger_plan *plan, __u32 tid, __u32 what)
{
	if (likely(!plan || !(plan->framed >> (tid & 31) & 1)))
		return;
	follow_frames(here->cpu, here->now, tid, what);
}

#endif
