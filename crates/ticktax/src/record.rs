//! `ticktax record`: watches the machine until it is stopped, and keeps the seconds around each
//! long delay.

mod asks;
mod frames;
mod journal;
mod keeper;

use std::process::ExitCode;
use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_model::incident::IncidentEntry;
use ticktax_observe::{
    GapProbe, HeadStart, PercentileStatus, Recorder, RecorderEvent, RecorderPlan, RecorderStarted,
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

/// Longest time to wait for an event. Events and signals wake the recorder earlier.
const IDLE: Duration = Duration::from_hours(1);

pub(crate) fn run(
    typed: &RecordArguments,
    head_start: HeadStart,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    let folder = match &typed.dir {
        Some(dir) => dir.clone(),
        None => StateFolder::Incidents.path("--dir")?,
    };
    let interrupt = Interrupt::listen()?;
    let mut keeper = Keeper::open(&folder, typed.budget.budget(), typed.log, terminal)?;
    let plan = typed.ring.applied_to(RecorderPlan {
        cpus: typed.cpus.clone(),
        triggers: typed.triggers.clone(),
        probe: typed.probe,
        ring_grows: true,
        ..RecorderPlan::default()
    });
    let started = Recorder::start_with(plan, head_start).map_err(Failure::from);
    let recorded = started.and_then(|mut recorder| {
        let asks = Asks::listen(&folder, recorder.waker())?;
        let until = typed.length.map(|length| clock::now() + length.0);
        let ends = Ends {
            interrupt: &interrupt,
            until,
            with_programs: true,
        };
        let ignore = &mut |_: RecorderProgress<'_>, _: &Recorder, _: &Keeper| {};
        Ok(drive(
            &mut recorder,
            &asks,
            &ends,
            &mut keeper,
            terminal,
            ignore,
        ))
    });
    // Close the index even after an error, so that it contains when the recording ended.
    let incidents = keeper.count();
    let lost = keeper.close(terminal);
    let (elapsed, status) = recorded?;
    terminal.remark(&summary(incidents, elapsed, &status));
    for not_kept in &lost {
        terminal.remark(&not_kept_line(not_kept));
    }
    Ok(ExitCode::SUCCESS)
}

/// Conditions that end a recorder. Any one of them is enough.
pub(crate) struct Ends<'a> {
    pub(crate) interrupt: &'a Interrupt,
    /// Time at which the recorder ends, on `CLOCK_MONOTONIC`, or `None` for no time limit.
    pub(crate) until: Option<Nanos>,
    /// Whether the recorder ends once all watched programs have exited. This applies only if all
    /// triggers watch programs' frames.
    pub(crate) with_programs: bool,
}

impl Ends<'_> {
    fn are_met(&self, recorder: &Recorder) -> bool {
        self.interrupt.signal().is_some()
            || self.until.is_some_and(|until| clock::now() >= until)
            || (self.with_programs && recorder.has_nobody_left())
    }
}

/// Progress that a running recorder reports to its caller.
pub(crate) enum RecorderProgress<'a> {
    /// A time window has ended with these sums.
    Sums(&'a SumsWindow),
    /// These incidents are complete: their recordings have been saved or dropped.
    Kept(&'a [IncidentEntry]),
}

/// Runs a recorder until one of the conditions in `ends` is met. Explains and keeps the seconds
/// that the recorder saves around each trigger. Returns the elapsed time and the recorder's final
/// status.
pub(crate) fn drive(
    recorder: &mut Recorder,
    asks: &Asks,
    ends: &Ends<'_>,
    keeper: &mut Keeper,
    terminal: &Terminal,
    on_progress: &mut dyn FnMut(RecorderProgress<'_>, &Recorder, &Keeper),
) -> (Nanos, RecorderStatus) {
    let begin = clock::now();
    // Exclude the CPU time used to load the tracer.
    let used_before = recorder.status().cpu;
    let mut thresholds = Thresholds::new(recorder.percentiles());
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
                terminal.remark(&start_line(started, keeper));
                for line in probe_lines(started) {
                    terminal.remark(&line);
                }
                thresholds.tell(&[], terminal);
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
        frames.report(recorder, terminal);
        if let Some(sums) = sums {
            thresholds.tell(&recorder.percentiles(), terminal);
            // Write the number of suppressed triggers to the index now, not just at the end.
            keeper.suppressed(recorder.status().suppressed, terminal);
            on_progress(RecorderProgress::Sums(&sums), recorder, keeper);
        }
        if let Some(frozen) = frozen {
            keeper.suppressed(recorder.status().suppressed, terminal);
            let complete = keeper.take(&frozen, terminal);
            on_progress(RecorderProgress::Kept(&complete), recorder, keeper);
        }
        for ask in asks.take() {
            recorder.trigger(ask.kind, &ask.words);
        }
        keeper.lose_marks(asks.refused(), terminal);
        if ends.are_met(recorder) {
            keeper.ends();
            recorder.stop();
        }
    }
}

fn start_line(started: &RecorderStarted, keeper: &Keeper) -> String {
    format!(
        "Recording {} into {}; press Ctrl-C to stop.",
        started.cpus.named(),
        keeper.folder().display()
    )
}

fn probe_lines(started: &RecorderStarted) -> Vec<String> {
    if started.probed.is_empty() {
        return Vec::new();
    }
    let cost = match started.probe {
        GapProbe::Sleep => "wakes up 1000 times a second",
        GapProbe::Spin => "spins whenever no other program runs, so its CPU never idles",
    };
    let each = if started.probed.len() == 1 {
        ""
    } else {
        "each of "
    };
    let cpus = started.probed.named();
    let mut lines = vec![format!(
        "A probe on {each}{cpus} looks for gaps. It {cost}."
    )];
    lines.extend(started.probe_refused.as_ref().map(|grant| {
        format!("The probe runs as {grant}, so its gaps include the run time of other programs.")
    }));
    lines
}

/// Triggers with a percentile as their threshold. They are announced when the threshold becomes
/// known.
struct Thresholds {
    unknown: Vec<PercentileStatus>,
    has_announced_unknown: bool,
}

impl Thresholds {
    fn new(unknown: Vec<PercentileStatus>) -> Self {
        Self {
            unknown,
            has_announced_unknown: false,
        }
    }

    /// On the first call, announces the triggers that have no threshold yet. Later calls announce
    /// each trigger's threshold once it is known.
    fn tell(&mut self, now: &[PercentileStatus], terminal: &Terminal) {
        if !self.has_announced_unknown {
            self.has_announced_unknown = true;
            for status in &self.unknown {
                terminal.remark(&format!(
                    "{} does not trigger yet: its percentile needs {} delays.",
                    status.trigger, status.enough
                ));
            }
        }
        for status in now {
            let place = self
                .unknown
                .iter()
                .position(|old| old.trigger == status.trigger);
            if let (Some(place), Some(limit)) = (place, status.limit) {
                self.unknown.remove(place);
                terminal.remark(&format!(
                    "{} now triggers above {limit}, from {} delays in the last hour.",
                    status.trigger, status.seen
                ));
            }
        }
    }
}

fn summary(incidents: u64, elapsed: Nanos, status: &RecorderStatus) -> String {
    let plural = if incidents == 1 { "" } else { "s" };
    let share = status.cpu.share_of(elapsed) * 100.0;
    let mib = status.memory_bytes >> 20;
    format!(
        "{incidents} incident{plural} in {elapsed}; {} events, which cost {share:.2} % of a CPU \
         and {mib} MiB.",
        status.events
    )
}
