//! Link options of `ticktax net pair`.

use clap::Args;
use ticktax_model::Nanos;
use ticktax_model::net::LinkSpec;
use ticktax_traffic::experiment;

use super::net::BitRate;

/// MTU, rate, delay and loss of the virtual link.
#[derive(Args, Debug)]
#[command(next_help_heading = "Link")]
pub(crate) struct LinkArguments {
    /// Set the MTU of the virtual devices [default: 1500]
    ///
    /// The range is 128 to 65535 bytes.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,

    /// Limit the link to this bit rate [default: none]
    ///
    /// The range is 1M to 100G bits per second.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    link_rate: Option<BitRate>,

    /// Delay each packet by this much in each direction, up to 300ms
    ///
    /// The kernel must support netem.
    #[arg(long, value_name = "TIME", value_parser = delay, allow_hyphen_values = true,
          hide_short_help = true)]
    delay: Option<Nanos>,

    /// Drop this share of packets at random in each direction, up to 20%
    ///
    /// The kernel must support netem.
    #[arg(long, value_name = "PERCENT", value_parser = loss, allow_hyphen_values = true,
          hide_short_help = true)]
    loss: Option<f64>,
}

impl LinkArguments {
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu.unwrap_or(super::net::ETHERNET)
    }

    /// Returns the factor names of these options, each with whether the user typed the option.
    pub(super) fn typed(&self) -> [(&'static str, bool); 4] {
        [
            ("mtu", self.mtu.is_some()),
            ("link-rate", self.link_rate.is_some()),
            ("delay", self.delay.is_some()),
            ("loss", self.loss.is_some()),
        ]
    }

    pub(crate) fn spec(&self) -> LinkSpec {
        LinkSpec {
            rate: self.link_rate.and_then(|rate| rate.0),
            delay: self.delay,
            loss: self.loss,
        }
    }
}

fn delay(text: &str) -> Result<Nanos, String> {
    experiment::delay(text)?
        .ok_or_else(|| format!("invalid delay `{text}`: choose up to 300ms, for example 20ms"))
}

fn loss(text: &str) -> Result<f64, String> {
    experiment::loss(text)?
        .ok_or_else(|| format!("invalid loss `{text}`: choose up to 20%, for example 0.1%"))
}
