//! The thread that empties the buffers: where it runs, and with what priority.
//!
//! It keeps off the CPUs that the watched program runs on, as long as it may use another, and it has
//! the priority of any program: buffers hold seconds of ten thousand events a second, so that nothing is
//! lost while it waits. Only where it has once been woken far too late, or where buffers fill fast, it
//! asks for more; what it had is said in the header. The flight recorder's thread is one while it keeps a
//! window, and what it was otherwise.

use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use ticktax_model::{Cpu, CpuList, Nanos};
use ticktax_probes::clock::now;
use ticktax_trace::Tracer;

/// A thread that slept longer than asked by this was not served in time.
const LATE: Nanos = Nanos::from_millis(100);

/// Rows of one turn from which on buffers might be full before the next one: a quarter of a CPU's.
const MANY: usize = 1 << 14;

/// The nice values that it asks for, one after the other, as long as it is not served in time.
const STEPS: [i32; 2] = [-10, -20];

/// Turns from one look at where the program runs to the next: a second.
const TURNS: u32 = 20;

/// Where and how the calling thread runs while it collects. Dropping it gives back what it was.
#[derive(Debug)]
pub(crate) struct Collector {
    tid: Pid,
    /// Where it might run before.
    allowed: CpuSet,
    /// The CPUs that it keeps off.
    kept_off: CpuList,
    /// Whether those were all that the program ran on, at each look; `None` before the first.
    apart: Option<bool>,
    nice_before: i32,
    nice: i32,
    turn: u32,
}

impl Collector {
    /// The calling thread, which runs wherever it may and as it did.
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

    /// Sleeps for so long, and has itself served sooner from then on where it is woken too late.
    pub(crate) fn sleep(&mut self, time: Duration) {
        let asked = now() + Nanos(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 2));
        std::thread::sleep(time);
        if now() - asked > LATE {
            self.hurry();
        }
    }

    /// Has itself served sooner from now on where something was `due` by more than `slack` ago.
    pub(crate) fn was_due(&mut self, due: Nanos, slack: Nanos) {
        if now() - due > slack {
            self.hurry();
        }
    }

    /// Takes note of how many rows a turn brought.
    pub(crate) fn drained(&mut self, rows: usize) {
        if rows > MANY {
            self.hurry();
        }
    }

    fn hurry(&mut self) {
        if let Some(&next) = STEPS.iter().find(|&&step| step < self.nice)
            && Tracer::set_own_nice(next)
        {
            self.nice = next;
        }
    }

    /// Whether it is time to look where the program runs.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.turn.is_multiple_of(TURNS);
        self.turn = self.turn.wrapping_add(1);
        due
    }

    /// Keeps off these CPUs, the first of them first: off as many as leave one to run on. None says
    /// nothing about where the program runs, and changes nothing.
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

    /// Whether it kept off all CPUs of the program, at each look.
    pub(crate) fn is_apart(&self) -> bool {
        self.apart == Some(true)
    }

    /// The nice value that it has come to.
    pub(crate) fn nice(&self) -> i32 {
        self.nice
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Whatever is refused stays as it is until the process ends, soon.
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
        // One beyond what a set holds is none that this thread could run on.
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
    fn it_keeps_off_what_it_can_and_goes_back_at_the_end() {
        let before = allowed();
        let all: Vec<Cpu> = before.iter().collect();
        let mut collector = Collector::new();
        collector.keep_off(&all[..1]);
        assert_eq!(collector.is_apart(), all.len() > 1);
        assert_eq!(allowed().contains(all[0]), all.len() == 1);
        // Of all it has to share one: the last.
        collector.keep_off(&all);
        assert!(!collector.is_apart());
        assert_eq!(allowed(), all[all.len() - 1..].iter().copied().collect());
        // It was not apart all the time.
        collector.keep_off(&all[..1]);
        assert!(!collector.is_apart());
        drop(collector);
        assert_eq!(allowed(), before);
    }

    #[test]
    fn who_is_late_asks_for_more_and_gives_it_back() {
        let before = Tracer::own_nice();
        let mut collector = Collector::new();
        collector.was_due(now(), Nanos::from_secs(60));
        assert_eq!(collector.nice(), before);
        collector.was_due(now() - Nanos::from_secs(2), Nanos::from_secs(1));
        // It takes a right that not every caller has.
        let nice = collector.nice();
        assert!(nice <= before);
        assert_eq!(Tracer::own_nice(), nice);
        drop(collector);
        assert!(Tracer::own_nice() == before || nice == before);
    }

    #[test]
    fn a_cpu_that_no_machine_has_is_kept_off_for_nothing() {
        let before = allowed();
        let mut collector = Collector::new();
        collector.keep_off(&[Cpu(1_000_000)]);
        assert_eq!(allowed(), before);
        collector.keep_off(&[]);
        assert_eq!(allowed(), before);
    }
}
