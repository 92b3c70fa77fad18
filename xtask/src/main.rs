//! The project's chores, run as `cargo xtask …`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a chore prints to the terminal"
)]

mod bpf;
mod clang;
mod cross;
mod dist;
mod gallery;
mod kernels;
mod prose;
mod record;
mod screens;
mod script;
mod tiers;
mod timeline;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  bpf                             build the BPF objects, and generate record.rs and object.rs
  bpf --check                     check that the committed objects and files are current
  cross [ARCH…] [--profile=NAME]  build the static command for amd64 and arm64
  dist [ARCH…]                    build a release: commands, Debian packages, SBOM, licences
  dist --check                    build a release twice and compare the bytes
  gallery                         create the reports and pictures of docs/gallery.md, as root
  kernels [WORD…]                 audit guests with many kernels; update docs/reference/kernels.md
  prose                           compare style violations in prose with xtask/prose.txt
  prose --list FOLDER             list the violations, with better wording
  prose --lower                   lower the limits to the present numbers
  script                          build the timeline's script, crates/report/script
  script --check                  check its types, tests and the committed build
  screens                         measure the screens of the README and docs, as root
  test TIER [N]                   run a tier N times: live, kernels, arm64 or browser
  timeline                        measure timelines of 1 M and 10 M spans in Chromium
  timeline --libraries            compare other libraries that could draw them";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["bpf"] => bpf::build(),
        ["bpf", "--check"] => bpf::check(),
        ["cross", ref words @ ..] => cross::build(words),
        ["dist", ref words @ ..] => dist::make(words),
        ["kernels", ref words @ ..] => kernels::make(words),
        ["prose"] => prose::check(),
        ["prose", "--list", folder] => prose::list(folder),
        ["prose", "--lower"] => prose::lower(),
        ["script"] => script::build(),
        ["script", "--check"] => script::check(),
        ["screens"] => screens::write(None),
        ["screens", binary] => screens::write(Some(binary)),
        ["gallery"] => gallery::make(None),
        ["gallery", binary] => gallery::make(Some(binary)),
        ["test", ref words @ ..] => tiers::test(words),
        ["timeline"] => timeline::measure(None, false),
        ["timeline", "--libraries"] => timeline::measure(None, true),
        ["timeline", binary] => timeline::measure(Some(binary), false),
        ["timeline", binary, "--libraries"] => timeline::measure(Some(binary), true),
        ["help" | "--help" | "-h"] => Ok(USAGE.to_owned()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Writes a file if its contents have changed. Returns a message about whether they have.
fn renew(file: &str, fresh: &[u8]) -> Result<String, String> {
    let path = root().join(file);
    if fs::read(&path).is_ok_and(|committed| committed == fresh) {
        return Ok(format!("{file} is as it was"));
    }
    fs::write(&path, fresh).map_err(|error| format!("cannot write {file}: {error}"))?;
    Ok(format!("{file} is new: {} bytes", fresh.len()))
}

/// Fails if a committed file differs from the generated one, which the command `run` regenerates.
fn compare(file: &str, fresh: &[u8], run: &str) -> Result<(), String> {
    if read(file)? == fresh {
        return Ok(());
    }
    Err(format!(
        "{file} is not what its source gives: run `{run}` and commit it"
    ))
}

fn read(file: &str) -> Result<Vec<u8>, String> {
    fs::read(root().join(file)).map_err(|error| format!("cannot read {file}: {error}"))
}

/// Returns the workspace's directory, from the value that cargo sets at run time. The value at
/// build time could name a different checkout that shares the target directory.
fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.join("..")
}
