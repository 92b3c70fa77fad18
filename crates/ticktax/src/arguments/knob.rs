//! Arguments of `ticktax knob` and `ticktax undo`.

use std::path::{Path, PathBuf};

use crate::files::HtmlFile;
use clap::{Args, Subcommand};
use ticktax_knobs::Target;
use ticktax_model::document::DocumentKind;
use ticktax_model::knob::KnobScope;
use ticktax_report::Format;

use super::files::HTML;
use super::{ProcessId, complete, formats};

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax knob list --of latency          list settings that affect latency
  ticktax knob show cpu.governor          explain a setting: effect, trade-offs, risks
  ticktax knob get vm.dirty_limit         print its current value
  ticktax knob get cpu.governor           print the value for every CPU
  sudo ticktax knob get proc.timer_slack --pid 4121
                                          print the value for the first thread of a process";

#[derive(Debug, Subcommand)]
pub(crate) enum KnobQuestion {
    /// List all settings that ticktax supports
    List {
        /// List only settings with this word in the name or description
        #[arg(long, value_name = "WORD")]
        of: Option<String>,

        #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// Choose the output format
        #[arg(long, value_parser = formats(DocumentKind::Knobs), default_value = "text")]
        format: Format,
    },
    /// Explain the effect, trade-offs and risks of a setting
    Show {
        /// Name of the setting, as `knob list` prints it
        #[arg(value_name = "KNOB", add = complete::knobs())]
        id: String,

        #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// Choose the output format
        #[arg(long, value_parser = formats(DocumentKind::Knob), default_value = "text")]
        format: Format,
    },
    /// Print the current value of a setting
    Get {
        /// Name of the setting, as `knob list` prints it
        #[arg(value_name = "KNOB", add = complete::knobs())]
        id: String,

        #[command(flatten)]
        target: TargetArguments,

        #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// Choose the output format
        #[arg(long, value_parser = formats(DocumentKind::KnobReadings), default_value = "text")]
        format: Format,
    },
}

impl KnobQuestion {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::List { format, .. } | Self::Show { format, .. } | Self::Get { format, .. } => {
                *format
            }
        }
    }

    pub(crate) fn html(&self) -> Option<&Path> {
        match self {
            Self::List { html, .. } | Self::Show { html, .. } | Self::Get { html, .. } => {
                html.as_deref()
            }
        }
    }
}

/// The object whose setting is read. If the user names none, the setting is read on all CPUs,
/// interrupts or disks.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct TargetArguments {
    /// Read the setting of this thread; a PID selects the first thread of the process
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    pid: Option<ProcessId>,

    /// Read the setting of this CPU [default: all]
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,

    /// Read the setting of this interrupt line [default: all]
    #[arg(long, value_name = "N")]
    irq: Option<u32>,

    /// Read the setting of this disk, for example vda [default: all]
    #[arg(long, value_name = "NAME")]
    disk: Option<String>,

    /// Read the setting of this cgroup, for example /sys/fs/cgroup/system.slice
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,

    /// Read the setting of this network namespace, for example /run/netns/NAME [default: the
    /// current one]
    #[arg(long, value_name = "PATH")]
    netns: Option<PathBuf>,
}

impl TargetArguments {
    pub(crate) fn target(&self) -> Option<Target> {
        let task = self.pid.map(|pid| Target::Task(pid.0));
        let disk = || self.disk.clone().map(Target::Disk);
        let cgroup = || self.cgroup.clone().map(Target::Cgroup);
        let netns = || self.netns.clone().map(Target::Net);
        task.or(self.cpu.map(Target::Cpu))
            .or(self.irq.map(Target::Irq))
            .or_else(disk)
            .or_else(cgroup)
            .or_else(netns)
    }

    /// Returns the option that selects an object of this scope.
    pub(crate) const fn option(scope: KnobScope) -> &'static str {
        match scope {
            KnobScope::Machine => "no option",
            KnobScope::Cpu => "--cpu N",
            KnobScope::Irq => "--irq N",
            KnobScope::Disk => "--disk NAME",
            KnobScope::Task => "--pid N",
            KnobScope::Cgroup => "--cgroup PATH",
            KnobScope::Net => "--netns PATH",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct UndoArguments {
    /// Restore the settings recorded in this journal
    ///
    /// [default: /var/lib/ticktax/knobs/knobs.journal as root, otherwise
    /// ~/.local/state/ticktax/knobs/knobs.journal]
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Undo), default_value = "text")]
    pub(crate) format: Format,
}
