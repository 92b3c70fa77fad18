/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Kernel locks that followed threads wait for. The tracepoints, which exist since Linux 5.19, mark
 * the time in which a thread waits for a lock. If the thread leaves its CPU in that time, its wait
 * carries the lock.
 *
 * A thread that spins for a lock does not sleep, so such locks are ignored. This matters because
 * sleeping locks contain a spin lock.
 *
 * A thread can sleep repeatedly for the same lock, so a wake-up or a switch does not clear the
 * lock. If the end is missed, the lock stays noted until the next begin. It then cannot appear in a
 * wrong wait: the reader shows it only if the wait is in the slow path of a lock (`LOCKS` in
 * places.rs), and each of these paths begins with contention_begin. If a switch was missed too, the
 * lock is cleared.
 */
#ifndef TICKTAX_CONTENTION_H
#define TICKTAX_CONTENTION_H

#include "follow.h"

/* Low bits of an address. The bits above are the same in all of the kernel's addresses. */
#define LOCK_ADDRESS ((1ULL << LOCK_SHIFT) - 1)

/* Returns the entry of the current thread if it is followed, and not interrupted. */
static __always_inline struct followed_thread *contending(void)
{
	struct cpu_state *state = state_here();

	if (likely(!state || !state->call) || state->depth)
		return 0;
	return followed(FIELD(current_task(), pid));
}

SEC("tp_btf/contention_begin")
int contention_begin(__u64 *ctx)
{
	__u64 lock = ctx[0], flags = (__u32)ctx[1];
	struct followed_thread *thread;
	struct mm_struct *mm;

	if ((flags & (LOCK_SPIN | LOCK_MUTEX)) == LOCK_SPIN)
		return 0;
	thread = contending();
	if (!thread)
		return 0;
	mm = FIELD(current_task(), mm);
	flags &= LOCK_MMAP - 1;
	if (mm && lock == (__u64)mm + __builtin_preserve_field_info(mm->mmap_lock, BPF_FIELD_BYTE_OFFSET))
		flags |= LOCK_MMAP;
	thread->lock = (lock & LOCK_ADDRESS) | (flags | LOCK_KNOWN) << LOCK_SHIFT;
	return 0;
}

SEC("tp_btf/contention_end")
int contention_end(__u64 *ctx)
{
	struct followed_thread *thread = contending();

	if (thread && (thread->lock & LOCK_ADDRESS) == (ctx[0] & LOCK_ADDRESS))
		thread->lock = 0;
	return 0;
}

#endif
