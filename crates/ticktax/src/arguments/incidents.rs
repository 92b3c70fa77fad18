//! What was typed for `ticktax record`, `ticktax incidents` and `ticktax mark`.

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

use super::{Length, formats, one_of, seconds_or_units};
use crate::files::HtmlFile;

pub(super) const RECORD_EXAMPLES: &str = "\
Examples:
  sudo ticktax record --trigger 'wait>5ms'
                                          any thread that waits for a CPU for longer, until Ctrl-C
  sudo ticktax record --trigger 'wait:comm=gamesrv>2ms' --trigger 'stretch>5ms' --journal
                                          a program's waits, the kernel's long stretches; also logged
  sudo ticktax record --trigger 'late:pid=4121>1ms' --for 8h --max-bytes 500M
                                          a process' late wake-ups, for a working day
  sudo ticktax record --trigger 'gap>2ms' --trigger 'late:comm=gamesrv>p99.99'
                                          what no program did; the longest one in 10,000 of its late wake-ups
  sudo ticktax record --trigger 'frame:comm=gamesrv'
                                          each frame that a paced program loses, whatever made it lose that

A trigger is KIND[:WHOSE]>TIME, or a program's frames:
  wait>5ms       a thread was able to run and waited for a CPU
  late>2ms       the same from its wake-up on only
  blocked>50ms   a thread was off its CPU in the kernel, for a disk or a lock
  throttled>50ms the CPU quota of its cgroup was used up
  stretch>5ms    a thread of the kernel, an interrupt or a softirq had a CPU without a break
  gap>5ms        a probe did not have its CPU: the kernel, the hypervisor or the firmware had it
  frame:pid=4121 a paced program lost a frame: the next one began a whole period late;
                 with frame:pid=4121>5ms, each that began so late
  signal         nothing else: SIGUSR1 and `ticktax mark` always keep the moment
WHOSE is pid=N, comm=NAME or cgroup=FOLDER, of a gap cpu=LIST, of frames pid=N or comm=NAME.
TIME may be a percentile, such as wait:comm=gamesrv>p99.99: that of all these waits within the last hour. It is set
each minute, and nothing triggers before it is known: p99.99 takes 100,000 of them.
A gap takes a probe, which has its cost: see --probe. When frames are due is learnt from the program's wake-ups, as
`ticktax pace --pid` does: it takes 5 s, and no frame triggers before.";

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax incidents                       what was caught, the rarest and costliest first
  ticktax incidents --since 1d            the same of the last day
  ticktax incidents show 41               who did not run, what ran instead, and what triggered it
  ticktax incidents show 41 --report      and the books of the seconds around it";

#[derive(Debug, Args)]
pub(crate) struct IncidentsArguments {
    #[command(subcommand)]
    pub(crate) question: Option<IncidentQuestion>,

    #[command(flatten)]
    pub(crate) folder: FolderArguments,

    /// Leave out what was before: a time ago such as 2h or 3d, or a date such as 2026-11-22 or
    /// 2026-11-22T02:10 in UTC
    #[arg(long, value_name = "TIME", global = true)]
    pub(crate) since: Option<Since>,

    #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT, global = true)]
    pub(crate) html: Option<PathBuf>,

    /// How to print it
    #[arg(long, value_parser = formats(DocumentKind::Incidents), default_value = "text", global = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IncidentQuestion {
    /// List all incidents, those that are alike as one (the default)
    List,
    /// Explain one incident, and say where its recording lies
    Show {
        /// Its number, as the list has it
        #[arg(value_name = "N")]
        number: u64,

        /// Also print the books of the seconds around it, as `ticktax report` does
        #[arg(long)]
        report: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RecordArguments {
    /// What to keep the seconds around of, such as wait>5ms; may be given several times
    #[arg(long = "trigger", value_name = "TRIGGER", required = true)]
    pub(crate) triggers: Vec<TriggerSpec>,

    /// Folder to keep incidents in [default: /var/lib/ticktax/incidents as root, otherwise
    /// ~/.local/state/ticktax/incidents]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,

    /// How long to record, such as 8h [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) length: Option<Length>,

    /// Which CPUs, such as 0-3,8 [default: all]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuList>,

    /// What looks for gaps, where a trigger is about them
    #[arg(long, default_value = "sleep", value_parser = one_of(&GapProbe::ALL, GapProbe::name, GapProbe::about))]
    pub(crate) probe: GapProbe,

    /// Also write each incident to the journal with fields of its own, or to syslog where there is no journal
    #[arg(long)]
    pub(crate) journal: bool,

    #[command(flatten)]
    pub(crate) ring: RingArguments,

    #[command(flatten)]
    pub(crate) budget: BudgetArguments,
}

/// How much of the past is at hand.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct RingArguments {
    /// Memory for the past, all CPUs together, in MiB; 64 reach back for 4 s at 500,000 events a second
    /// [default: 16 to 64, by the rate of events]
    #[arg(long = "ring-mib", value_name = "N", requires = "triggers", value_parser = clap::value_parser!(u64).range(1..=256))]
    mib: Option<u64>,
}

impl RingArguments {
    /// The plan with such rings.
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

/// What a folder of incidents may hold.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "The budget")]
pub(crate) struct BudgetArguments {
    /// Recordings that are kept; then the oldest go
    #[arg(long = "max-count", value_name = "N", default_value = "1000", requires = "triggers", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,

    /// Their size, such as 500M or 2G; then the oldest go
    #[arg(
        long = "max-bytes",
        value_name = "BYTES",
        default_value = "1G",
        requires = "triggers"
    )]
    pub(crate) bytes: Bytes,

    /// Recordings that are written in any hour; further incidents are told without one
    #[arg(
        long = "max-per-hour",
        value_name = "N",
        default_value = "60",
        requires = "triggers"
    )]
    pub(crate) per_hour: u64,
}

impl BudgetArguments {
    /// What it comes to.
    pub(crate) fn budget(self) -> Budget {
        Budget {
            count: self.count,
            bytes: self.bytes.0,
            per_hour: self.per_hour,
        }
    }
}

/// A number of bytes as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|it: char| !it.is_ascii_digit());
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
        bytes
            .map(Self)
            .ok_or_else(|| format!("invalid size `{text}`: write 500M or 2G"))
    }
}

/// The folder of incidents to read, or to send a mark to.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FolderArguments {
    /// Folder of the incidents [default: that of `ticktax record` or, if only that of `ticktax
    /// agent` exists, the agent's: /var/lib/ticktax/incidents or /var/lib/ticktax-agent/incidents
    /// as root, otherwise the same below ~/.local/state]
    #[arg(long, value_name = "FOLDER", global = true)]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct MarkArguments {
    /// What is to stand with it
    #[arg(value_name = "WORDS")]
    pub(crate) words: Vec<String>,

    #[command(flatten)]
    pub(crate) folder: FolderArguments,
}

/// A point in time as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// So long ago.
    Ago(Nanos),
    /// At this time, ms since 1970.
    At(i64),
}

impl Since {
    /// ms since 1970, where it is `now` by the same.
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
            format!("invalid time `{text}`: write 2h, 3d, 2026-11-22 or 2026-11-22T02:10 (UTC)")
        })
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Bytes, Since};

    #[test]
    fn sizes_are_read_as_people_write_them() {
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
    fn times_are_read_as_dates_or_as_how_long_ago() {
        let read = |text: &str| text.parse::<Since>().ok();
        assert_eq!(read("2h"), Some(Since::Ago(Nanos::from_secs(7_200))));
        assert_eq!(read("1970-01-02"), Some(Since::At(86_400_000)));
        assert_eq!(read("1970-01-01T00:01"), Some(Since::At(60_000)));
        for text in ["", "yesterday", "2026-13-01", "-2h", "1970"] {
            let error = text.parse::<Since>().err();
            // A plain number is of seconds.
            assert_eq!(error.is_none(), text == "1970", "{text}");
        }
        assert_eq!(Since::Ago(Nanos::from_secs(1)).unix_ms(5_000), 4_000);
    }
}
