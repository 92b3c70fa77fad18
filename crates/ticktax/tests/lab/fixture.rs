//! What the tests stand on: the command, and which kernels can be had.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use ticktax_fixture::guests::{apt_has, why_no_guest};

/// Debian's kernel for clouds: the smallest that it has.
pub(crate) const CLOUD: &str = "linux-image-cloud-amd64";

/// Why a test with this kernel cannot run here.
pub(crate) fn why_not(kernel: &str) -> Option<String> {
    if let Some(why) = why_no_guest() {
        return Some(why);
    }
    if listed(kernel) {
        return None;
    }
    (!apt_has(&[kernel])).then(|| format!("{kernel} is not in the cache, and apt does not know it"))
}

/// Whether this kernel is in the cache.
pub(crate) fn listed(kernel: &str) -> bool {
    let listed = ticktax().args(["lab", "list"]).output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let is_it = |line: &str| line.split_whitespace().next() == Some(kernel);
    listed.is_ok_and(|listed| listed.lines().any(is_it))
}

/// The command.
pub(crate) fn ticktax() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ticktax"))
}

/// `lab run` with a kernel; what follows is for the test to say.
pub(crate) fn lab_run(kernel: &str) -> Command {
    let mut command = ticktax();
    command.args(["lab", "run", "--kernel", kernel]);
    command
}

/// What a command says on standard error.
pub(crate) fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The processes with this folder in their arguments.
pub(crate) fn running_in(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines
        .filter(|line| line.starts_with("qemu") && line.contains(&folder))
        .collect()
}

/// Waits until `true`, for at most 20 s.
pub(crate) fn eventually(mut what: impl FnMut() -> bool) -> bool {
    (0..400).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        what()
    })
}
