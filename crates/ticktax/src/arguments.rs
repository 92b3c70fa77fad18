//! What was typed.

mod agent;
mod changes;
mod complete;
mod document;
mod files;
mod guest;
mod incidents;
mod knob;
mod lab;
mod link;
mod net;
mod pace;
mod packets;
mod part;
mod percent;
mod sim;
mod subject;
mod sweep;
mod trial;
mod vary;
mod view;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use ticktax_model::document::DocumentKind;
use ticktax_model::policy::SchedulingPolicy;
use ticktax_model::time::DurationError;
use ticktax_model::{CpuList, Nanos};
use ticktax_observe::{Keep, ProbeChoice};
use ticktax_report::{Format, HtmlFile};

pub(crate) use agent::{AgentArguments, Listen};
pub(crate) use changes::ChangesArguments;
use document::{documents, formats};
pub(crate) use files::FileArguments;
pub(crate) use guest::GuestVerb;
pub(crate) use incidents::{
    FolderArguments, IncidentQuestion, IncidentsArguments, MarkArguments, RecordArguments,
};
pub(crate) use knob::{KnobQuestion, TargetArguments, UndoArguments};
pub(crate) use lab::{
    BuildArguments, CompareArguments, GuestArguments, LabTask, ReplayArguments, RunArguments,
};
pub(crate) use net::{ETHERNET, NetTask, NetWatchArguments, PairArguments, cpu as net_cpu};
pub(crate) use pace::PaceArguments;
pub(crate) use part::PartArguments;
pub(crate) use sim::SimArguments;
pub(crate) use subject::SubjectArguments;
pub(crate) use sweep::SweepArguments;
pub(crate) use trial::{StartArguments, TrialArguments, WatchdogArguments};
pub(crate) use vary::KernelVariants;
use view::sections;
pub(crate) use view::{PageArguments, PrintArguments, StatementArguments, ViewArguments};

/// What the exit codes mean; shown in the long help and in the man page.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    the books balance; with `-- COMMAND`, the command's own code is passed on
  1    the audit could not be made, or its recording not saved; one line says why
  2    the arguments make no sense
  3    the books do not balance: the statement says by how much, and on which CPU
  4    some points of a sweep could not be run; the results say which, and why
  5    a model does not give what was measured (sim): nothing further is predicted without --force
  6    what --fail-if forbids is so (try)
  126  COMMAND may not be run          127  COMMAND was not found
  128+N  COMMAND, or the audit of a COMMAND that goes on, was ended by signal N
  130  ended by a second Ctrl-C";

/// How this program is told to become a trial's command.
pub(crate) const TRY_START: &str = "try-start";
/// How this program is told to be a trial's watchdog.
pub(crate) const TRY_WATCHDOG: &str = "try-watchdog";

const EXAMPLES: &str = "\
Examples:
  ticktax audit                           20 seconds of every CPU, as text
  sudo ticktax audit --for 1m --cpus 2-3  a minute of two CPUs, every span with its name
  ticktax audit -- make -j8               for as long as a command runs, and what happened to it
  sudo ticktax audit -p 4121              why process 4121 did not run when it wanted to
  sudo ticktax audit --comm gamesrv       the same of all processes of that name
  sudo ticktax audit --net                what delays packets: interrupt, softirq, wake-up, running
  ticktax audit --save lag.parquet        and keep everything that was seen
  ticktax report lag.parquet              the same statement again, from the file
  ticktax beats lag.parquet               what repeats in it, how often, and what precedes it
  ticktax pace --rate 60                  how well this kernel keeps a loop of 60 frames a second
  ticktax sim --load lag.parquet --vary hz=100,1000
                                          what another tick would make of it: a prediction

The first screen is the answer: who took how much time, how often, and what to do. The sections
(--section time,repeats, or --full) are the proof; --explain says what the words mean.";

/// Audits CPU time like money.
///
/// Every nanosecond of every CPU is in exactly one account: your programs, the kernel's timer
/// ticks, interrupts, softirqs and threads, the hypervisor, idling. The books balance, and what
/// could not be seen is said.
#[derive(Debug, Parser)]
#[command(name = "ticktax", version, after_long_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Watch this machine for a while and print where its CPU time went
    #[command(
        after_help = EXAMPLES,
        after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
        mut_arg("sections", |arg| arg.value_parser(sections(&[DocumentKind::Statement]))),
    )]
    Audit(AuditArguments),
    /// Watch this machine for ever: metrics for Prometheus, and facts files that fleets can query
    #[command(after_help = agent::EXAMPLES)]
    Agent(AgentArguments),
    /// Send over TCP or UDP, and print what a byte and a packet cost, by account, and what was lost
    #[command(after_help = net::EXAMPLES)]
    Net {
        #[command(subcommand)]
        task: NetTask,
    },
    /// Run a paced loop as a server does, or watch one: frames a second, dropped, overshot, late; or datagrams (--udp)
    #[command(
        after_help = pace::EXAMPLES,
        mut_arg("sections", |arg| arg.value_parser(sections(&[DocumentKind::Pace]))),
    )]
    Pace(PaceArguments),
    /// Print the statement of a saved recording
    #[command(mut_arg("sections", |arg| {
        arg.value_parser(sections(&complete::REPORTED)).add(complete::sections_of_recording())
    }))]
    Report(ReportArguments),
    #[command(mut_arg("sections", |arg| arg.value_parser(sections(&[DocumentKind::Beats]))))]
    /// Print what repeats in a saved recording: every beat, its cause, and what could not be known
    Beats(BeatsArguments),
    /// Print what changed between two recordings: accounts, beats, a program, the tick; or two lists of numbers
    #[command(
        after_help = changes::EXAMPLES,
        mut_arg("sections", |arg| arg.value_parser(sections(&[DocumentKind::Changes]))),
    )]
    Compare(ChangesArguments),
    /// Watch without end, and keep the seconds around each rare delay with every name in them
    #[command(after_help = incidents::RECORD_EXAMPLES)]
    Record(RecordArguments),
    /// Print what flight recorders caught: rare delays, those that are alike as one
    #[command(after_help = incidents::EXAMPLES)]
    Incidents(IncidentsArguments),
    /// Ask a running flight recorder to keep the seconds around this moment
    Mark(MarkArguments),
    /// Predict what a recorded machine, or a scenario, would do under other settings
    #[command(after_help = sim::EXAMPLES)]
    Sim(SimArguments),
    /// Published investigations of time that a kernel took, beside what a model of it gives
    Case {
        #[command(subcommand)]
        question: CaseQuestion,
    },
    /// Run the model at every point of a grid over a scenario, on all cores, into a Parquet file
    #[command(after_help = sweep::examples())]
    Sweep(SweepArguments),
    /// Settings of this machine: which there are, what each trades, and what it is now
    #[command(after_help = knob::EXAMPLES)]
    Knob {
        #[command(subcommand)]
        question: KnobQuestion,
    },
    /// Put back the settings that a killed run left changed
    Undo(UndoArguments),
    /// Prove a setting: a command, or a running server, under two values by turns; all is put back
    #[command(
        after_help = trial::EXAMPLES,
        after_long_help = format!("{}\n\n{}", trial::EXAMPLES, trial::CODES),
        mut_arg("sections", |arg| arg.value_parser(sections(&[DocumentKind::Trial]))),
    )]
    Try(TrialArguments),
    /// What becomes the command of a trial once everything is set
    #[command(hide = true, name = TRY_START)]
    TryStart(StartArguments),
    /// What puts back what a killed trial left
    #[command(hide = true, name = TRY_WATCHDOG)]
    TryWatchdog(WatchdogArguments),
    /// Real kernels in QEMU that differ in their tick: list, build and run them, and compare
    #[command(after_help = lab::EXAMPLES)]
    Lab {
        #[command(subcommand)]
        task: LabTask,
    },
    /// What PID 1 of a lab's guest does
    #[command(hide = true, name = ticktax_lab::guest::WORD)]
    LabGuest,
    /// Perform the programs of a case, in a guest
    #[command(hide = true, name = ticktax_lab::guest::REPLAY)]
    LabReplay(ReplayArguments),
    /// Print the JSON Schema of what --format json prints
    Schema {
        /// Of which document
        #[arg(value_parser = documents(), default_value = "statement")]
        of: DocumentKind,
    },
    /// Print the manual's page about ticktax or one of its verbs (roff), for `man -l -`
    Man {
        /// The verb, or two words such as `case run` [default: ticktax itself]
        #[arg(value_name = "VERB", conflicts_with = "folder")]
        verb: Vec<String>,

        /// Write every page into this folder, as ticktax.1, ticktax-audit.1 and so on
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
    /// Print a script for a shell that completes words, cases, sections, recordings and scenarios
    ///
    /// For bash: `source <(ticktax completions bash)`
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// What `case run` ends with.
const CASE_CODES: &str = "\
Exit codes:
  0    every row comes out as its file says: near enough, or missed and known to be
  1    one does not, or there is no such case; one line says why";

#[derive(Debug, Subcommand)]
pub(crate) enum CaseQuestion {
    /// List all cases
    List {
        #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// How to print the list
        #[arg(long, value_parser = formats(DocumentKind::Cases), default_value = "text")]
        format: Format,
    },
    /// Print what was published, where, and which of it calibrates the model
    Show {
        /// The case, or the file of one of your own (docs/reference/case.md)
        #[arg(value_name = "NAME|FILE", add = complete::cases())]
        name: String,

        #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// How to print it
        #[arg(long, value_parser = formats(DocumentKind::CaseSheet), default_value = "text")]
        format: Format,
    },
    /// Run the model and print what was published and derived beside what it gives, row by row
    #[command(after_help = CASE_CODES)]
    Run {
        /// The case, or the file of one of your own (docs/reference/case.md)
        #[arg(value_name = "NAME|FILE", add = complete::cases())]
        name: String,

        /// Measure on this machine as well, for a second, where the case has something to measure:
        /// `tcp-cpu-cost`, the cycles of a byte over loopback
        #[arg(long)]
        here: bool,

        /// Put what traffic cost beside it, from a file that `ticktax net … --format json --output FILE` wrote:
        /// `tcp-cpu-cost`, the cycles of a byte
        #[arg(long, value_name = "FILE")]
        net: Option<PathBuf>,

        #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// How to print the comparison
        #[arg(long, value_parser = formats(DocumentKind::Case), default_value = "text")]
        format: Format,
    },
    /// Find the model's constants from the rows that calibrate, and how well it predicts the others
    Fit {
        /// The case, or the file of one of your own (docs/reference/case.md)
        #[arg(value_name = "NAME|FILE", add = complete::cases())]
        name: String,

        #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// How to print the constants
        #[arg(long, value_parser = formats(DocumentKind::CaseFit), default_value = "text")]
        format: Format,
    },
}

impl CaseQuestion {
    /// How to print the answer.
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::List { format, .. }
            | Self::Show { format, .. }
            | Self::Run { format, .. }
            | Self::Fit { format, .. } => *format,
        }
    }

    /// Where to write it as a page for a browser.
    pub(crate) fn html(&self) -> Option<&Path> {
        match self {
            Self::List { html, .. }
            | Self::Show { html, .. }
            | Self::Run { html, .. }
            | Self::Fit { html, .. } => html.as_deref(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    /// How long to watch at most, such as 20s, 500ms, 3m or 1h30m; 20 is 20s [default: 20s, or until
    /// COMMAND ends]
    #[arg(
        long = "for",
        visible_alias = "duration",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    pub(crate) length: Option<Length>,

    /// Which CPUs, such as 0-3,8 [default: all that are online]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuList>,

    /// Probe that measures lost time
    ///
    /// `spin` runs a loop on each CPU that notes every gap, at the lowest priority: it uses only
    /// time that nobody else wants, but keeps the CPUs from idling. `sleep` wakes up every
    /// millisecond and notes how late. `soak` counts the cycles that are really left, as a witness
    /// against the kernel's own accounting. `none` disturbs least, and cannot tell what the tracer
    /// cannot see: the hypervisor, and getting into and out of the kernel.
    ///
    /// With COMMAND, --pid or --cgroup none runs unless it is asked for: even at the lowest priority,
    /// a kernel without preemption lets a loop keep the CPU until the next tick.
    ///
    /// Nor does one run by default on a CPU that is full as the audit begins, where the kernel shares CPU time
    /// between sessions first (autogroup): it would have half of it.
    ///
    /// [default: spin, or none where a program is watched]
    #[arg(long, value_parser = one_of(&ProbeChoice::ALL, ProbeChoice::name, ProbeChoice::about))]
    pub(crate) probe: Option<ProbeChoice>,

    /// Priority of the probe: idle, other, fifo:1 to fifo:99 or rr:1 to rr:99 [default: idle for spin, other for sleep]
    ///
    /// At `fifo` the spin probe takes the CPU from all other programs for the whole time: for CPUs that
    /// nothing else uses.
    #[arg(long, value_name = "POLICY")]
    pub(crate) probe_policy: Option<SchedulingPolicy>,

    /// Print what delayed packets on their way to the threads that they woke, as `--section net` does
    #[arg(long)]
    pub(crate) net: bool,

    /// Keep single spans, or sums by source for every second [default: spans up to 10 minutes]
    #[arg(long, value_parser = one_of(&Keep::ALL, Keep::name, Keep::about))]
    pub(crate) keep: Option<Keep>,

    #[command(flatten)]
    pub(crate) files: FileArguments,

    #[command(flatten)]
    pub(crate) statement: StatementArguments,

    /// Write the statement to a file in place of standard output, which is COMMAND's, too
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Say what happened to this process, its threads and its children; several, separated by
    /// commas, are one program. Ends when they do
    #[arg(
        short,
        long,
        value_name = "N",
        value_delimiter = ',',
        allow_hyphen_values = true,
        conflicts_with = "command"
    )]
    pub(crate) pid: Vec<ProcessId>,

    /// Say what happened to the processes of this name that are there now, and to their children
    #[arg(long, value_name = "NAME", conflicts_with_all = ["command", "pid"])]
    pub(crate) comm: Option<String>,

    /// Say what happened to everything in this cgroup, such as /sys/fs/cgroup/system.slice
    #[arg(long, value_name = "PATH", conflicts_with_all = ["command", "pid", "comm"])]
    pub(crate) cgroup: Option<PathBuf>,

    /// Watch for as long as this command runs, say what happened to it, and pass its exit code on
    ///
    /// A signal that ends the audit early is passed on to it. A command that outlives the audit is
    /// left running.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl AuditArguments {
    /// Whether a program's time is asked for, rather than a machine's.
    pub(crate) fn watches_a_program(&self) -> bool {
        let named = self.comm.is_some() || self.cgroup.is_some();
        named || !self.pid.is_empty() || !self.command.is_empty()
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// A recording that `audit`, `pace`, `sim` or `lab run` made with `--save`
    #[arg(add = complete::recordings())]
    pub(crate) file: PathBuf,

    /// Print where all time went, also where the recording was made for a loop's frames
    ///
    /// `--fleet-of` does the same.
    #[arg(long)]
    pub(crate) audit: bool,

    #[command(flatten)]
    pub(crate) subject: SubjectArguments,

    #[command(flatten)]
    pub(crate) part: PartArguments,

    #[command(flatten)]
    pub(crate) files: FileArguments,

    #[command(flatten)]
    pub(crate) statement: StatementArguments,
}

#[derive(Debug, Args)]
pub(crate) struct BeatsArguments {
    /// A recording that `audit --save` made
    #[arg(add = complete::recordings())]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) part: PartArguments,

    #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// How to print what repeats
    #[arg(long, value_parser = formats(DocumentKind::Beats), default_value = "text")]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) page: PageArguments,
}

/// A length of time as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length(pub(crate) Nanos);

impl Length {
    /// A shorter time has no tick in it on a kernel with 100 Hz.
    const MIN: Nanos = Nanos::from_millis(10);
    const MAX: Nanos = Nanos::from_secs(7 * 24 * 3600);
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let total = seconds_or_units(text)?;
        if !(Self::MIN..=Self::MAX).contains(&total) {
            return Err(format!("invalid duration `{text}`: 10ms to 7d"));
        }
        Ok(Self(total))
    }
}

/// Reads a duration; a number alone is of seconds, as `sleep` and `timeout` have it.
fn seconds_or_units(text: &str) -> Result<Nanos, String> {
    let is_number = |it: char| it.is_ascii_digit() || it == '.';
    let seconds = text.chars().any(|it| it.is_ascii_digit()) && text.chars().all(is_number);
    let with_unit = if seconds {
        format!("{text}s")
    } else {
        text.to_owned()
    };
    let time = with_unit.parse();
    time.map_err(|error: DurationError| error.to_string())
}

/// The number of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId(pub(crate) i32);

impl FromStr for ProcessId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().parse().ok().filter(|&number| number > 0);
        number.map(Self).ok_or_else(|| {
            format!("invalid PID `{text}`: `pgrep NAME` finds the PIDs of a program")
        })
    }
}

/// Parses one of `all`, by its name; help lists them, with what they are.
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
