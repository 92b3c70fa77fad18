//! Groups of threads that are each pinned to one CPU. All probes use them.

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

/// Maximum time that a new thread may take to get ready to measure.
const START_LIMIT: Nanos = Nanos::from_secs(10);

/// Maximum time that a thread may take to end after being asked to stop.
const STOP_LIMIT: Nanos = Nanos::from_secs(5);

/// Stack size of a probe's thread, in bytes. A small stack is enough, because call chains are short
/// and large values are not on the stack.
const STACK: usize = 256 * 1024;

/// The work that a pinned thread does.
pub(crate) trait Worker: Send + 'static {
    type Report: Send + 'static;

    /// Prepares the measurement. Runs on the CPU itself, before the scheduling policy is set and
    /// before any thread starts to measure.
    fn prepare(&mut self, cpu: Cpu);

    /// Measures until `stop` is set.
    fn run(self, cpu: Cpu, stop: &AtomicBool) -> Self::Report;
}

/// A pinned thread that is ready to measure.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) cpu: Cpu,
    pub(crate) tid: i32,
    pub(crate) policy: PolicyGrant,
}

/// A probe's threads. Dropping this asks them to stop but does not wait for them.
#[derive(Debug)]
pub(crate) struct ThreadGroup<R> {
    members: Vec<(Slot, JoinHandle<Option<R>>)>,
    /// One sender per waiting thread. A message starts that thread's measurement.
    starts: Vec<Sender<()>>,
    stop: Arc<AtomicBool>,
    memory_locked: bool,
}

/// A thread that was created but is not known to be ready yet.
struct Starting<R> {
    cpu: Cpu,
    thread: JoinHandle<Option<R>>,
    ready: Receiver<Result<Slot, ProbeError>>,
    go: Sender<()>,
}

impl<R: Send + 'static> ThreadGroup<R> {
    /// Creates a thread called `NAME/CPU` for each worker, and starts the measurement in all of
    /// them once they are ready. If a thread fails, returns its error and ends the other threads.
    pub(crate) fn start<D: Worker<Report = R>>(
        name: &str,
        policy: SchedulingPolicy,
        workers: Vec<(Cpu, D)>,
    ) -> Result<Self, ProbeError> {
        let mut group = Self::prepare(name, policy, workers)?;
        group.begin();
        Ok(group)
    }

    /// Creates a thread called `NAME/CPU` for each worker. Returns once all of them are ready and
    /// wait for [`ThreadGroup::begin`]. If a thread fails, returns its error and ends the other
    /// threads.
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

    /// Starts the measurement in all threads that are still waiting for this call.
    pub(crate) fn begin(&mut self) {
        for go in self.starts.drain(..) {
            // If the thread has already ended, `stop` reports it.
            let _ = go.send(());
        }
    }

    /// Asks all threads to stop, without waiting.
    pub(crate) fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns whether the process's memory is locked in RAM, so that page faults don't disturb the
    /// measurement.
    pub(crate) fn memory_locked(&self) -> bool {
        self.memory_locked
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.members.iter().map(|(slot, _)| slot)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.members.iter().any(|(_, thread)| !thread.is_finished())
    }

    /// Stops all threads and returns their results. Waits at most [`STOP_LIMIT`].
    pub(crate) fn stop(mut self) -> Vec<(Slot, Result<R, ProbeError>)> {
        self.stop.store(true, Ordering::Relaxed);
        // Release threads that were never started. They have no result.
        self.begin();
        for (slot, thread) in &self.members {
            // On a busy CPU, a SCHED_IDLE thread or one with a high nice value can wait for seconds
            // before it gets to run and end. Ending takes only a few µs, so raise its priority.
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

/// Creates the thread for one CPU. The thread prepares its measurement, then waits for the signal
/// to start.
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
            // Set the policy last. Under SCHED_IDLE, the preparation would take very long on a busy
            // CPU.
            let policy = policy::obtain(policy);
            Slot {
                cpu,
                tid: gettid().as_raw(),
                policy,
            }
        });
        let pinned = place.is_ok();
        let reported = report.send(place).is_ok();
        // If any other thread of the probe has failed, the start signal never comes.
        let started = pinned && reported && start.recv().is_ok();
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

/// Touches the part of the stack that the measuring loops use, so that the kernel maps it in
/// advance.
fn touch_stack() {
    std::hint::black_box(&[0_u8; 8 * 1024]);
}

/// Locks the process's mapped pages in RAM if the resource limits allow it. Returns whether they
/// are locked.
///
/// Each page is locked when it is first touched, so reserved address ranges take no memory. The
/// lock is never released, because a different probe may need it.
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

    /// A worker that waits until it is asked to stop, then returns its thread's name and its CPU.
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

    /// Returns whether thread `tid` ends within 10 s. After a thread has been joined, its entry in
    /// `/proc` takes a moment to disappear.
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
    fn threads_are_named_and_pinned_and_end_on_stop() {
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
    fn dropping_the_group_ends_its_threads() {
        let group = ThreadGroup::start(
            "ttx-test",
            SchedulingPolicy::Other,
            workers(&cpus::allowed()),
        );
        let tids: Vec<i32> = group.unwrap().slots().map(|slot| slot.tid).collect();
        assert!(!tids.is_empty() && tids.into_iter().all(ends));
    }

    #[test]
    fn if_one_thread_cannot_start_all_of_them_end() {
        let mut workers = workers(&cpus::allowed());
        workers.push((Cpu(8000), Waiting));
        let error = ThreadGroup::start("ttx-test", SchedulingPolicy::Other, workers).unwrap_err();
        assert!(
            matches!(error, ProbeError::NotAllowed { cpu: Cpu(8000), .. }),
            "{error}"
        );
    }
}
