//! The text that a screen shows instead of advice.

use ticktax_model::Nanos;
use ticktax_model::advice::Advice;
use ticktax_model::recording::{Level, World};
use ticktax_model::victim::{HoldUp, LONG_WAIT, LateCause, LateFrames};
use ticktax_model::waits::WaitingProgram;

use super::super::Screen;
use super::framing::delayed_by_many;
use super::name;
use crate::text::late;
use crate::text::numbers::{counted, grouped};
use crate::text::page::{Tone, tied};

/// Minimum waiting time that is mentioned even without advice, as a share of the recording.
const MUCH_WAITING: f64 = 0.01;

/// Returns the text to show instead of advice, or `None` if too little was observed to say
/// anything.
pub(super) fn text(screen: &Screen<'_>) -> Option<(Tone, String)> {
    let statement = screen.statement;
    let text = match (statement.level, &statement.victim) {
        (Level::Proc, _) => return None,
        (Level::Kernel, Some(victim)) if super::super::program::lags(victim) => {
            let frames = victim.frames.as_ref();
            let late = frames.and_then(|frames| frames.late.as_ref());
            return Some((Tone::Strong, late_without_waiting(late, screen)));
        }
        (Level::Kernel, Some(victim)) => match delayed_by_many(victim) {
            Some(text) => return Some((Tone::Strong, text)),
            None => "Nothing to change: it hardly waited for a CPU.",
        },
        (Level::Kernel, None) => match held_up(screen) {
            Some((text, command)) => {
                let command = command.map(|command| format!(": {}", tied(command)));
                return Some((Tone::Strong, text + &command.unwrap_or_default()));
            }
            None if statement.world != World::Live => "Nothing to change.",
            None if statement.coverage.is_imported() => {
                "Nothing to change. To report on one program: ticktax report FILE --pid N"
            }
            None => "Nothing to change. To audit one program: ticktax audit --pid N",
        },
    };
    Some((Tone::Good, text.to_owned()))
}

/// Explains why a program had late frames even though it hardly waited for a CPU.
fn late_without_waiting(late: Option<&LateFrames>, screen: &Screen<'_>) -> String {
    let causes = late.map_or(&[][..], |late| &*late.causes);
    let known = |cause: &LateCause| matches!(cause.kind, HoldUp::OwnWork | HoldUp::OwnSleep);
    let text = match causes.iter().find(|cause| !cause.kind.is_own()) {
        Some(cause) => format!(
            "It hardly waited for a CPU, but {} delayed {} of {}",
            late::name(cause),
            tied(grouped(cause.frames)),
            counted(late.map_or(0, |late| late.frames), "late frame"),
        ),
        None if !causes.is_empty() && causes.iter().all(known) => {
            "It hardly waited for a CPU. Its frames were late because its own work took longer or \
             because it slept when they were due"
                .to_owned()
        }
        None => "It hardly waited for a CPU. The cause of its late frames is unknown".to_owned(),
    };
    let more = screen
        .watched()
        .map(|pid| format!(" ({})", tied(format!("ticktax pace --pid {pid}"))));
    text + &more.unwrap_or_default()
}

/// Describes the program that waited long even though CPUs were idle, and what it waited behind.
/// Returns `None` if no program did. The command audits that program, if it still exists.
fn held_up(screen: &Screen<'_>) -> Option<(String, Option<String>)> {
    let statement = screen.statement;
    let wall = crate::text::wall(statement);
    let waits = statement.waits.as_ref()?;
    let long = |program: &&WaitingProgram| {
        program.max >= LONG_WAIT || program.time.share_of(wall) >= MUCH_WAITING
    };
    let program = waits.programs.iter().find(long)?;
    let behind = program.behind.first();
    let behind = behind.map(|culprit| format!(" behind {}", name(&culprit.name, &culprit.pids)));
    // If this is only part of a recording, processes may have exited before the recording ended.
    let alive = program
        .pids
        .iter()
        .find(|pid| !program.exited_pids.contains(pid));
    let alive = alive.filter(|_| screen.names_processes() && statement.part.is_none());
    let command = alive.map(|pid| format!("ticktax audit --pid {pid}"));
    let text = format!(
        "{} waited {} for a CPU{}, up to {} at once, although CPUs were idle",
        name(&program.name, &program.pids),
        tied(program.time),
        behind.unwrap_or_default(),
        tied(program.max),
    );
    Some((text, command))
}

/// Describes the program that waited longest, in the same way as [`held_up`]. Returns `None` unless
/// that program lost more time than the advice is about, and no advice is about waiting.
pub(super) fn longest_wait(screen: &Screen<'_>) -> Option<(String, Option<String>)> {
    let statement = screen.statement;
    if statement.victim.is_some() || statement.level != Level::Kernel {
        return None;
    }
    let lost = |advice: &Advice| match advice {
        Advice::Throttled { time, .. } | Advice::Stolen { time, .. } => Some(*time),
        Advice::Finding { .. } | Advice::EventsLost { .. } => Some(Nanos::ZERO),
        _ => None,
    };
    let lost: Option<Vec<Nanos>> = statement.advice.iter().map(lost).collect();
    let most = lost?.into_iter().max()?;
    let waited = statement.waits.as_ref()?.programs.first()?.time;
    let (text, command) = (waited > most).then(|| held_up(screen)).flatten()?;
    Some((format!("Find out why {text}"), command))
}
