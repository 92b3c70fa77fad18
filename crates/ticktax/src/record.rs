//! `ticktax record`: watches without end, and keeps the seconds around what lasted too long.

mod asks;
mod frames;
mod journal;
mod keeper;

use std::process::ExitCode;
use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_model::incident::IncidentEntry;
use ticktax_observe::{
    GapProbe, PercentileStatus, Recorder, RecorderEvent, RecorderPlan, RecorderStarted,
    RecorderStatus, SumsWindow,
};
use ticktax_probes::clock;
use ticktax_report::not_kept_line;

pub(crate) use asks::Asks;
pub(crate) use keeper::Keeper;

use frames::Frames;

use crate::arguments::RecordArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::state::StateFolder;
use crate::terminal::Terminal;

/// The recorder is looked at so often where nothing happens. What happens wakes it.
const IDLE: Duration = Duration::from_hours(1);

pub(crate) fn run(typed: &RecordArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let folder = match &typed.dir {
        Some(dir) => dir.clone(),
        None => StateFolder::Incidents.path("--dir")?,
    };
    let interrupt = Interrupt::listen()?;
    let mut keeper = Keeper::open(&folder, typed.budget.budget(), typed.journal, terminal)?;
    let plan = typed.ring.applied_to(RecorderPlan {
        cpus: typed.cpus.clone(),
        triggers: typed.triggers.clone(),
        probe: typed.probe,
        ring_grows: true,
        ..RecorderPlan::default()
    });
    let started = Recorder::start(plan).map_err(Failure::from);
    let recorded = started.and_then(|mut recorder| {
        let asks = Asks::listen(&folder, recorder.waker())?;
        let until = typed.length.map(|length| clock::now() + length.0);
        let ends = Ends {
            interrupt: &interrupt,
            until,
            with_programs: true,
        };
        let nobody = &mut |_: Step<'_>, _: &Recorder, _: &Keeper| {};
        Ok(drive(
            &mut recorder,
            (&asks, &ends),
            (&mut keeper, terminal),
            nobody,
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

/// What ends a recorder.
pub(crate) struct Ends<'a> {
    /// A signal asks for it.
    pub(crate) interrupt: &'a Interrupt,
    /// It is so late, on `CLOCK_MONOTONIC`.
    pub(crate) until: Option<Nanos>,
    /// Where nothing is watched but frames of processes, these have ended.
    pub(crate) with_programs: bool,
}

impl Ends<'_> {
    fn are_there(&self, recorder: &Recorder) -> bool {
        self.interrupt.signal().is_some()
            || self.until.is_some_and(|it| clock::now() >= it)
            || (self.with_programs && recorder.has_nobody_left())
    }
}

/// What a caller is told of while a recorder is driven.
pub(crate) enum Step<'a> {
    /// A window of sums is over.
    Sums(&'a SumsWindow),
    /// Incidents were told of. Those are complete of which it is known what became of their recording.
    Kept(&'a [IncidentEntry]),
}

/// Drives a recorder until a signal or the time ends it, and has its windows explained and kept. Returns for how long that was,
/// and what the recorder came to.
pub(crate) fn drive(
    recorder: &mut Recorder,
    (asks, ends): (&Asks, &Ends<'_>),
    (keeper, terminal): (&mut Keeper, &Terminal),
    on_step: &mut dyn FnMut(Step<'_>, &Recorder, &Keeper),
) -> (Nanos, RecorderStatus) {
    let begin = clock::now();
    // Loading took some, too.
    let used_before = recorder.status().cpu;
    let mut learnt = Learnt::new(recorder.percentiles());
    let mut frames = Frames::new();
    loop {
        let left = ends
            .until
            .map(|until| (until - clock::now()).max(Nanos::ZERO));
        let left = left.map_or(IDLE, |left| {
            Duration::from_nanos(left.0.unsigned_abs()).min(IDLE)
        });
        let (mut sums, mut frozen, mut seen) = (None, None, None);
        match recorder.next_event(left) {
            RecorderEvent::Started(started) => {
                keeper.began(started.begin, terminal);
                terminal.remark(&begun(started, keeper));
                for line in probed(started) {
                    terminal.remark(&line);
                }
                learnt.tell(&[], terminal);
            }
            RecorderEvent::Idle => {}
            RecorderEvent::Sums(window) => sums = Some(window),
            RecorderEvent::Frozen(window) => frozen = Some(window),
            RecorderEvent::Program(window) => seen = Some(window),
            RecorderEvent::Ended(status) => {
                keeper.suppressed(status.suppressed, terminal);
                let status = RecorderStatus {
                    cpu: status.cpu - used_before,
                    ..status
                };
                return (clock::now() - begin, status);
            }
        }
        if let Some(seen) = seen {
            recorder.set_rhythm(&seen, &frames::find(&seen));
        }
        frames.tell(recorder, terminal);
        if let Some(sums) = sums {
            learnt.tell(&recorder.percentiles(), terminal);
            // So what was suppressed is in the index soon, and not at the end alone.
            keeper.suppressed(recorder.status().suppressed, terminal);
            on_step(Step::Sums(&sums), recorder, keeper);
        }
        if let Some(frozen) = frozen {
            keeper.suppressed(recorder.status().suppressed, terminal);
            let complete = keeper.take(&frozen, terminal);
            on_step(Step::Kept(&complete), recorder, keeper);
        }
        for ask in asks.take() {
            recorder.trigger(ask.kind, &ask.words);
        }
        keeper.lose_marks(asks.refused(), terminal);
        if ends.are_there(recorder) {
            keeper.ends();
            recorder.stop();
        }
    }
}

/// What is watched, and where it is kept.
fn begun(started: &RecorderStarted, keeper: &Keeper) -> String {
    format!(
        "Recording {} into {}; Ctrl-C ends it.",
        started.cpus.named(),
        keeper.folder().display()
    )
}

/// What looks for gaps, and what that costs.
fn probed(started: &RecorderStarted) -> Vec<String> {
    if started.probed.is_empty() {
        return Vec::new();
    }
    let what = match started.probe {
        GapProbe::Sleep => "wakes 1000 times a second",
        GapProbe::Spin => "spins whenever no other program runs, so that no CPU idles",
    };
    let each = if started.probed.len() == 1 {
        ""
    } else {
        "each of "
    };
    let cpus = started.probed.named();
    let mut lines = vec![format!(
        "A probe on {each}{cpus} looks for gaps: it {what}."
    )];
    lines.extend(started.probe_refused.as_ref().map(|grant| {
        format!("The probe runs as {grant}: its gaps hold the time of other programs, too.")
    }));
    lines
}

/// Thresholds that are percentiles, as they were last told of.
struct Learnt {
    /// Those that are not known yet.
    unknown: Vec<PercentileStatus>,
    told: bool,
}

impl Learnt {
    fn new(unknown: Vec<PercentileStatus>) -> Self {
        Self {
            unknown,
            told: false,
        }
    }

    /// Says at the begin which are not known, and later which have become known.
    fn tell(&mut self, now: &[PercentileStatus], terminal: &Terminal) {
        if !self.told {
            self.told = true;
            for it in &self.unknown {
                terminal.remark(&format!(
                    "{} does not trigger yet: it takes {} of them to know its percentile.",
                    it.trigger, it.enough
                ));
            }
        }
        for it in now {
            let place = self
                .unknown
                .iter()
                .position(|old| old.trigger == it.trigger);
            if let (Some(place), Some(limit)) = (place, it.limit) {
                self.unknown.remove(place);
                terminal.remark(&format!(
                    "{} triggers from {limit} on now, by {} of the last hour.",
                    it.trigger, it.seen
                ));
            }
        }
    }
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
