/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Records the user code of a followed thread that has waited in a system call or in a page fault:
 * its registers, the end of its stack, and the arguments from which the reader finds the object that
 * it waited for.
 *
 * This is done when the system call or the page fault ends. By then, the length of the wait is known,
 * so that the many short waits of a program cost nothing. The thread is still in the same call, so
 * its registers and its stack are those with which it waited. Only the memory of the current thread
 * can be read.
 *
 * Also records the user code of the thread that ends such a wait by waking the waiting thread.
 *
 * Most programs are built without frame pointers, so the reader unwinds the stack according to the
 * tables in the program's files.
 */
#ifndef TICKTAX_WAITED_H
#define TICKTAX_WAITED_H

#include "follow.h"

/* Size of a page, and of the part of a stack that is read. */
#define STACK_BYTES 4096
#define MAX_PATH 128

/* Order of the registers in `struct pt_regs` on x86-64. */
#define REGISTERS 21
#define REGISTER_SI 13
#define REGISTER_DI 14
#define REGISTER_CS 17
#define REGISTER_SP 19
#define REGISTER_SS 20

/* Segments of 64-bit programs on x86-64, and the size of a thread's kernel stack. */
#define USER_CS 0x33
#define USER_SS 0x2b
#define KERNEL_STACK_BYTES 16384

/* Result of a page fault that has released its lock, and is going to be repeated. */
#define VM_FAULT_RETRY 0x400
/* Result of a page fault that has released its lock. */
#define VM_FAULT_COMPLETED 0x4000

/* x86-64 numbers of system calls. */
#define CALL_SIGRETURN 15
#define CALL_NANOSLEEP 35
#define CALL_EXECVE 59
#define CALL_CLOCK_NANOSLEEP 230
#define CALL_EXECVEAT 322

/* The fields are read in src/waited.rs. */
struct wait_code {
	__u64 time;	  /* when this record was taken, in ns */
	__u64 since;	  /* start of the wait, in ns */
	__u32 tid;	  /* thread ID */
	__u32 tgid;	  /* process ID */
	__u32 call;	  /* system call, as in `struct cpu_state` */
	__u32 cpu;	  /* CPU number */
	char comm[COMM_LEN]; /* thread name */
	__u64 inode;	  /* inode number of the file whose descriptor is the first argument, or that is mapped, or 0 */
	__u32 device;	  /* device number of that file, in the kernel's form */
	__u32 length;	  /* number of bytes of the stack that were read */
	__u64 begin;	  /* their address */
	__u64 magic;	  /* magic number of that file's file system */
	__u64 address;	  /* address of the page fault */
	__u32 woken;	  /* ID of the thread that is being woken */
	__u32 about;	  /* one of the constants in `enum code` */
	__u64 registers[REGISTERS]; /* `struct pt_regs` */
	char path[MAX_PATH]; /* path in the arguments, or the file's name without its directory, or empty */
	char stack[STACK_BYTES]; /* memory at `begin`, which includes the stack pointer */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, STACK_BYTES); /* the loader sets another size if threads are followed */
} wait_codes SEC(".maps");

volatile const __u32 taking_code = 0;	/* record the user code of waits, which needs x86-64 */

/*
 * Returns the class of a wait: whether it was uninterruptible and long, uninterruptible and short,
 * or a sleep, or a wait for any of several inputs, which most servers do most of the time. Returns
 * WAIT_CLASSES if its code is not worth a record.
 */
static __always_inline __u32 wait_class(__u64 length, __u64 detail, __u64 number)
{
	if (!taking_code || length < WAIT_CODE_NS)
		return WAIT_CLASSES;
	switch (number) {
	case CALL_SIGRETURN:
	case CALL_NANOSLEEP:
	case CALL_EXECVE:
	case CALL_CLOCK_NANOSLEEP:
	case CALL_EXECVEAT:
		return WAIT_CLASSES;
	}
	if (detail != DETAIL_SLEEPING)
		return length < WAIT_LONG_NS;
	if (length < WAIT_LONG_NS)
		return WAIT_CLASSES;
	switch (number) {
	case 7: /* poll */
	case 23: /* select */
	case 232: /* epoll_wait */
	case 270: /* pselect6 */
	case 271: /* ppoll */
	case 281: /* epoll_pwait */
	case 441: /* epoll_pwait2 */
		return 3;
	}
	return 2;
}

/* Returns whether the rate of these records allows another one. See note_sample(). */
static __always_inline int may_take_code(struct cpu_state *state, __u32 budget, __u64 now)
{
	__u64 earliest = now - WAIT_BURST * SAMPLE_EVERY_NS, due;

	due = state->code_due[budget & (WAIT_BUDGETS - 1)];
	if (due > now)
		return 0;
	if (due < earliest)
		due = earliest;
	state->code_due[budget & (WAIT_BUDGETS - 1)] = due + SAMPLE_EVERY_NS;
	return 1;
}

/* Same as above, for the wait of the current thread. If the waker's code was recorded, it needs the
 * record of the wait. */
static __always_inline int may_take_own_code(struct cpu_state *state, __u64 number, __u64 now)
{
	__u32 class = wait_class(state->waited, state->waited_detail, number);

	if (class >= WAIT_CLASSES)
		return 0;
	return state->waker_coded == state->waited_since || may_take_code(state, class, now);
}

/* Starts a record of the code of `task`, which is the current thread, or returns 0. */
static __always_inline struct wait_code *begin_code(struct task_struct *task, __u32 about, __u64 now,
						    __u64 since)
{
	struct wait_code *code = bpf_ringbuf_reserve(&wait_codes, sizeof(*code), 0);

	if (!code)
		return 0;
	code->time = now;
	code->since = since;
	code->tid = FIELD(task, pid);
	code->tgid = FIELD(task, tgid);
	code->call = 0;
	code->cpu = bpf_get_smp_processor_id();
	copy_name(code->comm, task);
	code->inode = 0;
	code->magic = 0;
	code->device = 0;
	code->length = 0;
	code->begin = 0;
	code->address = 0;
	code->woken = 0;
	code->about = about;
	code->path[0] = 0;
	return code;
}

/* Reads a `struct pt_regs`. Returns whether it belongs to 64-bit code in user mode. */
static __always_inline int read_user_registers(struct wait_code *code, __u64 registers)
{
	/* The rest of these words has other uses on processors with FRED. */
	return !bpf_probe_read_kernel(code->registers, sizeof(code->registers), (void *)registers) &&
	       (code->registers[REGISTER_CS] & 0xffff) == USER_CS &&
	       (code->registers[REGISTER_SS] & 0xffff) == USER_SS;
}

/*
 * Reads the registers with which the current thread entered the kernel. They are at the end of its
 * kernel stack, or 16 bytes before it if the processor has FRED. Linux 5.10 has no helper for this.
 */
static __always_inline int find_user_registers(struct wait_code *code, struct task_struct *task)
{
	__u64 registers = (__u64)FIELD(task, stack) + KERNEL_STACK_BYTES - sizeof(code->registers);

	return read_user_registers(code, registers) || read_user_registers(code, registers - 16);
}

/* Reads the end of the stack in user mode. */
static __always_inline void read_stack(struct wait_code *code)
{
	/* The end of a stack can be closer than a page. Its last page can then be read whole. */
	code->begin = code->registers[REGISTER_SP] & ~7ULL;
	if (bpf_probe_read_user(code->stack, STACK_BYTES, (void *)code->begin)) {
		code->begin &= ~(STACK_BYTES - 1ULL);
		if (bpf_probe_read_user(code->stack, STACK_BYTES, (void *)code->begin))
			return;
	}
	code->length = STACK_BYTES;
}

/* Returns the current thread's file with this descriptor, or 0. */
static __always_inline struct file *file_of(struct task_struct *task, __u64 number)
{
	struct files_struct *files = FIELD(task, files);
	struct file **list = 0, *file = 0;
	struct fdtable *table = 0;
	unsigned int descriptors = 0;

	if (!files)
		return 0;
	bpf_probe_read_kernel(&table, sizeof(table), __builtin_preserve_access_index(&files->fdt));
	if (!table)
		return 0;
	bpf_probe_read_kernel(&descriptors, sizeof(descriptors),
			      __builtin_preserve_access_index(&table->max_fds));
	bpf_probe_read_kernel(&list, sizeof(list), __builtin_preserve_access_index(&table->fd));
	if (!list || number >= descriptors)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), list + number);
	return file;
}

/*
 * Identifies the file that a thread used. The reader compares it with the file that /proc shows
 * later, because a descriptor or a mapping may have been closed and reused by then.
 */
static __always_inline void identify_file(struct wait_code *code, struct file *file)
{
	struct super_block *super = 0;
	struct inode *inode = 0;
	struct dentry *entry = 0;
	const unsigned char *name = 0;

	if (!file)
		return;
	bpf_probe_read_kernel(&inode, sizeof(inode), __builtin_preserve_access_index(&file->f_inode));
	if (!inode)
		return;
	bpf_probe_read_kernel(&super, sizeof(super), __builtin_preserve_access_index(&inode->i_sb));
	if (!super)
		return;
	bpf_probe_read_kernel(&code->device, sizeof(code->device),
			      __builtin_preserve_access_index(&super->s_dev));
	bpf_probe_read_kernel(&code->magic, sizeof(code->magic),
			      __builtin_preserve_access_index(&super->s_magic));
	bpf_probe_read_kernel(&code->inode, sizeof(code->inode),
			      __builtin_preserve_access_index(&inode->i_ino));
	if (!bpf_core_field_exists(file->f_path.dentry))
		return;
	bpf_probe_read_kernel(&entry, sizeof(entry), __builtin_preserve_access_index(&file->f_path.dentry));
	if (!entry)
		return;
	bpf_probe_read_kernel(&name, sizeof(name), __builtin_preserve_access_index(&entry->d_name.name));
	bpf_probe_read_kernel_str(code->path, MAX_PATH, name);
}

/* Returns the register that contains a path, or 0 if the system call has none. */
static __always_inline int path_register(__u64 number)
{
	switch (number) {
	case 2: /* open */
	case 4: /* stat */
	case 6: /* lstat */
	case 76: /* truncate */
	case 82: /* rename */
	case 83: /* mkdir */
	case 84: /* rmdir */
	case 87: /* unlink */
		return REGISTER_DI;
	case 257: /* openat */
	case 258: /* mkdirat */
	case 262: /* newfstatat */
	case 263: /* unlinkat */
	case 264: /* renameat */
	case 316: /* renameat2 */
	case 332: /* statx */
	case 437: /* openat2 */
		return REGISTER_SI;
	}
	return 0;
}

/*
 * The current thread ends a system call in which it has waited. `registers` is the address of its
 * `struct pt_regs`.
 */
static __noinline void take_wait_code(struct cpu_state *state, __u64 registers)
{
	struct task_struct *task = current_task();
	__u64 number = state->call - CALL_FIRST, now = bpf_ktime_get_ns();
	struct wait_code *code;
	int path;

	if (!may_take_own_code(state, number, now))
		return;
	code = begin_code(task, CODE_CALL, now, state->waited_since);
	if (!code)
		return;
	code->call = state->call;
	if (bpf_probe_read_kernel(code->registers, sizeof(code->registers), (void *)registers))
		goto out;
	identify_file(code, file_of(task, code->registers[REGISTER_DI] & 0xffffffff));
	path = path_register(number);
	if (path == REGISTER_DI)
		bpf_probe_read_user_str(code->path, MAX_PATH, (void *)code->registers[REGISTER_DI]);
	else if (path == REGISTER_SI)
		bpf_probe_read_user_str(code->path, MAX_PATH, (void *)code->registers[REGISTER_SI]);
	read_stack(code);
out:
	bpf_ringbuf_submit(code, 0);
	/* The verifier refuses a function that leaves a pointer to the stack in this register. */
	asm volatile("r0 = 0" ::: "r0");
}

/*
 * The current thread ends a page fault in user mode in which it has waited. `area` is the mapping at
 * `address`, or 0 if it may have been removed.
 */
static __noinline void take_fault_code(struct cpu_state *state, struct vm_area_struct *area,
				       __u64 address, __u64 registers)
{
	struct task_struct *task = current_task();
	__u64 now = bpf_ktime_get_ns();
	struct wait_code *code;
	struct file *file = 0;

	if (!may_take_own_code(state, ~0ULL, now))
		return;
	code = begin_code(task, CODE_FAULT, now, state->waited_since);
	if (!code)
		return;
	code->address = address;
	if (!read_user_registers(code, registers)) {
		bpf_ringbuf_discard(code, 0);
		goto out;
	}
	if (area) {
		bpf_probe_read_kernel(&file, sizeof(file), __builtin_preserve_access_index(&area->vm_file));
		identify_file(code, file);
	}
	read_stack(code);
	bpf_ringbuf_submit(code, 0);
out:
	/* The verifier refuses a function that leaves a pointer to the stack in this register. */
	asm volatile("r0 = 0" ::: "r0");
}

/*
 * The current thread is waking a followed thread. Interrupts and softirqs wake threads without the
 * help of the user code that they interrupt.
 */
static __noinline void take_waker_code(struct here *here, __u32 tid)
{
	struct followed_thread *thread = followed(tid);
	struct task_struct *task = current_task();
	struct wait_code *code;
	__u64 length;
	__u32 class;

	if (!thread || !waits_somewhere(thread) || here->state->depth ||
	    here->now < thread->since || FIELD(task, flags) & PF_KTHREAD)
		return;
	/* Only the longest wait in a system call is recorded. */
	length = here->now - thread->since;
	if (length < WAIT_LONG_NS || length <= thread->waited)
		return;
	class = wait_class(length, thread->detail, thread->call - (__u64)CALL_FIRST);
	if (class >= WAIT_CLASSES || !may_take_code(here->state, WAIT_CLASSES + class, here->now))
		return;
	code = begin_code(task, CODE_WAKER, here->now, thread->since);
	if (!code)
		return;
	code->woken = tid;
	if (!find_user_registers(code, task)) {
		bpf_ringbuf_discard(code, 0);
		goto out;
	}
	read_stack(code);
	thread->waker_coded = thread->since;
	bpf_ringbuf_submit(code, 0);
out:
	/* The verifier refuses a function that leaves a pointer to the stack in this register. */
	asm volatile("r0 = 0" ::: "r0");
}

/* The current thread is waking `woken`. */
static __always_inline void note_waker(void *ctx, struct here *here, struct task_struct *woken)
{
	if (state_of(woken) & TASK_UNINTERRUPTIBLE)
		note_release(ctx, here, woken->pid);
	if (taking_code)
		take_waker_code(here, woken->pid);
}

/* Ends the system call of the current thread. */
static __always_inline void end_call(struct cpu_state *state, __u64 registers)
{
	if (unlikely(state->waited >= WAIT_CODE_NS))
		take_wait_code(state, registers);
	leave_call();
}

/* Earlier waits of this thread do not belong to the page fault that starts now. */
SEC("tp_btf/page_fault_user")
int page_fault_user(__u64 *ctx)
{
	struct cpu_state *state = state_here();

	if (unlikely(state && state->call == CALL_USER))
		state->waited = 0;
	return 0;
}

SEC("fexit/handle_mm_fault")
int page_fault_code(__u64 *ctx)
{
	struct cpu_state *state = state_here();

	if (likely(!state || state->call != CALL_USER || state->waited < WAIT_CODE_NS) ||
	    ctx[4] & VM_FAULT_RETRY)
		return 0;
	take_fault_code(state, ctx[4] & VM_FAULT_COMPLETED ? 0 : (void *)ctx[0], ctx[1], ctx[3]);
	state->waited = 0;
	return 0;
}

#endif
