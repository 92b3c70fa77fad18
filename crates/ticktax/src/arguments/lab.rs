//! Arguments of `ticktax lab`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::files::HtmlFile;
use clap::{Args, Subcommand};
use ticktax_experiment::vary::{Grid, MOST_ARMS, Row, Vary};
use ticktax_lab::Arch;
use ticktax_lab::kernel::{KernelSource, Wanted};
use ticktax_lab::qemu::Clock;
use ticktax_model::document::DocumentKind;
use ticktax_report::Format;

use super::files::HTML;
use super::{GuestArm, Length, PrintArguments, formats};
use crate::failure::Failure;

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax lab run --kernel linux-image-cloud-amd64 -- pace --rate 35 --work 1ms
                                          measure how a Debian kernel paces a loop, in QEMU
  ticktax lab run --kernel linux-image-cloud-amd64 --cmdline 'nohz=off highres=off' -- audit
                                          audit a kernel whose tick never stops
  ticktax lab run --kernel linux-image-cloud-arm64 -- audit --for 3s
                                          audit an arm64 kernel, with the binary built by
                                          `cargo xtask cross arm64`
  ticktax lab build --hz 1000,250,100     build three kernels with different tick rates
  ticktax lab compare --vary hz=1000,250,100 --vary cmdline=,'nohz=off highres=off' -- pace
                                          compare kernels with each other and with the model
  ticktax lab compare --case frame-rate-vs-hz
                                          repeat a 2005 experiment on current kernels

By default, the guest's clock advances with each instruction. Results are exactly repeatable, but
exclude the cost of caches, pipelines and hypervisors.";

#[derive(Debug, Subcommand)]
pub(crate) enum LabTask {
    /// List the kernels in the lab's cache
    List {
        #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// Choose the output format
        #[arg(long, value_parser = formats(DocumentKind::Kernels), default_value = "text")]
        format: Format,
    },
    /// Build kernels that differ only in their tick rate
    Build(BuildArguments),
    /// Boot a kernel and run `audit` or `pace` in it
    #[command(after_long_help = EXAMPLES)]
    Run(RunArguments),
    /// Run `pace` on several kernels and compare the results with the model
    #[command(after_long_help = EXAMPLES)]
    Compare(CompareArguments),
}

#[derive(Debug, Args)]
pub(crate) struct BuildArguments {
    /// Build one kernel for each of these tick rates, 24 to 2000
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    pub(crate) hz: Vec<u32>,

    /// Build from a Debian source package, or from a directory or tarball (path with a /)
    #[arg(long, value_name = "SOURCE", default_value = "linux-source")]
    pub(crate) source: KernelSource,

    /// Add the `CONFIG_X=y` lines in this file to the configuration
    #[arg(long, value_name = "FRAGMENT")]
    pub(crate) config: Option<PathBuf>,

    /// Build for amd64 or arm64 [default: the architecture of this machine]
    #[arg(long, value_name = "ARCH", default_value_t = Arch::HOST, hide_default_value = true)]
    pub(crate) arch: Arch,

    /// Run this many compilers in parallel [default: one per CPU]
    #[arg(long, short, value_name = "N")]
    pub(crate) jobs: Option<usize>,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::KernelBuild), default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct GuestArguments {
    /// Emulate this architecture: amd64 or arm64 [default: the architecture of the kernel]
    #[arg(long, value_name = "ARCH", hide_short_help = true)]
    pub(crate) arch: Option<Arch>,

    /// Run this ticktax binary in a guest whose architecture differs from this machine's [default:
    /// the one built by `cargo xtask cross`]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) binary: Option<PathBuf>,

    /// Give the guest this many CPUs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) smp: u32,

    /// Give the guest this much memory (MiB)
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    pub(crate) memory: u32,

    /// Advance the guest's clock by 2^SHIFT ns per instruction [default: 2]
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, require_equals = true,
          default_missing_value = "2", conflicts_with_all = ["tcg", "kvm"], hide_short_help = true)]
    pub(crate) icount: Option<u8>,

    /// Use the host's clock and a CPU emulated by QEMU
    #[arg(long, conflicts_with = "kvm", hide_short_help = true)]
    pub(crate) tcg: bool,

    /// Use the host's clock and CPU, through KVM
    #[arg(long)]
    pub(crate) kvm: bool,

    /// Also run this program, with its arguments, while the verb runs; repeatable
    ///
    /// A guest with a different architecture has no libraries, so the program must be statically
    /// linked.
    #[arg(long, value_name = "'FILE ARGUMENTS'", hide_short_help = true)]
    pub(crate) beside: Vec<String>,

    /// Stop a guest after this long, measured by the host's clock
    #[arg(
        long,
        value_name = "TIME",
        default_value = "5m",
        hide_short_help = true
    )]
    pub(crate) limit: Length,
}

impl GuestArguments {
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
    /// Boot this kernel: a path with a /, a Debian package, or a build such as hz250
    ///
    /// A path must contain a /. SUITE:PACKAGE selects a package from another Debian suite, for
    /// example sid:linux-image-cloud-arm64. hz250 is a kernel built by `lab build`.
    #[arg(long, alias = "package", value_name = "KERNEL")]
    pub(crate) kernel: Wanted,

    /// Boot the kernel with these parameters
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub(crate) cmdline: String,

    #[command(flatten)]
    pub(crate) guest: GuestArguments,

    /// Save the guest's recording for `ticktax report`
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Copy files written by the guest to this directory
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) guest_files: Option<PathBuf>,

    /// Save the guest's kernel messages to this file
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) console: Option<PathBuf>,

    /// Verb to run in the guest: audit or pace, with its arguments
    #[arg(last = true, required = true, value_name = "VERB")]
    pub(crate) verb: Vec<OsString>,

    #[command(flatten)]
    pub(crate) print: PrintArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// Name of the case
    pub(crate) case: String,

    /// Run for this long
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) length: Length,

    /// Run nothing
    #[arg(long)]
    pub(crate) idle: bool,

    /// Save the recording to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) save: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// Repeat a published experiment: frame-rate-vs-hz or idle-cost-vs-hz
    ///
    /// Each guest runs the experiment's programs, with the experiment's boot parameters. Without
    /// --vary, kernels with the published tick rates are used.
    #[arg(long, value_name = "NAME", conflicts_with = "verb")]
    pub(crate) case: Option<String>,

    /// Vary hz, kernel or cmdline, for example hz=1000,100; repeatable
    ///
    /// `hz` selects kernels built by `lab build`. `kernel` takes the same values as
    /// `lab run --kernel`, such as hz250. `cmdline` takes a comma-separated list; each item
    /// is a set of boot parameters, and may be empty: `--vary cmdline=,nohz=off`.
    #[arg(long, value_name = "NAME=LIST", required_unless_present = "case")]
    pub(crate) vary: Vec<Vary>,

    #[command(flatten)]
    pub(crate) guest: GuestArguments,

    /// Run this many guests in parallel [default: one per CPU, or one with --kvm or --tcg]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,

    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Comparison), default_value = "text")]
    pub(crate) format: Format,

    /// Verb to run in each guest: pace, with its arguments
    #[arg(last = true, required_unless_present = "case", value_name = "VERB")]
    pub(crate) verb: Vec<OsString>,
}

impl CompareArguments {
    /// Returns the guests to boot: every kernel with every set of boot parameters.
    pub(crate) fn arms(&self) -> Result<Vec<GuestArm>, Failure> {
        let mut typed = self.vary.clone();
        typed.sort_by_key(|vary| vary.name() == "cmdline");
        let error = |error: String| Failure::Arguments(error);
        let grid = Grid::<&Row<GuestArm>>::new(&typed, GuestArm::default(), MOST_ARMS);
        let grid = grid.map_err(|why| error(why.to_string()))?;
        let arms = grid.arms().map_err(|why| error(why.to_string()))?;
        let why = match &self.case {
            Some(_) if arms.iter().any(|arm| arm.cmdline.is_some()) => {
                "--vary cmdline= cannot be used with --case, which sets its own boot parameters: \
                 drop one"
            }
            None if arms.iter().any(|arm| arm.kernel.is_none()) => {
                "no kernel to boot: add --vary hz=1000,250 or --vary kernel=PACKAGE"
            }
            _ => return Ok(arms),
        };
        Err(Failure::Arguments(why.to_owned()))
    }
}
