/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Atomic operations on words of one CPU: an interrupt may come between any two instructions of a program, and run programs
 * that change the same words.
 *
 * Before Linux 5.12 BPF's one atomic instruction is an addition without a result. It is enough: an interrupt's programs finish before the
 * interrupted program continues, which can then look at what they changed, and a word that is only ever added to has the right
 * sum. Programs that can be preempted do not finish in that order; see enter_alone().
 */
#ifndef TICKTAX_ATOMIC_H
#define TICKTAX_ATOMIC_H

#include "kernel.h"
#include "record.h"

static __always_inline void add(__u64 *word, __u64 amount)
{
#ifdef BEFORE_5_12
	/* The compiler turns the addition of a constant 0 into an `or`, which these kernels lack. */
	barrier_var(amount);
#endif
	__sync_fetch_and_add(word, amount);
}

#ifndef BEFORE_5_12

/* Whether `word` was `from`; it is `to` then. */
static __always_inline int claim(__u64 *word, __u64 from, __u64 to)
{
	return __sync_val_compare_and_swap(word, from, to) == from;
}

/* What was added to `word` since it was last taken. */
static __always_inline __u64 take(__u64 *word)
{
	return __sync_lock_test_and_set(word, 0);
}

/* The number of this CPU's next record, which nobody else gets. */
static __always_inline __u64 take_number(struct cpu_state *state)
{
	return __sync_fetch_and_add(&state->head, 1);
}

/* A store that another CPU sees after all earlier ones, and before all later ones. */
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
 * As above. If another claimed the word after the look, or on top of this claim, the addition is taken back. Sums stay right. A
 * stretch that was claimed on top of this one is followed by one whose start is too early by `to - from`.
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

/* As above: what is added after the look is left there. If an interrupt took it meanwhile, it is given back. */
static __always_inline __u64 take(__u64 *word)
{
	__u64 there = now_in(word);

	add(word, -there);
	if (likely((__s64)now_in(word) >= 0))
		return there;
	add(word, there);
	return 0;
}

/* Records claimed so far, and the sum of their numbers, of one moment. */
struct claimed {
	__u64 records;
	__u64 numbers;
};

/* A look is three loads, and is repeated only if an interrupt claimed a record during it. */
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
 * As above. Each interrupt that claims a record between the two looks adds its number to `numbers` before it is over. So of all
 * numbers that were claimed from the first look to the second, the one that is missing in the sum is this program's.
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

/* As above where CPUs see stores in order; elsewhere BPF of these kernels has no such store. */
static __always_inline void store_in_order(__u32 *word, __u32 value)
{
	barrier();
	*(volatile __u32 *)word = value;
	barrier();
}

/*
 * Programs at a function's entry and exit run with preemption on, where the kernel has that: another thread's may begin on this CPU before
 * one is over, and be preempted in turn. Only one at a time may change the books; whether it may is returned.
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
