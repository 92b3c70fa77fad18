// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0
/*
 * Reports each pause in which the kernel throttles a thread that writes to files, with the state
 * of the device that the thread writes to, and each direct reclaim. Loaded only by `ticktax storage
 * pressure`. The programs are raw tracepoints, so kernel memory is read with a helper, just as on
 * kernels before 5.12.
 */
#define BEFORE_5_12
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Kinds of events. `crates/trace/src/pressure.rs` decodes them. */
#define PRESSURE_PAUSE 1
#define PRESSURE_RECLAIM 2

#define DEVICE_BYTES 16
/* Indices of bdi_writeback.stat; enum wb_stat_item, include/linux/backing-dev-defs.h. */
#define WB_RECLAIMABLE 0
#define WB_WRITEBACK 1

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct backing_dev_info {
	char dev_name[64];
};

struct percpu_counter {
	__s64 count;
};

struct bdi_writeback {
	struct backing_dev_info *bdi;
	struct percpu_counter stat[4];
	unsigned long avg_write_bandwidth;
};

struct dirty_throttle_control {
	unsigned long dirty;
	unsigned long thresh;
	unsigned long bg_thresh;
	unsigned long wb_dirty;
	unsigned long wb_thresh;
};

#pragma clang attribute pop

struct pressure_event {
	__u64 start;
	__u64 length;
	__u32 kind;
	__u32 pid;
	__u32 tid;
	__u32 unused;
	/* Name of the process. */
	char comm[16];
	/* The rest describes a pause, in pages: the dirty data that counts against the limit, and that
	 * limit; the same for the device; the device's bandwidth per second. */
	__u64 dirty;
	__u64 limit;
	__u64 device_dirty;
	__u64 device_limit;
	__u64 bandwidth;
	__s64 reclaimable;
	__s64 writeback;
	/* Writers are not throttled for the limit's sake below this amount of dirty data. */
	__u64 free;
	char device[DEVICE_BYTES];
};

/* Pauses and reclaims that are not over, by thread. A thread in a pause reclaims nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct pressure_event);
	__uint(max_entries, 1 << 14);
} pressure_open SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} pressure_events SEC(".maps");

/* Number of events that did not fit. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} pressure_lost SEC(".maps");

static __always_inline void lose(void)
{
	__u32 count = 0;
	__u64 *lost = bpf_map_lookup_elem(&pressure_lost, &count);

	if (lost)
		__sync_fetch_and_add(lost, 1);
}

static __always_inline void note_thread(struct pressure_event *event)
{
	struct task_struct *task = current_task();

	event->pid = FIELD(task, tgid);
	event->tid = FIELD(task, pid);
	copy_name(event->comm, FIELD(task, group_leader));
}

static __always_inline void note_device(struct pressure_event *event, struct bdi_writeback *wb)
{
	struct backing_dev_info *device = FIELD(wb, bdi);

	event->bandwidth = FIELD(wb, avg_write_bandwidth);
	event->reclaimable = FIELD(wb, stat[WB_RECLAIMABLE].count);
	event->writeback = FIELD(wb, stat[WB_WRITEBACK].count);
	bpf_probe_read_kernel_str(event->device, sizeof(event->device),
				  __builtin_preserve_access_index(&device->dev_name));
}

/* The pause itself starts when the thread is switched out. */
static __always_inline int expect_pause(struct pressure_event *event, struct bdi_writeback *wb,
					long pause)
{
	__u32 tid;

	/* The kernel also reports writers that need not wait. */
	if (pause <= 0)
		return 0;
	event->kind = PRESSURE_PAUSE;
	note_thread(event);
	note_device(event, wb);
	tid = event->tid;
	if (bpf_map_update_elem(&pressure_open, &tid, event, BPF_ANY))
		lose();
	return 0;
}

/*
 * With 12 arguments, until the arguments became a pointer. Reading the last argument keeps this
 * program from being attached on newer kernels.
 */
SEC("raw_tp/balance_dirty_pages")
int balance_dirty_pages(__u64 *ctx)
{
	struct pressure_event event = {};

	event.limit = ctx[1];
	event.free = (ctx[1] + ctx[2]) / 2;
	event.dirty = ctx[3];
	event.device_limit = ctx[4];
	event.device_dirty = ctx[5];
	event.start = ctx[11];
	return expect_pause(&event, (void *)ctx[0], ctx[10]);
}

SEC("raw_tp/balance_dirty_pages")
int balance_dirty_pages_by_pointer(__u64 *ctx)
{
	struct dirty_throttle_control *control = (void *)ctx[1];
	struct pressure_event event = {};

	event.limit = FIELD(control, thresh);
	event.free = (event.limit + FIELD(control, bg_thresh)) / 2;
	event.dirty = FIELD(control, dirty);
	event.device_limit = FIELD(control, wb_thresh);
	event.device_dirty = FIELD(control, wb_dirty);
	return expect_pause(&event, (void *)ctx[0], ctx[6]);
}

static __always_inline void report(struct pressure_event *event, __u32 tid)
{
	struct pressure_event *reported =
		bpf_ringbuf_reserve(&pressure_events, sizeof(*reported), 0);

	if (reported) {
		*reported = *event;
		reported->length = bpf_ktime_get_ns() - event->start;
		bpf_ringbuf_submit(reported, 0);
	} else {
		lose();
	}
	bpf_map_delete_elem(&pressure_open, &tid);
}

/* A thread that is preempted before its pause has not started to wait. */
SEC("raw_tp/sched_switch")
int sched_switch(__u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	__u32 tid = FIELD(prev, pid);
	struct pressure_event *event = bpf_map_lookup_elem(&pressure_open, &tid);

	if (event && event->kind == PRESSURE_PAUSE && !(ctx[0] & 1)) {
		event->start = bpf_ktime_get_ns();
		/* Nonzero marks a pause that has started. */
		event->length = 1;
	}
	tid = FIELD(next, pid);
	event = bpf_map_lookup_elem(&pressure_open, &tid);
	if (event && event->kind == PRESSURE_PAUSE && event->length)
		report(event, tid);
	return 0;
}

SEC("raw_tp/mm_vmscan_direct_reclaim_begin")
int mm_vmscan_direct_reclaim_begin(__u64 *ctx)
{
	struct pressure_event event = { .kind = PRESSURE_RECLAIM };
	__u32 tid;

	note_thread(&event);
	event.start = bpf_ktime_get_ns();
	tid = event.tid;
	if (bpf_map_update_elem(&pressure_open, &tid, &event, BPF_ANY))
		lose();
	return 0;
}

SEC("raw_tp/mm_vmscan_direct_reclaim_end")
int mm_vmscan_direct_reclaim_end(__u64 *ctx)
{
	struct task_struct *task = current_task();
	__u32 tid = FIELD(task, pid);
	struct pressure_event *event = bpf_map_lookup_elem(&pressure_open, &tid);

	if (event && event->kind == PRESSURE_RECLAIM)
		report(event, tid);
	return 0;
}
