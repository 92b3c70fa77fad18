//! Measures how many stalls the flight recorder catches. In a stall, another process occupies the
//! CPU that a program needs. Runs `ticktax record` as users do, while stalls of 5 to 20 ms occur at
//! random times.

pub(crate) mod stalls;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};
use stalls::{LONG, Running, Stall, Victim};

/// Number of stalls. It is lower if the benchmark is too short for them all.
const STALLS: i64 = 40;
/// Target: at least this percentage of the stalls (39 of 40) is recorded with the right culprit.
const TARGET: f64 = 97.5;
/// Targets: at most this many false incidents per hour, and at most this many ms between the end of
/// a stall and the recorder's line about it.
const TARGETS: (f64, f64) = (1.0, 3_000.0);
/// A reported wait matches a stall if their times differ by less than this. The times of a stall
/// are known to 1 ms.
const TOLERANCE: Nanos = Nanos::from_millis(3);
/// Time to wait after the last stall, so that the recorder can capture the seconds that follow it
/// and write them to a file.
const SETTLE: Duration = Duration::from_secs(5);
const SEED: u64 = 20_261_122;

/// An incident that the recorder reported: its start and end, when its line was printed, and
/// whether the line names the injector as the main culprit.
#[derive(Clone, Debug, PartialEq)]
struct Caught {
    begin: Nanos,
    end: Nanos,
    line: Option<Nanos>,
    right: bool,
    /// Description of the incident, for messages.
    words: String,
}

/// The lines that the recorder printed, by incident number, and when it printed them.
type Lines = BTreeMap<u64, (Nanos, String)>;

/// Results over all stalls and incidents.
#[derive(Debug, Default)]
struct Score {
    right: u64,
    /// Stalls that the recorder attributed mainly to something other than the injector, each with
    /// the incident's line.
    wrong: Vec<String>,
    /// Stalls that the recorder did not report.
    missed: Vec<String>,
    /// Incidents outside the stalls, in which something other than the injector delayed the
    /// program. The program's own clock confirms that it did not run.
    others: Vec<String>,
    /// False incidents: the program was in fact running.
    wild: Vec<String>,
    /// Delay between the end of a stall and the recorder's line about it, in ms.
    latency: Series,
    /// Delay between the end of an incident and the recorder's line about it, in ms, regardless of
    /// the incident's cause.
    lines: Series,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## recorder");
    let tool = Tool::find()?;
    let length = Nanos::from_secs(60 * bench.choose(i64::from(bench.minutes), 1));
    let count = stalls::count(length, STALLS);
    let folder = tempfile::tempdir()?;
    let victim = Victim::start(bench.measured)?;
    let mut recorder = Recorder::start(&tool, victim.pid(), folder.path())?;
    let mut injector = Running::injector(bench.measured, count, length, SEED)?;
    let pid = injector.pid();
    while !injector.has_ended()? {
        bench.pause(Duration::from_secs(1))?;
        recorder.check()?;
    }
    let stalls = injector.stalls()?;
    bench.pause(SETTLE)?;
    let (lines, said) = recorder.end()?;
    let index = fs::read_to_string(folder.path().join("index.jsonl"))?;
    let found = caught(&index, &lines, pid)?;
    print(&score(&stalls, &victim.gaps()?, &found), length);
    println!("\n{}", said.trim_end());
    Ok(())
}

/// The running recorder, and the lines it prints. Dropping this stops the recorder.
struct Recorder {
    child: Child,
    lines: Receiver<(Nanos, String)>,
    /// Thread that collects the rest of the recorder's output until it exits.
    said: Option<thread::JoinHandle<String>>,
}

impl Recorder {
    fn start(tool: &Tool, victim: u32, folder: &Path) -> Result<Self, Box<dyn Error>> {
        let trigger = format!("wait:pid={victim}>{}", LONG.exact());
        let mut command = tool.command("record");
        command.args(["--trigger", &trigger, "--max-per-hour", "1000", "--dir"]);
        let mut child = command
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().ok_or("no standard output")?;
        let complaints = child.stderr.take().ok_or("no standard error")?;
        let (tell, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Ignore errors: the receiver is dropped when the benchmark ends.
                let _ = tell.send((now(), line));
            }
        });
        let (ready, begun) = channel();
        let said = thread::spawn(move || {
            let mut said = String::new();
            for line in BufReader::new(complaints).lines().map_while(Result::ok) {
                if line.starts_with("Recording CPU") {
                    // Ignore errors: the receiver is dropped when the benchmark ends.
                    let _ = ready.send(());
                } else {
                    said.push_str(&line);
                    said.push('\n');
                }
            }
            said
        });
        let recorder = Self {
            child,
            lines,
            said: Some(said),
        };
        begun
            .recv_timeout(Duration::from_mins(1))
            .map_err(|_| "the recorder does not begin")?;
        Ok(recorder)
    }

    /// Returns an error if the recorder has exited.
    fn check(&mut self) -> Outcome {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the recorder ended: {status}").into()),
        }
    }

    /// Stops the recorder. Returns its lines about incidents, and the rest of its output.
    fn end(mut self) -> Result<(Lines, String), Box<dyn Error>> {
        kill(
            Pid::from_raw(i32::try_from(self.child.id())?),
            Signal::SIGINT,
        )?;
        self.child.wait()?;
        let numbered = |(at, line): (Nanos, String)| Some((number_of(&line)?, (at, line)));
        let lines = self.lines.iter().filter_map(numbered).collect();
        let said = self.said.take().map(thread::JoinHandle::join);
        let said = said.transpose().map_err(|_| "the reader panicked")?;
        Ok((lines, said.unwrap_or_default()))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Ignore errors: the recorder may already have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the number of the incident that a line reports. It follows the date, the time and `UTC`.
/// Returns `None` if the line has no such number.
fn number_of(line: &str) -> Option<u64> {
    line.split_whitespace().nth(3)?.parse().ok()
}

/// Reads the incidents from the recorder's index file.
fn caught(index: &str, lines: &Lines, injector: u32) -> Result<Vec<Caught>, Box<dyn Error>> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let offset = i64::try_from(unix)? - now().0;
    let mut found = Vec::new();
    for line in index.lines() {
        let line: Value = serde_json::from_str(line)?;
        let incident = &line["incident"];
        let Some(at) = incident["at_unix_ms"]
            .as_i64()
            .filter(|_| line["line"] == "incident")
        else {
            continue;
        };
        let end = Nanos(at * 1_000_000 - offset);
        let pids = incident["ran"][0]["pids"].as_array();
        let right = pids.is_some_and(|pids| pids.iter().any(|pid| *pid == injector));
        let number = line["number"].as_u64().unwrap_or(0);
        found.push(Caught {
            begin: end - Nanos(incident["lasted_ns"].as_i64().unwrap_or(0)),
            end,
            line: lines.get(&number).map(|(at, _)| *at),
            right,
            words: lines
                .get(&number)
                .map_or_else(String::new, |(_, line)| line.clone()),
        });
    }
    Ok(found)
}

/// Matches the reported incidents with the injected stalls, and with all other times when the
/// program did not run.
fn score(stalls: &[Stall], gaps: &[Stall], found: &[Caught]) -> Score {
    let overlap = |stall: &Stall, incident: &Caught| {
        incident.begin < stall.end + TOLERANCE && incident.end > stall.begin - TOLERANCE
    };
    let mut score = Score::default();
    for stall in stalls {
        let mut caught = found.iter().filter(|incident| overlap(stall, incident));
        let Some(first) = caught
            .clone()
            .find(|incident| incident.right)
            .or_else(|| caught.next())
        else {
            score.missed.push(describe(stall, gaps));
            continue;
        };
        if first.right {
            score.right += 1;
        } else {
            let words = format!("{}; it was {}", first.words, describe(stall, gaps));
            score.wrong.push(words);
        }
        if let Some(line) = first.line {
            score.latency.push((line - stall.end).0 as f64 / 1e6);
        }
    }
    for incident in found {
        if let Some(line) = incident.line {
            score.lines.push((line - incident.end).0 as f64 / 1e6);
        }
        let is_in = |all: &[Stall]| all.iter().any(|stall| overlap(stall, incident));
        if is_in(stalls) {
            continue;
        }
        let whose = if is_in(gaps) {
            &mut score.others
        } else {
            &mut score.wild
        };
        whose.push(incident.words.clone());
    }
    score
}

/// Describes a stall, including how long the program did not run around that time, according to its
/// own clock readings.
fn describe(stall: &Stall, gaps: &[Stall]) -> String {
    let lasted = stall.end - stall.begin;
    let around =
        |gap: &&Stall| gap.begin < stall.end + TOLERANCE && gap.end > stall.begin - TOLERANCE;
    let own = gaps.iter().filter(around).map(|gap| gap.end - gap.begin);
    match own.max() {
        Some(own) => format!("a stall of {lasted}, in which the program did not run for {own}"),
        None => format!("a stall of {lasted}, in which the program never stood still for {LONG}"),
    }
}

fn print(score: &Score, length: Nanos) {
    let (wrong, missed) = (score.wrong.len() as u64, score.missed.len() as u64);
    let all = score.right + wrong + missed;
    let share = 100.0 * score.right as f64 / all.max(1) as f64;
    let per_hour = score.wild.len() as f64 * 3_600.0 / length.as_secs_f64();
    let (wild, latency) = TARGETS;
    let slowest = score.latency.quantile(1.0).max(score.lines.quantile(1.0));
    let met = share >= TARGET && per_hour <= wild && slowest <= latency;
    let mut table = Table::new([
        "stalls of 5 to 20 ms",
        "right culprit",
        "wrong culprit",
        "missed",
        "others' stalls",
        "false captures",
        "an hour",
        "stall to line, ms",
        "any incident's, most",
        "target",
    ]);
    table.row([
        format!("{all} in {length}"),
        score.right.to_string(),
        wrong.to_string(),
        missed.to_string(),
        score.others.len().to_string(),
        score.wild.len().to_string(),
        format!("{per_hour:.1}"),
        format!("{:.0}", score.latency.median()),
        format!("{slowest:.0}"),
        format!(
            "≥ {TARGET} %, ≤ {wild} an hour, ≤ {latency:.0} ms: {}",
            if met { "met" } else { "not met" }
        ),
    ]);
    table.print();
    println!(
        "\nothers' stalls: incidents while nothing was injected, in which the program did not run for {LONG} or more by its \
         own clock; false captures: in which it did. From a stall's end to its line: 2 s of it are what is waited for \
         what follows it."
    );
    for (what, lines) in [
        ("wrong culprit", &score.wrong),
        ("missed", &score.missed),
        ("others' stall", &score.others),
        ("false capture", &score.wild),
    ] {
        for line in lines {
            println!("{what}: {line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Caught, Stall, number_of, score};

    #[test]
    fn each_stall_is_caught_once_and_other_incidents_are_wild() {
        let ms = Nanos::from_millis;
        let stall = |begin| Stall {
            begin: ms(begin),
            end: ms(begin + 10),
        };
        let caught = |begin, right| Caught {
            begin: ms(begin),
            end: ms(begin + 10),
            line: Some(ms(begin + 2_010)),
            right,
            words: begin.to_string(),
        };
        let stalls = [stall(1_000), stall(10_000), stall(20_000)];
        let found = [
            caught(1_000, true),
            caught(9_999, false),
            caught(15_000, true),
            caught(17_000, false),
        ];
        let score = score(&stalls, &[stall(1_000), stall(14_999)], &found);
        let none = "a stall of 10.0 ms, in which the program never stood still for 5.00 ms";
        assert_eq!(score.right, 1);
        assert_eq!(score.wrong, [format!("9999; it was {none}")]);
        assert_eq!(score.missed, [none]);
        assert_eq!(
            (score.others, score.wild),
            (vec!["15000".to_owned()], vec!["17000".to_owned()])
        );
        assert!((score.latency.quantile(1.0) - 2_000.0).abs() < 1.5);
    }

    #[test]
    fn the_number_of_an_incident_follows_its_time() {
        let line = "2026-11-22 02:10:31.123 UTC  41  render (4130) of gamesrv waited";
        assert_eq!(number_of(line), Some(41));
        assert_eq!(number_of("Recording"), None);
    }
}
