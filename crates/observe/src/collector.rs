//! The thread that empties the tracer's buffers: which CPUs it runs on, and at what priority.
//!
//! The thread avoids the CPUs that the watched program uses if other CPUs are available. It runs at
//! normal priority, and a [`Governor`] raises it when a buffer is half full. If the kernel does not
//! allow that, the thread requests a lower nice value when it was woken far too late, or when the
//! buffers fill quickly. The header reports the outcome.
//!
//! The flight recorder's thread uses only nice values, and only while it keeps a window. The rest
//! of the time it is an ordinary thread.

use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use ticktax_host::breaks::{self, BITE};
use ticktax_host::own_thread_cpu_time;
use ticktax_model::{Cpu, CpuList, Nanos};
use ticktax_probes::clock::now;
use ticktax_trace::Tracer;

use crate::governor::Governor;
use crate::victim::Watched;

/// If the thread's wake-up latency exceeds this, the thread counts as starved of CPU time.
const LATE: Nanos = Nanos::from_millis(100);

/// Number of rows to read before the first break (a "bite"). The next constants are the limits for
/// later bites.
const FIRST_BITE: usize = 64;
const SMALLEST_BITE: usize = 32;
const LARGEST_BITE: usize = 1 << 14;

/// If one read returns more rows than this, the buffer might fill up before the next read. The
/// limit is a quarter of a buffer of the usual size.
const MANY: usize = 1 << 14;

/// Nice values to request, one after the other, if the thread keeps being woken too late.
const STEPS: [i32; 2] = [-10, -20];

/// Interval between checks of the CPUs that the program uses.
const CHECK: Nanos = Nanos::from_secs(1);

/// The calling thread's affinity and priority while it empties buffers. Dropping the collector
/// restores both.
pub(crate) struct Collector {
    tid: Pid,
    /// CPUs that the thread was allowed to use before the collector restricted it.
    allowed: CpuSet,
    /// Whether `allowed` contains only one CPU.
    is_confined: bool,
    /// CPUs that the thread avoids.
    kept_off: CpuList,
    /// Whether the thread has avoided all of the program's CPUs at every check so far. `None`
    /// before the first check.
    apart: Option<bool>,
    nice_before: i32,
    nice: i32,
    /// Whether the thread was ever so late that it needed a higher priority but had no governor to
    /// raise it.
    is_late: bool,
    /// When the program's CPUs were last checked.
    checked: Option<Nanos>,
    /// Number of rows to read before the next break.
    bite: usize,
    /// CPU time of the thread when its last read began.
    began: Nanos,
    governor: Option<Governor>,
}

impl Collector {
    /// Creates a collector that starts with the calling thread's current affinity and priority.
    pub(crate) fn new() -> Self {
        let tid = gettid();
        let nice = Tracer::own_nice();
        let allowed = sched_getaffinity(tid).unwrap_or_default();
        Self {
            tid,
            is_confined: set_cpus(&allowed).len() == 1,
            allowed,
            kept_off: CpuList::default(),
            apart: None,
            nice_before: nice,
            nice,
            is_late: false,
            checked: None,
            bite: FIRST_BITE,
            began: Nanos::ZERO,
            governor: None,
        }
    }

    /// Creates a collector that starts with the calling thread's current affinity and leaves the
    /// thread's priority to `governor`.
    pub(crate) fn governed(governor: Option<Governor>) -> Self {
        let mut collector = Self::new();
        breaks::skip_while(governor.as_ref().map(Governor::in_slice));
        collector.governor = governor;
        collector
    }

    /// Creates a collector with a governor that avoids the CPUs of `victim`. From now on, the
    /// thread takes breaks while it reads the program's files.
    pub(crate) fn beside(governor: Option<Governor>, victim: Option<&mut Watched>) -> Self {
        let mut collector = Self::governed(governor);
        if let Some(victim) = victim {
            collector.keep_off(&victim.busiest_cpus());
            victim.take_breaks(true);
        }
        collector
    }

    /// Takes the governor out of the collector. The governor then stops looking at the buffers.
    /// Instead, it raises this thread whenever the thread needs the CPU, until the session has
    /// ended.
    pub(crate) fn take_governor(&mut self) -> Option<Governor> {
        let governor = self.governor.take()?;
        breaks::skip_while(None);
        governor.watch(None);
        Some(governor)
    }

    /// Returns the CPU time that the thread has used at a real-time priority.
    pub(crate) fn raised_time(&self) -> Nanos {
        self.governor
            .as_ref()
            .map_or(Nanos::ZERO, Governor::raised_time)
    }

    /// Returns the number of rows to read now. The caller should handle these rows, then call
    /// [`Collector::pause`] if more rows are waiting.
    pub(crate) fn bite(&mut self) -> usize {
        self.began = own_thread_cpu_time();
        self.bite
    }

    /// Takes a break after a bite so that other programs can run, unless the governor already
    /// ensures this. Chooses the size of the next bite.
    pub(crate) fn pause(&mut self) {
        self.bite = next_bite(self.bite, own_thread_cpu_time() - self.began);
        breaks::take_break();
    }

    /// Sleeps for `time`. Raises the thread's priority if it is woken too late. If handling the
    /// last rows took too long, makes the next bite smaller.
    pub(crate) fn sleep(&mut self, time: Duration) {
        let took = own_thread_cpu_time() - self.began;
        if took > BITE {
            self.bite = next_bite(self.bite, took);
        }
        let asked = now() + Nanos(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 2));
        std::thread::sleep(time);
        breaks::rested();
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

    /// Raises the thread's priority if one read returned a very large number of rows.
    pub(crate) fn drained(&mut self, rows: usize) {
        if rows > MANY {
            self.raise_priority();
        }
    }

    fn raise_priority(&mut self) {
        if self.governor.is_some() {
            return;
        }
        self.is_late = true;
        if let Some(&next) = STEPS.iter().find(|&&step| step < self.nice)
            && Tracer::set_own_nice(next)
        {
            self.nice = next;
        }
    }

    /// Returns whether the caller should check now which CPUs the program uses. A thread that is
    /// confined to one CPU cannot avoid the program, so this is never the case for it.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.is_confined {
            return false;
        }
        let time = now();
        let is_due = self.checked.is_none_or(|last| time - last >= CHECK);
        if is_due {
            self.checked = Some(time);
        }
        is_due
    }

    /// Makes the thread move to a different CPU if the program's busiest thread runs or waits on
    /// this one. `busiest` is that thread's CPU. The scheduler can move the busiest thread here at
    /// any time, even while it waits for a CPU.
    pub(crate) fn make_way(&mut self, busiest: Option<Cpu>) {
        let here = sched_getcpu().ok().and_then(|cpu| u32::try_from(cpu).ok());
        if let Some(here) = here.map(Cpu)
            && busiest == Some(here)
            && !self.is_confined
        {
            let others = self.kept_off.iter().filter(|&cpu| cpu != here);
            let cpus: Vec<Cpu> = [here].into_iter().chain(others).collect();
            self.keep_off(&cpus);
        }
    }

    /// Makes the thread avoid `cpus`, in this order, as long as at least one CPU remains. An empty
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
                Ok(()) => {
                    self.kept_off = off;
                    if let Some(governor) = &self.governor {
                        governor.use_cpus(&cpu_set(&others));
                    }
                }
                Err(_) => kept = false,
            }
        }
        self.apart = Some(self.apart.unwrap_or(true) && kept);
    }

    /// Returns whether the thread avoided all of the program's CPUs at every check.
    pub(crate) fn is_apart(&self) -> bool {
        self.apart == Some(true)
    }

    /// Returns whether the thread was ever so late that it needed a higher priority but had no
    /// governor to raise it.
    pub(crate) fn came_late(&self) -> bool {
        self.is_late
    }

    /// Returns the thread's current nice value.
    pub(crate) fn nice(&self) -> i32 {
        self.nice
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        breaks::skip_while(None);
        // If the kernel refuses to restore the settings, they stay in effect until the process
        // exits, which will be soon.
        if !self.kept_off.is_empty() {
            let _ = sched_setaffinity(self.tid, &self.allowed);
        }
        if self.nice != self.nice_before {
            Tracer::set_own_nice(self.nice_before);
        }
    }
}

/// Returns the size of the next bite. The last bite had `bite` rows and took `took` of CPU time.
fn next_bite(bite: usize, took: Nanos) -> usize {
    let next = if took > BITE {
        bite / 2
    } else if took.0 * 2 < BITE.0 {
        bite + bite / 4
    } else {
        bite
    };
    next.clamp(SMALLEST_BITE, LARGEST_BITE)
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
        // If a CPU's number exceeds the capacity of a CPU set, this thread cannot use that CPU
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

    use super::{BITE, Collector, FIRST_BITE, next_bite, set_cpus};

    fn allowed() -> CpuList {
        set_cpus(&sched_getaffinity(gettid()).unwrap())
    }

    #[test]
    fn a_bite_takes_40_microseconds_at_most() {
        for row in [100, 500, 2_000] {
            let mut bite = FIRST_BITE;
            for _ in 0..50 {
                bite = next_bite(bite, Nanos(row * i64::try_from(bite).unwrap()));
            }
            let took = Nanos(row * i64::try_from(bite).unwrap());
            assert!(
                took <= BITE || bite == super::SMALLEST_BITE,
                "{row}: {took}"
            );
            assert!(took.0 * 3 >= BITE.0, "{row}: {took}");
        }
    }

    #[test]
    fn a_confined_collector_does_not_check_cpus() {
        let mut collector = Collector::new();
        collector.is_confined = true;
        assert!(!collector.is_due());
        collector.is_confined = false;
        assert!(collector.is_due());
        assert!(!collector.is_due());
    }

    #[test]
    fn a_collector_makes_way_for_the_program() {
        let before = allowed();
        let all: Vec<Cpu> = before.iter().collect();
        let [first, second, ..] = all[..] else {
            return;
        };
        let mut collector = Collector::new();
        collector.keep_off(&[first]);
        // The thread runs on a different CPU from the program's.
        collector.make_way(Some(first));
        assert!(!allowed().contains(first));
        if let [_, second] = all[..] {
            collector.make_way(Some(second));
            assert_eq!(allowed(), [first].into_iter().collect());
        } else {
            assert!(allowed().contains(second));
        }
        drop(collector);
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_collector_avoids_cpus_and_restores_its_affinity() {
        let before = allowed();
        let all: Vec<Cpu> = before.iter().collect();
        let mut collector = Collector::new();
        collector.keep_off(&all[..1]);
        assert_eq!(collector.is_apart(), all.len() > 1);
        assert_eq!(allowed().contains(all[0]), all.len() == 1);
        // A thread that should avoid every CPU still has to use one. It uses the last.
        collector.keep_off(&all);
        assert!(!collector.is_apart());
        assert_eq!(allowed(), all[all.len() - 1..].iter().copied().collect());
        // Once the thread has shared a CPU with the program at a check, it no longer counts as
        // apart.
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
        assert!(!collector.came_late());
        collector.was_due(now() - Nanos::from_secs(2), Nanos::from_secs(1));
        assert!(collector.came_late());
        // Not every caller may raise its priority, so the nice value can stay the same.
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
