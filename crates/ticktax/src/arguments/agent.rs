//! What an agent was asked to do.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use ticktax_model::Nanos;
use ticktax_model::incident::TriggerSpec;
use ticktax_observe::GapProbe;

use super::incidents::{BudgetArguments, RingArguments};
use super::{Length, one_of};

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo ticktax agent                                    metrics on http://127.0.0.1:9559/metrics
  sudo ticktax agent --user ticktax --facts /var/lib/ticktax-agent/facts
                                                        and facts of every minute as Parquet files
  sudo ticktax agent --listen unix:/run/ticktax.sock    behind a proxy of your own
  sudo ticktax agent --listen none --facts facts --for 1h
  sudo ticktax agent --trigger 'wait>5ms' --trigger 'stretch>5ms'
                                                        and the seconds around each, as `record` keeps them

Once everything is attached it gives up all rights: as root it becomes --user. contrib/ has a systemd
unit, alert rules and a dashboard; docs/reference/agent.md says what the metrics and the files
hold.";

#[derive(Debug, Args)]
pub(crate) struct AgentArguments {
    /// How long, such as 1h or 7d [default: until it is told to stop]
    #[arg(
        long = "for",
        visible_alias = "duration",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    pub(crate) length: Option<Length>,

    /// How often sums are taken from the kernel, 1s to 1m: metrics are so old at most
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) every: Every,

    /// Where metrics are served: ADDRESS:PORT, unix:PATH, or none
    #[arg(long, value_name = "WHERE", default_value = "127.0.0.1:9559")]
    pub(crate) listen: Listen,

    /// Let --listen name an address that other machines can reach, and serve any `Host`, such as a
    /// proxy's
    #[arg(long)]
    pub(crate) listen_anywhere: bool,

    /// Write facts of every minute, ten minutes and hour into this folder, as Parquet files
    #[arg(long, value_name = "FOLDER")]
    pub(crate) facts: Option<PathBuf>,

    /// Also write each histogram as two lists, for programs that cannot read its bytes
    #[arg(long, requires = "facts")]
    pub(crate) facts_lists: bool,

    /// Most days of facts that are kept; the oldest are removed
    #[arg(long, value_name = "N", default_value = "30", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) facts_days: u16,

    /// Most MiB of facts that are kept; the oldest are removed
    #[arg(long, value_name = "N", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) facts_mib: u32,

    /// Also keep the seconds around what lasts too long, such as wait>5ms, as `ticktax record` does; may be given
    /// several times
    #[arg(long = "trigger", value_name = "TRIGGER")]
    pub(crate) triggers: Vec<TriggerSpec>,

    /// The folder of the incidents [default: /var/lib/ticktax-agent/incidents of root, else
    /// ~/.local/state/ticktax-agent/incidents]
    #[arg(long, value_name = "FOLDER", requires = "triggers")]
    pub(crate) incidents: Option<PathBuf>,

    /// What looks for gaps, where a trigger is about them
    #[arg(long, default_value = "sleep", requires = "triggers", value_parser = one_of(&GapProbe::ALL, GapProbe::name, GapProbe::about))]
    pub(crate) probe: GapProbe,

    /// Also write each incident to the journal with fields of its own, or to syslog where there is no journal
    #[arg(long, requires = "triggers")]
    pub(crate) journal: bool,

    /// Which user to become once everything is attached [default: as root `ticktax` where there is such a
    /// user, else `nobody`; otherwise who started it]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) ring: RingArguments,

    #[command(flatten)]
    pub(crate) budget: BudgetArguments,
}

/// From one look at the kernel's sums to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Every(pub(crate) Nanos);

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Length(every) = text.parse()?;
        if !(Nanos::from_secs(1)..=Nanos::from_secs(60)).contains(&every) {
            return Err(format!("`{text}` is not from 1s to 1m"));
        }
        Ok(Self(every))
    }
}

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// Nowhere.
    None,
    /// On an address and a port; port 0 is any that is free.
    Tcp(SocketAddr),
    /// On a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => return Ok(Self::Unix(path.into())),
            _ => {}
        }
        let port = text.strip_prefix("localhost:").map(str::parse);
        if let Some(Ok(port)) = port {
            return Ok(Self::Tcp((Ipv4Addr::LOCALHOST, port).into()));
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            format!(
                "invalid address `{text}`: write 127.0.0.1:9559, [::1]:9559, unix:/run/ticktax.sock or none"
            )
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Every, Listen};

    #[test]
    fn sums_are_taken_every_second_to_every_minute() {
        let every: Every = "2s".parse().unwrap();
        assert_eq!(every.0, Nanos::from_secs(2));
        for typed in ["500ms", "61s", "", "often"] {
            assert!(typed.parse::<Every>().is_err(), "{typed}");
        }
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (typed, meant) in [
            ("none", "none"),
            ("127.0.0.1:9559", "127.0.0.1:9559"),
            ("localhost:1", "127.0.0.1:1"),
            ("[::1]:9559", "[::1]:9559"),
            ("unix:/run/x", "unix:/run/x"),
        ] {
            let listen: Listen = typed.parse().unwrap();
            assert_eq!(listen.to_string(), meant);
        }
        for typed in [
            "",
            "9559",
            "host:9559",
            "127.0.0.1",
            "unix:",
            "1.2.3.4:99999",
        ] {
            assert!(typed.parse::<Listen>().is_err(), "{typed}");
        }
    }
}
