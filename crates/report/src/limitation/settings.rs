//! Describes settings that could not be read.

use ticktax_model::limitation::Unreadable;

use crate::text::page::tied;

use super::{Words, sentences, unstopped};

/// Describes settings that could not be read.
pub(super) fn unread(paths: &str, reason: &Unreadable) -> Words {
    let problem = match reason {
        Unreadable::NeedsRoot => {
            return sentences(
                format!("The settings in {paths} could not be read: permission denied."),
                "Findings about them may be missing. Run as root with all capabilities to read \
                 them.",
            );
        }
        Unreadable::NeedsSyslog => format!(
            "The settings in {paths} could not be read, because reading the kernel log needs root \
             or CAP_SYSLOG."
        ),
        Unreadable::NotAFile => {
            format!(
                "The settings in {paths} could not be read, because they are not regular files."
            )
        }
        Unreadable::TooLong { read_bytes } => format!(
            "Only the first {} of each file was read: {paths}.",
            tied(format!("{} MiB", read_bytes >> 20))
        ),
        Unreadable::TooManySettings => {
            format!(
                "Only some of the settings in {paths} were checked, because there are too many of \
                 them."
            )
        }
        Unreadable::TooManyOpenFiles => format!(
            "Only some of the settings in {paths} were checked, because there are too many open \
             files."
        ),
        Unreadable::Failed(message) => format!(
            "The settings in {paths} could not be read: {}.",
            unstopped(message)
        ),
    };
    sentences(problem, "Findings about them may be missing.")
}
