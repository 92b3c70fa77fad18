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
mod before;
mod error;
mod held;
mod meter;
mod schedule;
mod setter;
mod stop;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ticktax_host::Proc;
use ticktax_knobs::{Consent, Session, System, Watchdog};
use ticktax_model::Nanos;
use ticktax_model::comparison::{
    Arm, Design, FailIf, Metric, RunPurpose, Setting, StoppedEarly, Trial, TrialRecord, TrialRun,
};
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
use schedule::{ScheduledRun, is_last_look, schedule};
use setter::{Setter, require_different};

/// Interval at which a wait checks whether it should stop.
const MOMENT: Duration = Duration::from_millis(50);

/// The commands to run, or the process to watch.
#[derive(Clone, Debug)]
pub enum Subject {
    /// Commands with their arguments. Each run starts one of them: the only one, or the one of the
    /// run's arm.
    Commands(Vec<Vec<OsString>>),
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
            Self::Commands(commands) => match &**commands {
                [command] => shown(command),
                commands => format!("{} commands", commands.len()),
            },
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
    /// The values of each setting. Each setting has one value per arm. Empty if the arms differ
    /// only in their commands.
    pub assignments: Vec<Assignment>,
    /// The CPUs, the interrupt and the disk that the user named, for settings that apply to such
    /// objects.
    pub named: Named,
    /// The commands to run, or the process to watch.
    pub subject: Subject,
    /// Shell command to run before each run, without measuring it.
    pub before: Option<String>,
    /// Metrics, without duplicates.
    pub metrics: Vec<TrialMetric>,
    /// More metrics, which do not decide the verdict but can explain it.
    pub resources: Vec<TrialMetric>,
    /// Number of blocks. Each block runs every arm twice.
    pub blocks: u64,
    /// Number of looks at the results, at equal distances. The trial ends at the first look where
    /// every verdict is certain. 1 means only after the last block.
    pub looks: u64,
    /// Conditions that must be decided before the trial can end at a look.
    pub fail_if: Vec<FailIf>,
    /// Longest time for the runs. The trial ends before a block that would probably take longer.
    pub max_time: Option<Nanos>,
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
    /// Directories to search for the commands, in the format of `PATH`.
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
    arms: usize,
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
    pub fn check(mut plan: TrialPlan) -> Result<Self, TryError> {
        let system = System::default();
        if plan.blocks == 0 {
            return Err(TryError::Senseless(
                "invalid --blocks 0: give at least 1".to_owned(),
            ));
        }
        match &plan.subject {
            Subject::Commands(commands) => {
                for command in commands {
                    let name = command.first().ok_or_else(|| {
                        TryError::Senseless(
                            "a command is missing: give one after `--`, and one after each `--vs`"
                                .to_owned(),
                        )
                    })?;
                    require_program(name, plan.search.as_deref())?;
                }
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
        let (arms, rows) = rows(
            &plan.assignments,
            &plan.subject,
            &plan.named,
            plan.consent,
            &system,
        )?;
        if plan.needs_audit(&plan.metrics) {
            require_tracer()?;
        } else if plan.needs_audit(&plan.resources) && require_tracer().is_err() {
            let subject = &plan.subject;
            plan.resources
                .retain(|resource| !resource.needs_audit(subject));
        }
        let settles = rows.iter().map(|row| row.knob.settle()).max();
        let settle = plan.settle.or(settles).unwrap_or_default();
        Ok(Self {
            plan,
            arms,
            rows,
            settle,
        })
    }

    /// Returns the metrics to measure.
    pub fn metrics(&self) -> Vec<Metric> {
        self.plan.metrics()
    }

    /// Returns the number of runs in the complete trial.
    pub fn runs(&self) -> u64 {
        schedule(&self.plan, self.arms).len() as u64
    }

    /// Returns the number of arms.
    pub fn arms(&self) -> usize {
        self.arms
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
        let schedule = schedule(&self.plan, self.arms);
        let (session, undone) = Session::begin(&system, environment.journal, environment.by)?;
        let watchdog = Watchdog::start(environment.watchdog)?;
        let setter = Setter::new(system, session, self.plan.consent, self.arms, self.rows)?;
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
            stopped: None,
            last_end: None,
            signal: None,
        };
        Ok((runner, undone))
    }
}

impl TrialPlan {
    fn metrics(&self) -> Vec<Metric> {
        to_metrics(&self.metrics)
    }

    fn audits(&self) -> bool {
        self.needs_audit(&self.metrics) || self.needs_audit(&self.resources)
    }

    fn needs_audit(&self, metrics: &[TrialMetric]) -> bool {
        let mut metrics = metrics.iter();
        metrics.any(|metric| metric.needs_audit(&self.subject))
    }
}

fn to_metrics(metrics: &[TrialMetric]) -> Vec<Metric> {
    metrics.iter().map(|metric| metric.to_metric()).collect()
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
    /// Why the trial ended before its last block, if it did.
    stopped: Option<StoppedEarly>,
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
        if let Some(command) = &self.plan.before {
            let shows_output = self.starter.show_output;
            if let Some(signal) = before::run(command, scheduled.arm, shows_output, asked)? {
                return Ok(self.interrupted(signal));
            }
        }
        if let Some(signal) = self.pause(asked) {
            return Ok(self.interrupted(signal));
        }
        let began = now() - self.began;
        let (succeeded, values) = match self.plan.subject.clone() {
            Subject::Commands(commands) => {
                let command = commands.get(scheduled.arm).unwrap_or(&commands[0]);
                self.run(scheduled.arm, command, asked)?
            }
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
            values: values.judged,
            resources: values.resources,
        });
        let next = self.schedule.get(self.runs.len()).copied();
        if is_last_look(scheduled, next.as_ref(), self.plan.warm_ups) {
            self.require_comparable()?;
        }
        self.stopped = self.stop_early();
        if self.stopped.is_some() {
            return Ok(Stepped::Over);
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

    /// Runs the command once. Returns whether it succeeded, and what was measured.
    fn run(
        &mut self,
        arm: usize,
        command: &[OsString],
        asked: &dyn Fn() -> Option<i32>,
    ) -> Result<(bool, Values), TryError> {
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
            return Ok((false, Values::default()));
        }
        let statement = audit.map(|audit| ended(audit, header));
        self.setter.forget_gone()?;
        let succeeded = end.status.is_some_and(|status| status.success());
        if !succeeded {
            let words = |status: std::process::ExitStatus| status.to_string();
            self.last_end = end.status.map(words);
        }
        let usage = command.usage();
        let measured = Measured {
            time: Some(end.at - begin),
            cpu: Some(command.cpu_time(&usage)),
            usage: Some(usage),
            statement: statement.as_ref(),
        };
        Ok((succeeded, self.values(&measured)))
    }

    /// Watches the process `pid` for `each`. Returns what was measured.
    fn watch(
        &mut self,
        pid: i32,
        each: Nanos,
        asked: &dyn Fn() -> Option<i32>,
    ) -> Result<Values, TryError> {
        let mut audit = Audit::begin(pid, Some(each), &self.plan.metrics)?;
        let header = loop {
            if let Some(header) = audit.step() {
                break header;
            }
            if let Some(signal) = asked() {
                self.signal = Some(signal);
                return Ok(Values::default());
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

    fn values(&self, measured: &Measured<'_>) -> Values {
        let values = |metrics: &[TrialMetric]| {
            let metrics = metrics.iter();
            metrics.map(|&metric| measured.value(metric)).collect()
        };
        Values {
            judged: values(&self.plan.metrics),
            resources: values(&self.plan.resources),
        }
    }

    /// Returns an error if the first runs leave nothing to compare.
    fn require_comparable(&self) -> Result<(), TryError> {
        require_different(&self.named_arms())?;
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
                looks: self.plan.looks,
                seed: self.plan.seed,
                warm_ups: self.plan.warm_ups,
                noise_runs: self.plan.noise_runs,
                settle: self.settle,
                difference: self.plan.difference,
            },
            runs: self.runs.clone(),
            resources: to_metrics(&self.plan.resources),
            reasons: Vec::new(),
            interrupted: self.stopped.is_none() && self.runs.len() < self.schedule.len(),
            stopped: self.stopped,
            fail_if: Vec::new(),
            restored: Vec::new(),
        };
        Trial {
            machine: Proc::default().machine(),
            began_unix: self.began_unix,
            arms: self.named_arms(),
            metrics: self.plan.metrics(),
            record,
        }
    }

    /// Returns the arms with their settings and, if the commands differ, with their commands.
    fn named_arms(&self) -> Vec<Arm> {
        let mut arms = self.setter.arms();
        if let Subject::Commands(commands) = &self.plan.subject
            && commands.len() > 1
        {
            for (arm, command) in arms.iter_mut().zip(commands) {
                arm.settings
                    .insert(0, Setting::new(Setting::COMMAND, shown(command)));
            }
        }
        arms
    }

    /// Restores all settings. Returns the outcome for each of them.
    pub fn end(self) -> UndoStatement {
        self.setter.undo()
    }
}

/// The values of one run: `None` for each metric that was not measured.
#[derive(Debug, Default)]
struct Values {
    judged: Vec<Option<f64>>,
    resources: Vec<Option<f64>>,
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
