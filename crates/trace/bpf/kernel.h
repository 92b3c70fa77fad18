/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * The few kernel types and BPF helpers that the programs use. Only names and types matter here,
 * because field offsets are relocated when the object is loaded (CO-RE). Before using a field that
 * some kernels lack, check for it with bpf_core_field_exists. Helper numbers are UAPI
 * (include/uapi/linux/bpf.h).
 */
#ifndef TICKTAX_KERNEL_H
#define TICKTAX_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef long long __s64;

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define barrier() asm volatile("" ::: "memory")
#define barrier_var(var) asm volatile("" : "+r"(var))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* BTF-defined maps. */
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_STACK_TRACE 7
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_F_USER_STACK (1ULL << 8)
#define BPF_F_FAST_STACK_CMP (1ULL << 9)
#define BPF_F_MMAPABLE (1U << 10)

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value,
				   __u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static long (*bpf_get_stackid)(void *ctx, void *map, __u64 flags) = (void *)27;
static long (*bpf_get_stack)(void *ctx, void *to, __u32 size, __u64 flags) = (void *)67;
struct task_struct;
static long (*bpf_get_task_stack)(struct task_struct *task, void *to, __u32 size,
				  __u64 flags) = (void *)141;
static long (*bpf_probe_read_user)(void *to, __u32 size, const void *from) = (void *)112;
static long (*bpf_probe_read_user_str)(void *to, __u32 size, const void *from) = (void *)114;
static long (*bpf_probe_read_kernel_str)(void *to, __u32 size, const void *from) = (void *)115;
static long (*bpf_probe_read_kernel)(void *to, __u32 size, const void *from) = (void *)113;
static void *(*bpf_ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static void (*bpf_ringbuf_discard)(void *data, __u64 flags) = (void *)133;
#ifdef BEFORE_5_12
static __u64 (*bpf_get_current_task)(void) = (void *)35;
#else
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
#endif

#define BPF_FIELD_BYTE_OFFSET 0
#define BPF_FIELD_EXISTS 2
#define BPF_FIELD_LSHIFT_U64 4
#define BPF_FIELD_RSHIFT_U64 5
#define bpf_core_field_exists(field) __builtin_preserve_field_info(field, BPF_FIELD_EXISTS)

/* Reads a field that is a whole byte in some kernels and a single bit in others. */
#define READ_BITS(object, field)                                                                   \
	({                                                                                         \
		__u64 word_ = 0;                                                                   \
		bpf_probe_read_kernel(&word_, sizeof(word_),                                       \
				      (void *)(object) +                                           \
					      __builtin_preserve_field_info(                       \
						      (object)->field, BPF_FIELD_BYTE_OFFSET));    \
		word_ <<= __builtin_preserve_field_info((object)->field, BPF_FIELD_LSHIFT_U64);    \
		word_ >> __builtin_preserve_field_info((object)->field, BPF_FIELD_RSHIFT_U64);     \
	})

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rq {
	__u64 clock;
	unsigned int nr_running;
};

struct cfs_rq {
	__u64 throttled_clock_self_time;
	__u64 throttled_clock_self;
	int throttle_count;
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct sched_dl_entity {
	unsigned int dl_throttled : 1;
	unsigned int dl_yielded : 1;
};

struct timerqueue_node {
	__s64 expires;
};

struct hrtimer_cpu_base {
	unsigned int hres_active : 1;
};

struct hrtimer_clock_base {
	struct hrtimer_cpu_base *cpu_base;
	__s64 offset;
};

struct hrtimer {
	struct timerqueue_node node;
	__s64 _softexpires;
	void *function;
	struct hrtimer_clock_base *base;
	__u8 is_soft;
};

/* The timer of a timed sleep, and the thread that it wakes. */
struct hrtimer_sleeper {
	struct hrtimer timer;
	struct task_struct *task;
};

struct cfs_bandwidth {
	__u64 quota;
	struct hrtimer period_timer;
	struct hrtimer slack_timer;
};

struct task_group {
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct super_block {
	unsigned int s_dev;
	unsigned long s_magic;
};

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct vm_area_struct {
	struct file *vm_file;
};

struct rw_semaphore {
	void *owner;
};

struct mm_struct {
	struct rw_semaphore mmap_lock;
};

struct thread_info {
	unsigned long flags;
	unsigned int status;
};

struct task_struct {
	struct thread_info thread_info;
	void *stack;
	unsigned int __state;
	unsigned int flags;
	int prio;
	int pid;
	int tgid;
	char comm[16];
	struct task_struct *group_leader;
	struct css_set *cgroups;
	struct files_struct *files;
	struct mm_struct *mm;
	void *worker_private;
	int *set_child_tid;
	unsigned long nvcsw;
	unsigned long nivcsw;
	__u64 start_time;
	__u64 utime;
	struct sched_entity se;
	struct sched_dl_entity dl;
	struct task_group *sched_task_group;
	_Bool throttled;
	unsigned in_iowait : 1;
	unsigned frozen : 1;
};

/*
 * Before 5.14, `__state` was named `state`. CO-RE ignores the part of a type name after three
 * underscores.
 */
struct task_struct___before_5_14 {
	long state;
};

/* Target of worker_private in kernel threads (set_child_tid before 5.17); kernel/kthread.c. */
struct kthread {
	void *data;
};

/* Target of `data` in a worker thread's kthread; kernel/workqueue_internal.h. */
struct worker {
	void *current_func;
};

struct irqaction {
	unsigned int irq;
};

struct work_struct {
	void *func;
};

struct timer_list {
	void *function;
};

struct sk_buff {
	unsigned char *head;
	__u16 transport_header;
};

#pragma clang attribute pop

/*
 * Access to the current thread, and to fields of a thread that may be the current one. Before 5.11,
 * the verifier treats the current thread's address as a number, so fields are read with a helper.
 */
#ifdef BEFORE_5_12
#define FIELD(task, field)                                                                         \
	({                                                                                         \
		typeof((task)->field) value_ = 0;                                                  \
		bpf_probe_read_kernel(&value_, sizeof(value_),                                     \
				      __builtin_preserve_access_index(&(task)->field));            \
		value_;                                                                            \
	})

static __always_inline struct task_struct *current_task(void)
{
	return (void *)bpf_get_current_task();
}
#else
#define FIELD(task, field) ((task)->field)

static __always_inline struct task_struct *current_task(void)
{
	return bpf_get_current_task_btf();
}
#endif

/* A thread's name as two words. Calling a helper to copy it would double the cost of a program. */
struct name {
	__u64 words[2];
};

static __always_inline struct name name_of(const struct task_struct *task)
{
	struct name name = {};

#ifdef BEFORE_5_12
	bpf_probe_read_kernel(&name, sizeof(name), __builtin_preserve_access_index(&task->comm));
#else
	name.words[0] = *(const __u64 *)&task->comm[0];
	name.words[1] = *(const __u64 *)&task->comm[8];
#endif
	return name;
}

static __always_inline void copy_name(char *to, const struct task_struct *task)
{
	struct name name = name_of(task);

	((__u64 *)to)[0] = name.words[0];
	((__u64 *)to)[1] = name.words[1];
}

/* include/linux/sched.h */
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_STOPPED 0x0004
#define TASK_TRACED 0x0008
#define TASK_DEAD 0x0080
#define TASK_NOLOAD 0x0400
#define TASK_RTLOCK_WAIT 0x1000
#define TASK_FROZEN 0x8000
#define TS_COMPAT 0x0002 /* x86 */
#define TIF_32BIT (1 << 22) /* arm64 */
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD 0x00200000

#endif
