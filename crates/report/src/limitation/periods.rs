//! Describes limitations of the search for periodic sources, and of recordings that keep only sums.

use ticktax_model::limitation::{FunctionsUnnamed, Limitation};

use crate::text::numbers::{counted, grouped};
use crate::text::page::tied;

use super::{Words, sentences, were};

/// Describes limitations of recordings that keep only sums.
pub(super) fn summed(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::StacksLost { samples } => sentences(
            format!(
                "The code that {} found is unknown, because the table of stacks was full.",
                counted(*samples, "sample")
            ),
            "They do not count toward any function.",
        ),
        Limitation::FunctionsUnnamed {
            samples,
            files,
            files_left_out,
            reason,
        } => unnamed_functions(*samples, files, *files_left_out, *reason),
        Limitation::SourcesMerged { intervals } => sentences(
            format!(
                "The sources of {} are unknown, because the table of sums was full.",
                counted(*intervals, "interval")
            ),
            "These intervals count as other sources.",
        ),
        Limitation::BeatTimesSummed { rows } => sentences(
            format!(
                "Intervals shorter than {} were recorded only as sums over time windows ({}), so \
                 they were not searched for periods.",
                tied("1 ms"),
                counted(*rows, "row")
            ),
            "Record with --keep spans to search all intervals.",
        ),
        Limitation::BeatLongTimesSummed {
            windows,
            sources,
            max_windows,
        } => sentences(
            format!(
                "Longer intervals in {} were recorded only as sums, because memory was full.",
                counted(*windows, "time window")
            ),
            match sources {
                0 => "These windows count as not observed.".to_owned(),
                sources => format!(
                    "{} {} not searched for periods, because {} more than {max_windows} such \
                     windows.",
                    counted(*sources, "source"),
                    were(*sources),
                    if *sources == 1 { "it has" } else { "they have" }
                ),
            },
        ),
        _ => None,
    }
}

/// Describes samples of user-mode code without a function name.
fn unnamed_functions(samples: u64, files: &[String], more: u64, reason: FunctionsUnnamed) -> Words {
    let count = files.len() as u64 + more;
    let (it, has) = if count == 1 {
        ("it", "has")
    } else {
        ("they", "have")
    };
    let more = match more {
        0 => String::new(),
        1 => " and 1 more file".to_owned(),
        more => format!(" and {} more files", grouped(more)),
    };
    let (why, remedy) = match reason {
        FunctionsUnnamed::Stripped => (
            format!("{it} {has} no symbol table"),
            "Install debug symbols, or build without stripping.",
        ),
        FunctionsUnnamed::NotInTable => (
            format!("{it} {has} no symbol with a size there"),
            "Functions written in assembly often lack a size.",
        ),
        FunctionsUnnamed::NoPerfMap => (
            "no /tmp/perf-PID.map of its process lists this code".to_owned(),
            "Run Python with -X perf, or Node.js with --perf-basic-prof. For Java, run jcmd PID \
             Compiler.perfmap during the recording.",
        ),
        FunctionsUnnamed::Unreadable => (
            format!("{it} could not be read when the recording ended"),
            "Keep the program running, and its files unchanged, until then. Reading another \
             user's files needs root.",
        ),
        FunctionsUnnamed::TooMany => (
            "there was no room for more names, or no time to read the symbols".to_owned(),
            "",
        ),
    };
    let has = if samples == 1 { "has" } else { "have" };
    sentences(
        format!(
            "{} in {}{more} {has} no function name, because {why}.",
            counted(samples, "sample"),
            files.join(", ")
        ),
        remedy,
    )
}

/// Describes limitations of the search for periodic sources.
pub(super) fn beats(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::BeatSourcesUnnamed => sentences(
            "Periodic sources have no names, because the kernel was not traced.",
            "Only the probes' gaps were searched for periods.",
        ),
        Limitation::BeatsTooFewEvents { min_events } => sentences(
            format!(
                "No period could be found, because no source has the required {min_events} events."
            ),
            "",
        ),
        Limitation::BeatPeriodsTooLong { max_period } => sentences(
            format!(
                "Periods over {} could not be found, because the recording must contain four of \
                 them.",
                tied(max_period)
            ),
            "",
        ),
        Limitation::BeatSourcesQuiet {
            sources,
            min_events,
        } => unsearched(
            *sources,
            &format!("a period needs at least {min_events} events"),
        ),
        Limitation::BeatSourcesLeftOut { sources, max } => unsearched(
            *sources,
            &format!(
                "the memory holds the events of only {} sources",
                grouped(*max)
            ),
        ),
        Limitation::BeatSourcesCutShort { sources } => sentences(
            format!(
                "The last events of {} were not searched for periods, because they did not fit \
                 into the reserved memory.",
                counted(*sources, "busy source")
            ),
            "",
        ),
        Limitation::BeatEventsLost { cpu, events } => sentences(
            format!(
                "{} on CPU {cpu} {} lost.",
                counted(*events, "event"),
                were(*events)
            ),
            "Some periodic sources may be missing, and the counts of others too low.",
        ),
        Limitation::RecordingHoles { cpu, time, holes } => sentences(
            format!(
                "Nothing was recorded on CPU {cpu} for at least {}, in {} (lost events, a halted \
                 machine, or a clock step).",
                tied(time),
                counted(*holes, "hole")
            ),
            "Periods before and after a hole are counted separately.",
        ),
        Limitation::BeatEventsUnordered { events } => sentences(
            format!(
                "{} of migrating threads arrived too late to be sorted by time.",
                counted(*events, "event")
            ),
            "Periods of these threads may be missing.",
        ),
        _ => None,
    }
}

/// Describes sources that were not searched for periods.
fn unsearched(sources: u64, reason: &str) -> Words {
    sentences(
        format!(
            "{} {} not searched for periods, because {reason}.",
            counted(sources, "source"),
            were(sources)
        ),
        "",
    )
}
