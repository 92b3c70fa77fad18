// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0
/*
 * Loaded and never attached: whether the kernel takes what ticktax.bpf.c is made of and before_5_12.bpf.c is not. Linux
 * does from 5.12 on. Until 5.18 the JIT of arm64 did not, so that kernels without the interpreter refuse it.
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
