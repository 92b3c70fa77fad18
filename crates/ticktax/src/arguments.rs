//! Command-line arguments, as the user typed them.
//!
//! Parsing is the first of two stages. In the second, each verb turns these types into a plan, and
//! rejects contradictory arguments before anything starts.

mod agent;
mod case;
mod changes;
mod clock;
mod complete;
mod document;
mod files;
mod guest;
mod incidents;
mod knob;
mod lab;
mod link;
mod mem;
mod net;
mod overview;
mod pace;
mod packets;
mod part;
mod percent;
mod profile;
mod sim;
mod storage;
mod subject;
mod sweep;
mod trial;
mod values;
mod vary;
mod view;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use crate::files::HtmlFile;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use ticktax_model::document::DocumentKind;
use ticktax_model::policy::SchedulingPolicy;
use ticktax_model::time::DurationError;
use ticktax_model::{CpuList, Nanos};
use ticktax_observe::{Keep, ProbeChoice};
use ticktax_report::{Format, Section};

pub(crate) use agent::{AgentArguments, Listen};
pub(crate) use case::CaseQuestion;
pub(crate) use changes::ChangesArguments;
pub(crate) use clock::ClockArguments;
use document::{documents, formats};
pub(crate) use files::FileArguments;
use files::HTML;
pub(crate) use guest::GuestVerb;
pub(crate) use incidents::{
    FolderArguments, IncidentQuestion, IncidentsArguments, MarkArguments, RecordArguments,
};
pub(crate) use knob::{KnobQuestion, TargetArguments, UndoArguments};
pub(crate) use lab::{
    BuildArguments, CompareArguments, GuestArguments, LabTask, ReplayArguments, RunArguments,
};
pub(crate) use mem::{LatencyArguments, MemArguments, MemTask, ObjectsArguments, WalkArguments};
pub(crate) use net::{ETHERNET, NetTask, NetWatchArguments, PairArguments, cpu as net_cpu};
pub(crate) use pace::PaceArguments;
pub(crate) use part::PartArguments;
use profile::{ProfileArguments, WaitProfileArguments};
pub(crate) use sim::SimArguments;
pub(crate) use storage::{
    FsyncArguments, MountsArguments, PressureArguments, StorageArguments, StorageTask,
};
pub(crate) use subject::{GroupArguments, SubjectArguments};
pub(crate) use sweep::SweepArguments;
pub(crate) use trial::{StartArguments, TrialArguments, WatchdogArguments};
pub(crate) use values::for_manual;
pub(crate) use vary::GuestArm;
pub(crate) use view::{PageArguments, PrintArguments, StatementArguments, ViewArguments};
use view::{only_sections, sections};

/// Exit codes, as listed in the long help and the manual page.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    the accounts balance; with `-- COMMAND`, the exit code of COMMAND
  1    the audit failed, or its recording could not be saved; one line explains why
  2    invalid arguments
  3    the accounts do not balance; the statement shows the difference and the CPU
  4    some points of a sweep failed; the results list them with the reason (sweep)
  5    the model does not reproduce the measurement; use --force to predict anyway (sim)
  6    a --fail-if condition was met (try)
  126  COMMAND could not be executed      127  COMMAND was not found
  128+N  signal N killed COMMAND, or stopped the audit and left COMMAND running
  130  a second Ctrl-C aborted the run";

/// Hidden verb that waits until a trial's settings are in place, and then becomes the command under
/// test.
pub(crate) const TRY_START: &str = "try-start";
/// Hidden verb that restores the settings left changed by a killed trial.
pub(crate) const TRY_WATCHDOG: &str = "try-watchdog";

const EXAMPLES: &str = "\
Examples:
  ticktax audit                           audit all CPUs for 20 seconds
  sudo ticktax audit --for 1m --cpus 2-3  audit two CPUs for a minute, naming every source
  ticktax audit -- make -j8               audit a command for as long as it runs
  sudo ticktax audit -p 4121              show why process 4121 did not run when it was ready
  sudo ticktax audit --comm gamesrv       the same for all processes named gamesrv
  sudo ticktax audit --net                show what delays packets between interrupt and reader
  ticktax audit --save lag.parquet        also save a recording
  ticktax report lag.parquet              print the same statement again, from the recording
  ticktax beats lag.parquet               list periodic activity in it, with period and cause

The first screen shows which programs used CPU time, how much and how often, and what to do.
--section time,repeats (or --full) prints the details; --explain defines the terms.";

/// Audit CPU time on Linux
///
/// ticktax puts every nanosecond of every CPU into exactly one account: your programs, the
/// kernel's timer ticks, interrupts, softirqs and threads, the hypervisor, or idle time. The
/// accounts balance, and ticktax reports what it could not see.
#[derive(Debug, Parser)]
#[command(
    name = "ticktax",
    version,
    help_template = overview::template(),
    subcommand_value_name = "VERB",
    after_long_help = overview::details(),
    mut_subcommands(values::listed_in_long_help),
    max_term_width = 100,
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Arguments {
    /// Returns the command for shell completion, with completion of paths added.
    pub(crate) fn completable() -> clap::Command {
        complete::with_paths(Self::command())
    }
}

/// All verbs. Their order here is the order of the manual; `ticktax help` lists them by group, from
/// [`overview::GROUPS`].
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Print where CPU time went, or why a program did not run
    #[command(
        after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
        mut_arg("sections", |arg| arg.value_parser(sections(&[DocumentKind::Statement]))),
    )]
    Audit(AuditArguments),
    /// Export metrics to Prometheus and facts to Parquet files
    ///
    /// The agent watches this machine until you stop it.
    #[command(after_long_help = agent::EXAMPLES)]
    Agent(AgentArguments),
    /// Measure CPU cost per byte and per packet, and losses
    #[command(after_long_help = net::EXAMPLES)]
    Net {
        #[command(subcommand)]
        task: NetTask,
    },
    /// Show what disciplines and changes the system clock
    #[command(after_long_help = clock::EXAMPLES)]
    Clock(ClockArguments),
    /// Measure memory latency, or predict a walk over objects
    #[command(after_long_help = mem::EXAMPLES)]
    Mem(MemArguments),
    /// Show file systems, and whose writes make others wait
    #[command(after_long_help = storage::EXAMPLES)]
    Storage(StorageArguments),
    /// Measure how well a paced loop or server holds its rate
    ///
    /// Reports the frame rate and the number of dropped and late frames. With --udp, measures
    /// datagrams instead.
    #[command(
        after_long_help = pace::EXAMPLES,
        mut_arg("sections", |arg| arg.value_parser(sections(&[DocumentKind::Pace]))),
    )]
    Pace(PaceArguments),
    /// Print a report on a recording, or on one program in it
    #[command(mut_arg("sections", |arg| {
        arg.value_parser(sections(&complete::REPORTED)).add(complete::sections_of_recording())
    }))]
    Report(ReportArguments),
    /// List periodic activity in a recording, with its cause
    #[command(mut_arg("sections", |arg| arg.value_parser(sections(&[DocumentKind::Beats]))))]
    Beats(BeatsArguments),
    /// Compare two recordings, statements or lists of numbers
    #[command(
        after_long_help = changes::EXAMPLES,
        mut_arg("sections", |arg| arg.value_parser(sections(&[DocumentKind::Comparison]))),
    )]
    Compare(ChangesArguments),
    /// Save the seconds around each rare delay, until stopped
    #[command(
        after_help = incidents::TRIGGER_KINDS,
        after_long_help = incidents::RECORD_EXAMPLES,
    )]
    Record(RecordArguments),
    /// List and explain the delays that `record` saved
    #[command(after_long_help = incidents::EXAMPLES)]
    Incidents(IncidentsArguments),
    /// Ask a running recorder to save the last few seconds
    Mark(MarkArguments),
    /// Predict the effect of other settings on a recorded load
    #[command(after_long_help = sim::EXAMPLES)]
    Sim(SimArguments),
    /// Compare the model with published investigations
    Case {
        #[command(subcommand)]
        question: CaseQuestion,
    },
    /// Simulate a scenario at every combination of settings
    #[command(after_long_help = sweep::examples())]
    Sweep(SweepArguments),
    /// List this machine's settings, or explain and read one
    #[command(after_long_help = knob::EXAMPLES)]
    Knob {
        #[command(subcommand)]
        question: KnobQuestion,
    },
    /// Restore settings that a killed `try` left changed
    Undo(UndoArguments),
    /// A/B-test a setting, or two commands, in interleaved runs
    ///
    /// `try` alternates between the arms, judges the difference, and restores all settings.
    #[command(
        after_long_help = format!("{}\n\n{}", trial::EXAMPLES, trial::CODES),
        mut_arg("sections", |arg| arg.value_parser(only_sections(&[Section::Legend]))),
    )]
    Try(TrialArguments),
    /// Become the command of a trial once its settings are in place
    #[command(hide = true, name = TRY_START)]
    TryStart(StartArguments),
    /// Restore the settings of a killed trial
    #[command(hide = true, name = TRY_WATCHDOG)]
    TryWatchdog(WatchdogArguments),
    /// Build, boot, measure and compare kernels in QEMU
    #[command(after_long_help = lab::EXAMPLES)]
    Lab {
        #[command(subcommand)]
        task: LabTask,
    },
    /// Run as PID 1 of a lab guest
    #[command(hide = true, name = ticktax_lab::guest::WORD)]
    LabGuest,
    /// Run the programs of a case in a guest
    #[command(hide = true, name = ticktax_lab::guest::REPLAY)]
    LabReplay(ReplayArguments),
    /// Print the JSON Schema of a document
    Schema {
        /// Document whose schema to print
        #[arg(value_name = "DOCUMENT", value_parser = documents(), default_value = "statement")]
        of: DocumentKind,
    },
    /// Print a manual page, or write all pages to a directory
    ///
    /// Pages are in roff format. To read one, run `ticktax man audit | man -l -`.
    Man {
        /// Verb to document, one or two words (for example `case run`) [default: ticktax itself]
        #[arg(value_name = "VERB", conflicts_with = "folder")]
        verb: Vec<String>,

        /// Write all pages to this directory: ticktax.1, ticktax-audit.1 and so on
        #[arg(long, value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// Print a completion script for a shell
    ///
    /// The script completes verbs, options, cases, sections, recordings and scenarios. For bash:
    /// `source <(ticktax completions bash)`
    Completions {
        /// Shell to print the script for
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    /// Stop after this long, for example 1h30m [default: 20s, or when COMMAND exits]
    ///
    /// A number without a unit is in seconds.
    #[arg(
        long = "for",
        alias = "duration",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    pub(crate) length: Option<Length>,

    /// Audit only these CPUs, for example 0-3,8 [default: all online]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuList>,

    /// Measure noise with a probe; it disturbs other programs [default: none]
    ///
    /// A probe shows what the tracer cannot see: the hypervisor, firmware, and kernel entry and
    /// exit. It disturbs other programs, so no probe runs by default.
    ///
    /// `spin` runs a loop on each CPU at the lowest priority and records every interruption. CPUs
    /// never go idle while it runs. If the kernel is not preemptible, other programs wait for
    /// `spin` until the next tick. If the kernel shares CPU time between sessions (autogroup),
    /// `spin` takes up to half of a busy CPU. `sleep` wakes up every millisecond and records how
    /// late it wakes up. `soak` measures the unused CPU time, to check the kernel's own accounting.
    #[arg(long, hide_short_help = true,
          value_parser = one_of(&ProbeChoice::ALL, ProbeChoice::name, ProbeChoice::about))]
    pub(crate) probe: Option<ProbeChoice>,

    /// Set the probe's scheduling policy: idle, other, fifo:1 to fifo:99 or rr:1 to rr:99
    ///
    /// With `fifo`, the spin probe blocks all normal programs for the whole audit. Use `fifo` only
    /// on CPUs reserved for the probe. [default: idle for spin, other for sleep]
    #[arg(long, value_name = "POLICY", hide_short_help = true)]
    pub(crate) probe_policy: Option<SchedulingPolicy>,

    /// Print where packets were delayed on the way to their readers, like `--section net`
    #[arg(long, hide_short_help = true)]
    pub(crate) net: bool,

    /// Record individual spans, or per-second sums by source
    ///
    /// [default: spans for recordings of up to 10 minutes, sums for longer ones]
    #[arg(long, hide_short_help = true, value_parser = one_of(&Keep::ALL, Keep::name, Keep::about))]
    pub(crate) keep: Option<Keep>,

    #[command(flatten)]
    pub(crate) profile: ProfileArguments,

    /// Report on this process and the children that it starts
    ///
    /// The audit stops when the process exits. Several PIDs, separated by commas, are reported as
    /// one program.
    #[arg(
        short,
        long,
        value_name = "N",
        value_delimiter = ',',
        allow_hyphen_values = true,
        conflicts_with = "command"
    )]
    pub(crate) pid: Vec<ProcessId>,

    /// Report on all processes with this name and their children
    ///
    /// A process that starts during the audit is included only if it is a child of one of them.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["command", "pid"])]
    pub(crate) comm: Option<String>,

    /// Report on this cgroup: a directory in /sys/fs/cgroup
    #[arg(long, value_name = "PATH", conflicts_with_all = ["command", "pid", "comm"])]
    pub(crate) cgroup: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) group: GroupArguments,

    /// Report on this command while it runs, and exit with its code
    ///
    /// If a signal stops the audit early, ticktax forwards it to the command. If --for ends before
    /// the command does, the command keeps running.
    #[arg(last = true, value_name = "COMMAND",
          conflicts_with_all = ["unit", "container", "pod"])]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) files: FileArguments,

    /// Save the recording but print no report, to use less CPU time
    ///
    /// `ticktax report FILE` prints the report later, even on another machine.
    #[arg(long, hide_short_help = true, requires = "save",
          conflicts_with_all = ["html", "output", "format"])]
    pub(crate) no_report: bool,

    /// Write the report to this file, separate from the output of COMMAND
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) statement: StatementArguments,
}

impl AuditArguments {
    pub(crate) fn watches_a_program(&self) -> bool {
        let in_cgroup = self.cgroup.is_some() || self.group.name().is_some();
        let named = self.comm.is_some() || in_cgroup;
        named || !self.pid.is_empty() || !self.command.is_empty()
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Recording to print, from `audit`, `pace`, `sim` or `lab run`
    #[arg(add = complete::recordings())]
    pub(crate) file: PathBuf,

    /// Print the CPU time report, even for a recording made by `pace`
    ///
    /// `--fleet-of` implies this.
    #[arg(long, hide_short_help = true)]
    pub(crate) audit: bool,

    #[command(flatten)]
    pub(crate) subject: SubjectArguments,

    #[command(flatten)]
    pub(crate) part: PartArguments,

    #[command(flatten)]
    pub(crate) profile: WaitProfileArguments,

    #[command(flatten)]
    pub(crate) files: FileArguments,

    #[command(flatten)]
    pub(crate) statement: StatementArguments,
}

#[derive(Debug, Args)]
pub(crate) struct BeatsArguments {
    /// Recording to search, from `audit --save`
    #[arg(add = complete::recordings())]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) part: PartArguments,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Beats), default_value = "text")]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) page: PageArguments,
}

/// A duration as the user typed it, between 10 ms and 7 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length(pub(crate) Nanos);

impl Length {
    /// Shortest duration allowed. A shorter run might not contain a single timer tick at 100 Hz.
    const MIN: Nanos = Nanos::from_millis(10);
    const MAX: Nanos = Nanos::from_secs(7 * 24 * 3600);
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let total = seconds_or_units(text)?;
        if !(Self::MIN..=Self::MAX).contains(&total) {
            return Err(format!("invalid duration `{text}`: choose 10ms to 7d"));
        }
        Ok(Self(total))
    }
}

/// Parses a duration. A plain number is in seconds, as for the `sleep` and `timeout` commands.
fn seconds_or_units(text: &str) -> Result<Nanos, String> {
    let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
    let has_digit = text.chars().any(|letter| letter.is_ascii_digit());
    let with_unit = if has_digit && text.chars().all(is_number) {
        format!("{text}s")
    } else {
        text.to_owned()
    };
    let time = with_unit.parse();
    time.map_err(|error: DurationError| error.to_string())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId(pub(crate) i32);

impl FromStr for ProcessId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().parse().ok().filter(|&number| number > 0);
        number
            .map(Self)
            .ok_or_else(|| format!("invalid PID `{text}`: find PIDs with `pgrep NAME`"))
    }
}

/// Returns a parser for a value of type `T`, which accepts the names of the values in `all`. The
/// help lists the names with their descriptions.
fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
    about: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let words = all
        .iter()
        .map(move |&one| PossibleValue::new(name(one)).help(about(one)));
    PossibleValuesParser::new(words).map(move |word| {
        let found = all.iter().find(|&&one| name(one) == word);
        *found.expect("clap lets no other word pass")
    })
}

#[cfg(test)]
mod tests;
