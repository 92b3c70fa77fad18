//! System calls on sockets and devices that have no safe wrapper.
#![expect(
    unsafe_code,
    reason = "TCP_INFO, SO_MEMINFO and SIOCETHTOOL have no safe wrapper"
)]

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// Number of bytes of the kernel's `struct tcp_info` (`<linux/tcp.h>`) that ticktax uses. New
/// kernels only add fields at the end of the structure.
pub(super) const TCP_INFO: usize = 232;

/// Reads a connection's `TCP_INFO`. Also returns how many bytes of it the kernel provided.
pub(super) fn tcp_info(socket: BorrowedFd<'_>) -> nix::Result<([u8; TCP_INFO], usize)> {
    let mut info = [0_u8; TCP_INFO];
    let mut length = libc::socklen_t::try_from(TCP_INFO).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the kernel writes at most `length` bytes to `info`, and the actual number to
    // `length`. Both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    Ok((info, (length as usize).min(TCP_INFO)))
}

/// Reads a socket's memory statistics (`SO_MEMINFO`): unread bytes, the limit on them, and how many
/// datagrams the kernel dropped.
pub(crate) fn socket_memory(socket: BorrowedFd<'_>) -> nix::Result<[u32; 3]> {
    // These are SK_MEMINFO_RMEM_ALLOC, _RCVBUF and _DROPS. The kernel has nine values and may add
    // more.
    let mut words = [0_u32; 9];
    let mut size: libc::socklen_t = 36;
    // SAFETY: the kernel writes at most `size` bytes to `words`, which is that large, and the
    // actual size to `size`. Both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            words.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    Errno::result(result)?;
    Ok([words[0], words[1], words[8]])
}

/// Executes an ethtool command on a device in the socket's network namespace. Returns the value
/// that the kernel wrote back.
pub(super) fn ethtool(
    socket: BorrowedFd<'_>,
    device: &str,
    command: u32,
    value: u32,
) -> nix::Result<u32> {
    /// The kernel's `struct ethtool_value`.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    /// The kernel's `struct ifreq`. Only the pointer in its union is used. `rest` pads the
    /// structure to its full size.
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        data: *mut Value,
        rest: [u8; 16],
    }
    let mut value = Value {
        command,
        data: value,
    };
    let mut request = Request {
        name: [0; 16],
        data: &raw mut value,
        rest: [0; 16],
    };
    let name = device.as_bytes();
    // The last byte must stay 0 to terminate the name.
    let room = request
        .name
        .get_mut(..name.len())
        .filter(|name| name.len() < 16);
    room.ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(name);
    // SAFETY: SIOCETHTOOL reads the request, and reads and writes what its pointer points to. The
    // commands used expect a `struct ethtool_value` there. Both outlive the call.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCETHTOOL as libc::Ioctl,
            &raw mut request,
        )
    };
    Errno::result(result)?;
    Ok(value.data)
}
