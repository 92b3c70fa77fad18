//! Checks the accounting section of a statement, with programs whose CPU time the kernel's samples
//! misjudge.

use libtest_mimic::Failed;
use ticktax_inject::Truth;
use ticktax_model::accounting::{AccountingStatement, BiasKind, CpuCheck, ProgramCheck};
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::statement::Statement;
use ticktax_model::{Kind, Nanos, Owner, Source, Span, Thread};

use super::disturbances::measured;
use super::{Recorded, WHOLE_PROCESS, check};

/// Difference between shown and measured times that must be reported, as a share of the elapsed
/// time. Leaves room for rounding.
const NAMED_FROM: f64 = 0.002;

/// Upper bound on the CPU time that a preempted thread uses without being charged for it, which is
/// the time from the preempting thread's wake-up to the switch. On most machines, this is about 10
/// µs.
const PREEMPTION: Nanos = Nanos::from_micros(100);

/// Resolution of the CPU times in `/proc/stat`, which are in hundredths of a second.
const COLUMN: Nanos = Nanos::from_millis(10);

#[derive(Clone, Copy)]
pub(crate) struct Audited<'a> {
    pub(crate) truth: &'a Truth,
    pub(crate) statement: &'a Statement,
    pub(crate) recorded: &'a Recorded,
}

impl Audited<'_> {
    /// Returns how long the injecting thread was on its CPU during its events, according to the
    /// recording.
    fn within_events(&self) -> Nanos {
        let runs = self.runs(|thread| thread.tid == self.truth.tid);
        Truth::time_within(&self.truth.log, runs.map(|(span, _)| span))
    }

    /// Returns the time on the injecting thread's CPU that has no owner, because the kernel did not
    /// report a switch.
    fn unreported(&self) -> Nanos {
        let rows = self.recorded.spans.iter();
        let unowned = rows.filter(|(span, source)| {
            source.kind == Kind::Task && &*source.name == UNREPORTED && span.cpu == self.truth.cpu
        });
        unowned.map(|(span, _)| span.dur).sum()
    }

    fn preempted_in_events(&self) -> i64 {
        let log = &self.truth.log;
        let runs = self.runs(|thread| thread.tid == self.truth.tid);
        let within = runs.filter(|(span, _)| {
            let next = log.partition_point(|event| event.start + event.length <= span.end());
            log.get(next).is_some_and(|event| event.start < span.end())
        });
        i64::try_from(within.count()).unwrap_or(i64::MAX)
    }

    fn runs(&self, wanted: impl Fn(&Thread) -> bool) -> impl Iterator<Item = &(Span, Source)> {
        self.recorded.spans.iter().filter(move |(_, source)| {
            let thread = source.thread.as_ref();
            let is_program = source.kind == Kind::Task && source.owner == Owner::Program;
            is_program && thread.is_some_and(&wanted)
        })
    }
}

pub(crate) fn accounting(statement: &Statement) -> Result<&AccountingStatement, Failed> {
    Ok(statement.accounting.as_ref().ok_or("no accounting check")?)
}

/// Finds the accounting check of the disturbed CPU.
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

/// Checks a program that runs only in one part of each tick period. The time sampled by the kernel
/// must be far from the program's true time, and the accounting check of its CPU must name the
/// program as a cause of the error. `points` is the allowed error, as a fraction of the elapsed
/// time.
pub(crate) fn samples_miss(
    audited: Audited<'_>,
    too_many: bool,
    points: f64,
) -> Result<(), Failed> {
    let (truth, found) = (audited.truth, accounting(audited.statement)?);
    let (program, line) = (program(truth, found)?, line(truth, found)?);
    let total = its_time_is_accurate(audited, program, line, points)?;
    let sampled = program.sampled.ok_or("it was not sampled")?;
    // Require only a factor of 2, because on a shared machine, other programs keep this program
    // from running at some of the ticks.
    let (large, small) = if too_many {
        (sampled, total)
    } else {
        (total, sampled)
    };
    check(large.0 > 2 * small.0, || {
        format!("sampled {sampled}: {program:?}")
    })?;
    // Another program on the same CPU also gains or loses samples, so it may be named as well.
    let mut causes = line.causes.iter();
    let cause =
        causes.find(|cause| cause.kind == BiasKind::TickPhase && cause.pid == Some(truth.pid));
    let cause = cause.ok_or_else(|| format!("no cause in {line:?}"))?;
    check((cause.time > Nanos::ZERO) == too_many, || {
        format!("{cause:?}")
    })
}

/// Checks that the statement shows the program's recorded time, and that the time recorded during
/// the program's events is the time that the program itself measured.
///
/// Returns the CPU time that the program's own CPU clock shows for its entire lifetime. The
/// recorded time can be above or below it: the kernel charges a woken thread from its wake-up, even
/// though the thread that it preempts runs until the switch (docs/explanation/accounting.md).
fn its_time_is_accurate(
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
    // If the hypervisor reports stolen time, the kernel leaves that time out of a thread's CPU
    // clock, even though the thread was on its CPU. The time left out cannot exceed the stolen time
    // reported for this CPU.
    let stolen = line.columns.steal + COLUMN;
    let upper = points + (Nanos(PREEMPTION.0 * preempted) + stolen).share_of(line.elapsed);
    let lower = -points - audited.unreported().share_of(line.elapsed);
    let share = (within - injected).share_of(line.elapsed);
    check(share > lower && share < upper, || {
        format!(
            "{share}, not {lower} to {upper}: within its windows {within} of {injected}, \
             preempted {preempted} times"
        )
    })?;
    measured(truth, WHOLE_PROCESS)
}

/// Checks interrupt time that the kernel does not measure. It must match what the injector itself
/// measured, and must be named as the cause of the difference between shown and measured times.
pub(crate) fn unmeasured_interrupts_are_named(audited: Audited<'_>) -> Result<(), Failed> {
    let (truth, found) = (audited.truth, accounting(audited.statement)?);
    let line = line(truth, found)?;
    let interrupts = line.interrupts.ok_or("interrupts were not seen")?;
    // Packets are received within the calls that send them. If ksoftirqd was woken, it receives
    // them instead, and the calls took longer. All other interrupts, from the tick and from
    // devices, take at most a few percent of the time.
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
    if found.config.interrupts_measured != Some(false) {
        return check(cause.is_none(), || format!("{line:?}"));
    }
    // On a busy CPU, the samples can be right by chance, so the cause may be missing.
    let columns = line.columns.irq + line.columns.softirq;
    let differs = (interrupts - columns).share_of(line.elapsed).abs();
    let Some(cause) = cause else {
        return check(differs < NAMED_FROM, || format!("no cause in {line:?}"));
    };
    // The interrupts arrived while their sender ran, and the kernel counted them as the sender's
    // time. The CPU was therefore shown as busy, so the interrupts hardly cause any error.
    check((-cause.time).share_of(line.elapsed) < 0.05, || {
        format!("{cause:?}")
    })
}
