//! The page about a machine: either the first screen, or the sections that contain the evidence.

use ticktax_model::statement::Statement;

use super::block::Written;
use super::page::{Page, Tone};
use super::{
    Paged, TextStyle, accounting, accounts, beats, cpus, findings, foot, gaps, group_settings,
    guests, head, held, packet_path, profile, screen, tick, victim, waits,
};
use crate::view::{Section, View};

impl Paged for Statement {
    fn page(&self, style: &TextStyle) -> Written {
        statement(self, style)
    }
}

/// Renders a statement as a page that ends with a line break. No line exceeds the requested width,
/// even if names are long. Control characters in names are replaced.
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

/// Explains why a requested section is empty.
fn nothing(section: Section) -> &'static str {
    match section {
        Section::Noise => "noise: no probe ran (--probe spin, --probe sleep).",
        Section::Repeats => {
            "repeats: not searched. This needs a traced recording with spans (--keep spans)."
        }
        Section::Net => {
            "net: no packet woke a thread. Either none arrived, or their softirqs (NET_RX) were \
             not traced with spans (--keep spans)."
        }
        Section::Profile => "profile: not recorded (audit --profile).",
        Section::Guests => "guests: no virtual machine was seen.",
        Section::Tick => "tick: no tick was traced or counted.",
        Section::Accounting => "accounting: the counters that `top` shows were not recorded.",
        Section::Findings => "findings: none.",
        Section::Time | Section::Frames | Section::Limits | Section::Legend => "nothing to show.",
    }
}

/// A function that writes one part of a page.
type Writer = fn(&mut Page, &Statement);

/// Sections of a statement and their parts, in the order in which a page shows them.
const SECTIONS: &[(Section, &[Writer])] = &[
    (
        Section::Time,
        &[
            accounts::write,
            cpus::write,
            waits::write,
            held::write,
            group_settings::limited,
            victim::write,
        ],
    ),
    (Section::Noise, &[gaps::write]),
    (Section::Net, &[packet_path::write]),
    (Section::Repeats, &[beats::write]),
    (Section::Profile, &[profile::write]),
    (Section::Guests, &[guests::write]),
    (Section::Tick, &[tick::write]),
    (Section::Accounting, &[accounting::write]),
    (Section::Findings, &[findings::write]),
    (Section::Limits, &[foot::write]),
];
