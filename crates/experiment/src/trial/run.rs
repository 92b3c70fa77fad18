//! Running a trial: arms by turns, on this machine.
//!
//! [`Prepared::check`] looks at everything and touches nothing. [`Prepared::begin`] takes the journal's lock, puts back
//! what a killed run left, and starts a watchdog. Then each [`Runner::step`] is a run: first those that fill caches, of each
//! arm; then some of the first arm alone, by which the machine's own noise is known; then the blocks. Before each, its
//! arm is set (what has the right value already is looked at, so that nobody else's change goes unnoticed), and the
//! same time passes, whether anything changed or not: all runs begin alike. [`Runner::end`] puts everything back;
//! so does dropping it.

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
use ticktax_model::knob::UndoStatement;
use ticktax_model::recording::{EndedEarly, Header, Level};
use ticktax_model::statement::Statement;
use ticktax_model::trial::{Design, Metric, RunPurpose, Trial, TrialRun};
use ticktax_observe::{Plan, Session as Observation};
use ticktax_probes::clock::now;

pub use arms::{Assignment, Named};
pub use error::TryError;
pub use held::Starter;
pub use meter::TrialMetric;

use arms::{Row, rows};
use held::{Held, require_program, shown};
use meter::{Audit, Measured, plan as watching};
use setter::Setter;

use super::plan;

/// How often a wait is interrupted to look whether somebody asked for the end.
const MOMENT: Duration = Duration::from_millis(50);

/// What is run in each arm, or watched.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A command with its arguments, run once for each run.
    Command(Vec<OsString>),
    /// A process that goes on, watched for so long for each run.
    Process {
        /// Its number.
        pid: i32,
        /// How long.
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

/// What is to be tried, and how.
#[derive(Debug)]
pub struct TrialPlan {
    /// What is set in each arm.
    pub assignments: Vec<Assignment>,
    /// Of which CPUs, interrupt and disk.
    pub named: Named,
    /// What is run or watched.
    pub subject: Subject,
    /// What is measured, each once.
    pub metrics: Vec<TrialMetric>,
    /// Blocks, each of every arm twice.
    pub blocks: u64,
    /// Runs of each arm before any that counts.
    pub warm_ups: u64,
    /// Runs of the first arm by which the machine's own noise is known.
    pub noise_runs: u64,
    /// Of what the order is drawn.
    pub seed: u64,
    /// The time before each run; `None`: what the settings ask for.
    pub settle: Option<Nanos>,
    /// The largest effect that counts as none, as a share.
    pub difference: f64,
    /// Whether dangerous settings may be changed.
    pub consent: Consent,
    /// The folders in which a command is looked for, as `PATH` has them.
    pub search: Option<OsString>,
}

/// How a trial begins on this machine.
#[derive(Debug)]
pub struct Place<'a> {
    /// The journal.
    pub journal: &'a Path,
    /// Who this is: a command with its PID.
    pub by: &'a str,
    /// What calls [`ticktax_knobs::stand_by`].
    pub watchdog: Command,
    /// What becomes a command when it is told to.
    pub starter: Starter,
    /// Version of this program.
    pub version: &'a str,
}

/// A trial that can begin.
#[derive(Debug)]
pub struct Prepared {
    plan: TrialPlan,
    rows: Vec<Row>,
    settle: Nanos,
}

impl Prepared {
    /// Checks everything that can be without changing anything.
    ///
    /// # Errors
    /// Whatever would fail later: unknown settings, values out of range, arms that are the same, a command that is not
    /// there, a metric for which this process has no rights.
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
                        "no subject: give a command after `--`, or --pid N".to_owned(),
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

    /// What is measured.
    pub fn metrics(&self) -> Vec<Metric> {
        self.plan.metrics()
    }

    /// How many runs there will be in all.
    pub fn runs(&self) -> u64 {
        schedule(&self.plan, self.arms()).len() as u64
    }

    /// How many arms there are.
    pub fn arms(&self) -> usize {
        self.rows.first().map_or(0, |row| row.values.len())
    }

    /// Takes the journal, and says what was put back of a killed run. Starts the watchdog; nothing is set yet but
    /// a cgroup for the command where one is needed.
    ///
    /// # Errors
    /// Another run changes settings, the journal cannot be used, or no cgroup can be made.
    pub fn begin(self, place: Place<'_>) -> Result<(Runner, UndoStatement), TryError> {
        let system = System::default();
        let steps = schedule(&self.plan, self.arms());
        let (session, undone) = Session::begin(&system, place.journal, place.by)?;
        let watchdog = Watchdog::start(place.watchdog)?;
        let setter = Setter::new(system, session, self.plan.consent, self.rows)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let runner = Runner {
            setter,
            _watchdog: watchdog,
            starter: place.starter,
            version: place.version.to_owned(),
            plan: self.plan,
            settle: self.settle,
            steps,
            began: now(),
            began_unix: since.map_or(0, |it| i64::try_from(it.as_secs()).unwrap_or(i64::MAX)),
            runs: Vec::new(),
            last_end: None,
            signal: None,
        };
        Ok((runner, undone))
    }
}

impl TrialPlan {
    fn metrics(&self) -> Vec<Metric> {
        let metrics = self.metrics.iter();
        metrics.map(|it| it.of(&self.subject)).collect()
    }

    fn audits(&self) -> bool {
        self.metrics.iter().any(|it| it.needs_audit(&self.subject))
    }
}

/// That the kernel lets this process trace: better known before anything is changed.
fn require_tracer() -> Result<(), TryError> {
    let look = Plan {
        length: Some(Nanos::from_millis(10)),
        needs: Level::Kernel,
        ..Plan::default()
    };
    drop(Observation::start(look)?);
    Ok(())
}

/// A run that is to be made.
#[derive(Clone, Copy, Debug)]
struct Step {
    purpose: RunPurpose,
    block: u64,
    position: u64,
    arm: usize,
}

/// All runs, in their order.
fn schedule(wanted: &TrialPlan, arms: usize) -> Vec<Step> {
    let step = |purpose, block, position, arm| Step {
        purpose,
        block,
        position,
        arm,
    };
    let warm_ups = (0..wanted.warm_ups).flat_map(|_| 0..arms);
    let warm_ups = (0..).zip(warm_ups);
    let mut steps: Vec<Step> = warm_ups
        .map(|(position, arm)| step(RunPurpose::WarmUp, 0, position, arm))
        .collect();
    let noise = (0..wanted.noise_runs).map(|position| step(RunPurpose::Noise, 0, position, 0));
    steps.extend(noise);
    let slots = plan(arms, wanted.blocks, wanted.seed).into_iter();
    steps.extend(slots.map(|it| step(RunPurpose::Measured, it.block, it.position, it.arm)));
    steps
}

/// Whether every arm has been run when `step` is over, and was not before: then it is known whether anything can be
/// compared. That is after the warm-ups, and where there are none after the first block.
fn is_last_look(step: Step, next: Option<&Step>, warm_ups: u64) -> bool {
    let in_first = |it: &Step| match step.purpose {
        RunPurpose::WarmUp => it.purpose == RunPurpose::WarmUp,
        RunPurpose::Noise => true,
        RunPurpose::Measured => it.block == 0,
    };
    let is_early = step.purpose == RunPurpose::WarmUp || warm_ups == 0 && step.block == 0;
    is_early && !next.is_some_and(in_first)
}

/// A trial that has begun. Dropping it puts every setting back.
pub struct Runner {
    /// Dropped first: the watchdog has nothing to do once the journal is closed.
    setter: Setter,
    _watchdog: Watchdog,
    starter: Starter,
    version: String,
    plan: TrialPlan,
    settle: Nanos,
    steps: Vec<Step>,
    began: Nanos,
    began_unix: i64,
    runs: Vec<TrialRun>,
    /// How the command last ended, where it failed.
    last_end: Option<String>,
    /// The signal that ended the trial early.
    signal: Option<i32>,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// A run is over; the next one is for this.
    Next(RunPurpose),
    /// That was the last one.
    Over,
    /// A signal asked for the end.
    Interrupted(i32),
}

impl Runner {
    /// Makes the next run. `asked` is the signal that asks for the end, if one came: it is looked at twenty times a
    /// second.
    ///
    /// # Errors
    /// A setting cannot be changed, or another program changed it; the process has ended; after the first runs, that
    /// nothing can be compared. What was set is put back by [`Runner::end`], or when this is dropped.
    pub fn step(&mut self, asked: &dyn Fn() -> Option<i32>) -> Result<Stepped, TryError> {
        let Some(&step) = self.steps.get(self.runs.len()) else {
            return Ok(Stepped::Over);
        };
        self.setter.enter(step.arm)?;
        if let Some(signal) = self.pause(asked) {
            return Ok(self.interrupted(signal));
        }
        let began = now() - self.began;
        let (succeeded, values) = match self.plan.subject.clone() {
            Subject::Command(command) => self.run(step.arm, &command, asked)?,
            Subject::Process { pid, each } => (true, self.watch(pid, each, asked)?),
        };
        if let Some(signal) = self.signal.or_else(asked) {
            return Ok(self.interrupted(signal));
        }
        self.runs.push(TrialRun {
            purpose: step.purpose,
            block: step.block,
            position: step.position,
            arm: step.arm,
            began,
            succeeded,
            values,
        });
        let next = self.steps.get(self.runs.len());
        if is_last_look(step, next, self.plan.warm_ups) {
            self.require_comparable()?;
        }
        Ok(next.map_or(Stepped::Over, |next| Stepped::Next(next.purpose)))
    }

    fn interrupted(&mut self, signal: i32) -> Stepped {
        self.signal = Some(signal);
        Stepped::Interrupted(signal)
    }

    /// Lets settings take effect.
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

    /// Runs the command; whether it succeeded, and a value for each metric.
    fn run(
        &mut self,
        arm: usize,
        command: &[OsString],
        asked: &dyn Fn() -> Option<i32>,
    ) -> Result<(bool, Vec<Option<f64>>), TryError> {
        let mut held = Held::start(&self.starter, command)?;
        self.setter.enter_command(arm, held.pid())?;
        let mut audit = if self.plan.audits() {
            Some(Audit::begin(held.pid(), None, &self.plan.metrics)?)
        } else {
            None
        };
        let begin = held.release();
        let mut header = None;
        let end = loop {
            let look = match (&mut audit, &header) {
                (Some(audit), None) => {
                    header = audit.step();
                    Duration::ZERO
                }
                _ => MOMENT,
            };
            if let Some(end) = held.wait(look) {
                break end;
            }
            if let Some(signal) = asked() {
                self.signal = Some(signal);
                held.interrupt(signal);
                break Held::abandoned();
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
            cpu: Some(held.used()),
            statement: statement.as_ref(),
        };
        Ok((succeeded, self.values(&measured)))
    }

    /// Watches a process; a value for each metric.
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
        if header.ended_early == Some(EndedEarly::ProgramEnded) {
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
        metrics.map(|&it| measured.value(it)).collect()
    }

    /// That the first runs leave something to be compared.
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

    /// How many runs have been made.
    pub fn made(&self) -> u64 {
        self.runs.len() as u64
    }

    /// What there is so far.
    pub fn trial(&self) -> Trial {
        Trial {
            tool_version: self.version.clone(),
            machine: Proc::default().machine(),
            began_unix: self.began_unix,
            subject: self.plan.subject.words(),
            arms: self.setter.arms(),
            metrics: self.plan.metrics(),
            design: Design {
                blocks: self.plan.blocks,
                seed: self.plan.seed,
                warm_ups: self.plan.warm_ups,
                noise_runs: self.plan.noise_runs,
                settle: self.settle,
                difference: self.plan.difference,
            },
            runs: self.runs.clone(),
            interrupted: self.runs.len() < self.steps.len(),
        }
    }

    /// Puts everything back, and says what became of each setting.
    pub fn end(self) -> UndoStatement {
        self.setter.undo()
    }
}

/// What an audit says of a command that has ended.
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
