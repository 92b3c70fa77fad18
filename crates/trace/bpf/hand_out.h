/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Emits an interval that has ended, either as a span in the CPU's ring or as part of a sum. For
 * the flight recorder, does both, with a different ring (ring.h). books.h includes this after the
 * maps.
 */
#ifndef TICKTAX_HAND_OUT_H
#define TICKTAX_HAND_OUT_H

static __always_inline int names_thread(__u8 kind)
{
	return kind == KIND_TASK || kind == KIND_WAIT;
}

/*
 * Stores the owner's name and process ID. The owner is `task` or, if that is 0, the thread in
 * `seen_tgid` and `seen_comm`.
 */
static __always_inline void name_thread(__u32 *tgid, char *comm, const struct here *here,
					struct task_struct *task)
{
	const struct cpu_state *state = here->state;
	__u64 first, second;

	if (likely(task)) {
		*tgid = FIELD(task, tgid);
		copy_name(comm, task);
		return;
	}
	*tgid = state->seen_tgid;
	first = *(const __u64 *)&state->seen_comm[0];
	second = *(const __u64 *)&state->seen_comm[8];
	/* The verifier rejects reading from a thread on one path and from a map on another. */
	barrier_var(first);
	barrier_var(second);
	((__u64 *)comm)[0] = first;
	((__u64 *)comm)[1] = second;
}

#define KIND_AT 32
#define FLAGS_AT 40
#define CPU_AT 48

/*
 * Returns the address of a frame's ID, kind and flags as one word: the frame's last 8 bytes, on a
 * little-endian machine.
 */
static __always_inline __u64 *name_in(struct frame *frame)
{
	return (__u64 *)&frame->id;
}

/* Returns the same word, for a frame in registers. */
static __always_inline __u64 frame_name(const struct frame *frame)
{
	return frame->id | (__u64)frame->kind << KIND_AT | (__u64)frame->flags << FLAGS_AT;
}

/* Returns the key of an entry. It is never 0, because it contains the CPU number plus 1. */
static __always_inline __u64 sum_key(__u64 name, __u32 cpu)
{
	return name | (__u64)(cpu + 1) << CPU_AT;
}

#define SUM_PROBES 8

#define NO_SUM (~0U)

/* Bit in a key, above the CPU number: selects the flight recorder's second table. */
#define SECOND_TABLE (1ULL << 63)

/*
 * Free bits of a key, which pass two more arguments to sum_up(): whether the time belongs to the
 * thread in `seen_tgid` and `seen_comm`, and the value of `left`.
 */
#define SEEN_BEFORE (1ULL << 62)
#define LEFT_AT (KIND_AT + LEFT_SHIFT)
#define BESIDE_KEY (SEEN_BEFORE | 15ULL << LEFT_AT)

/* Returns the slot to check in try number `probe`, for a source on a CPU. */
static __always_inline __u32 sum_place(__u64 key, __u64 detail, __u32 probe)
{
	__u64 hash = (key ^ (detail * 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
	__u32 index = ((__u32)(hash >> 40) + probe) & sum_mask;

	return flight && key & SECOND_TABLE ? index + sum_mask + 1 : index;
}

/*
 * Returns the index of the entry for a source on a CPU, or NO_SUM if none of its slots is free.
 * This is a global function, which the verifier checks only once instead of in every caller.
 */
__noinline __u32 sum_index(__u64 key, __u64 detail)
{
#pragma unroll
	for (int i = 0; i < SUM_PROBES; i++) {
		__u32 index = sum_place(key, detail, i);
		struct sum_record *sum;

		sum = bpf_map_lookup_elem(&sums, &index);
		if (!sum)
			return NO_SUM;
		if (likely(sum->key == key && sum->detail == detail))
			return index;
		if (sum->key == 0 && claim(&sum->key, 0, key)) {
			sum->detail = detail;
			return index;
		}
	}
	return NO_SUM;
}

/* Returns the owner of the time, in the form that name_thread() takes. */
static __always_inline struct task_struct *whose(__u64 what)
{
	return what & SEEN_BEFORE ? 0 : current_task();
}

static __always_inline void add_to_sum(struct here *here, const struct frame *frame, __u64 what,
				       __u64 dur, __s64 self)
{
	__u64 key = what & ~BESIDE_KEY;
	struct sum_record *sum;
	__u8 flags = frame->flags;
	__u32 index, length;

	/* Try the first slot here. It is usually the right one, which saves a call. */
	index = sum_place(key, frame->detail, 0);
	sum = bpf_map_lookup_elem(&sums, &index);
	if (unlikely(!sum || sum->key != key || sum->detail != frame->detail)) {
		index = sum_index(key, frame->detail);
		sum = bpf_map_lookup_elem(&sums, &index);
	}
	if (unlikely(!sum)) {
		/* If the table is full, one entry per CPU collects the rest of each kind. */
		index = here->cpu;
		if (flight)
			index = index * 2 + !!(key & SECOND_TABLE);
		index = index * RESTS_PER_CPU + (frame->kind & 7) * 2 +
			(flags & FLAG_KERNEL_THREAD);
		sum = bpf_map_lookup_elem(&rests, &index);
		if (!sum)
			return;
		flags |= FLAG_REST;
		here->state->folded++;
	}
	if (unlikely(sum->count == 0)) {
		sum->tid = frame->id;
		sum->kind = frame->kind;
		sum->flags = flags;
		sum->cpu = here->cpu;
		if (names_thread(frame->kind))
			name_thread(&sum->tgid, sum->comm, here, whose(what));
	}
	/* The reader takes entries with a count above 0, so the name must be stored first. */
	barrier();
	sum->count++;
	sum->self_ns += self;
	sum->wall += dur;
	if (dur > sum->max)
		sum->max = dur;
	length = bucket(dur);
	if (length < HISTOGRAM_BUCKETS)
		sum->histogram[length]++;
}

/* Room for interrupts that arrive between checking `tail` and claiming a record. */
#define RING_SLACK 16

static __always_inline int ring_is_full(const struct here *here)
{
	return here->state->head - here->control->tail + RING_SLACK > ring_mask;
}

static __always_inline void hand_out(struct here *here, const struct frame *frame, __u64 dur,
				     __s64 self, struct task_struct *task)
{
	struct cpu_state *state = here->state;
	struct span_record *span;
	__u64 number;
	__u32 index;

	if (flight) {
		write_entry(here, frame, dur, self);
		return;
	}
	if (unlikely(ring_is_full(here))) {
		add(&state->lost, 1);
		if (frame->kind != KIND_WAIT)
			add((__u64 *)&state->lost_self, self);
		return;
	}
	/* An interrupt may claim the next record before this one has been written. */
	number = take_number(state);
	index = (here->cpu << ring_order) | (number & ring_mask);
	span = bpf_map_lookup_elem(&spans, &index);
	if (!span)
		return;
	span->start = frame->start;
	span->dur = dur;
	span->self_ns = self;
	span->detail = frame->detail;
	span->kind = frame->kind;
	span->flags = frame->flags;
	span->cpu = here->cpu;
	span->tid = frame->id;
	if (names_thread(frame->kind))
		name_thread(&span->tgid, span->comm, here, task);
	publish(span, sizeof(*span) / sizeof(__u64), &span->seq, (__u32)number + 1);
}

/*
 * Returns whether an interval is recorded individually even when summing. Long intervals are rare,
 * even over hours. If the buffer is full, the interval is added to a sum, and only its times are
 * lost.
 */
static __always_inline int keeps_time(const struct here *here, const struct frame *frame, __u64 dur)
{
	return dur >= LONG_NS && frame->kind != KIND_IDLE && !ring_is_full(here);
}

/* Adds an interval that has ended to a sum, or records it. `what` is its key plus extra bits. */
static __always_inline void add_up(struct here *here, const struct frame *frame, __u64 what, __u64 dur,
				   __s64 self)
{
	if (flight) {
		add_to_sum(here, frame, what, dur, self);
		write_entry(here, frame, dur, self);
		look_at_stretch(here, frame, dur);
		return;
	}
	if (unlikely(keeps_time(here, frame, dur)))
		hand_out(here, frame, dur, self, whose(what));
	else
		add_to_sum(here, frame, what, dur, self);
}

/* Same as add_up(), but a global function, which the verifier checks only once. */
__noinline int sum_up(__u64 what, __u64 detail, __u64 start, __u64 dur, __s64 self)
{
	struct here here = {};
	struct frame frame = {};

	if (!find_books(&here, (what >> CPU_AT) - 1 & (MAX_CPUS - 1)))
		return 0;
	here.now = start + dur;
	here.left = what >> LEFT_AT & 15;
	frame.start = start;
	frame.detail = detail;
	frame.id = what;
	frame.kind = what >> KIND_AT & 7;
	frame.flags = what >> FLAGS_AT;
	add_up(&here, &frame, what, dur, self);
	return 0;
}

static __always_inline __u64 what_to_sum(const struct here *here, __u64 name)
{
	__u64 what = sum_key(name, here->cpu);

	if (!flight)
		return what;
	what |= (__u64)(here->left & 15) << LEFT_AT;
	return here->running & RUN_SECOND ? what | SECOND_TABLE : what;
}

/*
 * Emits an interval that has ended. `task` is its owner if the interval belongs to a thread,
 * otherwise any thread. 0 stands for the thread in `seen_tgid` and `seen_comm`. When summing,
 * `task` must be the current thread or 0.
 */
static __always_inline void account(struct here *here, const struct frame *frame, __u64 end,
				    struct task_struct *task)
{
	__u64 dur = end - frame->start;
	__s64 self = dur - frame->child;
	__u64 what;

	if (unlikely(here->state->opened == OPENING))
		return;
	if (!summing) {
		hand_out(here, frame, dur, self, task);
		return;
	}
	what = what_to_sum(here, frame_name(frame));
	if (!task)
		what |= SEEN_BEFORE;
	sum_up(what, frame->detail, frame->start, dur, self);
}

/*
 * Same as account(), for the current thread at a switch. Uses the frame on the stack without a
 * copy. Switches are so frequent that a call, with its repeated look-ups, would be too expensive.
 */
static __always_inline void account_switch(struct here *here, struct frame *frame, __u64 dur, __s64 self,
					   struct task_struct *task)
{
	if (unlikely(here->state->opened == OPENING))
		return;
	if (summing)
		add_up(here, frame, what_to_sum(here, *name_in(frame)), dur, self);
	else
		hand_out(here, frame, dur, self, task);
}

#endif
