// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0
/*
 * Loaded but never attached: shows whether the kernel accepts ticktax.bpf.c's atomics, as Linux
 * does since 5.12. The JIT of arm64 did so only from 5.18: without an interpreter, loading fails.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

SEC("raw_tp/sched_switch")
int takes_atomics(__u64 *ctx)
{
	__u64 word = 0, pid = bpf_get_current_task_btf()->pid;

	if (__sync_val_compare_and_swap(&word, 0, pid) == __sync_fetch_and_add(&word, 1))
		return __sync_lock_test_and_set(&word, 0);
	return 0;
}
