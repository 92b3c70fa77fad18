//! Reads the buffer sizes and the charged memory of UDP sockets, which `/proc/net/udp` does not
//! show.
//!
//! The data comes from the netlink interface that `ss` uses as well (`<linux/sock_diag.h>`,
//! `<linux/inet_diag.h>`).

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use crate::netlink::{Body, Netlink, attribute, word};

const BY_FAMILY: u16 = 20;
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const UDP: u8 = 17;

/// Attribute with a socket's memory figures. Its number also determines which bit requests it.
const MEMORY: u16 = 7;
const ASK_MEMORY: u8 = 1 << (MEMORY - 1);

/// Size of `struct inet_diag_req_v2`. Only its first eight bytes are used here.
const REQUEST: usize = 56;
/// Size of `struct inet_diag_msg`, which ends with the socket's inode number.
const MESSAGE: usize = 72;
const AT_INODE: usize = 68;

/// Positions of the words in the memory attribute (`SK_MEMINFO_…`).
const CHARGED: usize = 0;
const BUFFER: usize = 1;

/// Memory that a socket's receive side may use and is using, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// Limit on the charged memory: twice the value that was set with `SO_RCVBUF`.
    pub(super) buffer: u64,
    /// Memory charged to the socket for data that is queued or was recently read.
    pub(super) charged: u64,
}

/// Returns the memory figures of each UDP socket in this process's network namespace, by inode
/// number. The result is empty if the kernel does not report them.
pub(super) fn memory() -> BTreeMap<u64, Memory> {
    listed().unwrap_or_default()
}

fn listed() -> nix::Result<BTreeMap<u64, Memory>> {
    let mut found = BTreeMap::new();
    let netlink = Netlink::open(SockProtocol::NetlinkSockDiag)?;
    for family in [IPV4, IPV6] {
        let mut request = vec![family, UDP, ASK_MEMORY, 0];
        // Request sockets in all states.
        request.extend_from_slice(&u32::MAX.to_ne_bytes());
        request.resize(REQUEST, 0);
        match netlink.list(BY_FAMILY, &Body(request)) {
            Ok(sockets) => found.extend(sockets.iter().filter_map(|message| socket(message))),
            // The kernel does not support IPv6.
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn socket(message: &[u8]) -> Option<(u64, Memory)> {
    let inode = word(message, AT_INODE)?;
    let memory = attribute(message.get(MESSAGE..)?, MEMORY)?;
    let bytes = |place: usize| word(memory, 4 * place).map(u64::from);
    let memory = Memory {
        buffer: bytes(BUFFER)?,
        charged: bytes(CHARGED)?,
    };
    Some((u64::from(inode), memory))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use nix::sys::socket::{getsockopt, setsockopt, sockopt};
    use nix::sys::stat::fstat;

    use super::{AT_INODE, Body, MEMORY, MESSAGE, Memory, memory, socket};

    #[test]
    fn a_sockets_buffer_agrees_with_getsockopt() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        setsockopt(&receiver, sockopt::RcvBuf, &30_000).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender
            .send_to(&[0; 100], receiver.local_addr().unwrap())
            .unwrap();
        let inode = fstat(receiver.as_fd()).unwrap().st_ino;
        let found = memory();
        if found.is_empty() {
            // The kernel does not support `udp_diag`.
            return;
        }
        let own = found[&inode];
        let expected = getsockopt(&receiver, sockopt::RcvBuf).unwrap();
        assert_eq!(own.buffer, expected as u64);
        assert!((100..10_000).contains(&own.charged), "{own:?}");
    }

    #[test]
    fn a_truncated_message_is_rejected() {
        let mut words = [0_u8; 36];
        words[..4].copy_from_slice(&1_280_u32.to_ne_bytes());
        words[4..8].copy_from_slice(&212_992_u32.to_ne_bytes());
        let mut message = vec![0; MESSAGE];
        message[AT_INODE..].copy_from_slice(&77_u32.to_ne_bytes());
        message.extend(Body::default().put(MEMORY, &words).0);
        let memory = Memory {
            buffer: 212_992,
            charged: 1_280,
        };
        assert_eq!(socket(&message), Some((77, memory)));
        for length in 0..message.len() {
            assert_eq!(socket(&message[..length]), None);
        }
    }
}
