//! The thread that empties the buffers: where it runs, and with what priority.
//!
//! It keeps off the CPUs that the watched program runs on, as long as it may use another, and it has
//! the priority of any program: buffers hold seconds of ten thousand events a second, so that nothing is
//! lost while it waits. Only where it has once been woken far too late, or where buffers fill fast, it
//! asks for more; what it had is said in the header.

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

/// Turns from one look at where the program runs to the next: a quarter of a second.
const TURNS: u32 = 5;

/// Where and how the calling thread runs while it collects. Dropping it gives back what it was.
#[derive(Debug)]
pub(crate) struct Collector {
    tid: Pid,
    /// Where it might run before.
    allowed: CpuSet,
    /// The CPUs that it keeps off; none where there would be no other.
    kept_off: CpuList,
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

    /// Keeps off these CPUs, or off none where it may use no other.
    pub(crate) fn keep_off(&mut self, cpus: &CpuList) {
        let mut others = self.allowed;
        for cpu in cpus.iter() {
            // One beyond what a set holds is none that this thread could run on.
            let _ = others.unset(cpu.index());
        }
        let none_left = set_cpus(&others).is_empty();
        let (set, off) = if none_left {
            (self.allowed, CpuList::default())
        } else {
            (others, cpus.clone())
        };
        if off != self.kept_off && sched_setaffinity(self.tid, &set).is_ok() {
            self.kept_off = off;
        }
    }

    /// Whether it keeps off the CPUs of the program just now.
    pub(crate) fn is_apart(&self) -> bool {
        !self.kept_off.is_empty()
    }

    /// The nice value that it has come to.
    pub(crate) fn nice(&self) -> i32 {
        self.nice
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Whatever is refused stays as it is until the process ends, soon.
        if self.is_apart() {
            let _ = sched_setaffinity(self.tid, &self.allowed);
        }
        if self.nice != self.nice_before {
            Tracer::set_own_nice(self.nice_before);
        }
    }
}

/// Where thread `tid` may run; nothing where that cannot be read.
pub(crate) fn allowed(tid: i32) -> CpuList {
    sched_getaffinity(Pid::from_raw(tid)).map_or_else(|_| CpuList::default(), |set| set_cpus(&set))
}

fn set_cpus(set: &CpuSet) -> CpuList {
    let numbers = 0..CpuSet::count();
    let set = numbers.filter(|&number| set.is_set(number).unwrap_or(false));
    set.filter_map(|number| u32::try_from(number).ok())
        .map(Cpu)
        .collect()
}

#[cfg(test)]
mod tests {
    use nix::sched::sched_getaffinity;
    use nix::unistd::gettid;
    use ticktax_model::{Cpu, CpuList};

    use super::{Collector, allowed, set_cpus};

    #[test]
    fn it_keeps_off_what_it_can_and_goes_back_at_the_end() {
        let own = gettid().as_raw();
        let before = allowed(own);
        let first: CpuList = before.iter().take(1).collect();
        let mut collector = Collector::new();
        collector.keep_off(&first);
        assert_eq!(collector.is_apart(), before.len() > 1);
        assert_eq!(
            allowed(own).contains(first.iter().next().unwrap()),
            before.len() == 1
        );
        // Nowhere else to go.
        collector.keep_off(&before);
        assert!(!collector.is_apart());
        assert_eq!(allowed(own), before);
        collector.keep_off(&first);
        drop(collector);
        assert_eq!(set_cpus(&sched_getaffinity(gettid()).unwrap()), before);
    }

    #[test]
    fn a_cpu_that_no_machine_has_is_kept_off_for_nothing() {
        let before = allowed(gettid().as_raw());
        let mut collector = Collector::new();
        collector.keep_off(&[Cpu(1_000_000)].into_iter().collect());
        assert_eq!(allowed(gettid().as_raw()), before);
    }
}
