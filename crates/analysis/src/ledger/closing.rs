//! Closing the books: from tallies to accounts.

use std::collections::BTreeSet;

use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Coverage, Header, Level, ProbeKind};
use ticktax_model::statement::{Account, Balance, CpuBooks, GapStatement, ThrottledProgram};
use ticktax_model::{Cpu, CpuList, Nanos, SourceTable};

use super::books::{ClassTimes, balance};
use super::gaps::{CpuGaps, Verdict};
use super::transfers::Transfers;
use super::{CpuLedger, Ledger, proc_level};

/// One CPU as its books are closed.
struct Closing<'a> {
    cpu: Cpu,
    elapsed: Nanos,
    ledger: Option<&'a CpuLedger>,
    verdict: Verdict,
}

impl Closing<'_> {
    fn classes(&self) -> ClassTimes {
        self.ledger.map(|ledger| ledger.classes).unwrap_or_default()
    }
}

/// What the ledger says when it is closed.
#[derive(Debug)]
pub(crate) struct Books {
    /// Each CPU's time by class.
    pub(crate) cpus: Vec<CpuBooks>,
    /// The accounts of all CPUs, in the order of a statement.
    pub(crate) accounts: Vec<Account>,
    /// Whether the two add up.
    pub(crate) balance: Balance,
    /// Who wanted to run and was not allowed to.
    pub(crate) throttled: Vec<ThrottledProgram>,
    /// What the probes saw.
    pub(crate) gaps: Option<GapStatement>,
    /// The header's coverage, and what the ledger could not see on top of it.
    pub(crate) coverage: Coverage,
}

/// Closes the books over all that `ledger` took.
pub(super) fn close(ledger: &Ledger, header: &Header, sources: &SourceTable) -> Books {
    let closings = closings(ledger, header);
    let (classes, mut accounts) = match header.level {
        Level::Kernel => by_rows(ledger, &closings, header, sources),
        Level::Proc => by_counters(&closings, header),
    };
    sort(&mut accounts);
    let cpus: Vec<_> = closings
        .iter()
        .zip(classes)
        .map(|(closing, classes)| classes.to_books(closing.cpu, closing.elapsed))
        .collect();
    let gaps: Vec<(&CpuGaps, Verdict, Cpu)> = closings
        .iter()
        .filter_map(|closing| Some((&closing.ledger?.gaps, closing.verdict, closing.cpu)))
        .collect();
    Books {
        balance: balance(&cpus, &accounts),
        cpus,
        accounts,
        throttled: ledger.waits.statement(sources),
        gaps: ledger
            .gap_causes
            .statement(header, &gaps, &ledger.registry, sources),
        coverage: coverage(header, &closings),
    }
}

/// Every CPU that has books, rows or losses. One without books has nothing to account for, so
/// that whatever was booked on it shows up as an error.
fn closings<'a>(ledger: &'a Ledger, header: &Header) -> Vec<Closing<'a>> {
    let with_rows = (0u32..)
        .zip(&ledger.cpus)
        .filter(|(_, slot)| slot.is_some());
    let with_books = header.books.iter().map(|books| books.cpu);
    let with_losses = header.coverage.lost.iter().map(|loss| loss.cpu);
    let mut cpus: BTreeSet<Cpu> = with_rows.map(|(number, _)| Cpu(number)).collect();
    cpus.extend(with_books.chain(with_losses));
    let closing = |cpu: Cpu| {
        let books = header.books.iter().filter(|books| books.cpu == cpu);
        let ledger = ledger.cpus.get(cpu.index()).and_then(Option::as_deref);
        let unplaceable = ledger.is_some_and(|ledger| ledger.queue.is_unplaceable());
        Closing {
            cpu,
            elapsed: books.map(ticktax_model::recording::Books::elapsed).sum(),
            ledger,
            verdict: Verdict::on(cpu, header, unplaceable),
        }
    };
    cpus.into_iter().map(closing).collect()
}

/// The classes of each CPU and the accounts of all, from the rows.
fn by_rows(
    ledger: &Ledger,
    closings: &[Closing<'_>],
    header: &Header,
    sources: &SourceTable,
) -> (Vec<ClassTimes>, Vec<Account>) {
    let mut transfers = Transfers::default();
    let mut close = |closing: &Closing<'_>| {
        let mut classes = closing.classes();
        let loss = header.coverage.lost_on(closing.cpu);
        transfers.book_loss(loss, &mut classes);
        if let Some(cpu) = closing.ledger {
            transfers.book_gaps(cpu, closing.verdict, loss, &mut classes);
        }
        if let Some(stolen) = header.after.steal_since(&header.before, closing.cpu) {
            transfers.book_steal(stolen, &mut classes);
        }
        classes
    };
    let classes = closings.iter().map(&mut close).collect();
    let mut accounts = ledger.registry.accounts(sources);
    transfers.apply(&mut accounts, &ledger.registry);
    (classes, accounts)
}

/// The classes of each CPU and the accounts of all, from the kernel's counters.
fn by_counters(closings: &[Closing<'_>], header: &Header) -> (Vec<ClassTimes>, Vec<Account>) {
    let close = |closing: &Closing<'_>| {
        let gaps = closing
            .ledger
            .and_then(|ledger| ledger.gaps.of(ProbeKind::Spin));
        proc_level::class_times(header, closing.cpu, closing.elapsed, gaps)
    };
    let classes: Vec<ClassTimes> = closings.iter().map(close).collect();
    let accounts = proc_level::accounts(&classes);
    (classes, accounts)
}

/// Sorts accounts as a statement lists them: by class, the largest first, equals by name and pid.
fn sort(accounts: &mut [Account]) {
    accounts.sort_by(|a, b| {
        let by_time = a.class.cmp(&b.class).then(b.time.cmp(&a.time));
        by_time
            .then_with(|| a.name.cmp(&b.name))
            .then(a.pid.cmp(&b.pid))
    });
}

/// The header's coverage, and what the ledger could not see on top of it.
fn coverage(header: &Header, closings: &[Closing<'_>]) -> Coverage {
    let mut coverage = header.coverage.clone();
    let saw_gaps = |closing: &Closing<'_>| {
        let gaps = closing.ledger.map(|ledger| &ledger.gaps);
        let probes = [ProbeKind::Spin, ProbeKind::Sleep];
        gaps.is_some_and(|gaps| probes.into_iter().any(|probe| gaps.of(probe).is_some()))
    };
    let list = |which: &dyn Fn(&Closing<'_>) -> bool| -> CpuList {
        closings
            .iter()
            .filter(|closing| which(closing))
            .map(|closing| closing.cpu)
            .collect()
    };
    let cpus = list(&|closing| closing.verdict == Verdict::Unplaceable && saw_gaps(closing));
    if !cpus.is_empty() {
        let limitation = Limitation::GapContentsUnknown { cpus };
        coverage.limitations.push(limitation);
    }
    let cpus = list(&|closing| {
        header.level == Level::Proc && !proc_level::has_counters(header, closing.cpu)
    });
    if !cpus.is_empty() {
        let limitation = Limitation::CountersUnread { cpus };
        coverage.limitations.push(limitation);
    }
    coverage
}
