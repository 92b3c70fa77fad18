//! The first screen of a statement: who lost how much CPU time to whom, how often, and what to do,
//! in at most [`LINES`] lines at 80 columns. The sections have the rest.

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

/// The lines of a page at 80 columns: a terminal of 24 lines has its prompt on the last one.
const LINES: usize = 23;

/// What was lost of the CPUs' time is said at the top from this share on.
const LOST: f64 = 0.001;

/// A table with more columns than this between a name and its numbers is hard to read.
const WIDEST: usize = 120;

/// How much of what is told; the first that fits is taken.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Rows of the first table.
    rows: usize,
    /// Rows of the others.
    fewer: usize,
    /// Pieces of advice.
    acts: usize,
    /// Whether empty lines set the parts off.
    airy: bool,
    /// Rows of what is large in the first table, where that is more; one less in that of who waited.
    large: usize,
    /// Whether what the kernel took has no table, unless that is a large part of the time that was used.
    terse: bool,
    /// On how many CPUs it is told where top is wrong.
    wrong: usize,
    /// Whether what repeats is counted in its heading, and not in a line.
    counted: bool,
}

impl Room {
    const fn new(rows: usize, fewer: usize, acts: usize, airy: bool) -> Self {
        Self {
            rows,
            fewer,
            acts,
            airy,
            // More than nine have no tenth each.
            large: 9,
            terse: false,
            wrong: 2,
            counted: false,
        }
    }

    /// The same, with the worst alone of where top is wrong.
    const fn short(self) -> Self {
        Self { wrong: 1, ..self }
    }

    /// Without room for what the kernel took.
    const fn terse(rows: usize, fewer: usize, acts: usize) -> Self {
        Self {
            terse: true,
            ..Self::new(rows, fewer, acts, false)
        }
    }

    /// The least that is an answer, with so many rows of what is large.
    const fn least(large: usize) -> Self {
        Self {
            large,
            wrong: 1,
            ..Self::terse(2, 1, 1)
        }
    }

    /// The least of all, for a machine of which there is something to say in each part.
    const fn counted() -> Self {
        Self {
            counted: true,
            ..Self::least(1)
        }
    }
}

/// From the most that is worth reading to the least that is an answer.
const ROOMS: [Room; 25] = [
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
    Room::least(2),
    Room::least(1),
    Room::counted(),
];

/// The first screen as text, with a line break at the end.
pub(super) fn first(statement: &Statement, style: &TextStyle) -> Written {
    let screen = fitted(&ROOMS, |room| with(statement, style, room));
    if style.explain {
        return screen.then(legend::legend(statement, style));
    }
    screen
}

/// The first page of `rooms`, which go from the most to the least, that fits on one screen; else the
/// last.
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

/// A first screen, with the meaning of its `words` below it where that was asked for.
pub(super) fn explained(screen: Written, words: &str, style: &TextStyle) -> Written {
    if !style.explain {
        return screen;
    }
    let mut page = Page::new(*style);
    page.blank();
    page.paragraph(Tone::Faint, "  ", words);
    screen.then(page.finish())
}

/// The style of a first screen: no wider than a table can be read.
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
        page.paragraph(Tone::Warning, "", &in_words(part));
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

/// How much of the time is unexplained because events were lost, where that is much: no figure below is whole then.
fn lost(page: &mut Page, statement: &Statement) {
    let lost = &statement.coverage.lost;
    let events = lost.iter().map(|loss| loss.events).sum();
    let time: Nanos = lost.iter().map(|loss| loss.self_time).sum();
    let share = time.share_of(statement.balance.elapsed);
    if share < LOST {
        return;
    }
    // How many of them were of a part of the recording is not known.
    let events = match statement.part {
        None => tied(counted(events, "event")),
        Some(_) => "events".to_owned(),
    };
    let text = format!(
        "{events}, and with them {} of the CPUs' time.",
        tied(percent(share)),
    );
    page.paragraph(Tone::Warning, "LOST: ", &text);
}

/// Which part of a recording a page is about.
pub(super) fn in_words(part: &RecordingPart) -> String {
    let second = |at: ticktax_model::Nanos| format!("{:.3}", at.as_secs_f64());
    let (from, to, whole) = (second(part.from), second(part.to), second(part.whole));
    format!(
        "Only {} of a recording of {}; times are the recording's.",
        tied(format!("{from} to {to} s")),
        tied(format!("{whole} s")),
    )
}

/// What a first screen is made of.
struct Screen<'a> {
    statement: &'a Statement,
    style: &'a TextStyle,
    room: Room,
}

impl Screen<'_> {
    /// Sets off what follows, where there is room for that.
    fn gap(&self, page: &mut Page) {
        if self.room.airy {
            page.blank();
        }
    }

    /// The machine's name, and in which world it is.
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
