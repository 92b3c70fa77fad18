//! Loads the work for a prediction from a recording or a scenario.

use std::path::Path;

use ticktax_analysis::workload::{Asked, NoWorkload, Recorded};
use ticktax_analysis::{Auditor, figures, of_frames};
use ticktax_import::ImportError;
use ticktax_model::comparison::{Arm, Measure, Origin};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine as Facts;
use ticktax_model::recording::{Header, RowSink, World};
use ticktax_model::workload::Workload;
use ticktax_model::{Nanos, SourceTable};
use ticktax_sim::scenario::{self, ScenarioError};
use ticktax_sim::{Machine, Setup, TaskId};
use ticktax_store::recording::RecordingError;

use super::{machine, words};
use ticktax_store::text::{self, TextError};

/// Why the work in a file cannot be used. The message is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The file cannot be opened.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The recording contains no work.
    #[error("cannot simulate the load in {file}: {why}")]
    NoWorkload {
        /// The recording.
        file: String,
        /// Which data the recording lacks.
        why: NoWorkload,
    },
    /// The scenario's file cannot be read.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The scenario has no task with the name that the user gave.
    #[error("{file}: no task `{wanted}`; choose from {tasks}")]
    NoTask {
        /// The scenario.
        file: String,
        /// Name that the user gave.
        wanted: String,
        /// Names of the scenario's tasks, separated by commas.
        tasks: String,
    },
    /// The user gave a period, but the file is a scenario.
    #[error(
        "--asked applies only to recordings, because a scenario defines its own frame rate: omit it"
    )]
    Asked,
}

/// The work that a prediction simulates.
#[derive(Clone, Debug)]
pub enum Load {
    /// A recording's work, and a modelled machine with the recorded settings.
    Recorded(Box<Workload>, Box<Machine>),
    /// A scenario, and the task to observe.
    Scenario(Box<Setup>, Option<TaskId>),
}

/// The input of a prediction.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Name of the file.
    pub file: String,
    /// The work.
    pub load: Load,
    /// The machine on which the recording was made. `None` for a scenario.
    pub machine: Option<Facts>,
    /// Name of the program or task that is observed.
    pub program: Option<String>,
    /// Whether the rate, rule and sleep method of the program's frames can be changed.
    pub is_paced: bool,
    /// Whether the user gave the frames' period. If not, it was estimated from the recording.
    pub asked_for: bool,
    /// Length of the recording or scenario.
    pub length: Nanos,
    /// The figures in the recording itself, or `None` for a scenario.
    pub row: Option<(Arm, Vec<(Measure, f64)>)>,
    /// Descriptions of the work and the settings taken from the file.
    pub taken: Vec<String>,
    /// Descriptions of the assumptions that were made.
    pub assumed: Vec<String>,
}

/// Loads the work in `file`. If its name ends in `toml`, the file is read as a scenario, otherwise
/// as a recording.
///
/// # Errors
/// Returns an error if the file is unreadable or contains no work.
pub fn load(file: &Path, asked: &Asked) -> Result<Loaded, LoadError> {
    let ending = file.extension();
    if ending.is_some_and(|ending| ending.eq_ignore_ascii_case("toml")) {
        from_scenario(file, asked)
    } else {
        from_recording(file, asked)
    }
}

fn from_scenario(path: &Path, asked: &Asked) -> Result<Loaded, LoadError> {
    let file = path.display().to_string();
    let setup = scenario::parse(&file, &text::read(path, "scenario")?)?;
    if asked.period.is_some() {
        return Err(LoadError::Asked);
    }
    let task = super::subject(&setup, asked.program.as_deref());
    if let (Some(wanted), None) = (&asked.program, task) {
        let names: Vec<&str> = setup.tasks.iter().map(|task| &*task.name).collect();
        return Err(LoadError::NoTask {
            file,
            wanted: wanted.clone(),
            tasks: names.join(", "),
        });
    }
    Ok(Loaded {
        file,
        length: setup.length,
        taken: vec![words::of_scenario(&setup)],
        program: task.map(|task| setup.tasks[task.index()].name.clone()),
        load: Load::Scenario(Box::new(setup), task),
        machine: None,
        is_paced: false,
        asked_for: true,
        row: None,
        assumed: Vec::new(),
    })
}

fn from_recording(path: &Path, asked: &Asked) -> Result<Loaded, LoadError> {
    let mut file = ticktax_import::open(path)?;
    let mut auditor = Auditor::new(&file.header().machine)
        .without_beats()
        .with_work();
    let sources = file.replay(&mut |sources, row| auditor.row(sources, row))?;
    let header = file.header();
    let facts = header.machine.clone();
    let recorded = auditor.work(header, &sources, asked);
    let recorded = recorded.map_err(|why| LoadError::NoWorkload {
        file: path.display().to_string(),
        why,
    })?;
    let row = row(auditor, header, &sources, &recorded);
    let work = recorded.workload;
    let (modelled, assumed_of_machine) = machine(&facts, &work);
    let mut assumed = work.assumed.clone();
    let unverified = Limitation::NotVerified;
    if header.coverage.limitations.contains(&unverified) {
        assumed.push(
            "the file is intact; this could not be verified, because it has no checksums"
                .to_owned(),
        );
    }
    assumed.extend(assumed_of_machine);
    assumed.extend(words::standing(&work));
    Ok(Loaded {
        file: path.display().to_string(),
        length: work.elapsed,
        program: work.paced.as_ref().map(|paced| paced.program.clone()),
        is_paced: work.paced.is_some(),
        asked_for: asked.period.is_some(),
        row: Some(row),
        taken: words::taken(&work, &modelled),
        assumed,
        load: Load::Recorded(Box::new(work), Box::new(modelled)),
        machine: Some(facts),
    })
}

/// Returns the figures in the recording itself.
fn row(
    mut auditor: Auditor,
    header: &Header,
    sources: &SourceTable,
    recorded: &Recorded,
) -> (Arm, Vec<(Measure, f64)>) {
    let paced = recorded.workload.paced.as_ref();
    let pid = paced.map(|paced| paced.pid);
    if let Some(pid) = pid {
        auditor.list_program(pid);
    }
    let mut figures = figures(&auditor.finish(header, sources, 1), pid);
    let elapsed = recorded.workload.elapsed;
    let rate = |count: u64| (Measure::Wakeups, count as f64 / elapsed.as_secs_f64());
    figures.extend(recorded.wakeups.map(rate));
    if let Some(frames) = &recorded.figures {
        figures.extend(of_frames(frames, elapsed));
    }
    let origin = match header.world {
        World::Simulated => Origin::Simulated,
        World::Live | World::Lab => Origin::Measured,
    };
    (Arm::new(origin, Vec::new()), figures)
}
