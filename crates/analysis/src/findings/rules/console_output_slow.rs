//! Finds kernel messages that took long to print because a console is a serial line.
//!
//! The time is computed from the number of bytes and the line's speed, because the recording does
//! not show which CPU printed a message. A virtual line may be faster.

use ticktax_model::Nanos;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::machine::{ConsoleOutput, SerialConsole};

use super::super::Facts;

/// Speed of a serial console whose boot parameter does not set one, in bits per second.
const DEFAULT_SPEED: u32 = 9_600;
/// Minimum printing time to report. Loops on a CPU that prints for this long run late.
const LONG: Nanos = Nanos::from_millis(10);
/// Minimum share of the recording at which printing time becomes a serious problem.
const MUCH: f64 = 0.01;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(output) = &facts.header.after.console else {
        return Vec::new();
    };
    let is_known = facts.header.machine.hypervisor.is_none()
        && output.consoles.iter().all(|line| line.bits_per_s.is_some());
    let Some(time) = with_speeds(output).time().filter(|&time| time >= LONG) else {
        return Vec::new();
    };
    let wall = facts.header.cpus.iter().map(|cpu| cpu.end - cpu.begin);
    let is_much = time.share_of(wall.max().unwrap_or_default()) >= MUCH;
    let names: Vec<String> = output.consoles.iter().map(named).collect();
    let more = if output.is_incomplete { " or more" } else { "" };
    vec![Finding {
        rule: "console-output-slow".to_owned(),
        title: format!(
            "The kernel printed {} messages on a serial console, which takes {time} at the \
             console's speed",
            output.messages
        ),
        configured: format!(
            "{}; messages with a level below {} are printed (kernel.printk)",
            names.join(", "),
            output.level
        ),
        effective: format!(
            "{} messages, {} bytes in total{more}, were printed, and a CPU waits for every byte{}",
            output.messages,
            output.bytes,
            if facts.header.machine.hypervisor.is_some() {
                ", unless the line is virtual and faster"
            } else {
                ""
            }
        ),
        measured: "/dev/kmsg and /proc/consoles; the time follows from the speed of the line"
            .to_owned(),
        confidence: if is_known {
            Confidence::Likely
        } else {
            Confidence::Possible
        },
        severity: if is_much && is_known {
            Severity::Serious
        } else {
            Severity::Warning
        },
        cost: Cost::unmeasured(format!("{time} of CPU time at this speed")),
        proposal: None,
        remedy: "print fewer messages (sysctl kernel.printk=3), find out what logs them (dmesg \
            --follow), or raise the speed (console=ttyS0,115200)"
            .to_owned(),
    }]
}

/// Fills in the default speed for lines whose speed is unknown.
fn with_speeds(output: &ConsoleOutput) -> ConsoleOutput {
    let lines = output.consoles.iter().map(|line| SerialConsole {
        bits_per_s: line.bits_per_s.or(Some(DEFAULT_SPEED)),
        ..line.clone()
    });
    ConsoleOutput {
        consoles: lines.collect(),
        ..output.clone()
    }
}

fn named(line: &SerialConsole) -> String {
    match line.bits_per_s {
        Some(speed) => format!("console {} at {speed} bit/s", line.name),
        None => format!(
            "console {} (no boot parameter sets its speed; the default is {DEFAULT_SPEED} bit/s)",
            line.name
        ),
    }
}
