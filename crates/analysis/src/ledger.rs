//! The ledger: every nanosecond of every CPU in exactly one account.
//!
//! # What is summed
//! On each CPU, base rows (threads and idling) tile the time line; interrupts, softirqs and the
//! functions within them are nested in a base row or in each other, and a row's `self_time` is its
//! length without what is nested in it. So the own times of all rows of a CPU, together with the
//! own time of the rows that were lost, sum to its elapsed time exactly. What does not sum is told
//! in [`Balance::off`](ticktax_model::statement::Balance) and never booked anywhere.
//!
//! # What the probes add
//! A tracer sees an interrupt from the first instruction of its handler's entry point on. A
//! spinning probe sees the whole time that its loop did not run. The difference, the gap's
//! *residual*, is charged to the probe's thread by the tracer, because no other thread was on the CPU.
//! The ledger finds the rows inside each gap (`matching`) and moves the residual from the probe's
//! account to where it belongs:
//!
//! | the gap holds | the residual is |
//! |---|---|
//! | a named span | entry and exit around it, as far as these may take (`entry_exit`); beyond that as of a gap that holds nothing |
//! | nothing, every entry is watched, nothing was lost on that CPU, and the witnesses agree (`proof`) | outside |
//! | the same, and the witnesses count N entries more | outside, but for the N longest |
//! | nothing, otherwise | unexplained |
//! | what can no longer be told | unexplained |
//!
//! A row whose thread is not known, because the kernel did not report the switch to it, is unexplained
//! wherever it is.
//!
//! Moving keeps the sum. Two things stay in the probe's account: gaps shorter than its threshold,
//! and gaps that it had to drop (`Loss::gaps`; the statement's coverage says how many).
//!
//! The gaps of a sleeping probe, from when it was due to when it ran, are shown and move nothing:
//! that time was never the probe's.
//!
//! # Where the machine says how much was stolen
//! Where the hypervisor's own clock ran on a CPU between the header's counters, that much of the
//! CPU's outside time is booked as steal instead: it is the same time by a better witness.
//!
//! # Memory
//! The ledger keeps a tally for each source, a histogram for each account, and for each CPU the gaps
//! that wait for their rows, which are in the timeline's bounded history.

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

/// Takes a timeline's events and closes the books.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    registry: Registry,
    /// By CPU number. One slot past the kernel's limit takes every CPU that cannot exist.
    cpus: Vec<Option<Box<CpuLedger>>>,
    gap_causes: GapCauses,
    waits: Waits,
    signatures: Signatures,
    on_cpu: OnCpuTimes,
    /// Kept for its memory.
    contents: Contents,
}

/// What is kept for one CPU.
#[derive(Debug, Default)]
struct CpuLedger {
    classes: ClassTimes,
    queue: GapQueue,
    gaps: CpuGaps,
    departures: Departures,
}

/// By how much a row may stick out of the gap of a spinning probe and count as wholly in it: the
/// probe's counter is tied to the tracer's clock to within some tens of ns.
pub(crate) const TOLERANCE: Nanos = Nanos(100);

/// The same where the clocks of the recording with this header are tied as loosely as it says.
pub(crate) fn slack(header: &Header) -> Nanos {
    TOLERANCE + proof::uncertainty(header)
}

impl Ledger {
    /// The accounts of the rows so far, before anything is moved.
    pub(crate) fn so_far(&self, sources: &SourceTable) -> Vec<Account> {
        self.registry.accounts(sources, Nanos::ZERO)
    }

    /// Takes an event of a CPU with this past. `judged` gets each gap of the spinning probe of
    /// which everything is known.
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
            self.judge_gaps(slot, (history, event.roles), &mut judged);
        }
    }

    /// Closes the books, from the events taken, from `header`, and from the rows that `timeline`
    /// still has. `judged` gets the last gaps.
    ///
    /// At [`Level::Proc`](ticktax_model::recording::Level) the accounts are made of the kernel's
    /// own counters, and of the rows only the gaps count.
    pub(crate) fn close(
        mut self,
        header: &Header,
        sources: &SourceTable,
        timeline: &mut Timeline,
        mut judged: impl FnMut(&Roles, &JudgedGap<'_>),
    ) -> Books {
        for slot in 0..self.cpus.len() {
            let (Some(Some(cpu)), Some(past)) = (self.cpus.get_mut(slot), timeline.history(slot))
            else {
                continue;
            };
            cpu.queue.close();
            cpu.queue.settle(past.0);
            self.judge_gaps(slot, past, &mut judged);
        }
        closing::close(&self, header, sources)
    }

    /// Judges the gaps of the CPU in `slot` whose rows have all come.
    fn judge_gaps(
        &mut self,
        slot: usize,
        (history, roles): (&mut History, &Roles),
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
                self.signatures.of(&self.contents.held, shape)
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
