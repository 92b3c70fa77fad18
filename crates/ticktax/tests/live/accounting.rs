//! The accounting check, beside programs that the kernel's samples cannot see.

use std::process::{Child, Command};

use libtest_mimic::Failed;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_analysis::accounting::{counting, sampled};
use ticktax_host::Proc;
use ticktax_inject::{Disturbance, Plan, Schedule, Truth, Window};
use ticktax_model::accounting::{AccountingStatement, BiasKind, CpuCheck, ProgramCheck, Witness};
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::statement::Statement;
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, Span, Thread};

use super::fixture::{Place, Recorded, WHOLE_PROCESS, check, injector, statement, ticktax};

/// How far a share of the time may be from the injected truth.
const POINTS: f64 = 0.005;

/// The share of the time from which a difference has to be named, with room for rounding.
const NAMED_FROM: f64 = 0.002;

/// How much more a thread may run than it is charged whenever another that wakes up preempts it: from the
/// wake-up to the switch, some 10 µs on most machines.
const PREEMPTION: Nanos = Nanos::from_micros(100);

/// What is in no column yet: these are counted in hundredths of a second.
const COLUMN: Nanos = Nanos::from_millis(10);

/// An audited disturbance.
struct Audited {
    truth: Truth,
    statement: Statement,
    recorded: Recorded,
}

/// Audits a disturbance with `probe`.
fn audit(plan: &Plan, probe: &str) -> Result<Audited, Failed> {
    let place = Place::new();
    let (command, truth_file) = injector(plan, &place)?;
    let recording = place.file("recording.parquet");
    let output = ticktax(&["audit", "--format", "json", "--probe", probe, "--save"])
        .arg(&recording)
        .arg("--")
        .args(command)
        .output()?;
    Ok(Audited {
        statement: statement(&output)?,
        truth: serde_json::from_slice(&std::fs::read(truth_file)?)?,
        recorded: Recorded::read(&recording)?,
    })
}

impl Audited {
    /// How long the thread that made the events was on its CPU within them, by the recording.
    fn within_events(&self) -> Nanos {
        let stretches = self.stretches(|thread| thread.tid == self.truth.tid);
        Truth::time_within(&self.truth.log, stretches.map(|(span, _)| span))
    }

    /// Time on its CPU that nobody knows whose it was, because the kernel did not report a switch.
    fn unreported(&self) -> Nanos {
        let rows = self.recorded.spans.iter();
        let nobodys = rows.filter(|(span, source)| {
            source.kind == Kind::Task && &*source.name == UNREPORTED && span.cpu == self.truth.cpu
        });
        nobodys.map(|(span, _)| span.dur).sum()
    }

    /// How often that thread lost its CPU within an event.
    fn preempted_in_events(&self) -> i64 {
        let log = &self.truth.log;
        let ends = self.stretches(|thread| thread.tid == self.truth.tid);
        let within = ends.filter(|(span, _)| {
            let next = log.partition_point(|event| event.start + event.length <= span.end());
            log.get(next).is_some_and(|event| event.start < span.end())
        });
        i64::try_from(within.count()).unwrap_or(i64::MAX)
    }

    /// The stretches of the program's threads on a CPU.
    fn stretches(&self, wanted: impl Fn(&Thread) -> bool) -> impl Iterator<Item = &(Span, Source)> {
        self.recorded.spans.iter().filter(move |(_, source)| {
            let thread = source.thread.as_ref();
            let ours = source.kind == Kind::Task && source.owner == Owner::Program;
            ours && thread.is_some_and(&wanted)
        })
    }
}

fn accounting(statement: &Statement) -> Result<&AccountingStatement, Failed> {
    Ok(statement.accounting.as_ref().ok_or("no accounting check")?)
}

/// Why the kernel's samples cannot be tested here, if they cannot.
pub(crate) fn unsampled() -> Option<&'static str> {
    let machine = Proc::default().machine();
    let Ok(cpu) = ticktax_inject::default_cpu() else {
        return Some("no CPU to disturb");
    };
    match (sampled(&machine, cpu), counting(&machine).tick) {
        (Some(true), Some(_)) => None,
        (Some(false), _) => Some("this kernel measures, and does not sample"),
        _ => Some("how this kernel counts is not known"),
    }
}

/// A program that works in a part of each tick of this kernel.
fn dodge(window: Window) -> Result<Plan, Failed> {
    let tick = counting(&Proc::default().machine()).tick.ok_or("no tick")?;
    let cpu = ticktax_inject::default_cpu()?;
    Ok(Plan::new(Disturbance::Dodge { window }, cpu)
        .schedule(Schedule::every(tick, Nanos(tick.0 / 10)))
        .duration(Nanos::from_secs(4)))
}

fn line<'a>(truth: &Truth, check: &'a AccountingStatement) -> Result<&'a CpuCheck, Failed> {
    let line = check.cpus.iter().find(|line| line.cpu == truth.cpu);
    Ok(line.ok_or("its CPU has no line")?)
}

fn program<'a>(truth: &Truth, check: &'a AccountingStatement) -> Result<&'a ProgramCheck, Failed> {
    let program = check
        .programs
        .iter()
        .find(|program| program.pid == truth.pid);
    Ok(program.ok_or_else(|| format!("{} is not in {:?}", truth.pid, check.programs))?)
}

/// The program's samples, its true time, and the cause on its CPU.
fn samples(window: Window, too_many: bool) -> Result<(), Failed> {
    let plan = dodge(window)?;
    let audited = audit(&plan, "none")?;
    let (truth, found) = (&audited.truth, accounting(&audited.statement)?);
    let (program, line) = (program(truth, found)?, line(truth, found)?);
    let whole = its_time_is_true(&audited, program, line)?;
    let sampled = program.sampled.ok_or("it was not sampled")?;
    // By far, and on a machine that is shared no more than that: others keep the program from some
    // of its ticks.
    let (large, small) = if too_many {
        (sampled, whole)
    } else {
        (whole, sampled)
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

/// The statement has of the program what was recorded; and what was recorded within its events is
/// what it measured there itself. Its CPU clock over all its time, which is returned, is no bound of
/// either: a thread is charged from its wake-up on, before it runs, and one that it preempts only until
/// then (docs/accounting.md).
fn its_time_is_true(
    audited: &Audited,
    program: &ProgramCheck,
    line: &CpuCheck,
) -> Result<Nanos, Failed> {
    let truth = &audited.truth;
    let on_cpu = program.on_cpu.ok_or("it was not seen")?;
    let rows = audited.stretches(|thread| thread.pid == truth.pid);
    let recorded: Nanos = rows.map(|(span, _)| span.dur).sum();
    check(on_cpu == recorded, || {
        format!("{on_cpu} in the statement, {recorded} in the recording")
    })?;
    let injected = truth.injected.as_ref().ok_or("no truth")?.time;
    let within = audited.within_events();
    let preempted = audited.preempted_in_events();
    // Where the hypervisor says what it takes, the kernel leaves that out of a thread's CPU clock: no more than it
    // told of this CPU. On its CPU the thread was all the same.
    let stolen = line.columns.steal + COLUMN;
    let most = POINTS + (Nanos(PREEMPTION.0 * preempted) + stolen).share_of(line.elapsed);
    let least = -POINTS - audited.unreported().share_of(line.elapsed);
    let share = (within - injected).share_of(line.elapsed);
    check(share > least && share < most, || {
        format!(
            "{share}, not {least} to {most}: within its windows {within} of {injected}, \
             preempted {preempted} times"
        )
    })?;
    let mut measured = truth.measured.iter();
    let whole = measured.find(|measured| measured.method == WHOLE_PROCESS);
    Ok(whole.ok_or("no truth")?.time)
}

pub(crate) fn a_program_between_ticks_is_found() -> Result<(), Failed> {
    samples(Window::BETWEEN, false)
}

pub(crate) fn a_program_around_ticks_is_found() -> Result<(), Failed> {
    samples(Window::AROUND, true)
}

/// The soaker gets what the program leaves, whatever the kernel's columns say.
pub(crate) fn the_soaker_gets_what_is_left() -> Result<(), Failed> {
    let plan = dodge(Window::BETWEEN)?;
    let audited = audit(&plan, "soak")?;
    let line = line(&audited.truth, accounting(&audited.statement)?)?;
    let left = line.left.ok_or("nobody soaked")?;
    check(left.witness == Witness::Soaker, || format!("{left:?}"))?;
    let outside = line.outside.unwrap_or_default().share_of(line.elapsed);
    let mut soakers = audited.recorded.header.soakers.iter();
    let soaker = soakers.find(|soaker| soaker.cpu == audited.truth.cpu);
    let block = soaker.ok_or("no soaker was there")?.block;
    let median = block
        .block_median_ns
        .ok_or("no block was timed meanwhile")?;
    let busy = line.busy_share.ok_or("busy is not known")?;
    let left = left.time.share_of(left.watched);
    // The hypervisor's time is in neither.
    check(left + busy <= 1.03, || {
        format!("left {left}, busy {busy}, {block:?}")
    })?;
    // A CPU that was slower than at its fastest got less done in the time that was left.
    let left = left * median / block.fastest_ns();
    check(left + busy + outside >= 0.90, || {
        format!("left {left}, busy {busy}, outside {outside}, {block:?}")
    })
}

/// A nice program beside a witness that is nice as well: its time is not the witness'.
pub(crate) fn a_nice_program_is_shown_as_busy() -> Result<(), Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    for probe in ["spin", "soak"] {
        let _hog = Hog::start(cpu)?;
        let arguments = ["audit", "--for", "3s", "--format", "json", "--probe", probe];
        let statement = statement(&ticktax(&arguments).output()?)?;
        let found = accounting(&statement)?;
        let line = found.cpus.iter().find(|line| line.cpu == cpu);
        let line = line.ok_or("its CPU has no line")?;
        let busy = line.busy_share.ok_or("busy is not known")?;
        let off = line.off().ok_or("off is not known")?;
        check(busy > 0.9 && off.abs() < 0.05, || {
            format!("{probe}: {line:?}")
        })?;
    }
    Ok(())
}

/// A nice program that uses up a CPU, until it is dropped.
struct Hog(Child);

impl Hog {
    fn start(cpu: Cpu) -> Result<Self, Failed> {
        let all = sched_getaffinity(Pid::from_raw(0))?;
        let mut one = CpuSet::new();
        one.set(cpu.index())?;
        sched_setaffinity(Pid::from_raw(0), &one)?;
        let hog = Command::new("nice")
            .args(["-n", "5", "sh", "-c", "while :; do :; done"])
            .spawn();
        sched_setaffinity(Pid::from_raw(0), &all)?;
        Ok(Self(hog?))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // It may have ended by itself, which the test finds out by its figures.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Interrupt load that the kernel does not measure: what is said of it is beside what the injector knows.
pub(crate) fn interrupts_that_are_not_measured_are_named() -> Result<(), Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let plan = Plan::new(Disturbance::Softirq { packets: 64 }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(1), Nanos::ZERO))
        .duration(Nanos::from_secs(3));
    let audited = audit(&plan, "none")?;
    let (truth, found) = (&audited.truth, accounting(&audited.statement)?);
    let line = line(truth, found)?;
    let interrupts = line.interrupts.ok_or("interrupts were not seen")?;
    // The packets are received within the calls that send them, and by ksoftirqd where it is woken: the calls took
    // longer. All others are the tick's and devices', some hundredths of the time at most.
    let mut measured = truth.measured.iter();
    let sends = measured.find(|measured| measured.method.starts_with("CLOCK_THREAD_CPUTIME_ID"));
    let sends = sends.ok_or("no truth")?.time;
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
