//! The ledger: assigns every nanosecond of every CPU to exactly one account.
//!
//! # Sums
//! On each CPU, base rows (threads and idle time) cover the whole timeline. Interrupts, softirqs
//! and the functions within them are nested in a base row or in each other. A row's `self_time` is
//! its length minus the rows nested in it. The self times of all rows on a CPU, including lost
//! ones, therefore add up exactly to the CPU's elapsed time. Any difference is reported in
//! [`Balance::imbalances`](ticktax_model::statement::Balance) and never added to an account.
//!
//! # Gaps of the probes
//! A tracer sees an interrupt only from the first instruction of its handler's entry point. A
//! spinning probe sees all the time during which its loop did not run. The difference is the gap's
//! *residual*. The tracer charges it to the probe's thread, because no other thread was on the CPU.
//! The ledger finds the rows inside each gap (`matching`) and moves the residual from the probe's
//! account to the right one:
//!
//! | contents of the gap | the residual becomes |
//! |---|---|
//! | named rows | entry and exit up to a bound (`entry_exit`), the excess as for an empty gap |
//! | nothing, on a fully watched CPU | outside |
//! | nothing, but kernel counters show N unseen entries | outside, except the N longest gaps |
//! | nothing, otherwise | unexplained |
//! | unknown, because rows may be missing | unexplained |
//!
//! *Outside* means that the kernel provably ran nothing, so the hypervisor or firmware must have
//! used the CPU. A CPU is fully watched if every kernel entry is traced, no event on the CPU was
//! lost, and the kernel's own counters agree with the trace (`proof`).
//!
//! If the kernel did not report the switch to a thread, that thread's row is always unexplained.
//!
//! Moving time does not change the total. Gaps below the probe's threshold stay in the probe's
//! account. So does the time of gaps that the probe had to drop (`Loss::gaps`, which the
//! statement's coverage counts).
//!
//! A sleeping probe's gap lasts from the time the probe was due until it ran. These gaps are
//! reported but move no time, because the time was never charged to the probe.
//!
//! # Steal
//! If the hypervisor's own counter shows that time was stolen from a CPU between the header's two
//! readings, the same amount of the CPU's outside time is booked as steal instead. It is the same
//! time, measured more directly.
//!
//! # Memory
//! The ledger keeps a tally per source, a histogram per account, and a queue of gaps per CPU. Gaps
//! wait in the queue for their rows, which the timeline keeps in a bounded history.

mod accounts;
mod books;
mod closing;
mod contents;
mod entry_exit;
mod gap_causes;
mod gaps;
mod matching;
mod on_cpu;
mod proc_level;
mod proof;
mod settled;
mod signatures;
pub(crate) mod tally;
mod transfers;
mod unreported;
mod waits;

use ticktax_model::recording::{Header, Sum};
use ticktax_model::statement::{Account, Class};
use ticktax_model::{Nanos, SourceTable};

use self::accounts::Registry;
pub(crate) use self::accounts::{account_name, is_counted};
use self::books::ClassTimes;
pub(crate) use self::closing::Books;
use self::contents::Contents;
pub(crate) use self::contents::JudgedGap;
use self::gap_causes::GapCauses;
use self::gaps::CpuGaps;
use self::matching::{Gap, GapQueue};
use self::on_cpu::OnCpuTimes;
use self::proof::Departures;
pub(crate) use self::proof::Proofs;
use self::signatures::Signatures;
use self::waits::Waits;
use crate::timeline::{Event, EventKind, History, Role, Roles, Timeline};

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    registry: Registry,
    /// State of each CPU, indexed by CPU number. Impossible CPU numbers all share the index just
    /// past the kernel's limit.
    cpus: Vec<Option<Box<CpuLedger>>>,
    gap_causes: GapCauses,
    waits: Waits,
    signatures: Signatures,
    on_cpu: OnCpuTimes,
    /// Reused for each gap, to avoid allocation.
    contents: Contents,
}

#[derive(Debug, Default)]
struct CpuLedger {
    classes: ClassTimes,
    queue: GapQueue,
    gaps: CpuGaps,
    departures: Departures,
}

/// A row counts as inside a spinning probe's gap if it extends beyond the gap by at most this much.
/// The probe's counter is synchronised with the tracer's clock to within tens of nanoseconds.
pub(crate) const TOLERANCE: Nanos = Nanos(100);

pub(crate) fn slack(header: &Header) -> Nanos {
    TOLERANCE + proof::uncertainty(header)
}

impl Ledger {
    /// Returns the accounts of all rows so far, before any residuals are moved.
    pub(crate) fn so_far(&self, sources: &SourceTable) -> Vec<Account> {
        self.registry.accounts(sources, Nanos::ZERO)
    }

    /// Books an event, given its CPU's history. Calls `judged` for each spinning-probe gap whose
    /// contents are now fully known.
    #[inline]
    pub(crate) fn event(
        &mut self,
        event: &Event<'_>,
        history: &mut History,
        mut judged: impl FnMut(&Roles, &JudgedGap<'_>),
    ) {
        let slot = event.slot;
        if slot >= self.cpus.len() {
            self.cpus.resize_with(slot + 1, || None);
        }
        let cpu = self.cpus[slot].get_or_insert_with(Box::default);
        match (event.kind(), event.class) {
            (EventKind::OffCpu(off), _) => {
                self.waits.note(off, event.span);
                return;
            }
            (EventKind::Sum(Role::OffCpu(off), sum), _) => {
                self.waits.note_sum(off, sum);
                return;
            }
            (EventKind::Gap(probe), _) => cpu.queue.push(Gap::new(probe, event.span)),
            (EventKind::Sum(Role::Gap(probe), sum), _) => {
                let Sum {
                    span,
                    count,
                    max,
                    histogram,
                } = sum;
                cpu.queue.cannot_place(Nanos::ZERO);
                cpu.gaps
                    .note_sum(probe, span.self_time, *count, *max, histogram);
            }
            (EventKind::Sum(role, sum), Some(class)) => {
                match role {
                    Role::OnCpu(_) => self.on_cpu.add_sum(sum),
                    _ => self.on_cpu.add_interrupts(sum),
                }
                self.registry.add_sum(event, sum);
                cpu.classes.add(class, sum.span.self_time);
                if class != Class::Probe {
                    cpu.queue.cannot_place(sum.span.self_time);
                }
            }
            (kind, Some(class)) => {
                if let EventKind::OnCpu(_, onset) = kind {
                    let is_probe = class == Class::Probe;
                    cpu.departures.note(is_probe, event.span.end());
                    self.on_cpu.add(event.span, onset.continues);
                }
                self.registry.add_span(event);
                cpu.classes.add(class, event.span.self_time);
                if class != Class::Probe {
                    cpu.queue.note_row(event.span);
                }
            }
            (_, None) => {}
        }
        if cpu.queue.has_ripe_gap(history) {
            self.judge_gaps(slot, history, event.roles, &mut judged);
        }
    }

    /// Computes the final accounts from all events, `header`, and the rows still in `timeline`.
    /// Calls `judged` for the remaining gaps.
    ///
    /// At [`Level::Proc`](ticktax_model::recording::Level), the accounts come from the kernel's
    /// counters, and gap rows are the only rows used.
    pub(crate) fn close(
        mut self,
        header: &Header,
        sources: &SourceTable,
        timeline: &mut Timeline,
        mut judged: impl FnMut(&Roles, &JudgedGap<'_>),
    ) -> Books {
        for slot in 0..self.cpus.len() {
            let (Some(Some(cpu)), Some((history, roles))) =
                (self.cpus.get_mut(slot), timeline.history(slot))
            else {
                continue;
            };
            cpu.queue.close();
            cpu.queue.settle(history);
            self.judge_gaps(slot, history, roles, &mut judged);
        }
        closing::close(&self, header, sources)
    }

    /// Judges the gaps on CPU `slot` whose rows have all arrived.
    fn judge_gaps(
        &mut self,
        slot: usize,
        history: &mut History,
        roles: &Roles,
        judged: &mut impl FnMut(&Roles, &JudgedGap<'_>),
    ) {
        let Some(Some(cpu)) = self.cpus.get_mut(slot) else {
            return;
        };
        while let Some(gap) = cpu.queue.next_ripe(history) {
            let tolerance = if gap.moves_time() {
                TOLERANCE
            } else {
                Nanos::ZERO
            };
            cpu.queue
                .look_into(&gap, history, tolerance, &mut self.contents);
            self.contents.classify(|source| roles.class(source));
            self.contents.yielded &= gap.moves_time();
            let signature = if gap.moves_time() && !self.contents.incomplete {
                let shape = self.contents.shape;
                self.signatures.intern(&self.contents.held, shape)
            } else {
                None
            };
            let (contents, registry) = (&self.contents, &self.registry);
            cpu.gaps.note(&gap, contents, registry, signature);
            self.gap_causes.note(&gap, contents, registry, signature);
            if gap.moves_time() && !self.contents.incomplete {
                let residual = gap.span.dur - self.contents.named;
                let gap = JudgedGap {
                    span: gap.span,
                    residual,
                    held: &self.contents.held,
                };
                judged(roles, &gap);
            }
        }
    }
}
