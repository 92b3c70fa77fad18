//! Causes stalls at known times and of known length, and runs the program they delay, each in a
//! separate process. The delayed program reads the clock continuously, so it notices every delay,
//! regardless of the cause.

use std::env;
use std::error::Error;
use std::hint::spin_loop;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ticktax_fixture::SplitMix64;
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock::now;

use crate::{Outcome, machine};

/// The hidden subcommand that turns this program into the injector of stalls.
pub(crate) const INJECTOR: &str = "recorder-injector";
/// The hidden subcommand that turns this program into the delayed program.
pub(crate) const VICTIM: &str = "recorder-victim";

/// Lengths of the shortest and the longest stall.
const LENGTHS: (Nanos, Nanos) = (Nanos::from_millis(5), Nanos::from_millis(20));
/// Minimum interval between two stalls, long enough for each to become a separate incident.
const APART: Nanos = Nanos::from_secs(5);

/// Shortest delay that the delayed program reports, and also the threshold of the recorder's
/// trigger.
pub(super) const LONG: Nanos = Nanos::from_millis(5);

/// The start and end of a stall, by `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stall {
    pub(super) begin: Nanos,
    pub(super) end: Nanos,
}

/// Returns how many stalls to cause within `length`: as many as fit, but at least one and at most
/// `most`.
pub(super) fn count(length: Nanos, most: i64) -> i64 {
    (length.0 / (2 * APART.0)).clamp(1, most)
}

/// Returns the start and length of each stall. `length` is divided into `count` equal parts, with
/// one stall at a random time in each.
pub(super) fn planned(count: i64, length: Nanos, seed: u64) -> Vec<(Nanos, Nanos)> {
    let mut random = SplitMix64::new(seed);
    let part = Nanos(length.0 / count.max(1));
    let room = (part.0 - APART.0).max(1);
    (0..count)
        .map(|number| {
            let at = Nanos(part.0 * number + random.between(0, room));
            (at, Nanos(random.between(LENGTHS.0.0, LENGTHS.1.0)))
        })
        .collect()
}

/// The delayed program. It always needs the CPU, like a rendering game or a server under load.
/// Dropping this stops the program.
pub(super) struct Victim {
    running: Running,
    gaps: Option<thread::JoinHandle<Vec<Stall>>>,
}

impl Victim {
    pub(super) fn start(cpu: Cpu) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(env::current_exe()?);
        command.args([VICTIM, &cpu.to_string()]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take();
        let running = Running(child);
        let out = out.ok_or("no standard output")?;
        let gaps = thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.filter_map(|line| Stall::parse(&line)).collect()
        });
        Ok(Self {
            running,
            gaps: Some(gaps),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Stops the program. Returns all intervals of at least [`LONG`] during which it did not run.
    pub(super) fn gaps(mut self) -> Result<Vec<Stall>, Box<dyn Error>> {
        self.running.0.kill()?;
        let gaps = self.gaps.take().map(thread::JoinHandle::join);
        let gaps = gaps.transpose().map_err(|_| "the reader panicked")?;
        Ok(gaps.unwrap_or_default())
    }
}

impl Stall {
    fn parse(line: &str) -> Option<Self> {
        let (begin, end) = line.split_once(' ')?;
        Some(Self {
            begin: Nanos(begin.parse().ok()?),
            end: Nanos(end.parse().ok()?),
        })
    }
}

/// A child process that runs this executable. Dropping this kills the process.
pub(super) struct Running(Child);

impl Running {
    /// Starts the injector, which preempts every thread that is not real-time.
    pub(super) fn injector(
        cpu: Cpu,
        count: i64,
        length: Nanos,
        seed: u64,
    ) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new("chrt");
        command.args(["-f", "50"]).arg(env::current_exe()?).args([
            INJECTOR.to_owned(),
            cpu.to_string(),
            count.to_string(),
            length.exact(),
            seed.to_string(),
        ]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("chrt does not start (`apt install util-linux`): {error}"))?;
        Ok(Self(child))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn has_ended(&mut self) -> std::io::Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// Waits until the injector exits, and returns the stalls that it caused.
    pub(super) fn stalls(mut self) -> Result<Vec<Stall>, Box<dyn Error>> {
        let status = self.0.wait()?;
        let mut said = String::new();
        if let Some(mut out) = self.0.stdout.take() {
            std::io::Read::read_to_string(&mut out, &mut said)?;
        }
        if !status.success() {
            return Err(format!("the injector ended with {status}: {said}").into());
        }
        let stalls: Option<Vec<Stall>> = said.lines().map(Stall::parse).collect();
        Ok(stalls.ok_or("the injector printed an invalid stall")?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ignore errors: the process may already have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Main function of the delayed program. Computes until it is killed or the benchmark ends, and
/// prints the intervals in which it did not run.
pub(crate) fn hold(cpu: Cpu) -> Outcome {
    machine::pin(cpu)?;
    let parent = std::os::unix::process::parent_id();
    let mut last = now();
    while std::os::unix::process::parent_id() == parent {
        let until = now() + Nanos::from_millis(500);
        while last < until {
            spin_loop();
            let time = now();
            if time - last >= LONG {
                println!("{} {}", last.0, time.0);
            }
            last = time;
        }
    }
    Ok(())
}

/// Main function of the injector. Causes the stalls, and prints when each one happened.
pub(crate) fn inject(cpu: Cpu, count: i64, length: Nanos, seed: u64) -> Outcome {
    machine::pin(cpu)?;
    let parent = std::os::unix::process::parent_id();
    let started = now();
    for (at, length) in planned(count, length, seed) {
        let left = (started + at - now()).max(Nanos::ZERO);
        thread::sleep(Duration::from_nanos(left.0.unsigned_abs()));
        if std::os::unix::process::parent_id() != parent {
            return Err("the benchmark has ended".into());
        }
        let begin = now();
        while now() < begin + length {
            spin_loop();
        }
        println!("{} {}", begin.0, now().0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{APART, LENGTHS, count, planned};

    #[test]
    fn stalls_are_separate_and_depend_on_the_seed_only() {
        let minutes = |minutes: i64| Nanos::from_secs(60 * minutes);
        assert_eq!((count(minutes(1), 40), count(minutes(10), 40)), (6, 40));
        let stalls = planned(40, minutes(10), 7);
        assert_eq!(stalls, planned(40, minutes(10), 7));
        assert_ne!(stalls, planned(40, minutes(10), 8));
        for pair in stalls.windows(2) {
            assert!(pair[1].0 - pair[0].0 >= APART, "{pair:?}");
        }
        let (min, max) = LENGTHS;
        assert!(stalls.iter().all(|(_, length)| (min..max).contains(length)));
    }
}
