//! Arguments of `ticktax mem`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use ticktax_model::Nanos;
use ticktax_model::document::DocumentKind;
use ticktax_report::Format;

use super::files::HTML;
use super::{formats, seconds_or_units};
use crate::files::HtmlFile;

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax mem                             measure one CPU's caches and memory
  ticktax mem latency --cpu 3 --html mem.html
                                          measure CPU 3, and plot the latencies
  ticktax mem latency --max 64M           measure working sets of up to 64 MiB
  ticktax mem walk --struct inode --fields i_sb_list.next,i_state,i_mapping --count 64000
                                          predict a loop over 64000 inodes
  ticktax mem walk --struct inode --fields i_state,i_mapping --count 64000 --verify
                                          also check the model on this machine
  sudo ticktax mem objects --budget 16.7ms
                                          list the kernel's objects, with the time of a walk";

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct MemArguments {
    #[command(subcommand)]
    pub(crate) task: Option<MemTask>,

    #[command(flatten)]
    pub(crate) latency: LatencyArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemTask {
    /// Measure latency and bandwidth for working sets of growing size (the default)
    Latency(LatencyArguments),
    /// Predict the time of a kernel loop over many objects from their layout
    Walk(WalkArguments),
    /// Predict walks over the objects that this machine's kernel holds
    Objects(ObjectsArguments),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ObjectsArguments {
    /// Mark walks that would take longer than this, for example 16.7ms for a 60 Hz loop
    #[arg(long, value_name = "TIME", value_parser = seconds_or_units)]
    pub(crate) budget: Option<Nanos>,

    /// Use the latencies in this file instead of measuring them
    ///
    /// Create it with `ticktax mem --format json`.
    #[arg(long, value_name = "FILE")]
    pub(crate) latencies: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::MemObjects), default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct WalkArguments {
    /// Type of the objects, for example inode
    #[arg(long, value_name = "NAME")]
    pub(crate) r#struct: String,

    /// Fields that the loop touches, in its order, separated by commas
    ///
    /// A field of a member is written as `i_data.host`. List a field again if the loop touches it
    /// again.
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    pub(crate) fields: Vec<String>,

    /// Number of objects
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,

    /// Time between the starts of two walks, for example 30s
    #[arg(long, value_name = "TIME", value_parser = seconds_or_units)]
    pub(crate) every: Option<Nanos>,

    /// Read the layout from this BTF file
    #[arg(long, value_name = "FILE", default_value = "/sys/kernel/btf/vmlinux")]
    pub(crate) btf: PathBuf,

    /// Read the layout from C declarations in this text file
    ///
    /// `@ 0x18` after a field's name gives its offset, and `size 256` after a closing brace the
    /// size of a structure. Without them, the rules of C apply. `pointer 4;` is for 32-bit systems.
    #[arg(long, value_name = "FILE", conflicts_with = "btf")]
    pub(crate) layout: Option<PathBuf>,

    /// Use the latencies in this file instead of measuring them
    ///
    /// Create it with `ticktax mem --format json`.
    #[arg(long, value_name = "FILE")]
    pub(crate) latencies: Option<PathBuf>,

    /// Check the prediction with walks over synthetic objects on this machine
    ///
    /// Predicts from latencies measured between the walks, or from those in the file of
    /// --latencies. Exits with code 5 if a walk deviates by more than 20 % from its prediction.
    #[arg(long)]
    pub(crate) verify: bool,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::MemWalk), default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct LatencyArguments {
    /// Measure on this CPU [default: the last one that ticktax may use]
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<u32>,

    /// Largest working set, for example 64M [default: eight times the largest cache]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max: Option<Size>,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::MemLatency), default_value = "text")]
    pub(crate) format: Format,
}

/// A size in bytes, with an optional unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    const MIN: u64 = 64 << 10;
    const MAX: u64 = 1 << 46;
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("invalid size `{text}`: choose 64K to 64T, for example 64M");
        let (digits, shift) = match text.char_indices().next_back() {
            Some((end, 'K' | 'k')) => (&text[..end], 10),
            Some((end, 'M' | 'm')) => (&text[..end], 20),
            Some((end, 'G' | 'g')) => (&text[..end], 30),
            Some((end, 'T' | 't')) => (&text[..end], 40),
            _ => (text, 0),
        };
        let number: u64 = digits.parse().map_err(|_| invalid())?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(invalid)?;
        if !(Self::MIN..=Self::MAX).contains(&bytes) {
            return Err(invalid());
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn sizes_have_units_and_bounds() {
        assert_eq!("64M".parse(), Ok(Size(64 << 20)));
        assert_eq!("65536".parse(), Ok(Size(64 << 10)));
        for text in ["", "M", "1K", "-1M", "65T", "99999999999999999999G", "64µ"] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.starts_with("invalid size"), "{error}");
        }
    }
}
