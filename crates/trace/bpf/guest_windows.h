/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Cost of a guest's timer on the host.
 *
 * If a timer wakes the thread of a halted vCPU, everything that the thread does until it sleeps
 * again follows from that wake-up. This is a window. It ends with the next wake-up of the thread,
 * because a sleeping thread has no own time. A guest may use the wake-up for other work, such as
 * I/O. Windows with many exits per expiry are therefore not part of the cost. Nor are windows in
 * which the thread slept without a halt, for example because the virtual machine ended.
 *
 * The CPU that wakes the thread writes `woken` and `woken_ticks`, and the CPU on which a timer
 * expires counts the expiry. If two of a vCPU's timers expire at the same time, one may be lost. All
 * other fields belong to the thread.
 */
#ifndef TICKTAX_GUEST_WINDOWS_H
#define TICKTAX_GUEST_WINDOWS_H

#include "books.h"

/* Addresses of the functions of KVM's timers. The loader sets them if KVM is loaded. */
volatile const __u64 lapic_timer_fn = 0;
volatile const __u64 pit_timer_fn = 0;
volatile const __u32 exits_are_vmx = 0; /* Intel: exits have VMX's reasons. Otherwise, SVM's */

/* Maximum number of exits per expiry in a window that is part of the cost. */
#define TICK_EXITS 8

/* Counts an interval between two expiries of a timer. Not inlined, to save stack. */
static __noinline void note_interval(struct vcpu_timer *timer, __u64 interval)
{
	struct timer_period *slot, *free = 0;

	timer->intervals++;
#pragma unroll
	for (int i = 0; i < TIMER_PERIODS; i++) {
		__u64 slack;

		slot = &timer->periods[i];
		slack = slot->period >> 7;
		if (!slot->weight) {
			free = slot;
		} else if (interval + slack - slot->period <= 2 * slack) {
			slot->weight++;
			slot->count++;
			slot->sum += interval;
			goto out;
		}
	}
	if (free) {
		free->period = interval;
		free->weight = 1;
		free->count = 1;
		free->sum = interval;
		goto out;
	}
#pragma unroll
	for (int i = 0; i < TIMER_PERIODS; i++)
		timer->periods[i].weight--;
out:
	asm volatile("r0 = 0" ::: "r0");
}

/* Counts an expiry that was due at `due`. */
static __always_inline void note_tick(struct vcpu_timer *timer, __u64 address, __u64 due)
{
	if (!timer->ticks)
		timer->first = due;
	else if (timer->timer == address && due > timer->last)
		note_interval(timer, due - timer->last);
	timer->ticks++;
	timer->timer = address;
	timer->last = due;
}

/*
 * Ends the window before the latest wake-up, and starts one if a timer was the waker. `halted`: the
 * thread slept because the vCPU was halted.
 */
static __always_inline void turn_window(struct vcpu_timer *timer, int halted)
{
	__u64 ticks = timer->woken_ticks - timer->window_ticks;
	__u64 unit = timer->window_host_ns >> 4;

	if (timer->window && ticks) {
		if (halted && timer->window_exits <= TICK_EXITS * ticks) {
			timer->windows++;
			timer->cost_ticks += ticks;
			timer->cost_exits += timer->window_exits;
			timer->cost_host_ns += timer->window_host_ns;
			timer->cost_guest_ns += timer->window_guest_ns;
			timer->cost_squares += unit * unit;
		} else {
			timer->other_ticks += ticks;
		}
	}
	timer->window = halted && timer->woken == WAKER_TIMER;
	timer->woken = WAKER_NONE;
	timer->window_ticks = timer->woken_ticks;
	timer->window_exits = 0;
	timer->window_host_ns = 0;
	timer->window_guest_ns = 0;
}

/* Adds own time of the thread to the current window. */
static __always_inline void charge_window(struct vcpu_timer *timer, __u32 phase, __u64 time)
{
	if (!timer->window)
		return;
	if (phase == PHASE_GUEST)
		timer->window_guest_ns += time;
	else
		timer->window_host_ns += time;
}

#endif
