//! The few messages of rtnetlink that a pair of virtual Ethernet devices takes, and their answers.
//!
//! They are written by hand: five messages, against a dozen packages of a library's.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

/// The number that both devices get: the first after the loopback device's, in a namespace of its own.
const INDEX: u32 = 2;

// <linux/rtnetlink.h>, <linux/netlink.h>
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const ERROR: u16 = 2;
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const CREATE: u16 = 0x400 | 0x200;

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

/// A device that is up.
const UP: u32 = 1;

/// A socket to one network namespace, whoever holds it.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// To the namespace of the calling thread.
    pub(super) fn open() -> nix::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Self { socket })
    }

    /// Makes a pair of devices: one here, its peer in the namespace behind a file descriptor.
    pub(super) fn add_pair(&self, peer: &OwnedFd, mtu: u32) -> nix::Result<()> {
        let peer_fd = peer.as_raw_fd().cast_unsigned();
        let peer = Body::link(0)
            .text(IFNAME, "ticktax1")
            .word(MTU, mtu)
            .word(NET_NS_FD, peer_fd);
        let data = Body::default().nested(VETH_PEER, &peer);
        let info = Body::default()
            .text(INFO_KIND, "veth")
            .nested(INFO_DATA, &data);
        let link = Body::link(0)
            .text(IFNAME, "ticktax0")
            .word(MTU, mtu)
            .nested(LINK_INFO, &info);
        self.ask(NEW_LINK, CREATE, &link)
    }

    /// Gives the namespace's device an address, of a network of 4, and takes it up.
    pub(super) fn begin(&self, address: [u8; 4]) -> nix::Result<()> {
        const IPV4: u8 = 2;
        let mut body = Body(vec![IPV4, 30, 0, 0]);
        body.0.extend_from_slice(&INDEX.to_ne_bytes());
        let body = body.put(LOCAL, &address).put(ADDRESS, &address);
        self.ask(NEW_ADDRESS, CREATE, &body)?;
        self.ask(NEW_LINK, 0, &Body::link(UP))
    }

    /// Sends a request, and waits for its answer.
    fn ask(&self, kind: u16, flags: u16, body: &Body) -> nix::Result<()> {
        let mut message = Vec::new();
        let length = u32::try_from(16 + body.0.len()).map_err(|_| Errno::EMSGSIZE)?;
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&(flags | REQUEST | ACK).to_ne_bytes());
        // One request at a time: its number and the sender's tell nothing.
        message.extend_from_slice(&[0; 8]);
        message.extend_from_slice(&body.0);
        let socket = self.socket.as_raw_fd();
        sendto(socket, &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        let mut answer = [0; 4096];
        let length = recv(socket, &mut answer, MsgFlags::empty())?;
        answered(&answer[..length])
    }
}

/// What an answer says: 0, or a negative error.
fn answered(answer: &[u8]) -> nix::Result<()> {
    let kind = answer.get(4..6).and_then(|it| it.try_into().ok());
    let code = answer.get(16..20).and_then(|it| it.try_into().ok());
    match (kind.map(u16::from_ne_bytes), code.map(i32::from_ne_bytes)) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(code)) => Err(Errno::from_raw(code.saturating_neg())),
        _ => Err(Errno::EBADMSG),
    }
}

/// What a message says behind its head: a fixed part, then attributes.
#[derive(Debug, Default)]
struct Body(Vec<u8>);

impl Body {
    /// About the device, with these flags set.
    fn link(flags: u32) -> Self {
        let mut body = vec![0; 4];
        for word in [INDEX, flags, flags] {
            body.extend_from_slice(&word.to_ne_bytes());
        }
        Self(body)
    }

    fn put(mut self, kind: u16, value: &[u8]) -> Self {
        // Nothing here comes near 64 KiB.
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn text(self, kind: u16, text: &str) -> Self {
        self.put(kind, &[text.as_bytes(), &[0]].concat())
    }

    fn word(self, kind: u16, word: u32) -> Self {
        self.put(kind, &word.to_ne_bytes())
    }

    fn nested(self, kind: u16, body: &Self) -> Self {
        self.put(kind, &body.0)
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::{Body, ERROR, answered};

    #[test]
    fn attributes_begin_at_words() {
        let body = Body::default().text(3, "ab").word(4, 7);
        assert_eq!(body.0.len(), 8 + 8);
        assert_eq!(
            body.0[..4],
            [&7_u16.to_ne_bytes()[..], &3_u16.to_ne_bytes()].concat()
        );
        assert_eq!(&body.0[4..8], b"ab\0\0");
    }

    #[test]
    fn answers_are_taken_for_what_they_say() {
        let answer = |kind: u16, code: i32| {
            let mut bytes = vec![0; 20];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[16..].copy_from_slice(&code.to_ne_bytes());
            bytes
        };
        assert_eq!(answered(&answer(ERROR, 0)), Ok(()));
        assert_eq!(answered(&answer(ERROR, -22)), Err(Errno::EINVAL));
        assert_eq!(answered(&answer(16, 0)), Err(Errno::EBADMSG));
        assert_eq!(answered(&[]), Err(Errno::EBADMSG));
    }
}
