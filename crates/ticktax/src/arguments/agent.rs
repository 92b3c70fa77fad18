//! Arguments of `ticktax agent`.

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
  sudo ticktax agent                      serve metrics on http://127.0.0.1:9559/metrics
  sudo ticktax agent --user ticktax --facts /var/lib/ticktax-agent/facts
                                          also write per-minute facts as Parquet files
  sudo ticktax agent --listen unix:/run/ticktax.sock
                                          serve on a socket, behind your own proxy
  sudo ticktax agent --listen none --facts facts --for 1h
                                          write facts for an hour, without a server
  sudo ticktax agent --trigger 'wait>5ms' --trigger 'stretch>5ms'
                                          also save the seconds around each delay, like `record`

Once all BPF programs are attached, the agent drops its privileges. As root, it
switches to the user given by --user.
contrib/ has a systemd unit, alert rules and a dashboard.
docs/reference/agent.md describes the metrics and the files.";

#[derive(Debug, Args)]
pub(crate) struct AgentArguments {
    /// Run for this long, for example 1h or 7d [default: until stopped]
    #[arg(
        long = "for",
        alias = "duration",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    pub(crate) length: Option<Length>,

    /// Read the kernel's counters at this interval, 1s to 1m
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) every: Every,

    /// Serve metrics on ADDRESS:PORT or unix:PATH; `none` disables the server
    #[arg(long, value_name = "WHERE", default_value = "127.0.0.1:9559")]
    pub(crate) listen: Listen,

    /// Allow a --listen address that other machines can reach
    ///
    /// The server then accepts any `Host` header, for example from a proxy.
    #[arg(long, hide_short_help = true)]
    pub(crate) listen_anywhere: bool,

    /// Write facts to this directory every minute, every 10 minutes and every hour
    #[arg(long, value_name = "DIR")]
    pub(crate) facts: Option<PathBuf>,

    /// Also write histograms as lists, for programs that cannot decode the binary form
    #[arg(long, requires = "facts", hide_short_help = true)]
    pub(crate) facts_lists: bool,

    /// Keep at most this many days of facts; delete the oldest
    #[arg(long, value_name = "N", default_value = "30", hide_short_help = true,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) facts_days: u16,

    /// Keep at most this many MiB of facts; delete the oldest
    #[arg(long, value_name = "N", default_value = "1024", hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) facts_mib: u32,

    /// Save the seconds around each delay, for example wait>5ms; repeatable
    ///
    /// `ticktax record --help` explains the triggers.
    #[arg(long = "trigger", value_name = "TRIGGER")]
    pub(crate) triggers: Vec<TriggerSpec>,

    /// Store incidents in this directory
    ///
    /// [default: /var/lib/ticktax-agent/incidents as root, otherwise
    /// ~/.local/state/ticktax-agent/incidents]
    #[arg(
        long,
        value_name = "DIR",
        requires = "triggers",
        hide_short_help = true
    )]
    pub(crate) incidents: Option<PathBuf>,

    /// Use this kind of probe to detect gaps for `gap` triggers
    #[arg(long, default_value = "sleep", requires = "triggers", hide_short_help = true,
          value_parser = one_of(&GapProbe::ALL, GapProbe::name, GapProbe::about))]
    pub(crate) probe: GapProbe,

    /// Log each incident to the systemd journal, or to syslog on systems without it
    #[arg(long, requires = "triggers", hide_short_help = true)]
    pub(crate) log: bool,

    /// Switch to this user once all BPF programs are attached
    ///
    /// [default: if started as root, `ticktax` if that user exists, otherwise `nobody`; if started
    /// as another user, no change]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) ring: RingArguments,

    #[command(flatten)]
    pub(crate) budget: BudgetArguments,
}

/// Interval between two reads of the kernel's counters: 1 s to 1 min.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Every(pub(crate) Nanos);

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Length(every) = text.parse()?;
        if !(Nanos::from_secs(1)..=Nanos::from_secs(60)).contains(&every) {
            return Err(format!("invalid interval `{text}`: choose 1s to 1m"));
        }
        Ok(Self(every))
    }
}

/// Address of the metrics server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// No server.
    None,
    /// A TCP address. Port 0 selects a free port.
    Tcp(SocketAddr),
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
                "invalid address `{text}`: use ADDRESS:PORT or unix:PATH, for example \
                 127.0.0.1:9559 or unix:/run/ticktax.sock, or none"
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
    fn intervals_are_one_second_to_one_minute() {
        let every: Every = "2s".parse().unwrap();
        assert_eq!(every.0, Nanos::from_secs(2));
        for typed in ["500ms", "61s", "", "often"] {
            assert!(typed.parse::<Every>().is_err(), "{typed}");
        }
    }

    #[test]
    fn listen_addresses_are_parsed() {
        for (typed, canonical) in [
            ("none", "none"),
            ("127.0.0.1:9559", "127.0.0.1:9559"),
            ("localhost:1", "127.0.0.1:1"),
            ("[::1]:9559", "[::1]:9559"),
            ("unix:/run/x", "unix:/run/x"),
        ] {
            let listen: Listen = typed.parse().unwrap();
            assert_eq!(listen.to_string(), canonical);
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
