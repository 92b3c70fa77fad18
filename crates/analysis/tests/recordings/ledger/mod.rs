//! Tests the ledger with random recordings whose accounts are known, and in hand-made situations.

pub(crate) mod fixture;
mod processes;
mod properties;
mod situations;

mod parts;

use ticktax_analysis::Auditor;
use ticktax_fixture::replay;
use ticktax_model::recording::{Header, Row};
use ticktax_model::statement::{Class, Statement};
use ticktax_model::{Nanos, SourceTable};

fn statement(rows: &[Row], header: &Header, sources: &SourceTable) -> Statement {
    let mut auditor = Auditor::books();
    replay(sources, rows, &mut auditor);
    auditor.finish(header, sources, 1)
}

/// Returns the total time of `class` over all accounts. Checks that the CPUs' times add up to the
/// same total.
fn time_of(statement: &Statement, class: Class) -> Nanos {
    let accounts = statement
        .accounts
        .iter()
        .filter(|account| account.class == class);
    let time = accounts.map(|account| account.time).sum();
    let by_cpu: Nanos = statement
        .cpus
        .iter()
        .map(|books| books.time_of(class))
        .sum();
    assert_eq!(time, by_cpu, "{class:?}: accounts and CPUs disagree");
    time
}
