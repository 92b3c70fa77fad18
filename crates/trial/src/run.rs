//! Runs a trial on this machine, with interleaved arms.
//!
//! 1. [`Prepared::check`] validates everything and changes nothing.
//! 2. [`Prepared::begin`] locks the journal, undoes what a killed run left behind, and starts a
//!    watchdog.
//! 3. Each [`Runner::step`] makes one run. The warm-ups of every arm come first, then the noise
//!    runs of the first arm, then the blocks.
//! 4. [`Runner::end`] restores all settings, as does dropping the runner.
//!
//! Each step first applies its arm's settings. If a setting already has the right value, the step
//! only reads it, to detect changes by other programs. The step then waits for the settle time
//! whether or not anything changed, so that all runs start under the same conditions.

mod arms;
mod error;
mod held;
mod meter;
mod setter;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ticktax_host::Proc;
use ticktax_knobs::{Consent, Session, System, Watchdog};
use ticktax_model::Nanos;
use ticktax_model::comparison::{Design, Metric, RunPurpose, Trial, TrialRecord, TrialRun};
use ticktax_model::knob::UndoStatement;
use ticktax_model::recording::{EndedEarly, Header, Level};
use ticktax_model::statement::Statement;
use ticktax_observe::{Plan, Session as Observation};
use ticktax_probes::clock::now;

pub use arms::{Assignment, Named};
pub use error::TryError;
pub use held::Starter;
pub use meter::TrialMetric;

use arms::{Row, rows};
use held::{HeldCommand, require_program, shown};
use meter::{Audit, Measured, plan as watching};
use setter::Setter;

use ticktax_experiment::plan;

/// Interval at which a wait checks whether it should stop.
const MOMENT: Duration = Duration::from_millis(50);

/// The command to run, or the process to watch.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A command with its arguments, started once per run.
    Command(Vec<OsString>),
    /// A running process, watched for a fixed time per run.
    Process {
        /// Process ID.
        pid: i32,
        /// Length of each run, during which the process is watched.
        each: Nanos,
    },
}

impl Subject {
    fn words(&self) -> String {
        match self {
            Self::Command(command) => shown(command),
            Self::Process { pid, .. } => {
                let name = Proc::default().program(*pid);
                name.map_or_else(|| pid.to_string(), |name| format!("{name} ({pid})"))
            }
        }
    }
}

/// The settings, the subject and the design of a trial.
#[derive(Debug)]
pub struct TrialPlan {
    /// The values of each setting. Each setting has one value per arm.
    pub assignments: Vec<Assignment>,
    /// The CPUs, the interrupt and the disk that the user named, for settings that apply to such
    /// objects.
    pub named: Named,
    /// The command to run, or the process to watch.
    pub subject: Subject,
    /// Metrics, without duplicates.
    pub metrics: Vec<TrialMetric>,
    /// Number of blocks. Each block runs every arm twice.
    pub blocks: u64,
    /// Number of warm-up runs per arm. Their values are not compared.
    pub warm_ups: u64,
    /// Number of runs of the first arm that measure the machine's noise.
    pub noise_runs: u64,
    /// Seed for the order of the runs.
    pub seed: u64,
    /// Pause before each run. `None` means the longest of the settings' settle times.
    pub settle: Option<Nanos>,
    /// Largest effect that counts as no difference, as a fraction of the first arm's value.
    pub difference: f64,
    /// Whether the user consents to changing dangerous settings.
    pub consent: Consent,
    /// Directories to search for the command, in the format of `PATH`.
    pub search: Option<OsString>,
}

/// A trial's journal, and how to start the programs that the trial needs.
#[derive(Debug)]
pub struct TrialEnvironment<'a> {
    /// The journal file.
    pub journal: &'a Path,
    /// Owner to record in the journal: a command and its PID.
    pub by: &'a str,
    /// A command that calls [`ticktax_knobs::stand_by`].
    pub watchdog: Command,
    /// How to start the ticktax process that waits and then becomes the command.
    pub starter: Starter,
}

/// A validated trial that is ready to start.
#[derive(Debug)]
pub struct Prepared {
    plan: TrialPlan,
    rows: Vec<Row>,
    settle: Nanos,
}

impl Prepared {
    /// Validates a trial without changing any setting.
    ///
    /// # Errors
    /// Returns an error for every problem that can be detected before the first run, such as an
    /// unknown setting, a value out of range, equal arms, a missing command, or a missing privilege
    /// that a metric needs.
    pub fn check(plan: TrialPlan) -> Result<Self, TryError> {
        let system = System::default();
        if plan.blocks == 0 {
            return Err(TryError::Senseless(
                "invalid --blocks 0: give at least 1".to_owned(),
            ));
        }
        match &plan.subject {
            Subject::Command(command) => {
                let name = command.first().ok_or_else(|| {
                    TryError::Senseless(
                        "no program to measure: give a command after `--`, or a process with --pid"
                            .to_owned(),
                    )
                })?;
                require_program(name, plan.search.as_deref())?;
            }
            Subject::Process { pid, each } => {
                if plan.metrics.contains(&TrialMetric::Time) {
                    return Err(TryError::Senseless(
                        "--metric time requires a command: with --pid, the trial sets how long \
                         each run takes"
                            .to_owned(),
                    ));
                }
                watching(*pid, Some(*each)).check()?;
            }
        }
        let rows = rows(
            &plan.assignments,
            &plan.subject,
            &plan.named,
            plan.consent,
            &system,
        )?;
        if plan.audits() {
            require_tracer()?;
        }
        let settles = rows.iter().map(|row| row.knob.settle()).max();
        let settle = plan.settle.or(settles).unwrap_or_default();
        Ok(Self { plan, rows, settle })
    }

    /// Returns the metrics to measure.
    pub fn metrics(&self) -> Vec<Metric> {
        self.plan.metrics()
    }

    /// Returns the number of runs in the complete trial.
    pub fn runs(&self) -> u64 {
        schedule(&self.plan, self.arms()).len() as u64
    }

    /// Returns the number of arms.
    pub fn arms(&self) -> usize {
        self.rows.first().map_or(0, |row| row.values.len())
    }

    /// Locks the journal and undoes what a killed run left behind. Returns the outcome for each
    /// setting undone.
    ///
    /// Also starts the watchdog and, if a setting needs it, creates a cgroup for the command. Does
    /// not change any settings yet.
    ///
    /// # Errors
    /// Returns an error if another run is changing settings, if the journal is unusable, or if the
    /// cgroup cannot be created.
    pub fn begin(
        self,
        environment: TrialEnvironment<'_>,
    ) -> Result<(Runner, UndoStatement), TryError> {
        let system = System::default();
        let schedule = schedule(&self.plan, self.arms());
        let (session, undone) = Session::begin(&system, environment.journal, environment.by)?;
        let watchdog = Watchdog::start(environment.watchdog)?;
        let setter = Setter::new(system, session, self.plan.consent, self.rows)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let runner = Runner {
            setter,
            _watchdog: watchdog,
            starter: environment.starter,
            plan: self.plan,
            settle: self.settle,
            schedule,
            began: now(),
            began_unix: since.map_or(0, |since| {
                i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
            }),
            runs: Vec::new(),
            last_end: None,
            signal: None,
        };
        Ok((runner, undone))
    }
}

impl TrialPlan {
    fn metrics(&self) -> Vec<Metric> {
        self.metrics
            .iter()
            .map(|metric| metric.to_metric())
            .collect()
    }

    fn audits(&self) -> bool {
        self.metrics
            .iter()
            .any(|metric| metric.needs_audit(&self.subject))
    }
}

/// Checks that the kernel permits tracing. Call this before changing anything.
fn require_tracer() -> Result<(), TryError> {
    let look = Plan {
        length: Some(Nanos::from_millis(10)),
        needs: Level::Kernel,
        ..Plan::default()
    };
    drop(Observation::start(look)?);
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct ScheduledRun {
    purpose: RunPurpose,
    block: u64,
    position: u64,
    arm: usize,
}

/// Returns all of the trial's runs, in the order in which they are made.
fn schedule(wanted: &TrialPlan, arms: usize) -> Vec<ScheduledRun> {
    let run = |purpose, block, position, arm| ScheduledRun {
        purpose,
        block,
        position,
        arm,
    };
    let warm_ups = (0..wanted.warm_ups).flat_map(|_| 0..arms);
    let warm_ups = (0..).zip(warm_ups);
    let mut runs: Vec<ScheduledRun> = warm_ups
        .map(|(position, arm)| run(RunPurpose::WarmUp, 0, position, arm))
        .collect();
    let noise = (0..wanted.noise_runs).map(|position| run(RunPurpose::Noise, 0, position, 0));
    runs.extend(noise);
    let slots = plan(arms, wanted.blocks, wanted.seed).into_iter();
    runs.extend(slots.map(|slot| run(RunPurpose::Measured, slot.block, slot.position, slot.arm)));
    runs
}

/// Returns whether to check after `run` that the arms are comparable. That run is the last warm-up
/// or, if no warm-ups are planned, the last run of the first block. By then, every arm has run.
fn is_last_look(run: ScheduledRun, next: Option<&ScheduledRun>, warm_ups: u64) -> bool {
    let in_first = |other: &ScheduledRun| match run.purpose {
        RunPurpose::WarmUp => other.purpose == RunPurpose::WarmUp,
        RunPurpose::Noise => true,
        RunPurpose::Measured => other.block == 0,
    };
    let is_early = run.purpose == RunPurpose::WarmUp || warm_ups == 0 && run.block == 0;
    is_early && !next.is_some_and(in_first)
}

/// A trial in progress. Dropping it restores all settings.
pub struct Runner {
    /// Applies and restores the settings. It must be dropped before the watchdog. That way, the
    /// journal is already closed, and the watchdog has nothing left to do.
    setter: Setter,
    _watchdog: Watchdog,
    starter: Starter,
    plan: TrialPlan,
    settle: Nanos,
    schedule: Vec<ScheduledRun>,
    began: Nanos,
    began_unix: i64,
    runs: Vec<TrialRun>,
    /// How the command's last failed run ended.
    last_end: Option<String>,
    /// Signal that stopped the trial, if any.
    signal: Option<i32>,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// A run is complete. The field is the purpose of the next run.
    Next(RunPurpose),
    /// All runs are complete.
    Over,
    /// The signal with this number stopped the trial.
    Interrupted(i32),
}

impl Runner {
    /// Makes the next run. Calls `asked` twenty times per second, and stops the trial if it returns
    /// a signal's number.
    ///
    /// # Errors
    /// Returns an error if a setting cannot be changed, if another program changed it, if the
    /// process has exited, or if the first runs leave nothing to compare. After an error, call
    /// [`Runner::end`] or drop the runner to restore the settings.
    pub fn step(&mut self, asked: &dyn Fn() -> Option<i32>) -> Result<Stepped, TryError> {
        let Some(&scheduled) = self.schedule.get(self.runs.len()) else {
            return Ok(Stepped::Over);
        };
        self.setter.enter(scheduled.arm)?;
        if let Some(signal) = self.pause(asked) {
            return Ok(self.interrupted(signal));
        }
        let began = now() - self.began;
        let (succeeded, values) = match self.plan.subject.clone() {
            Subject::Command(command) => self.run(scheduled.arm, &command, asked)?,
            Subject::Process { pid, each } => (true, self.watch(pid, each, asked)?),
        };
        if let Some(signal) = self.signal.or_else(asked) {
            return Ok(self.interrupted(signal));
        }
        self.runs.push(TrialRun {
            purpose: scheduled.purpose,
            block: scheduled.block,
            position: scheduled.position,
            arm: scheduled.arm,
            began,
            succeeded,
            values,
        });
        let next = self.schedule.get(self.runs.len());
        if is_last_look(scheduled, next, self.plan.warm_ups) {
            self.require_comparable()?;
        }
        Ok(next.map_or(Stepped::Over, |next| Stepped::Next(next.purpose)))
    }

    fn interrupted(&mut self, signal: i32) -> Stepped {
        self.signal = Some(signal);
        Stepped::Interrupted(signal)
    }

    /// Waits for the settle time and returns `None`. If a signal arrives in the meantime, returns
    /// its number immediately.
    fn pause(&self, asked: &dyn Fn() -> Option<i32>) -> Option<i32> {
        let end = now() + self.settle;
        loop {
            if let Some(signal) = asked() {
                return Some(signal);
            }
            let left = u64::try_from((end - now()).0).unwrap_or(0);
            if left == 0 {
                return None;
            }
            std::thread::sleep(Duration::from_nanos(left).min(MOMENT));
        }
    }

    /// Runs the command once. Returns whether it succeeded, and a value for each metric: `None` if
    /// the metric was not measured.
    fn run(
        &mut self,
        arm: usize,
        command: &[OsString],
        asked: &dyn Fn() -> Option<i32>,
    ) -> Result<(bool, Vec<Option<f64>>), TryError> {
        let mut command = HeldCommand::start(&self.starter, command)?;
        self.setter.enter_command(arm, command.pid())?;
        let mut audit = if self.plan.audits() {
            Some(Audit::begin(command.pid(), None, &self.plan.metrics)?)
        } else {
            None
        };
        let begin = command.release();
        let mut header = None;
        let end = loop {
            let look = match (&mut audit, &header) {
                (Some(audit), None) => {
                    header = audit.step();
                    Duration::ZERO
                }
                _ => MOMENT,
            };
            if let Some(end) = command.wait(look) {
                break end;
            }
            if let Some(signal) = asked() {
                self.signal = Some(signal);
                command.interrupt(signal);
                break HeldCommand::abandoned();
            }
        };
        if self.signal.is_some() {
            return Ok((false, Vec::new()));
        }
        let statement = audit.map(|audit| ended(audit, header));
        self.setter.forget_gone()?;
        let succeeded = end.status.is_some_and(|status| status.success());
        if !succeeded {
            let words = |status: std::process::ExitStatus| status.to_string();
            self.last_end = end.status.map(words);
        }
        let measured = Measured {
            time: Some(end.at - begin),
            cpu: Some(command.used()),
            statement: statement.as_ref(),
        };
        Ok((succeeded, self.values(&measured)))
    }

    /// Watches the process `pid` for `each`. Returns a value for each metric: `None` if the metric
    /// was not measured.
    fn watch(
        &mut self,
        pid: i32,
        each: Nanos,
        asked: &dyn Fn() -> Option<i32>,
    ) -> Result<Vec<Option<f64>>, TryError> {
        let mut audit = Audit::begin(pid, Some(each), &self.plan.metrics)?;
        let header = loop {
            if let Some(header) = audit.step() {
                break header;
            }
            if let Some(signal) = asked() {
                self.signal = Some(signal);
                return Ok(Vec::new());
            }
        };
        if header.ended_early == Some(EndedEarly::ProgramExited) {
            return Err(TryError::ProcessEnded { pid });
        }
        let statement = audit.finish(&header);
        self.setter.forget_gone()?;
        Ok(self.values(&Measured {
            statement: Some(&statement),
            ..Measured::default()
        }))
    }

    fn values(&self, measured: &Measured<'_>) -> Vec<Option<f64>> {
        let metrics = self.plan.metrics.iter();
        metrics.map(|&metric| measured.value(metric)).collect()
    }

    /// Returns an error if the first runs leave nothing to compare.
    fn require_comparable(&self) -> Result<(), TryError> {
        self.setter.require_different()?;
        if self.runs.iter().all(|run| !run.succeeded) {
            return Err(TryError::AlwaysFails {
                ended: self.last_end.clone().unwrap_or_default(),
            });
        }
        for (at, metric) in self.plan.metrics.iter().enumerate() {
            let mut succeeded = self.runs.iter().filter(|run| run.succeeded);
            if succeeded.all(|run| run.values.get(at).copied().flatten().is_none()) {
                return Err(TryError::NoMetric {
                    metric: metric.name().to_owned(),
                    why: metric.without().to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Returns the number of runs made so far.
    pub fn made(&self) -> u64 {
        self.runs.len() as u64
    }

    /// Returns the trial as measured so far.
    pub fn trial(&self) -> Trial {
        let record = TrialRecord {
            subject: self.plan.subject.words(),
            design: Design {
                blocks: self.plan.blocks,
                seed: self.plan.seed,
                warm_ups: self.plan.warm_ups,
                noise_runs: self.plan.noise_runs,
                settle: self.settle,
                difference: self.plan.difference,
            },
            runs: self.runs.clone(),
            interrupted: self.runs.len() < self.schedule.len(),
            fail_if: Vec::new(),
            restored: Vec::new(),
        };
        Trial {
            machine: Proc::default().machine(),
            began_unix: self.began_unix,
            arms: self.setter.arms(),
            metrics: self.plan.metrics(),
            record,
        }
    }

    /// Restores all settings. Returns the outcome for each of them.
    pub fn end(self) -> UndoStatement {
        self.setter.undo()
    }
}

/// Completes the audit of a command that has exited.
fn ended(mut audit: Audit, header: Option<Box<Header>>) -> Statement {
    let header = header.unwrap_or_else(|| {
        loop {
            if let Some(header) = audit.step() {
                break header;
            }
        }
    });
    audit.finish(&header)
}

#[cfg(test)]
mod tests;
