// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0
/*
 * Counts by the kernel's reason the datagrams of one stream that it drops. Loaded only while such a
 * stream flows, and apart from the tracer: on a host that drops many packets this hook is hot.
 *
 * The stream is known by the first eight bytes of its data, whatever device, namespace or socket
 * dropped it.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Bytes of a UDP header, behind which the data begins. */
#define UDP_HEADER 8

/* What the data of each datagram begins with. */
volatile const __u64 token;

/* enum skb_drop_reason, in the lower half; the upper one is the subsystem that has its own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 256);
} dropped SEC(".maps");

/* The reason is there since 5.17. A packet that was only used up is not reported. */
SEC("tp_btf/kfree_skb")
int kfree_skb(__u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	__u32 reason = (__u32)ctx[2];
	__u64 found = 0, none = 0, *count;
	void *data = skb->head + skb->transport_header + UDP_HEADER;

	if (bpf_probe_read_kernel(&found, sizeof(found), data) || found != token)
		return 0;
	count = bpf_map_lookup_elem(&dropped, &reason);
	if (!count) {
		/* Another CPU may be first. */
		bpf_map_update_elem(&dropped, &reason, &none, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&dropped, &reason);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}
