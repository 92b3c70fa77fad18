//! Selects the parts of a document to show: the first screen, some of the sections, or everything.

use ticktax_model::comparison::Experiment;
use ticktax_model::document::{Document, DocumentKind};

/// The parts of a document to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Only the first screen, which contains the answer.
    #[default]
    First,
    /// Only these sections.
    Only(Sections),
    /// Everything, including legends.
    Full,
}

/// A section of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// CPU time by account, and the time of the watched program.
    Time,
    /// Gaps of a probe, and their causes.
    Noise,
    /// The steps that delayed packets.
    Net,
    /// Periodic sources.
    Repeats,
    /// CPU time by sampled function.
    Profile,
    /// Virtual machines: their CPU time and exits.
    Guests,
    /// Cost of the timer tick.
    Tick,
    /// Comparison of the kernel's counters with traced times.
    Accounting,
    /// Settings that are configured but not in effect.
    Findings,
    /// Frames of a paced loop.
    Frames,
    /// Limitations, the cost of observing, and whether the accounts balance.
    Limits,
    /// Meaning of terms and columns.
    Legend,
}

impl Section {
    /// Every section.
    pub const ALL: &[Self] = &[
        Self::Time,
        Self::Noise,
        Self::Net,
        Self::Repeats,
        Self::Profile,
        Self::Guests,
        Self::Tick,
        Self::Accounting,
        Self::Findings,
        Self::Frames,
        Self::Limits,
        Self::Legend,
    ];
    /// Sections of a statement, in the order in which the page shows them.
    const STATEMENT: &[Self] = &[
        Self::Time,
        Self::Noise,
        Self::Net,
        Self::Repeats,
        Self::Profile,
        Self::Guests,
        Self::Tick,
        Self::Accounting,
        Self::Findings,
        Self::Limits,
        Self::Legend,
    ];

    /// Sections of a page about periodic sources.
    const BEATS: &[Self] = &[Self::Repeats, Self::Limits, Self::Legend];
    /// Sections of a page about a paced loop.
    const PACE: &[Self] = &[Self::Frames, Self::Accounting, Self::Limits, Self::Legend];

    /// Sections of a page about the differences between two recordings.
    const CHANGES: &[Self] = &[Self::Time, Self::Repeats, Self::Tick, Self::Legend];

    /// Returns the sections of documents of this kind, or an empty slice if their page is not
    /// divided into sections.
    pub fn of_kind(kind: DocumentKind) -> &'static [Self] {
        match kind {
            DocumentKind::Statement => Self::STATEMENT,
            DocumentKind::Beats => Self::BEATS,
            DocumentKind::Pace => Self::PACE,
            // Only a comparison of two recordings has all of them.
            DocumentKind::Comparison => Self::CHANGES,
            _ => &[],
        }
    }

    /// Returns the sections of a document, or an empty slice if its page is not divided into
    /// sections.
    pub fn of(document: &Document) -> &'static [Self] {
        match document {
            Document::Comparison(comparison) => match comparison.experiment {
                Experiment::Recordings(_) => Self::CHANGES,
                Experiment::Trial(_)
                | Experiment::Numbers { .. }
                | Experiment::Distributions(_)
                | Experiment::Loops(_) => &[Self::Legend],
                _ => &[],
            },
            other => Self::of_kind(other.kind()),
        }
    }

    /// Returns the name of the section on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Noise => "noise",
            Self::Net => "net",
            Self::Repeats => "repeats",
            Self::Profile => "profile",
            Self::Guests => "guests",
            Self::Tick => "tick",
            Self::Accounting => "accounting",
            Self::Findings => "findings",
            Self::Frames => "frames",
            Self::Limits => "limits",
            Self::Legend => "legend",
        }
    }

    /// Returns the description of the section in the help text.
    pub fn about(self) -> &'static str {
        match self {
            Self::Time => {
                "CPU time by account, run-queue waits, and CPU time of the watched program"
            }
            Self::Noise => "CPU noise (spin probe) or wake-up latency (sleep probe)",
            Self::Net => "Packet latency, from the interrupt to the thread that it woke",
            Self::Repeats => "Periodic activity: period, source and cause",
            Self::Profile => "CPU time by function (--profile)",
            Self::Guests => "CPU time and exits of virtual machines, on their host",
            Self::Tick => "Cost of the timer tick",
            Self::Accounting => "CPU time in `top`, compared with the traced or measured time",
            Self::Findings => "Settings that are configured but not in effect",
            Self::Frames => "Frames of a paced loop, second by second",
            Self::Limits => "Limitations, measurement overhead, and balance of the accounts",
            Self::Legend => "Explanation of the terms and columns in the other sections",
        }
    }
}

/// A set of sections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sections(u16);

impl Sections {
    /// Returns the first section in this set that the document does not have, or `None` if it has
    /// all of them.
    pub fn missing_in(self, document: &Document) -> Option<Section> {
        let available = Section::of(document);
        let mut all = Section::ALL.iter().copied();
        all.find(|&section| self.has(section) && !available.contains(&section))
    }

    /// Returns whether the set contains the section.
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

/// How to group threads on the first screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// One group for all processes that have the same name.
    #[default]
    Name,
    /// Each process.
    Process,
    /// One group for the threads of a process that have the same name.
    Thread,
    /// One group for all processes of a service, container, pod or session.
    Group,
}

impl Grouping {
    /// All groupings.
    pub const ALL: &[Self] = &[Self::Name, Self::Process, Self::Thread, Self::Group];

    /// Returns the name of the grouping on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Process => "process",
            Self::Thread => "thread",
            Self::Group => "group",
        }
    }
}

impl View {
    /// Returns whether a section is shown in full.
    pub(crate) fn shows(self, section: Section) -> bool {
        match self {
            Self::First => false,
            Self::Only(sections) => sections.has(section),
            Self::Full => true,
        }
    }

    /// Returns a view that shows only legends, for use below a first screen.
    pub(crate) fn legends() -> Self {
        Self::Only(Sections::from_iter([Section::Legend]))
    }

    /// Returns whether only legends are shown.
    pub(crate) fn is_legend_only(self) -> bool {
        self == Self::legends()
    }
}
