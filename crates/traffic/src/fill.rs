//! A socket's receive buffer: its size, and how many datagrams fit into it.
//!
//! The kernel charges a datagram to the buffer by the memory that it takes, not by its length. The
//! charge depends on the length, the device and the kernel, so it is measured before the traffic
//! starts: datagrams fill a similar socket over the same link, and the kernel's counters are read.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use ticktax_model::Nanos;
use ticktax_model::packets::{Charge, SocketBuffer};

use super::Namespace;
use super::error::NetError;
use super::namespaces::RECEIVER;
use crate::sys::socket_memory;
use ticktax_probes::clock::now;

/// Buffer sizes that can be requested, in bytes. The kernel doubles the requested size, and the
/// result must fit in 31 bits.
pub const BUFFERS: RangeInclusive<u32> = 1..=1 << 29;

/// Interval between checks of whether a datagram has arrived.
const SETTLE: Duration = Duration::from_micros(100);

/// Time limit for filling a buffer.
const LONGEST: Nanos = Nanos::from_secs(2);

/// Requested size of the receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferAsk {
    /// Size to set with `SO_RCVBUF`, in bytes. `None` keeps the kernel's default.
    pub bytes: Option<u32>,
}

/// Settings for a receiver that logs datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logging {
    pub(super) ask: BufferAsk,
    /// Memory that the kernel charges per datagram. It is measured before the traffic starts, but
    /// only if both ends are on this machine.
    charge: Option<Charge>,
    /// Whether both ends are on this machine, and therefore read the same clock.
    pub(super) same_clock: bool,
    /// Value of the sysctl `net.core.rmem_max`. It is read before the thread enters a different
    /// namespace, because not every namespace has the file.
    max_ask_bytes: Option<u64>,
}

impl Logging {
    /// Returns the settings for a receiver whose sender is on a different host.
    pub(super) fn alone(ask: BufferAsk) -> Self {
        Self::new(ask, None, false)
    }

    /// Returns the settings for a receiver whose sender is on this machine. `charge` was measured
    /// over the link between the two.
    pub(super) fn beside_sender(ask: BufferAsk, charge: Option<Charge>) -> Self {
        Self::new(ask, charge, true)
    }

    fn new(ask: BufferAsk, charge: Option<Charge>, same_clock: bool) -> Self {
        let max = fs::read_to_string("/proc/sys/net/core/rmem_max");
        Self {
            ask,
            charge,
            same_clock,
            max_ask_bytes: max.ok().and_then(|text| text.trim().parse().ok()),
        }
    }

    /// Sets a socket's receive buffer to the requested size, or as close to it as the kernel
    /// allows. Returns the size and other properties of the buffer.
    pub(super) fn set(&self, socket: &UdpSocket) -> Result<SocketBuffer, NetError> {
        let is_forced = ask(socket, self.ask)?;
        Ok(SocketBuffer {
            requested_bytes: self.ask.bytes,
            bytes: size(socket)?,
            max_request_bytes: self.max_ask_bytes,
            forced: is_forced,
            charge: self.charge,
        })
    }
}

/// Requests a buffer size. If the kernel's limit makes the buffer smaller than requested, tries to
/// exceed the limit, which requires `CAP_NET_ADMIN`. Returns whether the limit was exceeded.
fn ask(socket: &UdpSocket, ask: BufferAsk) -> Result<bool, NetError> {
    let Some(bytes) = ask.bytes else {
        return Ok(false);
    };
    let failed = NetError::errno("set a socket's buffer size");
    let wanted = bytes as usize;
    setsockopt(socket, sockopt::RcvBuf, &wanted).map_err(failed)?;
    let has_less = size(socket)? < 2 * u64::from(bytes);
    // Without the capability, this call fails and the size stays the same.
    Ok(has_less && setsockopt(socket, sockopt::RcvBufForce, &wanted).is_ok())
}

fn size(socket: &UdpSocket) -> Result<u64, NetError> {
    let failed = NetError::errno("read a socket's buffer size");
    Ok(getsockopt(socket, sockopt::RcvBuf).map_err(failed)? as u64)
}

/// Measures how much memory the kernel charges for a datagram of `bytes` bytes. The datagrams are
/// sent between the two namespaces in `ends` (sender, receiver), or over the loopback device if
/// `ends` is `None`. Returns `None` if the buffer did not fill up in time.
pub(super) fn charge(
    ends: Option<(&Namespace, &Namespace)>,
    bytes: u32,
    buffer: BufferAsk,
) -> Result<Option<Charge>, NetError> {
    let here = match ends {
        Some(_) => RECEIVER,
        None => Ipv4Addr::LOCALHOST,
    };
    let receiver = socket(ends.map(|ends| ends.1), (here, 0).into())?;
    let sender = socket(ends.map(|ends| ends.0), (Ipv4Addr::UNSPECIFIED, 0).into())?;
    ask(&receiver, buffer)?;
    let failed = NetError::system("fill a socket's buffer");
    let to = receiver.local_addr().map_err(&failed)?;
    sender.connect(to).map_err(&failed)?;
    let memory = || {
        socket_memory(receiver.as_fd()).map_err(NetError::errno(
            "read the fill level of a socket's \
            buffer",
        ))
    };
    let datagram = vec![0; bytes as usize];
    let until = now() + LONGEST;
    let (mut sent, mut before) = (0_u64, 0);
    while now() < until {
        sender.send(&datagram).map_err(&failed)?;
        sent += 1;
        let mut seen = memory()?;
        // Between two sockets on the same machine, a datagram has usually arrived by the time the
        // send call returns. But if a kernel thread delivers it, that thread has to run first.
        while seen[0] == before && seen[2] == 0 && now() < until {
            thread::sleep(SETTLE);
            seen = memory()?;
        }
        let [waiting, _, drops] = seen;
        if drops > 0 {
            let datagrams = sent - u64::from(drops);
            let each_bytes = u64::from(waiting).checked_div(datagrams);
            return Ok(each_bytes.map(|each_bytes| Charge {
                bytes_per_datagram: each_bytes,
                datagrams,
                measured_beforehand: true,
            }));
        }
        before = waiting;
    }
    Ok(None)
}

/// Opens a UDP socket in a namespace. The socket stays there even if threads in other namespaces
/// use it.
fn socket(namespace: Option<&Namespace>, at: SocketAddr) -> Result<UdpSocket, NetError> {
    let bind = || UdpSocket::bind(at).map_err(NetError::system("open a UDP socket"));
    let Some(namespace) = namespace else {
        return bind();
    };
    thread::scope(|scope| {
        let made = thread::Builder::new().spawn_scoped(scope, || {
            namespace.enter()?;
            bind()
        });
        made.map_err(NetError::system("start a thread"))?
            .join()
            .unwrap_or_else(|_| {
                Err(NetError::System {
                    what: "open a UDP socket",
                    why: "its thread crashed; please report this bug".to_owned(),
                })
            })
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use std::os::fd::AsFd;

    use super::{BufferAsk, Logging, ask, charge, size};
    use crate::sys::socket_memory;

    /// Puts `waiting` datagrams into a buffer with room for `holds`. Then alternately reads ten
    /// datagrams and sends `coming` more. Returns how many datagrams are lost. Everything happens
    /// on a single thread, so the result is deterministic.
    fn lost_while_reading(waiting: u32, coming: u32, holds: u64, each: u64) -> u32 {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let bytes = u32::try_from(holds * each / 2 + 1).unwrap();
        ask(&receiver, BufferAsk { bytes: Some(bytes) }).unwrap();
        assert!(size(&receiver).unwrap() >= holds * each);
        let send = || assert_eq!(sender.send(&[0; 200]).unwrap(), 200);
        for _ in 0..waiting {
            send();
        }
        let (mut read, mut later) = (0, 0);
        while receiver.recv(&mut [0; 200]).is_ok() {
            read += 1;
            while later < read * coming / 10 && later < 10 * waiting {
                send();
                later += 1;
            }
        }
        socket_memory(receiver.as_fd()).unwrap()[2]
    }

    /// When datagrams are read, the kernel releases their charges only once these add up to a
    /// quarter of the buffer. Suppose that P datagrams are waiting after a pause, and that new ones
    /// arrive at ρ times the rate at which datagrams are read. To lose none, the buffer needs room
    /// for B ≥ P / (1 − ρ/4) datagrams. The buffer report uses this formula.
    #[test]
    fn the_kernel_releases_buffer_memory_in_quarters() {
        const WAITING: u32 = 60;
        let bytes = Some(40_000);
        let each = charge(None, 200, BufferAsk { bytes }).unwrap().unwrap();
        for coming in [0, 5, 9] {
            let share = f64::from(coming) / 10.0;
            let expected = f64::from(WAITING) / (1.0 - share / 4.0);
            let enough = |&holds: &u64| {
                lost_while_reading(WAITING, coming, holds, each.bytes_per_datagram) == 0
            };
            let smallest = (40..100).find(enough).unwrap() as f64;
            assert!(
                (smallest - expected).abs() <= 2.0,
                "{coming}: {smallest} {expected}"
            );
        }
    }

    #[test]
    fn a_larger_buffer_holds_more_datagrams_of_the_same_charge() {
        let charge_in = |bytes| {
            charge(None, 200, BufferAsk { bytes: Some(bytes) })
                .unwrap()
                .unwrap()
        };
        let (small, large) = (charge_in(20_000), charge_in(80_000));
        assert_eq!(small.bytes_per_datagram, large.bytes_per_datagram);
        assert!(small.bytes_per_datagram >= 200, "{small:?}");
        assert!(small.datagrams * 3 < large.datagrams, "{small:?} {large:?}");
    }

    #[test]
    fn the_kernel_doubles_the_requested_size() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ask = BufferAsk {
            bytes: Some(30_000),
        };
        let buffer = Logging::alone(ask).set(&socket).unwrap();
        assert_eq!((buffer.bytes, buffer.forced), (60_000, false));
        assert!(buffer.max_request_bytes.is_some());
    }
}
