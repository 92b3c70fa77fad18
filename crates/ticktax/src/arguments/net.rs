//! Arguments of `ticktax net`.

use std::path::PathBuf;
use std::str::FromStr;

use crate::files::HtmlFile;
use crate::output::Output;
use clap::{Args, Subcommand};
use ticktax_experiment::vary::Vary;
use ticktax_model::document::DocumentKind;
use ticktax_model::net::{LinkSpec, Protocol, TrafficSpec};
use ticktax_model::{Cpu, Nanos};
use ticktax_report::Format;
use ticktax_traffic::experiment::{Setup, rate};
use ticktax_traffic::{EndCpus, Tuning};

use super::files::HTML;
use super::link::LinkArguments;
use super::percent::percentage;
use super::{Length, formats};

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo ticktax net pair                   send TCP at full speed between two namespaces
  sudo ticktax net pair --udp --rate 200M
                                          send datagrams at a fixed rate; find where they are lost
  sudo ticktax net pair --size 64         measure the cost of small writes
  sudo ticktax net pair --link-rate 100M  send over a 100 Mbit/s link
  sudo ticktax net pair --vary tcp_timestamps=0,1 --vary mss=536,1460
                                          measure the cost of each option, alone and together
  ticktax net recv                        on one host, receive on port 7117
  ticktax net send 192.0.2.7              on another, send to it, and print both ends";

/// Default length of a measurement.
const LENGTH: Nanos = Nanos::from_secs(5);

/// MTU of Ethernet. The virtual devices have this MTU by default, and it is assumed for a link
/// whose MTU is unknown.
pub(crate) const ETHERNET: u32 = 1_500;

#[derive(Debug, Subcommand)]
pub(crate) enum NetTask {
    /// Send between two network namespaces of this machine
    ///
    /// A pair of virtual Ethernet devices connects the namespaces, and is removed afterwards.
    /// Without permission to create them, ticktax uses the loopback device, and the result lists
    /// the limitations.
    Pair(PairArguments),
    /// Send to `ticktax net recv` on another host
    Send(SendArguments),
    /// Receive from one `ticktax net send`
    Recv(RecvArguments),
}

#[derive(Args, Debug)]
pub(crate) struct PairArguments {
    #[command(flatten)]
    pub(crate) traffic: TrafficArguments,

    #[command(flatten)]
    pub(crate) link: LinkArguments,

    /// Run the sending thread on this CPU
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) send_cpu: Option<u32>,

    /// Run the receiving thread on this CPU
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) recv_cpu: Option<u32>,

    #[command(flatten)]
    pub(crate) experiment: ExperimentArguments,

    #[command(flatten)]
    pub(crate) watch: NetWatchArguments,
}

impl PairArguments {
    pub(crate) fn cpus(&self) -> EndCpus {
        EndCpus {
            sender: cpu(self.send_cpu),
            receiver: cpu(self.recv_cpu),
        }
    }

    /// Returns the factor names of the options that the user typed.
    pub(crate) fn typed(&self) -> impl Iterator<Item = &'static str> {
        let traffic = [
            ("protocol", self.traffic.udp),
            ("rate", self.traffic.rate.is_some()),
            ("size", self.traffic.size.is_some()),
        ];
        let all = traffic.into_iter().chain(self.link.typed());
        all.filter(|(_, is_typed)| *is_typed).map(|(name, _)| name)
    }
}

/// Options for experiments: which factors to vary, and how often to measure.
#[derive(Args, Debug)]
#[command(next_help_heading = "Experiments")]
pub(crate) struct ExperimentArguments {
    /// Vary this factor, for example mss=536,1460; repeatable
    ///
    /// Every combination of values is an arm, and all arms are measured. The cost of each factor is
    /// reported. Traffic factors: size, protocol, rate. Socket factors: mss, sndbuf, rcvbuf,
    /// nodelay, congestion. Device factors: mtu, link-rate, delay, loss, tx-checksum, tso, gso,
    /// gro. Sysctls of the network namespaces: `tcp_timestamps`, `tcp_window_scaling`, `tcp_sack`,
    /// `tcp_congestion_control`, `net.*`
    #[arg(long, value_name = "NAME=LIST", conflicts_with = "soak")]
    pub(crate) vary: Vec<Vary>,

    /// Run this many blocks [default: 5]
    ///
    /// Each block runs every arm twice: in random order, then in reverse.
    #[arg(long, value_name = "N", requires = "vary", hide_short_help = true,
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) blocks: Option<u64>,

    /// Seed for the random order [default: random]
    #[arg(long, value_name = "N", requires = "vary", hide_short_help = true)]
    pub(crate) seed: Option<u64>,

    /// Run enough blocks to detect effects this small, for example 2%
    ///
    /// A pilot run of 3 blocks determines the number of blocks.
    #[arg(long, value_name = "SHARE", requires = "vary", conflicts_with = "blocks",
          hide_short_help = true, value_parser = percentage)]
    pub(crate) resolve: Option<f64>,
}

#[derive(Args, Debug)]
pub(crate) struct SendArguments {
    /// Receiving host; put IPv6 addresses in brackets [default port: 7117]
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) to: String,

    #[command(flatten)]
    pub(crate) traffic: TrafficArguments,

    /// Run the sending thread on this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<u32>,

    #[command(flatten)]
    pub(crate) watch: NetWatchArguments,
}

#[derive(Args, Debug)]
pub(crate) struct RecvArguments {
    /// Listen on this address; anyone who can reach it can send traffic to it
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7117")]
    pub(crate) listen: String,

    /// Run the receiving thread on this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<u32>,

    #[command(flatten)]
    pub(crate) watch: NetWatchArguments,
}

impl NetTask {
    pub(crate) fn watch(&self) -> &NetWatchArguments {
        match self {
            Self::Pair(typed) => &typed.watch,
            Self::Send(typed) => &typed.watch,
            Self::Recv(typed) => &typed.watch,
        }
    }
}

/// Options that describe the traffic to send.
#[derive(Args, Debug)]
#[command(next_help_heading = "Traffic")]
pub(crate) struct TrafficArguments {
    /// Send numbered datagrams instead of a TCP stream
    #[arg(long)]
    pub(crate) udp: bool,

    /// Send for this long [default: 5s; --vary: 300ms per run]
    #[arg(
        long = "for",
        alias = "duration",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    pub(crate) length: Option<Length>,

    /// Send at this bit rate, for example 100M [default: max; --udp: 100M]
    ///
    /// The rate is in bits per second; `max` means unlimited.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(crate) rate: Option<BitRate>,

    /// Write this many bytes per call [default: 131072]
    ///
    /// With --udp, this is the datagram size; by default, a datagram fills one packet.
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<u32>,
}

impl TrafficArguments {
    pub(crate) fn spec(&self, mtu: Option<u32>) -> TrafficSpec {
        self.setup(mtu, LENGTH).spec()
    }

    /// Returns the configuration from which an experiment starts: every factor has the value of its
    /// option. `length` is the default length of a run.
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

/// Options for tracing the run and writing its result.
#[derive(Args, Debug)]
pub(crate) struct NetWatchArguments {
    /// Do not trace the kernel: measure only throughput and the CPU time of both threads
    #[arg(long, hide_short_help = true)]
    pub(crate) untraced: bool,

    /// Measure the unused cycles on each CPU with a lowest-priority probe
    #[arg(long, conflicts_with = "untraced", hide_short_help = true)]
    pub(crate) soak: bool,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Net), default_value = "text")]
    pub(crate) format: Format,

    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    output: Option<PathBuf>,
}

impl NetWatchArguments {
    pub(crate) fn output(&self) -> Output<'_> {
        Output::new(self.format, self.output.as_deref())
    }
}

pub(crate) fn cpu(typed: Option<u32>) -> Option<Cpu> {
    typed.map(Cpu)
}

/// A bit rate in bits per second. `None` means unlimited.
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
    fn rates_are_parsed_with_units() {
        let parsed = |text: &str| text.parse::<BitRate>().ok().map(|rate| rate.0);
        assert_eq!(parsed("64k"), Some(Some(64e3)));
        assert_eq!(parsed("2.5G"), Some(Some(2.5e9)));
        assert_eq!(parsed("8"), Some(Some(8.0)));
        assert_eq!(parsed("max"), Some(None));
        for wrong in ["", "0", "-5M", "7", "1e20", "nan", "inf", "fast", "5X", "M"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
