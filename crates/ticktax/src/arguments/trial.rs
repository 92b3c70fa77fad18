//! Arguments of `ticktax try`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::files::HtmlFile;
use clap::Args;
use ticktax_model::document::DocumentKind;
use ticktax_model::{CpuList, Nanos};
use ticktax_report::Format;
use ticktax_trial::run::TrialMetric;

use super::files::HTML;
use super::percent::percentage;
use super::{Length, PageArguments, ProcessId, complete, formats, one_of};

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo ticktax try vm.swappiness=60,10 -- make -j8
                                          find which of two values builds faster
  sudo ticktax try proc.timer_slack=now,1000 --metric time,cpu -- ./paced
                                          vary a setting of the command itself
  ticktax try -- ./old --vs ./new         compare two programs
  sudo ticktax try cgroup.cpu_quota=now,50000 -- ./server-test
                                          vary a setting of a temporary cgroup for the command
  sudo ticktax try kernel.numa_balancing=1,0 --pid 4121 --for 10s
                                          compare the waits and wake-ups of a running server
  sudo ticktax try cpu.governor=now,performance --fail-if 'time > +2%' -- ./bench
                                          in CI, exit with code 6 if it gets slower";

pub(super) const CODES: &str = "\
Exit codes:
  0    a verdict was printed
  1    the comparison failed, or a setting could not be restored; one line explains why
  2    invalid arguments
  6    a --fail-if condition was met
  126  COMMAND could not be executed      127  COMMAND was not found
  128+N  signal N stopped the trial; settings were restored, and the results so far were printed";

#[derive(Debug, Args)]
pub(crate) struct TrialArguments {
    /// Setting and its values, for example vm.swappiness=60,10
    ///
    /// `now` is the current value. If you give several settings, they change together: give each
    /// one value per arm, or one value for all arms. If a value contains a comma, separate the
    /// values with `;`. `ticktax knob list` lists the settings.
    #[arg(value_name = "KNOB=A,B", add = complete::assignments())]
    pub(crate) settings: Vec<String>,

    /// Watch this process instead of running a command
    ///
    /// Per-thread settings are applied to all threads of the process.
    #[arg(
        short,
        long,
        value_name = "N",
        allow_hyphen_values = true,
        conflicts_with = "command"
    )]
    pub(crate) pid: Option<ProcessId>,

    /// Watch for this long in each run [default: 5s]
    #[arg(
        long = "for",
        alias = "duration",
        value_name = "TIME",
        requires = "pid",
        allow_hyphen_values = true
    )]
    pub(crate) each: Option<Length>,

    /// Compare by these metrics [default: time]
    ///
    /// Separate several metrics by commas; they are judged together. With --pid, the default is
    /// wait,p99.
    #[arg(
        long = "metric",
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = one_of(&TrialMetric::ALL, TrialMetric::name, TrialMetric::about)
    )]
    pub(crate) metrics: Vec<TrialMetric>,

    /// Run this many blocks [default: 10]
    ///
    /// With --until-certain, the default is 50. Each block runs every arm twice: in random order,
    /// then in reverse.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) blocks: Option<u64>,

    #[command(flatten)]
    pub(crate) stop: StopArguments,

    /// First run each arm this many times without counting the results
    #[arg(long, value_name = "N", default_value = "1", hide_short_help = true,
          value_parser = clap::value_parser!(u64).range(0..=1_000))]
    pub(crate) warm_ups: u64,

    /// Run the first arm this many times before the blocks, to measure noise
    ///
    /// At least 6 runs are needed to estimate the noise.
    #[arg(long, value_name = "N", default_value = "12", hide_short_help = true,
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub(crate) noise_runs: u64,

    /// Seed for the random order [default: random]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) seed: Option<u64>,

    /// Wait this long before each run, for example 500ms [default: depends on the settings]
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        hide_short_help = true
    )]
    pub(crate) settle: Option<Nanos>,

    /// Ignore differences up to this
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = percentage)]
    pub(crate) difference: f64,

    /// Exit with code 6 if this holds, as 'p99 > +2%'
    ///
    /// The whole confidence interval must lie beyond the bound. Other examples: 'fps < -1%' or, in
    /// percentage points for shares, 'wait > +2pp'. Repeatable.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<String>,

    /// Compare the result with a prediction from `ticktax sim --format json`
    ///
    /// The file must predict the unchanged settings first, then the other arms in the same order.
    /// The model predicts only the metrics fps, lost and cpu.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) predicted: Option<PathBuf>,

    /// Run this shell command before each run, without measuring it
    ///
    /// For example, it can empty a cache. `$TICKTAX_ARM` is the letter of the arm about to run.
    #[arg(long, value_name = "COMMAND", hide_short_help = true)]
    pub(crate) before: Option<String>,

    /// Don't trace the runs of `A --vs B`
    ///
    /// As root, `try` audits each run of `A --vs B`, to show how long the program waited for CPUs,
    /// quotas, disks and locks.
    #[arg(long, hide_short_help = true)]
    pub(crate) no_audit: bool,

    /// Allow changes to dangerous settings
    #[arg(long)]
    pub(crate) yes: bool,

    /// Apply CPU settings to these CPUs only [default: all CPUs]
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    pub(crate) cpu: Option<CpuList>,

    /// Apply interrupt settings to this interrupt line
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) irq: Option<u32>,

    /// Apply disk settings to this disk, for example vda
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) disk: Option<String>,

    /// Show the output of COMMAND instead of discarding it
    #[arg(long, hide_short_help = true)]
    pub(crate) show_output: bool,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Comparison), default_value = "text")]
    pub(crate) format: Format,

    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) output: Option<PathBuf>,

    /// Record the changes in this journal
    ///
    /// [default: /var/lib/ticktax/knobs/knobs.journal as root, otherwise
    /// ~/.local/state/ticktax/knobs/knobs.journal]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) journal: Option<PathBuf>,

    /// Command to run with each arm; `A --vs B` compares two
    ///
    /// Separate up to eight commands by `--vs`. If a command needs an argument `--vs`, put the
    /// command into a script.
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "pid")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) page: PageArguments,
}

/// Options that end a trial before its last block.
#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    /// Stop as soon as every verdict is certain
    ///
    /// `try` then looks at the results after each fifth of the blocks. Each look uses a fifth of
    /// the error rate, so five looks together do not make false verdicts more likely.
    #[arg(long)]
    pub(crate) until_certain: bool,

    /// Stop before the runs take longer than this, for example 5m
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        hide_short_help = true
    )]
    pub(crate) max_time: Option<Length>,
}

/// Arguments of the hidden verb that waits for the trial's settings and then becomes the trial's
/// command.
#[derive(Debug, Args)]
pub(crate) struct StartArguments {
    /// Restore this limit of open files before the command starts
    #[arg(long)]
    pub(crate) open_files: Option<u64>,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Arguments of the hidden verb that runs the watchdog of a trial.
#[derive(Debug, Args)]
pub(crate) struct WatchdogArguments {
    pub(crate) journal: PathBuf,
}
