// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0
/*
 * The tracer for kernels before 5.12. Their BPF has only one atomic instruction (addition without a
 * result) and, before 5.11, no typed pointer to the current thread. See atomic.h and kernel.h.
 */
#define BEFORE_5_12
#include "ticktax.bpf.c"
