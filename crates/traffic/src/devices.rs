//! rtnetlink messages that create a pair of virtual Ethernet devices.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::SockProtocol;
use ticktax_host::netlink::{Body, CREATE, Netlink};

/// Interface index of each of a pair's devices in its namespace. Lower indexes belong to the
/// loopback device and to the tunnels that the kernel creates in every namespace (`sit0`, `tunl0`;
/// see `net.core.fb_tunnels_only_for_init_net`).
pub(super) const INDEX: u32 = 117;

// <linux/rtnetlink.h>
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;

// <linux/if_link.h>, <linux/veth.h>, <linux/if_addr.h>
const IFNAME: u16 = 3;
const MTU: u16 = 4;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
const NET_NS_FD: u16 = 28;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;

/// Interface flag `IFF_UP`.
const UP: u32 = 1;

/// Opens a netlink socket for configuring the devices in the calling thread's namespace.
pub(super) fn open() -> nix::Result<Netlink> {
    Netlink::open(SockProtocol::NetlinkRoute)
}

/// Creates a pair of devices: one in the calling thread's namespace, and one in the namespace whose
/// file descriptor is `peer`.
pub(super) fn add_pair(netlink: &Netlink, peer: &OwnedFd, mtu: u32) -> nix::Result<()> {
    let peer_fd = peer.as_raw_fd().cast_unsigned();
    let peer = link(0)
        .text(IFNAME, "ticktax1")
        .word(MTU, mtu)
        .word(NET_NS_FD, peer_fd);
    let data = Body::default().nested(VETH_PEER, &peer);
    let info = Body::default()
        .text(INFO_KIND, "veth")
        .nested(INFO_DATA, &data);
    let pair = link(0)
        .text(IFNAME, "ticktax0")
        .word(MTU, mtu)
        .nested(LINK_INFO, &info);
    netlink.ask(NEW_LINK, CREATE, &pair)
}

/// Gives the device in this namespace an address in a /30 network, and brings the device up.
pub(super) fn begin(netlink: &Netlink, address: [u8; 4]) -> nix::Result<()> {
    const IPV4: u8 = 2;
    let mut body = Body(vec![IPV4, 30, 0, 0]);
    body.0.extend_from_slice(&INDEX.to_ne_bytes());
    let body = body.put(LOCAL, &address).put(ADDRESS, &address);
    netlink.ask(NEW_ADDRESS, CREATE, &body)?;
    netlink.ask(NEW_LINK, 0, &link(UP))
}

/// Returns the header of a message about the device. The message sets all `flags`.
fn link(flags: u32) -> Body {
    let mut body = vec![0; 4];
    for word in [INDEX, flags, flags] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    Body(body)
}
