/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Atomic operations on words of one CPU. An interrupt may arrive between any two instructions, and
 * its programs change the same words.
 *
 * Before 5.12 the only atomic instruction is an addition without a result. It is enough. An
 * interrupt's programs finish before the interrupted one, which can then check what they changed. A
 * word that is only added to has the right sum. For preemptible programs see enter_alone().
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

/* Sets `word` to `to` if it was `from`. Returns whether it did. */
static __always_inline int claim(__u64 *word, __u64 from, __u64 to)
{
	return __sync_val_compare_and_swap(word, from, to) == from;
}

/* Takes what was added to `word` since the last take. */
static __always_inline __u64 take(__u64 *word)
{
	return __sync_lock_test_and_set(word, 0);
}

/* The unique number of this CPU's next record. */
static __always_inline __u64 take_number(struct cpu_state *state)
{
	return __sync_fetch_and_add(&state->head, 1);
}

/* A store that other CPUs see after all earlier stores and before all later ones. */
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
 * As above. If the word was claimed after the check, or on top of this claim, the addition is
 * undone. Sums stay right; the run after one claimed on top of this starts `to - from` early.
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

/* As above. Later additions stay. If an interrupt took it in the meantime, it is restored. */
static __always_inline __u64 take(__u64 *word)
{
	__u64 there = now_in(word);

	add(word, -there);
	if (likely((__s64)now_in(word) >= 0))
		return there;
	add(word, there);
	return 0;
}

/* Number of records claimed so far, and the sum of their numbers, at one moment. */
struct claimed {
	__u64 records;
	__u64 numbers;
};

/* Three loads, repeated only if an interrupt claimed a record in between. */
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
 * As above. An interrupt that claims a record in between adds its number to `numbers` before it
 * ends. The sum of the claimed numbers minus the growth of `numbers` is this program's number.
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

/* As above if CPUs see stores in order. Otherwise BPF of these kernels has no such store. */
static __always_inline void store_in_order(__u32 *word, __u32 value)
{
	barrier();
	*(volatile __u32 *)word = value;
	barrier();
}

/*
 * These programs run preemptibly if the kernel allows it: another thread's can start on this CPU
 * before one ends. Only one at a time may change the accounts; returns whether this may.
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
