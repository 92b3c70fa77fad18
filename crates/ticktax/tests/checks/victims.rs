//! Checks the times of a watched program, with disturbances of known size.

use libtest_mimic::Failed;
use ticktax_inject::Truth;
use ticktax_model::Nanos;
use ticktax_model::statement::Statement;
use ticktax_model::victim::{ThreadState, ThreadTimes};

use super::{Recorded, Tolerance, check};

/// Returns the times of the victim's threads. Fails if they do not balance.
pub(crate) fn threads(statement: &Statement) -> Result<ThreadTimes, Failed> {
    let victim = statement.victim.as_ref().ok_or("no victim")?;
    let threads = victim.threads.clone().ok_or("it was not followed")?;
    check(threads.balances(), || format!("{:?}", threads.imbalances))?;
    let sum: Nanos = threads.accounts.iter().map(|account| account.time).sum();
    check(sum == threads.elapsed && threads.threads > 0, || {
        format!("{threads:?}")
    })?;
    Ok(threads)
}

pub(crate) fn time(threads: &ThreadTimes, state: ThreadState) -> Nanos {
    let accounts = threads.accounts.iter();
    let wanted = accounts.filter(|account| account.state == state);
    wanted.map(|account| account.time).sum()
}

/// Checks a victim that always needs its CPU. It must wait behind a real-time thread for as long as
/// that thread ran.
pub(crate) fn waits_behind(
    truth: &Truth,
    recorded: &Recorded,
    threads: &ThreadTimes,
    tolerance: Tolerance,
) -> Result<(), Failed> {
    let mut books = recorded.header.cpus.iter();
    let books = books.find(|books| books.cpu == truth.cpu);
    let books = books.ok_or("its CPU has no books")?;
    // The statement starts when the victim's only thread became known to the tracer.
    let begin = books.end - threads.elapsed;
    let during = truth.log.iter().map(|event| {
        let end = (event.start + event.length).min(books.end);
        (end - event.start.max(begin)).max(Nanos::ZERO)
    });
    let took: Nanos = during.sum();
    let behind = behind(truth, threads);
    tolerance.time("behind the thread", behind, took)?;
    let waited = time(threads, ThreadState::Waiting);
    check(waited >= behind, || format!("{waited} < {behind}"))?;
    check(!threads.delays.is_empty(), || "no delay".to_owned())
}

/// Returns how long the victim waited behind the injecting thread.
pub(crate) fn behind(truth: &Truth, threads: &ThreadTimes) -> Nanos {
    let behind = threads.behind.iter();
    let its = behind.filter(|interferer| {
        interferer.pid == Some(truth.pid) && interferer.name.starts_with(&truth.comm)
    });
    its.map(|interferer| interferer.time).sum()
}

/// Checks a victim that shares a CPU quota with its child, which uses up the quota. The victim's
/// reported throttled time must match the throttled time that its cgroup reports.
pub(crate) fn is_throttled(truth: &Truth, threads: &ThreadTimes) -> Result<(), Failed> {
    let found = time(threads, ThreadState::Throttled);
    check(truth.allows_throttled(found), || {
        format!("throttled for {found}: {truth:?}")
    })?;
    check(threads.processes >= 2, || "its child is missing".to_owned())
}

/// Checks that a victim is throttled for as long as its own quota requires. The allowed error is
/// the larger of 5 % and 20 ms.
pub(crate) fn is_held_by_its_own_quota(
    what: &str,
    time: Nanos,
    truth: Nanos,
) -> Result<(), Failed> {
    let allowed = (truth.0 / 20).max(20_000_000);
    check((time - truth).0.abs() <= allowed, || {
        format!("{what}: throttled for {time}, in truth {truth}")
    })
}
