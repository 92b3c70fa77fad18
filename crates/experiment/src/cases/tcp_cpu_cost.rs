//! `tcp-cpu-cost`: what options cost on the wire, and a profiler that cannot see interrupts.

use ticktax_model::Nanos;
use ticktax_probes::ProbeError;
use ticktax_probes::clock::{Clock, CounterSource};
use ticktax_probes::tcp::{self, Transfer};
use ticktax_sim::{
    Call, Law, Machine, Mode, Policy, Report, Setup, Source, Step, TaskSpec, Then, run,
};

use super::{Case, millis, remark};
use crate::file::{CaseFile, Values};
use crate::judge::Modelled;
use ticktax_model::case::Remark;

/// The case.
pub(super) const CASE: Tcp = Tcp;

pub(super) struct Tcp;

/// Ethernet's and IP's bytes around a segment's data: preamble and gap, header and checksum, IP,
/// TCP.
const AROUND: f64 = 20.0 + 18.0 + 20.0 + 20.0;
/// The data of a full frame, and what timestamps take of it.
const FULL: f64 = 1460.0;
const STAMPS: f64 = 12.0;
/// Lines that interrupt, so that hardly ever two events share one pending bit.
const LINES: usize = 60;
/// Simulated s: 4000 samples, which are right to ±2 %.
const LENGTH: i64 = 40;
/// What one of the interrupts of the series idle takes, in ms.
const EACH: f64 = 0.1;
/// The level of the clock's interrupt: held up by the others, at level 2, or never.
const MASKED: u8 = 1;
const UNMASKED: u8 = 3;
/// How long bytes are sent on this machine.
const HERE: Nanos = Nanos::from_secs(1);

impl Case for Tcp {
    fn text(&self) -> &'static str {
        include_str!("../../../../cases/tcp-cpu-cost.toml")
    }

    fn name(&self) -> &'static str {
        "tcp-cpu-cost"
    }

    fn model(&self, file: &CaseFile, values: &Values) -> Modelled {
        let mut modelled = Modelled::new();
        for (series, row) in file.rows() {
            if let Some(value) = figure(&series.name, &row.at, values) {
                modelled.insert((series.name.clone(), row.at.clone()), value);
            }
        }
        modelled
    }

    fn remarks(&self, _: &CaseFile, values: &Values, _: &Modelled) -> Vec<Remark> {
        vec![remark(
            "a sampler that interrupts hold up",
            format!(
                "sees no interrupt at all, by construction: with {:.0} % of the CPU in interrupts \
                 and {:.0} % in a process its samples are those of the remaining {:.0} %. A program \
                 that soaks up what is left finds what really is idle",
                values.get("irq") * 100.0,
                values.get("process") * 100.0,
                (1.0 - values.get("irq")) * 100.0
            ),
        )]
    }

    fn measure_here(&self) -> Option<Result<Vec<Remark>, ProbeError>> {
        Some(tcp::loopback(HERE).map(|transfer| vec![here(&transfer, &Clock::calibrate())]))
    }
}

/// What a byte over loopback costs on this machine, in cycles of its counter where that is trusted.
fn here(transfer: &Transfer, clock: &Clock) -> Remark {
    let Some(ns) = transfer.ns_per_byte() else {
        return remark("TCP over loopback", "nothing arrived".to_owned());
    };
    let hz = clock.frequency_hz() as f64;
    let cost = match clock.source() {
        CounterSource::Monotonic => format!("{ns:.3} ns of CPU time a byte"),
        _ => format!(
            "{:.2} cycles a byte ({ns:.3} ns of CPU time at the counter's {:.2} GHz)",
            ns * hz / 1e9,
            hz / 1e9
        ),
    };
    let share = |time: Nanos| 100.0 * time.share_of(transfer.sending + transfer.receiving);
    let why = format!(
        "{cost} for both ends together, {:.0} % of it the sender's; {:.2} GB/s for {}, in writes of \
         {} KB. Not comparable with the published: no card, no driver, no interrupt, and packets as \
         large as the loopback device takes them",
        share(transfer.sending),
        transfer.bytes as f64 / transfer.elapsed.0 as f64,
        transfer.elapsed,
        tcp::CHUNK / 1024,
    );
    remark("TCP over loopback", why)
}

fn figure(series: &str, at: &str, values: &Values) -> Option<f64> {
    match (series, at) {
        ("timestamps", _) => {
            let rate = |data: f64| values.get("wire") * data / (FULL + AROUND);
            Some((rate(FULL - STAMPS) / rate(FULL) - 1.0) * 100.0)
        }
        ("throughput by window and latency", at) => {
            let (kilobytes, ms) = pair(at)?;
            let window = kilobytes * 1024.0 * 8.0 / (ms * 1e-3) / 1e6;
            Some(window.min(values.get("wire") * FULL / (FULL + AROUND)))
        }
        ("idle", "as sampled, masked in interrupts") => Some(idle(MASKED, values).0),
        ("idle", "as sampled, never masked") => Some(idle(UNMASKED, values).0),
        ("idle", "really") => Some(idle(MASKED, values).1),
        ("idle", "as a soaker finds it") => {
            let mut setup = busy(MASKED, values);
            let mut soaker = TaskSpec::new(
                "soaker",
                vec![Step::Work(Law::Fixed(Nanos::from_secs(LENGTH)))],
            );
            soaker.attributes.nice = 19;
            setup.tasks.push(soaker);
            let report = simulate(&setup);
            // What it finds of a process that it delays is not its own.
            Some(report.tasks[1].ran.share_of(report.elapsed) * 100.0)
        }
        ("interrupts as sampled, masked", at) => Some(share(&profile(at, MASKED)?) * 100.0),
        ("interrupts as sampled, never masked", at) => Some(share(&profile(at, UNMASKED)?) * 100.0),
        ("ticks lost, masked", at) => Some(lost(&profile(at, MASKED)?) * 100.0),
        _ => None,
    }
}

/// Two numbers, `0.30, 2`.
fn pair(at: &str) -> Option<(f64, f64)> {
    let (one, other) = at.split_once(',')?;
    Some((one.trim().parse().ok()?, other.trim().parse().ok()?))
}

/// The idle share in %, as sampled and really, of a machine with interrupts and a process.
fn idle(tick_level: u8, values: &Values) -> (f64, f64) {
    let report = simulate(&busy(tick_level, values));
    let cpu = &report.cpus[0];
    let samples = cpu.samples[Mode::Idle as usize] as f64 / cpu.sampled() as f64;
    let really = cpu.time(Mode::Idle).share_of(report.elapsed);
    (samples * 100.0, really * 100.0)
}

/// A machine whose interrupts and process take the shares that the file says.
fn busy(tick_level: u8, values: &Values) -> Setup {
    let mut setup = machine(values.get("irq"), EACH, tick_level);
    let (share, burst) = (values.get("process"), 2.0);
    // A burst lasts longer on the wall by what interrupts take.
    let left = 1.0 - values.get("irq");
    let sleep = (burst / share - burst / left).max(0.1);
    setup.tasks.push(TaskSpec::new(
        "process",
        vec![
            Step::Sleep(Call::Select, Law::Exponential(millis(sleep))),
            Step::Work(Law::Exponential(millis(burst))),
        ],
    ));
    setup.machine.timers = ticktax_sim::TimerRule::HighResolution;
    setup
}

/// A machine whose interrupts take a share of it, `ms` each on average, at `share, ms`; sampled at
/// this level. Events that find theirs pending are lost to it, so that more are offered than come
/// through, until the share is right.
fn profile(at: &str, tick_level: u8) -> Option<Report> {
    let (share, ms) = pair(at)?;
    let mut offered = share;
    for _ in 0..3 {
        let report = simulate(&machine(offered, ms, tick_level));
        offered *= share / taken(&report);
    }
    Some(simulate(&machine(offered, ms, tick_level)))
}

fn simulate(setup: &Setup) -> Report {
    run(setup).unwrap_or_else(|error| panic!("the case's own machine: {error}"))
}

fn machine(offered: f64, ms: f64, tick_level: u8) -> Setup {
    let mut machine = Machine::new(1, 100, Policy::Goodness);
    machine.tick_level = tick_level;
    let mut setup = Setup::new(machine, Nanos::from_secs(LENGTH));
    for line in 0..LINES {
        setup.sources.push(Source {
            name: format!("line {line}"),
            cpu: 0,
            level: 2,
            start: Nanos::ZERO,
            interval: Law::Exponential(millis(ms / offered * LINES as f64)),
            cost: Law::Exponential(millis(ms)),
            then: Then::Nothing,
        });
    }
    setup
}

/// The share of the time that interrupts took.
fn taken(report: &Report) -> f64 {
    report.cpus[0].time(Mode::Irq).share_of(report.elapsed)
}

/// The share of samples that found an interrupt.
fn share(report: &Report) -> f64 {
    let cpu = &report.cpus[0];
    cpu.samples[Mode::Irq as usize] as f64 / cpu.sampled() as f64
}

fn lost(report: &Report) -> f64 {
    report.cpus[0].lost as f64 / report.ticks as f64
}
