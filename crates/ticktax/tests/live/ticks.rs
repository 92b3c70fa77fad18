//! The tick's bill, beside what the kernel itself counts.

use libtest_mimic::Failed;
use ticktax_model::kernel_words::TICK_FUNCTIONS;
use ticktax_model::recording::Books;
use ticktax_model::statement::{Class, Statement};
use ticktax_model::tick::{Basis, TickBill};
use ticktax_model::{Cpu, Kind, Nanos};

use super::fixture::{Place, Recorded, check, close, statement, ticktax};

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

/// Interrupts of the local timer on `cpu` in which no tick's function ran.
fn without_a_tick(recorded: &Recorded, cpu: Cpu) -> u64 {
    let (mut ticked, mut count) = (false, 0);
    let mine = recorded.spans.iter().filter(|(span, _)| span.cpu == cpu);
    for (_, source) in
        mine.filter(|(_, source)| source.kind == Kind::Irq && *source.name == *"local_timer")
    {
        // What ran within an interrupt ended before it did, and comes before it.
        if source.detail.is_empty() {
            count += u64::from(!std::mem::take(&mut ticked));
        } else {
            ticked |= TICK_FUNCTIONS.contains(&&*source.detail);
        }
    }
    count
}

/// For how long the readings of the counters go on before and after the books of `cpu`.
fn outside_the_books(recorded: &Recorded, cpu: Cpu) -> Nanos {
    let header = &recorded.header;
    let mut books = header.books.iter().filter(|books| books.cpu == cpu);
    let elapsed = books.next().map(Books::elapsed).unwrap_or_default();
    header.after.at - header.before.at - elapsed
}

/// The growth of LOC in `/proc/interrupts` is the ticks and the interrupts in which only other
/// timers were due. The readings enclose the books, so some interrupts lie in between: 5 %, or 40, and the ticks of
/// a CPU that is busy in between.
pub(crate) fn ticks_are_as_many_as_the_kernel_counts() -> Result<(), Failed> {
    let place = Place::new();
    let file = place.file("x.parquet");
    let statement = audit(&["--save", file.to_str().ok_or("a name")?])?;
    let recorded = Recorded::read(&file)?;
    let bill = bill(&statement)?;
    check(bill.basis == Basis::Spans, || format!("{bill:?}"))?;
    for cpu in &bill.cpus {
        let interrupts = cpu.interrupts.ok_or("no LOC in /proc/interrupts")?;
        let ticks = cpu.all.count + without_a_tick(&recorded, cpu.cpu);
        let what = format!("ticks on CPU {}", cpu.cpu);
        let between = outside_the_books(&recorded, cpu.cpu).as_secs_f64();
        let between = between * bill.hz_configured.map_or(0.0, f64::from);
        close(&what, ticks as f64, interrupts as f64, 40.0 + between)?;
        // The probe kept it busy. A hypervisor that takes a CPU away swallows some ticks.
        let rate = cpu.frequency.ok_or("a busy CPU has no frequency")?;
        if let Some(hz) = bill.hz_configured.map(f64::from) {
            check(rate.hz < 1.01 * hz && rate.hz > 0.8 * hz, || {
                format!("{cpu:?}")
            })?;
        }
    }
    let cost = bill.cost.as_ref().ok_or("no cost")?;
    // Where programs leave the probe no time, it is not interrupted by ticks either.
    let loops = statement.accounts.iter();
    let loops = loops.filter(|account| account.class == Class::Probe);
    let loops: Nanos = loops.map(|account| account.time).sum();
    let had_time = loops.share_of(statement.balance.elapsed) > 0.1;
    check(cost.around.is_some() || !had_time, || format!("{cost:?}"))?;
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
