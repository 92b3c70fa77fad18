//! The programs that the audits follow. Each of them runs until it is killed.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::time::ClockId;
use ticktax_inject::victims::{self as sys, Memory, PolledRing};
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use super::ends::DISK;
use crate::checks::Grid;
use crate::inside::{finish, start};
use crate::programs::{PROGRAM, cpu_time};

type Outcome = Result<(), Failed>;

pub(super) const MIB: usize = 1 << 20;

pub(super) const fn ms(millis: i64) -> Nanos {
    Nanos::from_millis(millis)
}

/// Runs the victim with these arguments.
pub(crate) fn run(arguments: &[&str]) -> Outcome {
    match arguments {
        ["loop", work] => paced(ms(20), micros(work)?),
        ["fifo-loop", work] => {
            sys::set_fifo(10)?;
            paced(ms(20), micros(work)?)
        }
        ["two-threads"] => {
            thread::spawn(|| paced(ms(50), ms(1)));
            paced(ms(20), ms(3))
        }
        ["slack", millis, program] => slack(ms(millis.parse()?), program),
        ["relay", idle] => relay(idle.parse()?),
        ["deadline"] => deadline(),
        ["search", mib] => search(mib.parse()?),
        ["grows"] => grows(),
        ["bursty", work, period] => bursty(ms(work.parse()?), ms(period.parse()?)),
        ["interpreter"] => interpreter(),
        ["store", mib] => store(mib.parse()?),
        ["lock"] => lock(),
        ["pipe"] => pipe(),
        ["faults"] => faults(),
        ["atlas"] => atlas(),
        ["jobs"] => jobs(),
        ["calls"] => calls(),
        ["children"] => children(),
        ["asks", socket] => asks(socket),
        ["ends", state, change, group, file] => {
            super::ends::victim::run(state, change, group, file)
        }
        ["states", file] => super::states::victim(file),
        _ => Err(format!("no victim {arguments:?}").into()),
    }
}

pub(super) fn micros(text: &str) -> Result<Nanos, Failed> {
    Ok(Nanos::from_micros(text.parse()?))
}

/// Spins until the calling thread has used this much CPU time.
pub(super) fn work(time: Nanos) -> Outcome {
    let end = cpu_time(ClockId::CLOCK_THREAD_CPUTIME_ID)? + time;
    while cpu_time(ClockId::CLOCK_THREAD_CPUTIME_ID)? < end {}
    Ok(())
}

/// Runs a loop that does `frame` every `period`, and skips the frames that it missed.
fn each(period: Nanos, mut frame: impl FnMut(u64) -> Outcome) -> Outcome {
    let mut grid = Grid::new(now(), period);
    for number in 0.. {
        thread::sleep(grid.left(now()));
        let began = now();
        frame(number)?;
        grid.end(began, now());
    }
    Ok(())
}

fn paced(period: Nanos, time: Nanos) -> Outcome {
    each(period, |_| work(time))
}

/// Starts another victim, which inherits this program's timer slack.
fn slack(slack: Nanos, program: &str) -> Outcome {
    sys::set_slack(slack);
    let mut command = Command::new(program);
    let error = command.args([PROGRAM, "trial", "loop", "3000"]).exec();
    Err(format!("cannot execute {program}: {error}").into())
}

/// A relay with 2 ms of work for each packet. It wakes an `io_uring` whose thread polls for
/// `idle` milliseconds.
fn relay(idle: u32) -> Outcome {
    let ring = PolledRing::new(idle)?;
    each(ms(20), |_| {
        work(ms(2))?;
        Ok(ring.submit()?)
    })
}

/// Needs 6 ms for a frame, but may use only 5 ms of each period.
fn deadline() -> Outcome {
    let period = Nanos::from_micros(16_667);
    sys::set_deadline(ms(5), period)?;
    paced(period, ms(6))
}

/// A thread `compactor` locks much memory every 400 ms. The main thread maps a little memory for
/// each request.
fn search(mib: usize) -> Outcome {
    thread::Builder::new()
        .name("compactor".to_owned())
        .spawn(move || each(ms(400), |_| Ok(Memory::new(mib * MIB)?.lock()?)))?;
    each(ms(10), |_| {
        Memory::new(64 << 10)?.touch();
        Ok(())
    })
}

/// Needs a little more memory for each frame, and gives it all back now and then.
fn grows() -> Outcome {
    let mut kept = Vec::new();
    each(ms(20), |_| {
        let mut more = Memory::new(MIB / 2)?;
        more.touch();
        kept.push(more);
        if kept.len() > 64 {
            kept.clear();
        }
        Ok(())
    })
}

fn bursty(time: Nanos, period: Nanos) -> Outcome {
    each(period, |_| work(time))
}

/// Owner of an interpreter lock, and whether another thread waits for it.
#[derive(Default)]
struct Interpreter {
    taken: bool,
    wanted: bool,
}

/// Two threads share an interpreter lock. A thread that holds it gives it up after 5 ms if the
/// other one wants it.
fn interpreter() -> Outcome {
    let shared = Arc::new((Mutex::new(Interpreter::default()), Condvar::new()));
    let other = Arc::clone(&shared);
    let take = |(state, changed): &(Mutex<Interpreter>, Condvar)| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.taken {
            state.wanted = true;
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (state.taken, state.wanted) = (true, false);
    };
    let give = |(state, changed): &(Mutex<Interpreter>, Condvar)| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.taken = false;
        changed.notify_all();
    };
    thread::Builder::new()
        .name("decode".to_owned())
        .spawn(move || -> Outcome {
            loop {
                take(&other);
                work(ms(5))?;
                give(&other);
                // Like the interpreter, wait until the other thread has taken the lock.
                let wants = || {
                    let state = other.0.lock().unwrap_or_else(PoisonError::into_inner);
                    state.wanted
                };
                while wants() {
                    thread::yield_now();
                }
            }
        })?;
    each(ms(20), |_| {
        take(&shared);
        work(Nanos::from_micros(200))?;
        give(&shared);
        Ok(())
    })
}

/// Forks a process that saves its memory every 700 ms.
fn store(mib: usize) -> Outcome {
    let mut memory = Memory::new(mib * MIB)?;
    // Unlike page faults, this produces no rows.
    memory.lock()?;
    let mut at = 1_usize;
    each(ms(20), |number| {
        if number % 35 == 34 {
            sys::fork(|| {
                sys::rename("kv-save");
                thread::sleep(Duration::from_millis(200));
            })?;
        }
        sys::reap();
        for _ in 0..10 {
            at = at.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            memory.write((at >> 8) % memory.pages());
        }
        Ok(())
    })
}

/// A thread `indexer` holds a lock for 60 ms every 400 ms. The main thread takes the lock in each
/// of its frames.
fn lock() -> Outcome {
    let shared = Arc::new(Mutex::new(()));
    let other = Arc::clone(&shared);
    thread::Builder::new()
        .name("indexer".to_owned())
        .spawn(move || {
            each(ms(400), |_| {
                let _held = other.lock();
                work(ms(60))
            })
        })?;
    each(ms(20), |_| {
        let _held = shared.lock();
        work(ms(1))
    })
}

/// The main thread asks a thread `codec`, which needs 35 ms for each tenth answer.
fn pipe() -> Outcome {
    let (mut questions, mut ask) = std::io::pipe()?;
    let (mut answers, mut answer) = std::io::pipe()?;
    thread::Builder::new()
        .name("codec".to_owned())
        .spawn(move || -> Outcome {
            let mut byte = [0; 1];
            loop {
                questions.read_exact(&mut byte)?;
                work(if byte[0] == 0 { ms(1) } else { ms(35) })?;
                answer.write_all(&byte)?;
            }
        })?;
    each(ms(20), |number| {
        ask.write_all(&[u8::from(number % 10 == 9)])?;
        answers.read_exact(&mut [0; 1])?;
        work(ms(1))
    })
}

/// Uses fresh memory every 25 frames.
fn faults() -> Outcome {
    each(ms(20), |number| {
        if number % 25 == 24 {
            Memory::new(8 * MIB)?.touch();
        }
        work(ms(1))
    })
}

/// Every 12th frame reads a page of a file that is not in memory. The file is the guest's disk.
fn atlas() -> Outcome {
    let disk = File::open(DISK)?;
    let atlas = Memory::of_file(&disk, 32 * MIB)?;
    each(ms(20), |number| {
        if number % 12 == 11 {
            // The kernel reads the pages next to this one, too.
            let page = usize::try_from(number)? / 12 * 256;
            turns_a_page(&atlas, page % atlas.pages());
        }
        work(ms(1))
    })
}

#[inline(never)]
fn turns_a_page(atlas: &Memory, page: usize) {
    std::hint::black_box(atlas.read(page));
}

/// Two jobs with the same period in one thread, in addition to the frames.
fn jobs() -> Outcome {
    each(ms(20), |number| match number % 30 {
        9 => work(ms(35)),
        24 => work(ms(70)),
        _ => work(ms(1)),
    })
}

/// Every 25th frame contains a long system call.
fn calls() -> Outcome {
    let mut bytes = vec![0; 3 * MIB / 2];
    each(ms(20), |number| {
        if number % 25 == 24 {
            sys::random(&mut bytes);
        }
        work(ms(1))
    })
}

/// Every 25th frame waits for a child process that works for 30 ms.
fn children() -> Outcome {
    each(ms(20), |number| {
        if number % 25 == 24 {
            finish(start("thumbnail", &["spin", "30"])?)?;
        }
        work(ms(1))
    })
}

/// Each frame asks another program, which needs 35 ms for each tenth answer.
fn asks(socket: &str) -> Outcome {
    let mut server = loop {
        match UnixStream::connect(socket) {
            Ok(server) => break server,
            // It is not listening yet.
            Err(_) => thread::sleep(Duration::from_millis(2)),
        }
    };
    each(ms(20), |number| {
        server.write_all(&[u8::from(number % 10 == 9)])?;
        server.read_exact(&mut [0; 1])?;
        work(ms(1))
    })
}
