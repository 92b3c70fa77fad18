//! What was typed for `ticktax net`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Subcommand};
use ticktax_model::document::DocumentKind;
use ticktax_model::net::{Protocol, TrafficSpec};
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::net::{TCP_CALL, UDP_HEADERS};
use ticktax_report::{Format, HtmlFile};

use super::{Length, formats};

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo ticktax net pair                    TCP at full speed between two network namespaces, and what a byte costs
  sudo ticktax net pair --udp --rate 200M  datagrams at a rate: which are lost, and where
  sudo ticktax net pair --size 64          small calls: what a call costs
  ticktax net recv                         on one host: waits for a sender at port 7117
  ticktax net send 192.0.2.7               on another: sends to it, and prints what both ends did";

/// How long, without other wishes.
const LENGTH: Nanos = Nanos::from_secs(5);

/// The rate of datagrams, without other wishes, in bits a second.
const UDP_RATE: f64 = 100e6;

/// The largest packet of a link that is not known.
const ETHERNET: u32 = 1_500;

#[derive(Debug, Subcommand)]
pub(crate) enum NetTask {
    /// Send between two network namespaces of this machine, which are gone afterwards
    ///
    /// A pair of virtual Ethernet devices connects them. Without the right to make them, the loopback device is used,
    /// and what that leaves out is said.
    Pair(PairArguments),
    /// Send to `ticktax net recv` on another host
    Send(SendArguments),
    /// Wait for `ticktax net send`, and receive from it once
    Recv(RecvArguments),
}

#[derive(Args, Debug)]
pub(crate) struct PairArguments {
    #[command(flatten)]
    pub(crate) traffic: TrafficArguments,

    /// The largest packet of the virtual devices, in bytes: 128 to 65535
    #[arg(long, value_name = "BYTES", default_value_t = ETHERNET)]
    pub(crate) mtu: u32,

    /// Keep the sending thread on this CPU
    #[arg(long, value_name = "N")]
    pub(crate) send_cpu: Option<u32>,

    /// Keep the receiving thread on this CPU
    #[arg(long, value_name = "N")]
    pub(crate) recv_cpu: Option<u32>,

    #[command(flatten)]
    pub(crate) watch: NetWatchArguments,
}

#[derive(Args, Debug)]
pub(crate) struct SendArguments {
    /// The receiver's host, with :PORT where that is not 7117; an IPv6 address in brackets
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) to: String,

    #[command(flatten)]
    pub(crate) traffic: TrafficArguments,

    /// Keep the sending thread on this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<u32>,

    #[command(flatten)]
    pub(crate) watch: NetWatchArguments,
}

#[derive(Args, Debug)]
pub(crate) struct RecvArguments {
    /// Where to listen: anybody who reaches it can make this host receive
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7117")]
    pub(crate) listen: String,

    /// Keep the receiving thread on this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<u32>,

    #[command(flatten)]
    pub(crate) watch: NetWatchArguments,
}

impl NetTask {
    /// How it is watched.
    pub(crate) fn watch(&self) -> &NetWatchArguments {
        match self {
            Self::Pair(typed) => &typed.watch,
            Self::Send(typed) => &typed.watch,
            Self::Recv(typed) => &typed.watch,
        }
    }
}

/// What is sent.
#[derive(Args, Debug)]
#[command(next_help_heading = "The traffic")]
pub(crate) struct TrafficArguments {
    /// Send datagrams, each with its number, in place of a TCP stream
    #[arg(long)]
    pub(crate) udp: bool,

    /// How long, such as 20s or 500ms
    #[arg(
        long = "for",
        visible_alias = "duration",
        value_name = "TIME",
        default_value = "5s",
        allow_hyphen_values = true
    )]
    pub(crate) length: Option<Length>,

    /// Bits of data a second, such as 64k, 100M or 2.5G, or `max` [default: max; with --udp 100M]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(crate) rate: Option<BitRate>,

    /// Bytes of each call: of UDP, of each datagram [default: 131072; with --udp what one packet holds]
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<u32>,
}

impl TrafficArguments {
    /// What is to be sent over a link with this largest packet.
    pub(crate) fn spec(&self, mtu: Option<u32>) -> TrafficSpec {
        let (protocol, call_bytes, rate) = if self.udp {
            let packet = mtu.unwrap_or(ETHERNET).saturating_sub(UDP_HEADERS);
            (Protocol::Udp, packet, BitRate(Some(UDP_RATE)))
        } else {
            (Protocol::Tcp, TCP_CALL, BitRate(None))
        };
        TrafficSpec {
            protocol,
            call_bytes: self.size.unwrap_or(call_bytes),
            rate: self.rate.unwrap_or(rate).0,
            length: self.length.map_or(LENGTH, |length| length.0),
        }
    }
}

/// How it is watched, and where the result goes.
#[derive(Args, Debug)]
pub(crate) struct NetWatchArguments {
    /// Trace nothing: the throughput, and the CPU time of the two threads by their own clocks
    #[arg(long)]
    pub(crate) untraced: bool,

    /// Have a soaker on each CPU count the cycles that are left, at the lowest priority
    #[arg(long, conflicts_with = "untraced")]
    pub(crate) soak: bool,

    #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// How to print the result
    #[arg(long, value_parser = formats(DocumentKind::Net), default_value = "text")]
    pub(crate) format: Format,

    /// Write the result to a file in place of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl NetWatchArguments {
    /// How to print, and where.
    pub(crate) fn output(&self) -> (Format, Option<&Path>) {
        (self.format, self.output.as_deref())
    }
}

/// A CPU that was named.
pub(crate) fn cpu(typed: Option<u32>) -> Option<Cpu> {
    typed.map(Cpu)
}

/// Bits a second; none for as many as there is room for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BitRate(pub(crate) Option<f64>);

impl BitRate {
    /// Bits a second that can be asked for: a byte a second, and more than any link has.
    const MIN: f64 = 8.0;
    const MAX: f64 = 1e13;
}

impl FromStr for BitRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self(None));
        }
        let wrong = || {
            format!(
                "invalid rate `{text}`: 8 to 10000G bits a second, such as 64k, 100M or 2.5G, or max"
            )
        };
        let units = [("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9)];
        let unit = units.into_iter().find_map(|(unit, factor)| {
            let number = text.strip_suffix(unit)?;
            Some((number, factor))
        });
        let (number, factor) = unit.unwrap_or((text, 1.0));
        let rate = number.parse::<f64>().map_err(|_| wrong())? * factor;
        if (Self::MIN..=Self::MAX).contains(&rate) {
            Ok(Self(Some(rate)))
        } else {
            Err(wrong())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BitRate;

    #[test]
    fn rates_are_read_as_people_write_them() {
        let of = |text: &str| text.parse::<BitRate>().ok().map(|rate| rate.0);
        assert_eq!(of("64k"), Some(Some(64e3)));
        assert_eq!(of("2.5G"), Some(Some(2.5e9)));
        assert_eq!(of("8"), Some(Some(8.0)));
        assert_eq!(of("max"), Some(None));
        for wrong in ["", "0", "-5M", "7", "1e20", "nan", "inf", "fast", "5X", "M"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
