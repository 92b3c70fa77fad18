//! Helpers that run the command and find the available kernels.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::unistd::Pid;
use ticktax_fixture::guests::{apt_has, why_no_guest};
use ticktax_lab::Arch;
use ticktax_lab::kernel::{Cache, Unpacked, find};
use ticktax_model::statement::Statement;

use crate::inside::Outcome;

/// Debian's kernel for virtual machines in a cloud, the smallest kernel that Debian has.
pub(crate) const CLOUD: &str = "linux-image-cloud-amd64";

/// Returns why a test with this kernel cannot run here, or `None` if it can.
pub(crate) fn why_not(kernel: &str) -> Option<String> {
    if let Some(why) = why_no_guest() {
        return Some(why);
    }
    if kernel.contains(':') {
        return why_not_there(kernel);
    }
    if listed(kernel) {
        return None;
    }
    (!apt_has(&[kernel])).then(|| format!("{kernel} is not in the cache, and apt does not know it"))
}

/// If necessary, puts a kernel from another Debian suite or for another architecture into the
/// cache. Returns why that kernel is not available, or `None` if it is.
pub(crate) fn why_not_there(kernel: &str) -> Option<String> {
    if listed(kernel) {
        return None;
    }
    let variable = std::env::var_os;
    let found = Cache::of_user(variable("XDG_CACHE_HOME"), variable("HOME"))
        .and_then(|cache| find(&kernel.parse().unwrap(), &cache, &mut |_| {}));
    found.err().map(|error| error.to_string())
}

pub(crate) fn listed(kernel: &str) -> bool {
    let listed = ticktax().args(["lab", "list"]).output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let is_listed = |line: &str| line.split_whitespace().next() == Some(kernel);
    listed.is_ok_and(|listed| listed.lines().any(is_listed))
}

pub(crate) fn ticktax() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ticktax"))
}

/// Returns the path of the kernel in the unpacked package, and its release.
pub(crate) fn kernel_in(package: &Unpacked) -> Outcome<(PathBuf, String)> {
    let boot = package.files.join("boot");
    let mut names = fs::read_dir(&boot)?
        .flatten()
        .map(|entry| entry.file_name());
    let kernel = names.find_map(|name| {
        let release = name.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
        Some((boot.join(&name), release))
    });
    Ok(kernel.ok_or("the package has no kernel")?)
}

/// Time limit for a guest, by the host's clock. A guest takes up to a minute of CPU time. On a host
/// with a load average of 16, it gets an eighth of a CPU, so it can need 8 minutes.
pub(crate) const LIMIT: &str = "10m";

/// Returns a `lab run` command with this kernel. The caller adds all other arguments.
pub(crate) fn lab_run(kernel: &str) -> Command {
    lab_run_within(LIMIT, kernel)
}

pub(crate) fn lab_run_within(limit: &str, kernel: &str) -> Command {
    let mut command = ticktax();
    command.args(["lab", "run", "--limit", limit, "--kernel", kernel]);
    command
}

pub(crate) fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the QEMU processes that have `folder` in their arguments, together with those arguments.
pub(crate) fn qemus_in(folder: &Path) -> Vec<(Pid, String)> {
    let folder = folder.to_string_lossy().into_owned();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let qemu = |process: fs::DirEntry| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let line = fs::read(process.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let is_match = line.starts_with("qemu") && line.contains(&folder);
        is_match.then_some((Pid::from_raw(pid), line))
    };
    processes.filter_map(qemu).collect()
}

pub(crate) fn running_in(folder: &Path) -> Vec<String> {
    let qemus = qemus_in(folder).into_iter();
    qemus.map(|(_, line)| line).collect()
}

/// Waits for a condition to hold, for at most two minutes. Returns whether it holds.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    (0..2_400).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        condition()
    })
}

/// Returns the path of the program `package`, built for guests of `arch`. For an architecture other
/// than the host's, that is the static build. Returns `None` if the program has not been built.
pub(crate) fn built(arch: Arch, package: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_BIN_EXE_ticktax"));
    if arch == Arch::HOST {
        return Some(own.with_file_name(package)).filter(|file| file.is_file());
    }
    let target = own.ancestors().nth(2)?.join(arch.target());
    let all = ["dist", "release", "debug"].map(|profile| target.join(profile).join(package));
    // Choose the one that was built last, as `lab run` does.
    let written = |file: &PathBuf| {
        fs::metadata(file)
            .and_then(|metadata| metadata.modified())
            .ok()
    };
    let found = all.into_iter().filter(|file| file.is_file());
    found.max_by_key(written)
}

/// Runs an audit in a guest and returns its statement. `more` has additional arguments for `lab
/// run`.
pub(crate) fn audit(kernel: &str, more: &[&str], verb: &[&str]) -> Statement {
    let mut command = lab_run(kernel);
    command
        .args(more)
        .args(["--format", "json", "--", "audit"])
        .args(verb);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}
