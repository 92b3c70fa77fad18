//! The compiler for the BPF objects.
//!
//! Its version is the one in Debian 12. The committed objects are compared byte for byte, and other
//! versions produce other bytes.

use std::path::Path;
use std::process::Command;

use crate::cross::run;

const VERSION: u32 = 14;

/// clang and llvm-strip in the required version.
pub(crate) struct Clang {
    compiler: String,
    strip: String,
}

impl Clang {
    /// Finds both tools in PATH.
    pub(crate) fn find() -> Result<Self, String> {
        Ok(Self {
            compiler: tool("clang")?,
            strip: tool("llvm-strip")?,
        })
    }

    /// Compiles `source` to `object`. `source` is relative to the directory `root`.
    ///
    /// The compiler runs in `root` and records that directory as `.`, because the line information
    /// in the object names the source file.
    pub(crate) fn compile(&self, root: &Path, source: &str, object: &Path) -> Result<(), String> {
        let mut compiler = Command::new(&self.compiler);
        compiler
            .current_dir(root)
            .args(["--target=bpfel", "-mcpu=v3", "-O2", "-g"])
            // The BPF programs read names and record marks as whole machine words.
            .arg("-fno-strict-aliasing")
            .args(["-Wall", "-Werror", "-Wno-unused-function"])
            .arg("-fdebug-compilation-dir=.")
            .args(["-c", source, "-o"])
            .arg(object);
        run(&mut compiler)?;
        // Remove the debug information, but keep the BTF.
        run(Command::new(&self.strip).arg("-g").arg(object))
    }
}

/// Returns the command name of a tool in the required version: its name with Debian's version
/// suffix, or its plain name.
pub(crate) fn tool(name: &str) -> Result<String, String> {
    [format!("{name}-{VERSION}"), name.to_owned()]
        .into_iter()
        .find(|candidate| version(candidate) == Some(VERSION))
        .ok_or_else(|| {
            format!(
                "{name} {VERSION} is missing: install it (Debian 12: apt-get install \
                 clang-{VERSION} llvm-{VERSION}), since other versions write other bytes"
            )
        })
}

/// Returns the major version that a tool reports, or `None` if the tool does not run.
fn version(tool: &str) -> Option<u32> {
    let output = Command::new(tool).arg("--version").output().ok()?;
    major(&String::from_utf8_lossy(&output.stdout))
}

/// Returns the number after the word `version` in `text`.
fn major(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once(" version ")?;
    rest.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn versions_are_parsed_from_the_tools_output() {
        assert_eq!(
            major("Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu"),
            Some(14)
        );
        assert_eq!(
            major("llvm-strip, compatible with GNU strip\nDebian LLVM version 14.0.6"),
            Some(14)
        );
        assert_eq!(major("Ubuntu clang version 18.1.3 (1ubuntu1)"), Some(18));
        assert_eq!(major("no number"), None);
    }
}
