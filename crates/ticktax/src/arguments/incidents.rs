//! Arguments of `ticktax record`, `ticktax incidents` and `ticktax mark`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use ticktax_model::document::DocumentKind;
use ticktax_model::incident::TriggerSpec;
use ticktax_model::utc::Utc;
use ticktax_model::{CpuList, Nanos};
use ticktax_observe::{GapProbe, RecorderPlan};
use ticktax_report::Format;
use ticktax_store::incidents::Budget;

use super::files::HTML;
use super::{Length, formats, one_of, seconds_or_units};
use crate::files::HtmlFile;

pub(super) const TRIGGER_KINDS: &str = "\
Trigger kinds: wait, late, blocked, throttled, stretch, gap, frame, signal; --help explains them.
Example: sudo ticktax record --trigger 'wait>5ms' --trigger 'late:pid=4121>1ms'";

pub(super) const RECORD_EXAMPLES: &str = "\
Examples:
  sudo ticktax record --trigger 'wait>5ms'
                                          save run-queue waits over 5 ms, of any thread
  sudo ticktax record --trigger 'wait:comm=gamesrv>2ms' --trigger 'stretch>5ms' --log
                                          save one program's waits and long kernel work; log them
  sudo ticktax record --trigger 'late:pid=4121>1ms' --for 8h --max-bytes 500M
                                          save a process's late wake-ups for 8 hours
  sudo ticktax record --trigger 'gap>2ms' --trigger 'late:comm=gamesrv>p99.99'
                                          save gaps, and the slowest of every 10,000 wake-ups
  sudo ticktax record --trigger 'frame:comm=gamesrv'
                                          save each frame that a paced program loses

A trigger is KIND[:SUBJECT]>TIME:
  wait>5ms       a runnable thread waited for a CPU
  late>2ms       the same, but only waits that follow a wake-up
  blocked>50ms   a thread was blocked in the kernel, for example on a disk or lock
  throttled>50ms a thread's cgroup had used up its CPU quota
  stretch>5ms    a kernel thread, interrupt or softirq ran without interruption
  gap>5ms        the kernel, hypervisor or firmware interrupted a probe
  frame:pid=4121 a paced program lost a frame: the next one started a full period late;
                 with frame:pid=4121>5ms, a frame started over 5 ms late
  signal         no delay: save incidents only on SIGUSR1 or `ticktax mark`, which always work
SUBJECT is pid=N, comm=NAME or cgroup=PATH; for gap, cpu=LIST; for frame, pid=N or comm=NAME.
TIME can be a percentile of the delays in the last hour, for example wait:comm=gamesrv>p99.99.
The percentile is updated every minute, and triggers only after enough delays: p99.99 needs
100,000. A gap trigger runs a probe, which has a cost: see --probe. A frame trigger learns the
due times from the program's wake-ups, like `ticktax pace --pid`, and cannot trigger in the
first 5 s.";

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax incidents                       list all delays, rarest and costliest first
  ticktax incidents --since 1d            the same for the last day
  ticktax incidents show 41               explain one: what was delayed, and what ran meanwhile
  ticktax incidents show 41 --report      also print the CPU time in the seconds around it";

#[derive(Debug, Args)]
pub(crate) struct IncidentsArguments {
    #[command(subcommand)]
    pub(crate) question: Option<IncidentQuestion>,

    #[command(flatten)]
    pub(crate) folder: FolderArguments,

    /// Skip incidents before this time: an age (2h, 3d) or a UTC date (2026-11-22T02:10)
    #[arg(long, value_name = "TIME", global = true)]
    pub(crate) since: Option<Since>,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT, global = true)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Incidents), default_value = "text",
          global = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IncidentQuestion {
    /// List all incidents, with similar ones merged (default)
    List,
    /// Explain one incident, and print the path of its recording
    Show {
        /// Number of the incident in the list
        #[arg(value_name = "N")]
        number: u64,

        /// Also print the CPU time in the seconds around it, like `ticktax report`
        #[arg(long)]
        report: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RecordArguments {
    /// Save the seconds around each delay, for example wait>5ms; repeatable
    #[arg(long = "trigger", value_name = "TRIGGER", required = true)]
    pub(crate) triggers: Vec<TriggerSpec>,

    /// Store incidents in this directory
    ///
    /// [default: /var/lib/ticktax/incidents as root, otherwise ~/.local/state/ticktax/incidents]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Record for this long, for example 8h [default: until Ctrl-C]
    #[arg(
        long = "for",
        alias = "duration",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    pub(crate) length: Option<Length>,

    /// Watch only these CPUs, for example 0-3,8 [default: all online]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuList>,

    /// Use this kind of probe to detect gaps for `gap` triggers
    #[arg(long, default_value = "sleep",
          value_parser = one_of(&GapProbe::ALL, GapProbe::name, GapProbe::about))]
    pub(crate) probe: GapProbe,

    /// Log each incident to the systemd journal, or to syslog on systems without it
    #[arg(long)]
    pub(crate) log: bool,

    #[command(flatten)]
    pub(crate) ring: RingArguments,

    #[command(flatten)]
    pub(crate) budget: BudgetArguments,
}

/// Size of the ring buffer that holds the most recent events.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct RingArguments {
    /// Buffer recent events in this many MiB of memory, in total for all CPUs
    ///
    /// 64 MiB holds 4 s at 500,000 events per second. [default: 16 to 64, depending on the event
    /// rate]
    #[arg(long = "ring-mib", value_name = "N", requires = "triggers", hide_short_help = true,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    mib: Option<u64>,
}

impl RingArguments {
    pub(crate) fn applied_to(self, plan: RecorderPlan) -> RecorderPlan {
        let Some(mib) = self.mib else {
            return plan;
        };
        RecorderPlan {
            ring_bytes: mib << 20,
            ring_first: Some(mib << 20),
            ..plan
        }
    }
}

/// Limits on the contents of the incidents directory.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Disk budget")]
pub(crate) struct BudgetArguments {
    /// Keep at most this many recordings; delete the oldest
    #[arg(long = "max-count", value_name = "N", default_value = "1000", requires = "triggers",
          hide_short_help = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,

    /// Keep at most this much data, for example 500M; delete the oldest recordings
    #[arg(
        long = "max-bytes",
        value_name = "BYTES",
        default_value = "1G",
        requires = "triggers",
        hide_short_help = true
    )]
    pub(crate) bytes: Bytes,

    /// Save at most this many recordings per hour; list further incidents without a recording
    #[arg(
        long = "max-per-hour",
        value_name = "N",
        default_value = "60",
        requires = "triggers",
        hide_short_help = true
    )]
    pub(crate) per_hour: u64,
}

impl BudgetArguments {
    pub(crate) fn budget(self) -> Budget {
        Budget {
            count: self.count,
            bytes: self.bytes.0,
            per_hour: self.per_hour,
        }
    }
}

/// A size in bytes, as the user typed it, for example `500M` or `2GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|letter: char| !letter.is_ascii_digit());
        let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
        let shift = match unit.trim().trim_end_matches("iB") {
            "" | "B" => Some(0),
            "k" | "K" => Some(10),
            "M" => Some(20),
            "G" => Some(30),
            "T" => Some(40),
            _ => None,
        };
        let bytes = shift.and_then(|shift| number.parse::<u64>().ok()?.checked_mul(1 << shift));
        let bytes = bytes.filter(|&bytes| bytes > 0);
        bytes.map(Self).ok_or_else(|| {
            format!("invalid size `{text}`: use a whole number with a unit, for example 500M or 2G")
        })
    }
}

/// The directory that contains the incidents.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FolderArguments {
    /// Use the incidents in this directory
    ///
    /// [default: the directory that `ticktax record` uses, or the agent's if only that exists. As
    /// root: /var/lib/ticktax/incidents or /var/lib/ticktax-agent/incidents. Otherwise:
    /// ~/.local/state/ticktax/incidents or ~/.local/state/ticktax-agent/incidents]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct MarkArguments {
    /// Note to store with the incident
    #[arg(value_name = "WORDS")]
    pub(crate) words: Vec<String>,

    #[command(flatten)]
    pub(crate) folder: FolderArguments,
}

/// A point in time as the user typed it: absolute, or as an age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    Ago(Nanos),
    /// Milliseconds since 1970.
    At(i64),
}

impl Since {
    /// Returns the point in time in milliseconds since 1970. `now` is the current time in the same
    /// unit.
    pub(crate) fn unix_ms(self, now: i64) -> i64 {
        match self {
            Self::Ago(time) => now.saturating_sub(time.0 / 1_000_000),
            Self::At(at) => at,
        }
    }
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(date) = text.parse::<Utc>() {
            return Ok(Self::At(date.unix_ms()));
        }
        seconds_or_units(text).map(Self::Ago).map_err(|_| {
            format!(
                "invalid time `{text}`: use an age or a UTC date, for example 2h, 3d, \
                 2026-11-22 or \
                 2026-11-22T02:10"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Bytes, Since};

    #[test]
    fn sizes_are_parsed_with_units() {
        for (text, bytes) in [
            ("1", 1),
            ("500M", 500 << 20),
            ("2G", 2 << 30),
            ("2GiB", 2 << 30),
            ("64 k", 64 << 10),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "0", "M", "-1", "1.5G", "5 parsecs", "99999999999T"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_dates_or_ages() {
        let parsed = |text: &str| text.parse::<Since>().ok();
        assert_eq!(parsed("2h"), Some(Since::Ago(Nanos::from_secs(7_200))));
        assert_eq!(parsed("1970-01-02"), Some(Since::At(86_400_000)));
        assert_eq!(parsed("1970-01-01T00:01"), Some(Since::At(60_000)));
        for text in ["", "yesterday", "2026-13-01", "-2h", "1970"] {
            let error = text.parse::<Since>().err();
            // `1970` is valid: a plain number is an age in seconds.
            assert_eq!(error.is_none(), text == "1970", "{text}");
        }
        assert_eq!(Since::Ago(Nanos::from_secs(1)).unix_ms(5_000), 4_000);
    }
}
