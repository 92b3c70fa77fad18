//! The work of a prediction: from a recording, or from a scenario.

use std::fs;
use std::io;

use ticktax_analysis::workload::{Asked, Recorded, SMALL};
use ticktax_analysis::{Auditor, WorkloadReader, figures, of_frames};
use ticktax_experiment::whatif::{self, Load};
use ticktax_model::machine::Machine;
use ticktax_model::prediction::{Figure, Measure, Origin, PredictionRow};
use ticktax_model::recording::{Header, RecordingReader, RowSink, World};
use ticktax_model::workload::{InterruptLoad, ThreadLoad, Workload};
use ticktax_model::{Nanos, SourceTable};
use ticktax_sim::scenario;

use crate::arguments::{Rate, SimArguments};
use crate::failure::Failure;

/// Threads and interrupts that are named.
const NAMED: usize = 4;

/// What a prediction is made from.
pub(super) struct Loaded {
    pub(super) load: Load,
    /// The machine of a recording.
    pub(super) machine: Option<Machine>,
    pub(super) program: Option<String>,
    /// Whether there are frames that can be paced in another way.
    pub(super) is_paced: bool,
    /// Whether the period of the frames is what they were asked for.
    pub(super) asked_for: bool,
    pub(super) length: Nanos,
    /// What was measured.
    pub(super) row: Option<PredictionRow>,
    pub(super) taken: Vec<String>,
    pub(super) assumed: Vec<String>,
}

/// Reads the file that was named: a scenario by its ending, else a recording.
pub(super) fn load(typed: &SimArguments) -> Result<Loaded, Failure> {
    let ending = typed.load.extension();
    if ending.is_some_and(|ending| ending.eq_ignore_ascii_case("toml")) {
        scenario(typed)
    } else {
        recording(typed)
    }
}

fn scenario(typed: &SimArguments) -> Result<Loaded, Failure> {
    let file = typed.load.display().to_string();
    let text = fs::read_to_string(&typed.load).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "no such file; check the spelling",
            io::ErrorKind::PermissionDenied => "it may not be read; check its mode",
            io::ErrorKind::InvalidData => "it is not UTF-8 text",
            io::ErrorKind::IsADirectory => "it is a folder; name a file in it",
            _ => "the system refuses to read it",
        };
        Failure::Prediction(format!("cannot read the scenario {file}: {why}"))
    })?;
    let setup =
        scenario::parse(&file, &text).map_err(|wrong| Failure::Prediction(wrong.to_string()))?;
    if typed.asked.is_some() {
        return Err(Failure::Arguments(
            "--asked is for recordings: a scenario says when its frames are due".to_owned(),
        ));
    }
    let task = whatif::subject(&setup, typed.program.as_deref());
    let name = task.map(|task| setup.tasks[task.index()].name.clone());
    if let (Some(wanted), None) = (&typed.program, task) {
        let names: Vec<&str> = setup.tasks.iter().map(|task| &*task.name).collect();
        let names = names.join(", ");
        let why = format!("{file}: no task `{wanted}`; known: {names}");
        return Err(Failure::Prediction(why));
    }
    Ok(Loaded {
        length: setup.length,
        taken: vec![format!(
            "{} tasks and {} interrupts, as the scenario says; each run has another seed",
            setup.tasks.len(),
            setup.sources.len()
        )],
        load: Load::Scenario(Box::new(setup), task),
        machine: None,
        program: name,
        is_paced: false,
        asked_for: true,
        row: None,
        assumed: Vec::new(),
    })
}

/// Hands each row to both.
struct Both(Auditor, WorkloadReader);

impl RowSink for Both {
    fn row(&mut self, sources: &SourceTable, row: &ticktax_model::recording::Row) {
        self.0.row(sources, row);
        self.1.row(sources, row);
    }
}

fn recording(typed: &SimArguments) -> Result<Loaded, Failure> {
    let mut file = RecordingReader::open(&typed.load)?;
    let auditor = Auditor::new(&file.header().machine).without_beats();
    let mut both = Both(auditor, WorkloadReader::new());
    let sources = file.replay(&mut |sources, row| both.row(sources, row))?;
    let header = file.header();
    let machine = header.machine.clone();
    let hz = machine.hz_configured.filter(|&hz| hz > 0).unwrap_or(100);
    let asked = Asked {
        program: typed.program.clone(),
        period: typed.asked.map(Rate::period),
    };
    let tick = Nanos(1_000_000_000 / i64::from(hz));
    let recorded = both.1.finish(header, &sources, &asked, tick);
    let recorded = recorded.map_err(|why| {
        let file = typed.load.display();
        Failure::Prediction(format!("cannot take the work from {file}: {why}"))
    })?;
    let row = row(both.0, header, &sources, &recorded);
    let work = recorded.workload;
    let (modelled, assumed_of_machine) = whatif::machine(&machine, &work);
    let mut assumed = work.assumed.clone();
    assumed.extend(assumed_of_machine);
    assumed.extend(standing(&work));
    let mut taken = taken(&work);
    taken.push(whatif::in_words(&modelled));
    Ok(Loaded {
        length: work.elapsed,
        program: work.paced.as_ref().map(|paced| paced.program.clone()),
        is_paced: work.paced.is_some(),
        asked_for: typed.asked.is_some(),
        row: Some(row),
        taken,
        assumed,
        load: Load::Recorded(Box::new(work), Box::new(modelled)),
        machine: Some(machine),
    })
}

/// What was measured.
fn row(
    mut auditor: Auditor,
    header: &Header,
    sources: &SourceTable,
    recorded: &Recorded,
) -> PredictionRow {
    let paced = recorded.workload.paced.as_ref();
    let pid = paced.map(|paced| paced.pid);
    if let Some(pid) = pid {
        auditor.list_program(pid);
    }
    let mut figures = figures(&auditor.finish(header, sources, 1), pid);
    let elapsed = recorded.workload.elapsed;
    figures.extend(recorded.wakeups.map(|count| Figure {
        measure: Measure::Wakeups,
        value: count as f64 / elapsed.as_secs_f64(),
        interval: None,
    }));
    if let Some(frames) = &recorded.figures {
        figures.extend(of_frames(frames, elapsed));
    }
    PredictionRow {
        origin: match header.world {
            World::Simulated => Origin::Simulated,
            World::Live | World::Lab => Origin::Measured,
        },
        settings: Vec::new(),
        figures,
    }
}

/// What was taken from a recording, in words.
fn taken(work: &Workload) -> Vec<String> {
    let mut taken = Vec::new();
    if let Some(paced) = &work.paced {
        let mut lates: Vec<Nanos> = paced.frames.iter().filter_map(|frame| frame.late).collect();
        lates.sort_unstable();
        let works: Nanos = paced.frames.iter().map(|frame| frame.work).sum();
        let count = i64::try_from(paced.frames.len()).unwrap_or(i64::MAX).max(1);
        taken.push(format!(
            "{} frames of {} ({}, {}): due every {} by the rule {}, with {} of work in the mean, \
             and woken {} late in the middle",
            paced.frames.len(),
            paced.thread,
            paced.program,
            paced.pid,
            paced.period,
            paced.rule,
            Nanos(works.0 / count),
            lates.get(lates.len() / 2).copied().unwrap_or_default(),
        ));
    }
    let ran: Nanos = work.threads.iter().map(ThreadLoad::work).sum();
    let names: Vec<&str> = work
        .threads
        .iter()
        .take(NAMED)
        .map(|it| &*it.name)
        .collect();
    taken.push(format!(
        "the bursts and waits of {} other threads, {ran} of work in {}: {}, …; those with less \
         than {} % of a CPU are one a CPU",
        work.threads.len(),
        work.elapsed,
        names.join(", "),
        SMALL * 100.0,
    ));
    let count: usize = work.interrupts.iter().map(|load| load.costs.len()).sum();
    let time: Nanos = work.interrupts.iter().map(InterruptLoad::time).sum();
    let mut names: Vec<&str> = Vec::new();
    for load in &work.interrupts {
        if !names.contains(&&*load.name) && names.len() < NAMED {
            names.push(&load.name);
        }
    }
    taken.push(format!(
        "{count} interrupts but for the timer's, {time} with their softirqs: {}, …",
        names.join(", ")
    ));
    taken.push(format!(
        "what a tick costs, {} and {} of softirqs behind it in the mean of {}; {} for another \
         interrupt of the timer",
        work.tick.interrupt, work.tick.softirqs, work.tick.count, work.timer
    ));
    taken
}

/// What is assumed of every recording.
fn standing(work: &Workload) -> Vec<String> {
    let mut assumed = vec![
        "everybody would have the same work to do, and wait as long for what is outside".to_owned(),
        "of a thread that was not followed: it slept where its CPU idled between two of its runs, \
         and was ready to run otherwise"
            .to_owned(),
        "a wait that a timer ended was asked for as long as it took; every other is as long, \
         whatever the kernel"
            .to_owned(),
        "interrupts come at the recorded rate and at any time; each tick costs the same, its \
         softirqs included, however many there are"
            .to_owned(),
    ];
    if work.paced.is_some() {
        assumed.insert(
            1,
            "of the loop: its earliest tenth of wakeups was in time, and what the others were \
             later, as by a hypervisor, comes on top of any timer (--asked says better when its \
             frames were due)"
                .to_owned(),
        );
    }
    assumed
}
