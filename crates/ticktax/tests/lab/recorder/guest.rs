//! Runs an agent with a recorder in the guest while the machine changes.
//!
//! The guest checks nothing. It writes to [`STALLS`] what it did and when, and returns that file
//! together with all of the agent's files.

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use nix::unistd::{Pid, gettid};
use serde_json::{Value, json};
use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_lab::guest::TOOLS;
use ticktax_model::machine::ClockOffsets;
use ticktax_model::{Cpu, Nanos};

use crate::inside::COMMAND;

/// The argument that tells this guest what to do.
pub(crate) const VERB: &str = "recorder-guest";
/// File with one line of JSON for each stall that the guest caused.
pub(super) const STALLS: &str = "stalls.jsonl";
/// JSON file with the agent's exit code; how far the wall clock and the boot clock are ahead of the
/// monotonic clock; and when the metrics were read and when the agent had exited.
pub(super) const ENDED: &str = "ended.json";
/// File with the metrics just before the agent stopped.
pub(super) const PAGE: &str = "page.txt";
/// Prefix of the facts files' names, before the name of the table.
pub(super) const FACTS_FILE: &str = "facts.";
/// File that contains the agent's messages.
pub(super) const SAID: &str = "agent.txt";
/// Name of the thread that the stalls delay.
pub(super) const VICTIM: &str = "held-up";
/// Length of each stall, which is three times the trigger's threshold.
pub(super) const STALL: Nanos = Nanos::from_millis(300);
/// Amount by which the wall clock is set forward and then back.
pub(super) const STEP: Nanos = Nanos::from_secs(3_600);

/// Where the agent keeps its incidents, serves its metrics and writes its facts.
const INCIDENTS: &str = "/tmp/incidents";
const SOCKET: &str = "/tmp/metrics.sock";
const FACTS: &str = "/tmp/facts";
/// Length of the suspend, in whole seconds of the machine's battery-backed clock.
const ASLEEP: &str = "+6";
/// Number of times to check whether something has happened, and the time between checks. A slow
/// check delays the test but does not change its results.
const LOOKS: u32 = 900;
const PAUSE: Duration = Duration::from_millis(200);

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Runs all steps, and leaves the results in the current directory.
pub(crate) fn run() -> Outcome {
    let clocks = clocks()?;
    let mut agent = Agent::start()?;
    let mut log = File::create(STALLS)?;
    let mut stalls = 0;
    let mut stall_during = |what: &str, cpu: u32, change: &mut dyn FnMut() -> Outcome| {
        let line = stall(what, Cpu(cpu))?;
        writeln!(log, "{line}")?;
        // By now, the recorder has noticed the stall. Its window stays open for 2 s.
        thread::sleep(Duration::from_millis(500));
        change()?;
        stalls += 1;
        agent.has_indexed(stalls)
    };
    // CPU 1 goes offline while a window is open, stays offline for a while, and returns.
    stall_during("before a CPU leaves", 1, &mut || set_online(false))?;
    stall_during("while a CPU is away", 0, &mut || Ok(()))?;
    set_online(true)?;
    stall_during("on the CPU that is back", 1, &mut || Ok(()))?;
    // The wall clock is set forward and back while a window is open.
    stall_during("before the clock is set", 1, &mut || step(STEP))?;
    stall_during("an hour later by the clock", 1, &mut || step(-STEP))?;
    stall_during("with the clock set back", 1, &mut || Ok(()))?;
    let awake = self::clocks()?.boot;
    stall_during("before the machine sleeps", 1, &mut || suspend())?;
    let asleep = self::clocks()?.boot - awake;
    stall_during("when it is awake again", 1, &mut || Ok(()))?;
    fs::write(PAGE, page()?)?;
    let counted = ticktax_probes::clock::now();
    let code = agent.end()?;
    let over = ticktax_probes::clock::now();
    let outcome = json!({
        "wall_ahead_ns": clocks.wall.0,
        "asleep_ns": asleep.0,
        "counted_ns": counted.0,
        "over_ns": over.0,
        "code": code,
    });
    fs::write(ENDED, outcome.to_string())?;
    for entry in fs::read_dir(INCIDENTS)? {
        let from = entry?.path();
        let is_kept = from
            .extension()
            .is_some_and(|extension| extension == "parquet" || extension == "jsonl");
        if let Some(name) = from.file_name().filter(|_| is_kept) {
            fs::copy(&from, name)?;
        }
    }
    take_facts()
}

/// Copies the facts files to the current directory, without subdirectories.
fn take_facts() -> Outcome {
    for table in fs::read_dir(FACTS)? {
        let table = table?;
        // Skip the lock file in this directory.
        if !table.file_type()?.is_dir() {
            continue;
        }
        for day in fs::read_dir(table.path())? {
            let day = day?;
            for part in fs::read_dir(day.path())? {
                let part = part?;
                let name = [table.file_name(), day.file_name(), part.file_name()];
                let name = name
                    .map(|part| part.to_string_lossy().into_owned())
                    .join(".");
                fs::copy(part.path(), format!("{FACTS_FILE}{name}"))?;
            }
        }
    }
    Ok(())
}

/// The running agent. It does not have to be stopped, because the guest ends with this program.
struct Agent(Child);

impl Agent {
    /// Starts the agent, and waits until it traces events. The guest has no other users, so the
    /// agent stays root but drops its rights.
    fn start() -> Outcome<Self> {
        let mut command = Command::new(Path::new(TOOLS).join(COMMAND));
        command.args(["agent", "--every", "1s", "--trigger"]);
        command.arg(format!("wait:comm={VICTIM}>{}ms", STALL.0 / 3_000_000));
        command.args(["--listen", &format!("unix:{SOCKET}")]);
        command.args(["--incidents", INCIDENTS, "--ring-mib", "16"]);
        command.args(["--facts", FACTS]);
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create("agent.lines")?)
            .stderr(File::create(SAID)?)
            .spawn()?;
        let mut agent = Self(child);
        agent.until("it does not watch", || {
            Ok(fs::read_to_string(SAID)?.contains("Recording CPU"))
        })?;
        Ok(agent)
    }

    fn has_indexed(&mut self, count: usize) -> Outcome {
        let index = Path::new(INCIDENTS).join("index.jsonl");
        self.until(&format!("incident {count} is missing"), || {
            let text = fs::read_to_string(&index)?;
            Ok(text.matches("\"line\":\"incident\"").count() >= count)
        })
    }

    fn until(&mut self, why_not: &str, mut holds: impl FnMut() -> Outcome<bool>) -> Outcome {
        for _ in 0..LOOKS {
            if holds()? {
                return Ok(());
            }
            if let Some(status) = self.0.try_wait()? {
                let messages = fs::read_to_string(SAID)?;
                return Err(format!("the agent ended with {status}: {messages}").into());
            }
            thread::sleep(PAUSE);
        }
        Err(why_not.into())
    }

    /// Stops the agent as a service manager would. Returns its exit code.
    fn end(mut self) -> Outcome<Option<i32>> {
        kill(Pid::from_raw(i32::try_from(self.0.id())?), Signal::SIGTERM)?;
        Ok(self.0.wait()?.code())
    }
}

/// A thread that always needs its CPU. It therefore waits from the very start of a stall, even if
/// the host delays the guest's CPU. A thread that a timer had to wake first might start waiting
/// only at the end of the stall.
struct Victim {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Victim {
    fn start(cpu: Cpu) -> Outcome<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = thread::Builder::new()
            .name(VICTIM.to_owned())
            .spawn(move || {
                // If this fails, the receiving end reports the error.
                let _ = sender.send(gettid());
                while !until.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })?;
        let mut only = CpuSet::new();
        only.set(cpu.index())?;
        sched_setaffinity(receiver.recv()?, &only)?;
        Ok(Self { ended, thread })
    }

    /// Ends the thread. The thread exits as soon as it runs again.
    fn end(self) -> Outcome {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the victim panicked".into())
    }
}

/// Preempts the victim once. Returns a description of the stall, including the wall-clock times
/// before and after it.
fn stall(what: &str, cpu: Cpu) -> Outcome<Value> {
    let victim = Victim::start(cpu)?;
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(Schedule::every(Nanos(STALL.0 * 4), STALL))
        .duration(STALL);
    let after = unix_ms()?;
    let truth = ticktax_inject::run(&plan)?;
    victim.end()?;
    let event = truth.log.first().ok_or("nothing was injected")?;
    Ok(json!({
        "what": what,
        "cpu": cpu.0,
        "pid": truth.pid,
        "start_ns": event.start.0,
        "length_ns": event.length.0,
        "after_unix_ms": after,
        "before_unix_ms": unix_ms()?,
    }))
}

fn set_online(online: bool) -> Outcome {
    let file = "/sys/devices/system/cpu/cpu1/online";
    fs::write(file, if online { "1" } else { "0" })
        .map_err(|error| format!("cannot write {file}: {error}").into())
}

fn step(by: Nanos) -> Outcome {
    let now = clock_gettime(ClockId::CLOCK_REALTIME)?;
    let seconds = now.tv_sec() + by.0 / 1_000_000_000;
    Ok(clock_settime(
        ClockId::CLOCK_REALTIME,
        TimeSpec::new(seconds, now.tv_nsec()),
    )?)
}

/// Suspends the machine until the alarm on its battery-backed clock wakes it.
fn suspend() -> Outcome {
    let offered = fs::read_to_string("/sys/power/state")?;
    let state = if offered.contains("mem") {
        "mem"
    } else {
        "freeze"
    };
    for (file, words) in [
        ("/sys/class/rtc/rtc0/wakealarm", ASLEEP),
        ("/sys/power/state", state),
    ] {
        fs::write(file, words).map_err(|error| {
            format!(
                "cannot write {words} to {file} of {}: {error}",
                offered.trim()
            )
        })?;
    }
    Ok(())
}

fn clocks() -> Outcome<ClockOffsets> {
    ticktax_host::clock_offsets().ok_or_else(|| "no clock can be read".into())
}

fn unix_ms() -> Outcome<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_millis())?)
}

fn page() -> Outcome<String> {
    let mut stream = UnixStream::connect(SOCKET)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, page) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    Ok(page.to_owned())
}
