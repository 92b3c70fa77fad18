//! The end of `net` that waits.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A receiver that waits, and where.
pub(crate) fn receiver(arguments: &[&str]) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ticktax"))
        .args([
            "net",
            "recv",
            "--untraced",
            "--format",
            "json",
            "--listen",
            "127.0.0.1:0",
        ])
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
