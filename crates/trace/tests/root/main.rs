//! Tests the tracer on the running kernel. Some tests do without a part of the kernel, or use
//! buffers that are too small.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};
use nix::time::{ClockId, clock_gettime};
use ticktax_host::Proc;
use ticktax_inject::{Disturbance, Schedule};
use ticktax_model::hook::Hook;
use ticktax_model::kernel_words::{TICK_FUNCTIONS, UNREPORTED, UNTRACED_TIMER};
use ticktax_model::limitation::{HookMissing, Limitation};
use ticktax_model::recording::{Row, Sum};
use ticktax_model::{Cpu, CpuList, Nanos, Source, SourceTable};
use ticktax_trace::record::LONG_NS;
use ticktax_trace::{Closing, Output, Programs, TraceError, TraceSettings, Tracer};

mod flight;
mod groups;
mod guests;
mod profiled;
mod recycle;
mod sampled;
mod waited;

use self::sampled::run_on;

/// Duration of an extra thread's sleep. Other waits in the tests are fractions of it.
const MOMENT: std::time::Duration = std::time::Duration::from_millis(500);

type Test = fn() -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    (
        "waits_have_their_user_code_and_object",
        waited::waits_have_their_user_code_and_object,
    ),
    (
        "the_code_that_keeps_a_thread_waiting_is_sampled",
        sampled::the_code_that_keeps_a_thread_waiting_is_sampled,
    ),
    (
        "a_profile_shows_the_shares_of_functions",
        profiled::a_profile_shows_the_shares_of_functions,
    ),
    (
        "a_full_buffer_loses_exactly_the_counted_time",
        a_full_buffer_loses_exactly_the_counted_time,
    ),
    (
        "a_full_table_of_sums_loses_no_time",
        a_full_table_of_sums_loses_no_time,
    ),
    (
        "long_intervals_keep_their_times_when_summing",
        long_intervals_keep_their_times_when_summing,
    ),
    (
        "a_missing_hook_loses_its_account_but_not_the_run",
        a_missing_hook_loses_its_account,
    ),
    (
        "recording_ends_on_time_however_late_it_is_closed",
        recording_ends_on_time,
    ),
    (
        "all_cpus_start_accounting_at_once",
        all_cpus_start_accounting_at_once,
    ),
    (
        "an_unreported_switch_before_the_end_is_noticed",
        unreported_switch_before_the_end_is_noticed,
    ),
    (
        "time_after_an_unreported_switch_belongs_to_no_thread",
        unreported_time_belongs_to_no_thread,
    ),
    (
        "a_kernel_without_btf_is_reported",
        a_kernel_without_btf_is_reported,
    ),
    (
        "a_ring_that_wraps_yields_only_complete_rows",
        flight::a_ring_that_wraps_yields_only_complete_rows,
    ),
    (
        "a_window_at_a_high_rate_loses_nothing",
        flight::a_window_at_a_high_rate_loses_nothing,
    ),
    (
        "alternating_tables_of_sums_lose_nothing",
        flight::alternating_tables_of_sums_lose_nothing,
    ),
    (
        "changes_of_cgroups_are_reported",
        groups::changes_of_cgroups_are_reported,
    ),
    (
        "entries_of_exited_threads_are_freed",
        recycle::entries_of_exited_threads_are_freed,
    ),
    (
        "a_wait_beyond_the_limit_is_noticed",
        flight::a_wait_beyond_the_limit_is_noticed,
    ),
    ("a_block_has_its_place", flight::a_block_has_its_place),
    ("programs_for_guests_fit", guests::programs_for_guests_fit),
];

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let root = nix::unistd::geteuid().is_root();
    let allowed = root && TraceSettings::default().btf.exists();
    let left_out = ticktax_fixture::left_out("live");
    let mut trials = Vec::new();
    for way in WAYS {
        let tests = TESTS.iter();
        for &(name, test) in tests.filter(|(name, _)| way.has_all || ABOUT_RECORDS.contains(name)) {
            let test = move || {
                WAY.set(way);
                test()
            };
            let left_out = left_out.clone().filter(|_| !way.runs_by_default(name));
            let ignored = !allowed || left_out.is_some();
            let trial = Trial::test(format!("root::{}{name}", way.prefix), test);
            let trial = trial.with_kind(left_out.unwrap_or_default());
            trials.push(trial.with_ignored_flag(ignored));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A way in which the tests load the tracer.
#[derive(Clone, Copy)]
struct Way {
    prefix: &'static str,
    programs: Programs,
    /// Whether to pretend that CPUs may see each other's stores out of order.
    sealed: bool,
    /// Whether to run all tests. If `false`, only those in [`ABOUT_RECORDS`] are run.
    has_all: bool,
}

impl Way {
    /// Returns whether `cargo test` runs this test. It runs one test with each set of BPF programs,
    /// and the tests in which part of the kernel is missing. The live tier runs the rest.
    fn runs_by_default(self, name: &str) -> bool {
        match name {
            "a_full_buffer_loses_exactly_the_counted_time" => !self.sealed,
            "a_missing_hook_loses_its_account_but_not_the_run"
            | "a_kernel_without_btf_is_reported" => self.prefix.is_empty(),
            _ => false,
        }
    }
}

const WAYS: [Way; 4] = [
    Way {
        prefix: "",
        programs: Programs::Fitting,
        sealed: false,
        has_all: true,
    },
    Way {
        prefix: "sealed::",
        programs: Programs::Fitting,
        sealed: true,
        has_all: false,
    },
    Way {
        prefix: "before_5_12::",
        programs: Programs::Before5_12,
        sealed: false,
        has_all: false,
    },
    Way {
        prefix: "before_5_12::sealed::",
        programs: Programs::Before5_12,
        sealed: true,
        has_all: true,
    },
];

/// Tests that emit many records. They are repeated for each way of writing records.
const ABOUT_RECORDS: [&str; 2] = [
    "a_full_buffer_loses_exactly_the_counted_time",
    "a_ring_that_wraps_yields_only_complete_rows",
];

thread_local! {
    static WAY: Cell<Way> = const { Cell::new(WAYS[0]) };
}

fn load(settings: &TraceSettings) -> Result<Tracer, TraceError> {
    let way = WAY.get();
    let settings = TraceSettings {
        programs: way.programs,
        stores_in_order: settings.stores_in_order && !way.sealed,
        ..settings.clone()
    };
    let tracer = Tracer::load(&settings, Proc::default().room_for_cpus())?;
    // If the kernel accepts atomic instructions, the programs that use them must be loaded.
    let is_old = way.programs == Programs::Before5_12 || release() < (5, 12);
    assert_eq!(tracer.is_before_5_12(), is_old);
    Ok(tracer)
}

/// Returns the first two numbers of the running kernel's version.
fn release() -> (u32, u32) {
    let name = nix::sys::utsname::uname().expect("a kernel has a name");
    let name = name.release().to_string_lossy();
    let mut numbers = name.split('.').map_while(|part| part.parse().ok());
    (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    )
}

/// Runs a tracer for `millis` ms without draining it. Wakes up every millisecond to produce events.
/// Returns the sum of the rows' self times for each CPU.
fn run(tracer: Tracer, millis: u64) -> (Closing, Vec<i64>) {
    run_and(tracer, millis, &mut |_| {})
}

/// Does the same as [`run`], and passes each row's source to `each`.
fn run_and(mut tracer: Tracer, millis: u64, each: &mut dyn FnMut(&Source)) -> (Closing, Vec<i64>) {
    let online = Proc::default().online().unwrap_or_default();
    tracer.start(&online, &online);
    for _ in 0..millis {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut times = vec![0; CpuList::MAX_CPU as usize];
    let mut sink = |sources: &SourceTable, row: &Row| {
        let source = sources.get(row.source());
        if source.kind != ticktax_model::Kind::Wait {
            times[row.cpu().index()] += row.span().self_time.0;
        }
        each(source);
    };
    let closing = tracer.close(&online, Nanos(2), &mut SourceTable::default(), &mut sink);
    (closing, times)
}

fn balances(closing: &Closing, times: &[i64]) -> Result<(), Failed> {
    for books in &closing.books {
        let lost = closing.lost.iter().filter(|loss| loss.cpu == books.cpu);
        let lost: Nanos = lost.map(|loss| loss.self_time).sum();
        let accounted = times[books.cpu.index()] + lost.0;
        if accounted != books.elapsed().0 {
            return Err(
                format!("CPU {}: {accounted} of {} ns", books.cpu, books.elapsed().0).into(),
            );
        }
    }
    Ok(())
}

fn a_full_buffer_loses_exactly_the_counted_time() -> Result<(), Failed> {
    let output = Output::Spans { per_cpu: 1 };
    let (closing, times) = run(
        load(&TraceSettings {
            output,
            ..TraceSettings::default()
        })?,
        3_000,
    );
    let lost: u64 = closing.lost.iter().map(|loss| loss.events).sum();
    if lost == 0 {
        return Err("nothing was lost: the buffer was not too small".into());
    }
    balances(&closing, &times)
}

fn a_full_table_of_sums_loses_no_time() -> Result<(), Failed> {
    let output = Output::Sums { entries: 1 };
    let tracer = load(&TraceSettings {
        output,
        ..TraceSettings::default()
    })?;
    // Each thread is a source. Together, they exceed the capacity of the smallest table.
    let threads: Vec<_> = (0..400)
        .map(|_| std::thread::spawn(|| std::thread::sleep(MOMENT)))
        .collect();
    let (closing, times) = run(tracer, 1_000);
    for thread in threads {
        thread.join().unwrap_or_default();
    }
    if closing.folded == 0 {
        return Err("the table was not too small".into());
    }
    balances(&closing, &times)
}

fn long_intervals_keep_their_times_when_summing() -> Result<(), Failed> {
    assert_eq!(Sum::TIMED_FROM, Nanos(i64::try_from(LONG_NS)?));
    let mut tracer = load(&TraceSettings {
        output: Output::Sums { entries: 1 << 12 },
        ..TraceSettings::default()
    })?;
    let online = Proc::default().online().unwrap_or_default();
    let stop = Arc::new(AtomicBool::new(false));
    let busy = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || spin_and_sleep(0, &stop)
    });
    let (mut sources, mut long, mut wrong) = (SourceTable::default(), 0, Vec::new());
    let mut times = vec![0; CpuList::MAX_CPU as usize];
    let mut sink = |is_open: bool, sources: &SourceTable, row: &Row| {
        let source = sources.get(row.source());
        if source.kind != ticktax_model::Kind::Wait {
            times[row.cpu().index()] += row.span().self_time.0;
        }
        match row {
            Row::Span(span) if span.dur >= Sum::TIMED_FROM => long += 1,
            Row::Sum(sum) if !sum.has_long() || source.kind == ticktax_model::Kind::Idle => {}
            // An interval that is still open at the end becomes a row, no matter how short it is.
            Row::Span(_) if is_open => {}
            _ => wrong.push(format!("{row:?} of {source:?}")),
        }
    };
    tracer.start(&online, &online);
    for _ in 0..25 {
        std::thread::sleep(MOMENT / 25);
        tracer.drain(Nanos(2), &mut sources, &mut |sources, row| {
            sink(false, sources, row);
        });
    }
    stop.store(true, Ordering::Relaxed);
    let closing = tracer.close(&online, Nanos(2), &mut sources, &mut |sources, row| {
        sink(true, sources, row);
    });
    busy.join().unwrap_or_default();
    if long < 20 || !wrong.is_empty() {
        return Err(format!("{long} long spans; wrong: {wrong:?}").into());
    }
    balances(&closing, &times)
}

/// All CPUs must start their accounting at the same time, even though the thread that visits them
/// takes a while. A span in progress at that time must start then.
fn all_cpus_start_accounting_at_once() -> Result<(), Failed> {
    let mut tracer = load(&TraceSettings::default())?;
    let online = Proc::default().online().unwrap_or_default();
    let late = tracer.start(&online, &online);
    let opened = tracer.opened(&online).ok_or("no books are open")?;
    if now() < opened {
        return Err("recording is still to begin".into());
    }
    std::thread::sleep(MOMENT / 10);
    let mut times = vec![0; CpuList::MAX_CPU as usize];
    let mut first = Nanos::MAX;
    let mut sink = |sources: &SourceTable, row: &Row| {
        if sources.get(row.source()).kind != ticktax_model::Kind::Wait {
            times[row.cpu().index()] += row.span().self_time.0;
        }
        first = first.min(row.span().start);
    };
    let closing = tracer.close(&online, now(), &mut SourceTable::default(), &mut sink);
    balances(&closing, &times)?;
    let is_late = |cpu| late.iter().any(|late| late == cpu);
    let books = closing.books.iter().filter(|books| !is_late(books.cpu));
    let at_once = books.clone().all(|books| books.begin == opened);
    if first < opened || !at_once || books.count() == 0 {
        return Err(format!("{opened}, {first}: {:?}", closing.books).into());
    }
    Ok(())
}

/// While recording is paused on a CPU, a thread starts to run there. It is still running when
/// recording ends. The missed switch must be noticed.
fn unreported_switch_before_the_end_is_noticed() -> Result<(), Failed> {
    const INTRUSION: Nanos = Nanos::from_millis(400);
    let mut tracer = load(&TraceSettings::default())?;
    let online = Proc::default().online().unwrap_or_default();
    let cpu = online.iter().last().ok_or("no CPU is online")?;
    run_on(online.iter().filter(|&other| other != cpu));
    tracer.start(&online, &online);
    std::thread::sleep(MOMENT / 20);
    tracer.pause(cpu);
    // The new thread preempts the running one, so the CPU runs a different thread before and after
    // the pause. The new thread inherits the set of CPUs that this thread may use.
    run_on(online.iter());
    let intruder = ticktax_inject::spawn(
        &ticktax_inject::Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
            .schedule(Schedule::every(Nanos::from_secs(1), INTRUSION))
            .duration(INTRUSION),
    )?;
    run_on(online.iter().filter(|&other| other != cpu));
    std::thread::sleep(MOMENT / 20);
    // Simulate an event after the end of recording: the BPF programs resume after the end has
    // passed.
    tracer.end_at(now());
    tracer.resume(cpu);
    std::thread::sleep(MOMENT / 20);
    let (mut times, mut lost) = (vec![0; CpuList::MAX_CPU as usize], 0);
    let mut sink = |sources: &SourceTable, row: &Row| {
        let (source, time) = (sources.get(row.source()), row.span().self_time.0);
        if source.kind != ticktax_model::Kind::Wait {
            times[row.cpu().index()] += time;
        }
        if &*source.name == UNREPORTED && row.cpu() == cpu {
            lost += time;
        }
    };
    let closing = tracer.close(&online, now(), &mut SourceTable::default(), &mut sink);
    run_on(online.iter());
    intruder.finish()?;
    balances(&closing, &times)?;
    if closing.missed == 0 || lost == 0 {
        return Err(format!("{} missed, {lost} ns", closing.missed).into());
    }
    Ok(())
}

/// Accounting is closed some time after recording ended. The rows must not contain anything from
/// after that end.
fn recording_ends_on_time() -> Result<(), Failed> {
    const LENGTH: Nanos = Nanos::from_millis(50);
    for output in [
        TraceSettings::default().output,
        Output::Sums { entries: 1 << 12 },
    ] {
        let summing = matches!(output, Output::Sums { .. });
        let mut tracer = load(&TraceSettings {
            output,
            ..TraceSettings::default()
        })?;
        let online = Proc::default().online().unwrap_or_default();
        tracer.start(&online, &online);
        let end = now() + LENGTH;
        tracer.end_at(end);
        std::thread::sleep(MOMENT / 2);
        let before = tracer.switches();
        std::thread::sleep(MOMENT / 50);
        if tracer.switches() == before {
            return Err("switches are not counted on".into());
        }
        let mut times = vec![0; CpuList::MAX_CPU as usize];
        let mut last = Nanos::ZERO;
        let mut sink = |sources: &SourceTable, row: &Row| {
            if sources.get(row.source()).kind != ticktax_model::Kind::Wait {
                times[row.cpu().index()] += row.span().self_time.0;
            }
            last = last.max(row.span().end());
        };
        let closing = tracer.close(&online, now(), &mut SourceTable::default(), &mut sink);
        balances(&closing, &times)?;
        // A BPF program that read the clock just before the end may finish slightly later.
        let latest = end + Nanos::from_millis(5);
        let on_time = |at: Nanos| (end..latest).contains(&at);
        let books = &closing.books;
        let all_on_time =
            books.len() == online.len() && books.iter().all(|books| on_time(books.end));
        if !all_on_time || !(on_time(last) || summing && last < latest) {
            return Err(format!("{end}, {last}: {books:?}").into());
        }
    }
    Ok(())
}

fn a_missing_hook_loses_its_account() -> Result<(), Failed> {
    let without = [Hook::LocalTimer].into();
    let tracer = load(&TraceSettings {
        without,
        ..TraceSettings::default()
    })?;
    if tracer.every_entry_watched() {
        return Err("it claims to see every entry".into());
    }
    let missing = Limitation::HookMissing {
        hook: Hook::LocalTimer,
        reason: HookMissing::Excluded,
    };
    if !tracer.limitations().contains(&missing) {
        return Err(format!("{:?}", tracer.limitations()).into());
    }
    // Ticks still occur, but in an interrupt with no hook attached.
    let mut names = BTreeSet::new();
    let (closing, times) = run_and(tracer, 100, &mut |source| {
        if &*source.name == UNTRACED_TIMER {
            names.insert(source.detail.to_string());
        }
    });
    if !TICK_FUNCTIONS.iter().any(|tick| names.contains(*tick)) {
        return Err(format!("no tick among {names:?}").into());
    }
    balances(&closing, &times)
}

/// Pins the calling thread to one CPU. Then alternately spins and sleeps for 2 ms, until `stop` is
/// set. Returns the thread's CPU time.
fn spin_and_sleep(cpu: usize, stop: &AtomicBool) -> Nanos {
    run_on(std::iter::once(Cpu(u32::try_from(cpu).unwrap_or_default())));
    while !stop.load(Ordering::Relaxed) {
        let begin = own_cpu_time();
        while own_cpu_time() - begin < Nanos::from_millis(2) {}
        std::thread::sleep(MOMENT / 250);
    }
    own_cpu_time()
}

fn own_cpu_time() -> Nanos {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the current time on the clock that records use.
fn now() -> Nanos {
    read(ClockId::CLOCK_MONOTONIC)
}

fn read(clock: ClockId) -> Nanos {
    clock_gettime(clock).map_or(Nanos::ZERO, |time| {
        Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
    })
}

/// Pauses recording on one CPU ten times for 10 ms, while a thread starts and stops running there.
/// The time after an unreported switch must not be attributed to any thread.
fn unreported_time_belongs_to_no_thread() -> Result<(), Failed> {
    const PAUSES: u32 = 10;
    const NAME: &str = "comes-and-goes";
    let mut tracer = load(&TraceSettings::default())?;
    let online = Proc::default().online().unwrap_or_default();
    let cpu = online.iter().last().ok_or("no CPU is online")?;
    let stop = Arc::new(AtomicBool::new(false));
    let thread_stop = Arc::clone(&stop);
    let thread = std::thread::Builder::new()
        .name(NAME.to_owned())
        .spawn(move || spin_and_sleep(cpu.index(), &thread_stop))?;
    // This thread must not run on that CPU. If it ran there both before and after a pause, no
    // switch would be missed.
    run_on(online.iter().filter(|&other| other != cpu));
    tracer.start(&online, &online);
    for _ in 0..PAUSES {
        std::thread::sleep(MOMENT / 20);
        tracer.pause(cpu);
        std::thread::sleep(MOMENT / 50);
        tracer.resume(cpu);
    }
    let (mut times, mut lost, mut own) = (vec![0; CpuList::MAX_CPU as usize], 0, 0);
    let mut sink = |sources: &SourceTable, row: &Row| {
        let (source, time) = (sources.get(row.source()), row.span().self_time.0);
        if source.kind != ticktax_model::Kind::Wait {
            times[row.cpu().index()] += time;
        }
        match &*source.name {
            UNREPORTED => lost += time,
            NAME => own += time,
            _ => {}
        }
    };
    let closing = tracer.close(&online, Nanos(2), &mut SourceTable::default(), &mut sink);
    run_on(online.iter());
    stop.store(true, Ordering::Relaxed);
    let used = thread.join().map_err(|_| "the thread failed")?;
    balances(&closing, &times)?;
    if closing.missed == 0 || lost == 0 {
        return Err(format!("{} missed, {lost} ns", closing.missed).into());
    }
    // The thread kept running after the end, so it may have used more CPU time than was recorded. A
    // pause counts as the thread's own time if no other thread was found after the pause.
    if own > used.0 {
        return Err(format!("{own} ns of a thread that used {} ns", used.0).into());
    }
    // At most, each pause leaves its own length unexplained, plus the time back to the last
    // interrupt before it and on to the first interrupt after it: two ticks of 10 ms.
    let limit = i64::from(PAUSES) * 30_000_000;
    if lost > limit {
        return Err(format!("{lost} ns unexplained, limit {limit} ns").into());
    }
    Ok(())
}

fn a_kernel_without_btf_is_reported() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let missing = folder.path().join("vmlinux");
    let damaged = folder.path().join("damaged");
    std::fs::write(&damaged, b"no types here")?;
    let error = |btf: PathBuf| {
        load(&TraceSettings {
            btf,
            ..TraceSettings::default()
        })
        .err()
    };
    match (error(missing), error(damaged)) {
        (Some(TraceError::NoBtf { .. }), Some(TraceError::BadBtf { .. })) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}
