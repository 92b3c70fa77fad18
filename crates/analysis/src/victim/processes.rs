//! Lists the victim's busiest threads, and the short-lived processes that it started.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ticktax_model::victim::{BusyThread, ShortLived};
use ticktax_model::{Nanos, SourceTable};

use super::life::Life;

/// Maximum length of a short life.
const SHORT: Nanos = Nanos::from_secs(1);
/// Maximum number of threads, and of names of short-lived processes, that are listed.
const LISTED: usize = 5;

/// Returns the threads that used most CPU time, largest first. `lives` are the threads, each with
/// its id.
pub(super) fn busiest(lives: &[(i32, &Life)], sources: &SourceTable) -> Vec<BusyThread> {
    let threads = lives.iter().filter_map(|&(tid, life)| {
        let source = sources.get(life.source?.1);
        let tid = source.thread.as_ref().map_or(tid, |thread| thread.tid);
        Some(BusyThread {
            name: source.name.to_string(),
            tid,
            time: life.ran(),
        })
    });
    let mut threads: Vec<BusyThread> = threads.collect();
    threads.sort_by_key(|thread| (Reverse(thread.time), thread.tid));
    threads.truncate(LISTED);
    threads
}

/// Returns the processes that were created during the recording and exited less than a second
/// later, grouped by name. `end` is the end of the recording.
pub(super) fn short_lived(
    lives: &[(i32, &Life)],
    sources: &SourceTable,
    end: Nanos,
) -> Vec<ShortLived> {
    let mut processes: BTreeMap<i32, (Option<&Life>, Nanos)> = BTreeMap::new();
    let mut by_name: BTreeMap<String, ShortLived> = BTreeMap::new();
    let mut add = |main: &Life, time: Nanos| {
        let source = main.source.map(|(_, source)| sources.get(source));
        let Some(thread) = source.and_then(|source| source.thread.as_ref()) else {
            return;
        };
        let name = thread.program.to_string();
        let sum = by_name.entry(name.clone()).or_insert(ShortLived {
            name,
            count: 0,
            time: Nanos::ZERO,
        });
        sum.count += 1;
        sum.time += time;
    };
    let is_short = |life: &Life| life.born && life.elapsed() < SHORT && life.end() < end;
    for &(tid, life) in lives {
        let process = processes.entry(life.pid).or_default();
        process.1 += life.ran();
        let is_main = life
            .source
            .and_then(|(_, source)| sources.get(source).thread.as_ref())
            .is_some_and(|thread| thread.tid == thread.pid);
        // The ids of processes are reused. If so, each is counted with its main thread only.
        match process.0 {
            None if is_main => process.0 = Some(life),
            Some(_) if is_main && tid == 0 && is_short(life) => {
                process.1 -= life.ran();
                add(life, life.ran());
            }
            _ => {}
        }
    }
    for (main, time) in processes.into_values() {
        if let Some(main) = main.filter(|main| is_short(main)) {
            add(main, time);
        }
    }
    let mut all: Vec<ShortLived> = by_name.into_values().collect();
    all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    all.truncate(LISTED);
    all
}
