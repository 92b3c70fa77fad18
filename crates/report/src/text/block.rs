//! The blocks of a page. A terminal shows them as lines, a browser as paragraphs, lists and tables.

use std::fmt;
use std::ops::Deref;

use ticktax_model::waits::WaitingProgram;
use ticktax_model::{Cpu, Moment, Nanos};

use super::page::Tone;

/// A part of a page. Its text is raw: names in it can contain any character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// The title of the following blocks.
    Section(String),
    /// Vertical space.
    Gap,
    /// A line outside any table or paragraph.
    Line {
        tone: Tone,
        text: String,
        place: Option<Place>,
    },
    /// A line of a table.
    Row(Row),
    /// Running text after a label. The label can be empty.
    Text {
        tone: Tone,
        label: String,
        text: String,
        place: Option<Place>,
    },
    /// A command to copy.
    Command(String),
    /// An explanation of the terms and columns above.
    Legend(String),
    /// Preformatted lines, with columns aligned only by spaces.
    Verbatim(String),
}

/// The moment that a line refers to. An HTML page uses it to link the line to the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Start of the moment, relative to the start of the recording.
    pub(crate) at: Nanos,
    pub(crate) length: Nanos,
    /// The CPU concerned, if there is a single one.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) tone: Tone,
    /// Whether the cells are column headings.
    pub(crate) is_heading: bool,
    pub(crate) indent: usize,
    pub(crate) name: String,
    pub(crate) cells: Vec<Cell>,
    /// The moment that the last cell refers to.
    pub(crate) place: Option<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// Whether the cell is left-aligned, as text is.
    pub(crate) is_left: bool,
}

/// A finished page: its text, and the same content as blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(super) text: String,
    pub(crate) blocks: Vec<Block>,
}

impl Written {
    /// Appends another page.
    pub(super) fn then(mut self, other: Self) -> Self {
        self.text.push_str(&other.text);
        self.blocks.extend(other.blocks);
        self
    }

    /// Appends an empty line.
    pub(super) fn then_blank(mut self) -> Self {
        self.text.push('\n');
        self.blocks.push(Block::Gap);
        self
    }

    /// Wraps preformatted text. A line that follows an empty line becomes a title.
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

/// The cells of a table line, to the right of its name.
pub(super) trait RowCells {
    /// Returns the cells as one string, as a terminal prints them.
    fn line(&self) -> String;

    /// Returns the individual cells.
    fn cells(&self) -> Vec<Cell>;
}

/// A string is a single cell.
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

/// Cells aligned with those of the lines above and below.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns(Vec<Column>);

#[derive(Clone, Debug)]
struct Column {
    /// Number of spaces before the cell.
    gap: usize,
    width: usize,
    is_left: bool,
    text: String,
}

impl Columns {
    /// Builds right-aligned cells, each from its width and text, separated by one space.
    pub(super) fn right<T: ToString>(cells: impl IntoIterator<Item = (usize, T)>) -> Self {
        let mut columns = Self::default();
        for (width, text) in cells {
            let gap = usize::from(!columns.0.is_empty());
            columns = columns.and_right(gap, width, text);
        }
        columns
    }

    /// Appends a right-aligned cell after `gap` spaces.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "most callers build the text for this call"
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

    /// Appends a left-aligned cell after `gap` spaces.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "most callers build the text for this call"
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

    /// Whether every cell is empty.
    pub(super) fn is_blank(&self) -> bool {
        self.0.iter().all(|column| column.text.is_empty())
    }
}

impl RowCells for Columns {
    fn line(&self) -> String {
        let cells = self.0.iter().map(|column| {
            let Column {
                gap, width, text, ..
            } = column;
            if column.is_left {
                format!("{:gap$}{text:<width$}", "")
            } else {
                format!("{:gap$}{text:>width$}", "")
            }
        });
        cells.collect()
    }

    fn cells(&self) -> Vec<Cell> {
        let cells = self.0.iter().map(|column| Cell {
            text: column.text.trim().to_owned(),
            is_left: column.is_left,
        });
        cells.collect()
    }
}
