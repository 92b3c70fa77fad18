//! The start of the page: the observed machine or program, and the level of detail.

use ticktax_model::machine::{Machine, MachineFact};
use ticktax_model::recording::{Level, World};
use ticktax_model::statement::Statement;

use super::numbers::{counted, date};
use super::page::{Page, Tone, tied};
use super::untraced::Untraced;
use super::wall;

/// Returns a suffix for short titles that shows whether the recording comes from a live machine, a
/// lab guest or the model.
pub(super) fn in_world(world: World) -> &'static str {
    match world {
        World::Live => "",
        World::Lab => " (lab)",
        World::Simulated => " (SIMULATED)",
    }
}

pub(super) fn write(page: &mut Page, statement: &Statement) {
    let what = match statement.world {
        World::Live => "",
        World::Lab => " of a lab kernel",
        World::Simulated => " of a SIMULATED machine",
    };
    let cpus = counted(statement.cpus.len() as u64, "CPU");
    let title = format!(
        "ticktax: audit{what} over {} on {cpus}, started {}",
        wall(statement),
        date(statement.began_unix),
    );
    page.paragraph(Tone::Strong, "", &title);
    if let Some(part) = &statement.part {
        page.paragraph(Tone::Warning, "", &super::screen::part_text(part));
    }
    host(page, &statement.machine);
    if let Some(command) = &statement.command {
        let end = match command.exit {
            None => "still running at the end".to_owned(),
            Some(0) => "succeeded".to_owned(),
            // These codes stand for signals, but a program can also exit with one of them.
            Some(code @ 129..=192) => format!("ended by signal {} or exit code {code}", code - 128),
            Some(code) => format!("failed with exit code {code}"),
        };
        let argv = command.argv.join(" ");
        let text = format!("{argv} ({}; {end})", tied(format!("pid {}", command.pid)));
        page.paragraph(Tone::Plain, "Command   ", &text);
    }
    let (tone, level) = match statement.level {
        Level::Kernel => (
            Tone::Plain,
            "every thread and interrupt by name, apart from the limitations listed \
             below"
                .to_owned(),
        ),
        Level::Proc => {
            let remedy = Untraced::from_statement(statement)
                .remedy("run as root to see every interrupt by name");
            let level = format!("nothing, only counters in /proc were read; {remedy}");
            (Tone::Warning, level)
        }
    };
    page.paragraph(
        tone,
        "Traced    ",
        &format!("{level} (ticktax {})", statement.tool_version),
    );
}

pub(super) fn host(page: &mut Page, described: &Machine) {
    page.paragraph(Tone::Plain, "Machine   ", &machine(described));
    page.paragraph(Tone::Plain, "Kernel    ", &kernel(described));
}

/// Describes the machine in one line.
pub(super) fn machine(machine: &Machine) -> String {
    let named = |text: &str, otherwise: &str| {
        if text.is_empty() {
            otherwise.to_owned()
        } else {
            text.to_owned()
        }
    };
    let hypervisor = match &machine.hypervisor {
        Some(name) => format!("virtual machine on {name}"),
        None => "no hypervisor detected".to_owned(),
    };
    let mut facts = vec![named(&machine.host, "unnamed host")];
    facts.extend((!machine.arch.is_empty()).then(|| machine.arch.clone()));
    if !machine.online.is_empty() {
        facts.push(format!("{} online", tied(machine.online.named())));
    }
    facts.push(hypervisor);
    facts.join(", ")
}

/// Describes the kernel in one line.
pub(super) fn kernel(machine: &Machine) -> String {
    let release = if machine.kernel.is_empty() {
        "unknown release"
    } else {
        &machine.kernel
    };
    let known = |fact: MachineFact, words: String| match machine.evidence.get(&fact) {
        Some(known) => format!("{words} ({known})"),
        None => words,
    };
    let mut facts = vec![format!("Linux {release}")];
    facts.push(match machine.hz_configured {
        Some(hz) => known(MachineFact::TickRate, tied(format!("tick of {hz} Hz"))),
        None => "tick rate unknown".to_owned(),
    });
    let mode = machine.tick_mode.as_ref().map(ToString::to_string);
    facts.extend(mode.map(|mode| known(MachineFact::TickMode, mode)));
    facts.extend(machine.high_resolution.map(|on| {
        let words = format!("high-resolution timers {}", if on { "on" } else { "off" });
        known(MachineFact::HighResolution, words)
    }));
    facts.extend(
        machine
            .clocksource
            .as_ref()
            .map(|name| format!("clocksource {name}")),
    );
    facts.extend(
        machine
            .preemption
            .as_ref()
            .map(|model| known(MachineFact::Preemption, format!("preemption {model}"))),
    );
    // The section about CPU accounting lists the configuration options, so they are left out here.
    let how = machine.evidence.get(&MachineFact::Accounting);
    facts.extend(how.map(|known| {
        format!(
            "CPU time counted by {} ({known})",
            machine.accounting.join(" and ")
        )
    }));
    facts.join(", ")
}
