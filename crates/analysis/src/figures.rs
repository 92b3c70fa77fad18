//! Extracts a recording's key figures, which are compared with predictions. Real and simulated
//! machines have the same figures.

use ticktax_model::Nanos;
use ticktax_model::comparison::Measure;
use ticktax_model::pace::Figures;
use ticktax_model::statement::{Class, Statement};

/// Returns the figures for the whole machine and, if `pid` is given, for that program's CPU time.
///
/// Omits figures that were not measured or that the auditor was not asked for.
pub fn figures(statement: &Statement, pid: Option<i32>) -> Vec<(Measure, f64)> {
    let mut figures = Vec::new();
    let mut add = |measure, value: Option<f64>| {
        figures.extend(value.map(|value| (measure, value)));
    };
    if let Some(pid) = pid {
        let longest = statement.cpus.iter().map(|cpu| cpu.elapsed).max();
        let wall = longest.unwrap_or_default();
        let accounts = statement.accounts.iter();
        let own =
            accounts.filter(|account| account.class == Class::Program && account.pid == Some(pid));
        let ran: Nanos = own.map(|account| account.time).sum();
        let programs = statement
            .accounting
            .iter()
            .flat_map(|check| &check.programs);
        let check = programs.into_iter().find(|check| check.pid == pid);
        let sampled = check.and_then(|check| check.sampled);
        add(Measure::Cpu, Some(ran.share_of(wall)));
        add(Measure::Top, shown(statement, pid));
        add(Measure::Sampled, sampled.map(|time| time.share_of(wall)));
    }
    let elapsed: Nanos = statement.cpus.iter().map(|cpu| cpu.elapsed).sum();
    let idle: Nanos = statement
        .cpus
        .iter()
        .map(|cpu| cpu.time_of(Class::Idle))
        .sum();
    add(Measure::Busy, Some(1.0 - idle.share_of(elapsed)));
    if let Some(check) = &statement.accounting {
        let shares: Vec<f64> = check.cpus.iter().map(|cpu| cpu.shown_share).collect();
        let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        add(Measure::ShownBusy, Some(mean));
    }
    if let Some(bill) = &statement.tick {
        let cpus = bill.cpus.len() as f64;
        let rate = bill.all().rate();
        add(Measure::Ticks, rate.map(|rate| rate * cpus));
        let cores = bill.cost.as_ref().map(|cost| cost.cores.value);
        add(Measure::TickCost, cores);
        add(Measure::TickShare, cores.map(|cores| cores / cpus.max(1.0)));
    }
    figures
}

/// Returns the CPU time that `/proc/PID/stat` shows for a program, as a share of the time between
/// the two readings.
fn shown(statement: &Statement, pid: i32) -> Option<f64> {
    let check = statement.accounting.as_ref()?;
    let between = check.cpus.first()?.stat_elapsed;
    let victim = statement
        .victim
        .as_ref()
        .filter(|victim| victim.pid == Some(pid));
    let usage = victim.and_then(|victim| victim.usage);
    let time = usage.map(|usage| usage.user + usage.system).or_else(|| {
        let mut programs = check.programs.iter();
        programs.find(|check| check.pid == pid)?.shown
    });
    time.map(|time| time.share_of(between))
}

/// Returns the figures for a loop's frames over `elapsed`.
pub fn of_frames(figures: &Figures, elapsed: Nanos) -> Vec<(Measure, f64)> {
    let per_minute = |count: u64| {
        let minutes = elapsed.as_secs_f64() / 60.0;
        (minutes > 0.0).then(|| count as f64 / minutes)
    };
    let wait = figures.wait.as_ref();
    let quantile = |q| Some(wait?.quantile(q)?.0 as f64);
    [
        (Measure::Fps, figures.average_fps),
        (Measure::Dropped, per_minute(figures.dropped)),
        (Measure::Overshot, per_minute(figures.overshot)),
        (Measure::LateMedian, quantile(0.5)),
        (Measure::LateP99, quantile(0.99)),
        (Measure::LateMax, wait.map(|wait| wait.max.0 as f64)),
    ]
    .into_iter()
    .filter_map(|(measure, value)| Some((measure, value?)))
    .collect()
}
