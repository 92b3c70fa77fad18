//! Compares the profile of `ticktax audit --profile` with that of `perf record -e cpu-clock`.
//!
//! `cargo figure profile_shares TICKTAX [seconds] [rounds]` runs as root. `TICKTAX` is the command
//! to measure. In each round, a program on CPU 1 spends 10, 20, 30 and 40 % of its time in four
//! functions, and measures these shares with its own CPU clock. On CPU 0, one thread floods another
//! with datagrams over the loopback device. Both profilers watch the machine in turn.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example that reports"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_inject::shares::{FUNCTIONS, LONGEST, run_functions};
use ticktax_model::profile::Profile;
use ticktax_model::statement::{Class, Statement};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Samples per second and CPU.
const HZ: &str = "999";

/// Number of functions of interrupts that are printed.
const SHOWN: usize = 6;

/// Shares of the four functions, in percent.
type Shares = [f64; 4];

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["work"] => work(),
        ["flood"] => flood(),
        [ticktax] => compare(ticktax, "10", 5),
        [ticktax, seconds] => compare(ticktax, seconds, 5),
        [ticktax, seconds, rounds] => compare(ticktax, seconds, rounds.parse()?),
        _ => Err("usage: cargo figure profile_shares TICKTAX [seconds] [rounds]".into()),
    }
}

/// Keeps the calling thread on one CPU.
fn pin(cpu: usize) -> Outcome {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Prints the addresses of the functions, runs them until the standard input ends, and prints the
/// time that each has used, in nanoseconds.
fn work() -> Outcome {
    pin(1)?;
    println!(
        "{}",
        FUNCTIONS
            .map(|(_, work, _)| (work as usize).to_string())
            .join(" ")
    );
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            drop(std::io::stdin().read(&mut [0]));
            stop.store(true, Ordering::Relaxed);
        }
    });
    let times = run_functions(&stop);
    println!("{}", times.map(|time| time.0.to_string()).join(" "));
    Ok(())
}

/// Sends and receives datagrams until the process is killed.
fn flood() -> Outcome {
    pin(0)?;
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    sender.connect(receiver.local_addr()?)?;
    // The new thread inherits the CPU.
    std::thread::spawn(move || while receiver.recv(&mut [0; 64]).is_ok() {});
    loop {
        sender.send(&[0; 64])?;
    }
}

/// A process that is killed when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Running {
    fn start(mode: &str) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let command = command
            .arg(mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Ok(Self(command.spawn()?))
    }
}

/// The program with the four functions.
struct Worker {
    running: Running,
    lines: BufReader<std::process::ChildStdout>,
    /// Addresses of the functions in its memory.
    addresses: [u64; 4],
}

impl Worker {
    fn start() -> Outcome<Self> {
        let mut running = Running::start("work")?;
        let output = running.0.stdout.take().ok_or("no output")?;
        let mut lines = BufReader::new(output);
        let addresses = numbers(&mut lines)?;
        Ok(Self {
            running,
            lines,
            addresses,
        })
    }

    fn pid(&self) -> u32 {
        self.running.0.id()
    }

    /// Returns the offsets of the functions in their file.
    fn offsets(&self) -> Outcome<[u64; 4]> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid()))?;
        let hex = |number: &str| u64::from_str_radix(number, 16).ok();
        let offset_of = |address: u64| {
            maps.lines().find_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let (begin, end) = words.next()?.split_once('-')?;
                let offset = hex(words.nth(1)?)?;
                let (begin, end) = (hex(begin)?, hex(end)?);
                (begin..end)
                    .contains(&address)
                    .then(|| address - begin + offset)
            })
        };
        let mut offsets = [0; 4];
        for (offset, address) in offsets.iter_mut().zip(self.addresses) {
            *offset = offset_of(address).ok_or("a function is not mapped")?;
        }
        Ok(offsets)
    }

    /// Ends the program. Returns the shares that it measured itself.
    fn stop(mut self) -> Outcome<Shares> {
        drop(self.running.0.stdin.take());
        Ok(shares(numbers(&mut self.lines)?))
    }
}

fn numbers(lines: &mut impl BufRead) -> Outcome<[u64; 4]> {
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
    numbers?.try_into().map_err(|_| "not four numbers".into())
}

fn shares(parts: [u64; 4]) -> Shares {
    let all = parts.iter().sum::<u64>() as f64;
    parts.map(|part| 100.0 * part as f64 / all)
}

/// Returns the index of the function that contains an address or offset, given their starts.
fn function_at(starts: &[u64; 4], place: u64) -> Option<usize> {
    let within = starts.iter().enumerate();
    let within = within.filter(|(_, start)| (**start..**start + LONGEST).contains(&place));
    within.max_by_key(|(_, start)| **start).map(|(nth, _)| nth)
}

/// Findings of one profiler in one round.
struct Found {
    shares: Shares,
    /// Differences from the program's own figures, in percentage points. The largest one.
    error: f64,
    samples: u64,
    /// Share of CPU 0's and CPU 1's time in interrupts and in softirqs, in percent.
    interrupts: f64,
    softirqs: f64,
    /// Share of the time in interrupts by function, in percent.
    functions: BTreeMap<String, f64>,
}

fn compare(ticktax: &str, seconds: &str, rounds: usize) -> Outcome {
    let _flood = Running::start("flood")?;
    let (mut own, mut perf) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Each profiler goes first in half of the rounds.
        if round % 2 == 0 {
            own.push(run(&|worker| by_ticktax(ticktax, seconds, worker))?);
            perf.push(run(&|worker| by_perf(seconds, worker))?);
        } else {
            perf.push(run(&|worker| by_perf(seconds, worker))?);
            own.push(run(&|worker| by_ticktax(ticktax, seconds, worker))?);
        }
    }
    println!("{rounds} rounds of {seconds} s, {HZ} samples per second and CPU");
    report("ticktax", &own);
    report("perf", &perf);
    Ok(())
}

/// Runs the program while `profile` watches it.
fn run(profile: &dyn Fn(&Worker) -> Outcome<Found>) -> Outcome<Found> {
    let worker = Worker::start()?;
    let mut found = profile(&worker)?;
    let truth = worker.stop()?;
    let errors = found
        .shares
        .iter()
        .zip(truth)
        .map(|(share, truth)| (share - truth).abs());
    found.error = errors.fold(0.0, f64::max);
    eprintln!("{:.2?}, in truth {truth:.2?}", found.shares);
    Ok(found)
}

fn report(name: &str, rounds: &[Found]) {
    let spread = |of: &dyn Fn(&Found) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        let (first, last) = (all[0], all[all.len() - 1]);
        format!("{:.2} ({first:.2} to {last:.2})", all[all.len() / 2])
    };
    println!("{name}, medians and ranges:");
    println!(
        "  largest error of a share: {} points",
        spread(&|found| found.error)
    );
    println!(
        "  samples of the program: {}",
        spread(&|found| found.samples as f64)
    );
    println!(
        "  in interrupts: {} % of the CPUs' time",
        spread(&|found| found.interrupts)
    );
    println!(
        "  in softirqs: {} % of the CPUs' time",
        spread(&|found| found.softirqs)
    );
    let mut functions: BTreeMap<&str, f64> = BTreeMap::new();
    for (function, share) in rounds.iter().flat_map(|found| &found.functions) {
        *functions.entry(function).or_default() += share / rounds.len() as f64;
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (function, share) in functions.into_iter().take(SHOWN) {
        println!("    {function}: {share:.1} % of the time in interrupts");
    }
}

fn by_ticktax(ticktax: &str, seconds: &str, worker: &Worker) -> Outcome<Found> {
    let offsets = worker.offsets()?;
    let mut command = Command::new(ticktax);
    let length = format!("{seconds}s");
    command.args(["audit", "--format", "json", "--for", &length]);
    let output = command.arg(format!("--profile={HZ}")).output()?;
    let statement: Statement = serde_json::from_slice(&output.stdout)
        .map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let profile = statement.profile.ok_or("no profile")?;
    let pid = i32::try_from(worker.pid())?;
    let mut times = [0; 4];
    let (mut samples, mut functions) = (0, BTreeMap::new());
    let interrupts = time_of(&profile, Class::Irq);
    for account in &profile.accounts {
        for stack in &account.stacks {
            let innermost = stack.stack.rsplit(';').next().unwrap_or_default();
            if account.class == Class::Irq {
                let name = match innermost {
                    "" => account.name.clone(),
                    function => format!("{function} ({})", account.name),
                };
                *functions.entry(name).or_default() += percent(stack.time.0, interrupts);
            }
            if account.pid == Some(pid)
                && let Some((_, offset)) = innermost.rsplit_once("+0x")
                && let Ok(offset) = u64::from_str_radix(offset, 16)
                && let Some(function) = function_at(&offsets, offset)
            {
                times[function] += u64::try_from(stack.time.0)?;
                samples += stack.samples;
            }
        }
    }
    Ok(Found {
        shares: shares(times),
        error: 0.0,
        samples,
        interrupts: percent(interrupts, profile.time.0),
        softirqs: percent(time_of(&profile, Class::Softirq), profile.time.0),
        functions,
    })
}

fn time_of(profile: &Profile, class: Class) -> i64 {
    let accounts = profile.accounts.iter();
    accounts
        .filter(|account| account.class == class)
        .map(|account| account.time.0)
        .sum()
}

fn percent(part: i64, whole: i64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn by_perf(seconds: &str, worker: &Worker) -> Outcome<Found> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("perf.data");
    let mut record = Command::new("perf");
    record.args([
        "record",
        "-q",
        "-a",
        "-g",
        "-e",
        "cpu-clock",
        "-F",
        HZ,
        "-o",
    ]);
    record.arg(&file).args(["--", "sleep", seconds]);
    if !record.stdout(Stdio::null()).status()?.success() {
        return Err("perf record failed".into());
    }
    read_perf(&file, seconds, worker)
}

/// Reads the samples that `perf script` prints: a line about the thread, and one for each function,
/// innermost first. The address of a function without a name is its offset in the file.
fn read_perf(file: &Path, seconds: &str, worker: &Worker) -> Outcome<Found> {
    let mut script = Command::new("perf");
    script
        .args(["script", "-F", "comm,pid,ip,sym", "-i"])
        .arg(file);
    let text = String::from_utf8_lossy(&script.output()?.stdout).into_owned();
    let (pid, offsets) = (worker.pid().to_string(), worker.offsets()?);
    let (mut counts, mut functions) = ([0_u64; 4], BTreeMap::new());
    let (mut interrupts, mut softirqs) = (0_i64, 0_i64);
    for sample in text.split("\n\n") {
        let mut lines = sample.trim_matches('\n').lines();
        let Some(thread) = lines.next() else { continue };
        let mut frames = lines.filter_map(|line| line.trim().split_once(' '));
        let frames: Vec<(&str, &str)> = frames.by_ref().collect();
        let Some((address, innermost)) = frames.first() else {
            continue;
        };
        let has = |names: &[&str]| {
            let mut functions = frames.iter().map(|(_, function)| function);
            functions.any(|function| names.iter().any(|name| function.contains(name)))
        };
        if has(&["__do_softirq", "handle_softirqs"]) {
            softirqs += 1;
        } else if has(&["sysvec_", "common_interrupt", "handle_irq"]) {
            interrupts += 1;
            *functions.entry((*innermost).to_owned()).or_default() += 1.0;
        }
        if thread.split_whitespace().last() == Some(&*pid)
            && let Ok(address) = u64::from_str_radix(address, 16)
            && let Some(function) = function_at(&offsets, address)
        {
            counts[function] += 1;
        }
    }
    for share in functions.values_mut() {
        *share *= 100.0 / interrupts as f64;
    }
    let cpus = std::thread::available_parallelism()?.get();
    let ideal = seconds.parse::<i64>()? * HZ.parse::<i64>()? * i64::try_from(cpus)?;
    Ok(Found {
        shares: shares(counts),
        error: 0.0,
        samples: counts.iter().sum(),
        interrupts: percent(interrupts, ideal),
        softirqs: percent(softirqs, ideal),
        functions,
    })
}
