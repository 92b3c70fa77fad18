//! Reads the state files of other programs, within limits.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ticktax_model::limitation::GroupsUnnamed;

/// Maximum length of a file about a single container. Docker's files have about 5 kB and OCI
/// configurations about 20 kB.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;

/// Maximum length of a file that lists all containers or all users.
pub(super) const MAX_LIST_BYTES: u64 = 1 << 24;

/// Maximum number of entries read from a directory.
pub(super) const MAX_ENTRIES: usize = 1 << 16;

/// Maximum length of a name. Kubernetes allows 253 bytes, others less.
const MAX_NAME_BYTES: usize = 253;

/// Maximum length of an image's name, which consists of a registry, a path, a tag and a digest.
const MAX_IMAGE_BYTES: usize = 512;

/// Reads a regular file of at most `max` bytes. Some files are in home directories, and their
/// owners can replace them with anything. This function therefore neither follows a link nor waits
/// for a pipe.
pub(super) fn read(path: &Path, max: u64) -> Result<Vec<u8>, GroupsUnnamed> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => GroupsUnnamed::NoState,
            ErrorKind::PermissionDenied => GroupsUnnamed::Denied,
            _ => GroupsUnnamed::UnknownFormat,
        })?;
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    let mut bytes = Vec::new();
    let read = file.take(max + 1).read_to_end(&mut bytes);
    if is_file && read.is_ok() && bytes.len() as u64 <= max {
        Ok(bytes)
    } else {
        Err(GroupsUnnamed::UnknownFormat)
    }
}

/// Returns `text` if it can be the name of a user, container or pod.
pub(super) fn name(text: &str) -> Option<String> {
    let is_allowed = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    let is_name = !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.chars().all(is_allowed);
    is_name.then(|| text.to_owned())
}

/// Returns `text` if it can be the name of an image.
pub(super) fn image(text: &str) -> Option<String> {
    let is_image = !text.is_empty() && text.len() <= MAX_IMAGE_BYTES;
    let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    (is_image && is_printable).then(|| text.to_owned())
}
