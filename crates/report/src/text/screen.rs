//! The first screen of a statement. It shows how much CPU time programs lost, what took it, and
//! what to do about it. At 80 columns, it has at most [`LINES`] lines. Everything else is in the
//! sections.

mod advice;
mod foot;
mod groups;
mod legend;
mod machine;
mod observer;
mod proc_level;
mod program;
mod stalls;
mod tables;
mod verdict;

use ticktax_model::Nanos;
use ticktax_model::recording::{Level, RecordingPart, World};
use ticktax_model::statement::Statement;

use self::observer::ObserverCost;
use super::TextStyle;
use super::block::Written;
use super::numbers::{counted, percent};
use super::page::{Page, Tone, tied};

/// Maximum number of lines at 80 columns. A terminal with 24 lines needs one of them for its
/// prompt.
const LINES: usize = 23;

/// Maximum share of CPU time that lost events may hide before the screen starts with a warning.
const LOST: f64 = 0.001;

/// Maximum width of the screen. If it were wider, the gap between names and numbers would make
/// tables hard to read.
const WIDEST: usize = 120;

/// How a first screen shows periodic sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeriodRows {
    /// The costliest are listed, and a line counts the others.
    Listed,
    /// The costliest are listed, and the heading counts the others. This saves a line.
    CountedInHeading,
    /// A single line counts all of them.
    Counted,
}

/// A level of detail. The screen uses the first level at which it fits.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Maximum number of rows in the first table.
    rows: usize,
    /// Maximum number of rows in the other tables.
    other_rows: usize,
    /// Maximum number of recommendations.
    advice: usize,
    /// Whether empty lines separate the parts of the screen.
    spaced: bool,
    /// Maximum number of rows in the first table if its large entries need more than `rows`. The
    /// table of waits gets one row less.
    large: usize,
    /// Whether to leave out the table of kernel time if that is only a small part of the used time.
    terse: bool,
    /// Maximum number of CPUs to list because `top` is wrong about them.
    wrong_cpus: usize,
    /// How to show the periodic sources of a machine.
    periods: PeriodRows,
}

impl Room {
    const fn new(rows: usize, other_rows: usize, advice: usize, spaced: bool) -> Self {
        Self {
            rows,
            other_rows,
            advice,
            spaced,
            // Entries with at least a tenth of the total count as large, so nine rows are usually
            // enough.
            large: 9,
            terse: false,
            wrong_cpus: 2,
            periods: PeriodRows::Listed,
        }
    }

    /// Returns this level of detail, limited to one CPU about which `top` is wrong.
    const fn short(self) -> Self {
        Self {
            wrong_cpus: 1,
            ..self
        }
    }

    /// Returns a level of detail that leaves out the table of kernel time if it is small.
    const fn terse(rows: usize, other_rows: usize, advice: usize) -> Self {
        Self {
            terse: true,
            ..Self::new(rows, other_rows, advice, false)
        }
    }

    /// Returns the lowest level of detail that still shows culprits and advice. Large entries get
    /// up to `large` rows.
    const fn least(large: usize) -> Self {
        Self {
            large,
            wrong_cpus: 1,
            ..Self::terse(2, 1, 1)
        }
    }

    /// Returns a level of detail like [`least`](Self::least), but one line shorter: the heading
    /// just counts the periodic sources that are not listed.
    const fn counted(large: usize) -> Self {
        Self {
            periods: PeriodRows::CountedInHeading,
            ..Self::least(large)
        }
    }

    /// Returns a level of detail like [`least`](Self::least) that only counts the periodic sources.
    const fn without_periods(large: usize) -> Self {
        Self {
            periods: PeriodRows::Counted,
            ..Self::least(large)
        }
    }
}

/// All levels of detail, in order of preference. Even the last one shows culprits and advice.
const ROOMS: [Room; 28] = [
    Room::new(5, 3, 3, true),
    Room::new(4, 3, 3, true),
    Room::new(4, 2, 2, true),
    Room::new(5, 3, 3, false),
    Room::new(4, 2, 3, false),
    Room::new(3, 2, 3, false),
    Room::new(3, 1, 3, false),
    Room::new(5, 3, 2, false),
    Room::new(4, 2, 2, false),
    Room::new(4, 1, 2, false),
    Room::new(3, 1, 2, false),
    Room::new(2, 1, 2, false),
    Room::terse(3, 1, 2),
    Room::terse(2, 1, 2),
    Room::new(3, 2, 1, false),
    Room::new(4, 1, 1, false),
    Room::new(3, 1, 1, false),
    Room::new(2, 1, 1, false),
    Room::new(2, 1, 1, false).short(),
    Room::terse(2, 1, 1).short(),
    Room::least(4),
    Room::least(3),
    // Another program with a tenth of all waiting is worth more than a line that counts the
    // periodic sources that are not listed.
    Room::counted(3),
    Room::least(2),
    // Users need the programs with a tenth of all CPU time more than the costliest periodic source.
    Room::without_periods(3),
    Room::without_periods(2),
    Room::least(1),
    Room::counted(1),
];

/// Renders the first screen, which ends with a line break.
pub(super) fn first(statement: &Statement, style: &TextStyle) -> Written {
    let screen = fitted(&ROOMS, |room| with(statement, style, room));
    if style.explain {
        return screen.then(legend::legend(statement, style));
    }
    screen
}

/// Renders a screen at the first level in `rooms` at which it fits, or at the last level if it
/// never fits.
pub(super) fn fitted<R: Copy>(rooms: &[R], write: impl Fn(R) -> Written) -> Written {
    let mut screen = Written::default();
    for &room in rooms {
        screen = write(room);
        if screen.lines().count() <= LINES {
            break;
        }
    }
    screen
}

/// Appends an explanation of the terms to a first screen, if the style requests it.
pub(super) fn explained(screen: Written, words: &str, style: &TextStyle) -> Written {
    if !style.explain {
        return screen;
    }
    let mut page = Page::new(*style);
    page.blank();
    page.paragraph(Tone::Faint, "  ", words);
    screen.then(page.finish())
}

/// Limits the width of a first screen, so that its tables stay readable.
pub(super) fn narrowed(style: &TextStyle) -> TextStyle {
    TextStyle {
        width: style.width.min(WIDEST),
        ..*style
    }
}

fn with(statement: &Statement, style: &TextStyle, room: Room) -> Written {
    let mut page = Page::new(narrowed(style));
    let screen = Screen {
        statement,
        style,
        room,
    };
    if let Some(part) = &statement.part {
        page.paragraph(Tone::Warning, "", &part_text(part));
    }
    lost(&mut page, statement);
    let threads = statement.victim.as_ref().and_then(|v| v.threads.as_ref());
    let cost = ObserverCost::of_statement(statement);
    if cost.is_large {
        page.paragraph(Tone::Warning, "", &cost.text);
    }
    match (statement.level, &statement.victim, threads) {
        (Level::Proc, ..) => proc_level::write(&mut page, &screen),
        (Level::Kernel, Some(victim), Some(threads)) if threads.threads > 0 => {
            program::write(&mut page, &screen, victim, threads);
        }
        _ => machine::write(&mut page, &screen),
    }
    foot::write(&mut page, &screen, &cost);
    page.finish()
}

/// Writes a warning if lost events hide much of the CPU time, which makes all figures below it
/// incomplete.
fn lost(page: &mut Page, statement: &Statement) {
    let lost = &statement.coverage.lost;
    let events = lost.iter().map(|loss| loss.events).sum();
    let time: Nanos = lost.iter().map(|loss| loss.self_time).sum();
    let share = time.share_of(statement.balance.elapsed);
    if share < LOST {
        return;
    }
    // If the statement covers only part of a recording, the number of events lost within that part
    // is unknown.
    let events = match statement.part {
        None => tied(counted(events, "event")),
        Some(_) => "events".to_owned(),
    };
    let text = format!(
        "{events}. {} of the CPU time is unknown.",
        tied(percent(share)),
    );
    page.paragraph(Tone::Warning, "LOST ", &text);
}

/// Describes the part of the recording that a page covers.
pub(super) fn part_text(part: &RecordingPart) -> String {
    let second = |at: ticktax_model::Nanos| format!("{:.3}", at.as_secs_f64());
    let (from, to, length) = (second(part.from), second(part.to), second(part.total));
    format!(
        "Only {} of a recording of {}; times count from its start.",
        tied(format!("{from} to {to} s")),
        tied(format!("{length} s")),
    )
}

/// Inputs for rendering a first screen.
struct Screen<'a> {
    statement: &'a Statement,
    style: &'a TextStyle,
    room: Room,
}

impl Screen<'_> {
    /// Writes an empty line if this level of detail has room for it.
    fn gap(&self, page: &mut Page) {
        if self.room.spaced {
            page.blank();
        }
    }

    /// Returns the name of the machine, and whether it is a lab kernel or simulated.
    fn host(&self) -> String {
        let host = match &*self.statement.machine.host {
            "" if self.statement.coverage.is_imported() => "trace",
            "" => "this machine",
            host => host,
        };
        match self.statement.world {
            World::Live => host.to_owned(),
            World::Lab => format!("lab kernel {}", self.statement.machine.kernel),
            World::Simulated => format!("{host} SIMULATED"),
        }
    }
}
