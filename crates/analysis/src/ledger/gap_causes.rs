//! Causes of gaps on all CPUs, and the longest gaps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use ticktax_model::recording::{Header, Level, ProbeKind};
use ticktax_model::statement::{GapCause, GapStatement, Part, WorstGap};
use ticktax_model::witness::CpuProof;
use ticktax_model::{Cpu, Nanos, SourceTable};

use super::accounts::{AccountId, Registry};
use super::contents::{Contents, SourceInGap};
use super::entry_exit::Bounds;
use super::gaps::{CpuGaps, GapBook, parts};
use super::matching::Gap;
use super::settled::{Settled, residuals};
use super::signatures::Signatures;
use super::tally::{LengthTally, Tally, sort_parts};
use super::transfers::HYPERVISOR_OR_FIRMWARE;

/// The accounts with the most time in a gap, and whether there were any others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CauseKey {
    accounts: [Option<AccountId>; Self::NAMED],
    more: bool,
}

impl CauseKey {
    /// Maximum number of accounts named in a cause before `…`.
    const NAMED: usize = 3;
    /// Stands for all causes beyond the maximum number of causes.
    const OTHER: Self = Self {
        accounts: [None; Self::NAMED],
        more: true,
    };

    /// Returns the cause of a gap that contained `held`. `ranking` is scratch space.
    fn new(
        held: &[SourceInGap],
        registry: &Registry,
        ranking: &mut Vec<(AccountId, Nanos)>,
    ) -> Self {
        ranking.clear();
        for held in held {
            let account = registry.account_of(held.source);
            match ranking.iter_mut().find(|(known, _)| *known == account) {
                Some((_, time)) => *time += held.own,
                None => ranking.push((account, held.own)),
            }
        }
        let more = ranking.len() > Self::NAMED;
        if more {
            ranking.sort_unstable_by_key(|&(id, time)| (Reverse(time), registry.describe(id)));
            ranking.truncate(Self::NAMED);
        }
        ranking.sort_unstable_by_key(|&(id, _)| id);
        let mut accounts = [None; Self::NAMED];
        for (slot, &(id, _)) in accounts.iter_mut().zip(ranking.iter()) {
            *slot = Some(id);
        }
        Self { accounts, more }
    }

    fn name(&self, registry: &Registry) -> String {
        if *self == Self::OTHER {
            return "other".to_owned();
        }
        let accounts = self
            .accounts
            .iter()
            .flatten()
            .map(|&id| registry.describe(id));
        let mut names: Vec<_> = accounts
            .map(|(class, name)| (class.precedence(), &**name))
            .collect();
        names.sort_unstable();
        names.dedup();
        let more = self.more.then_some("…");
        let names: Vec<&str> = names
            .into_iter()
            .map(|(_, name)| name)
            .chain(more)
            .collect();
        names.join(" + ")
    }
}

#[derive(Debug, Default)]
struct Cause {
    gaps: LengthTally,
    named: Nanos,
}

/// A gap that may turn out to be one of the longest.
#[derive(Debug)]
struct Noted {
    gap: Gap,
    held: Vec<SourceInGap>,
    named: Nanos,
    incomplete: bool,
    near: Option<u8>,
    signature: Option<usize>,
}

/// The gaps on a CPU whose accounts are being closed.
pub(super) struct Closed<'a> {
    pub(super) gaps: &'a CpuGaps,
    pub(super) spin: Option<Settled>,
    pub(super) sleep: Option<Settled>,
    pub(super) proof: CpuProof,
}

impl Closed<'_> {
    fn settled_book(&self, probe: ProbeKind) -> Option<(&GapBook, &Settled)> {
        let settled = match probe {
            ProbeKind::Spin => &self.spin,
            ProbeKind::Sleep => &self.sleep,
        };
        self.gaps.book(probe).zip(settled.as_ref())
    }
}

impl Noted {
    fn rank(gap: &Gap) -> (Reverse<Nanos>, Nanos, Cpu) {
        (Reverse(gap.span.dur), gap.span.start, gap.span.cpu)
    }

    fn to_worst(
        &self,
        header: &Header,
        settled: Option<&Settled>,
        bounds: &Bounds,
        sources: &SourceTable,
    ) -> WorstGap {
        let span = &self.gap.span;
        let mut parts: BTreeMap<String, Tally> = BTreeMap::new();
        for held in &self.held {
            let tally = Tally {
                time: held.own,
                count: held.count,
                longest: held.longest,
            };
            parts
                .entry(sources.get(held.source).to_string())
                .or_default()
                .merge(&tally);
        }
        for (name, time) in self.rest(settled, bounds) {
            if time > Nanos::ZERO {
                parts.entry(name.to_owned()).or_default().add(time, time);
            }
        }
        let mut parts: Vec<Part> = parts
            .into_iter()
            .map(|(name, tally)| tally.into_part(name))
            .collect();
        sort_parts(&mut parts);
        let at = span.start - header.begin().unwrap_or_default();
        WorstGap {
            cpu: span.cpu,
            at,
            length: span.dur,
            parts,
        }
    }

    /// Names the parts of a gap that no named row covers, with the time of each.
    fn rest(&self, settled: Option<&Settled>, bounds: &Bounds) -> [(&'static str, Nanos); 2] {
        let residual = self.gap.span.dur - self.named;
        let nothing = ("entry and exit", Nanos::ZERO);
        let Some(settled) = settled.filter(|settled| !settled.unplaceable && !self.incomplete)
        else {
            return [("unexplained", residual), nothing];
        };
        let or_outside = |proven| {
            if proven {
                HYPERVISOR_OR_FIRMWARE
            } else {
                "unexplained"
            }
        };
        if self.held.is_empty() {
            let outside = settled.is_outside(self.gap.span.dur, self.near);
            return [(or_outside(outside), residual), nothing];
        }
        let bound = self.signature.and_then(|signature| bounds.bound(signature));
        let usual = bound
            .filter(|bound| residual > bound.most)
            .map_or(residual, |bound| bound.median);
        let beyond = (or_outside(settled.is_proven()), residual - usual);
        [("entry and exit", usual), beyond]
    }
}

/// All gaps that one probe saw, on all CPUs.
#[derive(Debug, Default)]
struct View {
    causes: Vec<(CauseKey, Cause)>,
    by_key: HashMap<CauseKey, usize, FixedState>,
    /// For each signature, the index of the cause of its gaps, or `None` if gaps with that
    /// signature can have different causes.
    by_signature: Vec<Option<usize>>,
    worst: Vec<Noted>,
}

#[derive(Debug, Default)]
pub(super) struct GapCauses {
    spin: View,
    sleep: View,
    /// Reused for each gap, to avoid allocation.
    ranking: Vec<(AccountId, Nanos)>,
}

impl GapCauses {
    /// Number of longest gaps kept.
    const WORST: usize = 10;
    const MAX_CAUSES: usize = 1_024;

    pub(super) fn note(
        &mut self,
        gap: &Gap,
        contents: &Contents,
        registry: &Registry,
        signature: Option<usize>,
    ) {
        if contents.yielded {
            return;
        }
        let view = match gap.probe {
            ProbeKind::Spin => &mut self.spin,
            ProbeKind::Sleep => &mut self.sleep,
        };
        if !contents.held.is_empty() {
            let known = signature.and_then(|signature| *view.by_signature.get(signature)?);
            let place = known.unwrap_or_else(|| {
                let key = CauseKey::new(&contents.held, registry, &mut self.ranking);
                view.place(key, signature)
            });
            let (_, cause) = &mut view.causes[place];
            cause.gaps.add(gap.span.dur, gap.span.dur);
            cause.named += contents.explained();
        }
        view.note_worst(gap, contents, signature);
    }

    /// Returns the statement about one probe's gaps. If both probes ran, it covers the spinning
    /// probe's.
    pub(super) fn statement(
        &self,
        header: &Header,
        cpus: &[Closed<'_>],
        bounds: &Bounds,
        registry: &Registry,
        sources: &SourceTable,
    ) -> Option<GapStatement> {
        let ran = |probe| header.probes.iter().any(|report| report.probe == probe);
        let saw = |probe| cpus.iter().any(|cpu| cpu.gaps.book(probe).is_some());
        let kinds = [ProbeKind::Spin, ProbeKind::Sleep];
        let reported = kinds.into_iter().find(|&probe| ran(probe));
        let probe = reported.or_else(|| kinds.into_iter().find(|&probe| saw(probe)))?;
        let view = match probe {
            ProbeKind::Spin => &self.spin,
            ProbeKind::Sleep => &self.sleep,
        };
        let books: Vec<(&GapBook, &Settled)> = cpus
            .iter()
            .filter_map(|cpu| cpu.settled_book(probe))
            .collect();
        let settled_on = |at| {
            let found = cpus.iter().find(|cpu| cpu.proof.cpu == at)?;
            Some(found.settled_book(probe)?.1)
        };
        let of_side = |place: usize| {
            let sides = books.iter();
            parts(sides.map(|(book, settled)| (book.sides()[place], settled.shares[place])))
        };
        let spinning = probe == ProbeKind::Spin && header.level == Level::Kernel;
        let placed = books.iter().filter(|(_, settled)| !settled.unplaceable);
        let proofs = cpus.iter().filter(|cpu| cpu.settled_book(probe).is_some());
        let worst = view.worst.iter();
        let of_probe = header.probes.iter().filter(|report| report.probe == probe);
        Some(GapStatement {
            probe,
            watched: of_probe.map(|report| report.end - report.begin).sum(),
            long: of_side(0),
            short: of_side(1),
            yielded: of_side(2),
            longest: worst
                .map(|noted| {
                    let settled = settled_on(noted.gap.span.cpu);
                    noted.to_worst(header, settled, bounds, sources)
                })
                .collect(),
            causes: view.causes(&books, registry),
            proofs: proofs
                .filter(|_| spinning)
                .map(|cpu| cpu.proof.clone())
                .collect(),
            entry_exit: if spinning {
                bounds.statement(residuals(placed.map(|&(book, _)| book)), registry)
            } else {
                Vec::new()
            },
        })
    }
}

impl View {
    /// Returns the index of the cause `key`, adding the cause if it is new. `signature` is the
    /// gap's signature.
    fn place(&mut self, mut key: CauseKey, signature: Option<usize>) -> usize {
        if self.causes.len() >= GapCauses::MAX_CAUSES && !self.by_key.contains_key(&key) {
            key = CauseKey::OTHER;
        }
        let place = *self.by_key.entry(key).or_insert_with(|| {
            self.causes.push((key, Cause::default()));
            self.causes.len() - 1
        });
        // If only some of the accounts are named, which ones depends on their times in the gap, so
        // the cause cannot be cached.
        if let Some(signature) =
            signature.filter(|&signature| Signatures::is_exact(signature) && !key.more)
        {
            if signature >= self.by_signature.len() {
                self.by_signature.resize(signature + 1, None);
            }
            self.by_signature[signature] = Some(place);
        }
        place
    }

    fn note_worst(&mut self, gap: &Gap, contents: &Contents, signature: Option<usize>) {
        let rank = Noted::rank(gap);
        let place = self
            .worst
            .partition_point(|noted| Noted::rank(&noted.gap) < rank);
        if place >= GapCauses::WORST {
            return;
        }
        self.worst.truncate(GapCauses::WORST - 1);
        let (held, named, incomplete) =
            (contents.held.clone(), contents.named, contents.incomplete);
        self.worst.insert(
            place,
            Noted {
                gap: *gap,
                held,
                named,
                incomplete,
                near: contents.near,
                signature,
            },
        );
    }

    fn causes(&self, books: &[(&GapBook, &Settled)], registry: &Registry) -> Vec<GapCause> {
        let mut causes: BTreeMap<String, Cause> = BTreeMap::new();
        let mut add = |name: String, gaps: &LengthTally, named: Nanos| {
            let cause = causes.entry(name).or_default();
            cause.gaps.merge(gaps);
            cause.named += named;
        };
        for (key, cause) in &self.causes {
            add(key.name(registry), &cause.gaps, cause.named);
        }
        for (book, settled) in books {
            add(
                HYPERVISOR_OR_FIRMWARE.to_owned(),
                &settled.outside,
                Nanos::ZERO,
            );
            add("unexplained".to_owned(), &settled.unproven, Nanos::ZERO);
            add("unexplained".to_owned(), &book.nameless, Nanos::ZERO);
        }
        let causes = causes
            .into_iter()
            .filter(|(_, cause)| cause.gaps.tally.count > 0);
        let mut causes: Vec<GapCause> = causes
            .map(|(name, cause)| GapCause {
                name,
                count: cause.gaps.tally.count,
                time: cause.gaps.tally.time,
                named: cause.named,
                median: cause.gaps.quantile(0.5),
                max: cause.gaps.tally.max(),
            })
            .collect();
        causes.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        causes
    }
}
