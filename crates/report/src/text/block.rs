//! What a page is made of: blocks, which a terminal shows as lines, and a browser as paragraphs, lists and tables.

use std::fmt;
use std::ops::Deref;

use ticktax_model::waits::WaitingProgram;
use ticktax_model::{Cpu, Moment, Nanos};

use super::page::Tone;

/// A part of a page, with its text as it was written: names in it may hold anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// The title of what follows.
    Section(String),
    /// What follows is set off.
    Gap,
    /// A line of its own.
    Line {
        tone: Tone,
        text: String,
        place: Option<Place>,
    },
    /// A line of a table.
    Row(Row),
    /// Running text behind a label, which may be empty.
    Text {
        tone: Tone,
        label: String,
        text: String,
        place: Option<Place>,
    },
    /// A command, for whoever copies it.
    Command(String),
    /// What the words and columns above mean.
    Legend(String),
    /// Lines in whose columns only spaces keep things apart.
    Verbatim(String),
}

/// What a line speaks of, where that has a place in a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// When it began, since the recording did.
    pub(crate) at: Nanos,
    pub(crate) length: Nanos,
    /// The CPU, where it is about one.
    pub(crate) cpu: Option<Cpu>,
}

impl From<Moment> for Place {
    fn from(Moment { at, length, cpu }: Moment) -> Self {
        Self {
            at,
            length,
            cpu: Some(cpu),
        }
    }
}

impl From<&WaitingProgram> for Place {
    fn from(program: &WaitingProgram) -> Self {
        Self {
            at: program.max_at,
            length: program.max,
            cpu: None,
        }
    }
}

/// A line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) tone: Tone,
    /// Whether its cells are the headings of the columns below.
    pub(crate) is_heading: bool,
    pub(crate) indent: usize,
    pub(crate) name: String,
    pub(crate) cells: Vec<Cell>,
    /// What its last cell speaks of.
    pub(crate) place: Option<Place>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// Whether it holds words, which keep to the left.
    pub(crate) is_left: bool,
}

/// A page that is finished: the lines of it, and what they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(super) text: String,
    pub(crate) blocks: Vec<Block>,
}

impl Written {
    /// This page with another below it.
    pub(super) fn then(mut self, other: Self) -> Self {
        self.text.push_str(&other.text);
        self.blocks.extend(other.blocks);
        self
    }

    /// This page with an empty line below it.
    pub(super) fn then_blank(mut self) -> Self {
        self.text.push('\n');
        self.blocks.push(Block::Gap);
        self
    }

    /// Lines in which a title is what comes after an empty line.
    pub(super) fn verbatim(text: String) -> Self {
        let mut blocks = Vec::new();
        let mut lines = String::new();
        let mut is_title = false;
        for line in text.lines() {
            if line.is_empty() || is_title {
                if !lines.is_empty() {
                    blocks.push(Block::Verbatim(std::mem::take(&mut lines)));
                }
                if is_title && !line.is_empty() {
                    blocks.push(Block::Section(line.to_owned()));
                }
                is_title = line.is_empty();
            } else {
                lines.push_str(line);
                lines.push('\n');
            }
        }
        if !lines.is_empty() {
            blocks.push(Block::Verbatim(lines));
        }
        Self { text, blocks }
    }
}

impl Deref for Written {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Written> for String {
    fn from(page: Written) -> Self {
        page.text
    }
}

/// What stands to the right of a line's name in a table.
pub(super) trait RowCells {
    /// As it is printed.
    fn line(&self) -> String;

    /// Cell by cell.
    fn cells(&self) -> Vec<Cell>;
}

/// One cell.
impl RowCells for str {
    fn line(&self) -> String {
        self.to_owned()
    }

    fn cells(&self) -> Vec<Cell> {
        let text = self.trim().to_owned();
        if text.is_empty() {
            return Vec::new();
        }
        vec![Cell {
            text,
            is_left: false,
        }]
    }
}

impl RowCells for String {
    fn line(&self) -> String {
        self.clone()
    }

    fn cells(&self) -> Vec<Cell> {
        self.as_str().cells()
    }
}

/// Cells that line up with those of the lines above and below.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns(Vec<Column>);

#[derive(Clone, Debug)]
struct Column {
    /// Spaces before it.
    gap: usize,
    width: usize,
    is_left: bool,
    text: String,
}

impl Columns {
    /// Numbers, or words above them, each with its width, a space apart.
    pub(super) fn right<T: ToString>(cells: impl IntoIterator<Item = (usize, T)>) -> Self {
        let mut columns = Self::default();
        for (width, text) in cells {
            let gap = usize::from(!columns.0.is_empty());
            columns = columns.and_right(gap, width, text);
        }
        columns
    }

    /// With one more that keeps to the right, after `gap` spaces.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "most callers make the text for this call"
    )]
    pub(super) fn and_right<T: ToString>(mut self, gap: usize, width: usize, text: T) -> Self {
        self.0.push(Column {
            gap,
            width,
            is_left: false,
            text: text.to_string(),
        });
        self
    }

    /// With one more that keeps to the left, after `gap` spaces.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "most callers make the text for this call"
    )]
    pub(super) fn and_left<T: ToString>(mut self, gap: usize, width: usize, text: T) -> Self {
        self.0.push(Column {
            gap,
            width,
            is_left: true,
            text: text.to_string(),
        });
        self
    }

    /// Whether no cell has a text.
    pub(super) fn is_blank(&self) -> bool {
        self.0.iter().all(|column| column.text.is_empty())
    }
}

impl RowCells for Columns {
    fn line(&self) -> String {
        let each = self.0.iter().map(|column| {
            let Column {
                gap, width, text, ..
            } = column;
            if column.is_left {
                format!("{:gap$}{text:<width$}", "")
            } else {
                format!("{:gap$}{text:>width$}", "")
            }
        });
        each.collect()
    }

    fn cells(&self) -> Vec<Cell> {
        let cells = self.0.iter().map(|column| Cell {
            text: column.text.trim().to_owned(),
            is_left: column.is_left,
        });
        cells.collect()
    }
}
