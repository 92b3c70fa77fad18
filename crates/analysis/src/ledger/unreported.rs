//! What the kernel's own counters have and no event told of.

use std::collections::BTreeSet;

use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Header, Level};
use ticktax_model::witness::SwitchWitness;
use ticktax_model::{Kind, Nanos, SourceTable};

/// A process that ran for less is not missed.
const WORTH_NAMING: Nanos = Nanos::from_millis(1);

/// Context switches that were not reported, and processes of which no event told. Before the books were
/// opened and after they were closed, the counters went on: what may have been then is let pass.
pub(super) fn unreported(header: &Header, sources: &SourceTable) -> Vec<Limitation> {
    let switches = header
        .witnesses
        .as_ref()
        .and_then(|witnesses| witnesses.switches);
    let count = switches.map_or(0, SwitchWitness::unreported);
    let mut unreported = Vec::new();
    if count > 0 {
        unreported.push(Limitation::SwitchesUnreported { count });
    }
    let complete = header.level == Level::Kernel
        && header.coverage.events_lost() == 0
        && !header.coverage.limitations.iter().any(|limitation| {
            matches!(
                limitation,
                Limitation::SourcesFolded { .. } | Limitation::CpusNotWatched { .. }
            )
        });
    let watched = |cpu| header.books.iter().any(|books| books.cpu == cpu);
    if !complete || !header.machine.online.iter().all(watched) {
        return unreported;
    }
    let outside = unwatched(header);
    let traced = traced(sources);
    for (&pid, after) in &header.after.programs {
        let before = header.before.programs.get(&pid);
        let earlier = before.map_or(Some(Nanos::ZERO), |before| before.on_cpu);
        let Some((end, begin)) = after.on_cpu.zip(earlier) else {
            continue;
        };
        let ran = end - begin;
        if ran >= WORTH_NAMING && ran > outside && !traced.contains(&pid) {
            let name = after.name.clone();
            unreported.push(Limitation::ProcessNotTraced { name, pid, ran });
        }
    }
    unreported
}

/// The time between the readings of the counters in which the books were not open.
fn unwatched(header: &Header) -> Nanos {
    let begin = header.books.iter().map(|books| books.begin).max();
    let end = header.books.iter().map(|books| books.end).min();
    let (Some(begin), Some(end)) = (begin, end) else {
        return Nanos::MAX;
    };
    let before = (begin - header.before.at).max(Nanos::ZERO);
    before + (header.after.at - end).max(Nanos::ZERO)
}

/// The processes that had a row on a CPU.
fn traced(sources: &SourceTable) -> BTreeSet<i32> {
    let threads = sources
        .iter()
        .filter(|(_, source)| source.kind == Kind::Task);
    threads
        .filter_map(|(_, source)| Some(source.thread.as_ref()?.pid))
        .collect()
}
