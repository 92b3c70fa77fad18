//! Waits until another process has attached its tracer, which can take long on a busy machine.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;

/// Minimum number of programs that the tracer attaches on every supported kernel.
const AT_LEAST: usize = 20;

/// How to check for an attached tracer: how often, and with what pause between two checks.
#[derive(Clone, Copy)]
struct Looks {
    pause: Duration,
    /// Number of consecutive checks that must have the same result.
    settled: usize,
    most: usize,
}

/// Settings for a live machine: wait up to one minute. Attaching takes 0.1 s of CPU time, which is
/// hard to get on a busy machine.
const LIVE: Looks = Looks {
    pause: Duration::from_millis(25),
    settled: 40,
    most: 2_400,
};

/// Settings for a lab guest. A check takes longer there, and the tracer needs the guest's only CPU
/// to attach. Sleeping costs nothing in a guest, so wait until the set of programs has stayed the
/// same for 4 s. On Linux 5.10, an unoptimised build needed more than 1.2 s between loading its
/// programs and tracing events.
const GUEST: Looks = Looks {
    pause: Duration::from_millis(400),
    settled: 10,
    most: 400,
};

fn programs_of(pid: u32) -> BTreeSet<u32> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let number = |text: String| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())
    };
    let files = files.into_iter().flatten().flatten();
    files
        .filter_map(|file| number(fs::read_to_string(file.path()).ok()?))
        .collect()
}

/// Returns how many of the `programs` are still loaded in the kernel.
fn alive(programs: &BTreeSet<u32>) -> usize {
    let loaded = aya::programs::loaded_programs().filter_map(Result::ok);
    loaded
        .filter(|program| programs.contains(&program.id()))
        .count()
}

/// Waits until the starting process `pid` has attached its tracer, and then another second until
/// the tracer traces events. Returns the IDs of its BPF programs.
pub(crate) fn wait_for_all(pid: u32) -> Result<BTreeSet<u32>, Failed> {
    wait_with(LIVE, pid)
}

/// Does the same as [`wait_for_all`], but in a lab guest.
pub(crate) fn wait_in_guest(pid: u32) -> Result<BTreeSet<u32>, Failed> {
    wait_with(GUEST, pid)
}

fn wait_with(looks: Looks, pid: u32) -> Result<BTreeSet<u32>, Failed> {
    let (mut programs, mut settled) = (BTreeSet::new(), 0);
    wait_until(looks, "attaching", || {
        let seen = programs_of(pid);
        let same = seen == programs && seen.len() >= AT_LEAST && alive(&seen) == seen.len();
        settled = if same { settled + 1 } else { 0 };
        programs = seen;
        settled >= looks.settled
    })?;
    Ok(programs)
}

pub(crate) fn wait_for_none(programs: &BTreeSet<u32>) -> Result<(), Failed> {
    wait_until(LIVE, "unloading", || alive(programs) == 0)
}

fn wait_until(looks: Looks, what: &str, mut holds: impl FnMut() -> bool) -> Result<(), Failed> {
    for _ in 0..looks.most {
        if holds() {
            return Ok(());
        }
        thread::sleep(looks.pause);
    }
    Err(format!("{what} did not happen within a minute or more").into())
}
