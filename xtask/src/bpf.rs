//! `cargo xtask bpf`: builds the BPF objects, which are committed so that users do not need clang.
//! Also generates the Rust modules that contain the objects' records and names.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::clang::Clang;
use crate::record::{self, Modules};
use crate::{compare, read, renew, root};

const SOURCE: &str = "crates/trace/bpf/ticktax.bpf.c";
const OBJECT: &str = "crates/trace/bpf/ticktax.bpf.o";
/// All objects except [`OBJECT`], each with its source. The object for old kernels has the same
/// records as [`OBJECT`]. The others have none: the program that tests which of those two a kernel
/// accepts, the counter of dropped datagrams, and the watches on cgroups, on writes
/// to disks and on throttled writers.
const OTHERS: [(&str, &str); 6] = [
    (
        "crates/trace/bpf/before_5_12.bpf.c",
        "crates/trace/bpf/before_5_12.bpf.o",
    ),
    (
        "crates/trace/bpf/takes_atomics.bpf.c",
        "crates/trace/bpf/takes_atomics.bpf.o",
    ),
    (
        "crates/trace/bpf/drops.bpf.c",
        "crates/trace/bpf/drops.bpf.o",
    ),
    (
        "crates/trace/bpf/groups.bpf.c",
        "crates/trace/bpf/groups.bpf.o",
    ),
    (
        "crates/trace/bpf/writes.bpf.c",
        "crates/trace/bpf/writes.bpf.o",
    ),
    (
        "crates/trace/bpf/pressure.bpf.c",
        "crates/trace/bpf/pressure.bpf.o",
    ),
];
const HEADER: &str = "crates/trace/bpf/record.h";
const RECORDS: &str = "crates/trace/src/record.rs";
const NAMES: &str = "crates/trace/src/object.rs";
/// Command that regenerates the objects and the modules.
const RUN: &str = "cargo xtask bpf";

/// Compiles the sources into the committed objects, and generates the modules from the first one.
pub(crate) fn build() -> Result<String, String> {
    let object = compile(SOURCE)?;
    let modules = modules(&object)?;
    let mut said = vec![renew(OBJECT, &object)?];
    for (source, object) in OTHERS {
        said.push(renew(object, &compile(source)?)?);
    }
    said.push(renew(RECORDS, modules.records.as_bytes())?);
    said.push(renew(NAMES, modules.names.as_bytes())?);
    Ok(said.join("\n"))
}

/// Checks that the committed objects match their sources, and that the modules match the first
/// object and its header.
pub(crate) fn check() -> Result<String, String> {
    let object = compile(SOURCE)?;
    compare(OBJECT, &object, RUN)?;
    for (source, object) in OTHERS {
        compare(object, &compile(source)?, RUN)?;
    }
    let modules = modules(&object)?;
    compare(RECORDS, modules.records.as_bytes(), RUN)?;
    compare(NAMES, modules.names.as_bytes(), RUN)?;
    Ok(format!(
        "{OBJECT}, {}, {RECORDS} and {NAMES} are what the sources compile to",
        OTHERS.map(|(_, object)| object).join(", ")
    ))
}

/// Generates the modules for `object`, formatted by rustfmt.
fn modules(object: &[u8]) -> Result<Modules, String> {
    let header = String::from_utf8(read(HEADER)?).map_err(|_| {
        format!(
            "{HEADER} is not UTF-8 \
        text"
        )
    })?;
    let modules = record::generate(object, &header)?;
    Ok(Modules {
        records: formatted(&modules.records)?,
        names: formatted(&modules.names)?,
    })
}

fn formatted(text: &str) -> Result<String, String> {
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--config-path"]);
    let child = rustfmt
        .arg(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let failed = |error| format!("cannot run rustfmt: {error}");
    let mut child = child.map_err(failed)?;
    let mut input = child.stdin.take().ok_or("rustfmt takes no input")?;
    input.write_all(text.as_bytes()).map_err(failed)?;
    drop(input);
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Err(format!("rustfmt failed: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| "rustfmt wrote no text".to_owned())
}

/// Compiles `source` and returns the object code.
fn compile(source: &str) -> Result<Vec<u8>, String> {
    let scratch = Scratch::create()?;
    let object = scratch.0.join("ticktax.bpf.o");
    Clang::find()?.compile(&root(), source, &object)?;
    fs::read(&object).map_err(|error| format!("cannot read {}: {error}", object.display()))
}

/// A private temporary directory, which is removed on drop. A failed compilation leaves nothing
/// behind and never replaces the committed object with an incomplete one.
struct Scratch(PathBuf);

impl Scratch {
    fn create() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("ticktax-xtask-{}", std::process::id()));
        fs::create_dir(&folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Ignore errors: a leftover temporary directory does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Covers the part of `cargo xtask bpf --check` that does not need clang.
#[test]
fn the_modules_match_the_committed_objects() {
    for object in [OBJECT, OTHERS[0].1] {
        let fresh = modules(&read(object).expect("it is committed")).expect("it can be read");
        compare(RECORDS, fresh.records.as_bytes(), RUN).expect("they agree");
        compare(NAMES, fresh.names.as_bytes(), RUN).expect("they agree");
    }
}
