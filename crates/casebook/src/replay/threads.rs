//! Implements [`Performer`] on this machine, and runs each program on its own thread.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ticktax_host::Proc;
use ticktax_model::Nanos;
use ticktax_model::recording::{Header, Level};
use ticktax_model::replay::ReplayedTask;
use ticktax_probes::ProbeError;
use ticktax_probes::clock::now;
use ticktax_probes::pace::syscall_driver::SyscallDriver;
use ticktax_sim::{Call, TaskSpec};

use super::{Performer, ReplayError, replay};

/// The default seed of scenarios, with which the threads draw the same random numbers as the
/// simulator.
const SEED: u64 = 1;

/// Runs the programs of `tasks` on real threads for `length`. If `tasks` is empty, merely waits
/// that long. Returns the header of a recording without rows.
///
/// # Errors
/// Returns an error if a program has a step that only the simulator supports, or if the kernel
/// refuses to sleep.
pub fn replay_here(tasks: &[TaskSpec], length: Nanos) -> Result<Header, ReplayError> {
    let proc = Proc::default();
    let machine = proc.machine();
    let (world, _) = ticktax_host::world(&machine);
    let began_unix = unix_time();
    let begin = now();
    let before = proc.counters(begin);
    let tasks = perform(tasks, length)?;
    let left = length - (now() - begin);
    thread::sleep(Duration::from_nanos(left.max(Nanos::ZERO).0.unsigned_abs()));
    Ok(Header {
        machine,
        began_unix,
        before,
        after: proc.counters(now()),
        replayed: Some(tasks),
        ..Header::new(world, Level::Proc, env!("CARGO_PKG_VERSION"))
    })
}

/// Returns the current Unix time, in seconds.
fn unix_time() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// Runs the program of each task on its own thread, and waits for all threads.
fn perform(tasks: &[TaskSpec], length: Nanos) -> Result<Vec<ReplayedTask>, ReplayError> {
    thread::scope(|scope| {
        let threads: Vec<_> = tasks
            .iter()
            .enumerate()
            .map(|(place, task)| {
                let perform = move || perform_one(task, place, length);
                thread::Builder::new().spawn_scoped(scope, perform)
            })
            .collect();
        let ended = threads.into_iter().map(|started| {
            let thread = started.map_err(|error| ReplayError::NoThread(error.kind()))?;
            thread.join().unwrap_or(Err(ReplayError::Panicked))
        });
        ended.collect()
    })
}

/// Runs the program of one task on the calling thread.
fn perform_one(task: &TaskSpec, place: usize, length: Nanos) -> Result<ReplayedTask, ReplayError> {
    let mut here = Here(SyscallDriver::default());
    let begin = here.0.cpu_time();
    let mut done = replay(task, place, SEED, length, &mut here)?;
    done.ran = here.0.cpu_time() - begin;
    Ok(done)
}

struct Here(SyscallDriver);

impl Performer for Here {
    fn now(&mut self) -> Nanos {
        now()
    }

    fn sleep(&mut self, call: Call, time: Nanos) -> Result<(), ProbeError> {
        self.0.sleep(call.method(), time)
    }

    fn work(&mut self, time: Nanos) {
        self.0.work(time);
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_sim::{Call, Law, Step, TaskSpec};

    use super::replay_here;
    use crate::replay::{Replay, ReplayError};

    #[test]
    fn each_program_runs_for_the_requested_time() {
        let sleeper = vec![
            Step::Sleep(Call::Nanosleep, Law::Fixed(Nanos::from_millis(2))),
            Step::Work(Law::Fixed(Nanos::from_micros(100))),
        ];
        let tasks = [
            TaskSpec::new("one", sleeper.clone()),
            TaskSpec::new("other", sleeper),
        ];
        let length = Nanos::from_millis(60);
        let header = replay_here(&tasks, length).unwrap();
        let done = Replay::from_header(&header).unwrap();
        assert!(done.elapsed >= length);
        assert_eq!(done.tasks.len(), 2);
        for task in done.tasks {
            assert!(task.sleeps > 0 && task.bursts > 0, "{task:?}");
            assert!(task.ran >= task.requested, "{task:?}");
        }
        let idle = replay_here(&[], Nanos(1)).unwrap();
        assert_eq!(idle.replayed, Some(Vec::new()));
        let cannot = TaskSpec::new("simulated", vec![Step::Lock(0)]);
        assert_eq!(replay_here(&[cannot], length), Err(ReplayError::Step(0)));
    }
}
