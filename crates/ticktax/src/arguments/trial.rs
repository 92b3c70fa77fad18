//! What was typed for `ticktax try`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::files::HtmlFile;
use clap::Args;
use ticktax_experiment::trial::run::TrialMetric;
use ticktax_model::document::DocumentKind;
use ticktax_model::{CpuList, Nanos};
use ticktax_report::Format;

use super::percent::percentage;
use super::{Length, PageArguments, ProcessId, complete, formats, one_of};

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo ticktax try vm.swappiness=60,10 -- make -j8
                                          which of two values builds sooner
  sudo ticktax try proc.timer_slack=now,1000 --metric time,cpu -- ./paced
                                          of the command itself, set before it begins
  sudo ticktax try cgroup.cpu_quota=now,50000 -- ./server-test
                                          of a cgroup that is made for the command
  sudo ticktax try kernel.numa_balancing=1,0 --pid 4121 --for 10s
                                          a server that runs: its waits, how late it ran
  sudo ticktax try cpu.governor=now,performance --fail-if 'time > +2%' -- ./bench
                                          in CI: exit code 6 where it is so";

pub(super) const CODES: &str = "\
Exit codes:
  0    the verdict is printed, whatever it is
  1    nothing could be compared, or not every setting be put back; one line says why
  2    the arguments make no sense
  6    what --fail-if forbids is so
  126  COMMAND may not be run          127  COMMAND was not found
  128+N  ended by signal N: settings are put back, and what was measured so far is printed";

#[derive(Debug, Args)]
pub(crate) struct TrialArguments {
    /// A setting and its value in each arm, such as vm.swappiness=60,10
    ///
    /// `now` is what it is. Several settings change together: their lists are of one length, or one value for
    /// all arms. Values that hold a comma are separated by `;`. `ticktax knob list` lists the settings.
    #[arg(value_name = "KNOB=A,B", required = true, add = complete::assignments())]
    pub(crate) settings: Vec<String>,

    /// Watch this process in place of running a command; settings of a thread are set of all its threads
    #[arg(
        short,
        long,
        value_name = "N",
        allow_hyphen_values = true,
        conflicts_with = "command"
    )]
    pub(crate) pid: Option<ProcessId>,

    /// How long to watch the process for each run [default: 5s]
    #[arg(
        long = "for",
        value_name = "TIME",
        requires = "pid",
        allow_hyphen_values = true
    )]
    pub(crate) each: Option<Length>,

    /// What the arms are compared by; several, separated by commas, are judged together [default: time; of a
    /// process wait,p99]
    #[arg(
        long = "metric",
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = one_of(&TrialMetric::ALL, TrialMetric::name, TrialMetric::about)
    )]
    pub(crate) metrics: Vec<TrialMetric>,

    /// Blocks; each has every arm twice, in an order that is drawn and its mirror image
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) blocks: u64,

    /// Runs of each arm before any that counts
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(0..=1_000))]
    pub(crate) warm_ups: u64,

    /// Runs of the first arm before the blocks, by which the machine's own noise is known; 6 at least tell it
    #[arg(long, value_name = "N", default_value = "12", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub(crate) noise_runs: u64,

    /// Of what the order of the arms is drawn [default: another one each time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// The time before each run, for settings to take effect, such as 500ms [default: what the settings ask for]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) settle: Option<Nanos>,

    /// The largest difference that counts as none, such as 2%
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = percentage)]
    pub(crate) difference: f64,

    /// Fail, with exit code 6, where this is so beyond doubt: 'p99 > +2%', 'fps < -1%', of shares also 'wait > +2pt'
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<String>,

    /// Set what a model had predicted beside what is found: a file that `ticktax sim --format json` wrote, with a
    /// setting for each arm besides A, in their order
    ///
    /// Of the metrics a model knows fps, lost and cpu.
    #[arg(long, value_name = "FILE")]
    pub(crate) predicted: Option<PathBuf>,

    /// Agree to change settings that are dangerous
    #[arg(long)]
    pub(crate) yes: bool,

    /// Set settings of CPUs on these alone [default: on each]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpu: Option<CpuList>,

    /// The interrupt line that settings of one are set of
    #[arg(long, value_name = "N")]
    pub(crate) irq: Option<u32>,

    /// The disk that settings of one are set of, such as vda
    #[arg(long, value_name = "NAME")]
    pub(crate) disk: Option<String>,

    /// Let the command write where ticktax does; else what it writes is dropped. It has no input
    #[arg(long)]
    pub(crate) show_output: bool,

    #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// How to print the verdict
    #[arg(long, value_parser = formats(DocumentKind::Trial), default_value = "text")]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) page: PageArguments,

    /// Write it to a file in place of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// The journal of what is changed [default: /var/lib/ticktax/knobs/knobs.journal of root, else
    /// ~/.local/state/ticktax/knobs/knobs.journal]
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,

    /// Run this in each arm
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "pid")]
    pub(crate) command: Vec<OsString>,
}

/// What becomes the command once everything is set.
#[derive(Debug, Args)]
pub(crate) struct StartArguments {
    /// The command's limit of open files.
    #[arg(long)]
    pub(crate) open_files: Option<u64>,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// What puts back what a killed run left.
#[derive(Debug, Args)]
pub(crate) struct WatchdogArguments {
    pub(crate) journal: PathBuf,
}
