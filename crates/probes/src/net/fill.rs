//! A receiving socket's buffer: how large it may be, and how many datagrams fill one.
//!
//! The kernel charges a datagram for the memory that it takes, not for its data, and how much that is depends on its
//! length, on the device and on the kernel. So a socket like the receiver's is filled over the same link before
//! anything else is sent over it, and what the kernel then counts is read.

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
use crate::clock::now;
use crate::sys::socket_memory;

/// Bytes that can be asked for: the kernel doubles them, and keeps them in 31 bits.
pub const BUFFERS: RangeInclusive<u32> = 1..=1 << 29;

/// How long to wait for a datagram that has not arrived yet.
const SETTLE: Duration = Duration::from_micros(100);

/// For how long a buffer is filled at most.
const LONGEST: Nanos = Nanos::from_secs(2);

/// What is asked of the receiving socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferAsk {
    /// Bytes to ask for with `SO_RCVBUF`; `None`: what the kernel gives.
    pub bytes: Option<u32>,
}

/// How a receiver is to log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logging {
    pub(super) ask: BufferAsk,
    /// What was measured beforehand, over a link of our own.
    charge: Option<Charge>,
    /// Whether both ends are here, and read one clock.
    pub(super) same_clock: bool,
    /// Read where it is told: not every namespace has it.
    max_ask_bytes: Option<u64>,
}

impl Logging {
    /// Of a receiver whose sender is elsewhere.
    pub(super) fn alone(ask: BufferAsk) -> Self {
        Self::new(ask, None, false)
    }

    /// Of one whose sender is here, by what was measured over the link between them.
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

    /// Gives a socket its buffer, as far as the kernel allows it.
    pub(super) fn set(&self, socket: &UdpSocket) -> Result<SocketBuffer, NetError> {
        let is_forced = ask(socket, self.ask)?;
        Ok(SocketBuffer {
            asked_bytes: self.ask.bytes,
            bytes: size(socket)?,
            max_ask_bytes: self.max_ask_bytes,
            is_forced,
            charge: self.charge,
        })
    }
}

/// Asks for a buffer, and where the kernel gives less, by the right to have it all the same; whether that was needed.
fn ask(socket: &UdpSocket, ask: BufferAsk) -> Result<bool, NetError> {
    let Some(bytes) = ask.bytes else {
        return Ok(false);
    };
    let failed = NetError::errno("set the size of a socket's buffer");
    let wanted = bytes as usize;
    setsockopt(socket, sockopt::RcvBuf, &wanted).map_err(failed)?;
    let has_less = size(socket)? < 2 * u64::from(bytes);
    // Without the right, it is as it was.
    Ok(has_less && setsockopt(socket, sockopt::RcvBufForce, &wanted).is_ok())
}

fn size(socket: &UdpSocket) -> Result<u64, NetError> {
    let failed = NetError::errno("read the size of a socket's buffer");
    Ok(getsockopt(socket, sockopt::RcvBuf).map_err(failed)? as u64)
}

/// What datagrams of this size take of a buffer, from one namespace to the other or over loopback; `None` where it did
/// not fill in time.
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
        socket_memory(receiver.as_fd()).map_err(NetError::errno("read what a socket's buffer has"))
    };
    let datagram = vec![0; bytes as usize];
    let until = now() + LONGEST;
    let (mut sent, mut before) = (0_u64, 0);
    while now() < until {
        sender.send(&datagram).map_err(&failed)?;
        sent += 1;
        let mut seen = memory()?;
        // On a link of this machine a datagram has arrived when the call returns, unless a thread of the kernel is to
        // take it in, which first has to run.
        while seen[0] == before && seen[2] == 0 && now() < until {
            thread::sleep(SETTLE);
            seen = memory()?;
        }
        let [waiting, _, drops] = seen;
        if drops > 0 {
            let datagrams = sent - u64::from(drops);
            let each_bytes = u64::from(waiting).checked_div(datagrams);
            return Ok(each_bytes.map(|each_bytes| Charge {
                each_bytes,
                datagrams,
                is_filled: true,
            }));
        }
        before = waiting;
    }
    Ok(None)
}

/// A socket in a namespace, which stays there whoever uses it.
fn socket(namespace: Option<&Namespace>, at: SocketAddr) -> Result<UdpSocket, NetError> {
    let bind = || UdpSocket::bind(at).map_err(NetError::system("open a socket for datagrams"));
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
                    what: "open a socket for datagrams",
                    why: "its thread failed; please report this as a defect".to_owned(),
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

    /// How many of `waiting` datagrams and those that come while they are read are lost, where `coming` of ten come
    /// while ten are read and the buffer holds so many. All of it is one thread, so that nothing is by chance.
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

    /// What was read is charged until it is a quarter of the buffer: B ≥ P / (1 − ρ/4), as the page about a buffer
    /// reckons.
    #[test]
    fn the_kernel_gives_memory_back_a_quarter_at_a_time() {
        const WAITING: u32 = 60;
        let bytes = Some(40_000);
        let each = charge(None, 200, BufferAsk { bytes }).unwrap().unwrap();
        for coming in [0, 5, 9] {
            let share = f64::from(coming) / 10.0;
            let expected = f64::from(WAITING) / (1.0 - share / 4.0);
            let enough =
                |&holds: &u64| lost_while_reading(WAITING, coming, holds, each.each_bytes) == 0;
            let smallest = (40..100).find(enough).unwrap() as f64;
            assert!(
                (smallest - expected).abs() <= 2.0,
                "{coming}: {smallest} {expected}"
            );
        }
    }

    #[test]
    fn a_larger_buffer_holds_more_datagrams_of_the_same_charge() {
        let of = |bytes| {
            charge(None, 200, BufferAsk { bytes: Some(bytes) })
                .unwrap()
                .unwrap()
        };
        let (small, large) = (of(20_000), of(80_000));
        assert_eq!(small.each_bytes, large.each_bytes);
        assert!(small.each_bytes >= 200, "{small:?}");
        assert!(small.datagrams * 3 < large.datagrams, "{small:?} {large:?}");
    }

    #[test]
    fn the_kernel_doubles_what_is_asked_for() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ask = BufferAsk {
            bytes: Some(30_000),
        };
        let buffer = Logging::alone(ask).set(&socket).unwrap();
        assert_eq!((buffer.bytes, buffer.is_forced), (60_000, false));
        assert!(buffer.max_ask_bytes.is_some());
    }
}
