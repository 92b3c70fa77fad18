//! The watching itself: tracer and probes side by side, their rows handed on as they come.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use ticktax_host::{Proc, own_peak_memory, own_thread_cpu_time};
use ticktax_model::machine::{Machine, RunQueue};
use ticktax_model::recording::{Header, Row, ToolCost};
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_probes::ProbeError;
use ticktax_probes::clock::now;
use ticktax_trace::{TraceError, TraceSettings, Tracer};

use super::command::Audited;
use super::header::End;
use super::interrupt::Interrupt;
use super::probe::Probe;
use super::settings::Settings;
use super::victim::Watched;
use crate::arguments::ProbeChoice;
use crate::failure::Failure;
use crate::terminal::{Progress, Terminal};

/// How often buffers are emptied. Ten times the interval fits into them at 500,000 events a second,
/// and a process that wakes up twenty times a second is hardly a disturbance.
const INTERVAL: Duration = Duration::from_millis(50);

type Sink<'a> = &'a mut dyn FnMut(&SourceTable, &Row);

/// How often somebody who watches is told what is new. Looking takes some hundredths of a second.
const NEWS: Nanos = Nanos::from_secs(10);

/// Lines about what was found since the last call.
type News<'a> = &'a mut dyn FnMut() -> Vec<String>;

/// What an audit saw, but for the rows.
pub(crate) struct Observed {
    pub(crate) header: Header,
    /// The signal that ended it early.
    pub(crate) signal: Option<i32>,
}

/// Watches `machine` as `settings` say; every row goes to `sink`, and on a terminal `news` is asked now and
/// then. Returns everything else there is to know.
/// Before the first row, `victim_since` says from when on there is a victim, where there is one.
pub(crate) fn observe(
    settings: &Settings,
    machine: Machine,
    terminal: &Terminal,
    victim_since: &Cell<Option<Nanos>>,
    sources: &mut SourceTable,
    sink: Sink<'_>,
    news: News<'_>,
) -> Result<Observed, Failure> {
    let interrupt = Interrupt::listen()?;
    let proc = Proc::default();
    let (mut tracer, load) = load_tracer(settings, &proc, terminal);
    let mut victim = Watched::find(settings, &proc, tracer.as_mut().ok());
    let began_unix = unix_time();
    let cpu_before = own_thread_cpu_time();
    let mut before = proc.counters(now());
    before.throttling = victim.as_ref().and_then(Watched::throttling);
    let late = match &mut tracer {
        Ok(tracer) => tracer.start(&settings.watched, &settings.online, now()),
        Err(_) => CpuList::default(),
    };
    let (mut probe, unprobed) = start_probe(settings)?;
    if let Some(victim) = &mut victim {
        victim.begin(tracer.as_mut().ok(), now());
        victim_since.set(Some(victim.first_moment()));
    }
    let mut command = Audited::start(&settings.command)?;
    if let Some(victim) = &mut victim {
        victim.started(command.as_ref(), tracer.as_mut().ok());
    }
    if tracer.is_ok() {
        // After the command has been started, which would inherit it.
        Tracer::raise_own_priority();
    }
    let mut run_queue = RunQueue::default();
    let mut ended = || {
        sample(&mut run_queue, &proc, settings);
        command.as_mut().is_some_and(Audited::ended) || victim.as_mut().is_some_and(Watched::ended)
    };
    let mut empty = |now| {
        if let Ok(tracer) = &mut tracer {
            tracer.drain(now, sources, sink);
        }
        probe.drain(sources, sink);
    };
    watch(settings, terminal, &interrupt, &mut ended, &mut empty, news);
    let results = probe.stop(sources, sink);
    // Before the tracer leaves the kernel: that sends interrupts of its own.
    let mut after = proc.counters(now());
    after.throttling = victim.as_ref().and_then(Watched::throttling);
    after.keep_what_ran(&mut before);
    after.run_queue = (run_queue.samples > 0).then_some(run_queue);
    let end = End {
        proc: &proc,
        settings,
        machine,
        before,
        after,
        victim,
        late,
        unprobed,
        results,
    };
    let signal = interrupt.signal();
    if let (Some(command), Some(signal)) = (&mut command, signal) {
        command.interrupt(signal);
    }
    let command = command.as_mut().map(Audited::report);
    let cost = ToolCost {
        load,
        ..ToolCost::default()
    };
    let mut header = match tracer {
        Ok(tracer) => end.at_level_kernel(tracer, sources, sink, cost),
        Err(why) => end.at_level_proc(&why, cost),
    };
    header.began_unix = began_unix;
    header.command = command;
    header.cost.cpu = own_thread_cpu_time() - cpu_before;
    header.cost.memory_bytes += own_peak_memory();
    Ok(Observed { header, signal })
}

/// Loads the tracer, and tells how long that took; says what cannot be seen where it does not load.
fn load_tracer(
    settings: &Settings,
    proc: &Proc,
    terminal: &Terminal,
) -> (Result<Tracer, TraceError>, Nanos) {
    let begin = now();
    let tracer = Tracer::load(
        &TraceSettings {
            output: settings.output,
            following: settings.victim.is_some(),
            ..TraceSettings::default()
        },
        proc.room_for_cpus(),
    );
    match &tracer {
        Ok(_) => (tracer, now() - begin),
        Err(why) => {
            terminal.complain(&format_args!("level proc only: {why}"));
            (tracer, Nanos::ZERO)
        }
    }
}

/// Starts the probe wherever this process may run. Where it was told on which CPUs, it is these or
/// none. Returns the CPUs that are left without a probe as well.
fn start_probe(settings: &Settings) -> Result<(Probe, CpuList), Failure> {
    let start = |cpus: &CpuList| Probe::start(settings.probe, settings.policy, cpus);
    match start(&settings.online) {
        Err(Failure::Probe(ProbeError::NotAllowed { allowed, .. })) if !settings.named => {
            let online = &settings.online;
            let possible: CpuList = online.iter().filter(|&cpu| allowed.contains(cpu)).collect();
            let unprobed = online
                .iter()
                .filter(|&cpu| !allowed.contains(cpu))
                .collect();
            Ok((start(&possible)?, unprobed))
        }
        started => Ok((started?, CpuList::default())),
    }
}

/// Waits until time is up, the command or the victim has ended or somebody interrupts, and empties
/// the buffers meanwhile.
fn watch(
    settings: &Settings,
    terminal: &Terminal,
    interrupt: &Interrupt,
    ended: &mut dyn FnMut() -> bool,
    empty: &mut dyn FnMut(Nanos),
    news: News<'_>,
) {
    let begin = now();
    let mut told = begin;
    let what = format!("Watching CPUs {}", settings.online);
    let progress = terminal.progress(settings.length, what, !settings.command.is_empty());
    let mut shown = begin;
    loop {
        let time = now();
        let left = settings.length.map(|length| begin + length - time);
        let over =
            left.is_some_and(|left| left <= Nanos::ZERO) || ended() || interrupt.signal().is_some();
        empty(time);
        if over {
            break;
        }
        if time - shown >= Progress::INTERVAL {
            progress.at(time - begin);
            shown = time;
        }
        if terminal.is_watched() && time - told >= NEWS {
            for line in news() {
                progress.say(&line);
            }
            told = time;
        }
        let left = left
            .and_then(|left| u64::try_from(left.0).ok())
            .map(Duration::from_nanos);
        thread::sleep(left.unwrap_or(INTERVAL).min(INTERVAL));
    }
    progress.done();
}

/// Seconds since 1970 on the wall clock.
fn unix_time() -> i64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| time.tv_sec())
}

/// Notes how many threads run or wait just now, ticktax's own left out: the one that looks, and
/// the probes that spin.
fn sample(run_queue: &mut RunQueue, proc: &Proc, settings: &Settings) {
    let probes = match settings.probe {
        ProbeChoice::Spin | ProbeChoice::Soak => settings.online.len() as u64,
        ProbeChoice::Sleep | ProbeChoice::None => 0,
    };
    if let Some(threads) = proc.runnable_threads() {
        run_queue.sample(threads.saturating_sub(1 + probes));
    }
}
