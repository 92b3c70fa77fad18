/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Virtual machines: sums of the threads that run their vCPUs.
 *
 * KVM reports each entry into a guest, each exit from it with the reason, and each return to the
 * program that created the guest (the VMM). Between these events, the thread is in one phase, and
 * its own time is added to the sum of that phase. A record for each exit would cost too much,
 * because a guest may exit 100,000 times per second.
 *
 * Own time excludes interrupts and time off the CPU. `vcpu_charged` is the part of the current
 * stretch that is in a sum already. When a stretch ends, the rest is added. The sums of a thread
 * therefore add up exactly to the own time of its stretches, which the reader checks.
 */
#ifndef TICKTAX_GUESTS_H
#define TICKTAX_GUESTS_H

#include "follow.h"
#include "guest_windows.h"

volatile const __u32 exits_are_traps = 0; /* arm64: exits have an exception class */

#define VMX_HLT 12 /* the guest halts */
#define VMX_PREEMPTION_TIMER 52 /* KVM's timer expired while the guest ran */
#define SVM_HLT 0x78 /* the guest halts */

/* The sums. Each thread has the first entry after its home that was free. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets VCPUS if KVM is loaded */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct vcpu_record);
} vcpus SEC(".maps");

/* The thread that has each entry of `vcpus`. Adding one is the only step that two CPUs may race for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* the loader sets VCPUS if KVM is loaded */
	__type(key, __u32);
	__type(value, __u32);
} vcpu_owners SEC(".maps");

/* Whether any vCPU has been seen. Until then, switches need no look-up. */
__u32 vcpus_known = 0;

/* Number of entries that a thread may have. */
#define VCPU_PROBES 8

static __always_inline __u32 vcpu_place(__u32 tid, __u32 probe)
{
	return ((tid * 0x9e3779b1U >> 16) + probe) & (VCPUS - 1);
}

/*
 * Returns the index of the thread's sums plus 1, or 0 if it has none. The kernel may give a thread's
 * ID to another thread later, which then started at another time.
 */
__noinline __u32 find_vcpu(__u32 tid, __u64 started)
{
#pragma unroll
	for (int i = 0; i < VCPU_PROBES; i++) {
		__u32 index = vcpu_place(tid, i);
		struct vcpu_record *vcpu = bpf_map_lookup_elem(&vcpus, &index);

		if (!vcpu || !vcpu->tid)
			return 0;
		if (vcpu->tid == tid && vcpu->started == started)
			return index + 1;
	}
	return 0;
}

static __always_inline __u64 start_of(struct task_struct *task)
{
	__u64 started = 0;

	bpf_probe_read_kernel(&started, sizeof(started),
			      __builtin_preserve_access_index(&task->start_time));
	return started;
}

/* Returns whether the vCPU is halted, or ends a halt now. */
static __always_inline int is_halted(const struct vcpu_record *vcpu)
{
	return vcpu->phase == PHASE_KVM && vcpu->reason == (exits_are_vmx ? VMX_HLT : SVM_HLT);
}

/* Notes whether the thread that arrives at a switch runs a vCPU. A global function, as above. */
__noinline int find_arriving_vcpu(__u32 cpu)
{
	struct cpu_state *state = bpf_map_lookup_elem(&states, &cpu);
	struct vcpu_record *vcpu;

	if (!state)
		return 0;
	state->vcpu = find_vcpu(state->stack[0].id, start_of((void *)state->thread));
	if (!state->vcpu)
		return 0;
	cpu = state->vcpu - 1;
	vcpu = bpf_map_lookup_elem(&vcpus, &cpu);
	if (vcpu && vcpu->timer.woken)
		turn_window(&vcpu->timer, is_halted(vcpu));
	return 0;
}

static __always_inline void vcpu_arrives(struct here *here)
{
	struct cpu_state *state = here->state;

	if (likely(!vcpus_known))
		return;
	state->vcpu = 0;
	state->vcpu_charged = 0;
	if (state->stack[0].id)
		find_arriving_vcpu(here->cpu);
}

/* Adds own time to the sum of the thread's phase. */
static __always_inline void charge_vcpu(struct vcpu_record *vcpu, __u64 time)
{
	struct exit_sum *sum = &vcpu->exits[vcpu->reason & (EXIT_REASONS - 1)];

	charge_window(&vcpu->timer, vcpu->phase, time);
	switch (vcpu->phase) {
	case PHASE_GUEST:
		vcpu->guest_ns += time;
		break;
	case PHASE_KVM:
		sum->kvm_ns += time;
		break;
	case PHASE_VMM:
		sum->vmm_ns += time;
		break;
	default:
		vcpu->unknown_ns += time;
	}
}

/* Adds the rest of a part of the thread's run. A global function, which the verifier checks once. */
__noinline int charge_rest(__u32 cpu, __u64 self)
{
	struct cpu_state *state = bpf_map_lookup_elem(&states, &cpu);
	struct vcpu_record *vcpu;
	__u64 rest;

	if (!state)
		return 0;
	rest = self - state->vcpu_charged;
	state->vcpu_charged = 0;
	if (state->opened <= OPENING)
		return 0;
	/* The deepest callers leave little room on the stack, so the index takes the CPU's place. */
	cpu = state->vcpu - 1;
	vcpu = bpf_map_lookup_elem(&vcpus, &cpu);
	if (vcpu)
		charge_vcpu(vcpu, rest);
	return 0;
}

static __always_inline void charge_vcpu_part(struct here *here, __u64 self)
{
	if (unlikely(here->state->vcpu))
		charge_rest(here->cpu, self);
}

/* Gives the current thread an entry. Returns its index plus 1, or 0 if the table is full. */
__noinline __u32 add_vcpu(__u32 cpu)
{
	struct task_struct *task = current_task();
	__u32 tid = FIELD(task, pid), tgid = FIELD(task, tgid);
	struct here here = {};

	if (!find_books(&here, cpu))
		return 0;
	for (int i = 0; i < VCPU_PROBES; i++) {
		__u32 index = vcpu_place(tid, i);
		struct vcpu_record *vcpu = bpf_map_lookup_elem(&vcpus, &index);

		if (!vcpu)
			return 0;
		if (vcpu->tid || bpf_map_update_elem(&vcpu_owners, &index, &tid, BPF_NOEXIST))
			continue;
		vcpu->tgid = tgid;
		vcpu->since = here.state->stack[0].start;
		vcpu->started = FIELD(task, start_time);
		copy_name(vcpu->comm, task);
		barrier();
		vcpu->tid = tid;
		vcpus_known = 1;
		return index + 1;
	}
	here.state->vcpus_unfit++;
	return 0;
}

/*
 * Returns the current thread's own time in this stretch. An interrupt between reading the clock and
 * reading `child` would be subtracted although it is not in the elapsed time.
 */
static __always_inline __u64 own_time(struct here *here)
{
	struct frame *base = &here->state->stack[0];
	__u64 child = base->child;

	for (int i = 0; i < TRIES; i++) {
		if (likely(!was_interrupted(here)))
			break;
		here->now = bpf_ktime_get_ns();
		child = base->child;
		barrier();
	}
	return here->now - base->start - child;
}

/*
 * Handles the start of one of KVM's events: adds the thread's own time since the last event to its
 * phase. Returns the thread's sums, or 0 if the event is not counted. `opened` is set if recording
 * has started on this CPU.
 */
static __always_inline struct vcpu_record *at_guest_event(struct here *here, int *opened)
{
	struct vcpu_record *vcpu;
	struct cpu_state *state;
	__u32 index;
	__u64 own;

	if (!arrive(here))
		return 0;
	state = here->state;
	/* The accounts do not know the thread, or softirqs run in it (PREEMPT_RT). */
	if (unlikely(!state->opened || state->depth || state->thread != (__u64)current_task()))
		return 0;
	if (unlikely(!state->vcpu)) {
		state->vcpu_charged = 0;
		state->vcpu = find_vcpu(state->stack[0].id,
					FIELD(current_task(), start_time));
		if (!state->vcpu)
			state->vcpu = add_vcpu(here->cpu);
		if (!state->vcpu)
			return 0;
	}
	index = state->vcpu - 1;
	vcpu = bpf_map_lookup_elem(&vcpus, &index);
	if (!vcpu)
		return 0;
	*opened = state->opened > OPENING;
	if (*opened) {
		own = own_time(here);
		charge_vcpu(vcpu, own - state->vcpu_charged);
		state->vcpu_charged = own;
	}
	return vcpu;
}

static __always_inline int enter_guest(void)
{
	struct vcpu_record *vcpu;
	struct here here;
	int opened = 0;
	__u64 exited;

	vcpu = at_guest_event(&here, &opened);
	if (!vcpu)
		return 0;
	if (opened) {
		vcpu->entries++;
		exited = vcpu->exited;
		if (exited)
			vcpu->exits[vcpu->reason & (EXIT_REASONS - 1)].elapsed +=
				here.now - within_books(&here, exited);
	}
	vcpu->exited = 0;
	vcpu->phase = PHASE_GUEST;
	return 0;
}

/*
 * Returns the index of a reason in `exits`. The two words are what KVM reports: on x86, the reason
 * and a word that is not used. On arm64, a code and, if that stands for a trap, the exception class.
 */
static __always_inline __u32 exit_index(__u32 first, __u32 second)
{
	__u32 code;

	if (exits_are_traps) {
		code = first & 0x1f;
		return code == 2 ? second & (EXIT_NO_TRAP - 1) : EXIT_NO_TRAP + code;
	}
	/* The upper bits of a VMX reason are flags. */
	code = first & 0xffff;
	if (code < EXIT_HIGH_AT)
		return code;
	code -= EXIT_HIGH_FROM;
	return code < EXIT_OTHER - EXIT_HIGH_AT ? EXIT_HIGH_AT + code : EXIT_OTHER;
}

static __always_inline int exit_guest(__u32 first, __u32 second)
{
	struct vcpu_record *vcpu;
	struct here here;
	int opened = 0;
	__u32 index;

	vcpu = at_guest_event(&here, &opened);
	if (!vcpu)
		return 0;
	index = exit_index(first, second) & (EXIT_REASONS - 1);
	if (opened) {
		vcpu->exits[index].count++;
		vcpu->timer.window_exits++;
		if (exits_are_vmx && index == VMX_PREEMPTION_TIMER)
			note_tick(&vcpu->timer, vcpu->timer.timer, here.now);
	}
	vcpu->reason = index;
	vcpu->exited = here.now;
	vcpu->phase = PHASE_KVM;
	return 0;
}

/* KVM_RUN returns to the program. */
static __always_inline int return_to_vmm(void)
{
	struct vcpu_record *vcpu;
	struct here here;
	int opened = 0;

	vcpu = at_guest_event(&here, &opened);
	if (!vcpu)
		return 0;
	if (opened)
		vcpu->returns++;
	vcpu->phase = PHASE_VMM;
	return 0;
}

/* A halt ended after `time` ns. `waited`: the thread slept, instead of only polling. */
static __always_inline int end_halt(__u64 time, int waited)
{
	struct vcpu_record *vcpu;
	struct here here;
	int opened = 0;

	vcpu = at_guest_event(&here, &opened);
	if (!vcpu || !opened)
		return 0;
	if (waited) {
		vcpu->slept++;
		vcpu->slept_ns += time;
	} else {
		vcpu->polled++;
		vcpu->polled_ns += time;
	}
	return 0;
}

static __always_inline int note_injection(void)
{
	struct vcpu_record *vcpu;
	struct here here;
	int opened = 0;

	vcpu = at_guest_event(&here, &opened);
	if (vcpu && opened)
		vcpu->injected++;
	return 0;
}

/*
 * The guest ended the handling of an interrupt (EOI). If the guest can tell KVM so without an exit,
 * KVM reports the end a second time as a paravirtual one.
 */
static __always_inline int note_end_of_interrupt(int is_paravirtual)
{
	struct vcpu_record *vcpu;
	struct here here;
	int opened = 0;

	vcpu = at_guest_event(&here, &opened);
	if (!vcpu || !opened)
		return 0;
	if (is_paravirtual)
		vcpu->pv_ends++;
	else
		vcpu->ends++;
	return 0;
}

/*
 * KVM's tracepoints. They belong to a module and have no types in the kernel's BTF, so these
 * programs are called with the tracepoint's record. The loader checks its layout in tracefs.
 */

struct kvm_exit_record {
	__u64 common;
	__u32 first; /* x86: the reason. arm64: a code */
	__u32 second; /* arm64: the exception class */
};

struct kvm_halt_record {
	__u64 common;
	__u64 time;
	__u8 waited;
};

SEC("tracepoint")
int kvm_entry(void *ctx)
{
	return enter_guest();
}

SEC("tracepoint")
int kvm_exit(struct kvm_exit_record *ctx)
{
	return exit_guest(ctx->first, ctx->second);
}

SEC("tracepoint")
int kvm_userspace_exit(void *ctx)
{
	return return_to_vmm();
}

SEC("tracepoint")
int kvm_vcpu_wakeup(struct kvm_halt_record *ctx)
{
	return end_halt(ctx->time, ctx->waited);
}

SEC("tracepoint")
int kvm_inj_virq(void *ctx)
{
	return note_injection();
}

SEC("tracepoint")
int kvm_eoi(void *ctx)
{
	return note_end_of_interrupt(0);
}

SEC("tracepoint")
int kvm_pv_eoi(void *ctx)
{
	return note_end_of_interrupt(1);
}

#endif
