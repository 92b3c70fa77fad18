//! `cargo xtask kernels`: the committed BPF object on every kernel that Debian has, of both architectures,
//! in guests of the lab; docs/kernels.md is its table.
//!
//! In each guest a real-time thread disturbs the CPU by a known part of its time. What an audit there says has to
//! be that. A guest's time is what its instructions take, so that a row does not depend on the machine. What came of a kernel is kept under
//! target/kernels, and is not done again for the same binary. Guests of this machine's architecture run the command as
//! tests do, the others what `cargo xtask cross` builds.

mod row;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::cross::{TARGETS, Target, build_here};
use crate::{read, renew, root};
use row::Row;

/// Suites of Debian, the oldest first.
const SUITES: [&str; 7] = [
    "bullseye",
    "bookworm",
    "bookworm-backports",
    "trixie",
    "trixie-backports",
    "sid",
    "experimental",
];

/// What their kernels are for.
const FLAVOURS: [&str; 3] = ["cloud-", "rt-", ""];

/// The file with the audit's statement.
const STATEMENT: &str = "statement.json";
/// Where the table stands.
const PAGE: &str = "docs/kernels.md";
/// The lines around it.
const MARKS: (&str, &str) = ("<!-- cargo xtask kernels -->", "<!-- end -->");

/// Boots all kernels, or those whose names have one of `words` in them, and writes their rows and those of
/// kernels that were booted before.
pub(crate) fn make(words: &[&str]) -> Result<String, String> {
    let command = build_here("ticktax", "dev")?;
    let mut all: Vec<(Target, String)> = Vec::new();
    for suite in SUITES {
        for target in TARGETS {
            let arch = target.debian;
            let names = FLAVOURS.map(|flavour| format!("{suite}:linux-image-{flavour}{arch}"));
            all.extend(names.into_iter().map(|name| (target, name)));
        }
    }
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let mut rows = Vec::new();
    for target in TARGETS {
        let mine = all.iter().filter(|(of, _)| *of == target);
        let mine: Vec<&String> = mine.map(|(_, name)| name).collect();
        let programs = ["ticktax", "ticktax-inject"].map(|package| {
            if target.machine == std::env::consts::ARCH {
                build_here(package, "dev")
            } else {
                target.build(package, &root().join("target"), "release")
            }
        });
        let [binary, inject] = programs;
        let (binary, inject) = (binary?, inject?);
        let key = digest(&binary)?;
        for name in mine {
            let guest = Guest {
                command: &command,
                binary: &binary,
                inject: &inject,
                key: &key,
            };
            if is_wanted(name) || guest.is_known(name) {
                eprintln!("{name}");
                rows.push(Row::of(name, guest.statement(name)));
            }
        }
    }
    let wrong: Vec<&Row> = rows.iter().filter(|row| !row.is_right()).collect();
    let lines: Vec<String> = rows.iter().map(ToString::to_string).collect();
    let table = lines.join("\n") + "\n";
    let message = format!(
        "{table}{} of {} kernels are right",
        rows.len() - wrong.len(),
        rows.len()
    );
    let page = String::from_utf8_lossy(&read(PAGE)?).into_owned();
    let page = with_table(&page, &format!("{}{table}", row::HEAD))?;
    let written = renew(PAGE, page.as_bytes())?;
    Ok(format!("{message}\n{written}"))
}

/// The page with another table.
fn with_table(page: &str, table: &str) -> Result<String, String> {
    let (begin, end) = MARKS;
    let parts = page.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| format!("{PAGE} has no {begin}"))?;
    Ok(format!("{before}{begin}\n{table}{end}{after}"))
}

/// What a guest is made of.
struct Guest<'a> {
    command: &'a Path,
    binary: &'a Path,
    inject: &'a Path,
    key: &'a str,
}

impl Guest<'_> {
    /// Whether this kernel was booted with this binary before.
    fn is_known(&self, kernel: &str) -> bool {
        let folder = folder_of(kernel);
        let key = fs::read_to_string(folder.join("binary"));
        key.is_ok_and(|key| key == self.key) && folder.join(STATEMENT).is_file()
    }

    /// What an audit says in a guest with this kernel, and what really was; or why there is none.
    fn statement(&self, kernel: &str) -> Result<(Value, Value), String> {
        let folder = folder_of(kernel);
        let said = folder.join(STATEMENT);
        if !self.is_known(kernel) {
            // What an earlier binary said is not what this one says.
            drop(fs::remove_dir_all(&folder));
            fs::create_dir_all(&folder)
                .map_err(|error| format!("cannot make a folder: {error}"))?;
            self.boot(kernel, &folder, &said)?;
            let key = folder.join("binary");
            fs::write(key, self.key).map_err(|error| format!("cannot write: {error}"))?;
        }
        let json = |file: PathBuf| {
            let text =
                fs::read_to_string(&file).map_err(|error| format!("cannot read: {error}"))?;
            serde_json::from_str(&text).map_err(|error| format!("it is no JSON: {error}"))
        };
        Ok((json(said)?, json(folder.join("ticktax-inject-0.stdout"))?))
    }

    fn boot(&self, kernel: &str, folder: &Path, said: &Path) -> Result<(), String> {
        let inject = self.inject.display();
        let mut command = Command::new(self.command);
        command
            .args([
                "lab", "run", "--kernel", kernel, "--limit", "20m", "--binary",
            ])
            .arg(self.binary)
            .arg("--beside")
            .arg(format!(
                "{inject} fifo --cpu 0 --period 40ms --length 2ms --for 5m --json"
            ))
            .arg("--keep")
            .arg(folder)
            .arg("--console")
            .arg(folder.join("console"))
            .args(["--format", "json", "--output"])
            .arg(said)
            .args(["--", "audit", "--for", "2s"]);
        let output = command
            .output()
            .map_err(|error| format!("cannot run ticktax: {error}"))?;
        // Books that do not balance are told by the row.
        let is_written = fs::metadata(said).is_ok_and(|file| file.len() > 0);
        if output.status.success() || is_written {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = why.lines().next_back().unwrap_or("it did not say why");
        Err(why.trim_start_matches("ticktax: ").to_owned())
    }
}

/// Where it is kept what came of a kernel.
fn folder_of(kernel: &str) -> PathBuf {
    root().join("target/kernels").join(kernel.replace(':', "-"))
}

fn digest(file: &Path) -> Result<String, String> {
    let bytes =
        fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Ok(format!("{:x}", Sha256::digest(bytes)))
}

#[cfg(test)]
mod tests {
    use super::{MARKS, with_table};

    #[test]
    fn a_table_is_put_where_the_last_one_was() {
        let (begin, end) = MARKS;
        let page = format!("before\n{begin}\nold\n{end}\nafter\n");
        let fresh = with_table(&page, "new\n").unwrap();
        assert_eq!(fresh, format!("before\n{begin}\nnew\n{end}\nafter\n"));
        assert!(with_table("nothing", "new").is_err());
    }
}
