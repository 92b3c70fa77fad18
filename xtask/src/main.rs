//! Chores of the project, run as `cargo xtask …`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a chore talks to whoever runs it"
)]

mod bpf;
mod clang;
mod picture;
mod record;
mod screens;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask bpf            compile crates/trace/bpf/ticktax.bpf.c, and write src/record.rs and src/object.rs by it
       cargo xtask bpf --check    say whether the committed object and record.rs are what they give
       cargo xtask picture        draw docs/picture.svg, the terminal in the README
       cargo xtask screens        measure what README.md and docs/tutorial.md print, as root";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["bpf"] => bpf::build(),
        ["bpf", "--check"] => bpf::check(),
        ["picture"] => picture::draw(),
        ["screens"] => screens::write(None),
        ["screens", binary] => screens::write(Some(binary)),
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
