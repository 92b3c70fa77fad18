//! `ticktax lab compare`: the same loop on many kernels, and in the model of each.

use std::fs;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use ticktax_experiment::conformance;
use ticktax_experiment::matrix::{Cell, Matrix};
use ticktax_lab::LabError;
use ticktax_lab::kernel::{Kernel, Wanted, find};
use ticktax_lab::qemu::Clock;
use ticktax_model::machine::Machine;
use ticktax_model::pace::{PaceStatement, Subject, SweepRow, SweepStatement};

use super::cache;
use super::run::{GuestVerb, Guests, STATEMENT, missing, read};
use crate::arguments::CompareArguments;
use crate::audit::interrupt::Interrupt;
use crate::failure::Failure;
use crate::terminal::{Terminal, require_writable};

/// Boots every kernel with every set of parameters; ends with 1 where the model differs.
pub(super) fn run(typed: &CompareArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    if let Some(file) = &typed.output {
        require_writable(file)?;
    }
    let interrupt = Interrupt::listen()?;
    let guests = Guests::new(&typed.guest, &typed.verb, &interrupt)?;
    if guests.verb == GuestVerb::Audit {
        let why = "lab compare compares paced loops: give it pace, or pace --sweep";
        return Err(Failure::Arguments(why.to_owned()));
    }
    let wanted = typed.hz.iter().map(|&hz| Wanted::Built(hz));
    let wanted: Vec<Wanted> = wanted.chain(typed.kernels.iter().cloned()).collect();
    let progress = terminal.task("looking for the kernels".to_owned());
    let cache = cache()?;
    // All before the first is booted: one that is not there should not cost the others' time.
    let mut kernels = Vec::new();
    for one in &wanted {
        kernels.push(find(one, &cache, &mut |words| {
            progress.tell(words.to_owned());
        })?);
    }
    let with = |kernel| typed.cmdline.iter().map(move |cmdline| (kernel, cmdline));
    let places: Vec<(&Kernel, &String)> = kernels.iter().flat_map(with).collect();
    let cells = in_turns(
        &places,
        jobs(typed, &guests),
        |&(kernel, cmdline), is_over| {
            let outcome = guests.boot(kernel, cmdline, None, is_over, &progress)?;
            let bytes = outcome.file(STATEMENT).ok_or_else(|| missing(STATEMENT))?;
            let (machine, rows) = rows(guests.verb, bytes)?;
            let cells = rows
                .iter()
                .filter_map(|row| cell(&kernel.name, cmdline, &machine, (&rows, row)));
            Ok::<Vec<Cell>, Failure>(cells.collect())
        },
    );
    progress.done();
    let cells = cells?.into_iter().flatten().collect();
    let matrix = Matrix {
        verb: guests.typed_verb(),
        clock: guests.clock().word(),
        cells,
    };
    let page = matrix.page();
    match &typed.output {
        Some(file) => fs::write(file, page).map_err(|error| LabError::File {
            what: "write",
            path: file.clone(),
            why: error.kind().to_string(),
        })?,
        None => terminal.print(&page)?,
    }
    Ok(if matrix.agrees() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// How many guests run at once. One whose time is the host's would be slowed down by others.
fn jobs(typed: &CompareArguments, guests: &Guests<'_>) -> usize {
    let at_once = match guests.clock() {
        Clock::Icount { .. } => crate::beats::threads(),
        Clock::Tcg | Clock::Kvm => 1,
    };
    typed.jobs.map_or(at_once, usize::from)
}

/// Does all of `work`, so many at once, and returns what came of each in its order. What fails first
/// is told; the others are told by their second argument that it is over, and then no more begin.
fn in_turns<T: Sync, R: Send, E: Send>(
    work: &[T],
    jobs: usize,
    of: impl Fn(&T, &dyn Fn() -> bool) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let failed = OnceLock::new();
    let is_over = || failed.get().is_some();
    let turns = || {
        let mut done = Vec::new();
        while !is_over() {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = work.get(place) else { break };
            match of(one, &is_over) {
                Ok(result) => done.push((place, result)),
                // Only the first: the others were ended because of it.
                Err(error) => drop(failed.set(Mutex::new(error))),
            }
        }
        done
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (1..jobs.min(work.len()))
            .map(|_| scope.spawn(turns))
            .collect();
        let mut done = turns();
        for thread in threads {
            match thread.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    if let Some(error) = failed.into_inner() {
        return Err(error.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    done.sort_unstable_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// The ways in which a guest paced a loop, and its machine.
fn rows(verb: GuestVerb, bytes: &[u8]) -> Result<(Machine, Vec<SweepRow>), Failure> {
    if verb == GuestVerb::Sweep {
        let statement: SweepStatement = read(bytes)?;
        return Ok((statement.machine, statement.rows));
    }
    let statement: PaceStatement = read(bytes)?;
    let Subject::Loop(report) = statement.subject else {
        return Ok((statement.machine, Vec::new()));
    };
    let own = statement.cpu.readings.first();
    let row = SweepRow {
        rate: report.rate,
        work: report.work,
        sleep: report.sleep,
        rule: report.rule,
        turns: 1,
        figures: statement.figures,
        cpu_time: own.map_or(ticktax_model::Nanos::ZERO, |it| it.time),
        elapsed: own.map_or(statement.elapsed, |it| it.elapsed),
        readings: statement.cpu.readings,
        margin: report.margin,
    };
    Ok((statement.machine, vec![row]))
}

/// One loop on one kernel, measured and modelled.
fn cell(
    kernel: &str,
    cmdline: &str,
    machine: &Machine,
    (rows, row): (&[SweepRow], &SweepRow),
) -> Option<Cell> {
    let (loops, measured) = conformance::measured(rows, row)?;
    let facts = conformance::Kernel::of(machine);
    Some(Cell {
        kernel: kernel.to_owned(),
        hz: machine.hz_configured,
        cmdline: cmdline.to_owned(),
        loops,
        measured,
        predicted: facts.and_then(|facts| conformance::predict(facts, &loops)),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::in_turns;

    #[test]
    fn results_come_in_order_whoever_is_first() {
        let work: Vec<u64> = (0..20).collect();
        for jobs in [1, 2, 7, 50] {
            let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let told = in_turns(&work, jobs, |&one, is_over| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // The later ones take less time.
                for _ in 0..(20 - one) * 50 {
                    std::thread::yield_now();
                }
                now.fetch_sub(1, Ordering::SeqCst);
                assert!(!is_over());
                Ok::<u64, ()>(one * one)
            });
            assert_eq!(told, Ok(work.iter().map(|one| one * one).collect()));
            assert!(most.into_inner() <= jobs, "more than {jobs} at once");
        }
        assert_eq!(
            in_turns(&work[..0], 2, |_, _| Err::<(), ()>(())),
            Ok(vec![])
        );
    }

    #[test]
    fn the_first_failure_ends_the_others_and_is_told() {
        let begun = AtomicUsize::new(0);
        let told = in_turns(&[5, 0, 1, 2, 3, 4], 2, |&one, is_over| {
            begun.fetch_add(1, Ordering::SeqCst);
            // The first goes on until it is ended; the second fails.
            while one == 5 && !is_over() {
                std::thread::yield_now();
            }
            Err::<(), _>(one)
        });
        assert_eq!(told, Err(0));
        assert_eq!(begun.into_inner(), 2, "none begins after a failure");
    }
}
