//! Checks of the accounting section, with programs that the kernel's samples cannot see.

use libtest_mimic::Failed;
use ticktax_inject::Truth;
use ticktax_model::accounting::{AccountingStatement, BiasKind, CpuCheck, ProgramCheck};
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::statement::Statement;
use ticktax_model::{Kind, Nanos, Owner, Source, Span, Thread};

use super::disturbances::measured;
use super::{Recorded, WHOLE_PROCESS, check};

/// Share of the time from which a difference has to be named, with room for rounding.
const NAMED_FROM: f64 = 0.002;

/// Time that a preempted thread runs and is not charged: from the wake-up of the other thread to
/// the switch. It is some 10 µs on most machines.
const PREEMPTION: Nanos = Nanos::from_micros(100);

/// Resolution of the kernel's columns, which count hundredths of a second.
const COLUMN: Nanos = Nanos::from_millis(10);

/// An audited disturbance.
#[derive(Clone, Copy)]
pub(crate) struct Audited<'a> {
    pub(crate) truth: &'a Truth,
    pub(crate) statement: &'a Statement,
    pub(crate) recorded: &'a Recorded,
}

impl Audited<'_> {
    /// Recorded time that the thread which made the events ran within them.
    fn within_events(&self) -> Nanos {
        let runs = self.runs(|thread| thread.tid == self.truth.tid);
        Truth::time_within(&self.truth.log, runs.map(|(span, _)| span))
    }

    /// Time on its CPU without an owner, because the kernel did not report a switch.
    fn unreported(&self) -> Nanos {
        let rows = self.recorded.spans.iter();
        let unowned = rows.filter(|(span, source)| {
            source.kind == Kind::Task && &*source.name == UNREPORTED && span.cpu == self.truth.cpu
        });
        unowned.map(|(span, _)| span.dur).sum()
    }

    /// Number of times that thread was preempted within an event.
    fn preempted_in_events(&self) -> i64 {
        let log = &self.truth.log;
        let runs = self.runs(|thread| thread.tid == self.truth.tid);
        let within = runs.filter(|(span, _)| {
            let next = log.partition_point(|event| event.start + event.length <= span.end());
            log.get(next).is_some_and(|event| event.start < span.end())
        });
        i64::try_from(within.count()).unwrap_or(i64::MAX)
    }

    /// Runs of the program's threads.
    fn runs(&self, wanted: impl Fn(&Thread) -> bool) -> impl Iterator<Item = &(Span, Source)> {
        self.recorded.spans.iter().filter(move |(_, source)| {
            let thread = source.thread.as_ref();
            let ours = source.kind == Kind::Task && source.owner == Owner::Program;
            ours && thread.is_some_and(&wanted)
        })
    }
}

/// The accounting check of a statement.
pub(crate) fn accounting(statement: &Statement) -> Result<&AccountingStatement, Failed> {
    Ok(statement.accounting.as_ref().ok_or("no accounting check")?)
}

/// The line of the CPU that was disturbed.
pub(crate) fn line<'a>(
    truth: &Truth,
    check: &'a AccountingStatement,
) -> Result<&'a CpuCheck, Failed> {
    let line = check.cpus.iter().find(|line| line.cpu == truth.cpu);
    Ok(line.ok_or("its CPU has no line")?)
}

fn program<'a>(truth: &Truth, check: &'a AccountingStatement) -> Result<&'a ProgramCheck, Failed> {
    let mut programs = check.programs.iter();
    let program = programs.find(|program| program.pid == truth.pid);
    Ok(program.ok_or_else(|| format!("{} is not in {:?}", truth.pid, check.programs))?)
}

/// The samples of a program that keeps to one part of each tick are far from its true time, and are
/// the cause that its CPU's line names. `points` is how far a share of the time may be from the
/// truth.
pub(crate) fn samples_miss(
    audited: Audited<'_>,
    too_many: bool,
    points: f64,
) -> Result<(), Failed> {
    let (truth, found) = (audited.truth, accounting(audited.statement)?);
    let (program, line) = (program(truth, found)?, line(truth, found)?);
    let total = its_time_is_true(audited, program, line, points)?;
    let sampled = program.sampled.ok_or("it was not sampled")?;
    // By far, and no more than that on a machine that is shared: others keep the program from some
    // of its ticks.
    let (large, small) = if too_many {
        (sampled, total)
    } else {
        (total, sampled)
    };
    check(large.0 > 2 * small.0, || {
        format!("sampled {sampled}: {program:?}")
    })?;
    // A program that shares its CPU gets its samples, or lacks them, and may be named as well.
    let mut causes = line.causes.iter();
    let cause =
        causes.find(|cause| cause.kind == BiasKind::TickPhase && cause.pid == Some(truth.pid));
    let cause = cause.ok_or_else(|| format!("no cause in {line:?}"))?;
    check((cause.time > Nanos::ZERO) == too_many, || {
        format!("{cause:?}")
    })
}

/// Fails unless the statement has the recorded time of the program, and the time recorded within
/// its events is the time that it measured there. Returns its CPU clock over all its time. That
/// clock bounds neither: the kernel charges a thread from its wake-up on, and charges the preempted
/// thread only until then (docs/explanation/accounting.md).
fn its_time_is_true(
    audited: Audited<'_>,
    program: &ProgramCheck,
    line: &CpuCheck,
    points: f64,
) -> Result<Nanos, Failed> {
    let truth = audited.truth;
    let on_cpu = program.on_cpu.ok_or("it was not seen")?;
    let rows = audited.runs(|thread| thread.pid == truth.pid);
    let recorded: Nanos = rows.map(|(span, _)| span.dur).sum();
    check(on_cpu == recorded, || {
        format!("{on_cpu} in the statement, {recorded} in the recording")
    })?;
    let injected = truth.injected.as_ref().ok_or("no truth")?.time;
    let within = audited.within_events();
    let preempted = audited.preempted_in_events();
    // Where the hypervisor reports stolen time, the kernel leaves that out of a thread's CPU clock:
    // no more than it reported of this CPU. The thread was on its CPU all the same.
    let stolen = line.columns.steal + COLUMN;
    let most = points + (Nanos(PREEMPTION.0 * preempted) + stolen).share_of(line.elapsed);
    let least = -points - audited.unreported().share_of(line.elapsed);
    let share = (within - injected).share_of(line.elapsed);
    check(share > least && share < most, || {
        format!(
            "{share}, not {least} to {most}: within its windows {within} of {injected}, \
             preempted {preempted} times"
        )
    })?;
    measured(truth, WHOLE_PROCESS)
}

/// Fails unless interrupt load that the kernel does not measure has a time that fits the injector's
/// own measurement, and is named as the cause of the difference.
pub(crate) fn interrupts_that_are_not_measured_are_named(
    audited: Audited<'_>,
) -> Result<(), Failed> {
    let (truth, found) = (audited.truth, accounting(audited.statement)?);
    let line = line(truth, found)?;
    let interrupts = line.interrupts.ok_or("interrupts were not seen")?;
    // The packets are received within the calls that send them, and by ksoftirqd where it is woken:
    // the calls took longer. All others are the tick's and devices', some hundredths of the time at
    // most.
    let sends = measured(truth, "CLOCK_THREAD_CPUTIME_ID")?;
    let others = Nanos(line.elapsed.0 / 20);
    check(interrupts <= sends + others, || {
        format!("{interrupts} of {sends}: {line:?}")
    })?;
    check(interrupts >= Nanos(sends.0 / 20), || {
        format!("{interrupts} of {sends}: {line:?}")
    })?;
    let mut causes = line.causes.iter();
    let cause = causes.find(|cause| cause.kind == BiasKind::InterruptsNotMeasured);
    if found.counting.interrupts_measured != Some(false) {
        return check(cause.is_none(), || format!("{line:?}"));
    }
    // On a CPU that does much else, samples may happen to come out right: then nothing is off.
    let columns = line.columns.irq + line.columns.softirq;
    let differs = (interrupts - columns).share_of(line.elapsed).abs();
    let Some(cause) = cause else {
        return check(differs < NAMED_FROM, || format!("no cause in {line:?}"));
    };
    // They came while their sender ran, and are in its time: the CPU was shown busy.
    check((-cause.time).share_of(line.elapsed) < 0.05, || {
        format!("{cause:?}")
    })
}
