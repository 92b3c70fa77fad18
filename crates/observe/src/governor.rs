//! Gives the session's thread a real-time priority, in short slices, when it would otherwise run
//! too late.
//!
//! A nice value has no effect against other sessions (autogroups) and other control groups: a
//! thread in a group with a weight of 262,144 gets 256 times as much of a CPU as ticktax. That is
//! why a second thread, the governor, raises the session's thread to the lowest real-time priority
//! when necessary. It is necessary while a buffer is more than half full, if the thread gets less
//! than three quarters of a CPU. It is also necessary while the session is starting or ending, if
//! the thread gets less than half of a CPU. The governor takes the priority back after
//! [`pacing::RUN`], so that no other program has to wait
//! longer than that at a stretch. The fuller the buffers, the sooner the next slice comes.
//!
//! At other times, the governor runs for a few microseconds every [`pacing::LOOK`]. It has the
//! highest real-time priority. With a lower one, it would itself wait behind a real-time program
//! that keeps the session's thread from running. To the threads that the governor delays, including
//! the kernel's interrupt threads, it is like one more timer interrupt. Priorities end with the
//! process, so nothing is left behind even after SIGKILL.

mod pacing;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, gettid};
use ticktax_host::own_thread_cpu_time;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;
use ticktax_trace::{Backlog, ThreadPriority};

use pacing::{Need, Pacing, Step};

/// Raises the priority of the thread that creates it whenever necessary. Dropping the governor
/// restores the thread's policy.
pub(crate) struct Governor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    own: ThreadPriority,
}

/// State shared by the governor and the session's thread.
#[derive(Default)]
struct Shared {
    /// Whether the governor must end.
    stop: AtomicBool,
    /// Buffers that the session's thread must empty in time. `None` while it has other work.
    buffers: Mutex<Option<Buffers>>,
    /// Whether the session's thread has a real-time priority at the moment.
    in_slice: Arc<AtomicBool>,
    /// The governor's thread ID, or 0 until it runs.
    tid: AtomicI64,
    /// CPU time of the governor, in ns.
    cpu: AtomicI64,
    /// The governor's CPU time when the session began to record, in ns.
    cpu_before: AtomicI64,
    /// CPU time that the session's thread has used at a real-time priority since the session began
    /// to record, in ns.
    raised: AtomicI64,
}

impl Shared {
    fn buffers(&self) -> MutexGuard<'_, Option<Buffers>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The buffers that a session's thread empties until it has other work.
pub(crate) struct Buffers {
    pub(crate) backlog: Backlog,
    /// When the session is due to end, if known. From then on, the thread has other work.
    pub(crate) end: Option<Nanos>,
}

impl Governor {
    /// Starts to govern the calling thread. At first, the thread's work is assumed to be something
    /// other than emptying buffers.
    ///
    /// # Errors
    /// Returns the reason if the kernel does not allow a real-time priority. Returns `None` if the
    /// caller already has a policy that is not an ordinary one. The caller keeps that policy.
    pub(crate) fn start() -> Result<Self, Option<&'static str>> {
        let own = ThreadPriority::current().ok_or(None)?;
        own.raise(pacing::LOWEST)?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("ticktax-govern".to_owned())
            .spawn(move || govern(own, &theirs));
        let Ok(thread) = thread else {
            own.restore();
            return Err(Some("no thread can be started"));
        };
        let is_raised = ThreadPriority::raise_started(&thread, ThreadPriority::HIGHEST);
        let governor = Self {
            shared,
            thread: Some(thread),
            own,
        };
        if is_raised {
            Ok(governor)
        } else {
            Err(Some("the highest real-time priority is not permitted"))
        }
    }

    /// Tells the governor that from now on, the calling thread only has to empty `buffers` in time.
    /// If `buffers` is `None`, the thread has other work again.
    pub(crate) fn watch(&self, buffers: Option<Buffers>) {
        if buffers.is_some() {
            let cpu = self.shared.cpu.load(Ordering::Relaxed);
            self.shared.cpu_before.store(cpu, Ordering::Relaxed);
            self.shared.raised.store(0, Ordering::Relaxed);
        }
        *self.shared.buffers() = buffers;
        self.wake();
    }

    /// Moves the governor to the same CPUs as the session's thread.
    pub(crate) fn use_cpus(&self, cpus: &CpuSet) {
        let tid = i32::try_from(self.shared.tid.load(Ordering::Relaxed)).unwrap_or(0);
        if tid > 0 {
            // The governor is useful on any CPU, so a refusal does no harm.
            let _ = sched_setaffinity(Pid::from_raw(tid), cpus);
        }
    }

    /// Returns the governor's CPU time since the session began to record.
    pub(crate) fn cpu_time(&self) -> Nanos {
        let before = self.shared.cpu_before.load(Ordering::Relaxed);
        Nanos(self.shared.cpu.load(Ordering::Relaxed) - before)
    }

    /// Returns the CPU time that the session's thread has used at a real-time priority since the
    /// session began to record.
    pub(crate) fn raised_time(&self) -> Nanos {
        Nanos(self.shared.raised.load(Ordering::Relaxed))
    }

    /// Returns the flag that is set while the session's thread has a real-time priority. In that
    /// time, the thread need not take breaks, because the governor takes the priority back.
    pub(crate) fn in_slice(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.in_slice)
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // If the thread has already ended, there is nothing to stop.
            let _ = thread.join();
        }
        self.own.restore();
    }
}

/// The governor's thread.
fn govern(session: ThreadPriority, shared: &Shared) {
    shared
        .tid
        .store(gettid().as_raw().into(), Ordering::Relaxed);
    let clock = thread_clock(session.tid());
    let state = File::open(format!("/proc/self/task/{}/stat", session.tid())).ok();
    let mut pacing = Pacing::new();
    // The session's thread raised its own priority before it started this thread.
    let mut step = Step::first();
    let (mut at, mut used, mut own) = (now(), cpu_time(clock), own_thread_cpu_time());
    loop {
        if let Ok(time) = u64::try_from(step.time.0) {
            thread::park_timeout(Duration::from_nanos(time));
        }
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let (time, cpu) = (now(), cpu_time(clock));
        let own_cpu = own_thread_cpu_time();
        let (passed, ran) = (time - at - (own_cpu - own), cpu - used);
        (at, used, own) = (time, cpu, own_cpu);
        if step.priority.is_some() {
            shared.raised.fetch_add(ran.0, Ordering::Relaxed);
        }
        let filled = {
            let buffers = shared.buffers();
            let buffers = buffers.as_ref();
            let buffers = buffers.filter(|buffers| buffers.end.is_none_or(|end| time < end));
            buffers.map(|buffers| buffers.backlog.fullest())
        };
        let need = match filled {
            None if pacing::hardly_ran(ran) && is_asleep(state.as_ref()) => Need::Sleep,
            None => Need::Work,
            Some(filled) => Need::Buffers(filled),
        };
        let next = pacing.next(need, ran, passed);
        let in_slice = next.priority.is_some();
        shared.in_slice.store(in_slice, Ordering::Relaxed);
        match next.priority {
            Some(priority) => {
                // The kernel granted the priority at the start. If it no longer does, the buffers
                // may overflow, which the header reports.
                let _ = session.raise(priority);
            }
            None if step.priority.is_some() => session.restore(),
            None => {}
        }
        step = next;
        shared.cpu.store(own_thread_cpu_time().0, Ordering::Relaxed);
    }
}

/// Returns whether a thread is waiting for something other than a CPU. `stat` is the thread's
/// `stat` file in `/proc`. Returns `false` if the file cannot be read.
fn is_asleep(stat: Option<&File>) -> bool {
    // The thread's name precedes its state. It takes up to 16 bytes and can contain brackets.
    let mut start = [0; 64];
    let Some(Ok(read)) = stat.map(|stat| stat.read_at(&mut start, 0)) else {
        return false;
    };
    let name_end = start[..read].iter().rposition(|&byte| byte == b')');
    let state = name_end.and_then(|end| start.get(end + 2));
    state.is_some_and(|&state| state != b'R')
}

/// Returns the clock that counts the CPU time of thread `tid` (`CPUCLOCK_PERTHREAD` and
/// `CPUCLOCK_SCHED`).
fn thread_clock(tid: i32) -> ClockId {
    ClockId::from_raw((!tid << 3) | 4 | 2)
}

fn cpu_time(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    time.map_or(Nanos::ZERO, |time| {
        Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use ticktax_host::own_thread_cpu_time;
    use ticktax_model::Nanos;
    use ticktax_probes::clock::now;
    use ticktax_trace::ThreadPriority;

    use super::{Governor, cpu_time, is_asleep, thread_clock};

    #[test]
    fn a_governor_leaves_its_thread_as_it_was() {
        let before = ThreadPriority::current();
        let Ok(governor) = Governor::start() else {
            // This process isn't allowed a real-time priority, so nothing can have changed.
            assert_eq!(ThreadPriority::current(), before);
            return;
        };
        let end = now() + Nanos::from_millis(20);
        while now() < end {
            std::hint::spin_loop();
        }
        thread::sleep(Duration::from_millis(5));
        assert!(governor.cpu_time() > Nanos::ZERO);
        drop(governor);
        assert_eq!(ThreadPriority::current(), before);
    }

    #[test]
    fn a_sleeping_thread_is_told_from_a_running_one() {
        let (wake, waits) = mpsc::channel::<()>();
        let (send_tid, tid) = mpsc::channel();
        let sleeper = thread::spawn(move || {
            send_tid.send(nix::unistd::gettid().as_raw()).unwrap();
            waits.recv().ok();
        });
        let stat = |tid: i32| File::open(format!("/proc/self/task/{tid}/stat"));
        let asleep = stat(tid.recv().unwrap()).ok();
        let own = stat(nix::unistd::gettid().as_raw()).unwrap();
        assert!(!is_asleep(Some(&own)));
        assert!(!is_asleep(None));
        while !is_asleep(asleep.as_ref()) {
            thread::yield_now();
        }
        wake.send(()).unwrap();
        sleeper.join().unwrap();
    }

    #[test]
    fn the_cpu_time_of_another_thread_is_read() {
        let tid = nix::unistd::gettid().as_raw();
        let own = own_thread_cpu_time();
        let seen = thread::spawn(move || cpu_time(thread_clock(tid))).join();
        let seen = seen.unwrap();
        assert!(seen >= own && seen <= own_thread_cpu_time(), "{seen}");
    }
}
