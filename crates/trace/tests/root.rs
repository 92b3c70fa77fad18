//! The tracer on this machine's kernel, with something missing or too small.

use std::path::PathBuf;

use libtest_mimic::{Arguments, Failed, Trial};
use ticktax_host::Proc;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::{HookMissing, Limitation};
use ticktax_model::recording::Row;
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_trace::{Closing, Output, TraceError, TraceSettings, Tracer};

/// How long a thread sleeps that is there to be one more.
const MOMENT: std::time::Duration = std::time::Duration::from_millis(500);

type Test = fn() -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    (
        "a_full_buffer_is_counted_to_the_ns",
        a_full_buffer_is_counted_to_the_ns,
    ),
    (
        "a_full_table_of_sums_is_counted_to_the_ns",
        a_full_table_of_sums_is_counted_to_the_ns,
    ),
    (
        "a_missing_hook_loses_its_account_and_not_the_run",
        a_missing_hook_loses_its_account,
    ),
    (
        "a_kernel_without_type_description_is_named",
        a_kernel_without_btf_is_named,
    ),
];

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let root = nix::unistd::geteuid().is_root();
    let allowed = root && TraceSettings::default().btf.exists();
    let trial = |&(name, test): &(&str, Test)| {
        Trial::test(format!("root::{name}"), test).with_ignored_flag(!allowed)
    };
    libtest_mimic::run(&arguments, TESTS.iter().map(trial).collect()).exit();
}

fn load(settings: &TraceSettings) -> Result<Tracer, TraceError> {
    Tracer::load(settings, Proc::default().room_for_cpus())
}

/// Runs a tracer for `turns` busy ms; nothing is drained meanwhile. Returns the sum of own times
/// by CPU number.
fn run(mut tracer: Tracer, turns: u64) -> (Closing, Vec<i64>) {
    let online = Proc::default().online().unwrap_or_default();
    tracer.start(&online, &online, Nanos(1));
    for _ in 0..turns {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut times = vec![0; CpuList::MAX_CPU as usize];
    let mut sink = |sources: &SourceTable, row: &Row| {
        if sources.get(row.source()).kind != ticktax_model::Kind::Wait {
            times[row.cpu().index()] += row.span().self_time.0;
        }
    };
    let closing = tracer.close(&online, Nanos(2), &mut SourceTable::default(), &mut sink);
    (closing, times)
}

fn balances(closing: &Closing, times: &[i64]) -> Result<(), Failed> {
    for books in &closing.books {
        let lost = closing.lost.iter().filter(|loss| loss.cpu == books.cpu);
        let lost: Nanos = lost.map(|loss| loss.self_time).sum();
        let told = times[books.cpu.index()] + lost.0;
        if told != books.elapsed().0 {
            return Err(format!("CPU {}: {told} of {} ns", books.cpu, books.elapsed().0).into());
        }
    }
    Ok(())
}

fn a_full_buffer_is_counted_to_the_ns() -> Result<(), Failed> {
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

fn a_full_table_of_sums_is_counted_to_the_ns() -> Result<(), Failed> {
    let output = Output::Sums { entries: 1 };
    let tracer = load(&TraceSettings {
        output,
        ..TraceSettings::default()
    })?;
    // More sources than the smallest table has room for: a thread each.
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
        reason: HookMissing::OnRequest,
    };
    if !tracer.limitations().contains(&missing) {
        return Err(format!("{:?}", tracer.limitations()).into());
    }
    let (closing, times) = run(tracer, 100);
    balances(&closing, &times)
}

fn a_kernel_without_btf_is_named() -> Result<(), Failed> {
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
