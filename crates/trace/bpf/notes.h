/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * The flight recorder's notes: stacks of the code that keeps threads waiting, of threads that were
 * blocked, and of those that woke them. Each CPU has a ring of notes, so that new ones replace old
 * ones, as in the ring of events. books.h includes this after the maps.
 */
#ifndef TICKTAX_NOTES_H
#define TICKTAX_NOTES_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets CPUs * NOTES for the flight recorder */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct stack_note);
} stack_notes SEC(".maps");

/*
 * Starts a note about thread `tid` and returns it, or returns 0 without a map of notes. Its number
 * is in `number`. An interrupt may write the next note in the meantime.
 */
static __always_inline struct stack_note *begin_note(struct here *here, __u16 about, __u32 tid,
						     __u64 *number)
{
	struct stack_note *note;
	__u32 place;

	*number = take_note_number(here->state);
	place = here->cpu * NOTES + (*number & (NOTES - 1));
	note = bpf_map_lookup_elem(&stack_notes, &place);
	if (!note)
		return 0;
	store_in_order(&note->seal, 0);
	note->time = here->now;
	note->address = 0;
	note->detail = 0;
	note->tid = tid;
	note->kind = KIND_TASK;
	note->flags = 0;
	note->about = about;
	return note;
}

/* Ends a note whose stack takes `length` bytes, or is unknown if `length` is negative. */
static __always_inline void end_note(struct stack_note *note, __u64 number, long length)
{
	note->length = length > 0 ? length : 0;
	store_in_order(&note->seal, (__u32)number + 1);
}

/*
 * Returns whether a wait may be noted that triggers nothing. On average, one per SAMPLE_EVERY_NS is,
 * because noting one takes several microseconds.
 */
static __always_inline int may_note(struct here *here)
{
	struct cpu_state *state = here->state;
	__u64 earliest = here->now - SAMPLE_BURST * SAMPLE_EVERY_NS;

	if (state->note_due > here->now)
		return 0;
	if (state->note_due < earliest)
		state->note_due = earliest;
	state->note_due += SAMPLE_EVERY_NS;
	return 1;
}

/* Notes where `task`, which is being woken, was blocked, and the code that wakes it. */
static __noinline void note_wait(void *ctx, struct here *here, struct task_struct *task)
{
	struct stack_note *note;
	__u64 number;

	note = begin_note(here, NOTE_WAIT, task->pid, &number);
	if (note)
		end_note(note, number, bpf_get_task_stack(task, note->frames, sizeof(note->frames), 0));
	note = begin_note(here, NOTE_RELEASE, task->pid, &number);
	if (note)
		end_note(note, number, bpf_get_stack(ctx, note->frames, sizeof(note->frames), 0));
	/* The verifier refuses a function that leaves a pointer to the stack in this register. */
	asm volatile("r0 = 0" ::: "r0");
}

#endif
