//! The auditor: every reader of rows side by side, and the statement that they make together.

use ticktax_model::beats::BeatLine;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::statement::Statement;
use ticktax_model::{Nanos, SourceTable};

use crate::findings::{self, Measured};
use crate::{AccountingCheck, BeatFinder, Ledger, Victim};

/// Takes a recording's rows, live or from a file, and makes its statement.
#[derive(Debug)]
pub struct Auditor {
    ledger: Ledger,
    beats: BeatFinder,
    accounting: AccountingCheck,
    victim: Option<Victim>,
}

impl Auditor {
    /// An auditor of `machine` that has seen nothing.
    pub fn new(machine: &Machine) -> Self {
        Self {
            ledger: Ledger::default(),
            beats: BeatFinder::default(),
            accounting: AccountingCheck::new(machine),
            victim: None,
        }
    }

    /// From when on there is a program whose time is asked for, unless that was said before.
    pub fn victim_since(&mut self, begin: Nanos) {
        self.victim.get_or_insert_with(|| Victim::new(begin));
    }

    /// Beats that were not told before, for somebody who watches.
    pub fn news(&mut self) -> Vec<BeatLine> {
        self.beats.news()
    }

    /// The statement of all rows; beats are searched on `threads` threads.
    pub fn finish(self, header: &Header, sources: &SourceTable, threads: usize) -> Statement {
        let mut statement = self.ledger.finish(header, sources);
        statement.accounting = self.accounting.finish(header, &statement, sources);
        let measured = Measured {
            tick: statement.tick.as_ref(),
            accounting: statement.accounting.as_ref(),
            accounts: &statement.accounts,
        };
        statement.findings = findings::judge(header, measured);
        statement.beats = Some(self.beats.finish(header, threads));
        let victim = self.victim.unwrap_or_else(|| Victim::new(Nanos::ZERO));
        statement.victim = victim.finish(header, sources);
        statement
    }
}

impl RowSink for Auditor {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.ledger.row(sources, row);
        self.beats.row(sources, row);
        self.accounting.row(sources, row);
        if let Some(victim) = &mut self.victim {
            victim.row(sources, row);
        }
    }
}
