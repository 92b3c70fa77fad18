//! The first screen of a statement: the CPU time that programs lost, the culprits, and advice. It
//! has at most [`LINES`] lines at 80 columns; the sections have everything else.

mod advice;
mod foot;
mod groups;
mod legend;
mod machine;
mod proc_level;
mod program;
mod tables;

use ticktax_model::Nanos;
use ticktax_model::recording::{Level, RecordingPart, World};
use ticktax_model::statement::Statement;

use super::TextStyle;
use super::block::Written;
use super::numbers::{counted, percent};
use super::page::{Page, Tone, tied};

/// Maximum number of lines at 80 columns. A terminal with 24 lines needs one for its prompt.
const LINES: usize = 23;

/// The screen starts with a warning if lost events hide at least this share of CPU time.
const LOST: f64 = 0.001;

/// On wider pages, the gap between a name and its numbers would make a table hard to read.
const WIDEST: usize = 120;

/// A level of detail. A screen uses the first level that fits.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Maximum number of rows in the first table.
    rows: usize,
    /// Maximum number of rows in the other tables.
    other_rows: usize,
    /// Maximum number of pieces of advice.
    advice: usize,
    /// Whether empty lines separate the parts of the screen.
    spaced: bool,
    /// Maximum number of rows in the first table if large entries need more than `rows`. The table
    /// of waits gets one less.
    large: usize,
    /// Whether to drop the table of kernel time if kernel time is a small part of the used time.
    terse: bool,
    /// Maximum number of CPUs listed because `top` is wrong about them.
    wrong_cpus: usize,
    /// Whether unlisted periodic sources are only counted in the heading, which saves a line.
    count_only: bool,
}

impl Room {
    const fn new(rows: usize, other_rows: usize, advice: usize, spaced: bool) -> Self {
        Self {
            rows,
            other_rows,
            advice,
            spaced,
            // At most nine entries can each have a tenth of the total.
            large: 9,
            terse: false,
            wrong_cpus: 2,
            count_only: false,
        }
    }

    /// Returns this level, but with at most one CPU listed because `top` is wrong about it.
    const fn short(self) -> Self {
        Self {
            wrong_cpus: 1,
            ..self
        }
    }

    /// Returns a level without the table of kernel time.
    const fn terse(rows: usize, other_rows: usize, advice: usize) -> Self {
        Self {
            terse: true,
            ..Self::new(rows, other_rows, advice, false)
        }
    }

    /// Returns the lowest level that still answers the question, with up to `large` rows for large
    /// entries.
    const fn least(large: usize) -> Self {
        Self {
            large,
            wrong_cpus: 1,
            ..Self::terse(2, 1, 1)
        }
    }

    /// Like [`least`](Self::least), but one line shorter: unlisted periodic sources are only
    /// counted in the heading.
    const fn counted(large: usize) -> Self {
        Self {
            count_only: true,
            ..Self::least(large)
        }
    }
}

/// All levels, in order of preference. Even the last one answers the question.
const ROOMS: [Room; 26] = [
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
    // A program with a tenth of all waiting is worth more than a line that counts unlisted sources.
    Room::counted(3),
    Room::least(2),
    Room::least(1),
    Room::counted(1),
];

/// Renders the first screen, ending with a line break.
pub(super) fn first(statement: &Statement, style: &TextStyle) -> Written {
    let screen = fitted(&ROOMS, |room| with(statement, style, room));
    if style.explain {
        return screen.then(legend::legend(statement, style));
    }
    screen
}

/// Renders a screen at the first level of `rooms` that makes it fit, or at the last level if none
/// does.
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

/// Limits the width of a first screen to that of a readable table.
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
    match (statement.level, &statement.victim, threads) {
        (Level::Proc, ..) => proc_level::write(&mut page, &screen),
        (Level::Kernel, Some(victim), Some(threads)) if threads.threads > 0 => {
            program::write(&mut page, &screen, victim, threads);
        }
        _ => machine::write(&mut page, &screen),
    }
    foot::write(&mut page, &screen);
    page.finish()
}

/// Warns if lost events hide much of the CPU time. All figures below are then incomplete.
fn lost(page: &mut Page, statement: &Statement) {
    let lost = &statement.coverage.lost;
    let events = lost.iter().map(|loss| loss.events).sum();
    let time: Nanos = lost.iter().map(|loss| loss.self_time).sum();
    let share = time.share_of(statement.balance.elapsed);
    if share < LOST {
        return;
    }
    // The number of events lost within a part of a recording is unknown.
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

/// The inputs of a first screen.
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

    /// Returns the machine's name and world.
    fn host(&self) -> String {
        let host = match &*self.statement.machine.host {
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
