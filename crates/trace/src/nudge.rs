//! Makes every CPU switch threads once, so that accounting can start or end on it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_model::{Cpu, CpuList};

use crate::priority::ThreadPriority;
use crate::sys;

/// Maximum time to wait for the next CPU to switch. A CPU on which a real-time thread runs without
/// yielding will not switch in time. Its accounting then starts or ends at its next event.
const PATIENCE: Duration = Duration::from_millis(500);

/// Moves a thread to each of `cpus` in turn, and waits until it has run there. Returns the CPUs
/// that the thread may not use, or on which it did not run in time.
pub(crate) fn nudge(cpus: &CpuList) -> CpuList {
    let (arrived, arrivals) = mpsc::channel();
    let wanted: Vec<Cpu> = cpus.iter().collect();
    let visits = wanted.clone();
    let visitor = thread::Builder::new()
        .name("ticktax-nudge".to_owned())
        .spawn(move || {
            // This matters only if the kernel refuses the real-time priority below.
            sys::set_own_nice(-20);
            for cpu in visits {
                let mut only = CpuSet::new();
                let moved = only
                    .set(cpu.index())
                    .and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
                if moved.is_ok() && arrived.send(cpu).is_err() {
                    break;
                }
            }
        });
    // On an overloaded machine, an ordinary thread would wait a long time for some CPUs, and their
    // accounting would start much later than that of the others. It would also wait long for its
    // first turn to run, so this thread raises the visitor's priority. The visitor needs only a few
    // µs per CPU.
    if let Ok(visitor) = &visitor {
        ThreadPriority::raise_started(visitor, ThreadPriority::HIGHEST);
    }
    let mut stuck: Vec<Cpu> = wanted;
    // The thread that visits the CPUs ends after its last visit. If nothing receives its messages
    // any more, it ends after its next visit.
    while visitor.is_ok() && !stuck.is_empty() {
        match arrivals.recv_timeout(PATIENCE) {
            Ok(cpu) => stuck.retain(|&other| other != cpu),
            Err(_) => break,
        }
    }
    stuck.into_iter().collect()
}
