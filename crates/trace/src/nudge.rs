//! Making every CPU switch threads once, so that its books can be opened and closed.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_model::{Cpu, CpuList};

use crate::sys;

/// How long all CPUs together may take. A CPU whose real-time thread never yields does not switch
/// in time; its books then begin or end at the nearest event that it has.
const PATIENCE: Duration = Duration::from_millis(500);

/// Moves a thread to each of `cpus` in turn, and waits until it has run there. Returns the CPUs
/// that did not let it run in time, or that it may not run on.
pub(crate) fn nudge(cpus: &CpuList) -> CpuList {
    let (arrived, arrivals) = mpsc::channel();
    let wanted: Vec<Cpu> = cpus.iter().collect();
    let visits = wanted.clone();
    let visitor = thread::Builder::new()
        .name("ticktax-nudge".to_owned())
        .spawn(move || {
            // Where threads are many, the books of some CPUs would open long after those of others. It runs for
            // some µs on each CPU, as the books are opened and closed.
            if !sys::set_own_real_time() {
                sys::set_own_nice(-20);
            }
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
    let mut stuck: Vec<Cpu> = wanted;
    // The visitor ends by itself: after its last visit, or at the next one once the receiver is gone.
    while visitor.is_ok() && !stuck.is_empty() {
        match arrivals.recv_timeout(PATIENCE) {
            Ok(cpu) => stuck.retain(|&other| other != cpu),
            Err(_) => break,
        }
    }
    stuck.into_iter().collect()
}
