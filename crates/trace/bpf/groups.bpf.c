// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0
/*
 * Reports which cgroup each new process starts in, and the cgroups that are created or that threads
 * move to. Separate from the tracer, because nothing here runs at a context switch.
 *
 * The programs are raw tracepoints, whose arguments have no types. Among typed arguments, verifiers
 * before Linux 5.17 reject the path. Kernel memory is therefore read with a helper, just as on
 * kernels before 5.12.
 */
#define BEFORE_5_12
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Size of the kernel's buffer for the path in the tracepoints (TRACE_CGROUP_PATH_LEN). */
#define PATH_BYTES 1024

/* include/uapi/linux/sched.h */
#define CLONE_THREAD 0x00010000

/* Kinds of events. `crates/trace/src/groups.rs` decodes them. */
#define GROUP_CREATED 1
#define GROUP_ENTERED 2
#define GROUP_STARTED 3

#define BPF_ENUMVAL_VALUE 1

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup___rooted {
	struct cgroup_root *root;
};

struct css_set___controlled {
	struct cgroup_subsys_state *subsys[1];
};

struct signal_struct {
	int nr_threads;
};

struct task_struct___signalled {
	struct signal_struct *signal;
};

#pragma clang attribute pop

/* The loader replaces the value, which differs between kernels. It must not be 0 here. */
enum cgroup_subsys_id {
	cpuset_cgrp_id,
	cpu_cgrp_id,
};

/* Number of the CPU controller's hierarchy. It is 0 for cgroup v2. */
volatile const __u32 hierarchy;

struct group_event {
	__u64 at;
	/* ID of the cgroup, which is also the inode number of its directory. */
	__u64 cgroup;
	__u32 pid;
	/* A thread that moved alone, or 0 for the entire process. */
	__u32 tid;
	__u32 kind;
	__u32 unused;
};

struct group_path_event {
	struct group_event event;
	char path[PATH_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 19);
} group_events SEC(".maps");

/* Number of events that did not fit. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} groups_lost SEC(".maps");

static __always_inline void lose(void)
{
	__u32 first = 0;
	__u64 *lost = bpf_map_lookup_elem(&groups_lost, &first);

	if (lost)
		__sync_fetch_and_add(lost, 1);
}

static __always_inline void fill(struct group_event *event, __u32 kind, struct cgroup *cgroup)
{
	struct kernfs_node *node = FIELD(cgroup, kn);

	event->at = bpf_ktime_get_ns();
	event->cgroup = FIELD(node, id);
	event->kind = kind;
	event->pid = 0;
	event->tid = 0;
	event->unused = 0;
}

static __always_inline int is_watched(struct cgroup *cgroup)
{
	struct cgroup___rooted *rooted = (void *)cgroup;
	struct cgroup_root *root = FIELD(rooted, root);

	return FIELD(root, hierarchy_id) == hierarchy;
}

/* Reports a cgroup with its path, which the tracepoint provides. */
static __always_inline struct group_path_event *begin_with_path(__u32 kind, struct cgroup *cgroup,
								const char *path)
{
	struct group_path_event *with_path;

	if (!is_watched(cgroup))
		return 0;
	with_path = bpf_ringbuf_reserve(&group_events, sizeof(*with_path), 0);
	if (!with_path) {
		lose();
		return 0;
	}
	fill(&with_path->event, kind, cgroup);
	with_path->path[0] = 0;
	bpf_probe_read_kernel_str(with_path->path, sizeof(with_path->path), path);
	return with_path;
}

SEC("raw_tp/cgroup_mkdir")
int cgroup_mkdir(__u64 *ctx)
{
	struct group_path_event *created;

	created = begin_with_path(GROUP_CREATED, (void *)ctx[0], (void *)ctx[1]);
	if (created)
		bpf_ringbuf_submit(created, 0);
	return 0;
}

/* A single-threaded process moves as a whole, even if only its thread was moved. */
static __always_inline int moves_alone(struct task_struct *task, int whole)
{
	struct task_struct___signalled *signalled = (void *)task;
	struct signal_struct *signal;

	if (whole)
		return 0;
	signal = FIELD(signalled, signal);
	return FIELD(signal, nr_threads) > 1;
}

SEC("raw_tp/cgroup_attach_task")
int cgroup_attach_task(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[2];
	struct group_path_event *entered;

	entered = begin_with_path(GROUP_ENTERED, (void *)ctx[0], (void *)ctx[1]);
	if (!entered)
		return 0;
	entered->event.pid = FIELD(task, tgid);
	if (moves_alone(task, ctx[3] & 1))
		entered->event.tid = FIELD(task, pid);
	bpf_ringbuf_submit(entered, 0);
	return 0;
}

/* Returns the thread's cgroup in the watched hierarchy. */
static __always_inline struct cgroup *cgroup_of(struct task_struct *task)
{
	struct css_set *set = FIELD(task, cgroups);
	struct cgroup_subsys_state *state = 0;
	__u64 controller;
	void *states;

	if (!hierarchy)
		return FIELD(set, dfl_cgrp);
	controller = __builtin_preserve_enum_value(*(enum cgroup_subsys_id *)cpu_cgrp_id,
						   BPF_ENUMVAL_VALUE);
	states = __builtin_preserve_access_index(&((struct css_set___controlled *)set)->subsys);
	bpf_probe_read_kernel(&state, sizeof(state), states + controller * sizeof(state));
	return FIELD(state, cgroup);
}

/*
 * A child starts in its parent's cgroup, or in the one that clone3 names. Threads are left out if
 * they are in the cgroup of their process.
 */
SEC("raw_tp/task_newtask")
int task_newtask(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct cgroup *cgroup = cgroup_of(task);
	int is_thread = (ctx[1] & CLONE_THREAD) != 0;
	struct group_event *started;

	if (is_thread && cgroup == cgroup_of(FIELD(task, group_leader)))
		return 0;
	started = bpf_ringbuf_reserve(&group_events, sizeof(*started), 0);
	if (!started) {
		lose();
		return 0;
	}
	fill(started, GROUP_STARTED, cgroup);
	started->pid = FIELD(task, tgid);
	started->tid = is_thread ? FIELD(task, pid) : 0;
	bpf_ringbuf_submit(started, 0);
	return 0;
}
