// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0
/*
 * Counts one stream's dropped datagrams by the kernel's reason. Loaded only while such a stream is
 * running, and separate from the tracer, because this hook is hot on hosts that drop many packets.
 *
 * The first eight bytes of a datagram's data identify the stream, on any device and in any
 * namespace or socket.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Size of a UDP header in bytes. The data follows it. */
#define UDP_HEADER 8

/* The first eight bytes of data in each datagram of the stream. */
volatile const __u64 token;

/*
 * Number of dropped datagrams by reason. The lower half of a reason is enum skb_drop_reason. The
 * upper half is the subsystem, if that defines its own reasons.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 256);
} dropped SEC(".maps");

/* The reason exists since 5.17. Packets that are consumed normally do not trigger this hook. */
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
		/* Another CPU may have inserted the entry first. */
		bpf_map_update_elem(&dropped, &reason, &none, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&dropped, &reason);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}
