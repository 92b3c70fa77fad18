//! `tcp-cpu-cost`: what options cost on the wire, and a profiler that cannot see interrupts.

use std::collections::BTreeSet;

use ticktax_model::Nanos;
use ticktax_sim::{Law, Machine, Mode, Policy, Report, Setup, Source, Then, run};

use super::{Case, remark};
use crate::file::{CaseFile, Values};
use crate::judge::Modelled;
use ticktax_model::case::Remark;

/// The case.
pub(super) const CASE: Tcp = Tcp;

pub(super) struct Tcp;

/// Ethernet's and IP's bytes around a segment's data: preamble and gap, header and checksum, IP,
/// TCP.
const AROUND: f64 = 20.0 + 18.0 + 20.0 + 20.0;
/// Lines that interrupt, so that hardly ever two events share one pending bit.
const LINES: usize = 60;
/// Simulated s.
const LENGTH: i64 = 400;

impl Case for Tcp {
    fn text(&self) -> &'static str {
        include_str!("../../../../cases/tcp-cpu-cost.toml")
    }

    fn name(&self) -> &'static str {
        "tcp-cpu-cost"
    }

    fn model(&self, file: &CaseFile, values: &Values) -> Modelled {
        let mut modelled = Modelled::new();
        let wire = values.get("wire");
        let rate = |data: f64| wire * data / (data + AROUND + (1460.0 - data));
        for series in &file.series {
            for row in &series.rows {
                let value = match (series.name.as_str(), row.at.as_str()) {
                    ("wire", "1460") => rate(1460.0),
                    ("wire", "1448") => rate(1448.0),
                    ("segments", _) => wire * 1e6 / 8.0 / (1460.0 + AROUND),
                    ("cells", _) => cells().len() as f64,
                    ("sampled - true, unmasked", at) => bias(&profile(at, 3)),
                    ("sampled, masked", at) => share(&profile(at, 1)),
                    ("lost ticks, masked", at) => lost(&profile(at, 1)),
                    _ => continue,
                };
                modelled.insert((series.name.clone(), row.at.clone()), value);
            }
        }
        modelled
    }

    fn remarks(&self, _: &CaseFile, _: &Values, _: &Modelled) -> Vec<Remark> {
        vec![remark(
            "three switches, eight settings",
            format!(
                "have only {} effects: win_scale and timestamps do nothing unless rfc1323 is on. \
                 It is a design of 2 × 2 and a check that nothing changes, for sending and for \
                 receiving",
                cells().len()
            ),
        )]
    }
}

/// The effects that the eight settings of three switches have.
fn cells() -> BTreeSet<(bool, bool)> {
    let on = |setting: u8, switch: u8| setting & 1 << switch != 0;
    let all = (0..8).map(|setting| {
        let rfc1323 = on(setting, 0);
        (rfc1323 && on(setting, 1), rfc1323 && on(setting, 2))
    });
    all.collect()
}

/// A machine whose interrupts take a share of it, `ms` each on average, at `share, ms`; sampled at
/// this level. Events that find theirs pending are lost to it, so that more are offered than come
/// through, until the share is right.
fn profile(at: &str, tick_level: u8) -> Report {
    let mut numbers = at
        .split(',')
        .filter_map(|number| number.trim().parse::<f64>().ok());
    let (share, ms) = (numbers.next().unwrap_or(0.0), numbers.next().unwrap_or(1.0));
    let mut offered = share;
    for _ in 0..3 {
        let report = machine(offered, ms, tick_level);
        offered *= share / taken(&report);
    }
    machine(offered, ms, tick_level)
}

fn machine(offered: f64, ms: f64, tick_level: u8) -> Report {
    let mut machine = Machine::new(1, 100, Policy::Goodness);
    machine.tick_level = tick_level;
    let mut setup = Setup::new(machine, Nanos::from_secs(LENGTH));
    for line in 0..LINES {
        setup.sources.push(Source {
            name: format!("line {line}"),
            cpu: 0,
            level: 2,
            start: Nanos::ZERO,
            interval: Law::Exponential(super::millis(ms / offered * LINES as f64)),
            cost: Law::Exponential(super::millis(ms)),
            then: Then::Nothing,
        });
    }
    run(&setup).unwrap_or_else(|error| panic!("the case's own machine: {error}"))
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

fn bias(report: &Report) -> f64 {
    share(report) - taken(report)
}

fn lost(report: &Report) -> f64 {
    report.cpus[0].lost as f64 / report.ticks as f64
}
