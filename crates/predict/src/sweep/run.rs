//! Runs the arms of a sweep on all CPUs, in any order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

use ticktax_model::Nanos;
use ticktax_probes::clock::now;
use ticktax_sim::{Report, Setup, SetupError};
use ticktax_store::table::{TableReader, TableWriter};

use super::SweepError;
use super::journal::{Journal, Record};
use super::outcome;
use super::plan::Plan;
use super::results;

/// Maximum time between two calls of the caller's `watch` function.
const WATCH: Duration = Duration::from_millis(100);
/// Maximum time between two flushes of the journal to disk.
const FLUSH: Duration = Duration::from_secs(1);
/// Number of rows per row group of the table. The writer keeps one group in memory.
const GROUP: usize = 4096;

/// A function that simulates one arm.
pub(super) type Runner = fn(&Setup) -> Result<Report, SetupError>;

/// Result of [`begin`].
pub enum Begun {
    /// Some arms have yet to be run.
    Ready(Box<Sweep>),
    /// The results are already complete.
    Complete,
}

/// Progress of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of finished arms, including those already in the journal.
    pub done: usize,
    /// Number of events simulated in this run.
    pub events: u64,
    /// Duration of this run.
    pub took: Nanos,
}

/// How [`Sweep::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All arms are finished.
    Complete(Progress),
    /// The caller stopped the run. The finished arms are in the journal.
    Stopped(Progress),
}

/// A sweep that is ready to run. Its journal is open and locked.
pub struct Sweep {
    plan: Arc<Plan>,
    results: PathBuf,
    journal: Journal,
}

/// Starts or resumes a sweep that writes to `results`.
///
/// # Errors
/// Returns an error if another process is writing the results, if the results or their journal
/// belong to a different sweep, or if the location is not writable. An error leaves no new files
/// behind.
pub fn begin(plan: Plan, results: &Path) -> Result<Begun, SweepError> {
    let create = |why: &str| {
        Err(SweepError::Create {
            results: results.to_owned(),
            why: why.to_owned(),
        })
    };
    match std::fs::metadata(results) {
        Ok(facts) if facts.is_dir() => return create("it is a directory; give the path of a file"),
        Ok(facts) if !facts.is_file() => {
            return create("it is a device or pipe; give the path of a regular file");
        }
        _ if results.file_name().is_none() => {
            return create("the path has no file name; give the path of a file");
        }
        _ => {}
    }
    let there = TableReader::open(results)
        .map(|table| table.map(|table| results::difference(&table.metadata(), plan.identity())));
    let what = match there {
        Ok(Some(Some(what))) => Some(what),
        Err(error) => Some(format!(
            "exists, and does not contain results of a sweep ({})",
            error.why
        )),
        Ok(Some(None)) => {
            // The journal is removed after the results have been written. If a process was killed
            // in between, the journal is still there.
            if super::journal_of(results).exists() {
                Journal::open(results, &plan)?.remove()?;
            }
            return Ok(Begun::Complete);
        }
        Ok(None) => None,
    };
    if let Some(what) = what {
        let path = results.to_owned();
        return Err(SweepError::Other { path, what });
    }
    let journal = Journal::open(results, &plan)?;
    Ok(Begun::Ready(Box::new(Sweep {
        plan: Arc::new(plan),
        results: results.to_owned(),
        journal,
    })))
}

impl Sweep {
    /// Returns the number of arms that had already finished in an earlier run.
    pub fn found(&self) -> usize {
        self.journal.done()
    }

    /// Returns the number of damaged journal entries. Their arms will run again.
    pub fn damaged(&self) -> u64 {
        self.journal.damaged
    }

    /// Returns the plan of the sweep.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs the arms that have not finished yet, on `jobs` threads (at least one).
    ///
    /// Calls `watch` with the progress at least ten times per second. `watch` returns whether to
    /// continue. An arm that is invalid or panics is recorded with its error and counts as
    /// finished.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written.
    pub fn run(
        &mut self,
        jobs: usize,
        watch: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Ended, SweepError> {
        self.run_by(ticktax_sim::run, jobs, watch)
    }

    pub(super) fn run_by(
        &mut self,
        runner: Runner,
        jobs: usize,
        watch: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Ended, SweepError> {
        let todo: Vec<usize> = (0..self.plan.grid().len())
            .filter(|&arm| !self.journal.has(arm))
            .collect();
        let jobs = jobs.clamp(1, todo.len().max(1));
        let (sender, finished) = sync_channel(4 * jobs);
        let todo = Arc::new(todo);
        let next = Arc::new(AtomicUsize::new(0));
        let mut workers = Vec::new();
        for _ in 0..jobs {
            let (plan, todo, next) = (self.plan.clone(), todo.clone(), next.clone());
            let sender = sender.clone();
            let worker = move || work(&plan, &todo, &next, runner, &sender);
            match thread::Builder::new().spawn(worker) {
                Ok(worker) => workers.push(worker),
                Err(error) if workers.is_empty() => return Err(SweepError::Thread(error.kind())),
                // The threads that did start run all arms.
                Err(_) => break,
            }
        }
        drop(sender);
        let ended = self.collect(&finished, watch);
        next.store(todo.len(), Ordering::Relaxed);
        drop(finished);
        // If the run was stopped, the threads are in the middle of an arm, so don't wait for them.
        if matches!(ended, Ok(Ended::Complete(_))) {
            for worker in workers {
                let _ = worker.join();
            }
        }
        ended
    }

    fn collect(
        &mut self,
        finished: &Receiver<(Record, u64)>,
        watch: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Ended, SweepError> {
        let mut progress = Progress {
            done: self.journal.done(),
            events: 0,
            took: Nanos::ZERO,
        };
        let began = now();
        let mut flushed = SystemTime::now();
        loop {
            match finished.recv_timeout(WATCH) {
                Ok((record, events)) => {
                    self.journal.add(&record)?;
                    progress.done = self.journal.done();
                    progress.events += events;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.journal.sync()?;
                    progress.took = now() - began;
                    return Ok(Ended::Complete(progress));
                }
            }
            // Also flush if the clock was set back.
            if flushed.elapsed().map_or(true, |passed| passed >= FLUSH) {
                self.journal.sync()?;
                flushed = SystemTime::now();
            }
            progress.took = now() - began;
            if !watch(progress) {
                self.journal.sync()?;
                return Ok(Ended::Stopped(progress));
            }
        }
    }

    /// Writes the results in the order of the arms, then removes the journal.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read, or if the results cannot be written.
    pub fn finish(self) -> Result<(), SweepError> {
        let plan = &self.plan;
        let mut table = TableWriter::create(&self.results, plan.columns(), &plan.metadata())?;
        let arms = plan.grid().len();
        for first in (0..arms).step_by(GROUP) {
            let mut rows = Vec::with_capacity(GROUP);
            for arm in first..arms.min(first + GROUP) {
                let outcome = match self.journal.get(arm)? {
                    Some(Record {
                        error: Some(why), ..
                    }) => Err(why),
                    Some(record) => Ok(record.cells),
                    None => Err("the arm was not run".to_owned()),
                };
                rows.push(plan.row(arm, outcome));
            }
            table.group(&rows)?;
        }
        table.finish()?;
        self.journal.remove()
    }
}

/// Runs arms until none are left or the receiver of the results is gone. Each worker thread calls
/// this.
fn work(
    plan: &Plan,
    todo: &[usize],
    next: &AtomicUsize,
    runner: Runner,
    finished: &SyncSender<(Record, u64)>,
) {
    while let Some(&arm) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let setup = plan.grid().arm(arm).map_err(|error| error.to_string())?;
            let report = runner(&setup).map_err(|error| error.to_string())?;
            Ok((outcome::cells(&setup, &report), report.events))
        }));
        let outcome = outcome.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("no reason given").replace('\n', " ");
            Err(format!("the simulation crashed: {text}"))
        });
        let (cells, error, events) = match outcome {
            Ok((cells, events)) => (cells, None, events),
            Err(why) => (Vec::new(), Some(why), 0),
        };
        let record = Record { arm, cells, error };
        if finished.send((record, events)).is_err() {
            return;
        }
    }
}
