//! What was typed for `ticktax net`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::files::HtmlFile;
use clap::{Args, Subcommand};
use ticktax_experiment::traffic::{Setup, rate};
use ticktax_experiment::vary::Vary;
use ticktax_model::document::DocumentKind;
use ticktax_model::net::{LinkSpec, Protocol, TrafficSpec};
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::net::Tuning;
use ticktax_report::Format;

use super::link::LinkArguments;
use super::percent::percentage;
use super::{Length, formats};

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo ticktax net pair                    TCP at full speed between two network namespaces, and what a byte costs
  sudo ticktax net pair --udp --rate 200M  datagrams at a rate: which are lost, and where
  sudo ticktax net pair --size 64          small calls: what a call costs
  sudo ticktax net pair --link-rate 100M   over a link of 100 Mbit/s
  sudo ticktax net pair --vary tcp_timestamps=0,1 --vary mss=536,1460   what each option costs, alone and together
  ticktax net recv                         on one host: waits for a sender at port 7117
  ticktax net send 192.0.2.7               on another: sends to it, and prints what both ends did";

/// How long, without other wishes.
const LENGTH: Nanos = Nanos::from_secs(5);

/// The largest packet of a link that is not known.
pub(crate) const ETHERNET: u32 = 1_500;

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

    #[command(flatten)]
    pub(crate) link: LinkArguments,

    /// Keep the sending thread on this CPU
    #[arg(long, value_name = "N")]
    pub(crate) send_cpu: Option<u32>,

    /// Keep the receiving thread on this CPU
    #[arg(long, value_name = "N")]
    pub(crate) recv_cpu: Option<u32>,

    #[command(flatten)]
    pub(crate) experiment: ExperimentArguments,

    #[command(flatten)]
    pub(crate) watch: NetWatchArguments,
}

impl PairArguments {
    /// Options that were typed, by the names that they have as factors of an experiment.
    pub(crate) fn typed(&self) -> impl Iterator<Item = &'static str> {
        let traffic = [
            ("protocol", self.traffic.udp),
            ("rate", self.traffic.rate.is_some()),
            ("size", self.traffic.size.is_some()),
        ];
        let all = traffic.into_iter().chain(self.link.typed());
        all.filter(|it| it.1).map(|it| it.0)
    }
}

/// Settings beside each other.
#[derive(Args, Debug)]
#[command(next_help_heading = "Experiments")]
pub(crate) struct ExperimentArguments {
    /// What to vary, such as `--vary mss=536,1460 --vary tcp_timestamps=0,1`: each value of one meets each of the
    /// others, and what each costs is told. Of the traffic size, protocol, rate; of the sockets mss, sndbuf, rcvbuf,
    /// nodelay, congestion; of the devices mtu, link-rate, delay, loss, tx-checksum, tso, gso, gro; and sysctls of the namespaces by their names:
    /// `tcp_timestamps`, `tcp_window_scaling`, `tcp_sack`, `tcp_congestion_control`, `net.*`
    #[arg(long, value_name = "NAME=LIST", conflicts_with = "soak")]
    pub(crate) vary: Vec<Vary>,

    /// Blocks; each has every combination twice, in an order that is drawn and back again [default: 5]
    #[arg(long, value_name = "N", requires = "vary", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) blocks: Option<u64>,

    /// Of what the order is drawn [default: another one each time]
    #[arg(long, value_name = "N", requires = "vary")]
    pub(crate) seed: Option<u64>,

    /// Find effects as small as this, such as 2%: a pilot of 3 blocks tells how many blocks that takes
    #[arg(long, value_name = "SHARE", requires = "vary", conflicts_with = "blocks", value_parser = percentage)]
    pub(crate) resolve: Option<f64>,
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

    /// How long, such as 20s or 500ms [default: 5s; with --vary 300ms for each run]
    #[arg(
        long = "for",
        visible_alias = "duration",
        value_name = "TIME",
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
        self.setup(mtu, LENGTH).spec()
    }

    /// The same, of which something may be varied.
    pub(crate) fn setup(&self, mtu: Option<u32>, length: Nanos) -> Setup {
        Setup {
            protocol: if self.udp {
                Protocol::Udp
            } else {
                Protocol::Tcp
            },
            size: self.size,
            rate: self.rate.map(|rate| rate.0),
            length: self.length.map_or(length, |length| length.0),
            mtu,
            link: LinkSpec::default(),
            tuning: Tuning::default(),
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

impl FromStr for BitRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        rate(text).map(Self)
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
