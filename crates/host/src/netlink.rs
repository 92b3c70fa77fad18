//! Sends netlink requests to the kernel and decodes the replies. Contains what all netlink
//! protocols share.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

// <linux/netlink.h>
const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;
/// Flags of a request to create an object that does not exist yet.
pub const CREATE: u16 = 0x400 | 0x200;
/// Flags of a request to create an object or replace an existing one.
pub const REPLACE: u16 = 0x400 | 0x100;

/// Size of a message header, in bytes.
const HEAD: usize = 16;

/// A netlink socket in one network namespace. It stays in that namespace even if a thread in a
/// different namespace uses it.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// Opens a socket to the kernel subsystem `part` in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns the kernel's error. It is `EPROTONOSUPPORT` if the kernel lacks the subsystem.
    pub fn open(part: SockProtocol) -> nix::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            part,
        )?;
        Ok(Self { socket })
    }

    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// Returns the kernel's error, or `EBADMSG` if the reply is invalid.
    pub fn ask(&self, kind: u16, flags: u16, body: &Body) -> nix::Result<()> {
        self.send(kind, flags | ACK, body)?;
        let mut answer = [0; 4096];
        let length = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        answered(&answer[..length])
    }

    /// Lists all objects of one kind. Returns the bodies of the messages in the kernel's reply.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::ask`].
    pub fn list(&self, kind: u16, body: &Body) -> nix::Result<Vec<Vec<u8>>> {
        self.send(kind, DUMP, body)?;
        let mut found = Vec::new();
        let mut answer = vec![0; 64 << 10];
        loop {
            let length = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
            if listed(&answer[..length], &mut found)? {
                return Ok(found);
            }
        }
    }

    /// Requests one object. Returns the body of the message in the kernel's reply.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::ask`].
    pub fn get(&self, kind: u16, body: &Body) -> nix::Result<Vec<u8>> {
        self.send(kind, 0, body)?;
        let mut answer = vec![0; 64 << 10];
        let length = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let mut found = Vec::new();
        listed(&answer[..length], &mut found)?;
        found.pop().ok_or(Errno::EBADMSG)
    }

    fn send(&self, kind: u16, flags: u16, body: &Body) -> nix::Result<()> {
        let mut message = Vec::new();
        let length = u32::try_from(HEAD + body.0.len()).map_err(|_| Errno::EMSGSIZE)?;
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        // The sequence number and the sender can stay 0, because there is only one open request at
        // a time.
        message.extend_from_slice(&[0; 8]);
        message.extend_from_slice(&body.0);
        let socket = self.socket.as_raw_fd();
        sendto(socket, &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        Ok(())
    }
}

/// Converts the status in a reply into a result. The status is 0 or a negated error number.
fn answered(answer: &[u8]) -> nix::Result<()> {
    let code = word(answer, HEAD).map(u32::cast_signed);
    match (half(answer, 4), code) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(code)) => Err(Errno::from_raw(code.saturating_neg())),
        _ => Err(Errno::EBADMSG),
    }
}

/// Adds the messages in `packet` to `found`. Returns `true` if `packet` contains the end of the
/// list.
fn listed(mut packet: &[u8], found: &mut Vec<Vec<u8>>) -> nix::Result<bool> {
    while !packet.is_empty() {
        let length = word(packet, 0).ok_or(Errno::EBADMSG)? as usize;
        let message = packet.get(..length).filter(|message| message.len() >= HEAD);
        let message = message.ok_or(Errno::EBADMSG)?;
        match half(message, 4) {
            Some(DONE) => return Ok(true),
            Some(ERROR) => return answered(message).map(|()| true),
            _ => found.push(message[HEAD..].to_vec()),
        }
        packet = packet.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(false)
}

/// Iterates over a sequence of attributes, as pairs of type and value. A truncated attribute at the
/// end is ignored.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(half(bytes, 0)?);
        // The two upper bits are flags, for example for nested attributes.
        let kind = half(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// Returns the value of the first attribute that has type `kind`.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(found, _)| *found == kind)
        .map(|(_, value)| value)
}

/// Returns the 32-bit word at offset `at`, or `None` if `bytes` is too short.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

/// Returns the 64-bit word at offset `at`, or `None` if `bytes` is too short.
pub fn double(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

/// Returns the 16-bit word at offset `at`, or `None` if `bytes` is too short.
pub fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    bytes.try_into().ok().map(u16::from_ne_bytes)
}

/// The body of a message: a fixed part, followed by attributes.
#[derive(Debug, Default)]
pub struct Body(pub Vec<u8>);

impl Body {
    /// Appends an attribute.
    #[must_use]
    pub fn put(mut self, kind: u16, value: &[u8]) -> Self {
        // None of the attributes used here is anywhere near 64 KiB long.
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends an attribute that contains a text with a terminating 0.
    #[must_use]
    pub fn text(self, kind: u16, text: &str) -> Self {
        self.put(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// Appends an attribute that contains a 32-bit word.
    #[must_use]
    pub fn word(self, kind: u16, word: u32) -> Self {
        self.put(kind, &word.to_ne_bytes())
    }

    /// Appends an attribute that contains other attributes.
    #[must_use]
    pub fn nested(self, kind: u16, body: &Self) -> Self {
        self.put(kind, &body.0)
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::{Body, DONE, ERROR, answered, attribute, listed};

    #[test]
    fn attributes_are_padded_to_words() {
        let body = Body::default().text(3, "ab").word(4, 7);
        assert_eq!(body.0.len(), 8 + 8);
        assert_eq!(
            body.0[..4],
            [&7_u16.to_ne_bytes()[..], &3_u16.to_ne_bytes()].concat()
        );
        assert_eq!(&body.0[4..8], b"ab\0\0");
    }

    #[test]
    fn answers_are_decoded_to_results() {
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

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(16 + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.resize(16, 0);
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_list_ends_with_its_last_message() {
        let mut found = Vec::new();
        let two = [message(36, b"ab"), message(36, b"cde")].concat();
        assert_eq!(listed(&two, &mut found), Ok(false));
        assert_eq!(listed(&message(DONE, &[0; 4]), &mut found), Ok(true));
        assert_eq!(found, [b"ab".to_vec(), b"cde".to_vec()]);
        // The kernel replied with an error instead of a list.
        let refused = message(ERROR, &(-1_i32).to_ne_bytes());
        assert_eq!(listed(&refused, &mut found), Err(Errno::EPERM));
        for length in [0_u32, 15, 17] {
            let cut = [&length.to_ne_bytes()[..], &[0; 12]].concat();
            assert_eq!(listed(&cut, &mut found), Err(Errno::EBADMSG));
        }
    }

    #[test]
    fn an_attribute_is_found_after_others_unless_it_is_truncated() {
        let body = Body::default().text(1, "tbf").word(6, 7);
        assert_eq!(attribute(&body.0, 6), Some(&7_u32.to_ne_bytes()[..]));
        assert_eq!(attribute(&body.0, 2), None);
        assert_eq!(attribute(&body.0[..body.0.len() - 1], 6), None);
        assert_eq!(attribute(&[0; 4], 0), None);
    }
}
