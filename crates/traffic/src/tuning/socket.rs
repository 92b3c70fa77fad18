//! Socket options, and the kernel's statistics on a connection.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use ticktax_model::Nanos;
use ticktax_model::net::Protocol;
use ticktax_model::net_experiment::{ConnectionFacts, Fact};

use super::super::error::{NetError, words};
use super::super::sys;
use super::{Tuning, on_off};

/// One end's socket options.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Options<'a> {
    pub(super) tuning: &'a Tuning,
    pub(super) protocol: Protocol,
}

impl Options<'_> {
    /// Sets the options on the sender's socket. Call this before connecting it.
    pub(in super::super) fn apply_to_sender(&self, socket: &impl AsFd) -> Result<(), NetError> {
        let tuning = self.tuning;
        if let Some(bytes) = tuning.send_buffer {
            let set = setsockopt(socket, sockopt::SndBuf, &(bytes as usize));
            set.map_err(refused("sndbuf", &bytes))?;
        }
        if self.protocol == Protocol::Udp {
            return Ok(());
        }
        self.segment(socket)?;
        if let Some(name) = &tuning.congestion {
            let set = setsockopt(socket, sockopt::TcpCongestion, &OsString::from(name));
            set.map_err(|error| match error {
                Errno::ENOENT => NetError::Option {
                    name: "congestion",
                    value: name.clone(),
                    why: "this kernel does not have it; the sysctl \
                        net.ipv4.tcp_available_congestion_control lists the available ones"
                        .to_owned(),
                },
                error => refused("congestion", name)(error),
            })?;
        }
        Ok(())
    }

    /// Sets the options on the receiver's sockets: the listening socket, whose connections inherit
    /// them, and the socket for datagrams.
    pub(in super::super) fn apply_to_receiver(
        &self,
        listener: &impl AsFd,
        datagrams: &impl AsFd,
    ) -> Result<(), NetError> {
        if let Some(bytes) = self.tuning.receive_buffer {
            let size = bytes as usize;
            setsockopt(listener, sockopt::RcvBuf, &size)
                .and_then(|()| setsockopt(datagrams, sockopt::RcvBuf, &size))
                .map_err(refused("rcvbuf", &bytes))?;
        }
        self.segment(listener)
    }

    /// Returns whether to send small segments immediately (`TCP_NODELAY`).
    pub(in super::super) fn nodelay(&self) -> bool {
        self.tuning.nodelay.unwrap_or_default()
    }

    fn segment(&self, socket: &impl AsFd) -> Result<(), NetError> {
        let Some(mss) = self.tuning.mss else {
            return Ok(());
        };
        let set = setsockopt(socket, sockopt::TcpMaxSeg, &mss);
        set.map_err(refused("mss", &mss))
    }

    /// Returns the options in effect on the sender's socket, and statistics on its connection.
    pub(in super::super) fn sender_facts(
        &self,
        socket: BorrowedFd<'_>,
    ) -> (Vec<Fact>, Option<ConnectionFacts>) {
        let mut facts = Vec::new();
        if self.tuning.send_buffer.is_some() {
            let bytes = getsockopt(&socket, sockopt::SndBuf).unwrap_or_default();
            facts.push(Fact::new("send buffer", bytes));
        }
        if self.protocol == Protocol::Udp {
            return (facts, None);
        }
        if let Ok(on) = getsockopt(&socket, sockopt::TcpNoDelay) {
            facts.push(Fact::new("nodelay", on_off(on)));
        }
        if let Ok(name) = getsockopt(&socket, sockopt::TcpCongestion) {
            let name = name.to_string_lossy();
            facts.push(Fact::new("congestion control", name.trim_end_matches('\0')));
        }
        let Ok((info, length)) = sys::tcp_info(socket) else {
            return (facts, None);
        };
        let info = &info[..length];
        facts.extend(negotiated(info));
        (facts, connection(info))
    }

    /// Returns the options in effect on the receiver's socket.
    pub(in super::super) fn receiver_facts(&self, socket: BorrowedFd<'_>) -> Vec<Fact> {
        if self.tuning.receive_buffer.is_none() {
            // Unless the user sets the buffer size, the kernel adjusts it while the traffic is
            // running, so a single value would mean little.
            return Vec::new();
        }
        let bytes = getsockopt(&socket, sockopt::RcvBuf).unwrap_or_default();
        vec![Fact::new("receive buffer", bytes)]
    }
}

fn refused(name: &'static str, value: &impl ToString) -> impl Fn(Errno) -> NetError {
    let value = value.to_string();
    move |error| NetError::Option {
        name,
        value: value.clone(),
        why: words(error),
    }
}

// Offsets in `struct tcp_info` (<linux/tcp.h>).
const OPTIONS: usize = 5;
const SCALES: usize = 6;
const SEND_MSS: usize = 16;
const RTT: usize = 68;
const SEGMENTS_IN: usize = 140;
const MIN_RTT: usize = 148;
const SEND_WINDOW: usize = 228;

fn word(info: &[u8], at: usize) -> Option<u32> {
    let bytes = info.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

/// Returns the TCP options that the two ends agreed on.
fn negotiated(info: &[u8]) -> Vec<Fact> {
    const NAMES: [(&str, u8); 4] = [
        ("timestamps", 1),
        ("SACK", 2),
        ("window scaling", 4),
        ("ECN", 8),
    ];
    let (Some(&options), Some(&scales)) = (info.get(OPTIONS), info.get(SCALES)) else {
        return Vec::new();
    };
    let mut facts: Vec<Fact> = NAMES
        .iter()
        .map(|&(name, bit)| Fact::new(name, on_off(options & bit != 0)))
        .collect();
    // The byte holds the window scale factors of both ends. This one is the other end's. The
    // machine's bit order determines which half of the byte it is in.
    let scale = if cfg!(target_endian = "little") {
        scales & 15
    } else {
        scales >> 4
    };
    facts.push(Fact::new("window scale", 1_u32 << scale));
    facts.extend(word(info, SEND_MSS).map(|mss| Fact::new("segment data", mss)));
    facts
}

/// Returns the connection's statistics, including round-trip times. Returns `None` if the kernel
/// has not measured a round trip.
fn connection(info: &[u8]) -> Option<ConnectionFacts> {
    let micros = |at| word(info, at).map(|us| Nanos::from_micros(i64::from(us)));
    Some(ConnectionFacts {
        acks: word(info, SEGMENTS_IN)?,
        segment_bytes: word(info, SEND_MSS)?,
        round_trip: micros(RTT)?,
        // The kernel returns `u32::MAX` until it has measured a round trip, so treat that value as
        // missing.
        shortest_round_trip: micros(MIN_RTT).filter(|time| time.0 < i64::from(u32::MAX) * 1_000)?,
        peer_window_bytes: word(info, SEND_WINDOW),
    })
}
