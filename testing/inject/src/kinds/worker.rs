//! Runs a disturbance in a child process, which reports to its parent through shared memory.
//!
//! Some settings belong to a process rather than to a thread: the handling of `SIGALRM` and, on
//! some machines, the cgroup. A child process leaves the parent's settings alone. The child must
//! not allocate memory, because it is forked from a process with several threads.

use std::ffi::CStr;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::sched::sched_setaffinity;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};
use ticktax_model::{Cpu, Nanos};

use crate::clock;
use crate::control::Control;
use crate::error::InjectError;
use crate::place;
use crate::plan::Plan;
use crate::sys::{Child, SharedWords};
use crate::truth::{Event, Truth};

/// Index of the word that contains the start time of the disturbance, or 0 until the parent sets
/// it.
const START: usize = 0;
/// Index of the word in which the child counts the events that were due. The next word counts the
/// events it completed.
const PLANNED: usize = 1;
const HAPPENED: usize = 2;
/// Index of the word that contains the error number of the child's first failed system call, or 0
/// if none has failed.
const REFUSED: usize = 3;
/// Index of the first word that belongs to an event. Each event takes three words.
const EVENTS: usize = 4;

/// The parent's side of the worker.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    words: SharedWords,
    room: usize,
}

/// Report of a worker that has finished.
pub(super) struct Left {
    pub(super) pid: i32,
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) planned: u64,
    pub(super) happened: u64,
    pub(super) log: Vec<Event>,
    pub(super) cpu_time: Option<Nanos>,
}

/// The child's side of the worker.
pub(super) struct WorkerChannel<'a> {
    words: &'a SharedWords,
    room: usize,
    /// When the disturbance starts.
    pub(super) start: Nanos,
}

impl Worker {
    /// Starts a child called `comm` that is pinned to `cpu`. It executes `work` once
    /// [`run`](Self::run) is called.
    pub(super) fn start(
        cpu: Cpu,
        comm: &CStr,
        room: usize,
        work: impl FnOnce(&mut WorkerChannel<'_>) -> nix::Result<()>,
    ) -> Result<Self, InjectError> {
        let hint = "free memory, or raise the limit of processes";
        let failed = |e| InjectError::system("start a process", e, hint);
        let room = room.min(Truth::MAX_LOGGED);
        let words = SharedWords::new(EVENTS + 3 * room).map_err(failed)?;
        let (parent, only) = (getpid(), place::only(cpu)?);
        let child = Child::fork(|| {
            let prepare = || {
                // Have the kernel kill the child if the parent dies.
                prctl::set_pdeathsig(Signal::SIGKILL)?;
                if getppid() != parent {
                    return Err(Errno::ESRCH);
                }
                sched_setaffinity(Pid::from_raw(0), &only)?;
                prctl::set_name(comm)
            };
            let done = prepare().and_then(|()| {
                let start = wait_for_start(&words);
                work(&mut WorkerChannel {
                    words: &words,
                    room,
                    start,
                })
            });
            let refused = done.err().map_or(0, |e| i64::from(e as i32));
            words.words()[REFUSED].store(refused, Ordering::Release);
        })
        .map_err(failed)?;
        Ok(Self { child, words, room })
    }

    pub(super) fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// Makes the child start its work, and waits until the plan ends.
    pub(super) fn run(self, plan: &Plan, control: &Control) -> Result<Left, InjectError> {
        let before = clock::process_cpu(self.pid());
        let start = control.begin();
        self.words.words()[START].store(start.0, Ordering::Release);
        control.sleep_until(start + Truth::LEAD + plan.duration)?;
        let end = clock::now();
        let used = clock::process_cpu(self.pid());
        let cpu_time = used.zip(before).map(|(used, before)| used - before);
        let pid = super::raw(self.pid());
        let Self { child, words, room } = self;
        drop(child);

        let words = words.words();
        let word = |i: usize| words[i].load(Ordering::Acquire);
        let number = |i: usize| u64::try_from(word(i)).unwrap_or(0);
        if let Ok(refused @ 1..) = i32::try_from(word(REFUSED)) {
            let tried = format!("prepare the process that disturbs CPU {}", plan.cpu);
            return Err(InjectError::system(
                tried,
                Errno::from_raw(refused),
                "try another kind",
            ));
        }
        let (planned, happened) = (number(PLANNED), number(HAPPENED));
        let kept = usize::try_from(happened).unwrap_or(room).min(room);
        let event = |k: usize| {
            let at = EVENTS + 3 * k;
            let [due, start, length] = [0, 1, 2].map(|i| Nanos(word(at + i)));
            Event {
                due,
                start,
                length,
                cpu_time: None,
            }
        };
        let log = (0..kept).map(event).collect();
        Ok(Left {
            pid,
            start,
            end,
            planned,
            happened,
            log,
            cpu_time,
        })
    }
}

impl WorkerChannel<'_> {
    /// Counts an event that has become due.
    pub(super) fn plan(&mut self) {
        self.words.words()[PLANNED].fetch_add(1, Ordering::Relaxed);
    }

    /// Records an event that has been completed.
    pub(super) fn note(&mut self, due: Nanos, start: Nanos, length: Nanos) {
        let words = self.words.words();
        let number = words[HAPPENED].load(Ordering::Relaxed);
        let k = usize::try_from(number).unwrap_or(self.room);
        if k < self.room {
            for (i, time) in [due, start, length].into_iter().enumerate() {
                words[EVENTS + 3 * k + i].store(time.0, Ordering::Relaxed);
            }
        }
        words[HAPPENED].store(number + 1, Ordering::Release);
    }
}

/// Sleeps in short intervals until the parent has set the start time.
fn wait_for_start(words: &SharedWords) -> Nanos {
    loop {
        let start = words.words()[START].load(Ordering::Acquire);
        if start != 0 {
            return Nanos(start);
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}
