//! Whether the model gives what was measured: loops are recorded on this machine, with nothing else to
//! do and beside programs that compute, and each recording is run again as it was.
//!
//! `cargo build --release -p ticktax && sudo -E cargo run --release -p ticktax-bench --example
//! control_live [SECONDS [HOGS]]`; as root, because only then are recordings traced. Needs `setsid` and
//! `stress-ng`: the programs that compute are in a session of their own, as they would be on another
//! terminal.
#![allow(
    clippy::print_stdout,
    reason = "what it finds goes to the terminal, as a table for a document"
)]

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use ticktax_host::own_thread_cpu_time;
use ticktax_model::Nanos;
use ticktax_model::prediction::{Control, PredictionStatement};
use ticktax_probes::clock::now;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A loop: frames a second, work of each in µs, and whether frames are due on a grid.
type Loop = (u32, u32, bool);

const LOOPS: [Loop; 5] = [
    (60, 2_000, false),
    (60, 5_000, false),
    (60, 2_000, true),
    (35, 3_000, false),
    (100, 1_000, false),
];

/// The first argument of this program when it is the loop.
const LOOP: &str = "loop";

fn main() -> Outcome<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let number = |place: usize, otherwise: u32| -> Outcome<u32> {
        Ok(words.get(place).map_or(Ok(otherwise), |it| it.parse())?)
    };
    if words.first().is_some_and(|word| word == LOOP) {
        let paced = (number(1, 60)?, number(2, 2_000)?, number(3, 0)? == 1);
        paced_loop(paced, number(4, 8)?);
        return Ok(());
    }
    let (seconds, hogs) = (number(0, 8)?, number(1, 4)?);
    let folder = env::temp_dir().join(format!("ticktax-control-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let result = compare(&folder, seconds.max(5), hogs);
    fs::remove_dir_all(&folder)?;
    result
}

/// Works, and sleeps until the next frame is due.
fn paced_loop((rate, work, grid): Loop, seconds: u32) {
    let period = Nanos(1_000_000_000 / i64::from(rate.max(1)));
    let end = now() + Nanos::from_secs(seconds.into());
    let mut due = now();
    while due < end {
        let began = own_thread_cpu_time();
        while own_thread_cpu_time() - began < Nanos(i64::from(work) * 1_000) {}
        let from = if grid { due } else { due.max(now() - period) };
        due = from + period;
        let left = due - now();
        thread::sleep(Duration::from_nanos(u64::try_from(left.0).unwrap_or(0)));
        due = if grid { due.max(now() - period) } else { now() };
    }
}

fn compare(folder: &Path, seconds: u32, hogs: u32) -> Outcome<()> {
    let own = env::current_exe()?;
    let tool = own.parent().and_then(Path::parent);
    let tool = tool.map(|it| it.join("ticktax")).filter(|it| it.is_file());
    let tool = tool.ok_or("build it first: cargo build --release -p ticktax")?;
    println!(
        "| loop | beside | measured FPS | as it was | off | within 3 % |\n\
         |---|---|---|---|---|---|"
    );
    let mut within = 0;
    for (beside, hogs) in [("nothing else", 0), ("programs that compute", hogs)] {
        for (place, paced) in LOOPS.iter().enumerate() {
            let file = folder.join(format!("{place}-{hogs}.parquet"));
            let stress = stress(hogs, seconds + 4)?;
            let recorded = record(&tool, &own, &file, *paced, seconds);
            if let Some(mut stress) = stress {
                stress.wait()?;
            }
            recorded?;
            let control = control(&tool, &file, paced.0)?;
            within += u32::from(control.as_ref().is_some_and(|control| !control.failed));
            let (rate, work, grid) = paced;
            let rule = if *grid { "grid" } else { "remaining" };
            let beside = match hogs {
                0 => beside.to_owned(),
                hogs => format!("{hogs} {beside}"),
            };
            println!(
                "| {rate}/s, {} ms, {rule} | {beside} | {} |",
                f64::from(*work) / 1e3,
                words(control.as_ref())
            );
        }
    }
    println!("\n{within} of {} within 3 %.", 2 * LOOPS.len());
    Ok(())
}

/// Programs that compute for so long, in a session of their own.
fn stress(hogs: u32, seconds: u32) -> Outcome<Option<Child>> {
    if hogs == 0 {
        return Ok(None);
    }
    let mut command = Command::new("setsid");
    command.args(["--wait", "stress-ng", "--quiet", "--cpu"]);
    command
        .arg(hogs.to_string())
        .arg("--timeout")
        .arg(seconds.to_string());
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    thread::sleep(Duration::from_secs(1));
    Ok(Some(child))
}

/// Records a loop, in a session of its own.
fn record(tool: &Path, own: &Path, file: &Path, paced: Loop, seconds: u32) -> Outcome<()> {
    let (rate, work, grid) = paced;
    let mut audit = Command::new("setsid");
    audit
        .arg("--wait")
        .arg(tool)
        .args(["audit", "--probe", "none", "--output", "/dev/null"]);
    audit.arg("--save").arg(file).arg("--").arg(own).arg(LOOP);
    for number in [rate, work, u32::from(grid), seconds] {
        audit.arg(number.to_string());
    }
    let output = audit.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(())
}

/// The control of a recording; none where no rhythm is found in it.
fn control(tool: &Path, file: &Path, rate: u32) -> Outcome<Option<Control>> {
    let mut sim = Command::new(tool);
    sim.args(["sim", "--format", "json", "--asked", &rate.to_string()]);
    let output = sim.arg("--load").arg(file).output()?;
    let told: Result<PredictionStatement, _> = serde_json::from_slice(&output.stdout);
    match told {
        Ok(told) => Ok(told.control),
        Err(_) => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

fn words(control: Option<&Control>) -> String {
    let Some(control) = control else {
        return "no rhythm was found | | | no".to_owned();
    };
    format!(
        "{:.2} | {:.2} | {:+.1} % | {}",
        control.measured,
        control.predicted,
        100.0 * (control.predicted / control.measured - 1.0),
        if control.failed { "no" } else { "yes" }
    )
}
