/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Atomic operations on words that belong to one CPU. An interrupt may arrive between any two
 * instructions, and its programs change the same words.
 *
 * Before 5.12, the only atomic instruction is an addition without a result. It is sufficient: an
 * interrupt's programs finish before the interrupted program continues, which can then detect their
 * changes. A word that is only ever added to has the right sum. For preemptible programs, see
 * enter_alone().
 */
#ifndef TICKTAX_ATOMIC_H
#define TICKTAX_ATOMIC_H

#include "kernel.h"
#include "record.h"

static __always_inline void add(__u64 *word, __u64 amount)
{
#ifdef BEFORE_5_12
	/* The compiler turns adding a constant 0 into an `or`, which these kernels lack. */
	barrier_var(amount);
#endif
	__sync_fetch_and_add(word, amount);
}

#ifndef BEFORE_5_12

/* Sets `word` to `to` if it is equal to `from`. Returns whether it was. */
static __always_inline int claim(__u64 *word, __u64 from, __u64 to)
{
	return __sync_val_compare_and_swap(word, from, to) == from;
}

/* Returns the value of `word` and resets it to 0. */
static __always_inline __u64 take(__u64 *word)
{
	return __sync_lock_test_and_set(word, 0);
}

/* Returns a unique number for this CPU's next record. */
static __always_inline __u64 take_number(struct cpu_state *state)
{
	return __sync_fetch_and_add(&state->head, 1);
}

/* Returns a unique number for this CPU's next note. */
static __always_inline __u64 take_note_number(struct cpu_state *state)
{
	return __sync_fetch_and_add(&state->notes, 1);
}

/* Stores `value` so that other CPUs see it after all earlier stores and before all later ones. */
static __always_inline void store_in_order(__u32 *word, __u32 value)
{
	__sync_lock_test_and_set(word, value);
}

static __always_inline int enter_alone(struct cpu_state *state)
{
	return 1;
}

static __always_inline void leave_alone(struct cpu_state *state)
{
}

#else

static __always_inline __u64 now_in(const __u64 *word)
{
	return *(const volatile __u64 *)word;
}

/*
 * Same as above. The addition is undone if an interrupt claimed the word between the check and the
 * addition, or right after the addition. Sums stay correct, but in the second case, the run that
 * starts with the interrupt's claim starts `to - from` too early.
 */
static __always_inline int claim(__u64 *word, __u64 from, __u64 to)
{
	if (now_in(word) != from)
		return 0;
	add(word, to - from);
	if (likely(now_in(word) == to))
		return 1;
	add(word, from - to);
	return 0;
}

/*
 * Same as above. Additions that follow the load are kept. If an interrupt took the value after the
 * load, the subtraction is undone.
 */
static __always_inline __u64 take(__u64 *word)
{
	__u64 there = now_in(word);

	add(word, -there);
	if (likely((__s64)now_in(word) >= 0))
		return there;
	add(word, there);
	return 0;
}

/* Number of claimed records and the sum of their numbers, at one moment. */
struct claimed {
	__u64 records;
	__u64 numbers;
};

/* Maximum number of tries. One is enough unless an interrupt claims a record between the loads. */
#define LOOKS 4

static __always_inline struct claimed claimed_so_far(const struct cpu_state *state)
{
	struct claimed so_far = {};

	for (int i = 0; i < LOOKS; i++) {
		so_far.records = now_in(&state->head);
		so_far.numbers = now_in(&state->numbers);
		if (likely(now_in(&state->head) == so_far.records))
			break;
	}
	return so_far;
}

/*
 * Same as above. If interrupts claim records between `before` and `after`, they add the numbers of
 * these records to `numbers` before they end. This program's number is the sum of all numbers
 * claimed between `before` and `after`, minus the growth of `numbers`.
 */
static __always_inline __u64 take_number(struct cpu_state *state)
{
	struct claimed before, after;
	__u64 count, all, number;

	before = claimed_so_far(state);
	add(&state->head, 1);
	after = claimed_so_far(state);
	count = after.records - before.records;
	all = count * before.records + count * (count - 1) / 2;
	number = all - (after.numbers - before.numbers);
	add(&state->numbers, number);
	return number;
}

/*
 * Same as above. If an interrupt takes a number after the load, both programs have the same number,
 * and this program's note replaces that of the interrupt.
 */
static __always_inline __u64 take_note_number(struct cpu_state *state)
{
	__u64 number = now_in(&state->notes);

	state->notes = number + 1;
	return number;
}

/*
 * Same as above, on CPUs that see each other's stores in program order. On other CPUs, these
 * kernels' BPF has no store that would keep the order.
 */
static __always_inline void store_in_order(__u32 *word, __u32 value)
{
	barrier();
	*(volatile __u32 *)word = value;
	barrier();
}

/*
 * On preemptible kernels, a program at a function's entry or exit can be preempted by a thread that
 * starts such a program on the same CPU. Only one of them at a time may change the accounts.
 * Returns whether this program may do so.
 */
static __always_inline int enter_alone(struct cpu_state *state)
{
	__sync_fetch_and_add(&state->at_functions, 1);
	if (likely(*(const volatile __u32 *)&state->at_functions == 1))
		return 1;
	__sync_fetch_and_add(&state->at_functions, -1);
	return 0;
}

static __always_inline void leave_alone(struct cpu_state *state)
{
	__sync_fetch_and_add(&state->at_functions, -1);
}

#endif

#endif
