//! Builds a page of text, in which every line is wrapped at the page's width.

mod command;
mod elide;

use std::fmt::Write;

use owo_colors::Style;

pub(crate) use self::elide::elide;
pub(super) use self::elide::elide_name;
use super::TextStyle;
use super::block::{Block, LinkedMoment, Row, RowCells, Written};
pub(super) use crate::clean::clean;
use crate::view::Section;

/// Character that joins words that must stay on one line, as in `15 ns`. It is printed as a space.
pub(crate) const TIE: char = '\u{a0}';

/// Kind of a piece of text, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    /// A title or a sum.
    Strong,
    /// Something less important than its surroundings, such as a part or a legend.
    Faint,
    /// A passed check.
    Good,
    /// Something that the reader should look into.
    Warning,
    /// Something that must not happen.
    Alarm,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Strong => Style::new().bold(),
            Self::Faint => Style::new().dimmed(),
            Self::Good => Style::new().green(),
            Self::Warning => Style::new().yellow(),
            Self::Alarm => Style::new().red().bold(),
        }
    }
}

/// A page under construction.
#[derive(Debug)]
pub(super) struct Page {
    out: String,
    blocks: Vec<Block>,
    width: usize,
    colour: bool,
    legends: Legends,
    /// Title of a section that has no content yet.
    title: Option<String>,
    /// Moment that the next line refers to.
    place: Option<LinkedMoment>,
}

/// How legends on the page are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Legends {
    LeftOut,
    Written,
    /// The page consists only of legends.
    Alone,
}

impl Page {
    const NARROWEST: usize = 40;
    const WIDEST: usize = 200;
    /// Minimum number of columns for a name. With fewer, the name moves to its own line.
    const NAME: usize = 10;

    pub(super) fn new(style: TextStyle) -> Self {
        Self {
            out: String::new(),
            blocks: Vec::new(),
            width: style.width.clamp(Self::NARROWEST, Self::WIDEST),
            colour: style.colour,
            legends: match style.view {
                view if view.is_legend_only() => Legends::Alone,
                view if view.shows(Section::Legend) => Legends::Written,
                _ => Legends::LeftOut,
            },
            title: None,
            place: None,
        }
    }

    /// Sets the moment that the next output refers to. The output is a line, a paragraph, or the
    /// last cell in a table row.
    pub(super) fn place(&mut self, place: impl Into<LinkedMoment>) {
        self.place = Some(place.into());
    }

    /// Returns the width of the page in columns.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Returns the length of the page so far, in bytes.
    pub(super) fn length(&self) -> usize {
        self.out.len()
    }

    pub(super) fn finish(self) -> Written {
        Written {
            text: self.out,
            blocks: self.blocks,
        }
    }

    /// Records a block, for outputs other than text.
    fn keep(&mut self, block: impl FnOnce() -> Block) {
        if self.legends != Legends::Alone {
            self.blocks.push(block());
        }
    }

    /// Writes an empty line.
    pub(super) fn blank(&mut self) {
        self.keep(|| Block::Gap);
        self.put(Tone::Plain, "");
    }

    /// Starts a section with an empty line and a title.
    pub(super) fn section(&mut self, title: &str) {
        if self.legends == Legends::Alone {
            self.title = Some(title.to_owned());
            return;
        }
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.keep(|| Block::Section(title.to_owned()));
        self.cut(Tone::Strong, title);
    }

    /// Writes one line, which loses its middle if it is too long.
    pub(super) fn line(&mut self, tone: Tone, text: &str) {
        let place = self.place.take();
        self.keep(|| Block::Line {
            tone,
            text: text.to_owned(),
            place,
        });
        self.cut(tone, text);
    }

    fn cut(&mut self, tone: Tone, text: &str) {
        let text = elide(&clean(text), self.width);
        self.put(tone, text.trim_end());
    }

    /// Writes a table line: `name` after `indent` columns, then right-aligned `cells`. If they do
    /// not fit, the name is shortened or moved to its own line. Numbers are never shortened.
    pub(super) fn row(
        &mut self,
        tone: Tone,
        indent: usize,
        name: &str,
        cells: &(impl RowCells + ?Sized),
    ) {
        self.keep_row(tone, indent, name, cells, false);
        self.row_lines(tone, indent, name, &cells.line());
    }

    /// Writes the line above a table: a title, which can be empty, and the column headings.
    pub(super) fn headings(&mut self, tone: Tone, title: &str, cells: &(impl RowCells + ?Sized)) {
        self.keep_row(tone, 0, title, cells, true);
        self.row_lines(tone, 0, title, &cells.line());
    }

    fn keep_row(
        &mut self,
        tone: Tone,
        indent: usize,
        name: &str,
        cells: &(impl RowCells + ?Sized),
        is_heading: bool,
    ) {
        let place = self.place.take();
        self.keep(|| {
            Block::Row(Row {
                tone,
                is_heading,
                indent,
                name: name.to_owned(),
                cells: cells.cells(),
                place,
            })
        });
    }

    fn row_lines(&mut self, tone: Tone, indent: usize, name: &str, cells: &str) {
        let name = clean(name);
        let room = self.width.saturating_sub(indent + columns(cells) + 1);
        if indent + 1 + columns(cells) > self.width || room < columns(&name).min(Self::NAME) {
            let label = " ".repeat(indent);
            if !name.is_empty() {
                let name = elide(&name, self.width - indent);
                self.put(tone, format!("{label}{name}").trim_end());
            }
            self.labelled(tone, &format!("{label}    "), &with_units(cells));
            return;
        }
        let name = elide(&name, room);
        let gap = room - columns(&name) + 1;
        let line = format!("{:indent$}{name}{:gap$}{cells}", "", "");
        self.put(tone, line.trim_end());
    }

    /// Returns how many columns are left for the name in a row.
    pub(super) fn room(&self, indent: usize, cells: &(impl RowCells + ?Sized)) -> usize {
        self.room_beside(indent, &cells.line())
    }

    fn room_beside(&self, indent: usize, cells: &str) -> usize {
        self.width.saturating_sub(indent + columns(cells) + 1)
    }

    /// Writes a table line that starts with `kept`, followed by the name. Only the name is
    /// shortened, by [`elide_name`]. A name that does not fit goes on the next line.
    pub(super) fn named_row(
        &mut self,
        tone: Tone,
        indent: usize,
        (kept, name): (&str, &str),
        cells: &(impl RowCells + ?Sized),
    ) {
        self.keep_row(tone, indent, &format!("{kept}{name}"), cells, false);
        let cells = &cells.line();
        let name = clean(name);
        let room = self
            .room_beside(indent, cells)
            .saturating_sub(columns(kept));
        if room >= columns(&name).min(Self::NAME) {
            let name = elide_name(&name, room);
            self.row_lines(tone, indent, &format!("{kept}{name}"), cells);
        } else if kept.is_empty() {
            self.row_lines(tone, indent, &elide_name(&name, self.width - indent), cells);
        } else {
            self.row_lines(tone, indent, kept.trim_end(), cells);
            let below = " ".repeat(indent + 4);
            let name = elide_name(&name, self.width - below.len());
            self.put(tone, format!("{below}{name}").trim_end());
        }
    }

    /// Writes running text after a label. Further lines are aligned with the text's first word.
    pub(super) fn paragraph(&mut self, tone: Tone, label: &str, text: &str) {
        self.keep_text(tone, label, text);
        self.labelled(tone, label, text);
    }

    /// Writes a hint on how to print more of the document. Only text pages need it.
    pub(super) fn more(&mut self, text: &str) {
        self.labelled(Tone::Plain, "", text);
    }

    fn keep_text(&mut self, tone: Tone, label: &str, text: &str) {
        let place = self.place.take();
        self.keep(|| Block::Text {
            tone,
            label: label.to_owned(),
            text: text.to_owned(),
            place,
        });
    }

    fn labelled(&mut self, tone: Tone, label: &str, text: &str) {
        // If a label leaves too little room for the text, it goes on its own line.
        let mut label = clean(label);
        if columns(&label) * 2 > self.width {
            let line = elide(&label, self.width);
            self.put(tone, line.trim_end());
            "    ".clone_into(&mut label);
        }
        let indent = columns(&label);
        self.wrapped(tone, label, indent, text);
    }

    /// Writes running text whose lines after the first are indented.
    pub(super) fn hanging(&mut self, tone: Tone, text: &str) {
        self.keep_text(tone, "", text);
        self.wrapped(tone, String::new(), 4, text);
    }

    /// Writes running text after a label. Further lines are indented by `indent`, which is at least
    /// the width of the label.
    fn wrapped(&mut self, tone: Tone, label: String, indent: usize, text: &str) {
        let room = self.width.saturating_sub(indent).max(1);
        let mut begin = columns(&label);
        let mut used = begin;
        let mut line = label;
        for word in words(text, room) {
            let word = elide(&clean(&word), room);
            let length = columns(&word);
            if used > begin && used + 1 + length > self.width {
                self.put(tone, line.trim_end());
                line = " ".repeat(indent);
                begin = indent;
                used = begin;
            }
            if used > begin {
                line.push(' ');
                used += 1;
            }
            line.push_str(&word);
            used += length;
        }
        self.put(tone, line.trim_end());
    }

    /// Writes a command that the user can copy, after a label. If it spans several lines, a shell
    /// still reads it as one command. Writes nothing if a word of the command does not fit on a
    /// line.
    pub(super) fn command(&mut self, label: &str, text: &str) {
        let indent = columns(label);
        let room = self.width.saturating_sub(indent);
        let Some(lines) = command::lines(&clean(text), room, self.width) else {
            return;
        };
        self.keep(|| Block::Command(text.to_owned()));
        for (i, line) in lines.iter().enumerate() {
            let line = match (i, line.from_edge) {
                (0, _) => format!("{label}{}", line.text),
                (_, true) => line.text.clone(),
                (_, false) => format!("{:indent$}{}", "", line.text),
            };
            self.put(Tone::Plain, line.trim_end());
        }
    }

    /// Writes a legend that explains the terms and columns above it, unless the page leaves out
    /// legends.
    pub(super) fn legend(&mut self, text: &str) {
        match self.legends {
            Legends::LeftOut => {}
            Legends::Written => {
                self.keep(|| Block::Legend(text.to_owned()));
                self.labelled(Tone::Faint, "", text);
            }
            Legends::Alone => {
                self.legends = Legends::Written;
                if let Some(title) = self.title.take() {
                    self.section(&title);
                }
                self.keep(|| Block::Legend(text.to_owned()));
                self.labelled(Tone::Plain, "", text);
                self.legends = Legends::Alone;
            }
        }
    }

    fn put(&mut self, tone: Tone, line: &str) {
        if self.legends == Legends::Alone {
            return;
        }
        let line = clean(&line.replace(TIE, " "));
        if self.colour && tone != Tone::Plain && !line.is_empty() {
            // Writing to a `String` cannot fail.
            let _ = writeln!(self.out, "{}", tone.style().style(line));
        } else {
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }
}

/// Splits text into words for lines of `room` columns. Words joined by [`TIE`] stay together unless
/// they are longer than a line: Unicode counts [`TIE`] as whitespace, but this function does not. A
/// number is never separated from its unit.
fn words(text: &str, room: usize) -> Vec<String> {
    let split = text.split(|c: char| c.is_whitespace() && c != TIE);
    let fits = |word: &str| columns(word) <= room || !word.contains(TIE);
    let mut words = Vec::new();
    for word in split.filter(|word| !word.is_empty()) {
        if fits(word) {
            words.push(word.to_owned());
        } else {
            let parts = with_units(&word.replace(TIE, " "));
            words.extend(parts.split_ascii_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Ties each number in a text to its unit.
pub(crate) fn with_units(text: &str) -> String {
    const UNITS: [&str; 9] = ["ns", "µs", "ms", "s", "min", "%", "Hz", "MHz", "MiB"];
    let mut out = String::new();
    let mut after_digit = false;
    for word in text.split_ascii_whitespace() {
        let unit = word.trim_end_matches([',', ';', '.', ':', ')']);
        if !out.is_empty() {
            let tie = after_digit && UNITS.contains(&unit);
            out.push(if tie { TIE } else { ' ' });
        }
        out.push_str(word);
        after_digit = word.ends_with(|c: char| c.is_ascii_digit());
    }
    out
}

/// Replaces the spaces in `text` with ties, so that it never breaks across lines.
#[expect(
    clippy::needless_pass_by_value,
    reason = "most callers build the text for this call"
)]
pub(crate) fn tied<T: ToString>(text: T) -> String {
    text.to_string().replace(' ', "\u{a0}")
}

/// Returns the width of a text on a terminal, in columns. Combining characters are counted too, so
/// the result can be too large but never too small.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(width_of).sum()
}

fn width_of(c: char) -> usize {
    let wide = matches!(u32::from(c),
        0x1100..=0x115f | 0x231a..=0x231b | 0x23e9..=0x23f3 | 0x25fd..=0x25fe | 0x2600..=0x27bf
        | 0x2b00..=0x2bff | 0x2e80..=0xa4cf | 0xa960..=0xa97f | 0xac00..=0xd7a3 | 0xf900..=0xfaff
        | 0xfe10..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1_6fe0..=0x1_b2ff
        | 0x1_f000..=0x3_ffff);
    if wide { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::{Page, TextStyle, Tone, columns, elide, elide_name};

    #[test]
    fn a_text_is_cut_between_words_or_parts_of_names() {
        for (text, room, expected) in [
            ("waited, % of needed time", 16, "waited, % … time"),
            (
                "triggered by local_timer tick_nohz_handler → softirq TIMER",
                40,
                "triggered by local_timer … softirq TIMER",
            ),
            ("tick_nohz_handler", 12, "tick_nohz_…"),
            ("nightly-backupd", 8, "…backupd"),
            // A single word has to be cut somewhere inside.
            ("kubepodskubepods", 9, "kube…pods"),
            ("", 0, ""),
        ] {
            let short = elide(text, room);
            assert!(columns(&short) <= room, "{short}");
            assert_eq!(short, expected);
        }
    }

    #[test]
    fn long_names_are_shortened_but_pids_and_counts_are_not() {
        let qemu = "qemu-system-x86 (23192)  14 threads";
        assert_eq!(elide_name(qemu, 40), qemu);
        assert_eq!(elide_name(qemu, 30), "qemu-system-x86 (23192)");
        assert_eq!(elide_name(qemu, 20), "qemu-…x86 (23192)");
        assert_eq!(elide_name(qemu, 11), "qemu-…x86");
        assert_eq!(elide_name("stress-ng-cpu  x4", 14), "stress-ng-cpu");
        let unknown = "unknown thread (switch not reported)";
        assert_eq!(elide_name(unknown, 30), "unknown thread");
        assert_eq!(elide_name("a thread (of two) with words", 12), "a thread …");
    }

    #[test]
    fn a_period_is_never_cut() {
        let row = |width, kept| -> String {
            let mut page = Page::new(TextStyle {
                width,
                ..TextStyle::default()
            });
            page.named_row(Tone::Plain, 2, (kept, "nightly-backupd (16025)"), "  1.2 %");
            page.finish().into()
        };
        assert_eq!(
            row(40, "every 3.06 s  "),
            "  every 3.06 s  …backupd (16025)   1.2 %\n"
        );
        let two = row(40, "moved  3.06 s → 2.98 s  ");
        assert_eq!(
            two,
            "  moved  3.06 s → 2.98 s           1.2 %\n      nightly-backupd (16025)\n"
        );
    }
}
