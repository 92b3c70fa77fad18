//! `ticktax-inject`: runs one disturbance and prints the truth about it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command prints to the terminal"
)]

mod args;

use std::process::ExitCode;

use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use ticktax_inject::{InjectError, Stopper, Truth};

use args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    match inject(&args) {
        Ok(truth) if args.json => match serde_json::to_string_pretty(&truth) {
            Ok(text) => {
                println!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error),
        },
        Ok(truth) => {
            println!("{}", describe(&truth));
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("ticktax-inject: {error}");
    ExitCode::FAILURE
}

/// Runs the disturbance. A signal that would normally kill the process stops it cleanly instead.
fn inject(args: &Args) -> Result<Truth, InjectError> {
    // Block the signals before starting any thread, so that all threads inherit the mask.
    let ending: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .collect();
    let blocked = ending.thread_block().is_ok();
    ticktax_inject::remove_stale_groups();
    let running = ticktax_inject::spawn(&args.plan()?)?;
    if blocked {
        stop_upon(ending, running.stopper());
    }
    eprintln!(
        "ticktax-inject: began at {} on CLOCK_MONOTONIC",
        running.start().0
    );
    running.finish()
}

/// Starts a thread that stops the disturbance when one of `signals` arrives.
fn stop_upon(signals: SigSet, stopper: Stopper) {
    std::thread::spawn(move || {
        while signals.wait().is_ok() {
            stopper.stop();
        }
    });
}

/// Describes the truth in a few lines of text.
fn describe(truth: &Truth) -> String {
    let early = if truth.stopped { ", stopped early" } else { "" };
    let mut lines = vec![format!(
        "{} on CPU {} by {} (pid {}, tid {}) for {}{early}",
        truth.kind,
        truth.cpu,
        truth.comm,
        truth.pid,
        truth.tid,
        truth.end - truth.start,
    )];
    lines.push(format!(
        "  events    {} of {} due",
        truth.events, truth.planned
    ));
    lines.push(format!(
        "  account   {}; also {}",
        truth.account,
        truth.also.join(", ")
    ));
    lines.push(match &truth.injected {
        Some(injected) => format!("  injected  {}: {}", injected.time, injected.method),
        None => "  injected  not known to the injector".to_owned(),
    });
    let measured = truth.measured.iter();
    lines.extend(measured.map(|m| format!("  measured  {}: {}", m.time, m.method)));
    lines.extend(
        truth
            .counts
            .iter()
            .map(|c| format!("  counted   {} {}", c.value, c.name)),
    );
    lines.join("\n")
}
