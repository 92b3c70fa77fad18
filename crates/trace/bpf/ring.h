/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * The flight recorder's ring: every span and edge of a CPU, overwritten when the ring wraps.
 * Entries have no names. The names of threads are in a table indexed by thread ID. books.h includes
 * this after the maps.
 */
#ifndef TICKTAX_RING_H
#define TICKTAX_RING_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets CPUs << ring_order for the flight recorder */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct ring_entry);
} ring_entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets NAME_SLOTS for the flight recorder */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct thread_name);
} thread_names SEC(".maps");

/* Longest time that an entry can store, in ns. */
#define RING_LONGEST ((1ULL << (RING_TIME_BITS - 1)) - 1)

#define EDGES (FLAG_WOKE | FLAG_QUEUED | FLAG_RAISED)

static __always_inline void write_entry(struct here *here, const struct frame *frame, __u64 dur,
					__s64 self)
{
	struct cpu_state *state = here->state;
	__u64 start = frame->start, child = dur - self, number;
	struct ring_entry *entry;
	__u32 index;

	/* Keep only the end of an interval that lasted minutes. Windows are shorter than that. */
	if (unlikely(dur > RING_LONGEST) && !(frame->flags & EDGES)) {
		start += dur - RING_LONGEST;
		dur = RING_LONGEST;
		child = 0;
	}
	/* An interrupt may claim the next entry before this one has been written. */
	number = take_number(state);
	index = (here->cpu << ring_order) | (number & ring_mask);
	entry = bpf_map_lookup_elem(&ring_entries, &index);
	if (!entry)
		return;
	entry->start = start;
	entry->dur = dur;
	entry->dur_high = dur >> 32;
	entry->child = child;
	entry->child_high = child >> 32;
	entry->detail = frame->detail;
	entry->tid = frame->id;
	entry->kind = frame->kind | here->left << LEFT_SHIFT;
	entry->flags = frame->flags;
	publish(entry, sizeof(*entry) / sizeof(__u64), &entry->seal,
		(__u32)((number >> ring_order) + 1) << 16 | (state->events & 0xffff));
}

/*
 * At a switch, stores the leaving thread's name, unless it is stored already. Two threads that
 * share a slot evict each other, and each is stored again when it next leaves a CPU. On arm64
 * before 5.12, a reader may combine the ID of one thread with the name of the other.
 */
static __always_inline void note_name(struct task_struct *task, __u32 tid)
{
	__u64 who = tid | (__u64)task->tgid << 32;
	struct name now = name_of(task);
	__u32 place = tid & (NAME_SLOTS - 1);
	struct thread_name *name = bpf_map_lookup_elem(&thread_names, &place);
	__u64 *words = (void *)name;

	if (!name || !tid)
		return;
	/* A single branch, because the verifier follows each one to the end of the program. */
	if (likely(!((words[0] ^ who) | (words[1] ^ now.words[0]) | (words[2] ^ now.words[1]))))
		return;
	store_in_order(&name->tid, 0);
	name->tgid = who >> 32;
	words[1] = now.words[0];
	words[2] = now.words[1];
	store_in_order(&name->tid, tid);
}

#endif
