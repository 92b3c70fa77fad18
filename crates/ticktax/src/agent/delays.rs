//! Adds up how long the threads of each program and group waited.
//!
//! The kernel's counters are read from `/proc` and from the cgroups' files, because counting waits
//! in the tracer would make each context switch more expensive. If a thread exits between two
//! readings, the time it waited since the first one is not counted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ticktax_host::{GroupReadings, Proc, ProcessDelays, SettingsReader, own_thread_cpu_time};
use ticktax_model::Nanos;
use ticktax_model::group::{Group, GroupCounters, GroupList};
use ticktax_model::totals::{DelayTotals, Delays, GroupTotals, NamedDelays};
use ticktax_probes::clock::now;

/// Minimum ratio of the time between two readings to the CPU time of a reading.
const LEAST_RATIO: i64 = 1_000;

/// Sums of the waiting times since the agent started.
pub(super) struct DelayCounter {
    proc: Proc,
    /// Waiting times of each thread at the latest reading.
    threads: HashMap<i32, Delays>,
    groups: GroupList,
    readings: GroupReadings,
    totals: DelayTotals,
    /// Whether a reading has been taken. The first one only sets the starting point.
    has_begun: bool,
    /// Earliest time for the next reading.
    next: Nanos,
}

impl DelayCounter {
    /// Takes the first reading. Call this while the agent may still read the container runtimes'
    /// files, which contain the names of containers.
    pub(super) fn begin(proc: Proc) -> Self {
        let mut counter = Self {
            proc,
            threads: HashMap::new(),
            groups: GroupList::default(),
            readings: GroupReadings::default(),
            totals: DelayTotals::default(),
            has_begun: false,
            next: Nanos::ZERO,
        };
        counter.read();
        counter
    }

    /// Takes another reading, unless that would use more than a thousandth of a CPU. Returns the
    /// sums.
    pub(super) fn totals(&mut self) -> DelayTotals {
        if now() >= self.next {
            self.read();
        }
        self.totals.clone()
    }

    fn read(&mut self) {
        let used = own_thread_cpu_time();
        let processes = self.proc.process_delays();
        let members = self.members(&processes);
        self.count_threads(&processes, &members);
        self.count_groups(&members);
        self.has_begun = true;
        let used = own_thread_cpu_time() - used;
        self.next = now() + Nanos(used.0.saturating_mul(LEAST_RATIO));
    }

    /// Returns the group of each process that is in one. Newly appeared groups get a name.
    fn members(&mut self, processes: &[ProcessDelays]) -> HashMap<i32, Group> {
        let paths: Vec<(i32, String)> = processes
            .iter()
            .filter_map(|process| Some((process.pid, self.proc.cgroup(process.pid)?)))
            .collect();
        let new = paths.iter().map(|(_, path)| path.as_str());
        let new = new.filter(|path| self.groups.group_of(path).is_none());
        let named = self.proc.groups(new);
        self.groups.extend(named.groups);
        let mut members = HashMap::new();
        for (pid, path) in paths {
            if let Some(group) = self.groups.group_of(&path) {
                members.insert(pid, group.clone());
            }
        }
        members
    }

    fn count_threads(&mut self, processes: &[ProcessDelays], members: &HashMap<i32, Group>) {
        let mut programs: BTreeMap<Arc<str>, Delays> = BTreeMap::new();
        let mut groups: BTreeMap<Arc<str>, Delays> = BTreeMap::new();
        let mut threads = HashMap::new();
        for process in processes {
            let mut sum = Delays::default();
            for thread in &process.threads {
                let delays = Delays {
                    run_queue: thread.run_queue,
                    block_io: thread.block_io.unwrap_or_default(),
                };
                let before = self.threads.get(&thread.tid).copied().unwrap_or_default();
                sum.add(&since(delays, before));
                threads.insert(thread.tid, delays);
            }
            programs
                .entry(process.program.as_str().into())
                .or_default()
                .add(&sum);
            if let Some(group) = members.get(&process.pid) {
                let name = group.to_string().into();
                groups.entry(name).or_default().add(&sum);
            }
        }
        self.threads = threads;
        if self.has_begun {
            self.totals.programs.add(&programs);
            self.totals.groups.add(&groups);
        }
    }

    /// Adds the increases of the groups' counters, using one process per group.
    fn count_groups(&mut self, members: &HashMap<i32, Group>) {
        let mut reader = SettingsReader::new(&self.proc);
        let one_each: BTreeMap<&str, (i32, &Group)> = members
            .iter()
            .map(|(&pid, group)| (&*group.path, (pid, group)))
            .collect();
        let mut readings = GroupReadings::default();
        for (path, (pid, group)) in one_each {
            let name: Arc<str> = group.to_string().into();
            let is_listed = self.totals.counters.contains_key(&name);
            if !is_listed && self.totals.counters.len() >= NamedDelays::MOST {
                continue;
            }
            let Some(after) = reader.counters(pid, path) else {
                continue;
            };
            // For a group that has appeared since the last reading, counting starts with this
            // reading.
            let increases = self.readings.increases(path, after.clone(), |_| false);
            readings.add(path, after);
            if self.has_begun {
                let totals = self.totals.counters.entry(name).or_default();
                add(totals, increases);
                let has_quota = totals.periods > 0;
                let settings = has_quota.then(|| reader.settings(pid)).flatten();
                totals.quota = settings.and_then(|settings| settings.quota);
            }
        }
        self.readings = readings;
    }
}

/// Returns the increase. If a thread's counters are smaller than before, it is a different thread
/// with the same ID.
fn since(after: Delays, before: Delays) -> Delays {
    if after.run_queue < before.run_queue || after.block_io < before.block_io {
        return after;
    }
    Delays {
        run_queue: after.run_queue - before.run_queue,
        block_io: after.block_io - before.block_io,
    }
}

/// Adds the increases. If several quotas along the path apply, the counters are those of the quota
/// that throttled most.
fn add(totals: &mut GroupTotals, increases: GroupCounters) {
    let levels = increases.throttling.into_iter();
    let most = levels.max_by_key(|level| (level.throttled_periods, level.periods));
    if let Some(level) = most {
        totals.periods += level.periods;
        totals.throttled_periods += level.throttled_periods;
        totals.throttled += level.throttled;
    }
    for (resource, passed) in increases.pressure {
        let sum = totals.pressure.entry(resource).or_default();
        sum.some += passed.some;
        sum.full += passed.full;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use ticktax_host::Proc;
    use ticktax_model::Nanos;
    use ticktax_model::totals::{DelayTotals, NamedDelays};

    use super::DelayCounter;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes process `pid`, called `p`, which waited this long in a group.
    fn process(root: &Path, pid: i32, group: &str, waited: i64) {
        write(
            root,
            &format!("proc/{pid}/stat"),
            &format!("{pid} (p) S 0 0 0 0 0 0 0 0\n"),
        );
        write(
            root,
            &format!("proc/{pid}/cgroup"),
            &format!("0::/{group}\n"),
        );
        let schedstat = format!("proc/{pid}/task/{pid}/schedstat");
        write(root, &schedstat, &format!("5 {waited} 2\n"));
    }

    fn read(counter: &mut DelayCounter) -> DelayTotals {
        counter.next = Nanos::ZERO;
        counter.totals()
    }

    fn waited(delays: &NamedDelays) -> Vec<(&str, i64)> {
        delays
            .iter()
            .map(|(name, delays)| (name, delays.run_queue.0))
            .collect()
    }

    #[test]
    fn waits_are_added_up_by_program_and_by_group() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "proc/self/cgroup", "0::/\n");
        process(root, 7, "a.service", 1_000);
        process(root, 8, "b.service", 50);
        let mut counter = DelayCounter::begin(Proc::at(root));
        assert_eq!(read(&mut counter), DelayTotals::default());
        process(root, 7, "a.service", 1_200);
        // A different process now has this ID.
        process(root, 8, "b.service", 30);
        process(root, 9, "b.service", 4);
        let totals = read(&mut counter);
        assert_eq!(waited(&totals.programs), [("p", 234)]);
        assert_eq!(
            waited(&totals.groups),
            [("a.service", 200), ("b.service", 34)]
        );
    }

    #[test]
    fn counters_of_groups_are_added_up() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "proc/self/cgroup", "0::/\n");
        process(root, 7, "a.service", 0);
        let stat = |periods: u32, throttled: u32| {
            let text = format!(
                "nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {throttled}\n"
            );
            write(root, "sys/fs/cgroup/a.service/cpu.stat", &text);
        };
        write(root, "sys/fs/cgroup/a.service/cpu.max", "50000 100000\n");
        stat(100, 10);
        let mut counter = DelayCounter::begin(Proc::at(root));
        stat(110, 14);
        read(&mut counter);
        stat(120, 15);
        let totals = read(&mut counter);
        let totals = &totals.counters["a.service"];
        assert_eq!((totals.periods, totals.throttled_periods), (20, 5));
        assert_eq!(totals.throttled, Nanos(5_000));
        assert_eq!(totals.quota.as_ref().unwrap().quota, Nanos::from_millis(50));
        // A group that disappears keeps its values.
        fs::remove_dir_all(root.join("proc/7")).unwrap();
        assert_eq!(read(&mut counter).counters["a.service"].periods, 20);
    }

    #[test]
    fn a_reading_that_was_expensive_is_not_repeated_soon() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        process(root, 7, "a.service", 1);
        let mut counter = DelayCounter::begin(Proc::at(root));
        counter.next = Nanos::MAX;
        process(root, 7, "a.service", 9);
        assert_eq!(counter.totals(), DelayTotals::default());
    }
}
