//! The blocks that make up a page. A terminal shows them as lines, and a browser as paragraphs,
//! lists and tables.

use std::fmt;
use std::ops::Deref;

use ticktax_model::waits::WaitingProgram;
use ticktax_model::{Cpu, Moment, Nanos};

use super::page::Tone;

/// A part of a page. Its text is not cleaned yet, so it may contain names with arbitrary
/// characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Title of the blocks that follow.
    Section(String),
    /// Vertical space.
    Gap,
    /// A line that is not part of a table or paragraph.
    Line {
        tone: Tone,
        text: String,
        place: Option<LinkedMoment>,
    },
    /// A line of a table.
    Row(Row),
    /// Running text after a label, which can be empty.
    Text {
        tone: Tone,
        label: String,
        text: String,
        place: Option<LinkedMoment>,
    },
    /// A command that the user can copy.
    Command(String),
    /// An explanation of the terms and columns above it.
    Legend(String),
    /// Preformatted lines, whose columns are aligned only with spaces.
    Verbatim(String),
}

/// A moment that a line refers to. HTML pages use it to link the line to the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkedMoment {
    /// Start of the moment, relative to the start of the recording.
    pub(crate) at: Nanos,
    pub(crate) length: Nanos,
    /// CPU concerned, or `None` if there is more than one.
    pub(crate) cpu: Option<Cpu>,
}

impl From<Moment> for LinkedMoment {
    fn from(Moment { at, length, cpu }: Moment) -> Self {
        Self {
            at,
            length,
            cpu: Some(cpu),
        }
    }
}

impl From<&WaitingProgram> for LinkedMoment {
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
    /// Moment that the last cell of the line refers to.
    pub(crate) place: Option<LinkedMoment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// Whether the cell is left-aligned, as words are, rather than right-aligned.
    pub(crate) is_left: bool,
}

/// A finished page, both as text and as blocks with the same content.
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

    /// Creates a page from preformatted text. A line after an empty line becomes a title.
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

/// Cells of a table line, to the right of the line's name.
pub(super) trait RowCells {
    /// Returns the cells as a string, as a terminal prints them.
    fn line(&self) -> String;

    fn cells(&self) -> Vec<Cell>;
}

/// A string counts as a single cell.
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

/// Cells that are aligned with the cells of the lines above and below.
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
    /// Creates right-aligned cells, each given as its width and text. They are separated by one
    /// space.
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

    /// Returns whether all cells are empty.
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
