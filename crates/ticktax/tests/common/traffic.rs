//! Starts the receiving end of traffic in a separate process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::{fs, thread, time::Duration};

use nix::libc::c_long;

/// Starts a `ticktax net` receiver, and waits until it listens. Returns the process and its
/// address.
pub(crate) fn receiver(arguments: &[&str]) -> (Child, String) {
    listening(&["net", "recv"], arguments)
}

/// Starts a receiver for `verb`, and waits until it listens. Returns the process and its address.
pub(crate) fn listening(verb: &[&str], arguments: &[&str]) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ticktax"))
        .args(verb)
        .args(["--untraced", "--format", "json", "--listen", "127.0.0.1:0"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.strip_prefix("Waiting for a sender at ").unwrap();
    let address = address.split(": ").next().unwrap().to_owned();
    (child, address)
}

pub(crate) fn wait_for_call(process: &Child, thread: &str, call: c_long) {
    let tasks = format!("/proc/{}/task", process.id());
    let call = call.to_string();
    let is_in_call = || {
        let mut tasks = fs::read_dir(&tasks).unwrap().flatten();
        tasks.any(|task| {
            let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            read("comm").trim() == thread && read("syscall").split(' ').next() == Some(&*call)
        })
    };
    while !is_in_call() {
        thread::sleep(Duration::from_millis(5));
    }
}
