// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0
/*
 * Tests whether the kernel accepts the atomic instructions in ticktax.bpf.c, and is loaded but
 * never attached. Linux accepts them since 5.12, but the JIT of arm64 only since 5.18. Between
 * these versions, loading fails on arm64 kernels without a BPF interpreter.
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
