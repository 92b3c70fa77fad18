//! The programs that run in guests. Each one is this binary under a different name.

use std::fs;
use std::io::{BufRead, Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::time::{ClockId, clock_gettime};
use ticktax_inject::{Measured, Plan, Truth};
use ticktax_model::Nanos;
use ticktax_probes::clock::now;
use ticktax_trace::ThreadPriority;

use crate::checks::{Grid, WHOLE_PROCESS};
#[cfg(target_arch = "x86_64")]
use crate::hosts;
use crate::scenario::plan::{CPU, FRAME};
use crate::{pressure, stolen, trials};

/// The argument that makes this binary run one of these programs.
pub(crate) const PROGRAM: &str = "guest-program";

pub(crate) fn program(arguments: &[String]) -> Result<(), Failed> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["inject", plan, truth] => inject(plan, truth),
        ["spin", millis] => {
            spin(now() + time(millis)?);
            Ok(())
        }
        ["hog", begin, millis, truth] => hog(Nanos(begin.parse()?), time(millis)?, truth),
        ["naps", micros] => naps(Duration::from_micros(micros.parse()?)),
        ["stolen", truth] => stolen::program(truth),
        #[cfg(target_arch = "x86_64")]
        ["vm", plan, truth, "-name", _] => hosts::program(plan, truth),
        ["flood", folder] => pressure::flood(folder),
        ["pays", folder, own] => pressure::pays(folder, own),
        ["nothing"] => Ok(()),
        ["paced", readings] => paced(readings),
        ["victim"] => victim(),
        ["fifo-spin", millis] => {
            let own = ThreadPriority::current().ok_or("this thread has no ordinary priority")?;
            own.raise(50)?;
            spin(now() + time(millis)?);
            Ok(())
        }
        ["answers", socket] => answers(socket),
        ["watches", folder, walks] => watches(folder, walks),
        ["debugger", process] => trials::ends::victim::debugger(process),
        ["trial", ref victim @ ..] => trials::victims::run(victim),
        ["measured", ref victim @ ..] => trials::groups::victim::run(victim),
        _ => Err(format!("no program {arguments:?}").into()),
    }
}

fn time(millis: &str) -> Result<Nanos, Failed> {
    Ok(Nanos::from_millis(millis.parse()?))
}

/// Sleeps over and over until it is killed. Its real-time priority keeps its timers punctual.
fn naps(length: Duration) -> Result<(), Failed> {
    let own = ThreadPriority::current().ok_or("this thread has no ordinary priority")?;
    own.raise(50)?;
    loop {
        thread::sleep(length);
    }
}

pub(crate) fn spin(until: Nanos) {
    while now() < until {}
}

pub(crate) fn cpu_time(clock: ClockId) -> Result<Nanos, Failed> {
    let time = clock_gettime(clock)?;
    Ok(Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec()))
}

/// Runs a disturbance and writes its `Truth` to a file.
fn inject(plan: &str, truth: &str) -> Result<(), Failed> {
    let plan: Plan = serde_json::from_slice(&fs::read(plan)?)?;
    let mut done = ticktax_inject::run(&plan)?;
    done.measured.push(Measured {
        time: cpu_time(ClockId::CLOCK_PROCESS_CPUTIME_ID)?,
        method: WHOLE_PROCESS.to_owned(),
    });
    Ok(fs::write(truth, serde_json::to_vec(&done)?)?)
}

/// Spins, starting at the time `begin`, and writes the CPU time that it used to a file.
fn hog(begin: Nanos, length: Nanos, file: &str) -> Result<(), Failed> {
    let left = (begin - now()).max(Nanos::ZERO);
    thread::sleep(Duration::from_nanos(left.0.unsigned_abs()));
    let own = i32::try_from(std::process::id())?;
    let mut truth = truth("hog", own, "", now());
    let before = cpu_time(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    spin(begin + length);
    truth.injected = Some(Measured {
        time: cpu_time(ClockId::CLOCK_THREAD_CPUTIME_ID)? - before,
        method: "CLOCK_THREAD_CPUTIME_ID".to_owned(),
    });
    truth.end = now();
    Ok(fs::write(file, serde_json::to_vec(&truth)?)?)
}

/// Watches a folder four times. Writes the start and the length of each system call to `walks`.
fn watches(folder: &str, walks: &str) -> Result<(), Failed> {
    let mut calls: Vec<(Nanos, Nanos)> = Vec::new();
    let watcher = Inotify::init(InitFlags::empty())?;
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(250));
        let start = now();
        let watch = watcher.add_watch(folder, AddWatchFlags::IN_MODIFY)?;
        calls.push((start, now() - start));
        watcher.rm_watch(watch)?;
    }
    Ok(fs::write(walks, serde_json::to_vec(&calls)?)?)
}

/// Runs a loop that starts a frame every [`FRAME`] and skips missed frames, until standard input
/// closes. Writes to `file` when each frame was due and when it started.
fn paced(file: &str) -> Result<(), Failed> {
    let ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ended);
    thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        end.store(true, Ordering::Relaxed);
    });
    let mut readings = Vec::new();
    let mut grid = Grid::new(now(), FRAME);
    while !ended.load(Ordering::Relaxed) {
        thread::sleep(grid.left(now()));
        let began = now();
        readings.push(grid.frame(began));
        spin(began + Nanos::from_millis(1));
        grid.end(began, now());
    }
    Ok(fs::write(file, serde_json::to_vec(&readings)?)?)
}

/// Executes each line of standard input as a command, and answers it with one byte.
fn victim() -> Result<(), Failed> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["spin", millis] => spin(now() + time(millis)?),
            ["sleep", millis] => {
                thread::sleep(Duration::from_nanos(time(millis)?.0.unsigned_abs()));
            }
            ["inject", plan, truth] => inject(plan, truth)?,
            ["children", count] => children(count.parse()?)?,
            _ => return Err(format!("cannot `{line}`").into()),
        }
        let mut answers = std::io::stdout();
        answers.write_all(b"\n")?;
        answers.flush()?;
    }
    Ok(())
}

/// Answers each byte from a connection, but every tenth one only after 35 ms.
fn answers(socket: &str) -> Result<(), Failed> {
    let listener = UnixListener::bind(socket)?;
    let (mut client, _) = listener.accept()?;
    let mut byte = [0; 1];
    loop {
        client.read_exact(&mut byte)?;
        if byte[0] == 1 {
            thread::sleep(Duration::from_millis(35));
        }
        client.write_all(&byte)?;
    }
}

fn children(count: u64) -> Result<(), Failed> {
    for _ in 0..count {
        let mut child = Command::new(std::env::current_exe()?);
        let status = child.args([PROGRAM, "nothing"]).status()?;
        if !status.success() {
            return Err(format!("a child ended with {status}").into());
        }
    }
    Ok(())
}

/// Returns the `Truth` of a disturbance that starts at `start` and has no events yet.
pub(crate) fn truth(kind: &str, tid: i32, comm: &str, start: Nanos) -> Truth {
    Truth {
        kind: kind.to_owned(),
        cpu: CPU,
        pid: tid,
        tid,
        comm: comm.to_owned(),
        start,
        end: start,
        stopped: false,
        planned: 0,
        events: 0,
        injected: None,
        measured: Vec::new(),
        account: String::new(),
        also: Vec::new(),
        counts: Vec::new(),
        log: Vec::new(),
        log_left_out: 0,
    }
}
