//! What was typed for the link of `ticktax net pair`.

use clap::Args;
use ticktax_experiment::traffic;
use ticktax_model::Nanos;
use ticktax_model::net::LinkSpec;

use super::net::BitRate;

/// What the pair's devices are narrowed to.
#[derive(Args, Debug)]
#[command(next_help_heading = "The link")]
pub(crate) struct LinkArguments {
    /// The largest packet of the virtual devices, in bytes: 128 to 65535
    ///
    /// Without it 1500, as Ethernet has.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,

    /// Narrow the link to so many bits of Ethernet frames a second, each way: 1M to 100G [default: as fast as the CPU]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    link_rate: Option<BitRate>,

    /// Hold up each packet for this long, each way: up to 300ms; needs netem in the kernel
    #[arg(long, value_name = "TIME", value_parser = delay, allow_hyphen_values = true)]
    delay: Option<Nanos>,

    /// Lose this share of packets at random, each way: up to 20%; needs netem in the kernel
    #[arg(long, value_name = "PERCENT", value_parser = loss, allow_hyphen_values = true)]
    loss: Option<f64>,
}

impl LinkArguments {
    /// The largest packet of the devices.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu.unwrap_or(super::net::ETHERNET)
    }

    /// What of it was typed, by its names as options and as factors.
    pub(super) fn typed(&self) -> [(&'static str, bool); 4] {
        [
            ("mtu", self.mtu.is_some()),
            ("link-rate", self.link_rate.is_some()),
            ("delay", self.delay.is_some()),
            ("loss", self.loss.is_some()),
        ]
    }

    /// What the devices are to be narrowed to.
    pub(crate) fn spec(&self) -> LinkSpec {
        LinkSpec {
            rate: self.link_rate.and_then(|rate| rate.0),
            delay: self.delay,
            loss: self.loss,
        }
    }
}

/// A delay, such as `20ms`.
fn delay(text: &str) -> Result<Nanos, String> {
    traffic::delay(text)?
        .ok_or_else(|| format!("invalid delay `{text}`: up to 300ms, such as 20ms"))
}

/// A share, such as `0.1%`.
fn loss(text: &str) -> Result<f64, String> {
    traffic::loss(text)?.ok_or_else(|| format!("invalid loss `{text}`: up to 20%, such as 0.1%"))
}
