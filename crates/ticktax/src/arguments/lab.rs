//! What was typed after `lab`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::files::HtmlFile;
use clap::{Args, Subcommand};
use ticktax_experiment::vary::Vary;
use ticktax_lab::Arch;
use ticktax_lab::kernel::{KernelSource, Wanted};
use ticktax_lab::qemu::Clock;
use ticktax_model::document::DocumentKind;
use ticktax_report::Format;

use super::vary::all_taken;
use super::{KernelVariants, Length, PrintArguments, formats};
use crate::failure::Failure;

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax lab run --kernel linux-image-cloud-amd64 -- pace --rate 35 --work 1ms
                                          how a Debian kernel keeps a loop's pace, in QEMU
  ticktax lab run --kernel linux-image-cloud-amd64 --cmdline 'nohz=off highres=off' -- audit
                                          where its CPU time goes with a tick that never stops
  ticktax lab run --kernel linux-image-cloud-arm64 -- audit --for 3s
                                          the same on arm64, with the command that
                                          `cargo xtask cross arm64` built
  ticktax lab build --hz 1000,250,100     the same kernel, three times, by its tick rate
  ticktax lab compare --vary hz=1000,250,100 --vary cmdline=,'nohz=off highres=off' -- pace
                                          kernels beside each other, and beside the model
  ticktax lab compare --case frame-rate-vs-hz
                                          what was published in 2005, on kernels of today

By default the guest's time is the number of instructions that it executes: the same every time, and
without the cost of caches, pipelines and hypervisors.";

#[derive(Debug, Subcommand)]
pub(crate) enum LabTask {
    /// List the kernels in the lab's cache
    List {
        #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// How to print the list
        #[arg(long, value_parser = formats(DocumentKind::Kernels), default_value = "text")]
        format: Format,
    },
    /// Build kernels that differ in their tick rate alone
    Build(BuildArguments),
    /// Boot a kernel and run a verb of ticktax in it
    #[command(after_help = EXAMPLES)]
    Run(RunArguments),
    /// Run pace on many kernels: a table of all, beside the model, and where the two differ
    #[command(after_help = EXAMPLES)]
    Compare(CompareArguments),
}

#[derive(Debug, Args)]
pub(crate) struct BuildArguments {
    /// The tick rates, 24 to 2000
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    pub(crate) hz: Vec<u32>,

    /// A kernel's source: a Debian package, or a folder or tarball with a / in it
    #[arg(long, value_name = "SOURCE", default_value = "linux-source")]
    pub(crate) source: KernelSource,

    /// More configuration, as lines `CONFIG_X=y`
    #[arg(long, value_name = "FRAGMENT")]
    pub(crate) config: Option<PathBuf>,

    /// The kernels' architecture: amd64 or arm64 [default: this machine's]
    #[arg(long, value_name = "ARCH", default_value_t = Arch::HOST, hide_default_value = true)]
    pub(crate) arch: Arch,

    /// Compilers at a time [default: one a CPU]
    #[arg(long, short, value_name = "N")]
    pub(crate) jobs: Option<usize>,

    #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// How to print what was built
    #[arg(long, value_parser = formats(DocumentKind::KernelBuild), default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct GuestArguments {
    /// The guest's architecture: amd64 or arm64 [default: the kernel's, or this machine's]
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<Arch>,

    /// ticktax for a guest of another architecture [default: what `cargo xtask cross` built]
    #[arg(long, value_name = "FILE")]
    pub(crate) binary: Option<PathBuf>,

    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) smp: u32,

    /// Memory, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    pub(crate) memory: u32,

    /// The guest's time: each instruction takes 2^SHIFT ns, and nothing else any [default: 2]
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, require_equals = true,
          default_missing_value = "2", conflicts_with_all = ["tcg", "kvm"])]
    pub(crate) icount: Option<u8>,

    /// The guest's time: the host's, on a CPU that QEMU translates
    #[arg(long, conflicts_with = "kvm")]
    pub(crate) tcg: bool,

    /// The guest's time: the host's, on its own CPU
    #[arg(long)]
    pub(crate) kvm: bool,

    /// A program to run in the guest beside the verb: its file, and its arguments; again for several
    ///
    /// It is started with the verb, and ended with it. A guest of another architecture has no libraries
    /// for it: it has to be static there.
    #[arg(long, value_name = "'FILE ARGUMENTS'")]
    pub(crate) beside: Vec<String>,

    /// How long a guest may take, on the host's clock
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub(crate) limit: Length,
}

impl GuestArguments {
    /// What the guest's time is.
    pub(crate) fn clock(&self) -> Clock {
        match self {
            Self { kvm: true, .. } => Clock::Kvm,
            Self { tcg: true, .. } => Clock::Tcg,
            Self { icount, .. } => Clock::Icount {
                shift: icount.unwrap_or(2),
            },
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// A file with a / in it, a Debian package, or hz250 for one that `lab build` made
    ///
    /// SUITE:PACKAGE is a package of another suite of Debian, such as
    /// sid:linux-image-cloud-arm64.
    #[arg(long, visible_alias = "package", value_name = "KERNEL")]
    pub(crate) kernel: Wanted,

    /// Parameters for the kernel
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub(crate) cmdline: String,

    #[command(flatten)]
    pub(crate) guest: GuestArguments,

    /// Keep the recording that the guest made, for `report`
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) print: PrintArguments,

    /// Write the statement to a file in place of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Keep all that was written in the guest, in this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) keep: Option<PathBuf>,

    /// Keep what the guest's kernel said
    #[arg(long, value_name = "FILE")]
    pub(crate) console: Option<PathBuf>,

    /// What to run in the guest: audit or pace, with their arguments
    #[arg(last = true, required = true, value_name = "VERB")]
    pub(crate) verb: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// The case
    pub(crate) case: String,

    /// For how long
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) length: Length,

    /// Perform nothing
    #[arg(long)]
    pub(crate) idle: bool,

    /// Where to leave the recording
    #[arg(long, value_name = "FILE")]
    pub(crate) save: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// A published investigation in place of VERB: frame-rate-vs-hz or idle-cost-vs-hz
    ///
    /// Its own programs run in each guest, under its own boot parameters, on kernels with the tick
    /// rates that were published where none are given.
    #[arg(long, value_name = "NAME", conflicts_with = "verb")]
    pub(crate) case: Option<String>,

    /// What to vary: hz, of kernels that `lab build` made; kernel, as for `lab run`; cmdline, a
    /// comma between one set of boot parameters and the next, which can be nothing
    ///
    /// Such as `--vary hz=1000,100 --vary cmdline=,nohz=off`; again for several.
    #[arg(long, value_name = "NAME=LIST", required_unless_present = "case")]
    pub(crate) vary: Vec<Vary>,

    #[command(flatten)]
    pub(crate) guest: GuestArguments,

    /// Guests at a time [default: one a CPU; one, where their time is the host's]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,

    /// Write the table to a file in place of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// How to print what came of it
    #[arg(long, value_parser = formats(DocumentKind::KernelComparison), default_value = "text")]
    pub(crate) format: Format,

    /// What to run in each guest: pace with its arguments
    #[arg(last = true, required_unless_present = "case", value_name = "VERB")]
    pub(crate) verb: Vec<OsString>,
}

impl CompareArguments {
    /// The kernels to compare, and what they are booted with.
    pub(crate) fn variants(&self) -> Result<KernelVariants, Failure> {
        let mut variants = KernelVariants::default();
        let what = ("lab compare", "hz, kernel and cmdline");
        all_taken(&self.vary, what, &mut |vary| variants.take(vary))?;
        let why = match &self.case {
            Some(_) if !variants.cmdlines.is_empty() => {
                "a case has its own boot parameters: leave --vary cmdline= out"
            }
            None if variants.rates.is_empty() && variants.kernels.is_empty() => {
                "no kernel to boot: write --vary hz=1000,250 or --vary kernel=PACKAGE"
            }
            _ => return Ok(variants),
        };
        Err(Failure::Arguments(why.to_owned()))
    }
}
