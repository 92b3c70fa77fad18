//! Arguments of `ticktax storage`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ticktax_model::document::DocumentKind;
use ticktax_model::storage::{FileWrite, ForeignData};
use ticktax_report::Format;

use super::files::HTML;
use super::mem::Size;
use super::{Length, formats};
use crate::files::HtmlFile;

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax storage                         list file systems, journals and write caches
  sudo ticktax storage fsync --dir /srv   see what an fsync in /srv writes, and how long it takes
  sudo ticktax storage fsync --dir /srv --foreign 1G --overwrite
                                          the same for overwritten data, next to 1 GiB
  ticktax storage fsync --dir /srv        without root: only times and the disk's byte counter
  sudo ticktax storage pressure           see which writers the kernel makes wait, and why";

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct StorageArguments {
    #[command(subcommand)]
    pub(crate) task: Option<StorageTask>,

    #[command(flatten)]
    pub(crate) mounts: MountsArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StorageTask {
    /// List the effective settings of mounted file systems and their disks (the default)
    Mounts(MountsArguments),
    /// Measure what an fsync writes next to other dirty data, and how long it takes
    Fsync(FsyncArguments),
    /// Show which programs wait because of dirty data, and who wrote it
    Pressure(PressureArguments),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct MountsArguments {
    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Storage), default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PressureArguments {
    /// Watch for this long
    #[arg(long = "for", value_name = "TIME", default_value = "20s")]
    pub(crate) length: Length,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::WritePressure), default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct FsyncArguments {
    /// Write the files to this directory; they are removed at the end
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Size of the other file's dirty data
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) foreign: Size,

    /// How the other file's data becomes dirty
    #[arg(long, value_name = "KIND", value_enum, default_value = "new")]
    pub(crate) foreign_data: ForeignKind,

    /// Overwrite blocks before each fsync instead of appending one
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Number of pairs: fsyncs without the other file's data, and fsyncs with it
    #[arg(long, value_name = "N", default_value = "10",
        value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) pairs: u64,

    /// Maximum number of fsyncs in each half of a pair
    ///
    /// Next to dirty data, ticktax stops as soon as a tenth of that data has been written.
    #[arg(long, value_name = "N", default_value = "20",
        value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) fsyncs: u64,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::FsyncStudy), default_value = "text")]
    pub(crate) format: Format,
}

impl FsyncArguments {
    pub(crate) fn write(&self) -> FileWrite {
        if self.overwrite {
            FileWrite::Overwrite
        } else {
            FileWrite::Append
        }
    }
}

/// How the other file's data becomes dirty.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ForeignKind {
    /// The file is new, so its blocks are not allocated yet
    New,
    /// The file is overwritten, so its blocks are allocated
    Overwritten,
}

impl From<ForeignKind> for ForeignData {
    fn from(kind: ForeignKind) -> Self {
        match kind {
            ForeignKind::New => Self::New,
            ForeignKind::Overwritten => Self::Overwritten,
        }
    }
}
