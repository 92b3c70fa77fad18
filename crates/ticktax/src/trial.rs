//! `ticktax try`: runs an A/B test that alternates between the values of a setting and judges the
//! difference.

use std::collections::hash_map::RandomState;
use std::env;
use std::ffi::OsString;
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use nix::unistd::geteuid;
use ticktax_experiment::detectable::{Detectable, detectable, fewest_blocks};
use ticktax_host::open_files;
use ticktax_knobs::{Consent, KnobError, System};
use ticktax_model::Nanos;
use ticktax_model::comparison::{Experiment, FailIf, Outcome, RunPurpose, Scale, Trial, Unit};
use ticktax_model::knob::UndoStatement;
use ticktax_observe::ObserveError;
use ticktax_report::{Format, render};
use ticktax_trial::run::{
    Assignment, Named, Prepared, Runner, Starter, Stepped, Subject, TrialEnvironment, TrialMetric,
    TrialPlan, TryError,
};
use ticktax_trial::{Foretold, ForetoldError, judge, read_prediction};

use crate::arguments::{
    StartArguments, TRY_START, TRY_WATCHDOG, TrialArguments, WatchdogArguments,
};
use crate::failure::{FAILED_CONDITION, Failure};
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Extent, Progress};
use crate::state;
use crate::terminal::{Terminal, require_writable};

/// Default number of blocks.
const BLOCKS: u64 = 10;
/// Default number of blocks of a trial that stops when it is certain.
const MOST_BLOCKS: u64 = 50;
/// Number of looks of a trial that stops when it is certain.
const LOOKS: u64 = 5;
/// Default length of a run that watches a process.
const RUN_LENGTH: Nanos = Nanos::from_secs(5);

pub(crate) fn run(typed: &TrialArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let conditions = conditions(typed)?;
    let prepared = Prepared::check(plan(typed)?)?;
    let metrics = prepared.metrics();
    for condition in &conditions {
        let checked = condition.check(&metrics);
        checked.map_err(|error| Failure::Arguments(error.to_string()))?;
    }
    let predicted = typed.predicted.as_deref().map(|file| {
        let prediction = read_prediction(file).map_err(|error| invalid_prediction(file, &error))?;
        Ok::<_, Failure>((file, prediction))
    });
    let predicted = predicted.transpose()?;
    let names: Vec<&str> = metrics.iter().map(|metric| &*metric.id).collect();
    let predicted_rows = predicted.as_ref().map(|(file, prediction)| {
        let rows = Foretold::new(prediction, prepared.arms(), &names);
        rows.map_err(|error| invalid_prediction(file, &error))
    });
    let predicted_rows = predicted_rows.transpose()?;
    if let Some(output) = &typed.output {
        require_writable(output)?;
    }
    let html = output::begin_page(typed.html.as_deref())?;
    let journal = state::knob_journal(typed.journal.as_ref())?;
    let journal = std::path::absolute(&journal).unwrap_or(journal);
    let interrupt = Interrupt::listen()?;
    let bar = terminal.progress(Extent::Runs(prepared.runs()), String::new());
    let by = format!("ticktax try (PID {})", std::process::id());
    let (mut runner, undone) = prepared.begin(environment(typed, &journal, &by)?)?;
    report_undo(&undone, terminal);
    let ended = drive(&mut runner, &interrupt, &bar, terminal);
    bar.done();
    let trial = runner.trial();
    let undone = runner.end();
    let signal = match ended {
        Ok(signal) => signal,
        Err(error) => {
            report_incomplete(&undone, terminal);
            return Err(error.into());
        }
    };
    let complete = undone.is_complete();
    let mut judged = judge(trial, &conditions, env!("CARGO_PKG_VERSION"));
    if let Some(predicted_rows) = predicted_rows {
        predicted_rows.put_beside(&mut judged);
    }
    let mut fails = false;
    if let Experiment::Trial(record) = &mut judged.experiment {
        record.restored = undone.settings;
        let mut answers = record.fail_if.iter();
        fails = answers.any(|answer| answer.outcome == Outcome::Holds);
    }
    let terminal = terminal.viewing(&typed.page);
    let output = Output::new(typed.format, typed.output.as_deref());
    output::put(&judged.into(), html, output, &terminal)?;
    Ok(match (complete, signal) {
        (false, _) => ExitCode::FAILURE,
        (true, Some(signal)) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
        (true, None) if fails => ExitCode::from(FAILED_CONDITION),
        (true, None) => ExitCode::SUCCESS,
    })
}

fn invalid_prediction(file: &Path, error: &ForetoldError) -> Failure {
    Failure::Arguments(format!(
        "cannot use --predicted {}: {error}",
        file.display()
    ))
}

fn conditions(typed: &TrialArguments) -> Result<Vec<FailIf>, Failure> {
    let parsed = typed.fail_if.iter().map(|text| FailIf::parse(text));
    let parsed: Result<_, _> = parsed.collect();
    parsed.map_err(|error| Failure::Arguments(error.to_string()))
}

fn plan(typed: &TrialArguments) -> Result<TrialPlan, Failure> {
    let assignments: Result<Vec<Assignment>, TryError> = typed
        .settings
        .iter()
        .map(|text| Assignment::parse(text))
        .collect();
    let subject = if let Some(pid) = typed.pid {
        Subject::Process {
            pid: pid.0,
            each: typed.each.map_or(RUN_LENGTH, |each| each.0),
        }
    } else {
        let commands = typed.command.split(|word| word == "--vs");
        Subject::Commands(commands.map(<[OsString]>::to_vec).collect())
    };
    let mut metrics = match (&*typed.metrics, &subject) {
        ([], Subject::Commands(_)) => vec![TrialMetric::Time],
        ([], Subject::Process { .. }) => vec![TrialMetric::Wait, TrialMetric::P99],
        (metrics, _) => metrics.to_vec(),
    };
    let mut resources = Vec::new();
    if matches!(&subject, Subject::Commands(commands) if commands.len() > 1) {
        resources.extend(TrialMetric::COUNTED);
        if geteuid().is_root() && !typed.no_audit {
            resources.extend(TrialMetric::AUDITED);
        }
    }
    resources.retain(|resource| !metrics.contains(resource));
    let mut seen = Vec::new();
    metrics.retain(|metric| {
        let is_new = !seen.contains(metric);
        seen.push(*metric);
        is_new
    });
    Ok(TrialPlan {
        assignments: assignments?,
        named: Named {
            cpus: typed.cpu.clone(),
            irq: typed.irq,
            disk: typed.disk.clone(),
        },
        subject,
        before: typed.before.clone(),
        metrics,
        resources,
        blocks: typed.blocks.unwrap_or(if typed.stop.until_certain {
            MOST_BLOCKS
        } else {
            BLOCKS
        }),
        looks: if typed.stop.until_certain { LOOKS } else { 1 },
        fail_if: conditions(typed)?,
        max_time: typed.stop.max_time.map(|time| time.0),
        warm_ups: typed.warm_ups,
        noise_runs: typed.noise_runs,
        seed: typed.seed.unwrap_or_else(drawn_seed),
        settle: typed.settle,
        difference: typed.difference,
        consent: if typed.yes {
            Consent::Given
        } else {
            Consent::Withheld
        },
        search: env::var_os("PATH"),
    })
}

/// Returns a random seed that is short enough to type.
pub(crate) fn drawn_seed() -> u64 {
    RandomState::new().hash_one(0) >> 32
}

/// Describes the processes that the trial starts. Both the watchdog and the process that becomes
/// the command run ticktax's own binary.
fn environment<'a>(
    typed: &TrialArguments,
    journal: &'a Path,
    by: &'a str,
) -> Result<TrialEnvironment<'a>, Failure> {
    let own = env::current_exe();
    let own = own.map_err(|error| TryError::Start {
        command: "ticktax".to_owned(),
        why: format!("its executable was not found: {}", error.kind()),
    })?;
    let mut watchdog = Command::new(&own);
    watchdog.arg(TRY_WATCHDOG).arg(journal);
    let mut arguments = vec![TRY_START.into()];
    if let Some(limit) = open_files::limit_at_start() {
        arguments.push(format!("--open-files={limit}").into());
    }
    Ok(TrialEnvironment {
        journal,
        by,
        watchdog,
        starter: Starter {
            program: own,
            arguments,
            show_output: typed.show_output,
        },
    })
}

/// Makes all runs of the trial. Returns the signal that ended the trial early, or `None` if all
/// runs were made.
fn drive(
    runner: &mut Runner,
    interrupt: &Interrupt,
    bar: &Progress,
    terminal: &Terminal,
) -> Result<Option<i32>, TryError> {
    let mut has_announced = false;
    loop {
        match runner.step(&|| interrupt.signal())? {
            Stepped::Next(RunPurpose::Measured) if !has_announced => {
                has_announced = true;
                announce_resolution(&runner.trial(), bar, terminal);
            }
            Stepped::Next(_) => {}
            Stepped::Over => return Ok(None),
            Stepped::Interrupted(signal) => return Ok(Some(signal)),
        }
        bar.reach(runner.made());
    }
}

/// Announces the smallest difference that the planned number of blocks can resolve. Does nothing if
/// no noise runs were requested.
fn announce_resolution(trial: &Trial, bar: &Progress, terminal: &Terminal) {
    if trial.record.design.noise_runs == 0 {
        return;
    }
    for line in resolution_lines(trial) {
        if bar.is_shown() {
            bar.say(&line);
        } else {
            terminal.remark(&line);
        }
    }
}

/// Formats, for each metric, the smallest difference that the trial can resolve despite the
/// machine's noise.
fn resolution_lines(trial: &Trial) -> Vec<String> {
    let others = trial.arms.len().saturating_sub(1);
    let looks = usize::try_from(trial.record.design.looks).unwrap_or(1);
    let comparisons = others * trial.metrics.len() * looks;
    let metrics = trial.metrics.iter().enumerate();
    metrics
        .map(|(at, metric)| {
            let runs = trial.record.runs.iter();
            let runs = runs.filter(|run| run.purpose == RunPurpose::Noise && run.succeeded);
            let values = runs.filter_map(|run| run.values.get(at).copied().flatten());
            let values: Vec<f64> = values.collect();
            let blocks = trial.record.design.blocks;
            match detectable(&values, blocks, comparisons) {
                Some(_) if blocks < fewest_blocks(comparisons) => format!(
                    "{}: {blocks} blocks cannot resolve any difference: use --blocks {} or more",
                    metric.id,
                    fewest_blocks(comparisons)
                ),
                Some(found) => resolution_line(&metric.id, metric.unit, found, blocks),
                None => format!(
                    "{}: the machine's noise is unknown: use --noise-runs 6 or more",
                    metric.id
                ),
            }
        })
        .collect()
}

fn resolution_line(metric: &str, unit: Unit, found: Detectable, blocks: u64) -> String {
    let size = |value: f64| match (found.scale, unit) {
        (Scale::Relative, _) => format!("{:.2} %", 100.0 * value),
        (Scale::Absolute, Unit::Share) => format!("{:.2} pp", 100.0 * value),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "times are whole nanoseconds"
        )]
        (Scale::Absolute, Unit::Ns) => Nanos(value.round() as i64).to_string(),
        (Scale::Absolute, _) => format!("{value:.3}"),
    };
    let Some(effect) = found.effect else {
        return format!("{metric}: A is identical in all noise runs, so the resolution is unknown");
    };
    format!(
        "{metric}: A differs from itself by {} per block; {blocks} blocks resolve {}",
        size(found.noise),
        size(effect)
    )
}

/// Reports that a killed trial left settings changed or the journal damaged. Prints nothing if it
/// left neither.
fn report_undo(undone: &UndoStatement, terminal: &Terminal) {
    let is_cut = undone.damaged_copy.is_some();
    if !undone.settings.is_empty() || !undone.is_certain() || is_cut {
        let page = render(&undone.clone().into(), Format::default(), &terminal.style());
        terminal.remark(page.trim_end());
    }
}

fn report_incomplete(undone: &UndoStatement, terminal: &Terminal) {
    if !undone.is_complete() {
        report_undo(undone, terminal);
    }
}

/// Waits until the trial's settings are in place, and then replaces this process with the command
/// under test.
pub(crate) fn start(typed: &StartArguments) -> Result<ExitCode, Failure> {
    let Some((program, arguments)) = typed.command.split_first() else {
        return Err(Failure::Arguments(
            "no command: give one after `--`".to_owned(),
        ));
    };
    let wait_for_parent = || -> io::Result<()> {
        let mut parent = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        parent.write_all(&[1])?;
        parent.read_exact(&mut [0])
    };
    if wait_for_parent().is_err() {
        // Do not start the program if the parent process has exited or given up.
        return Ok(ExitCode::FAILURE);
    }
    if let Some(limit) = typed.open_files {
        open_files::lower_to(limit);
    }
    let error = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .exec();
    Err(Failure::Observe(ObserveError::Command {
        command: program.to_string_lossy().into_owned(),
        kind: error.kind(),
    }))
}

/// Runs as a trial's watchdog: waits until the `try` process that started it exits, and then
/// restores the settings that are still changed.
pub(crate) fn stand_by(
    typed: &WatchdogArguments,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    // Start a new session, so that signals sent to the terminal or to the process group of `try` do
    // not reach the watchdog.
    let detached = nix::unistd::setsid().map_err(|errno| io::Error::from(errno).kind());
    let ready = detached.and_then(|_| {
        // Leave the current directory, so that its file system can be unmounted.
        let _ = env::set_current_dir("/");
        let mut output = io::stdout();
        let written = output.write_all(b"\n").and_then(|()| output.flush());
        written.map_err(|error| error.kind())
    });
    ready.map_err(|kind| KnobError::Watchdog {
        why: kind.to_string(),
    })?;
    match ticktax_knobs::stand_by(io::stdin(), &System::default(), &typed.journal) {
        // Another ticktax process has locked the journal. It restored everything when it started.
        Err(KnobError::Busy { .. }) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
        Ok(undone) => {
            report_undo(&undone, terminal);
            Ok(ExitCode::SUCCESS)
        }
    }
}
