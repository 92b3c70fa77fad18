//! The thread that empties the tracer's buffers: the CPUs on which it runs, and its priority.
//!
//! It avoids the CPUs that the watched program uses if other CPUs are available. It starts at
//! normal priority: at ten thousand events per second, the buffers can hold the events of several
//! seconds, so nothing is lost while it waits for a CPU. It requests a higher priority only if it
//! was woken far too late, or if the buffers fill quickly. The header reports its priority, and
//! whether it avoided the program's CPUs.
//!
//! The flight recorder's thread does the same while it keeps a window. The rest of the time, it is
//! an ordinary thread.

use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use ticktax_model::{Cpu, CpuList, Nanos};
use ticktax_probes::clock::now;
use ticktax_trace::Tracer;

/// Wake-up latency above which the thread is considered starved of CPU time.
const LATE: Nanos = Nanos::from_millis(100);

/// Number of rows per read above which a buffer might fill up before the next read. It is a quarter
/// of the size of a CPU's buffer.
const MANY: usize = 1 << 14;

/// Nice values to request, one after the other, if the thread is repeatedly woken too late.
const STEPS: [i32; 2] = [-10, -20];

/// The list of CPUs that the program uses is checked once per this many reads. By default, that is
/// once per second.
const TURNS: u32 = 20;

/// Affinity and priority of the calling thread while it empties buffers. Dropping this restores
/// both.
#[derive(Debug)]
pub(crate) struct Collector {
    tid: Pid,
    /// CPUs that the thread was allowed to use before.
    allowed: CpuSet,
    /// CPUs that the thread avoids.
    kept_off: CpuList,
    /// Whether the thread avoided all CPUs of the program at every check so far. `None` before the
    /// first check.
    apart: Option<bool>,
    nice_before: i32,
    nice: i32,
    turn: u32,
}

impl Collector {
    /// Creates a collector that starts with the calling thread's current affinity and priority.
    pub(crate) fn new() -> Self {
        let tid = gettid();
        let nice = Tracer::own_nice();
        Self {
            tid,
            allowed: sched_getaffinity(tid).unwrap_or_default(),
            kept_off: CpuList::default(),
            apart: None,
            nice_before: nice,
            nice,
            turn: 0,
        }
    }

    /// Sleeps for `time`. Raises the thread's priority if it is woken too late.
    pub(crate) fn sleep(&mut self, time: Duration) {
        let asked = now() + Nanos(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 2));
        std::thread::sleep(time);
        if now() - asked > LATE {
            self.raise_priority();
        }
    }

    /// Raises the thread's priority if the current time is more than `slack` after `due`.
    pub(crate) fn was_due(&mut self, due: Nanos, slack: Nanos) {
        if now() - due > slack {
            self.raise_priority();
        }
    }

    /// Raises the thread's priority if one read returned very many rows.
    pub(crate) fn drained(&mut self, rows: usize) {
        if rows > MANY {
            self.raise_priority();
        }
    }

    fn raise_priority(&mut self) {
        if let Some(&next) = STEPS.iter().find(|&&step| step < self.nice)
            && Tracer::set_own_nice(next)
        {
            self.nice = next;
        }
    }

    /// Returns whether it is time to check which CPUs the program uses.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.turn.is_multiple_of(TURNS);
        self.turn = self.turn.wrapping_add(1);
        due
    }

    /// Makes the thread avoid `cpus`, in this order, as long as it can still use one CPU. An empty
    /// list means that the program's CPUs are unknown, so nothing changes.
    pub(crate) fn keep_off(&mut self, cpus: &[Cpu]) {
        if cpus.is_empty() {
            return;
        }
        let mut others = set_cpus(&self.allowed);
        let mut off = CpuList::default();
        for &cpu in cpus {
            if others.len() > 1 || !others.contains(cpu) {
                others = others.iter().filter(|&other| other != cpu).collect();
                off = off.iter().chain([cpu]).collect();
            }
        }
        let mut kept = off.len() == cpus.len();
        if off != self.kept_off {
            match sched_setaffinity(self.tid, &cpu_set(&others)) {
                Ok(()) => self.kept_off = off,
                Err(_) => kept = false,
            }
        }
        self.apart = Some(self.apart.unwrap_or(true) && kept);
    }

    /// Returns whether the thread avoided all CPUs of the program at every check.
    pub(crate) fn is_apart(&self) -> bool {
        self.apart == Some(true)
    }

    /// Returns the thread's current nice value.
    pub(crate) fn nice(&self) -> i32 {
        self.nice
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // If the kernel refuses to restore the settings, they stay in effect until the process
        // exits, which it does soon.
        if !self.kept_off.is_empty() {
            let _ = sched_setaffinity(self.tid, &self.allowed);
        }
        if self.nice != self.nice_before {
            Tracer::set_own_nice(self.nice_before);
        }
    }
}

fn set_cpus(set: &CpuSet) -> CpuList {
    let numbers = 0..CpuSet::count();
    let set = numbers.filter(|&number| set.is_set(number).unwrap_or(false));
    set.filter_map(|number| u32::try_from(number).ok())
        .map(Cpu)
        .collect()
}

fn cpu_set(cpus: &CpuList) -> CpuSet {
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        // If a CPU number exceeds the capacity of a CPU set, this thread cannot use that CPU
        // anyway.
        let _ = set.set(cpu.index());
    }
    set
}

#[cfg(test)]
mod tests {
    use nix::sched::sched_getaffinity;
    use nix::unistd::gettid;
    use ticktax_model::{Cpu, CpuList, Nanos};
    use ticktax_probes::clock::now;
    use ticktax_trace::Tracer;

    use super::{Collector, set_cpus};

    fn allowed() -> CpuList {
        set_cpus(&sched_getaffinity(gettid()).unwrap())
    }

    #[test]
    fn a_collector_avoids_cpus_and_restores_its_affinity() {
        let before = allowed();
        let all: Vec<Cpu> = before.iter().collect();
        let mut collector = Collector::new();
        collector.keep_off(&all[..1]);
        assert_eq!(collector.is_apart(), all.len() > 1);
        assert_eq!(allowed().contains(all[0]), all.len() == 1);
        // If a thread must avoid every CPU, it still has to use one of them, namely the last.
        collector.keep_off(&all);
        assert!(!collector.is_apart());
        assert_eq!(allowed(), all[all.len() - 1..].iter().copied().collect());
        // If the thread shared a CPU with the program at one check, it counts as not apart from
        // then on.
        collector.keep_off(&all[..1]);
        assert!(!collector.is_apart());
        drop(collector);
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_late_collector_raises_its_priority_and_restores_it() {
        let before = Tracer::own_nice();
        let mut collector = Collector::new();
        collector.was_due(now(), Nanos::from_secs(60));
        assert_eq!(collector.nice(), before);
        collector.was_due(now() - Nanos::from_secs(2), Nanos::from_secs(1));
        // If the test is not allowed to raise its priority, the nice value stays the same.
        let nice = collector.nice();
        assert!(nice <= before);
        assert_eq!(Tracer::own_nice(), nice);
        drop(collector);
        assert!(Tracer::own_nice() == before || nice == before);
    }

    #[test]
    fn avoiding_an_unknown_cpu_changes_nothing() {
        let before = allowed();
        let mut collector = Collector::new();
        collector.keep_off(&[Cpu(1_000_000)]);
        assert_eq!(allowed(), before);
        collector.keep_off(&[]);
        assert_eq!(allowed(), before);
    }
}
