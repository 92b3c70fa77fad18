//! `cargo xtask script`: builds the script that timeline pages contain. The result is committed, so
//! that users do not need Node.

use std::process::Command;

use crate::{compare, renew, root};

/// Directory that contains the source of the script.
const FOLDER: &str = "crates/report/script";
/// The built script that pages contain.
const BUILT: &str = "crates/report/src/html/timeline/timeline.min.js";
/// Command that regenerates the script.
const RUN: &str = "cargo xtask script";

/// Builds the script and writes it to the committed file.
pub(crate) fn build() -> Result<String, String> {
    renew(BUILT, &built()?)
}

/// Checks the script's types, runs its tests, and compares the committed script with a new build.
pub(crate) fn check() -> Result<String, String> {
    let fresh = built()?;
    npm(&["run", "--silent", "types"])?;
    npm(&["test", "--silent"])?;
    compare(BUILT, &fresh, RUN)?;
    Ok(format!("{BUILT} is what {FOLDER} gives"))
}

/// Builds the script with the package versions in `package-lock.json`.
fn built() -> Result<Vec<u8>, String> {
    npm(&["ci", "--no-audit", "--no-fund", "--silent"])?;
    npm(&["run", "--silent", "build"])
}

/// Runs npm in the script's directory and returns its output.
fn npm(arguments: &[&str]) -> Result<Vec<u8>, String> {
    let called = format!("npm {} in {FOLDER}", arguments.join(" "));
    let mut npm = Command::new("npm");
    let output = npm
        .args(arguments)
        .current_dir(root().join(FOLDER))
        .output();
    let output = output
        .map_err(|error| format!("cannot run {called}: {error}; it comes with Node 20 or later"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(format!(
        "{called} failed: {}\n{}",
        output.status,
        said.trim()
    ))
}
