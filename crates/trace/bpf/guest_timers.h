/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Timers of guests.
 *
 * KVM emulates the timer of a vCPU's local APIC, and the timer chip (PIT), with high-resolution
 * timers of the host. The functions of these timers are known by name, but KVM's data structures
 * are not. So the vCPU of a timer is learned from what happens: the vCPU's thread starts the timer, or
 * the timer wakes the thread. The timer chip wakes a kernel thread, which then wakes the vCPU's.
 *
 * On Intel processors, KVM can use a timer of the processor while the guest runs. Its expiry is an
 * exit (see exit_guest() in guests.h).
 */
#ifndef TICKTAX_GUEST_TIMERS_H
#define TICKTAX_GUEST_TIMERS_H

#include "guests.h"

/* The vCPU of each timer: the index of its sums plus 1, by the address of the timer. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* the loader sets twice VCPUS if KVM is loaded */
	__type(key, __u64);
	__type(value, __u32);
} guest_timers SEC(".maps");

/* The timer of each kernel thread that works for an emulated timer chip, by thread ID. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* the loader sets VCPUS if KVM is loaded */
	__type(key, __u32);
	__type(value, __u64);
} pit_workers SEC(".maps");

static __always_inline __u64 function_of(struct hrtimer *timer)
{
	__u64 function = 0;

	bpf_probe_read_kernel(&function, sizeof(function),
			      __builtin_preserve_access_index(&timer->function));
	return function;
}

static __always_inline struct vcpu_record *vcpu_at(__u32 number)
{
	__u32 index = number - 1;

	return number ? bpf_map_lookup_elem(&vcpus, &index) : 0;
}

/* A timer starts to run its function. */
SEC("raw_tp")
int guest_timer_expires(__u64 *ctx)
{
	struct hrtimer *timer = (void *)ctx[0];
	struct vcpu_record *vcpu;
	__u64 address = (__u64)timer, function;
	__u32 *owner;
	struct here here;
	__s64 due = 0;

	if (!vcpus_known)
		return 0;
	function = function_of(timer);
	if (!function || (function != lapic_timer_fn && function != pit_timer_fn))
		return 0;
	if (!arrive(&here))
		return 0;
	here.state->guest_timer = address;
	owner = bpf_map_lookup_elem(&guest_timers, &address);
	vcpu = owner ? vcpu_at(*owner) : 0;
	if (!vcpu || here.state->opened <= OPENING)
		return 0;
	bpf_probe_read_kernel(&due, sizeof(due), __builtin_preserve_access_index(&timer->node.expires));
	note_tick(&vcpu->timer, address, due);
	if (function == pit_timer_fn)
		vcpu->timer.pit_ticks++;
	return 0;
}

/* The function of a timer ends. */
SEC("raw_tp")
int guest_timer_ends(__u64 *ctx)
{
	struct cpu_state *state = state_here();

	if (vcpus_known && state)
		state->guest_timer = 0;
	return 0;
}

/*
 * A timer is started. If a vCPU's thread does so, it is the timer of that vCPU. At a halt, KVM itself
 * replaces the processor's timer by this one.
 */
SEC("raw_tp")
int guest_timer_starts(__u64 *ctx)
{
	struct cpu_state *state = state_here();
	struct hrtimer *timer = (void *)ctx[0];
	struct vcpu_record *vcpu;
	__u64 address = (__u64)timer;
	__u32 owner;

	if (!vcpus_known || !state || !state->vcpu || state->depth)
		return 0;
	if (state->thread != (__u64)current_task() || function_of(timer) != lapic_timer_fn)
		return 0;
	owner = state->vcpu;
	bpf_map_update_elem(&guest_timers, &address, &owner, BPF_ANY);
	vcpu = vcpu_at(owner);
	if (vcpu && state->opened > OPENING && !is_halted(vcpu))
		vcpu->timer.armed++;
	return 0;
}

/* Returns the guest's timer that causes a wake-up on this CPU now, or 0. */
static __always_inline __u64 waking_timer(struct cpu_state *state)
{
	__u32 worker = FIELD(current_task(), pid);
	__u64 *timer;

	if (state->guest_timer)
		return state->guest_timer;
	if (state->depth)
		return 0;
	timer = bpf_map_lookup_elem(&pit_workers, &worker);
	return timer ? *timer : 0;
}

/* A thread is woken. */
SEC("raw_tp")
int vcpu_woken(__u64 *ctx)
{
	struct task_struct *woken = (void *)ctx[0];
	struct vcpu_record *vcpu;
	__u32 tid = 0, owner, *known;
	struct here here;
	__u64 timer;

	if (!vcpus_known || !arrive(&here))
		return 0;
	bpf_probe_read_kernel(&tid, sizeof(tid), __builtin_preserve_access_index(&woken->pid));
	owner = find_vcpu(tid, start_of(woken));
	timer = here.state->guest_timer;
	vcpu = vcpu_at(owner);
	if (!vcpu) {
		if (timer && function_of((void *)timer) == pit_timer_fn)
			bpf_map_update_elem(&pit_workers, &tid, &timer, BPF_ANY);
		return 0;
	}
	timer = waking_timer(here.state);
	if (timer) {
		known = bpf_map_lookup_elem(&guest_timers, &timer);
		if (!known || *known != owner) {
			/* This expiry was not counted. */
			bpf_map_update_elem(&guest_timers, &timer, &owner, BPF_ANY);
			timer = 0;
		}
	}
	/* Windows start with the recording. */
	if (here.state->opened <= OPENING)
		return 0;
	vcpu->timer.woken_ticks = vcpu->timer.ticks + !timer;
	vcpu->timer.woken = timer ? WAKER_TIMER : WAKER_OTHER;
	return 0;
}

#endif
