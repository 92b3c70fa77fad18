//! Runs the external programs that fetch and build kernels.

use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use libc::{SIGINT, SIGTERM};
use sha2::{Digest, Sha256};

use crate::error::{LabError, NO_SPACE};
use crate::sys::die_with_parent;

/// Runs a program and waits for it to exit. `packages` lists the Debian packages that contain it. A
/// Ctrl-C at the terminal also terminates the program.
pub(super) fn run(command: &mut Command, packages: &str) -> Result<Output, LabError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = die_with_parent(command)
        .output()
        .map_err(|error| LabError::start(&name, packages, &error))?;
    if output.status.success() {
        return Ok(output);
    }
    if output
        .status
        .signal()
        .is_some_and(|signal| [SIGINT, SIGTERM].contains(&signal))
    {
        return Err(LabError::Interrupted);
    }
    // Include the last arguments in the error message, because they say what was being done. Leave
    // out options and temporary files.
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy());
    let relevant: Vec<_> = arguments
        .filter(|argument| !argument.contains('/'))
        .collect();
    let last = &relevant[relevant.len().saturating_sub(2)..];
    let shown: Vec<_> = [name.into()].into_iter().chain(last.to_vec()).collect();
    Err(LabError::Tool {
        program: shown.join(" "),
        why: last_words(&output.stderr, &output.stdout),
    })
}

/// Returns the line in a program's messages that best explains why it failed: the first line that
/// mentions an error or, if there is none, the last line.
pub(super) fn last_words(errors: &[u8], output: &[u8]) -> String {
    for bytes in [errors, output] {
        let text = String::from_utf8_lossy(bytes);
        let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
        // If the disk fills up within a block, tar prints `Wrote only`.
        let says_full =
            |line: &str| line.contains("No space left") || line.contains(": Wrote only ");
        let full = lines().find(|line| says_full(line));
        if full.is_some() {
            return NO_SPACE.to_owned();
        }
        let wrong = lines().find(|line| line.contains("rror:") || line.starts_with("E: "));
        if let Some(line) = wrong.or_else(|| lines().next_back()) {
            return line.to_owned();
        }
    }
    "no reason given".to_owned()
}

pub(super) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns the SHA-256 digest of `bytes` in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digits(&digest)
}

/// Returns the SHA-256 digest of a file in hexadecimal.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn sha256_of(file: &Path) -> Result<String, LabError> {
    let failed = || LabError::file("read", file);
    let mut open = std::fs::File::open(file).map_err(failed())?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut open, &mut hasher).map_err(failed())?;
    let digest = hasher.finalize();
    Ok(digits(&digest))
}

fn digits(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::{NO_SPACE, last_words, sha256};

    #[test]
    fn digests_match_published_values() {
        // Test vector from FIPS 180-2, appendix B.1.
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn the_error_line_is_picked_from_the_output() {
        let words = b"cc1: note\nfoo.c:3: error: no\nmake: *** [x] Error 1\n";
        assert_eq!(last_words(words, b""), "foo.c:3: error: no");
        assert_eq!(last_words(b"\n", b"a\nb\n"), "b");
        assert_eq!(last_words(b"", b""), "no reason given");
        let full = b"tar: x: Cannot write: No space left on device\ntar: Error is not recoverable";
        assert_eq!(last_words(full, b""), NO_SPACE);
    }
}
