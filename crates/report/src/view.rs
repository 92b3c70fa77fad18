//! What of a document a page shows: its first screen, chosen sections, or all of it.

use ticktax_model::document::DocumentKind;

/// What a page shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// The answer, on one screen.
    #[default]
    First,
    /// These sections.
    Only(Sections),
    /// Everything, legends included.
    Full,
}

/// A section of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Where the CPU time went, and what happened to the watched program.
    Time,
    /// What the probe lost, and to what.
    Noise,
    /// What delayed packets.
    Net,
    /// What repeats.
    Repeats,
    /// The tick's bill.
    Tick,
    /// The kernel's counters beside what was traced.
    Accounting,
    /// What is configured and not in effect.
    Findings,
    /// The frames of a paced loop.
    Frames,
    /// What could not be seen, what observing cost, and the books.
    Limits,
    /// What the words and columns mean.
    Legend,
}

impl Section {
    /// Every section.
    pub const ALL: &[Self] = &[
        Self::Time,
        Self::Noise,
        Self::Net,
        Self::Repeats,
        Self::Tick,
        Self::Accounting,
        Self::Findings,
        Self::Frames,
        Self::Limits,
        Self::Legend,
    ];
    /// Those of a statement, in its order.
    const STATEMENT: &[Self] = &[
        Self::Time,
        Self::Noise,
        Self::Net,
        Self::Repeats,
        Self::Tick,
        Self::Accounting,
        Self::Findings,
        Self::Limits,
        Self::Legend,
    ];

    /// Those of a page about beats.
    const BEATS: &[Self] = &[Self::Repeats, Self::Limits, Self::Legend];
    /// Those of a page about a paced loop.
    const PACE: &[Self] = &[Self::Frames, Self::Accounting, Self::Limits, Self::Legend];

    /// Those of a page about what changed.
    const CHANGES: &[Self] = &[Self::Time, Self::Repeats, Self::Tick, Self::Legend];

    /// The sections of such documents; none where the page has only one.
    pub fn of(kind: DocumentKind) -> &'static [Self] {
        match kind {
            DocumentKind::Statement => Self::STATEMENT,
            DocumentKind::Beats => Self::BEATS,
            DocumentKind::Pace => Self::PACE,
            DocumentKind::Changes => Self::CHANGES,
            DocumentKind::PaceComparison | DocumentKind::Trial | DocumentKind::Numbers => {
                &[Self::Legend]
            }
            _ => &[],
        }
    }

    /// The word for it on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Noise => "noise",
            Self::Net => "net",
            Self::Repeats => "repeats",
            Self::Tick => "tick",
            Self::Accounting => "accounting",
            Self::Findings => "findings",
            Self::Frames => "frames",
            Self::Limits => "limits",
            Self::Legend => "legend",
        }
    }

    /// What it holds, for the help.
    pub fn about(self) -> &'static str {
        match self {
            Self::Time => "Where the CPU time went; what happened to the watched program",
            Self::Noise => {
                "CPU noise (spin probe), or wake-up latency (sleep probe): the probe's gaps"
            }
            Self::Net => "What delayed packets on their way to the threads that they woke",
            Self::Repeats => "What repeats: periods and their sources",
            Self::Tick => "What the timer tick costs",
            Self::Accounting => "What top shows, beside what was traced or measured",
            Self::Findings => "What is configured and not in effect",
            Self::Frames => "The frames of a paced loop, second by second",
            Self::Limits => "What could not be seen, what observing cost, and the books",
            Self::Legend => "What the words and columns of the other sections mean",
        }
    }
}

/// A set of sections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sections(u16);

impl Sections {
    /// The first of them that pages about such documents lack.
    pub fn missing_in(self, kind: DocumentKind) -> Option<Section> {
        let there = Section::of(kind);
        let mut all = Section::ALL.iter().copied();
        all.find(|&section| self.has(section) && !there.contains(&section))
    }

    /// Whether the section is one of them.
    pub fn has(self, section: Section) -> bool {
        self.0 & (1 << section as u16) != 0
    }
}

impl FromIterator<Section> for Sections {
    fn from_iter<I: IntoIterator<Item = Section>>(sections: I) -> Self {
        let bits = sections.into_iter().map(|section| 1 << section as u16);
        Self(bits.fold(0, |all, bit| all | bit))
    }
}

/// What the first screen counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// All processes of one name.
    #[default]
    Name,
    /// Each process.
    Process,
    /// Each thread's name within a process.
    Thread,
}

impl Grouping {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Name, Self::Process, Self::Thread];

    /// The word for it on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Process => "process",
            Self::Thread => "thread",
        }
    }
}

impl View {
    /// Whether such a section is shown in full.
    pub(crate) fn shows(self, section: Section) -> bool {
        match self {
            Self::First => false,
            Self::Only(sections) => sections.has(section),
            Self::Full => true,
        }
    }

    /// Such legends as belong below a first screen.
    pub(crate) fn legends() -> Self {
        Self::Only(Sections::from_iter([Section::Legend]))
    }

    /// Whether nothing but legends is asked for.
    pub(crate) fn is_legend_only(self) -> bool {
        self == Self::legends()
    }
}
