//! The tick's bill, beside what the kernel itself counts.

use libtest_mimic::Failed;
use ticktax_model::statement::Statement;
use ticktax_model::tick::{Basis, TickBill};

use super::world::{Place, check, close, statement, ticktax};

fn audit(arguments: &[&str]) -> Result<Statement, Failed> {
    let arguments = [&["audit", "--for", "5s", "--format", "json"][..], arguments].concat();
    statement(&ticktax(&arguments).output()?)
}

fn bill(statement: &Statement) -> Result<&TickBill, Failed> {
    statement
        .tick
        .as_ref()
        .ok_or_else(|| "there is no bill".into())
}

/// On a CPU that a probe keeps busy almost every interrupt of the local timer is a tick. The
/// kernel's count has other timers' interrupts, and the ms before and after the books: the ticks
/// are at most as many, and no fewer than 85 of 100. Programs that sleep to a time of day, of which
/// a machine with other work has some, are the difference.
pub(crate) fn ticks_are_as_many_as_the_kernel_counts() -> Result<(), Failed> {
    let statement = audit(&[])?;
    let bill = bill(&statement)?;
    check(bill.basis == Basis::Spans, || format!("{bill:?}"))?;
    for cpu in &bill.cpus {
        let interrupts = cpu.interrupts.ok_or("no LOC in /proc/interrupts")? as f64;
        let ticks = cpu.all.count as f64;
        check(
            ticks <= interrupts + 1.0 && ticks >= 0.85 * interrupts,
            || format!("CPU {}: {ticks} ticks of {interrupts} interrupts", cpu.cpu),
        )?;
        // What a kernel of 250 Hz loses to its hypervisor on a shared machine is some percent.
        if let (Some(hz), Some(frequency)) = (bill.hz_configured, cpu.frequency) {
            close("Hz", frequency.hz, f64::from(hz), 0.0)?;
        }
    }
    let cost = bill.cost.as_ref().ok_or("no cost")?;
    check(cost.around.is_some(), || format!("{cost:?}"))?;
    let within: i64 = cost.within.iter().map(|part| part.time.0).sum();
    check(within == cost.time.0, || format!("{cost:?}"))
}

/// A saved recording makes the same bill and the same findings, and an idle machine's tick stops.
pub(crate) fn a_saved_recording_makes_the_same_bill() -> Result<(), Failed> {
    let place = Place::new();
    let file = place.file("x.parquet");
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
