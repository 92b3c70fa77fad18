// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0
/*
 * Reports each write that a block device completes: its owner (the inode whose page is written),
 * the thread that submitted it, and how long it took. Loaded only by `ticktax storage`, and
 * separate from the tracer, because nothing here runs at a context switch.
 *
 * The unit is a bio, because the pages of a bio belong to one inode, whereas the block layer merges
 * bios of different inodes into one request. The programs are raw tracepoints, so kernel memory is
 * read with a helper, just as on kernels before 5.12.
 */
#define BEFORE_5_12
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define BPF_TYPE_SIZE 1
#define BPF_ENUMVAL_EXISTS 0
#define BPF_ENUMVAL_VALUE 1

/* include/linux/blk_types.h */
#define REQ_OP_MASK 0xff
#define REQ_OP_DISCARD 3
#define REQ_OP_SECURE_ERASE 5
/* Low bits of page->mapping: not the page cache of a file. */
#define PAGE_MAPPING_FLAGS 3UL

/* Flags of an event. `crates/trace/src/writes.rs` decodes them. */
#define WRITE_META 1
#define WRITE_FUA 2
#define WRITE_FLUSH 4
#define WRITE_SWAP 8
/* The page belongs to an inode. */
#define WRITE_OWNED 16
#define WRITE_KERNEL_THREAD 32

#define DESCRIPTION_BYTES 24

/* Maximum number of bios in a request. The remaining ones would stay in flight forever. */
#define MOST_BIOS 1024

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct address_space {
	struct inode *host;
};

struct inode___cached {
	struct address_space *i_mapping;
};

struct folio {
	struct address_space *mapping;
};

/* Before 5.16, pages had no folios. */
struct page {
	struct address_space *mapping;
	unsigned long compound_head;
};

struct page___since_7_0 {
	unsigned long compound_info;
};

struct bio_vec {
	struct page *bv_page;
};

struct bvec_iter {
	unsigned long long bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
};

struct gendisk {
	int major;
	int first_minor;
};

struct block_device {
	unsigned long long bd_start_sect;
	struct gendisk *bd_disk;
};

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	struct bvec_iter bi_iter;
	struct bio_vec *bi_io_vec;
};

struct bio___before_5_12 {
	struct gendisk *bi_disk;
};

struct request {
	struct bio *bio;
};

struct worker___described {
	char desc[DESCRIPTION_BYTES];
};

#pragma clang attribute pop

enum req_flag_bits {
	__REQ_META = 1,
	__REQ_PREFLUSH = 2,
	__REQ_FUA = 3,
	__REQ_SWAP = 4,
};

/* Value of a bit of bi_opf, or 0 if this kernel has no such bit. */
#define REQ_FLAG(bit)                                                                              \
	(__builtin_preserve_enum_value(*(enum req_flag_bits *)bit, BPF_ENUMVAL_EXISTS) ?           \
		 1U << __builtin_preserve_enum_value(*(enum req_flag_bits *)bit,                   \
						     BPF_ENUMVAL_VALUE) :                          \
		 0)

struct write_event {
	/* When the bio was submitted, and when it was completed. */
	__u64 queued;
	__u64 completed;
	/* First sector on the disk, in units of 512 bytes. */
	__u64 sector;
	/* Owner: an inode, its superblock's device, and the type of the file system. */
	__u64 inode;
	__u64 magic;
	__u32 owner_device;
	__u32 bytes;
	__u32 disk_major;
	__u32 disk_minor;
	__u32 pid;
	__u32 tid;
	__u32 flags;
	__u32 unused;
	char comm[16];
	/* Current task of a worker thread, for example `flush-259:0`. */
	char description[DESCRIPTION_BYTES];
};

/* Writes in flight, by the address of their bio. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64);
	__type(value, struct write_event);
	__uint(max_entries, 1 << 15);
} writes_in_flight SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} write_events SEC(".maps");

/* Number of writes that did not fit, and their bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 2);
} writes_lost SEC(".maps");

static __always_inline void lose(__u64 bytes)
{
	__u32 count = 0, sum = 1;
	__u64 *lost = bpf_map_lookup_elem(&writes_lost, &count);

	if (lost)
		__sync_fetch_and_add(lost, 1);
	lost = bpf_map_lookup_elem(&writes_lost, &sum);
	if (lost)
		__sync_fetch_and_add(lost, bytes);
}

static __always_inline void note_disk(struct write_event *event, struct bio *bio)
{
	struct bio___before_5_12 *old = (void *)bio;
	struct block_device *device;
	struct gendisk *disk;

	if (bpf_core_field_exists(bio->bi_bdev)) {
		device = FIELD(bio, bi_bdev);
		disk = FIELD(device, bd_disk);
	} else {
		disk = FIELD(old, bi_disk);
	}
	event->disk_major = FIELD(disk, major);
	event->disk_minor = FIELD(disk, first_minor);
}

/* The first page of the folio that a page is part of. */
static __always_inline struct page *head_of(struct page *page)
{
	struct page___since_7_0 *newer = (void *)page;
	unsigned long head = 0;

	if (bpf_core_field_exists(page->compound_head))
		head = FIELD(page, compound_head);
	else if (bpf_core_field_exists(newer->compound_info))
		head = FIELD(newer, compound_info);
	return head & 1 ? (void *)(head - 1) : page;
}

static __always_inline void note_owner(struct write_event *event, struct bio *bio)
{
	struct bio_vec *vectors = FIELD(bio, bi_io_vec);
	struct address_space *mapping;
	struct inode___cached *cached;
	struct super_block *super;
	struct inode *inode;
	struct folio *folio;
	struct page *page;

	if (!vectors)
		return;
	vectors = (void *)vectors + FIELD(bio, bi_iter.bi_idx) *
				      __builtin_preserve_type_info(*(struct bio_vec *)0,
								   BPF_TYPE_SIZE);
	page = FIELD(vectors, bv_page);
	if (!page)
		return;
	page = head_of(page);
	folio = (void *)page;
	if (bpf_core_field_exists(folio->mapping))
		mapping = FIELD(folio, mapping);
	else
		mapping = FIELD(page, mapping);
	if (!mapping || ((unsigned long)mapping & PAGE_MAPPING_FLAGS))
		return;
	inode = FIELD(mapping, host);
	cached = (void *)inode;
	/* In a page that is in no page cache, the field has another meaning. */
	if (!inode || FIELD(cached, i_mapping) != mapping)
		return;
	super = FIELD(inode, i_sb);
	event->inode = FIELD(inode, i_ino);
	event->owner_device = FIELD(super, s_dev);
	event->magic = FIELD(super, s_magic);
	event->flags |= WRITE_OWNED;
}

static __always_inline void note_thread(struct write_event *event)
{
	struct task_struct *task = current_task();
	struct worker___described *worker = 0;
	struct kthread *kthread;
	unsigned int flags = FIELD(task, flags);

	event->pid = FIELD(task, tgid);
	event->tid = FIELD(task, pid);
	copy_name(event->comm, task);
	if (flags & PF_KTHREAD)
		event->flags |= WRITE_KERNEL_THREAD;
	if (!(flags & PF_WQ_WORKER))
		return;
	if (bpf_core_field_exists(task->worker_private))
		kthread = FIELD(task, worker_private);
	else
		kthread = (void *)FIELD(task, set_child_tid);
	bpf_probe_read_kernel(&worker, sizeof(worker),
			      __builtin_preserve_access_index(&kthread->data));
	bpf_probe_read_kernel_str(event->description, sizeof(event->description),
				  __builtin_preserve_access_index(&worker->desc));
}

SEC("raw_tp/block_bio_queue")
int block_bio_queue(__u64 *ctx)
{
	struct block_device *device = 0;
	/* Before 5.11, the request queue was the first argument. */
	int is_old = !bpf_core_field_exists(device->bd_start_sect);
	struct bio *bio = (void *)(is_old ? ctx[1] : ctx[0]);
	struct write_event event = {};
	unsigned int flags, operation;
	__u64 key = (__u64)bio;

	/* If the end of an earlier write at this address was missed, it is no part of this one. */
	bpf_map_delete_elem(&writes_in_flight, &key);
	flags = FIELD(bio, bi_opf);
	operation = flags & REQ_OP_MASK;
	/* Operations that transfer data to the device have odd numbers. */
	if (!(operation & 1) && !(flags & REQ_FLAG(__REQ_PREFLUSH)))
		return 0;
	if (operation == REQ_OP_DISCARD || operation == REQ_OP_SECURE_ERASE)
		return 0;
	event.queued = bpf_ktime_get_ns();
	event.sector = FIELD(bio, bi_iter.bi_sector);
	event.bytes = FIELD(bio, bi_iter.bi_size);
	if (flags & REQ_FLAG(__REQ_META))
		event.flags |= WRITE_META;
	if (flags & REQ_FLAG(__REQ_FUA))
		event.flags |= WRITE_FUA;
	if (flags & REQ_FLAG(__REQ_PREFLUSH))
		event.flags |= WRITE_FLUSH;
	if (flags & REQ_FLAG(__REQ_SWAP))
		event.flags |= WRITE_SWAP;
	note_disk(&event, bio);
	if (event.bytes)
		note_owner(&event, bio);
	note_thread(&event);
	if (bpf_map_update_elem(&writes_in_flight, &key, &event, 0))
		lose(event.bytes);
	return 0;
}

static __always_inline void complete(struct bio *bio)
{
	__u64 key = (__u64)bio;
	struct write_event *event = bpf_map_lookup_elem(&writes_in_flight, &key), *reported;

	if (!event)
		return;
	reported = bpf_ringbuf_reserve(&write_events, sizeof(*reported), 0);
	if (reported) {
		*reported = *event;
		reported->completed = bpf_ktime_get_ns();
		bpf_ringbuf_submit(reported, 0);
	} else {
		lose(event->bytes);
	}
	bpf_map_delete_elem(&writes_in_flight, &key);
}

/* Fires only for devices without requests, for example those of LVM. */
SEC("raw_tp/block_bio_complete")
int block_bio_complete(__u64 *ctx)
{
	complete((void *)ctx[1]);
	return 0;
}

/* A request consists of adjacent bios. It can also be completed in parts. */
SEC("raw_tp/block_rq_complete")
int block_rq_complete(__u64 *ctx)
{
	struct request *request = (void *)ctx[0];
	__u32 bytes = (__u32)ctx[2], size;
	struct bio *bio;
	int i;

	bio = FIELD(request, bio);
	for (i = 0; i < MOST_BIOS; i++) {
		if (!bio)
			return 0;
		size = FIELD(bio, bi_iter.bi_size);
		if (size > bytes)
			return 0;
		bytes -= size;
		complete(bio);
		bio = FIELD(bio, bi_next);
	}
	if (bio)
		lose(bytes);
	return 0;
}
