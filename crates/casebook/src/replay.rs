//! Runs a scenario's programs on real threads. The threads take the same steps as in the simulator
//! and, given the same seed, draw the same random numbers.
//!
//! This module only decides which step comes next and how long it sleeps or works. The kernel
//! determines everything else.

mod threads;

use std::io::ErrorKind;

use ticktax_model::Nanos;
use ticktax_model::machine::{Counters, CpuTimes, Machine};
use ticktax_model::pace::Schedule;
use ticktax_model::recording::Header;
use ticktax_model::replay::ReplayedTask;
use ticktax_probes::ProbeError;
use ticktax_sim::{Call, Step, Stream, TaskSpec};

pub use threads::replay_here;

/// Gives a replay thread a clock, and ways to sleep and work.
pub trait Performer {
    /// Returns the time since an arbitrary origin.
    fn now(&mut self) -> Nanos;

    /// Sleeps for `time`, with a single system call.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the call.
    fn sleep(&mut self, call: Call, time: Nanos) -> Result<(), ProbeError>;

    /// Works until this call has used `time` of CPU time.
    fn work(&mut self, time: Nanos);
}

/// Results of all threads, along with the kernel's counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The machine on which the threads ran.
    pub machine: Machine,
    /// Elapsed time.
    pub elapsed: Nanos,
    /// CPU time counted as busy because a tick sampled it, summed over all CPUs (`/proc/stat`).
    pub sampled: Nanos,
    /// Results of each task.
    pub tasks: Vec<ReplayedTask>,
}

impl Replay {
    /// Reads the results from the header of a recording. Returns `None` if the recording was not
    /// made by a replay.
    pub fn from_header(header: &Header) -> Option<Self> {
        let busy = |counters: &Counters| counters.cpu_times.values().map(CpuTimes::busy).sum();
        let [before, after]: [Nanos; 2] = [busy(&header.before), busy(&header.after)];
        Some(Self {
            machine: header.machine.clone(),
            elapsed: header.after.at - header.before.at,
            sampled: after - before,
            tasks: header.replayed.clone()?,
        })
    }
}

/// Why a program could not be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Only the simulator supports the step with this index.
    #[error("only the simulator can run step {0} of the program")]
    Step(usize),
    /// The kernel refused a system call for sleeping.
    #[error(transparent)]
    Sleep(#[from] ProbeError),
    /// The program's thread could not be started.
    #[error("cannot start its thread: {0}")]
    NoThread(ErrorKind),
    /// The program's thread panicked.
    #[error("its thread crashed")]
    Panicked,
}

/// Checks that a real thread can run the program of `task`.
///
/// # Errors
/// Returns [`ReplayError::Step`] with the index of the first step that only the simulator supports.
pub fn check(task: &TaskSpec) -> Result<(), ReplayError> {
    let can = |step: &Step| {
        matches!(
            step,
            Step::Work(_)
                | Step::Sleep(..)
                | Step::SleepRest { .. }
                | Step::Every { .. }
                | Step::Frame
        )
    };
    let unsupported = task.program.iter().position(|step| !can(step));
    unsupported.map_or(Ok(()), |place| Err(ReplayError::Step(place)))
}

/// Runs the program of `task` until `length` has passed. `place` is the task's index in the setup.
///
/// The caller must fill in how much CPU time the thread used ([`ReplayedTask::ran`]).
///
/// # Errors
/// Returns an error if the program has a step that only the simulator supports, or if the kernel
/// refuses to sleep.
pub fn replay(
    task: &TaskSpec,
    place: usize,
    seed: u64,
    length: Nanos,
    performer: &mut impl Performer,
) -> Result<ReplayedTask, ReplayError> {
    check(task)?;
    let number = u64::try_from(place).unwrap_or(u64::MAX);
    // The simulator draws this task's random numbers from the same stream.
    let mut chance = Stream::new(seed, 2 * number);
    let begin = performer.now();
    let mut notes = ReplayedTask::default();
    let mut frame_at = Nanos::ZERO;
    let mut due: Vec<Option<Schedule>> = vec![None; task.program.len()];
    for (at, step) in task.program.iter().enumerate().cycle() {
        let now = performer.now() - begin;
        if now >= length {
            break;
        }
        let mut work = |time: Nanos, notes: &mut ReplayedTask| {
            let time = time.max(Nanos(1));
            notes.requested += time;
            notes.bursts += 1;
            performer.work(time);
        };
        match *step {
            Step::Work(law) => work(chance.draw(&law), &mut notes),
            Step::Every { period, work: law } => {
                let schedule = due[at].get_or_insert(Schedule::new(period));
                if let Some(missed) = schedule.take(now) {
                    notes.overshot += missed;
                    work(chance.draw(&law), &mut notes);
                }
            }
            Step::Sleep(call, law) => {
                performer.sleep(call, chance.draw(&law))?;
                notes.sleeps += u64::from(performer.now() - begin <= length);
            }
            Step::SleepRest { call, time, unit } => {
                let passed = now - frame_at;
                let rest = time - Nanos(passed.0 / unit.0 * unit.0);
                if rest > Nanos::ZERO {
                    performer.sleep(call, rest)?;
                    notes.sleeps += u64::from(performer.now() - begin <= length);
                }
            }
            Step::Frame => {
                notes.frames += 1;
                frame_at = now;
            }
            _ => return Err(ReplayError::Step(at)),
        }
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_probes::ProbeError;
    use ticktax_sim::{Call, Law, Machine, Policy, Setup, Step, TaskSpec, TimerRule, run};

    use super::{Performer, ReplayError, check, replay};

    /// A machine without overhead, on which time passes only while the thread sleeps or works.
    #[derive(Default)]
    struct Ideal(Nanos);

    impl Performer for Ideal {
        fn now(&mut self) -> Nanos {
            self.0
        }

        fn sleep(&mut self, _: Call, time: Nanos) -> Result<(), ProbeError> {
            self.0 += time;
            Ok(())
        }

        fn work(&mut self, time: Nanos) {
            self.0 += time;
        }
    }

    fn ms(ms: i64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// Returns a game server's loop, with frames that sometimes take longer than the period.
    fn server() -> TaskSpec {
        let step = Step::Every {
            period: Nanos(33_333_333),
            work: Law::Exponential(ms(20)),
        };
        let rest = Step::SleepRest {
            call: Call::Nanosleep,
            time: ms(27),
            unit: ms(1),
        };
        let work = Step::Work(Law::Normal(ms(1), Nanos(100_000)));
        TaskSpec::new("server", vec![Step::Frame, step, rest, work])
    }

    /// On a machine without overhead, the thread must do exactly what the simulator does.
    #[test]
    fn a_thread_does_what_the_simulator_does() {
        let length = Nanos::from_secs(60);
        let mut machine = Machine::new(1, 100, Policy::O1);
        machine.timers = TimerRule::HighResolution;
        let mut setup = Setup::new(machine, length);
        let sleeper = vec![
            Step::Sleep(Call::Nanosleep, Law::Exponential(ms(30))),
            Step::Work(Law::Fixed(Nanos(1))),
        ];
        // Each task draws its random numbers from its own stream.
        for task in [server(), TaskSpec::new("sleeper", sleeper)] {
            setup.tasks.push(task);
            let place = setup.tasks.len() - 1;
            let mut alone = setup.clone();
            for other in &mut alone.tasks[..place] {
                other.program = vec![Step::Exit];
            }
            let report = run(&alone).unwrap().tasks[place];
            let task = &setup.tasks[place];
            let done = replay(task, place, setup.seed, length, &mut Ideal::default()).unwrap();
            assert_eq!(
                (done.frames, done.overshot, done.sleeps),
                (report.frames, report.overshot, report.sleeps)
            );
            assert!(done.bursts - report.bursts <= 1, "{done:?} {report:?}");
            assert!(
                (done.requested - report.ran).0 < 200_000_000,
                "{done:?} {report:?}"
            );
            assert!(done.sleeps > 1_000);
        }
        assert!(setup.tasks.len() == 2);
    }

    #[test]
    fn simulator_only_steps_are_refused() {
        let mut task = server();
        task.program.insert(1, Step::Lock(0));
        assert_eq!(check(&task), Err(ReplayError::Step(1)));
        let replayed = replay(&task, 0, 1, ms(1), &mut Ideal::default());
        assert_eq!(replayed, Err(ReplayError::Step(1)));
    }
}
