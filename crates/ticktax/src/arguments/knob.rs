//! What was typed for `ticktax knob` and `ticktax undo`.

use std::path::{Path, PathBuf};

use crate::files::HtmlFile;
use clap::{Args, Subcommand};
use ticktax_knobs::Target;
use ticktax_model::document::DocumentKind;
use ticktax_model::knob::KnobScope;
use ticktax_report::Format;

use super::{ProcessId, complete, formats};

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax knob list --of latency          what has to do with it
  ticktax knob show cpu.governor          what it sets, what that trades, and what may go wrong
  ticktax knob get vm.dirty_limit         what it is now
  ticktax knob get cpu.governor           of each CPU
  sudo ticktax knob get proc.timer_slack --pid 4121
                                          of the first thread of a process";

#[derive(Debug, Subcommand)]
pub(crate) enum KnobQuestion {
    /// List the settings that ticktax knows
    List {
        /// Only those with this word in their name, or in what is said of them
        #[arg(long, value_name = "WORD")]
        of: Option<String>,

        #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// How to print the list
        #[arg(long, value_parser = formats(DocumentKind::Knobs), default_value = "text")]
        format: Format,
    },
    /// Print what a setting does, what changing it trades, and what may go wrong
    Show {
        /// Its name, as the list has it
        #[arg(value_name = "KNOB", add = complete::knobs())]
        id: String,

        #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// How to print it
        #[arg(long, value_parser = formats(DocumentKind::Knob), default_value = "text")]
        format: Format,
    },
    /// Print what a setting is now
    Get {
        /// Its name, as the list has it
        #[arg(value_name = "KNOB", add = complete::knobs())]
        id: String,

        #[command(flatten)]
        target: TargetArguments,

        #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// How to print it
        #[arg(long, value_parser = formats(DocumentKind::KnobReadings), default_value = "text")]
        format: Format,
    },
}

impl KnobQuestion {
    /// How to print the answer.
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::List { format, .. } | Self::Show { format, .. } | Self::Get { format, .. } => {
                *format
            }
        }
    }

    /// Where to write it as a page for a browser.
    pub(crate) fn html(&self) -> Option<&Path> {
        match self {
            Self::List { html, .. } | Self::Show { html, .. } | Self::Get { html, .. } => {
                html.as_deref()
            }
        }
    }
}

/// What a setting is to be read of. CPUs, interrupts and disks are all read where none is named.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct TargetArguments {
    /// Of this thread; a process' number is that of its first
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    pid: Option<ProcessId>,

    /// Of this CPU [default: each]
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,

    /// Of this interrupt line [default: each]
    #[arg(long, value_name = "N")]
    irq: Option<u32>,

    /// Of this disk, such as vda [default: each]
    #[arg(long, value_name = "NAME")]
    disk: Option<String>,

    /// Of this cgroup, such as /sys/fs/cgroup/system.slice
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,

    /// Of this network namespace, such as /run/netns/NAME or /proc/PID/ns/net [default: the own]
    #[arg(long, value_name = "PATH")]
    net: Option<PathBuf>,
}

impl TargetArguments {
    /// What was named.
    pub(crate) fn target(&self) -> Option<Target> {
        let task = self.pid.map(|pid| Target::Task(pid.0));
        let disk = || self.disk.clone().map(Target::Disk);
        let cgroup = || self.cgroup.clone().map(Target::Cgroup);
        let net = || self.net.clone().map(Target::Net);
        task.or(self.cpu.map(Target::Cpu))
            .or(self.irq.map(Target::Irq))
            .or_else(disk)
            .or_else(cgroup)
            .or_else(net)
    }

    /// The option that names such a thing.
    pub(crate) const fn option(scope: KnobScope) -> &'static str {
        match scope {
            KnobScope::Machine => "no option",
            KnobScope::Cpu => "--cpu N",
            KnobScope::Irq => "--irq N",
            KnobScope::Disk => "--disk NAME",
            KnobScope::Task => "--pid N",
            KnobScope::Cgroup => "--cgroup PATH",
            KnobScope::Net => "--net PATH",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct UndoArguments {
    /// The journal of what was changed [default: /var/lib/ticktax/knobs/knobs.journal of root, else
    /// ~/.local/state/ticktax/knobs/knobs.journal]
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// How to print what was put back
    #[arg(long, value_parser = formats(DocumentKind::Undo), default_value = "text")]
    pub(crate) format: Format,
}
