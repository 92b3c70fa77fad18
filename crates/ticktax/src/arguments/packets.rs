//! What was typed for `ticktax pace --udp`.

use clap::Args;
use ticktax_model::net::{Protocol, TrafficSpec};
use ticktax_model::pace::FrameRate;
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::net::{BUFFERS, BufferAsk};

use super::Length;
use crate::failure::Failure;

/// Datagrams a second, without other wishes.
const RATE: f64 = 10_000.0;

/// Bytes of a datagram, without other wishes.
const SIZE: u32 = 200;

/// How long, without other wishes.
const LENGTH: Nanos = Nanos::from_secs(10);

/// Datagrams, in place of a loop.
#[derive(Args, Debug)]
#[command(next_help_heading = "Datagrams")]
pub(crate) struct PacketArguments {
    /// Send numbered datagrams at --rate a second and read them: which are lost, where, and because of whose stall
    ///
    /// Between two network namespaces of this machine that are gone afterwards, or with --to and --listen between
    /// hosts.
    #[arg(long, conflicts_with_all = ["work", "sleep", "rule", "cpu", "policy", "pid", "comm", "overshot_from", "vary", "sections"])]
    pub(crate) udp: bool,

    /// Bytes of each datagram, from 24 on [default: 200]
    #[arg(long, value_name = "BYTES", requires = "udp")]
    size: Option<u32>,

    /// Ask for a receive buffer of so many bytes (`SO_RCVBUF`), which the kernel doubles [default: the kernel's]
    #[arg(long, value_name = "BYTES", requires = "udp", value_parser = clap::value_parser!(u32).range(i64::from(*BUFFERS.start())..=i64::from(*BUFFERS.end())))]
    rcvbuf: Option<u32>,

    /// Keep the sending thread on this CPU
    #[arg(long, value_name = "N", requires = "udp")]
    send_cpu: Option<u32>,

    /// Keep the receiving thread on this CPU
    #[arg(long, value_name = "N", requires = "udp")]
    recv_cpu: Option<u32>,

    /// Send to `ticktax pace --udp --listen` on another host, at port 7117 unless another is typed
    #[arg(long, value_name = "HOST[:PORT]", requires = "udp", conflicts_with_all = ["rcvbuf", "recv_cpu", "listen"])]
    pub(crate) to: Option<String>,

    /// Wait for `ticktax pace --udp --to` of another host: anybody who reaches it can make this host receive
    #[arg(long, value_name = "ADDRESS:PORT", requires = "udp", num_args = 0..=1, default_missing_value = "0.0.0.0:7117", conflicts_with_all = ["send_cpu", "size", "rate", "length"])]
    pub(crate) listen: Option<String>,

    /// Trace nothing: losses and their places, and nobody's name
    #[arg(long, requires = "udp")]
    pub(crate) untraced: bool,
}

impl PacketArguments {
    /// What is to be sent.
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

    /// What is asked of the receiving socket.
    pub(crate) fn buffer(&self) -> BufferAsk {
        BufferAsk { bytes: self.rcvbuf }
    }

    /// The CPUs of the sender and of the receiver.
    pub(crate) fn cpus(&self) -> (Option<Cpu>, Option<Cpu>) {
        (self.send_cpu.map(Cpu), self.recv_cpu.map(Cpu))
    }
}

/// A rate of frames or of datagrams, whichever it is of: which of these a number can be is known when all is read.
#[derive(Clone, Debug)]
pub(crate) struct PaceRate {
    frames: Result<FrameRate, String>,
    /// `None`: as many as there is room for.
    packets: Option<f64>,
}

impl PaceRate {
    /// Datagrams a second that can be asked for.
    const MIN: f64 = 1.0;
    const MAX: f64 = 100e6;

    /// As a rate of frames.
    pub(crate) fn frames(&self) -> Result<FrameRate, Failure> {
        self.frames.clone().map_err(Failure::Arguments)
    }
}

impl std::str::FromStr for PaceRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let frames = text.parse::<FrameRate>().map_err(|why| why.to_string());
        match (frames, packets(text.trim())) {
            (Err(why), None) => Err(format!("{why}; with --udp 1 to 100M, such as 60k, or max")),
            (frames, packets) => Ok(Self {
                frames: frames.map_err(|why| format!("--rate {text}: {why}")),
                packets: packets.and_then(|rate| rate.0),
            }),
        }
    }
}

/// A rate of datagrams; none for as many as there is room for.
struct PacketRate(Option<f64>);

/// Datagrams a second, or as many as there is room for.
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
    fn a_rate_is_one_of_frames_or_of_datagrams() {
        let of = |text: &str| text.parse::<PaceRate>();
        let rate = of("35").unwrap();
        assert!(rate.frames().is_ok() && rate.packets == Some(35.0));
        let rate = of("60k").unwrap();
        assert!(rate.frames().is_err() && rate.packets == Some(60e3));
        let rate = of("max").unwrap();
        assert!(rate.frames().is_err() && rate.packets.is_none());
        for wrong in ["", "0", "-3", "fast", "0.5k5", "1e12", "nan"] {
            let why = of(wrong).unwrap_err();
            assert!(why.contains("60k"), "{why}");
        }
    }
}
