//! `cargo xtask kernels`: tests the committed BPF objects in lab guests. It covers every Debian
//! kernel on both architectures, and kernels that the lab builds. The results are the tables in
//! docs/reference/kernels.md.
//!
//! In each guest, a real-time thread uses a known share of the CPU, and a known number of
//! interrupts is sent. The audit must report both. A guest's clock counts the guest's instructions,
//! so a row does not depend on the machine that runs the guest. Results are kept in target/kernels,
//! and reused as long as the binaries stay the same. The guests run the command from the build that
//! the tests use, or from a cross build for the other architecture.

mod builds;
mod row;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::cross::{TARGETS, Target, build_here};
use crate::{read, renew, root};
use builds::{BUILDS, Build};
use row::{Row, Truth};

/// Debian suites, oldest first.
const SUITES: [&str; 7] = [
    "bullseye",
    "bookworm",
    "bookworm-backports",
    "trixie",
    "trixie-backports",
    "sid",
    "experimental",
];

/// Flavours of the kernels in these suites. The standard kernel is the empty string.
const FLAVOURS: [&str; 3] = ["cloud-", "rt-", ""];

/// Suites that have arm64 kernels with 16 KiB pages.
const WITH_LARGE_PAGES: [&str; 5] = [
    "bookworm-backports",
    "trixie",
    "trixie-backports",
    "sid",
    "experimental",
];

/// Name of the file with the audit's statement.
const STATEMENT: &str = "statement.json";

/// Disturbances in the guest, as arguments for ticktax-inject: a thread that runs periodically, and
/// periodic interrupts.
const BESIDE: [&str; 2] = [
    "fifo --cpu 0 --period 40ms --length 2ms --for 5m --json",
    "irq-work --cpu 0 --period 10ms --for 5m --json",
];
/// Arguments of the audit that runs in the guest.
const AUDIT: [&str; 5] = ["audit", "--probe", "spin", "--for", "2s"];

/// The document that contains the tables.
const PAGE: &str = "docs/reference/kernels.md";

/// A table in the document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    /// Debian's kernels.
    Debian,
    /// Kernels built by the lab.
    Built,
}

impl Table {
    const ALL: [Self; 2] = [Self::Debian, Self::Built];

    /// Returns the kernels in the table with their architectures, in the order of the rows.
    fn kernels(self) -> Vec<(Target, String)> {
        match self {
            Self::Debian => debian(),
            Self::Built => BUILDS
                .iter()
                .map(|build| (build.target, build.kernel()))
                .collect(),
        }
    }

    /// Returns the marker lines before and after the table.
    fn marks(self) -> (&'static str, &'static str) {
        match self {
            Self::Debian => ("<!-- cargo xtask kernels -->", "<!-- end -->"),
            Self::Built => (
                "<!-- cargo xtask kernels hz250 -->",
                "<!-- end of those -->",
            ),
        }
    }
}

/// Returns every Debian kernel to test, with its architecture.
fn debian() -> Vec<(Target, String)> {
    let mut all = Vec::new();
    for target in TARGETS {
        for suite in SUITES {
            let arch = target.debian;
            let names = FLAVOURS.map(|flavour| format!("{suite}:linux-image-{flavour}{arch}"));
            all.extend(names.into_iter().map(|name| (target, name)));
            if arch == "arm64" && WITH_LARGE_PAGES.contains(&suite) {
                all.push((target, format!("{suite}:linux-image-{arch}-16k")));
            }
        }
    }
    all
}

/// Boots all kernels, or those whose names contain one of `words`. Returns the rows of these
/// kernels and of those booted earlier. Writes a table to the document only if all of its rows are
/// available.
pub(crate) fn make(words: &[&str]) -> Result<String, String> {
    let command = build_here("ticktax", "dev")?;
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let (mut tables, mut said) = (Vec::new(), Vec::new());
    for table in Table::ALL {
        let kernels = table.kernels();
        if !kernels.iter().any(|(_, name)| is_wanted(name)) {
            continue;
        }
        let mut rows = Vec::new();
        for target in TARGETS {
            let is_on_target = |entry: &&(Target, String)| entry.0 == target;
            let mine: Vec<&String> = kernels
                .iter()
                .filter(is_on_target)
                .map(|entry| &entry.1)
                .collect();
            // Skip an architecture if none of its kernels was requested or booted earlier, so that
            // nothing is built for it.
            if mine
                .iter()
                .any(|name| is_wanted(name) || folder_of(name).is_dir())
            {
                rows.extend(rows_of(target, &mine, &command, is_wanted)?);
            }
        }
        let right = rows.iter().filter(|row| row.is_right()).count();
        let lines: Vec<String> = rows.iter().map(ToString::to_string).collect();
        let lines = lines.join("\n") + "\n";
        if rows.len() == kernels.len() {
            tables.push((table.marks(), format!("{}{lines}", row::HEAD)));
        }
        let count = rows.len();
        said.push(format!("{lines}{right} of {count} kernels are right"));
    }
    if said.is_empty() {
        return Err(format!(
            "no kernel has one of these in its name: {}",
            words.join(", ")
        ));
    }
    // Read the document only now: it may have changed while the guests were running, which takes
    // long.
    let mut page = String::from_utf8_lossy(&read(PAGE)?).into_owned();
    for ((begin, end), table) in tables {
        page = with_table(&page, begin, end, &table)?;
    }
    said.push(renew(PAGE, page.as_bytes())?);
    Ok(said.join("\n"))
}

/// Returns the rows for an architecture's kernels that were requested or booted earlier.
fn rows_of(
    target: Target,
    kernels: &[&String],
    command: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Row>, String> {
    let programs = ["ticktax", "ticktax-inject"].map(|package| {
        if target.machine == std::env::consts::ARCH {
            build_here(package, "dev")
        } else {
            target.build(package, &root().join("target"), "dev")
        }
    });
    let [binary, inject] = programs;
    let (binary, inject) = (binary?, inject?);
    let guest = Guest {
        command,
        key: &format!("{} {}", digest(&binary)?, digest(&inject)?),
        binary: &binary,
        inject: &inject,
    };
    let mut rows = Vec::new();
    for name in kernels {
        if is_wanted(name) || guest.is_known(name) {
            eprintln!("{name}");
            rows.push(Row::new(name, guest.statement(name)));
        }
    }
    Ok(rows)
}

/// Returns the document with one table replaced.
fn with_table(page: &str, begin: &str, end: &str, table: &str) -> Result<String, String> {
    let parts = page.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| format!("{PAGE} has no {begin}"))?;
    Ok(format!("{before}{begin}\n{table}{end}{after}"))
}

/// The files that a guest is started from.
struct Guest<'a> {
    command: &'a Path,
    binary: &'a Path,
    inject: &'a Path,
    key: &'a str,
}

impl Guest<'_> {
    /// Returns whether this kernel has already been booted with this binary.
    fn is_known(&self, kernel: &str) -> bool {
        let folder = folder_of(kernel);
        let key = fs::read_to_string(folder.join("key"));
        let is_same = self
            .key(kernel)
            .is_ok_and(|wanted| key.is_ok_and(|key| key == wanted));
        is_same && folder.join(STATEMENT).is_file()
    }

    /// Runs an audit in a guest with this kernel. Returns the audit's statement and the injectors'
    /// reports, or why it failed.
    fn statement(&self, kernel: &str) -> Result<(Value, Truth), String> {
        let folder = folder_of(kernel);
        let said = folder.join(STATEMENT);
        if !self.is_known(kernel) {
            // Remove the results from an earlier binary.
            drop(fs::remove_dir_all(&folder));
            fs::create_dir_all(&folder)
                .map_err(|error| format!("cannot make a folder: {error}"))?;
            self.boot(kernel, &folder)?;
            let key = self.key(kernel)?;
            fs::write(folder.join("key"), key).map_err(|error| format!("cannot write: {error}"))?;
        }
        let json = |file: PathBuf| {
            let text =
                fs::read_to_string(&file).map_err(|error| format!("cannot read: {error}"))?;
            serde_json::from_str(&text).map_err(|error| format!("it is not JSON: {error}"))
        };
        let truth = |number: usize| json(folder.join(format!("ticktax-inject-{number}.stdout")));
        let truth = Truth {
            thread: truth(0)?,
            interrupts: truth(1)?,
        };
        Ok((json(said)?, truth))
    }

    /// Returns a digest of everything that a guest's result depends on, except one: if Debian
    /// updates a kernel after its first boot, the digest stays the same.
    fn key(&self, kernel: &str) -> Result<String, String> {
        let build = BUILDS.iter().find(|build| build.kernel() == kernel);
        let config = build.map(Build::identity).transpose()?.unwrap_or_default();
        let all = format!("{} {BESIDE:?} {AUDIT:?} {config}", self.key);
        Ok(format!("{:x}", Sha256::digest(all)))
    }

    fn boot(&self, kernel: &str, folder: &Path) -> Result<(), String> {
        let build = BUILDS.iter().find(|build| build.kernel() == kernel);
        if let Some(build) = build {
            build.build(self.command, folder)?;
        }
        let said = folder.join(STATEMENT);
        let inject = self.inject.display();
        let mut command = Command::new(self.command);
        command
            .args(["lab", "run", "--kernel", kernel, "--limit", "20m"])
            .arg("--binary")
            .arg(self.binary)
            .args(
                BESIDE.iter().flat_map(|disturbance| {
                    ["--beside".to_owned(), format!("{inject} {disturbance}")]
                }),
            )
            .args(["--cmdline", build.map_or("", |build| build.parameters)])
            .arg("--guest-files")
            .arg(folder)
            .arg("--console")
            .arg(folder.join("console"))
            .args(["--format", "json", "--output"])
            .arg(&said)
            .arg("--")
            .args(AUDIT);
        let output = command
            .output()
            .map_err(|error| format!("cannot run ticktax: {error}"))?;
        // An audit whose accounts do not balance fails, but it still writes a statement, and the
        // row reports the imbalance.
        let is_written = fs::metadata(said).is_ok_and(|file| file.len() > 0);
        if output.status.success() || is_written {
            return Ok(());
        }
        Err(last_words(&output.stderr))
    }
}

/// Returns the directory for a kernel's results.
fn folder_of(kernel: &str) -> PathBuf {
    root().join("target/kernels").join(kernel.replace(':', "-"))
}

/// Returns the last line of a failed command's output.
fn last_words(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let last = said.lines().next_back().unwrap_or("it did not say why");
    last.trim_start_matches("ticktax: ").to_owned()
}

fn digest(file: &Path) -> Result<String, String> {
    let bytes =
        fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Ok(format!("{:x}", Sha256::digest(bytes)))
}

#[cfg(test)]
mod tests {
    use super::{Table, with_table};

    #[test]
    fn a_table_replaces_the_previous_one() {
        let (begin, end) = Table::Built.marks();
        let page = format!("before\n{begin}\nold\n{end}\nafter\n");
        let fresh = with_table(&page, begin, end, "new\n").unwrap();
        assert_eq!(fresh, format!("before\n{begin}\nnew\n{end}\nafter\n"));
        assert!(with_table("nothing", begin, end, "new").is_err());
    }
}
