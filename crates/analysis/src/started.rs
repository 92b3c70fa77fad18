//! Attributes short-lived processes to the process that started them.
//!
//! A busy shell script has thousands of children that run for a few milliseconds each. None of them
//! stands out in a list of processes, so users need to know which program starts them.
//!
//! The tracer reports which thread created a thread (an edge). If the creator is itself
//! short-lived, as a subshell is, the process that started it counts instead.
//!
//! # Memory
//! Two times and a sum are kept for each source of a thread's rows, plus up to [`MAX`] created
//! threads.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ticktax_model::recording::{Effect, Header};
use ticktax_model::statement::StartedProcesses;
use ticktax_model::{Nanos, Owner, SourceId, SourceTable};

use crate::fast_map::FastMap;
use crate::timeline::{Event, EventKind, Occupant};

/// A process that lives for less than this is short-lived.
const SHORT: Nanos = Nanos::from_secs(1);
/// Maximum number of created threads remembered.
const MAX: usize = 1 << 18;
/// Maximum number of programs reported.
const LISTED: usize = 100;
/// Maximum number of short-lived ancestors skipped.
const ANCESTORS: usize = 16;

/// Collects the creations of threads and the time that each thread ran.
#[derive(Debug, Default)]
pub(crate) struct Started {
    /// Created threads, by thread ID.
    births: FastMap<i32, Birth>,
    /// The rows in which a thread ran, by source.
    rows: Vec<Option<Ran>>,
}

/// The latest creation of a thread with a particular ID.
#[derive(Clone, Copy, Debug)]
struct Birth {
    at: Nanos,
    by: SourceId,
    /// Number of threads created with this ID.
    count: u64,
}

/// Rows of a thread or process.
#[derive(Clone, Copy, Debug)]
struct Ran {
    /// Start of the latest row.
    latest: Nanos,
    /// End of the last row.
    end: Nanos,
    time: Nanos,
}

/// A process, as far as its rows show it.
#[derive(Clone, Copy, Debug)]
struct Process {
    ran: Ran,
    /// The latest source of its main thread, which names the program.
    main: Option<(Nanos, SourceId)>,
}

impl Started {
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let span = event.span;
        match event.kind() {
            EventKind::OnCpu(Occupant::Thread(on), _) if on.thread.is_some() => {
                let place = span.source.0 as usize;
                if place >= self.rows.len() {
                    self.rows.resize(place + 1, None);
                }
                let ran = self.rows[place].get_or_insert(Ran {
                    latest: span.start,
                    end: span.end(),
                    time: Nanos::ZERO,
                });
                ran.latest = ran.latest.max(span.start);
                ran.end = ran.end.max(span.end());
                ran.time += span.self_time;
            }
            EventKind::Edge(edge) => {
                if let Effect::Started(tid) = edge.effect {
                    self.born(tid, edge.span.start, edge.span.source);
                }
            }
            _ => {}
        }
    }

    fn born(&mut self, tid: i32, at: Nanos, by: SourceId) {
        if self.births.len() >= MAX && !self.births.contains_key(&tid) {
            return;
        }
        let birth = self.births.entry(tid).or_insert(Birth { at, by, count: 0 });
        birth.count += 1;
        if at >= birth.at {
            (birth.at, birth.by) = (at, by);
        }
    }

    /// Returns the short-lived processes, largest number first.
    pub(crate) fn finish(self, header: &Header, sources: &SourceTable) -> Vec<StartedProcesses> {
        if self.births.is_empty() {
            return Vec::new();
        }
        let processes = self.processes(sources);
        let (end, present) = (header.end(), header.after.present());
        let lives = Lives {
            births: &self.births,
            sources,
            is_short: &|pid: i32| {
                let life = self.births.get(&pid).zip(processes.get(&pid));
                let has_exited = match &present {
                    Some(present) => !present.contains(&pid),
                    // A process that has not run for a while may just be asleep.
                    None => false,
                };
                life.is_some_and(|(birth, process)| process.ran.end - birth.at < SHORT)
                    && has_exited
            },
        };
        let mut sums: BTreeMap<(String, i32), StartedProcesses> = BTreeMap::new();
        for (&pid, process) in &processes {
            let main = process.main.map(|(_, source)| sources.get(source));
            let program = main.filter(|main| main.owner == Owner::Program);
            let name = program.and_then(|main| Some(main.thread.as_ref()?.program.to_string()));
            let birth = self.births.get(&pid).filter(|birth| birth.at < end);
            let (Some(name), Some(birth), true) = (name, birth, (lives.is_short)(pid)) else {
                continue;
            };
            let Some((starter, started_by_pid)) = lives.starter(birth) else {
                continue;
            };
            let sum = sums
                .entry((name.clone(), started_by_pid))
                .or_insert(StartedProcesses {
                    name,
                    count: 0,
                    time: Nanos::ZERO,
                    started_by: starter,
                    started_by_pid,
                });
            sum.count += birth.count;
            sum.time += process.ran.time;
        }
        let mut all: Vec<StartedProcesses> = sums.into_values().collect();
        all.sort_by_key(|sum| (Reverse(sum.count), sum.name.clone(), sum.started_by_pid));
        all.truncate(LISTED);
        all
    }

    fn processes(&self, sources: &SourceTable) -> BTreeMap<i32, Process> {
        let mut processes: BTreeMap<i32, Process> = BTreeMap::new();
        for (place, ran) in (0..).zip(&self.rows) {
            let source = SourceId(place);
            let (Some(ran), Some(thread)) = (ran, &sources.get(source).thread) else {
                continue;
            };
            let process = processes.entry(thread.pid).or_insert(Process {
                ran: Ran {
                    time: Nanos::ZERO,
                    ..*ran
                },
                main: None,
            });
            process.ran.end = process.ran.end.max(ran.end);
            process.ran.time += ran.time;
            if thread.tid == thread.pid {
                process.main = process.main.max(Some((ran.latest, source)));
            }
        }
        processes
    }
}

struct Lives<'a> {
    births: &'a FastMap<i32, Birth>,
    sources: &'a SourceTable,
    is_short: &'a dyn Fn(i32) -> bool,
}

impl Lives<'_> {
    /// Returns the name and process ID of the program that started a process. Returns `None` if it
    /// is unknown or is ticktax itself.
    fn starter(&self, birth: &Birth) -> Option<(String, i32)> {
        let mut by = birth.by;
        for _ in 0..ANCESTORS {
            let pid = self.sources.get(by).thread.as_ref()?.pid;
            match self.births.get(&pid).filter(|_| (self.is_short)(pid)) {
                Some(parent) => by = parent.by,
                None => break,
            }
        }
        let source = self.sources.get(by);
        let thread = source.thread.as_ref()?;
        match source.owner {
            Owner::Program => Some((thread.program.to_string(), thread.pid)),
            Owner::Kernel => Some((source.name.to_string(), thread.pid)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_fixture::{books, header, process, replay, whole};
    use ticktax_model::recording::{Edge, Effect, Header, Row};
    use ticktax_model::{Cpu, Nanos, Owner, SourceTable};

    use crate::Auditor;

    const MS: i64 = 1_000_000;
    const SHELL: i32 = 4_121;

    /// Builds a shell that starts one process every 10 ms, through a subshell if `nested`. Returns
    /// the name, number, time and starter of the short-lived processes.
    fn short_lived(nested: bool, alive: &[i32]) -> Vec<(String, u64, i64, String)> {
        let mut sources = SourceTable::default();
        let shell = sources.intern(process(Owner::Program, "sh", SHELL));
        let mut rows = Vec::new();
        let started =
            |at, source, pid| Row::Edge(Edge::new(Cpu(0), Nanos(at), source, Effect::Started(pid)));
        for nth in 0..50 {
            let (at, child) = (i64::from(nth) * 10 * MS, 5_000 + 2 * nth);
            rows.push(started(at + MS, shell, child));
            rows.push(whole(0, at, 2 * MS, shell));
            let fork = sources.intern(process(Owner::Program, "sh", child));
            rows.push(whole(0, at + 2 * MS, MS, fork));
            let own = if nested { child + 1 } else { child };
            let ls = sources.intern(process(Owner::Program, "ls", own));
            if nested {
                rows.push(started(at + 2 * MS + 1, fork, own));
            }
            rows.push(whole(0, at + 3 * MS, 3 * MS, ls));
            rows.push(whole(0, at + 6 * MS, 4 * MS, shell));
        }
        let mut header = Header {
            cpus: vec![books(0, 0, 2_000 * MS)],
            ..header()
        };
        header.after.pids = Some(alive.iter().copied().collect());
        let mut auditor = Auditor::new(&header.machine).without_beats();
        replay(&sources, &rows, &mut auditor);
        let statement = auditor.finish(&header, &sources, 1);
        let all = statement.short_lived.into_iter();
        all.map(|sum| {
            let by = format!("{} {}", sum.started_by, sum.started_by_pid);
            (sum.name, sum.count, sum.time.0 / MS, by)
        })
        .collect()
    }

    #[test]
    fn short_lived_processes_are_summed_with_the_process_that_started_them() {
        let by = || format!("sh {SHELL}");
        assert_eq!(
            short_lived(false, &[SHELL]),
            [("ls".to_owned(), 50, 50 * 4, by())]
        );
        // Subshells do not count as starters.
        assert_eq!(
            short_lived(true, &[SHELL]),
            [
                ("ls".to_owned(), 50, 50 * 3, by()),
                ("sh".to_owned(), 50, 50, by())
            ]
        );
        // A process that still exists is not short-lived.
        let found = short_lived(false, &[SHELL, 5_000, 5_002]);
        assert_eq!(found, [("ls".to_owned(), 48, 48 * 4, by())]);
    }
}
