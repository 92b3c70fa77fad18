/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Kernel locks that followed threads wait for. The tracepoints, which exist since Linux 5.19, mark
 * the time in which a thread waits for a lock. If the thread leaves its CPU in that time, its wait
 * carries the lock.
 *
 * A lock that is only spun on cannot make a thread sleep, so it is ignored here. This matters because
 * sleeping locks spin on a lock of their own.
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

static __always_inline int begin_contention(__u64 lock, __u64 flags)
{
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

static __always_inline int end_contention(__u64 lock)
{
	struct followed_thread *thread = contending();

	if (thread && (thread->lock & LOCK_ADDRESS) == (lock & LOCK_ADDRESS))
		thread->lock = 0;
	return 0;
}

#endif
