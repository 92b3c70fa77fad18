/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Late timer interrupts. When a hypervisor or the firmware takes the CPU, the kernel does not
 * notice, but the next timer interrupt is late. It is also late if the kernel has disabled
 * interrupts, which cannot happen in user mode. The interpretation of a delay therefore
 * depends on the interrupted context: see crates/analysis/src/stops.rs.
 */
#ifndef TICKTAX_LATE_H
#define TICKTAX_LATE_H

#include "books.h"

/* Returns whether timers have their own interrupts. Otherwise, most wait for the next tick. */
static __noinline int has_own_interrupt(struct hrtimer *timer)
{
	struct hrtimer_clock_base *base = 0;
	struct hrtimer_cpu_base *cpu_base = 0;
	__u64 word = 0;

	bpf_probe_read_kernel(&base, sizeof(base), __builtin_preserve_access_index(&timer->base));
	bpf_probe_read_kernel(&cpu_base, sizeof(cpu_base),
			      __builtin_preserve_access_index(&base->cpu_base));
	bpf_probe_read_kernel(&word, sizeof(word),
			      (void *)cpu_base + __builtin_preserve_field_info(
							 cpu_base->hres_active, BPF_FIELD_BYTE_OFFSET));
	word <<= __builtin_preserve_field_info(cpu_base->hres_active, BPF_FIELD_LSHIFT_U64);
	return word >> __builtin_preserve_field_info(cpu_base->hres_active, BPF_FIELD_RSHIFT_U64) != 0;
}

/*
 * Notes that the timer about to run was due at `due`. Times on clocks other than CLOCK_MONOTONIC
 * are larger numbers, so their timers never seem later than they are.
 */
static __noinline void note_late(struct here *here, struct hrtimer *timer, __u64 due)
{
	if (summing || !has_own_interrupt(timer))
		return;
	here->state->late_due = due;
	here->state->late_utime = FIELD(current_task(), utime);
}

/*
 * Returns what the current timer interrupt interrupted, after one of its timers has run. Only the
 * tick can distinguish user mode from the kernel, because it adds a period to the user time of a
 * thread that it finds in user mode.
 */
static __always_inline __u32 interrupted(const struct cpu_state *state)
{
	struct task_struct *task = current_task();

	if (FIELD(task, pid) == 0)
		return INTERRUPTED_IDLE;
	if (FIELD(task, flags) & PF_KTHREAD)
		return INTERRUPTED_KERNEL;
	return FIELD(task, utime) > state->late_utime ? INTERRUPTED_USER : INTERRUPTED_KERNEL;
}

/* Emits the delay of the timer that has just run, whose frame is the top one. */
static __noinline void emit_late(struct here *here)
{
	struct cpu_state *state = here->state;
	__u64 due = state->late_due, depth = state->depth;
	const struct frame *top, *interrupt;
	struct frame late = {};

	state->late_due = 0;
	if (state->opened <= OPENING || depth < 2 || depth >= MAX_DEPTH)
		return;
	if (due < state->opened)
		due = state->opened;
	top = &state->stack[depth & (MAX_DEPTH - 1)];
	interrupt = &state->stack[(depth - 1) & (MAX_DEPTH - 1)];
	if (interrupt->kind != KIND_IRQ || interrupt->start <= due)
		return;
	late.start = due;
	late.detail = top->detail;
	late.id = interrupted(state);
	late.kind = KIND_LATE;
	hand_out(here, &late, interrupt->start - due, 0, current_task());
}

#endif
