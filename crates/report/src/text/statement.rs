//! The page about a machine: its first screen, or its sections, the proof behind it.

use ticktax_model::statement::Statement;

use super::block::Written;
use super::page::{Page, Tone};
use super::{
    Paged, TextStyle, accounting, accounts, beats, cpus, findings, foot, gaps, head, held,
    packet_path, screen, tick, victim, waits,
};
use crate::view::{Section, View};

impl Paged for Statement {
    fn page(&self, style: &TextStyle) -> Written {
        statement(self, style)
    }
}

/// The statement as text, with a line break at the end. No line is longer than the width asked
/// for, whatever the names in it; control characters in names are replaced.
pub(super) fn statement(statement: &Statement, style: &TextStyle) -> Written {
    if style.view == View::First {
        return screen::first(statement, style);
    }
    let mut page = Page::new(*style);
    if style.view == View::Full {
        head::write(&mut page, statement);
    }
    let legends = style.view.is_legend_only();
    let shows = |section| legends || style.view.shows(section);
    for (section, parts) in SECTIONS {
        if shows(*section) {
            let before = page.length();
            for write in *parts {
                write(&mut page, statement);
            }
            let asked = matches!(style.view, View::Only(_)) && !legends;
            if asked && page.length() == before {
                page.paragraph(Tone::Plain, "", nothing(*section));
            }
        }
    }
    page.finish()
}

/// Why a section that was asked for is empty.
fn nothing(section: Section) -> &'static str {
    match section {
        Section::Noise => "noise: no probe ran (--probe spin, --probe sleep).",
        Section::Repeats => {
            "repeats: not searched: that takes a traced recording with its spans (--keep spans)."
        }
        Section::Net => {
            "net: no packet was seen to wake a thread: none came, or none of their softirqs (NET_RX) \
             was traced with its spans (--keep spans)."
        }
        Section::Tick => "tick: none was seen or counted.",
        Section::Accounting => "accounting: what top shows was not recorded.",
        Section::Findings => "findings: none.",
        Section::Time | Section::Frames | Section::Limits | Section::Legend => "nothing to tell.",
    }
}

/// Writes a part of a page.
type Writer = fn(&mut Page, &Statement);

/// The sections of a statement's page, in its order.
const SECTIONS: &[(Section, &[Writer])] = &[
    (
        Section::Time,
        &[
            accounts::write,
            cpus::write,
            waits::write,
            held::write,
            victim::write,
        ],
    ),
    (Section::Noise, &[gaps::write]),
    (Section::Net, &[packet_path::write]),
    (Section::Repeats, &[beats::write]),
    (Section::Tick, &[tick::write]),
    (Section::Accounting, &[accounting::write]),
    (Section::Findings, &[findings::write]),
    (Section::Limits, &[foot::write]),
];
