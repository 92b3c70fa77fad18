//! Tests the states of one thread, in a program that spends known times in each of them.

use std::env;
use std::fs::File;
use std::io::{Read, Write, pipe};
use std::os::fd::AsFd;
use std::process::{Command, ExitCode, id};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, raise};
use nix::time::{ClockId, clock_gettime};
use ticktax_model::kernel_words::system_call;
use ticktax_model::victim::{OffCpu, OffCpuReason};
use ticktax_model::{Kind, Nanos, Source};
use ticktax_probes::clock::now;

use super::fixture::{Recorded, RecordingDir, check, close, statement, ticktax};

/// Argument that makes this binary the program whose states are known.
const AS_PROGRAM: &str = "--as-program-with-states";

/// Time that the program spends in each state.
const EACH: Duration = Duration::from_millis(200);

/// Size of a read that takes more than 50 µs.
const LONG_READ: usize = 16 << 20;

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    time.into()
}

/// If this process was started as the program, runs it. Otherwise returns `None`.
pub(crate) fn as_program() -> Option<ExitCode> {
    let is_program = env::args().nth(1).as_deref() == Some(AS_PROGRAM);
    is_program.then(|| {
        spend();
        ExitCode::SUCCESS
    })
}

fn spend() {
    let millis = u16::try_from(EACH.as_millis()).unwrap();
    let each = Nanos::from_millis(millis.into());
    // Reading this clock takes no system call.
    let begin = now();
    while now() - begin < each {}
    thread::sleep(EACH);
    let (mut input, mut output) = pipe().unwrap();
    let writer = thread::spawn(move || {
        thread::sleep(EACH);
        output.write_all(b"x").unwrap();
        output
    });
    input.read_exact(&mut [0]).unwrap();
    let mut silent = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    poll(&mut silent, PollTimeout::from(millis)).unwrap();
    drop(writer.join());
    let end = now() + each;
    while now() < end {
        let left = u64::try_from((end - now()).0).unwrap_or(0);
        thread::park_timeout(Duration::from_nanos(left));
    }
    let mut zero = File::open("/dev/zero").unwrap();
    let mut bytes = vec![1; LONG_READ];
    let begin = cpu_time();
    while cpu_time().saturating_sub(begin) < EACH {
        zero.read_exact(&mut bytes).unwrap();
    }
    let wakes = format!("sleep 0.3; kill -CONT {}", id());
    let mut waker = Command::new("sh").args(["-c", &wakes]).spawn().unwrap();
    raise(Signal::SIGSTOP).unwrap();
    waker.wait().unwrap();
}

/// Returns the total time of a thread's waits for `reason` in a system call and a function whose
/// name contains `function`.
fn waited(recorded: &Recorded, tid: i32, reason: OffCpuReason, place: (&str, &str)) -> Nanos {
    let is_there = |source: &Source| {
        let off = OffCpu::parse(&source.detail);
        off.is_some_and(|off| {
            off.reason == reason
                && off.syscall.unwrap_or_default() == place.0
                && off.function.unwrap_or_default().contains(place.1)
        })
    };
    let is_of_thread = |source: &Source| {
        source
            .thread
            .as_ref()
            .is_some_and(|thread| thread.tid == tid)
    };
    let wanted = |source: &Source| source.kind == Kind::Wait && is_of_thread(source);
    let (time, _) = recorded.sum(|_, source| wanted(source) && is_there(source));
    time
}

pub(crate) fn each_state_has_its_time() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let recording = dir.file("recording.parquet");
    let output = ticktax(&["audit", "--format", "json", "--save"])
        .arg(&recording)
        .arg("--")
        .arg(env::current_exe()?)
        .arg(AS_PROGRAM)
        .output()?;
    let statement = statement(&output)?;
    let victim = statement.victim.as_ref().ok_or("no victim")?;
    let threads = victim.threads.as_ref().ok_or("no threads")?;
    check(threads.balances(), || format!("{threads:#?}"))?;
    let tid = victim.pid.ok_or("no process")?;
    let recorded = Recorded::read(&recording)?;
    let each = EACH.as_secs_f64();
    for (what, reason, place) in [
        (
            "a nap",
            OffCpuReason::Sleeping,
            ("clock_nanosleep", "nanosleep"),
        ),
        ("a pipe", OffCpuReason::Sleeping, ("read", "pipe_read")),
        ("poll", OffCpuReason::Sleeping, ("poll", "poll")),
        ("a futex", OffCpuReason::Sleeping, ("futex", "futex")),
    ] {
        let time = waited(&recorded, tid, reason, place);
        close(what, time.as_secs_f64(), each, 0.01)?;
    }
    let stopped = waited(&recorded, tid, OffCpuReason::Stopped, ("", ""));
    close("stopped", stopped.as_secs_f64(), 0.3, 0.1)?;
    let reads = |source: &Source| system_call(&source.detail) == Some("read");
    let (reading, _) = recorded.sum(|_, source| source.kind == Kind::Task && reads(source));
    close("in read", reading.as_secs_f64(), each, 0.02)?;
    let (timers, count) = recorded.sum(|_, source| &*source.detail == OffCpuReason::Timer.name());
    // The nap, the pipe's writer, poll and the futex.
    check(count >= 4 && timers < Nanos::from_millis(10), || {
        format!("{count} timers that allow {timers}")
    })?;
    let header = recorded.header.victim.as_ref().ok_or("no victim")?;
    let short = header.short_system_calls.as_ref().ok_or("not watched")?;
    let own = short.iter().find(|calls| calls.tid == tid);
    check(own.is_some_and(|calls| calls.count > 10), || {
        format!("{short:?}")
    })
}
