//! Tests whether the model reproduces measurements. Records paced loops on this machine, alone and
//! alongside CPU hogs. Then simulates each recording with the recorded settings, and compares the
//! simulated frame rate with the measured one.
//!
//! `cargo build --release -p ticktax && sudo -E cargo figure control_live [SECONDS [HOGS]]`.
//! Tracing requires root. `setsid` and `stress-ng` must be installed. The hogs run in their own
//! session, as if they had been started in another terminal.
#![allow(
    clippy::print_stdout,
    reason = "what it finds goes to the terminal, as a table for a document"
)]

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use ticktax_bench::live::{PacedLoop, computing, printed, tool};
use ticktax_model::Nanos;
use ticktax_model::comparison::Comparison;

type Outcome<T> = Result<T, Box<dyn Error>>;

const LOOPS: [PacedLoop; 5] = [
    paced(60, 2_000, false),
    paced(60, 5_000, false),
    paced(60, 2_000, true),
    paced(35, 3_000, false),
    paced(100, 1_000, false),
];

const fn paced(rate: u32, work: u32, grid: bool) -> PacedLoop {
    PacedLoop { rate, work, grid }
}

/// First argument of this program when it runs as the loop.
const LOOP: &str = "loop";

fn main() -> Outcome<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let number = |place: usize, otherwise: u32| -> Outcome<u32> {
        Ok(words
            .get(place)
            .map_or(Ok(otherwise), |number| number.parse())?)
    };
    if let Some((LOOP, typed)) = words.split_first().map(|(first, rest)| (&**first, rest)) {
        let paced = PacedLoop::parse(typed).ok_or("name a rate, work and a rule")?;
        paced.run(Nanos::from_secs(number(4, 8)?.into()));
        return Ok(());
    }
    let (seconds, hogs) = (number(0, 8)?, number(1, 4)?);
    let folder = env::temp_dir().join(format!("ticktax-control-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let result = compare(&folder, seconds.max(5), hogs);
    fs::remove_dir_all(&folder)?;
    result
}

fn compare(folder: &Path, seconds: u32, hogs: u32) -> Outcome<()> {
    let (own, tool) = (env::current_exe()?, tool()?);
    println!(
        "| loop | beside | measured FPS | as it was | off | within 3 % |\n\
         |---|---|---|---|---|---|"
    );
    let mut within = 0;
    for (beside, hogs) in [("nothing else", 0), ("programs that compute", hogs)] {
        for (place, paced) in LOOPS.iter().enumerate() {
            let file = folder.join(format!("{place}-{hogs}.parquet"));
            let stress = match hogs {
                0 => None,
                hogs => Some(computing(&["setsid", "--wait"], hogs, seconds + 4)?),
            };
            let recorded = record(&tool, &own, &file, *paced, seconds);
            if let Some(mut stress) = stress {
                stress.wait()?;
            }
            recorded?;
            let control = control(&tool, &file, paced.rate)?;
            within += u32::from(control.as_ref().is_some_and(|control| control.is_within));
            let beside = match hogs {
                0 => beside.to_owned(),
                hogs => format!("{hogs} {beside}"),
            };
            println!(
                "| {} | {beside} | {} |",
                paced.words(),
                words(control.as_ref())
            );
        }
    }
    println!("\n{within} of {} within 3 %.", 2 * LOOPS.len());
    Ok(())
}

/// Records a loop running in its own session.
fn record(tool: &Path, own: &Path, file: &Path, paced: PacedLoop, seconds: u32) -> Outcome<()> {
    let mut audit = Command::new("setsid");
    audit
        .arg("--wait")
        .arg(tool)
        .args(["audit", "--probe", "none", "--output", "/dev/null"]);
    audit.arg("--save").arg(file).arg("--").arg(own).arg(LOOP);
    printed(audit.args(paced.arguments()).arg(seconds.to_string()))?;
    Ok(())
}

/// Simulates a recording with the recorded settings, and compares the simulated frame rate with the
/// recorded one. Returns `None` if no paced loop was detected in the recording.
fn control(tool: &Path, file: &Path, rate: u32) -> Outcome<Option<Control>> {
    let mut sim = Command::new(tool);
    sim.args(["sim", "--format", "json", "--asked", &rate.to_string()]);
    let output = sim.arg("--load").arg(file).output()?;
    let comparison: Comparison = serde_json::from_slice(&output.stdout)
        .map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let control = comparison.effects.first().and_then(|effect| {
        let value = |arm: usize| comparison.arms.get(arm)?.value(effect.metric);
        Some(Control {
            measured: value(effect.base)?,
            predicted: value(effect.arm)?,
            is_within: !effect.contrast.verdict.differs(),
        })
    });
    Ok(control)
}

/// The measured frame rate, and the simulated one for the same settings.
struct Control {
    measured: f64,
    predicted: f64,
    is_within: bool,
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
        if control.is_within { "yes" } else { "no" }
    )
}
