//! `ticktax sim`: predicts how a recorded machine or a scenario behaves under other settings.

use std::path::Path;
use std::process::ExitCode;

use ticktax_analysis::workload::Asked;
use ticktax_model::Nanos;
use ticktax_model::pace::FrameRate;
use ticktax_predict::whatif::{self, LoadError, Plan, Prediction, WhatIfError};
use ticktax_store::recording::RecordingWriter;

use crate::arguments::SimArguments;
use crate::budget::Budget;
use crate::failure::{FAILED_CONTROL, Failure};
use crate::output::{self, Output};
use crate::progress::Extent;
use crate::terminal::{self, Terminal};

/// Maximum length of a load to simulate if the user does not give `--for`. Each second of the load
/// is simulated dozens of times.
const LONGEST: Nanos = Nanos::from_secs(3_600);

pub(crate) fn run(typed: &SimArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    // Check the output file now, so that a long run is not wasted because it cannot be written.
    if let Some(output) = &typed.output {
        terminal::require_writable(output)?;
    }
    let html = output::begin_page(typed.html.as_deref())?;
    let file = typed
        .save
        .as_ref()
        .map(RecordingWriter::create)
        .transpose()?;
    let asked = Asked {
        program: typed.program.clone(),
        period: typed.asked.map(FrameRate::period),
    };
    let _budget = Budget::begin_to_predict(&typed.load, terminal);
    let loaded = whatif::load(&typed.load, &asked).map_err(not_loaded)?;
    let plan = plan(typed);
    let length = plan.length.unwrap_or(loaded.length);
    if plan.length.is_none() && length > LONGEST {
        return Err(Failure::Arguments(format!(
            "{} lasts {length}, which takes a long time to simulate: choose a shorter time with \
             --for",
            loaded.file
        )));
    }
    let progress = terminal.progress(Extent::Time(length), "Predicting");
    let predicted = plan.predict(loaded, &mut |done, all| {
        let share = done as f64 / all.max(1) as f64;
        #[expect(clippy::cast_possible_truncation, reason = "a fraction of a duration")]
        progress.at(Nanos((length.0 as f64 * share) as i64));
    });
    progress.done();
    let Prediction { comparison, last } = predicted.map_err(|error| refused(&error))?;
    let mut control = comparison.effects.iter();
    let failed = control.any(|effect| effect.contrast.verdict.differs());
    let output = Output::new(typed.format, typed.output.as_deref());
    output::put(&comparison.into(), html, output, terminal)?;
    if let (Some(file), Some(path)) = (file, &typed.save) {
        save(last, file, path, terminal)?;
    }
    Ok(if failed {
        ExitCode::from(FAILED_CONTROL)
    } else {
        ExitCode::SUCCESS
    })
}

fn plan(typed: &SimArguments) -> Plan {
    Plan {
        vary: typed.vary.clone(),
        runs: typed.resample,
        seed: typed.seed,
        length: typed.length.map(|length| length.0),
        force: typed.force,
    }
}

/// Simulates the last arm's first run again, and saves its rows.
fn save(
    (setup, task): (ticktax_sim::Setup, Option<ticktax_sim::TaskId>),
    mut file: RecordingWriter,
    path: &Path,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let header = whatif::rows(&setup, task, &mut file)
        .map_err(|error| Failure::Prediction(error.to_string()))?;
    file.finish(&header)?;
    terminal.remark(&format!(
        "Saved as {0}; print what the model did with `ticktax report {0}`.",
        path.display()
    ));
    Ok(())
}

fn not_loaded(error: LoadError) -> Failure {
    match error {
        LoadError::Recording(error) => error.into(),
        LoadError::Import(error) => error.into(),
        LoadError::Asked => Failure::Arguments(error.to_string()),
        LoadError::NoWorkload { .. }
        | LoadError::Text(_)
        | LoadError::Scenario(_)
        | LoadError::NoTask { .. } => Failure::Prediction(error.to_string()),
    }
}

/// Converts an error from the prediction to a failure. Errors in the arguments and errors in the
/// file lead to different exit codes.
fn refused(error: &WhatIfError) -> Failure {
    match error {
        WhatIfError::Vary(_) | WhatIfError::Arm(_) | WhatIfError::Pacing(_) => {
            Failure::Arguments(error.to_string())
        }
        WhatIfError::Setup(_) => Failure::Prediction(error.to_string()),
    }
}
