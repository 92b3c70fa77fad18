//! A program that spends known times in known states, and the check of its accounts.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::time::ClockId;
use nix::unistd::gettid;
use serde::{Deserialize, Serialize};
use ticktax_inject::victims::{self as sys, Memory};
use ticktax_model::kernel_words::TaskDetail;
use ticktax_model::victim::{OffCpu, OffCpuReason, PAGE_FAULT_ENTRY};
use ticktax_model::{Kind, Nanos, Source, Span};
use ticktax_probes::clock::now;

use super::delays::{Accounting, Delays};
use super::ends::{DISK, DISK_LIMIT};
use super::{Facts, Results};
use crate::checks::check;
use crate::checks::disturbances::is_of_thread;
use crate::programs::{cpu_time, spin};

/// Name of the victim.
pub(super) const NAME: &str = "states";
/// Control group of the victim.
const GROUP: &str = "/sys/fs/cgroup/states-group";
/// Allowed error of a state's time: this share, or [`LEAST`] if that is more.
const SHARE: f64 = 0.01;
const LEAST: Nanos = Nanos::from_micros(50);
const HUGE_PAGES: u64 = 8;
const HUGE_PAGE: usize = 2 << 20;

/// A state in which the victim was, according to its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    User,
    SystemCall,
    Futex,
    Pipe,
    Sleep,
    /// Runnable, while a thread of higher priority runs.
    Waiting,
    /// Many short page faults. Their number is known, but not their time.
    PageFaults,
    /// A few page faults that take long, because each of them clears a huge page.
    HugePages,
    /// Blocked by a disk.
    Disk,
    /// Makes the kernel reclaim memory, because its control group has reached its limit.
    Reclaim,
}

/// An interval in which the victim was in one state, apart from a few microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Spent {
    state: State,
    start: Nanos,
    end: Nanos,
    /// Number of pages that it used for the first time.
    pages: u64,
    /// Time in this state.
    time: Nanos,
    /// CPU time of the thread, according to the kernel.
    on_cpu: Nanos,
    /// The thread's delay according to the kernel.
    delays: Delays,
}

impl Spent {
    /// Measures how long the calling thread is in a state. If it uses pages for the first time,
    /// this excludes the time of the same loop over pages that it has used before.
    fn measure(
        state: State,
        pages: u64,
        accounting: &Accounting,
        doing: &mut dyn FnMut(),
    ) -> Result<Self, Failed> {
        let own = || cpu_time(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default();
        let tid = gettid().as_raw();
        let delayed = accounting.read(tid)?;
        let (before, start) = (own(), now());
        doing();
        let (end, after) = (now(), own());
        let delays = accounting.read(tid)?.since(delayed);
        let mut time = end - start;
        if pages > 0 {
            let again = now();
            doing();
            time -= now() - again;
        }
        Ok(Self {
            state,
            start,
            end,
            pages,
            time,
            on_cpu: after - before,
            delays,
        })
    }
}

/// Spends known times in known states, and writes them to `file`. A real-time priority keeps other
/// programs away. Then sleeps until it is killed.
pub(super) fn victim(file: &str) -> Result<(), Failed> {
    sys::set_fifo(50)?;
    let accounting = Accounting::open()?;
    let mut all = Vec::new();
    let mut spent = |state, pages, doing: &mut dyn FnMut()| -> Result<(), Failed> {
        all.push(Spent::measure(state, pages, &accounting, doing)?);
        Ok(())
    };
    spent(State::User, 0, &mut || spin(now() + Nanos::from_millis(40)))?;
    let mut bytes = vec![0; 1 << 20];
    spent(State::SystemCall, 0, &mut || sys::random(&mut bytes))?;
    let pause = |millis| thread::sleep(Duration::from_millis(millis));
    spent(State::Sleep, 0, &mut || pause(30))?;
    let shared = Arc::new(Mutex::new(()));
    let other = Arc::clone(&shared);
    let holder = thread::spawn(move || {
        let _held = other.lock();
        thread::sleep(Duration::from_millis(50));
    });
    // The other thread takes the lock during this pause.
    pause(10);
    spent(State::Futex, 0, &mut || {
        drop(shared.lock().unwrap_or_else(PoisonError::into_inner));
    })?;
    holder.join().map_err(|_| "the other thread failed")?;
    let (mut end, mut begin) = std::io::pipe()?;
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(60));
        begin.write_all(&[1])
    });
    spent(State::Pipe, 0, &mut || drop(end.read_exact(&mut [0])))?;
    writer.join().map_err(|_| "the other thread failed")??;
    let mut memory = Memory::new(4 << 20)?;
    let pages = memory.pages() as u64;
    spent(State::PageFaults, pages, &mut || memory.touch())?;
    fs::write("/proc/sys/vm/nr_hugepages", HUGE_PAGES.to_string())?;
    let mut memory = Memory::huge(usize::try_from(HUGE_PAGES)? * HUGE_PAGE)?;
    let first_of_each = (0..memory.pages()).step_by(HUGE_PAGE / 4_096);
    spent(State::HugePages, HUGE_PAGES, &mut || {
        first_of_each.clone().for_each(|page| memory.write(page));
    })?;
    all.push(waits(&accounting)?);
    all.push(reads(&accounting)?);
    all.push(reclaims(&accounting)?);
    fs::write(file, serde_json::to_vec(&all)?)?;
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

/// Waits for the CPU while a thread of higher priority runs for 40 ms. The kernel counts this time
/// in `schedstat`.
fn waits(accounting: &Accounting) -> Result<Spent, Failed> {
    let thief = thread::spawn(|| {
        sys::set_fifo(60)?;
        thread::sleep(Duration::from_millis(5));
        spin(now() + Nanos::from_millis(40));
        std::io::Result::Ok(())
    });
    // The other thread sets its priority during this pause.
    thread::sleep(Duration::from_millis(1));
    let before = run_delay()?;
    let spent = Spent::measure(State::Waiting, 0, accounting, &mut || {
        spin(now() + Nanos::from_millis(60));
    })?;
    let time = run_delay()? - before;
    thief.join().map_err(|_| "the other thread failed")??;
    Ok(Spent { time, ..spent })
}

/// Reads from a disk that its control group may read from only four times a second.
fn reads(accounting: &Accounting) -> Result<Spent, Failed> {
    fs::write(Path::new(GROUP).join("io.max"), DISK_LIMIT)?;
    let disk = File::open(DISK)?;
    let mut read = Ok(0);
    let spent = Spent::measure(State::Disk, 0, accounting, &mut || {
        read = disk.read_at(&mut [0], 0);
    });
    read?;
    spent
}

/// Uses memory beyond the limit of its control group, which the kernel takes from memory that this
/// program no longer needs. The kernel counts the time that this takes.
fn reclaims(accounting: &Accounting) -> Result<Spent, Failed> {
    let mut idle = Memory::new(16 << 20)?;
    idle.touch();
    idle.release()?;
    let mut more = Memory::new(12 << 20)?;
    fs::write(Path::new(GROUP).join("memory.max"), "24M")?;
    let spent = Spent::measure(State::Reclaim, 0, accounting, &mut || more.touch())?;
    let time = spent.delays.reclaim;
    Ok(Spent { time, ..spent })
}

/// Returns how long the calling thread has waited for a CPU so far, according to the kernel.
fn run_delay() -> Result<Nanos, Failed> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let waited = text.split_whitespace().nth(1).ok_or("no run delay")?;
    Ok(Nanos(waited.parse()?))
}

/// Checks that every state has the time that the victim spent in it.
pub(super) fn test(results: &Results) -> Result<(), Failed> {
    let facts: &Facts = results.facts(NAME)?;
    let recorded = &results.recorded;
    let lost = recorded.header.coverage.events_lost();
    check(lost == 0, || format!("{lost} events lost"))?;
    let mut wrong = Vec::new();
    for spent in &facts.spent {
        let elapsed = spent.end - spent.start;
        let within = |from: Nanos, to: Nanos| to.min(spent.end) - from.max(spent.start);
        let of = |is_such: &dyn Fn(&Source) -> bool| -> Nanos {
            let rows = recorded.spans.iter();
            let rows = rows.filter(|(_, source)| is_of_thread(source, facts.pid));
            let rows = rows.filter(|(_, source)| is_such(source));
            let times = rows.map(|(span, _)| within(span.start, span.end()));
            times.map(|time| time.max(Nanos::ZERO)).sum()
        };
        let found = of(&|source| is_in(spent.state, source));
        // Each fault also has an entry and an exit, which count as the program's own time.
        let count = recorded.spans.iter().filter(|(span, source)| {
            is_of_thread(source, facts.pid)
                && is_in(spent.state, source)
                && spent.start <= span.start
                && span.end() <= spent.end
        });
        let is_right = match spent.state {
            // A few other faults, for example in the program's code, can come in between.
            State::PageFaults => {
                let more = (count.count() as u64).checked_sub(spent.pages);
                more.is_some_and(|more| more as f64 <= spent.pages as f64 * SHARE)
            }
            _ => is_close(found, spent.time) && found > LEAST,
        };
        if !is_right {
            wrong.push(format!("{spent:?}: {found}"));
        }
        let ran = of(&|source| source.kind == Kind::Task);
        if !is_close(ran, spent.on_cpu) {
            wrong.push(format!("{spent:?}: ran for {ran}"));
        }
        // The rows of a thread cover its life without gaps.
        wrong.extend(wrong_delays(spent, of));
        let covered = of(&|source| is_time(source));
        if covered != elapsed {
            wrong.push(format!("{spent:?}: all rows cover {covered} of {elapsed}"));
        }
    }
    check(wrong.is_empty(), || wrong.join("\n"))?;
    check(facts.spent.len() == 10, || format!("{:?}", facts.spent))
}

/// Compares the delays of a thread in an interval with the kernel's. `of` returns how long the
/// thread was in such a state.
fn wrong_delays(spent: &Spent, of: impl Fn(&dyn Fn(&Source) -> bool) -> Nanos) -> Vec<String> {
    use OffCpuReason::{Disk, Preempted, Throttled, Woken};

    let away = |reasons: &[OffCpuReason]| {
        of(&|source| off_cpu_of(source).is_some_and(|off| reasons.contains(&off.reason)))
    };
    let delays = spent.delays;
    let waits = [Preempted, Woken, Throttled];
    let pairs = [
        ("CPU", away(&waits), delays.cpu),
        ("I/O", away(&[Disk]), delays.block_io),
        ("reclaim", of(&is_reclaim), delays.reclaim),
    ];
    let mut wrong = Vec::new();
    for (what, found, truth) in pairs {
        // If a wake-up preempts the thread, the kernel's delay starts with the wake-up, and
        // includes the rest of the interrupt that woke the other thread. Such delays are many and
        // short, except for the one that the victim makes itself.
        let is_short = what == "CPU" && spent.state != State::Waiting && found <= truth;
        if !is_close(found, truth) && !is_short {
            wrong.push(format!("{spent:?}: {what} delay {found}, not {truth}"));
        }
    }
    wrong
}

/// Checks that periods of known length in which something else held up a victim are in the right
/// state.
pub(super) fn test_held(results: &Results) -> Result<(), Failed> {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (name, reason) in [
        ("frozen", OffCpuReason::Frozen),
        ("frozen-v1", OffCpuReason::Frozen),
        ("stopped", OffCpuReason::Stopped),
    ] {
        let facts = results.facts(name)?;
        for &(start, length) in &facts.held {
            count += 1;
            let rows = off_cpu(results, facts.pid, reason);
            let times = rows.map(|span| span.end().min(start + length) - span.start.max(start));
            let found: Nanos = times.map(|time| time.max(Nanos::ZERO)).sum();
            if !is_close(found, length) {
                wrong.push(format!("{name}: {reason:?} for {found} of {length}"));
            }
        }
    }
    let facts = results.facts("burst")?;
    let rows = off_cpu(results, facts.pid, OffCpuReason::Throttled);
    let rows = rows.map(|span| (span.start, span.self_time));
    let within = rows.filter(|&(start, time)| facts.begin <= start && start + time <= facts.end);
    let found: Nanos = within.map(|(_, time)| time).sum();
    if !is_close(found, facts.throttled) {
        wrong.push(format!("throttled for {found} of {}", facts.throttled));
    }
    check(wrong.is_empty(), || wrong.join("\n"))?;
    check(count == 9 && facts.throttled > LEAST, || {
        format!("{count} periods, throttled for {}", facts.throttled)
    })
}

/// Returns the rows in which the victim's first thread was off its CPU for this reason.
fn off_cpu(results: &Results, pid: i32, reason: OffCpuReason) -> impl Iterator<Item = Span> + '_ {
    let rows = results.recorded.spans.iter();
    let rows = rows.filter(move |(_, source)| {
        let off = OffCpu::parse(&source.detail).filter(|_| source.kind == Kind::Wait);
        is_of_thread(source, pid) && off.is_some_and(|off| off.reason == reason)
    });
    rows.map(|(span, _)| *span)
}

pub(super) fn is_close(found: Nanos, truth: Nanos) -> bool {
    (found - truth).0.abs() as f64 <= (truth.0 as f64 * SHARE).max(LEAST.0 as f64)
}

pub(super) fn is_time(source: &Source) -> bool {
    source.kind == Kind::Task || off_cpu_of(source).is_some_and(|off| off.reason.is_time())
}

fn off_cpu_of(source: &Source) -> Option<OffCpu<'_>> {
    OffCpu::parse(&source.detail).filter(|_| source.kind == Kind::Wait)
}

fn is_reclaim(source: &Source) -> bool {
    source.kind == Kind::Task && source.detail.contains(TaskDetail::Reclaim.name())
}

fn is_in(state: State, source: &Source) -> bool {
    let off = off_cpu_of(source);
    let sleeps_in = |calls: &[&str]| {
        off.is_some_and(|off| {
            off.reason == OffCpuReason::Sleeping
                && off.syscall.is_some_and(|call| calls.contains(&call))
        })
    };
    match state {
        State::User => source.kind == Kind::Task && source.detail.is_empty(),
        State::SystemCall => source.kind == Kind::Task && source.detail.contains("getrandom"),
        State::Futex => sleeps_in(&["futex"]),
        State::Pipe => sleeps_in(&["read"]),
        State::Sleep => sleeps_in(&["clock_nanosleep", "nanosleep"]),
        State::Waiting => off
            .is_some_and(|off| matches!(off.reason, OffCpuReason::Preempted | OffCpuReason::Woken)),
        State::PageFaults | State::HugePages => {
            source.kind == Kind::Task && source.detail.contains(PAGE_FAULT_ENTRY)
        }
        State::Disk => off.is_some_and(|off| off.reason == OffCpuReason::Disk),
        State::Reclaim => is_reclaim(source),
    }
}
