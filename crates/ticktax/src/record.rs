//! `ticktax record`: watches without end, and keeps the seconds around what lasted too long.

mod asks;
mod journal;
mod keeper;

use std::process::ExitCode;
use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_observe::{Recorder, RecorderEvent, RecorderPlan, RecorderStarted, RecorderStatus};
use ticktax_probes::clock;
use ticktax_report::not_kept_line;

pub(crate) use asks::Asks;
pub(crate) use keeper::Keeper;

use crate::arguments::RecordArguments;
use crate::failure::Failure;
use crate::incidents::folder;
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;

/// The recorder is looked at so often where nothing happens. What happens wakes it.
const IDLE: Duration = Duration::from_hours(1);

pub(crate) fn run(typed: &RecordArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let folder = folder(&typed.folder)?;
    let interrupt = Interrupt::listen()?;
    let mut keeper = Keeper::open(&folder, typed.budget.budget(), typed.journal, terminal)?;
    let plan = RecorderPlan {
        cpus: typed.cpus.clone(),
        triggers: typed.triggers.clone(),
        ..RecorderPlan::default()
    };
    let started = Recorder::start(plan).map_err(Failure::from);
    let recorded = started.and_then(|mut recorder| {
        let asks = Asks::listen(&folder, recorder.waker())?;
        let until = typed.length.map(|length| clock::now() + length.0);
        Ok(record(
            &mut recorder,
            (&asks, &interrupt, until),
            &mut keeper,
            terminal,
        ))
    });
    // Whatever ended it, the index says when.
    let incidents = keeper.count();
    let lost = keeper.close(terminal);
    let (elapsed, status) = recorded?;
    terminal.remark(&summary(incidents, elapsed, &status));
    for it in &lost {
        terminal.remark(&format!("Not kept: {}.", not_kept_line(it)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Records until somebody ends it: for how long, and what the recorder came to.
fn record(
    recorder: &mut Recorder,
    (asks, interrupt, until): (&Asks, &Interrupt, Option<Nanos>),
    keeper: &mut Keeper,
    terminal: &Terminal,
) -> (Nanos, RecorderStatus) {
    let begin = clock::now();
    // Loading took some, too.
    let used_before = recorder.status().cpu;
    loop {
        let left = until.map(|until| (until - clock::now()).max(Nanos::ZERO));
        let left = left.map_or(IDLE, |left| {
            Duration::from_nanos(left.0.unsigned_abs()).min(IDLE)
        });
        match recorder.next_event(left) {
            RecorderEvent::Started(started) => terminal.remark(&begun(started, keeper)),
            RecorderEvent::Sums(_) | RecorderEvent::Idle => {}
            RecorderEvent::Frozen(frozen) => keeper.take(&frozen, terminal),
            RecorderEvent::Ended(status) => {
                keeper.suppressed(status.suppressed, terminal);
                let status = RecorderStatus {
                    cpu: status.cpu - used_before,
                    ..status
                };
                return (clock::now() - begin, status);
            }
        }
        for ask in asks.take() {
            recorder.trigger(ask.kind, &ask.words);
        }
        keeper.lose_marks(asks.refused(), terminal);
        if interrupt.signal().is_some() || until.is_some_and(|until| clock::now() >= until) {
            recorder.stop();
        }
    }
}

/// What is watched, and where it is kept.
fn begun(started: &RecorderStarted, keeper: &Keeper) -> String {
    format!(
        "Recording CPUs {} into {}; Ctrl-C ends it.",
        started.cpus,
        keeper.folder().display()
    )
}

/// How it went.
fn summary(incidents: u64, elapsed: Nanos, status: &RecorderStatus) -> String {
    let plural = if incidents == 1 { "" } else { "s" };
    let share = status.cpu.share_of(elapsed) * 100.0;
    let mib = status.memory_bytes >> 20;
    format!(
        "{incidents} incident{plural} in {elapsed}; {} events, {share:.2} % of a CPU and {mib} MiB to watch them.",
        status.events
    )
}
