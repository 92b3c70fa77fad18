//! Tests that compare the cost of ticks with the kernel's own counts.

use libtest_mimic::Failed;
use ticktax_model::Nanos;
use ticktax_model::statement::{Class, Statement};

use super::checks::Tolerance;
use super::checks::counters::{bill, tick_costs_add_up, ticks_match_counts};
use super::fixture::{Recorded, RecordingDir, check, statement, ticktax};

/// Tolerance for events between the readings of the kernel's counters and the start or end of the
/// accounts.
const BETWEEN: Tolerance = Tolerance {
    events: 40.0,
    ..Tolerance::LIVE
};

fn audit(arguments: &[&str]) -> Result<Statement, Failed> {
    let arguments = [&["audit", "--for", "5s", "--format", "json"][..], arguments].concat();
    statement(&ticktax(&arguments).output()?)
}

pub(crate) fn ticks_match_the_kernels_counts() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let file = dir.file("x.parquet");
    let statement = audit(&["--probe", "spin", "--save", file.to_str().ok_or("a name")?])?;
    ticks_match_counts(&statement, &Recorded::read(&file)?, BETWEEN)?;
    let bill = bill(&statement)?;
    for cpu in &bill.cpus {
        // The probe kept the CPU busy, so the tick did not stop. Ticks are lost only if the
        // hypervisor takes the CPU away.
        let rate = cpu.frequency.ok_or("a busy CPU has no frequency")?;
        if let Some(hz) = bill.hz_configured.map(f64::from) {
            check(rate.hz < 1.01 * hz && rate.hz > 0.8 * hz, || {
                format!("{cpu:?}")
            })?;
        }
    }
    let cost = bill.cost.as_ref().ok_or("no cost")?;
    // If other programs leave the probe no CPU time, ticks do not interrupt it, either. An entry
    // and exit time is therefore required only if the probe had some CPU time.
    let loops = statement.accounts.iter();
    let loops = loops.filter(|account| account.class == Class::Probe);
    let loops: Nanos = loops.map(|account| account.time).sum();
    let had_time = loops.share_of(statement.balance.elapsed) > 0.1;
    check(cost.entry_exit.is_some() || !had_time, || {
        format!("{cost:?}")
    })?;
    tick_costs_add_up(&statement)
}

/// Checks that a saved recording results in the same tick costs and findings, and that the tick
/// stops on an idle machine.
pub(crate) fn a_saved_recording_makes_the_same_bill() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let file = dir.file("x.parquet");
    let name = file.to_str().ok_or("a name")?;
    let live = audit(&["--probe", "none", "--fleet-of", "20", "--save", name])?;
    let arguments = ["report", name, "--fleet-of", "20", "--format", "json"];
    let saved = statement(&ticktax(&arguments).output()?)?;
    check(live.tick == saved.tick, || {
        format!("{:#?}\n{:#?}", live.tick, saved.tick)
    })?;
    check(live.findings == saved.findings, || {
        format!("{:#?}\n{:#?}", live.findings, saved.findings)
    })?;
    let bill = bill(&live)?;
    check(bill.fleet.is_some(), || format!("{bill:?}"))?;
    let counted = bill.cpus.iter().all(|cpu| cpu.stopped.is_some());
    check(counted, || format!("{bill:?}"))
}
