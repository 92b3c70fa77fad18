//! Arguments of `ticktax try`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::files::HtmlFile;
use clap::Args;
use ticktax_experiment::trial::run::TrialMetric;
use ticktax_model::document::DocumentKind;
use ticktax_model::{CpuList, Nanos};
use ticktax_report::Format;

use super::files::HTML;
use super::percent::percentage;
use super::{Length, PageArguments, ProcessId, complete, formats, one_of};

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo ticktax try vm.swappiness=60,10 -- make -j8
                                          find which of two values builds faster
  sudo ticktax try proc.timer_slack=now,1000 --metric time,cpu -- ./paced
                                          change a setting of the command itself
  sudo ticktax try cgroup.cpu_quota=now,50000 -- ./server-test
                                          change a setting of a cgroup made for the command
  sudo ticktax try kernel.numa_balancing=1,0 --pid 4121 --for 10s
                                          compare the waits and wake-ups of a running server
  sudo ticktax try cpu.governor=now,performance --fail-if 'time > +2%' -- ./bench
                                          fail in CI, with exit code 6, if it gets slower";

pub(super) const CODES: &str = "\
Exit codes:
  0    a verdict was printed
  1    the comparison failed, or a setting could not be restored; one line explains why
  2    invalid arguments
  6    a --fail-if condition is met
  126  COMMAND cannot be executed      127  COMMAND was not found
  128+N  signal N ended the trial: settings are restored, and results so far are printed";

#[derive(Debug, Args)]
pub(crate) struct TrialArguments {
    /// Set this to each value in turn, such as vm.swappiness=60,10
    ///
    /// `now` is the current value. Several settings change together: each gives one value for every
    /// variant, or a single value for all. Separate values that contain a comma with `;`.
    /// `ticktax knob list` lists the settings.
    #[arg(value_name = "KNOB=A,B", required = true, add = complete::assignments())]
    pub(crate) settings: Vec<String>,

    /// Watch this process instead of running a command
    ///
    /// Settings of a thread are applied to all its threads.
    #[arg(
        short,
        long,
        value_name = "N",
        allow_hyphen_values = true,
        conflicts_with = "command"
    )]
    pub(crate) pid: Option<ProcessId>,

    /// Watch the process this long per run [default: 5s]
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
    /// Several metrics, separated by commas, are judged together. With --pid, the default is
    /// wait,p99.
    #[arg(
        long = "metric",
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = one_of(&TrialMetric::ALL, TrialMetric::name, TrialMetric::about)
    )]
    pub(crate) metrics: Vec<TrialMetric>,

    /// Run this many blocks
    ///
    /// Each block runs every variant twice: in a random order, then reversed.
    #[arg(long, value_name = "N", default_value = "10",
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) blocks: u64,

    /// Run each variant this often first, without counting it
    #[arg(long, value_name = "N", default_value = "1", hide_short_help = true,
          value_parser = clap::value_parser!(u64).range(0..=1_000))]
    pub(crate) warm_ups: u64,

    /// Run the first variant this often before the blocks, to measure the machine's noise
    ///
    /// The noise is known from 6 runs on.
    #[arg(long, value_name = "N", default_value = "12", hide_short_help = true,
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub(crate) noise_runs: u64,

    /// Set the seed of the random order [default: random]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) seed: Option<u64>,

    /// Wait this long before each run, such as 500ms [default: as the settings need]
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        hide_short_help = true
    )]
    pub(crate) settle: Option<Nanos>,

    /// Treat differences up to this as none
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = percentage)]
    pub(crate) difference: f64,

    /// Exit with 6 if this is certain, such as 'p99 > +2%'
    ///
    /// Other conditions: 'fps < -1%', and for shares also 'wait > +2pp'. Repeatable.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<String>,

    /// Compare the result with a prediction from `ticktax sim --format json`
    ///
    /// The file must have one setting for each variant but the first, in order. The model predicts
    /// the metrics fps, lost and cpu.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) predicted: Option<PathBuf>,

    /// Allow changes of dangerous settings
    #[arg(long)]
    pub(crate) yes: bool,

    /// Change settings of CPUs on these only [default: on each]
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    pub(crate) cpu: Option<CpuList>,

    /// Change settings of interrupts on this line
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) irq: Option<u32>,

    /// Change settings of disks on this one, such as vda
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) disk: Option<String>,

    /// Show the command's output instead of dropping it; the command has no input
    #[arg(long, hide_short_help = true)]
    pub(crate) show_output: bool,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Print in this format
    #[arg(long, value_parser = formats(DocumentKind::Trial), default_value = "text")]
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

    /// Command to run under each variant
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "pid")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) page: PageArguments,
}

/// Arguments of the process that becomes the trial's command.
#[derive(Debug, Args)]
pub(crate) struct StartArguments {
    /// Restore this limit of open files before the command starts
    #[arg(long)]
    pub(crate) open_files: Option<u64>,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Arguments of the watchdog.
#[derive(Debug, Args)]
pub(crate) struct WatchdogArguments {
    pub(crate) journal: PathBuf,
}
