// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0
/*
 * The tracer: keeps a stack of the open intervals on each CPU. When one of them ends, it emits a
 * span or adds to a sum.
 *
 * The bottom of the stack is a thread or idle. sched_switch ends one such interval (a stretch) and
 * starts the next at the same time, so stretches cover the CPU's time without gaps. Interrupts and
 * softirqs are pushed on top and popped. A span's own time is its length minus the lengths of the
 * spans directly above it. A CPU's own times therefore add up to the time between its first and its
 * last switch. The accounts balance by construction, and the reader checks this.
 *
 * An interrupt can arrive within a softirq's program. Its program then pushes, pops and adds to
 * `child`. The order of the stores in push() and pop() (books.h) keeps the sum exact even then.
 */
#include "contention.h"
#include "guest_timers.h"
#include "late.h"
#include "sample.h"
#include "waited.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static __always_inline int enter(__u8 kind, __u32 id, __u64 detail, __u8 flags)
{
	struct here here;

	if (arrive(&here))
		push(&here, kind, id, detail, flags);
	return 0;
}

static __always_inline int leave(__u8 kind, __u32 id, __u32 mask, __u8 flags)
{
	struct here here;

	if (arrive(&here))
		pop(&here, kind, id, mask, flags);
	return 0;
}

/*
 * Enters a function in the interrupt or softirq at the top of the stack. Its frame has the same ID.
 */
static __always_inline int enter_function(__u64 function)
{
	struct here here;
	struct frame *top;

	if (!arrive(&here))
		return 0;
	/* At depth 0, a thread runs the function, and no interrupt or softirq is open. */
	if (here.state->depth == 0)
		return 0;
	top = &here.state->stack[here.state->depth & (MAX_DEPTH - 1)];
	push(&here, top->kind, top->id, function, FLAG_FUNCTION);
	return 0;
}

static __always_inline int is_soft(struct hrtimer *timer)
{
	return !bpf_core_field_exists(timer->is_soft) || READ_BITS(timer, is_soft) != 0;
}

/*
 * Same as enter_function(), for a high-resolution timer's function. If no known interrupt is open,
 * the timer came from one without a tracepoint (a hypervisor's timer has its own vector), which
 * gets a frame. Timers in softirqs are ignored, because a preempted softirq (PREEMPT_RT) is no
 * longer known.
 */
static __always_inline int enter_timer(struct hrtimer *timer)
{
	struct here here;
	struct frame *top;
	__s64 delay;

	if (!arrive(&here))
		return 0;
	note_refill(&here, timer);
	if (unlikely(here.state->depth == 0)) {
		if (is_soft(timer))
			return 0;
		push(&here, KIND_IRQ, VECTOR_UNTRACED_TIMER, DETAIL_NONE, 0);
		if (here.state->depth == 0)
			return 0;
	}
	top = &here.state->stack[here.state->depth & (MAX_DEPTH - 1)];
	delay = top->start - timer->node.expires;
	if (unlikely(delay > LATE_NS))
		note_late(&here, timer, timer->node.expires);
	push(&here, top->kind, top->id, (__u64)timer->function, FLAG_FUNCTION);
	return 0;
}

/* Ends the top frame if it belongs to a function. Returns whether any frame was open. */
static __always_inline int leave_top(struct here *here)
{
	struct frame *top;

	if (here->state->depth == 0)
		return 0;
	top = &here->state->stack[here->state->depth & (MAX_DEPTH - 1)];
	if (top->flags & FLAG_FUNCTION)
		pop(here, top->kind, 0, ANY_ID, FLAG_FUNCTION);
	return 1;
}

static __always_inline int leave_function(void)
{
	struct here here;

	if (arrive(&here))
		leave_top(&here);
	return 0;
}

static __always_inline int leave_timer(void)
{
	struct here here;
	struct frame *top;

	if (!arrive(&here))
		return 0;
	if (unlikely(here.state->late_due))
		emit_late(&here);
	if (!leave_top(&here))
		return 0;
	top = &here.state->stack[1];
	if (unlikely(here.state->depth == 1 && top->id == VECTOR_UNTRACED_TIMER &&
		     top->kind == KIND_IRQ))
		pop(&here, KIND_IRQ, VECTOR_UNTRACED_TIMER, EXACT_ID, 0);
	return 0;
}

/*
 * Updates the flight recorder at a switch: thread names, the start and end of off-CPU times, and
 * frames.
 */
static __always_inline void note_switch(struct here *here, struct task_struct *prev, struct task_struct *next)
{
	__u32 leaves = prev->pid, comes = here->state->stack[0].id;
	struct trigger_plan *plan = plan_of_triggers();

	note_leaving(here, leaves, here->left);
	note_name(prev, leaves);
	watch_frames(here, plan, leaves,
		     here->left == DETAIL_PREEMPTED ? STANDS_READY : STANDS_ASLEEP);
	here->left = 0;
	look_at_wait(here, plan, next, comes);
	watch_frames(here, plan, comes, STANDS_RUNNING);
}

SEC("tp_btf/sched_switch")
int sched_switch(__u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	struct cpu_state *state;
	struct here here;
	int throttled_here;

	here.running = 0;
	here.state = 0;
	if (!arrive(&here)) {
		/*
		 * After the end of recording, switches are still counted, because a reader may
		 * compare them with the kernel's count. Throttled waits open at the end stay open.
		 * If a wait ends while this CPU is not recorded, it must not appear to continue.
		 */
		if (here.running && here.state)
			here.state->switches++;
		else if (unlikely(throttled_now > 0))
			forget_wait(next);
		return 0;
	}
	state = here.state;
	if (unlikely(!state->opened)) {
		state->opened = here.now < here.control->since ? OPENING : here.now;
		state->last = here.now;
		state->depth = 0;
		state->stack[0].start = here.now;
		state->stack[0].child = 0;
		state->switches++;
		set_current(&here, next);
		vcpu_arrives(&here);
		if (unlikely(here.running & RUN_FOLLOW)) {
			here.began = here.now;
			sched_out(ctx, &here, prev, ctx[0] & 1);
			sched_in(&here, next);
		}
		return 0;
	}
	/*
	 * At a switch, no frame is open unless an exit was missed, or softirqs run in preemptible
	 * threads (PREEMPT_RT). The rest of such frames counts as the thread's time.
	 */
	if (unlikely(state->depth)) {
		state->cut += state->depth;
		here.now = unwind(here.cpu, here.now, 0);
	}
	state->switches++;
	here.began = state->stack[0].start;
	throttled_here = is_throttled(prev) && prev->pid;
	if (flight && prev->pid)
		here.left = throttled_here ? DETAIL_THROTTLED :
					     why_absent(prev, state_of(prev), ctx[0] & 1);
	if (unlikely(state->thread != (__u64)prev))
		here.now = lost_sight(here.cpu, here.now, here.left);
	else if (ends_in_call(&here, state->stack[0].detail))
		end_stretch_in_call(&here);
	else
		end_stretch(&here, prev);
	set_current(&here, next);
	vcpu_arrives(&here);
	if (flight)
		note_switch(&here, prev, next);
	if (unlikely(throttled_now > 0) && next->pid)
		end_wait(&here, next);
	if (unlikely(throttled_here))
		begin_wait(&here, prev);
	if (unlikely(here.running & RUN_FOLLOW)) {
		sched_out(ctx, &here, prev, (ctx[0] & 1) | throttled_here << 1);
		sched_in(&here, next);
	}
	return 0;
}

SEC("tp_btf/sched_wakeup")
int sched_wakeup(__u64 *ctx)
{
	return wake((void *)ctx[0]);
}

/* Runs on the waking CPU, before the kernel decides where the thread is going to run. */
SEC("tp_btf/sched_waking")
int sched_waking(__u64 *ctx)
{
	struct task_struct *woken = (void *)ctx[0];
	struct here here;
	__u32 tid;

	if (!arrive(&here))
		return 0;
	tid = woken->pid;
	edge(&here, FLAG_WOKE, tid);
	if (unlikely(here.running & RUN_FOLLOW)) {
		if (state_of(woken) & TASK_FROZEN)
			note_thaw(tid);
		note_waker(ctx, &here, woken);
	}
	if (flight)
		note_waking(ctx, &here, woken, tid);
	return 0;
}

SEC("tp_btf/workqueue_queue_work")
int workqueue_queue_work(__u64 *ctx)
{
	struct work_struct *work = (void *)ctx[2];
	struct here here;

	if (arrive(&here))
		edge(&here, FLAG_QUEUED, (__u64)work->func);
	return 0;
}

/* Only the first raise counts. A softirq may be raised repeatedly until it starts. */
SEC("tp_btf/softirq_raise")
int softirq_raise(__u64 *ctx)
{
	__u32 number = ctx[0] & (SOFTIRQS - 1);
	struct here here;

	if (!arrive(&here) || here.state->raised[number])
		return 0;
	here.state->raised[number] = 1;
	edge(&here, FLAG_RAISED, number);
	return 0;
}

/*
 * Fires for every new thread. The better known sched_process_fork does not fire for threads that
 * the kernel adds to a process, such as those of io_uring and vhost.
 */
SEC("tp_btf/task_newtask")
int task_newtask(__u64 *ctx)
{
	return follow_child((void *)ctx[0]);
}

/*
 * Attached to the same tracepoint. In a single program, both parts together are too complex for the
 * verifier of Linux 6.1.
 */
SEC("raw_tp")
int thread_started(__u64 *ctx)
{
	struct task_struct *child = (void *)ctx[0];
	struct here here;
	__u32 tid = 0;

	if (summing || flight || !arrive(&here))
		return 0;
	bpf_probe_read_kernel(&tid, sizeof(tid), __builtin_preserve_access_index(&child->pid));
	edge(&here, FLAG_STARTED, tid);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int sched_process_exec(__u64 *ctx)
{
	return change_number((void *)ctx[0], ctx[1]);
}

SEC("fentry/freeze_task")
int freeze_task(__u64 *ctx)
{
	return note_freeze((void *)ctx[0]);
}

SEC("tp_btf/sys_enter")
int sys_enter(__u64 *ctx)
{
	struct cpu_state *state = state_here();

	if (unlikely(!state))
		return 0;
	state->calls++;
	if (unlikely(state->call))
		enter_call(ctx[1]);
	return 0;
}

SEC("tp_btf/sys_exit")
int sys_exit(__u64 *ctx)
{
	struct cpu_state *state = state_here();

	if (unlikely(state && state->call >= CALL_FIRST))
		end_call(state, ctx[0]);
	return 0;
}

SEC("tp_btf/hrtimer_start")
int hrtimer_start(__u64 *ctx)
{
	struct cpu_state *state = state_here();

	if (unlikely(state && state->call && state->depth == 0))
		note_timer(state, (void *)ctx[0]);
	return 0;
}

/* Returns whether the current thread has a run on this CPU that can be split. */
static __always_inline int may_split(struct here *here)
{
	return arrive(here) && here->state->opened && here->state->depth == 0;
}

/* Splits the current thread's run. The next part does `detail`. */
static __always_inline int split(__u64 detail)
{
	struct here here;

	if (may_split(&here))
		split_stretch(&here, current_task(), detail);
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int workqueue_execute_start(__u64 *ctx)
{
	struct work_struct *work = (void *)ctx[0];

	return split((__u64)work->func);
}

SEC("tp_btf/workqueue_execute_end")
int workqueue_execute_end(__u64 *ctx)
{
	return split(DETAIL_NONE);
}

/* Same as split(), for a function's entry or exit. */
static __always_inline int split_at_function(__u64 detail)
{
	struct here here;

	if (may_split(&here) && enter_alone(here.state)) {
		split_stretch(&here, current_task(), detail);
		leave_alone(here.state);
	}
	return 0;
}

/*
 * Returns whether the current thread is followed and in a system call. A fault there is part of the
 * call: mlock, for example, consists of faults.
 */
static __always_inline int is_in_call(void)
{
	struct cpu_state *state = state_here();

	return state && state->call >= CALL_FIRST;
}

/*
 * If a fault sleeps (waiting for a page from disk), the switch splits it. The part after the switch
 * counts as the thread's own time, because nothing marks a thread as handling a fault.
 */
SEC("fentry/handle_mm_fault")
int page_fault_entry(__u64 *ctx)
{
	return is_in_call() ? 0 : split_at_function(DETAIL_PAGE_FAULT);
}

SEC("fexit/handle_mm_fault")
int page_fault_exit(__u64 *ctx)
{
	return is_in_call() ? 0 : split_at_function(DETAIL_NONE);
}

/*
 * If reclaim sleeps, the switch splits it in the same way as a page fault. A kernel thread that
 * reclaims memory for others is doing its own work, and keeps the name of its work item.
 */
static __always_inline int turn_reclaim(__u64 detail)
{
	if (FIELD(current_task(), flags) & PF_KTHREAD)
		return 0;
	return split(detail);
}

/*
 * Attached to the tracepoints of direct reclaim and of reclaim for a memory cgroup that reached its
 * limit. The two never interrupt each other, so they can share programs.
 */
SEC("raw_tp")
int reclaim_begin(__u64 *ctx)
{
	return turn_reclaim(DETAIL_RECLAIM);
}

SEC("raw_tp")
int reclaim_end(__u64 *ctx)
{
	return turn_reclaim(DETAIL_NONE);
}

SEC("tp_btf/softirq_entry")
int softirq_entry(__u64 *ctx)
{
	__u32 number = ctx[0] & (SOFTIRQS - 1);
	struct here here;

	if (!arrive(&here))
		return 0;
	here.state->raised[number] = 0;
	push(&here, KIND_SOFTIRQ, ctx[0], DETAIL_NONE, 0);
	return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_exit(__u64 *ctx)
{
	return leave(KIND_SOFTIRQ, ctx[0], EXACT_ID, 0);
}

SEC("tp_btf/irq_handler_entry")
int irq_handler_entry(__u64 *ctx)
{
	return enter(KIND_IRQ, ctx[0], DETAIL_NONE, 0);
}

SEC("tp_btf/irq_handler_exit")
int irq_handler_exit(__u64 *ctx)
{
	return leave(KIND_IRQ, ctx[0], EXACT_ID, 0);
}

/* The entry program for an architecture-specific interrupt's tracepoint. */
#define VECTOR_ENTRY(name, vector)                                                                 \
	SEC("tp_btf/" #name "_entry")                                                              \
	int name##_entry(__u64 *ctx)                                                               \
	{                                                                                          \
		return enter(KIND_IRQ, vector, DETAIL_NONE, 0);                                    \
	}

VECTOR_ENTRY(local_timer, VECTOR_LOCAL_TIMER)
VECTOR_ENTRY(reschedule, VECTOR_RESCHEDULE)
VECTOR_ENTRY(call_function, VECTOR_CALL_FUNCTION)
VECTOR_ENTRY(call_function_single, VECTOR_CALL_FUNCTION_SINGLE)
VECTOR_ENTRY(irq_work, VECTOR_IRQ_WORK)
VECTOR_ENTRY(thermal_apic, VECTOR_THERMAL)
VECTOR_ENTRY(threshold_apic, VECTOR_THRESHOLD)
VECTOR_ENTRY(deferred_error_apic, VECTOR_DEFERRED_ERROR)
VECTOR_ENTRY(error_apic, VECTOR_APIC_ERROR)
VECTOR_ENTRY(spurious_apic, VECTOR_SPURIOUS)
VECTOR_ENTRY(x86_platform_ipi, VECTOR_PLATFORM_IPI)

/*
 * The exit of all of these interrupts. They do not nest, so it ends the one that is open. Verifying
 * a copy for each would take almost half of the tracer's load time. Only a raw tracepoint's program
 * can be attached to several tracepoints.
 */
SEC("raw_tp")
int vector_exit(__u64 *ctx)
{
	return leave(KIND_IRQ, VECTOR_LOCAL_TIMER, ANY_VECTOR, 0);
}

/*
 * Attached to the local timer's tracepoint after the program that pushes the interrupt's frame, so
 * that the cost of a sample counts as the interrupt's.
 */
SEC("raw_tp")
int stack_sample(__u64 *ctx)
{
	return sample(ctx);
}

/* Attached to a clock event on each CPU if a profile is recorded. */
SEC("perf_event")
int profile_sample(void *ctx)
{
	return profile(ctx);
}

SEC("tp_btf/hrtimer_expire_entry")
int hrtimer_expire_entry(__u64 *ctx)
{
	return enter_timer((void *)ctx[0]);
}

SEC("tp_btf/hrtimer_expire_exit")
int hrtimer_expire_exit(__u64 *ctx)
{
	return leave_timer();
}

SEC("tp_btf/timer_expire_entry")
int timer_expire_entry(__u64 *ctx)
{
	struct timer_list *timer = (void *)ctx[0];

	return enter_function((__u64)timer->function);
}

SEC("tp_btf/timer_expire_exit")
int timer_expire_exit(__u64 *ctx)
{
	return leave_function();
}

/*
 * A function that another CPU asked this one to call. This is a raw tracepoint, because the
 * verifier rejects function pointers among the typed arguments of other tracepoints.
 */
SEC("raw_tp/csd_function_entry")
int csd_function_entry(__u64 *ctx)
{
	return enter_function(ctx[0]);
}

SEC("raw_tp/csd_function_exit")
int csd_function_exit(__u64 *ctx)
{
	return leave_function();
}

/* Tick stops are only counted, because another hook already records the time that they take. */
SEC("tp_btf/tick_stop")
int tick_stop(__u64 *ctx)
{
	struct here here;

	/* If the first argument is 0, the tick is still needed and does not stop. */
	if ((__u32)ctx[0] && arrive(&here))
		here.state->ticks_stopped++;
	return 0;
}

/* Called after an NMI handler has ended, with the handler's duration. */
SEC("tp_btf/nmi_handler")
int nmi_handler(__u64 *ctx)
{
	__u64 handler = ctx[0], length = ctx[1];
	struct here here;
	struct frame *top;
	struct frame ended = {};

	if (!arrive(&here) || !here.state->opened)
		return 0;
	top = &here.state->stack[here.state->depth & (MAX_DEPTH - 1)];
	add(&top->child, length);
	ended.start = here.now - length;
	ended.detail = handler;
	ended.kind = KIND_NMI;
	account(&here, &ended, here.now, current_task());
	return 0;
}
