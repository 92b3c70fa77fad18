//! Threads that are tied to one CPU each: how all probes start, run and end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::unistd::gettid;
use ticktax_model::{Cpu, Nanos};

use crate::clock::now;
use crate::{PolicyGrant, ProbeError, SchedulingPolicy, cpus, policy};

/// How long a thread may take until it is ready to measure.
const START_LIMIT: Nanos = Nanos::from_secs(10);

/// How long a thread may take from the request to stop until its end.
const STOP_LIMIT: Nanos = Nanos::from_secs(5);

/// The stack of a probe's thread, in bytes. They call little and hold no large values.
const STACK: usize = 256 * 1024;

/// What a thread does on its CPU.
pub(crate) trait Worker: Send + 'static {
    /// What it brings back.
    type Report: Send + 'static;

    /// Done once on the CPU, before the policy is set and before the measurement of any CPU begins.
    fn prepare(&mut self, cpu: Cpu);

    /// Measures until `stop` is set.
    fn run(self, cpu: Cpu, stop: &AtomicBool) -> Self::Report;
}

/// A thread in its place.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) cpu: Cpu,
    pub(crate) tid: i32,
    pub(crate) policy: PolicyGrant,
}

/// The threads of one probe. Dropping it tells them to stop and does not wait for them.
#[derive(Debug)]
pub(crate) struct ThreadGroup<R> {
    members: Vec<(Slot, JoinHandle<Option<R>>)>,
    /// Those who wait for their start are told by these.
    starts: Vec<Sender<()>>,
    stop: Arc<AtomicBool>,
    memory_locked: bool,
}

/// A thread that was created but has not reported yet.
struct Starting<R> {
    cpu: Cpu,
    thread: JoinHandle<Option<R>>,
    ready: Receiver<Result<Slot, ProbeError>>,
    go: Sender<()>,
}

impl<R: Send + 'static> ThreadGroup<R> {
    /// Starts one thread per worker, named `NAME/CPU`, and returns once all are ready and begin.
    ///
    /// # Errors
    /// The first thread's failure; the others end by themselves then.
    pub(crate) fn start<D: Worker<Report = R>>(
        name: &str,
        policy: SchedulingPolicy,
        workers: Vec<(Cpu, D)>,
    ) -> Result<Self, ProbeError> {
        let mut group = Self::prepare(name, policy, workers)?;
        group.begin();
        Ok(group)
    }

    /// Starts one thread per worker, named `NAME/CPU`, and returns once all are ready and wait for
    /// [`ThreadGroup::begin`].
    ///
    /// # Errors
    /// The first thread's failure; the others end by themselves then.
    pub(crate) fn prepare<D: Worker<Report = R>>(
        name: &str,
        policy: SchedulingPolicy,
        workers: Vec<(Cpu, D)>,
    ) -> Result<Self, ProbeError> {
        let mut group = Self {
            members: Vec::new(),
            starts: Vec::new(),
            stop: Arc::default(),
            memory_locked: false,
        };
        let recruits = workers
            .into_iter()
            .map(|(cpu, worker)| starting(name, policy, cpu, worker, Arc::clone(&group.stop)))
            .collect::<Result<Vec<_>, _>>()?;
        for starting in recruits {
            let slot = starting.report()?;
            group.members.push((slot, starting.thread));
            group.starts.push(starting.go);
        }
        group.memory_locked = lock_memory();
        Ok(group)
    }

    /// Has the threads begin to measure, those that have not yet.
    pub(crate) fn begin(&mut self) {
        for go in self.starts.drain(..) {
            // A thread that is gone is found by `stop`.
            let _ = go.send(());
        }
    }

    /// Asks all threads to stop, without waiting for it.
    pub(crate) fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the process' memory is held in RAM, so that no page fault falls into a measurement.
    pub(crate) fn memory_locked(&self) -> bool {
        self.memory_locked
    }

    /// The threads and their places.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.members.iter().map(|(slot, _)| slot)
    }

    /// Whether any thread still measures.
    pub(crate) fn is_running(&self) -> bool {
        self.members.iter().any(|(_, thread)| !thread.is_finished())
    }

    /// Stops all threads and collects what they bring back. Waits for at most [`STOP_LIMIT`].
    pub(crate) fn stop(mut self) -> Vec<(Slot, Result<R, ProbeError>)> {
        self.stop.store(true, Ordering::Relaxed);
        // Those that never began report nothing, but end.
        self.begin();
        for (slot, thread) in &self.members {
            // On a busy CPU a SCHED_IDLE thread may not run for seconds, not even to end itself, and
            // one that is nice not for long. It takes some µs to end.
            if slot.policy.granted == SchedulingPolicy::Idle && !thread.is_finished() {
                let at_once = SchedulingPolicy::Fifo(1);
                let _ = policy::apply_to(slot.tid, at_once)
                    .or_else(|_| policy::apply_to(slot.tid, SchedulingPolicy::Other));
            }
        }
        let deadline = now() + STOP_LIMIT;
        let collect = |(slot, thread): (Slot, JoinHandle<Option<R>>)| {
            let cpu = slot.cpu;
            while !thread.is_finished() {
                if now() > deadline {
                    return (
                        slot,
                        Err(ProbeError::NotStopped {
                            cpu,
                            limit: STOP_LIMIT,
                        }),
                    );
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let report = thread.join().ok().flatten();
            (slot, report.ok_or(ProbeError::Panicked { cpu }))
        };
        std::mem::take(&mut self.members)
            .into_iter()
            .map(collect)
            .collect()
    }
}

impl<R> Drop for ThreadGroup<R> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl<R> Starting<R> {
    /// Waits until the thread is ready to measure.
    fn report(&self) -> Result<Slot, ProbeError> {
        let limit = Duration::from_nanos(START_LIMIT.0.unsigned_abs());
        match self.ready.recv_timeout(limit) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => Err(ProbeError::NotReady {
                cpu: self.cpu,
                limit: START_LIMIT,
            }),
            Err(RecvTimeoutError::Disconnected) => Err(ProbeError::Panicked { cpu: self.cpu }),
        }
    }
}

/// Creates the thread of one CPU. It prepares at once, then waits for its start.
fn starting<D: Worker>(
    name: &str,
    policy: SchedulingPolicy,
    cpu: Cpu,
    mut worker: D,
    stop: Arc<AtomicBool>,
) -> Result<Starting<D::Report>, ProbeError> {
    let (report, ready) = channel();
    let (go, start) = channel();
    let body = move || {
        let place = cpus::pin(cpu).map(|()| {
            touch_stack();
            worker.prepare(cpu);
            // Last, so that on a busy CPU the preparation does not crawl along as SCHED_IDLE.
            let policy = policy::obtain(policy);
            Slot {
                cpu,
                tid: gettid().as_raw(),
                policy,
            }
        });
        let pinned = place.is_ok();
        let heard = report.send(place).is_ok();
        // The start never comes when another thread of the probe has failed.
        let started = pinned && heard && start.recv().is_ok();
        started.then(|| worker.run(cpu, &stop))
    };
    let thread = Builder::new()
        .name(format!("{name}/{cpu}"))
        .stack_size(STACK)
        .spawn(body)
        .map_err(|error| ProbeError::NoThread {
            cpu,
            why: error.kind().to_string(),
        })?;
    Ok(Starting {
        cpu,
        thread,
        ready,
        go,
    })
}

/// Has the kernel give the part of the stack that a measuring loop may reach.
fn touch_stack() {
    std::hint::black_box(&[0_u8; 8 * 1024]);
}

/// Holds what the process has in memory there, if its limits allow.
///
/// Pages that were never touched stay untouched: a lock must not make every reserved range of
/// address space real. It is never undone, because another probe may rely on it.
fn lock_memory() -> bool {
    mlockall(MlockAllFlags::from_bits_retain(
        libc::MCL_CURRENT | libc::MCL_ONFAULT,
    ))
    .is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use ticktax_model::{Cpu, CpuList, Nanos};

    use super::{ThreadGroup, Worker};
    use crate::clock::now;
    use crate::{ProbeError, SchedulingPolicy, cpus};

    /// Waits for its end, and brings back where it was.
    struct Waiting;

    impl Worker for Waiting {
        type Report = (Option<String>, Option<Cpu>);

        fn prepare(&mut self, _: Cpu) {}

        fn run(self, _: Cpu, stop: &AtomicBool) -> Self::Report {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            (
                std::thread::current().name().map(str::to_owned),
                cpus::current(),
            )
        }
    }

    fn workers(cpus: &CpuList) -> Vec<(Cpu, Waiting)> {
        cpus.iter().map(|cpu| (cpu, Waiting)).collect()
    }

    /// Whether a thread of this process ends within some seconds: the kernel takes its entry away
    /// a moment after it was joined.
    fn ends(tid: i32) -> bool {
        let deadline = now() + Nanos::from_secs(10);
        let path = format!("/proc/self/task/{tid}");
        while std::fs::exists(&path).unwrap() {
            if now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    #[test]
    fn threads_are_named_placed_and_gone_after_the_stop() {
        let group = ThreadGroup::start(
            "ttx-test",
            SchedulingPolicy::Idle,
            workers(&cpus::allowed()),
        );
        for (slot, report) in group.unwrap().stop() {
            assert_eq!(
                report,
                Ok((Some(format!("ttx-test/{}", slot.cpu)), Some(slot.cpu)))
            );
            assert_eq!(slot.policy.granted, SchedulingPolicy::Idle);
            assert!(ends(slot.tid));
        }
    }

    #[test]
    fn a_dropped_crew_ends_by_itself() {
        let group = ThreadGroup::start(
            "ttx-test",
            SchedulingPolicy::Other,
            workers(&cpus::allowed()),
        );
        let tids: Vec<i32> = group.unwrap().slots().map(|slot| slot.tid).collect();
        assert!(!tids.is_empty() && tids.into_iter().all(ends));
    }

    #[test]
    fn one_thread_that_cannot_start_ends_them_all() {
        let mut workers = workers(&cpus::allowed());
        workers.push((Cpu(8000), Waiting));
        let error = ThreadGroup::start("ttx-test", SchedulingPolicy::Other, workers).unwrap_err();
        assert!(
            matches!(error, ProbeError::NotAllowed { cpu: Cpu(8000), .. }),
            "{error}"
        );
    }
}
