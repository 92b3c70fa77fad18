//! Sums of waits, by the source that waited and the source that ran.

use std::collections::BTreeMap;

use ticktax_model::recording::Header;
use ticktax_model::waits::{GroupWaits, WaitedFor, WaitingProgram};
use ticktax_model::{Kind, Nanos, Owner, SourceId, SourceTable, Span};

use crate::fast_map::FastMap;
use crate::groups::Groups;
use crate::ledger::tally::Tally;
use crate::names::named;
use crate::timeline::Piece;

/// Maximum number of programs reported.
const PROGRAMS: usize = 20;
/// Maximum number of culprits reported per program.
const BEHIND: usize = 4;

#[derive(Debug, Default)]
pub(super) struct WaitSums {
    /// Waits by the source that waited, each with the start of its longest wait.
    waiters: FastMap<SourceId, (Tally, Nanos)>,
    /// Waiting time by the source that waited and the source that ran.
    pairs: FastMap<(SourceId, SourceId), Nanos>,
}

impl WaitSums {
    /// Adds a wait during which the `pieces` ran. Time during which the probe ran counts only if
    /// `probe` is set.
    pub(super) fn add(
        &mut self,
        span: &Span,
        pieces: &[Piece],
        sources: &SourceTable,
        probe: bool,
    ) {
        let (tally, at) = self.waiters.entry(span.source).or_default();
        if span.dur > tally.longest {
            *at = span.start;
        }
        tally.add(span.dur, span.dur);
        let pieces = pieces.iter().filter(|piece| {
            let source = sources.get(piece.source);
            source.kind != Kind::Idle && (probe || source.owner != Owner::Probe)
        });
        for piece in pieces {
            let time = piece.end - piece.start;
            *self.pairs.entry((span.source, piece.source)).or_default() += time;
        }
    }

    pub(super) fn only(mut self, wanted: impl Fn(SourceId) -> bool) -> Self {
        self.waiters.retain(|&waiter, _| wanted(waiter));
        self.pairs.retain(|&(waiter, _), _| wanted(waiter));
        self
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (source, (tally, at)) in other.waiters {
            let (sum, begin) = self.waiters.entry(source).or_default();
            if tally.longest > sum.longest {
                *begin = at;
            }
            sum.merge(&tally);
        }
        for (pair, time) in other.pairs {
            *self.pairs.entry(pair).or_default() += time;
        }
    }

    /// Adds the waits to those of the threads with the same ID.
    pub(super) fn by_thread(&self, sources: &SourceTable, threads: &mut BTreeMap<i32, Tally>) {
        for (&source, (tally, _)) in &self.waiters {
            if let Some(thread) = &sources.get(source).thread {
                threads.entry(thread.tid).or_default().merge(tally);
            }
        }
    }

    pub(super) fn total(&self) -> (Nanos, u64) {
        let tallies = || self.waiters.values().map(|(tally, _)| tally);
        let time = tallies().map(|tally| tally.time).sum();
        (time, tallies().map(|tally| tally.count).sum())
    }

    pub(super) fn behind_ticktax(&self, sources: &SourceTable) -> Nanos {
        let is_own = |ran| matches!(sources.get(ran).owner, Owner::Probe | Owner::Tool);
        let own = self.pairs.iter().filter(|((_, ran), _)| is_own(*ran));
        own.map(|(_, &time)| time).sum()
    }

    /// Returns the processes and kernel threads that others waited behind, costliest first.
    pub(super) fn behind(&self, sources: &SourceTable) -> Vec<WaitedFor> {
        let mut costs: BTreeMap<(String, Option<i32>), WaitedFor> = BTreeMap::new();
        for ((_, source), &time) in sorted(&self.pairs) {
            let (name, kind, pid) = named(source, sources);
            let cost = costs.entry((name.clone(), pid));
            add_culprit(cost.or_insert_with(|| culprit(name, kind)), pid, time);
        }
        costliest(costs.into_values(), PROGRAMS)
    }

    /// Returns the waits by group. A source without a group has an entry under its own name.
    pub(super) fn by_group(
        &self,
        header: &Header,
        sources: &SourceTable,
        groups: &Groups<'_>,
    ) -> GroupWaits {
        let (groups, groups_left_out) = self.waiting(header, &|source| {
            let (name, kind, pid) = named(source, sources);
            let group = pid.and_then(|pid| groups.of(pid));
            (group.map_or(name, ToString::to_string), kind, pid)
        });
        GroupWaits {
            groups,
            groups_left_out,
        }
    }

    /// Sums the waits by the name that `named` gives to each source. Returns the largest sums and
    /// the number of the others.
    pub(super) fn waiting(&self, header: &Header, named: &Named<'_>) -> (Vec<WaitingProgram>, u64) {
        let begin = header.begin().unwrap_or_default();
        let mut programs: BTreeMap<String, WaitingProgram> = BTreeMap::new();
        for (source, (tally, at)) in sorted(&self.waiters) {
            let (name, _, pid) = named(source);
            let program = programs.entry(name.clone()).or_default();
            program.name = name;
            let pid = pid.filter(|pid| !program.pids.contains(pid));
            program.pids.extend(pid);
            program.time += tally.time;
            program.count += tally.count;
            if tally.longest > program.max {
                (program.max, program.max_at) = (tally.longest, *at - begin);
            }
        }
        let mut behind: BTreeMap<String, BTreeMap<String, WaitedFor>> = BTreeMap::new();
        for ((waiter, source), &time) in sorted(&self.pairs) {
            let (name, kind, pid) = named(source);
            let culprits = behind.entry(named(waiter).0).or_default();
            let sum = culprits.entry(name.clone());
            add_culprit(sum.or_insert_with(|| culprit(name, kind)), pid, time);
        }
        for (name, culprits) in behind {
            if let Some(program) = programs.get_mut(&name) {
                program.behind = costliest(culprits.into_values(), BEHIND);
            }
        }
        let mut programs: Vec<WaitingProgram> = programs.into_values().collect();
        programs.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        let left_out = programs.len().saturating_sub(PROGRAMS);
        programs.truncate(PROGRAMS);
        if let Some(present) = header.after.present() {
            for program in &mut programs {
                let exited = program.pids.iter().filter(|pid| !present.contains(pid));
                program.exited_pids = exited.copied().collect();
            }
        }
        (programs, left_out as u64)
    }
}

fn sorted<K: Copy + Ord, V>(map: &FastMap<K, V>) -> Vec<(K, &V)> {
    let mut entries: Vec<(K, &V)> = map.iter().map(|(&key, value)| (key, value)).collect();
    entries.sort_unstable_by_key(|entry| entry.0);
    entries
}

/// Returns the name under which a source's waits are summed, its kind and its process id.
type Named<'n> = dyn Fn(SourceId) -> (String, Kind, Option<i32>) + 'n;

fn culprit(name: String, kind: Kind) -> WaitedFor {
    WaitedFor {
        name,
        kind,
        pids: Vec::new(),
        time: Nanos::ZERO,
    }
}

fn add_culprit(sum: &mut WaitedFor, pid: Option<i32>, time: Nanos) {
    let pid = pid.filter(|pid| !sum.pids.contains(pid));
    sum.pids.extend(pid);
    sum.time += time;
}

fn costliest(culprits: impl Iterator<Item = WaitedFor>, max: usize) -> Vec<WaitedFor> {
    let mut culprits: Vec<WaitedFor> = culprits.collect();
    culprits.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    culprits.truncate(max);
    culprits
}
