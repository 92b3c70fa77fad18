//! A guest from which time is taken at known moments, as a hypervisor would. An audit in the guest
//! must find this time without a probe.

mod debugger;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use serde::{Deserialize, Serialize};
use ticktax_fixture::SplitMix64;
use ticktax_inject::stolen::Stolen;
use ticktax_model::{Moment, Nanos};
use ticktax_probes::clock::now;
use ticktax_store::recording::RecordingReader;

use self::debugger::Debugger;
use crate::boot::{COUNTED, Guest};
use crate::checks::{check, statement_in};
use crate::fixture::CLOUD;
use crate::inside::{Outcome, Tracer, finish, start};
use crate::programs::spin;
use crate::scenario::report_of;

/// The argument that tells this guest what to do.
pub(crate) const VERB: &str = "stolen-guest";
/// JSON file with the intervals in which time was taken.
const TRUTH: &str = "stolen.json";
/// Time that an instruction takes on the guest's clock.
const INSTRUCTION: Nanos = Nanos(4);
/// Lengths of the intervals, in ms.
const LENGTHS: [i64; 4] = [1, 5, 20, 100];
/// Shortest interval that must be found.
const LONG: Nanos = Nanos::from_millis(5);
/// Number of times each length is used, alternately at periodic and at random moments.
const TURNS: usize = 4;
/// Period of the periodic intervals.
const PERIOD: Nanos = Nanos::from_millis(150);
/// Length of a phase in which the guest does the same, but nothing is taken from it.
const UNDISTURBED: Duration = Duration::from_millis(200);

/// Interval in which time was taken.
#[derive(Debug, Serialize, Deserialize)]
struct Taken {
    /// Start of a longer interval, in which other threads can also run.
    begin: Nanos,
    /// End of that interval.
    end: Nanos,
    /// The time taken, which is exact because the guest's clock counts instructions.
    length: Nanos,
}

impl Taken {
    fn contains(&self, stop: Moment) -> bool {
        stop.at >= self.begin && stop.at + stop.length <= self.end
    }

    /// Returns whether the length of `stop` is right to within 10 %.
    fn has_length_of(&self, stop: Moment) -> bool {
        (self.length - stop.length).0.abs() * 10 <= self.length.0
    }
}

/// Runs in the guest.
pub(crate) fn run() -> Outcome {
    let audit = ["audit", "--probe", "none", "--for", "10m"];
    let save = ["--format", "json", "--save", "audit.parquet"];
    let tracer = Tracer::start("audit", &[&audit[..], &save].concat())?;
    // The timers of short sleeps show when a stop began.
    let mut naps = start("naps", &["naps", "200"])?;
    finish(start("stolen", &["stolen", TRUTH])?)?;
    thread::sleep(UNDISTURBED);
    naps.kill()?;
    naps.wait()?;
    tracer.interrupt()
}

/// Takes time from the kernel, and records when.
pub(crate) fn program(truth: &str) -> Result<(), Failed> {
    let stolen = Stolen::new()?;
    let mut random = SplitMix64::new(41);
    let mut taken = Vec::new();
    let lengths = LENGTHS.iter().cycle().take(LENGTHS.len() * TURNS);
    for (number, &length) in lengths.enumerate() {
        if (number / LENGTHS.len()).is_multiple_of(2) {
            let rest = random.between(5_000_000, 60_000_000);
            thread::sleep(Duration::from_nanos(rest.unsigned_abs()));
            spin(now() + Nanos(random.between(0, 5_000_000)));
        } else {
            let next = (now().0 / PERIOD.0 + 1) * PERIOD.0;
            thread::sleep(Duration::from_nanos((next - now().0).unsigned_abs()));
        }
        let (begin, length) = (now(), Nanos::from_millis(length));
        stolen.take(length, INSTRUCTION);
        let end = now();
        taken.push(Taken { begin, end, length });
    }
    Ok(fs::write(truth, serde_json::to_vec(&taken)?)?)
}

pub(crate) fn test() -> Result<(), Failed> {
    let temporary = tempfile::tempdir()?;
    let folder = temporary.path();
    let socket = folder.join("debugger");
    let guest = Guest {
        kernel: CLOUD,
        verb: VERB,
        cmdline: "",
        cpus: 1,
        clock: COUNTED,
        debugger: Some(&socket),
        disk: None,
        files: &[],
    };
    let served = thread::scope(|scope| {
        let debugger = scope.spawn(|| Debugger::serve(&socket));
        let booted = guest.boot(folder);
        // If the guest failed before QEMU started, the debugger would wait for its socket.
        fs::write(folder.join(debugger::OVER), "")?;
        booted?;
        let served = debugger.join().map_err(|_| "the debugger panicked")?;
        Ok::<_, Failed>(served?)
    })?;
    check(served, || "no program was given the privilege".to_owned())?;
    judge(folder)
}

fn judge(folder: &Path) -> Result<(), Failed> {
    let taken: Vec<Taken> = serde_json::from_slice(&fs::read(folder.join(TRUTH))?)?;
    let file = folder.join("audit.parquet");
    let statement = statement_in(folder, "audit")?;
    check(report_of(&file)? == statement, || {
        "the report of the recording is not the audit's statement".to_owned()
    })?;
    check(statement.balances(), || format!("{:?}", statement.balance))?;
    let late = statement.late_timers.ok_or("late timers are unknown")?;
    let recording = RecordingReader::open(file)?;
    let origin = recording.header().begin().ok_or("the audit has no start")?;
    let stops = late.longest.iter().map(|stop| Moment {
        at: origin + stop.at.at,
        ..stop.at
    });
    let stops: Vec<Moment> = stops.collect();
    let long = |taken: &&Taken| taken.length >= LONG;
    let is_found = |taken: &&Taken| {
        let mut stops = stops.iter();
        stops.any(|&stop| taken.contains(stop) && taken.has_length_of(stop))
    };
    let all = taken.iter().filter(long).count();
    let found = taken.iter().filter(long).filter(is_found).count();
    let context = || format!("{found} of {all} were found: {taken:#?}\n{late:#?}");
    check(found * 10 >= all * 9, context)?;
    let is_true = |stop: &Moment| taken.iter().any(|taken| taken.contains(*stop));
    check(stops.iter().all(is_true), context)?;
    check(late.stops.count == stops.len() as u64, context)?;
    let truth: Nanos = taken.iter().map(|taken| taken.length).sum();
    check(late.stops.time <= truth, context)
}
