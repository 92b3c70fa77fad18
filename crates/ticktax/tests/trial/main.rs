//! Tests for `ticktax try`. Tests named `root::…` change settings on this machine and restore them.
//! The other tests change only their child processes.
//!
//! This binary is also the command that the trials run: with [`AS_SLEEPER`] it sleeps, and with
//! [`AS_WORKER`] it works.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod anybody;
#[path = "../common/mod.rs"]
mod common;
mod fixture;
mod machine;
mod stories;

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::geteuid;
use ticktax_fixture::left_out;

/// Argument that makes this binary sleep 100 times for 100 µs.
const AS_SLEEPER: &str = "--as-sleeper";
/// Argument that makes this binary use 40 ms of CPU time.
const AS_WORKER: &str = "--as-worker";

type Test = fn() -> Result<(), Failed>;

fn own() -> String {
    env::current_exe().unwrap().display().to_string()
}

/// Sleeps or works if this process was started as a trial's command. Otherwise returns `None`.
fn as_command() -> Option<ExitCode> {
    match &*env::args().nth(1)? {
        AS_SLEEPER => {
            for _ in 0..100 {
                sleep(Duration::from_micros(100));
            }
        }
        AS_WORKER => {
            let used = || clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap();
            while Duration::from(used()) < Duration::from_millis(40) {
                std::hint::black_box(());
            }
        }
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    if let Some(exit) = as_command() {
        return exit;
    }
    let may_change = geteuid().is_root() && Path::new("/sys/kernel/btf/vmlinux").exists();
    // The tests observe this machine. Some measure an effect, which takes minutes and needs a quiet
    // machine, so they run only with `TICKTAX_TESTS=live`.
    let left_out = left_out("live");
    let mut arguments = Arguments::from_args();
    if left_out.is_none() {
        // The tests share the machine and its settings, so run them one at a time.
        arguments.test_threads = Some(1);
    }
    let measuring = |name: String, run: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
        Trial::test(name, run)
            .with_kind(left_out.clone().unwrap_or_default())
            .with_ignored_flag(!may_change || left_out.is_some())
    };
    let of_root = machine::ALL.iter().chain(machine::EFFECTS);
    let of_root = of_root.map(|&(name, test)| measuring(format!("root::{name}"), Box::new(test)));
    let stories = stories::all().into_iter().map(|story| {
        let name = format!("root::story::{}", story.name);
        measuring(name, Box::new(move || story.check()))
    });
    let unprivileged_tests = anybody::ALL
        .iter()
        .map(|&(name, test)| Trial::test(name, test));
    libtest_mimic::run(
        &arguments,
        of_root.chain(stories).chain(unprivileged_tests).collect(),
    )
    .exit_code()
}
