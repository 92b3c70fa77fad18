//! Computes the final accounts from the tallies.

use std::collections::BTreeSet;

use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Coverage, Header, Level, ProbeKind};
use ticktax_model::statement::{Account, Balance, CpuAccounts, GapStatement, ThrottledProgram};
use ticktax_model::witness::CpuProof;
use ticktax_model::{Cpu, CpuList, Nanos, SourceTable};

use super::accounts::Registry;
use super::books::{ClassTimes, balance};
use super::entry_exit::Bounds;
use super::gap_causes::Closed;
use super::proof::{proof, uncertainty};
use super::settled::{Settled, residuals};
use super::transfers::Transfers;
use super::unreported::unreported;
use super::{CpuLedger, Ledger, proc_level};
use crate::ran::Ran;

/// A CPU whose accounts are being closed.
struct Closing<'a> {
    cpu: Cpu,
    elapsed: Nanos,
    ledger: Option<&'a CpuLedger>,
    unplaceable: bool,
    proof: CpuProof,
}

impl<'a> Closing<'a> {
    fn classes(&self) -> ClassTimes {
        self.ledger.map(|ledger| ledger.classes).unwrap_or_default()
    }

    /// Returns the CPU's judged gaps, or `None` if the CPU has no rows.
    fn closed(&self, bounds: &Bounds, registry: &Registry, header: &Header) -> Option<Closed<'a>> {
        Some(Closed {
            gaps: &self.ledger?.gaps,
            spin: self.settled(ProbeKind::Spin, bounds, registry, header),
            sleep: self.settled(ProbeKind::Sleep, bounds, registry, header),
            proof: self.proof.clone(),
        })
    }

    /// Assigns `probe`'s gaps to accounts.
    fn settled(
        &self,
        probe: ProbeKind,
        bounds: &Bounds,
        registry: &Registry,
        header: &Header,
    ) -> Option<Settled> {
        let book = self.ledger?.gaps.book(probe)?;
        Some(Settled::new(
            book,
            &self.proof,
            self.unplaceable,
            bounds,
            registry,
            uncertainty(header),
        ))
    }
}

/// The ledger's results.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) cpus: Vec<CpuAccounts>,
    /// Accounts summed over all CPUs, in statement order.
    pub(crate) accounts: Vec<Account>,
    /// Result of the check that `cpus` and `accounts` add up to the elapsed time.
    pub(crate) balance: Balance,
    pub(crate) throttled: Vec<ThrottledProgram>,
    pub(crate) gaps: Option<GapStatement>,
    /// The header's coverage, plus the limitations that the ledger found.
    pub(crate) coverage: Coverage,
    /// For each CPU, the spinning probe's gaps in which the kernel provably ran nothing.
    pub(crate) proofs: Vec<CpuProof>,
    pub(crate) ran: Ran,
}

pub(super) fn close(ledger: &Ledger, header: &Header, sources: &SourceTable) -> Books {
    let closings = closings(ledger, header);
    let bounds = bounds(ledger, &closings, header);
    let (classes, mut accounts) = match header.level {
        Level::Kernel => by_rows(ledger, &closings, &bounds, header, sources),
        Level::Proc => by_counters(&closings, header),
    };
    sort(&mut accounts);
    let cpus: Vec<_> = closings
        .iter()
        .zip(classes)
        .map(|(closing, classes)| classes.to_books(closing.cpu, closing.elapsed))
        .collect();
    let gaps = closings.iter();
    let gaps: Vec<Closed<'_>> = gaps
        .filter_map(|closing| closing.closed(&bounds, &ledger.registry, header))
        .collect();
    Books {
        balance: balance(&cpus, &accounts),
        cpus,
        accounts,
        throttled: ledger.waits.statement(sources),
        gaps: ledger
            .gap_causes
            .statement(header, &gaps, &bounds, &ledger.registry, sources),
        coverage: coverage(
            header,
            &closings,
            unreported(header, &ledger.on_cpu, sources),
        ),
        proofs: closings
            .iter()
            .map(|closing| closing.proof.clone())
            .collect(),
        ran: ledger.on_cpu.by_thread(sources),
    }
}

fn bounds(ledger: &Ledger, closings: &[Closing<'_>], header: &Header) -> Bounds {
    let books = closings.iter().filter_map(|closing| {
        let ledger = closing.ledger.filter(|_| !closing.unplaceable)?;
        ledger.gaps.book(ProbeKind::Spin)
    });
    // Each edge of a gap lies between two clock readings, and each reading can be off by `clock`.
    let spinning = header.probes.iter();
    let spinning = spinning.filter(|probe| probe.probe == ProbeKind::Spin);
    let loop_period = spinning.map(|probe| probe.period).max();
    let clock = uncertainty(header);
    let noise = clock + clock + loop_period.unwrap_or(Nanos::ZERO);
    Bounds::new(&ledger.signatures, residuals(books), noise)
}

/// Returns every CPU that has rows, losses, or accounting times in the header. A CPU without
/// accounting times has no elapsed time, so anything booked on it shows up as an imbalance.
fn closings<'a>(ledger: &'a Ledger, header: &Header) -> Vec<Closing<'a>> {
    let with_rows = (0u32..)
        .zip(&ledger.cpus)
        .filter(|(_, slot)| slot.is_some());
    let with_books = header.cpus.iter().map(|books| books.cpu);
    let with_losses = header.coverage.lost.iter().map(|loss| loss.cpu);
    let mut cpus: BTreeSet<Cpu> = with_rows.map(|(number, _)| Cpu(number)).collect();
    cpus.extend(with_books.chain(with_losses));
    let closing = |cpu: Cpu| {
        let books = header.cpus.iter().filter(|books| books.cpu == cpu);
        let ledger = ledger.cpus.get(cpu.index()).and_then(Option::as_deref);
        let unplaceable = ledger.is_some_and(|ledger| ledger.queue.is_unplaceable());
        let departures = ledger.map(|ledger| &ledger.departures);
        Closing {
            cpu,
            elapsed: books
                .map(ticktax_model::recording::CpuInterval::elapsed)
                .sum(),
            ledger,
            unplaceable,
            proof: proof(cpu, header, departures, unplaceable),
        }
    };
    cpus.into_iter().map(closing).collect()
}

/// Computes each CPU's time per class, and all accounts, from rows.
fn by_rows(
    ledger: &Ledger,
    closings: &[Closing<'_>],
    bounds: &Bounds,
    header: &Header,
    sources: &SourceTable,
) -> (Vec<ClassTimes>, Vec<Account>) {
    let mut transfers = Transfers::default();
    let mut close = |closing: &Closing<'_>| {
        let mut classes = closing.classes();
        let loss = header.coverage.lost_on(closing.cpu);
        transfers.book_loss(loss, &mut classes);
        let settled = closing.settled(ProbeKind::Spin, bounds, &ledger.registry, header);
        if let Some((cpu, settled)) = closing.ledger.zip(settled.as_ref()) {
            transfers.book_gaps(cpu, settled, loss, &mut classes);
        }
        if let Some(stolen) = header.after.steal_since(&header.before, closing.cpu) {
            transfers.book_steal(stolen, &mut classes);
        }
        classes
    };
    let classes = closings.iter().map(&mut close).collect();
    let begin = header.begin().unwrap_or_default();
    let mut accounts = ledger.registry.accounts(sources, begin);
    transfers.apply(&mut accounts, &ledger.registry);
    (classes, accounts)
}

/// Computes each CPU's time per class, and all accounts, from the kernel's counters.
fn by_counters(closings: &[Closing<'_>], header: &Header) -> (Vec<ClassTimes>, Vec<Account>) {
    let close = |closing: &Closing<'_>| {
        let gaps = closing
            .ledger
            .and_then(|ledger| ledger.gaps.book(ProbeKind::Spin));
        proc_level::class_times(header, closing.cpu, closing.elapsed, gaps)
    };
    let classes: Vec<ClassTimes> = closings.iter().map(close).collect();
    let accounts = proc_level::accounts(&classes);
    (classes, accounts)
}

/// Sorts accounts in statement order: by class, then by time (longest first), then by name and PID.
fn sort(accounts: &mut [Account]) {
    accounts.sort_by(|a, b| {
        let by_time = a.class.cmp(&b.class).then(b.time.cmp(&a.time));
        by_time
            .then_with(|| a.name.cmp(&b.name))
            .then(a.pid.cmp(&b.pid))
    });
}

/// Returns the header's coverage, plus what the ledger could not see. `unreported` lists time and
/// switches that appear in no event.
fn coverage(header: &Header, closings: &[Closing<'_>], unreported: Vec<Limitation>) -> Coverage {
    let mut coverage = header.coverage.clone();
    let saw_gaps = |closing: &Closing<'_>| {
        let gaps = closing.ledger.map(|ledger| &ledger.gaps);
        let probes = [ProbeKind::Spin, ProbeKind::Sleep];
        gaps.is_some_and(|gaps| probes.into_iter().any(|probe| gaps.book(probe).is_some()))
    };
    let list = |which: &dyn Fn(&Closing<'_>) -> bool| -> CpuList {
        closings
            .iter()
            .filter(|closing| which(closing))
            .map(|closing| closing.cpu)
            .collect()
    };
    let cpus = list(&|closing| closing.unplaceable && saw_gaps(closing));
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
    coverage.limitations.extend(unreported);
    coverage
}
