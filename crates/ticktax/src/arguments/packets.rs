//! Arguments of `ticktax pace --udp`.

use clap::Args;
use ticktax_model::net::{Protocol, TrafficSpec};
use ticktax_model::pace::FrameRate;
use ticktax_model::{Cpu, Nanos};
use ticktax_traffic::{BUFFERS, BufferAsk, EndCpus};

use super::Length;
use crate::failure::Failure;

/// Default rate, in datagrams per second.
const RATE: f64 = 10_000.0;

/// Default size of a datagram, in bytes.
const SIZE: u32 = 200;

const LENGTH: Nanos = Nanos::from_secs(10);

/// Options for sending datagrams instead of running a loop.
#[derive(Args, Debug)]
#[command(next_help_heading = "Datagrams")]
pub(crate) struct PacketArguments {
    /// Send numbered datagrams; show which are lost and why
    ///
    /// --rate sets the datagrams per second. They are sent between two temporary network namespaces
    /// on this machine or, with --to and --listen, between two hosts.
    #[arg(long, help_heading = None::<&str>, conflicts_with_all = [
        "work", "sleep", "rule", "cpu", "policy", "pid", "comm", "overshot_from", "vary",
        "sections",
    ])]
    pub(crate) udp: bool,

    /// Send datagrams of this size, at least 24 bytes [default: 200]
    #[arg(long, value_name = "BYTES", requires = "udp", hide_short_help = true)]
    size: Option<u32>,

    /// Request a receive buffer (`SO_RCVBUF`) of this size; the kernel doubles it
    ///
    /// [default: the kernel's default]
    #[arg(long, value_name = "BYTES", requires = "udp", hide_short_help = true,
          value_parser = clap::value_parser!(u32)
              .range(i64::from(*BUFFERS.start())..=i64::from(*BUFFERS.end())))]
    rcvbuf: Option<u32>,

    /// Run the sending thread on this CPU
    #[arg(long, value_name = "N", requires = "udp", hide_short_help = true)]
    send_cpu: Option<u32>,

    /// Run the receiving thread on this CPU
    #[arg(long, value_name = "N", requires = "udp", hide_short_help = true)]
    recv_cpu: Option<u32>,

    /// Send to `ticktax pace --udp --listen` on this host [default port: 7117]
    #[arg(long, value_name = "HOST[:PORT]", requires = "udp", hide_short_help = true,
          conflicts_with_all = ["rcvbuf", "recv_cpu", "listen"])]
    pub(crate) to: Option<String>,

    /// Receive from `ticktax pace --udp --to` on another host
    ///
    /// Anyone who can reach this address can send traffic to it.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "udp", num_args = 0..=1,
          default_missing_value = "0.0.0.0:7117", hide_short_help = true,
          conflicts_with_all = ["send_cpu", "size", "rate", "length"])]
    pub(crate) listen: Option<String>,

    /// Do not trace the kernel: count losses by location, without causes
    #[arg(long, requires = "udp", hide_short_help = true)]
    pub(crate) untraced: bool,
}

impl PacketArguments {
    pub(super) fn spec(&self, rate: Option<&PaceRate>, length: Option<Length>) -> TrafficSpec {
        let size = self.size.unwrap_or(SIZE);
        let packets = rate.map_or(Some(RATE), |rate| rate.packets);
        TrafficSpec {
            protocol: Protocol::Udp,
            call_bytes: size,
            rate: packets.map(|hz| hz * 8.0 * f64::from(size)),
            length: length.map_or(LENGTH, |length| length.0),
        }
    }

    pub(crate) fn buffer(&self) -> BufferAsk {
        BufferAsk { bytes: self.rcvbuf }
    }

    pub(crate) fn cpus(&self) -> EndCpus {
        EndCpus {
            sender: self.send_cpu.map(Cpu),
            receiver: self.recv_cpu.map(Cpu),
        }
    }
}

/// The value of `--rate`, in frames or datagrams per second. Other options decide between the two
/// meanings, so the value is parsed both ways.
#[derive(Clone, Debug)]
pub(crate) struct PaceRate {
    frames: Result<FrameRate, String>,
    /// `None` means unlimited.
    packets: Option<f64>,
}

impl PaceRate {
    /// Smallest and largest rate, in datagrams per second.
    const MIN: f64 = 1.0;
    const MAX: f64 = 100e6;

    pub(crate) fn frames(&self) -> Result<FrameRate, Failure> {
        self.frames.clone().map_err(Failure::Arguments)
    }
}

impl std::str::FromStr for PaceRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let frames = text.parse::<FrameRate>().map_err(|why| why.to_string());
        match (frames, packets(text.trim())) {
            (Err(why), None) => Err(format!(
                "{why} or, with --udp, 1 to 100M, for example 60k, or max"
            )),
            (frames, packets) => Ok(Self {
                frames: frames.map_err(|why| format!("--rate {text}: {why}")),
                packets: packets.and_then(|rate| rate.0),
            }),
        }
    }
}

/// A rate in datagrams per second. `None` means unlimited.
struct PacketRate(Option<f64>);

fn packets(text: &str) -> Option<PacketRate> {
    if text == "max" {
        return Some(PacketRate(None));
    }
    let units = [("k", 1e3), ("M", 1e6)];
    let unit = units
        .into_iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    let rate = number.parse::<f64>().ok()? * factor;
    (PaceRate::MIN..=PaceRate::MAX)
        .contains(&rate)
        .then_some(PacketRate(Some(rate)))
}

#[cfg(test)]
mod tests {
    use super::PaceRate;

    #[test]
    fn a_rate_is_of_frames_or_datagrams_or_invalid() {
        let parsed = |text: &str| text.parse::<PaceRate>();
        let rate = parsed("35").unwrap();
        assert!(rate.frames().is_ok() && rate.packets == Some(35.0));
        let rate = parsed("60k").unwrap();
        assert!(rate.frames().is_err() && rate.packets == Some(60e3));
        let rate = parsed("max").unwrap();
        assert!(rate.frames().is_err() && rate.packets.is_none());
        for wrong in ["", "0", "-3", "fast", "0.5k5", "1e12", "nan"] {
            let why = parsed(wrong).unwrap_err();
            assert!(why.contains("60k"), "{why}");
        }
    }
}
