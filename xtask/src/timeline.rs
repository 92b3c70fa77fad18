//! `cargo xtask timeline`: measures timeline pages with one million and ten million spans. Prints
//! tables for docs/benchmarks.md: how long it takes to write the pages, and how much time and
//! memory Chromium needs to open them, compared with speedscope. It takes ten minutes, and requires
//! Node and Chromium.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{root, screens};

/// Node package that opens and measures pages.
const MEASURE: &str = "bench/timeline";
/// Simulated times that produce one million and ten million spans.
const LENGTHS: [(&str, &str); 2] = [("1 M", "5.45s"), ("10 M", "54.5s")];
/// Number of times each page is written and opened.
const ROUNDS: usize = 5;
/// The viewers to compare: first for the recording of one million spans, then for ten million.
const PEERS: [&[&str]; 2] = [&["ticktax", "speedscope"], &["ticktax"]];
/// Libraries that could draw a timeline, compared on a million spans.
const LIBRARIES: [&str; 3] = ["echarts", "flame-chart-js", "vis-timeline"];

/// Measures with `binary`, or with a new build if it is `None`. With `libraries`, compares
/// libraries that could draw a million spans instead.
pub(crate) fn measure(binary: Option<&str>, libraries: bool) -> Result<String, String> {
    let binary = match binary {
        Some(path) => PathBuf::from(path),
        None => screens::built()?,
    };
    let folder = std::env::temp_dir().join(format!("ticktax-timeline-{}", std::process::id()));
    fs::create_dir(&folder).map_err(|error| format!("cannot make a folder: {error}"))?;
    let tables = tables(&binary, &folder, libraries);
    // Ignore errors: cleanup is best effort.
    let _ = fs::remove_dir_all(&folder);
    tables
}

fn tables(binary: &Path, folder: &Path, libraries: bool) -> Result<String, String> {
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--silent"])
        .current_dir(root().join(MEASURE));
    run(&mut npm)?;
    let mut out =
        "| spans | recording | report | with its page | most memory, without and with | page |\n"
            .to_owned();
    out.push_str("| --: | --: | --: | --: | --: | --: |\n");
    let mut opened = String::new();
    let lengths = if libraries {
        &LENGTHS[..1]
    } else {
        &LENGTHS[..]
    };
    for ((name, length), peers) in lengths.iter().zip(PEERS) {
        let recording = simulated(binary, folder, length)?;
        let page = folder.join("timeline.html");
        let file = recording.display().to_string();
        let html = page.display().to_string();
        let report = ["report", &file, "--audit"];
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            without.push(taken(binary, &report)?);
            with.push(taken(binary, &[&report[..], &["--html", &html]].concat())?);
        }
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            out,
            "| {name} | {:.1} MB | {} | {} | {:.0}, {:.0} MB | {:.1} MB |",
            bytes(&recording) as f64 / 1e6,
            seconds(&without),
            seconds(&with),
            without.iter().map(|run| run.1).max().unwrap_or(0) as f64 / 1e3,
            with.iter().map(|run| run.1).max().unwrap_or(0) as f64 / 1e3,
            bytes(&page) as f64 / 1e6,
        );
        let subjects = if libraries { &LIBRARIES[..] } else { peers };
        let mut node = Command::new("node");
        node.args(["measure.mjs", &html, &ROUNDS.to_string()])
            .args(subjects)
            .current_dir(root().join(MEASURE));
        opened.push_str(&run(&mut node)?);
    }
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    Ok(format!("{out}\nLoad average {}\n\n{opened}", load.trim()))
}

/// Simulates a recording of a busy machine with four CPUs and 46,000 spans per second on each.
fn simulated(binary: &Path, folder: &Path, length: &str) -> Result<PathBuf, String> {
    let mut scenario = format!(
        "length = \"{length}\"\nseed = 11\n[machine]\ncpus = 4\nhz = 1000\npolicy = \"fair\"\n\
         timers = \"high-resolution\"\ntick = \"nohz-idle\"\ncosts = {{ tick = \"3us\", timer = \"2us\" }}\n\
         [[task]]\nname = \"game\"\ncpu = 0\n\
         program = [{{ late = \"60us ± 20us\" }}, {{ pace = {{ period = \"16.7ms\" }} }}, \"frame\", {{ work = \"5ms ± 1ms\" }}]\n"
    );
    for cpu in 0..4 {
        for (name, every, work) in [("proxy", "150us", "40us"), ("store", "400us", "90us")] {
            let _ = write!(
                scenario,
                "[[task]]\nname = \"{name}{cpu}\"\ncpu = {cpu}\n\
                 program = [{{ arrive = \"exp {every}\" }}, {{ work = \"exp {work}\" }}]\n"
            );
        }
        let _ = write!(
            scenario,
            "[[interrupt]]\nname = \"eth{cpu}\"\ncpu = {cpu}\ninterval = \"exp 60us\"\ncost = \"2us\"\nsoftirq = \"5us\"\n"
        );
    }
    let (toml, recording) = (folder.join("busy.toml"), folder.join("busy.parquet"));
    fs::write(&toml, scenario).map_err(|error| format!("cannot write a scenario: {error}"))?;
    let mut sim = Command::new(binary);
    sim.args(["sim", "--load"]).arg(&toml);
    sim.args(["--resample", "1", "--save"]).arg(&recording);
    run(&mut sim)?;
    Ok(recording)
}

/// Returns how long a command takes, and its peak memory in kB.
#[expect(
    clippy::disallowed_methods,
    reason = "a stopwatch, not a time of a recording"
)]
fn taken(binary: &Path, arguments: &[&str]) -> Result<(Duration, u64), String> {
    let begun = Instant::now();
    let mut command = Command::new(binary);
    command
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot run {}: {error}", binary.display()))?;
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        most = most.max(number.and_then(|word| word.parse().ok()).unwrap_or(0));
        match child.try_wait() {
            Ok(None) => thread::sleep(Duration::from_millis(5)),
            Ok(Some(ended)) if ended.success() => return Ok((begun.elapsed(), most)),
            Ok(Some(ended)) => {
                return Err(format!("ticktax {} failed: {ended}", arguments.join(" ")));
            }
            Err(error) => return Err(format!("cannot wait for ticktax: {error}")),
        }
    }
}

/// Formats the median, the minimum and the maximum of the times.
fn seconds(all: &[(Duration, u64)]) -> String {
    let mut all: Vec<f64> = all.iter().map(|run| run.0.as_secs_f64()).collect();
    all.sort_by(f64::total_cmp);
    match (all.first(), all.get(all.len() / 2), all.last()) {
        (Some(least), Some(median), Some(most)) => {
            format!("{median:.2} s ({least:.2} to {most:.2})")
        }
        _ => String::new(),
    }
}

/// Runs a command, and returns its output.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{command:?} failed: {}", output.status))
    }
}
