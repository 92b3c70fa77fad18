//! The auditor: the consumers of one timeline side by side, and the statement that they make
//! together.

use ticktax_model::beats::BeatLine;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::statement::Statement;
use ticktax_model::victim::VictimStatement;
use ticktax_model::{Nanos, SourceTable};

use crate::accounting::AccountingCheck;
use crate::beats::Finder;
use crate::ledger::Ledger;
use crate::pace::watch::Process;
use crate::statement::{Parts, assemble};
use crate::tick::TickAccumulator;
use crate::timeline::{Keep, Timeline};
use crate::victim::Victim;

/// Takes a recording's rows, live or from a file, and makes its statement.
///
/// The [`SourceTable`] passed with each row, and at the end, must be one and the same growing
/// table.
#[derive(Debug)]
pub struct Auditor {
    timeline: Timeline,
    ledger: Ledger,
    tick: TickAccumulator,
    accounting: Option<AccountingCheck>,
    beats: Option<Finder>,
    victim: Option<Victim>,
    frames: Option<Process>,
}

impl Auditor {
    /// An auditor of `machine` that has seen nothing, and says everything there is to say.
    pub fn new(machine: &Machine) -> Self {
        Self {
            accounting: Some(AccountingCheck::new(machine)),
            beats: Some(Finder::default()),
            ..Self::books()
        }
    }

    /// An auditor that keeps only the books and the tick's bill: no accounting check, no beats.
    pub fn books() -> Self {
        Self {
            timeline: Timeline::new(Keep::LONG),
            ledger: Ledger::default(),
            tick: TickAccumulator::default(),
            accounting: None,
            beats: None,
            victim: None,
            frames: None,
        }
    }

    /// The same without the search for beats, which takes most of the time. Enough for
    /// [`figures`](crate::figures()).
    #[must_use]
    pub fn without_beats(mut self) -> Self {
        self.beats = None;
        self
    }

    /// From when on there is a program whose time is asked for, unless that was said before. Rows
    /// that ended at `begin` or before are not looked at for it.
    pub fn victim_since(&mut self, begin: Nanos) {
        self.victim.get_or_insert_with(|| Victim::new(begin));
    }

    /// Looks for the frames of the process `pid`, the program whose time is asked for, in its
    /// wake-ups. That takes memory for every one of them, up to 40 MiB.
    pub fn frames_of(&mut self, pid: i32) {
        self.frames.get_or_insert_with(|| Process::new(pid));
    }

    /// Has the accounting check list the program `pid` however little it ran, because its
    /// [`figures`](crate::figures()) will be asked for.
    pub fn list_program(&mut self, pid: i32) {
        if let Some(check) = &mut self.accounting {
            check.list(pid);
        }
    }

    /// Beats that were not told before, for somebody who watches.
    pub fn news(&mut self) -> Vec<BeatLine> {
        self.beats.as_mut().map_or_else(Vec::new, Finder::news)
    }

    /// The statement of all rows; beats are searched on `threads` threads. `sources` is the table
    /// that the rows point into.
    pub fn finish(self, header: &Header, sources: &SourceTable, threads: usize) -> Statement {
        let Self {
            mut timeline,
            ledger,
            mut tick,
            accounting,
            beats,
            victim,
            frames,
        } = self;
        let books = ledger.close(header, sources, &mut timeline, |roles, residual, held| {
            tick.gap(roles, residual, held);
        });
        let accounting = accounting.and_then(|check| check.finish(header, &books, sources));
        let victim = victim.unwrap_or_else(|| Victim::new(Nanos::ZERO));
        let parts = Parts {
            tick: tick.finish(header, sources),
            accounting,
            beats: beats.map(|finder| finder.finish(header, threads)),
            victim: victim
                .finish(header, sources, &mut timeline)
                .map(|victim| VictimStatement {
                    frames: frames
                        .and_then(|process| process.frames(header))
                        .map(Box::new),
                    ..victim
                }),
            books,
        };
        assemble(header, parts)
    }
}

impl RowSink for Auditor {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        let (event, history) = self.timeline.event(sources, row);
        self.ledger.event(&event, history, |roles, residual, held| {
            self.tick.gap(roles, residual, held);
        });
        self.tick.event(&event);
        if let Some(check) = &mut self.accounting {
            check.event(&event);
        }
        if let Some(beats) = &mut self.beats {
            beats.event(&event);
        }
        if let Some(victim) = &mut self.victim {
            victim.event(&event, history);
        }
        if let Some(process) = &mut self.frames {
            process.event(&event);
        }
    }
}
