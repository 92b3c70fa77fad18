//! Compares predictions with trials. Records a loop, predicts how a different setting would affect
//! it, and then tries that setting on the same running loop.
//!
//! `cargo build --release -p ticktax && sudo -E cargo figure predict_proven [BLOCKS]`. Requires
//! `stress-ng`, whose CPU hogs run in the loop's session.
#![allow(
    clippy::print_stdout,
    reason = "what it finds goes to the terminal, as a table for a document"
)]

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};
use std::{env, fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_bench::live::{PacedLoop, computing, printed, tool};
use ticktax_model::Nanos;
use ticktax_model::comparison::{ArmEffect, Comparison, Effect, Scale};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// First argument of this program when it runs as the loop.
const LOOP: &str = "loop";
/// Name of the loop's process, and of its task in the simulation.
const NAME: &str = "predict_proven";
/// Maximum duration of a case, in seconds.
const LONGEST: u32 = 900;
/// Length of the loop's recording. [`RUN`] is the length of each run in the trial.
const RECORDED: &str = "8s";
const RUN: &str = "3s";

/// A loop, the number of CPU hogs that run alongside it, and the setting to try, both as the model
/// expects it and as the machine does.
struct Case {
    paced: PacedLoop,
    beside: u32,
    modelled: &'static str,
    tried: &'static str,
}

const CASES: [Case; 6] = [
    Case {
        paced: PacedLoop {
            rate: 60,
            work: 2_000,
            grid: false,
        },
        beside: 0,
        modelled: "slack=2ms",
        tried: "proc.timer_slack=now,2000000",
    },
    Case {
        paced: PacedLoop {
            rate: 60,
            work: 2_000,
            grid: true,
        },
        beside: 0,
        modelled: "slack=2ms",
        tried: "proc.timer_slack=now,2000000",
    },
    Case {
        paced: PacedLoop {
            rate: 100,
            work: 1_000,
            grid: false,
        },
        beside: 0,
        modelled: "slack=1us",
        tried: "proc.timer_slack=now,1000",
    },
    Case {
        paced: PacedLoop {
            rate: 60,
            work: 5_000,
            grid: false,
        },
        beside: 4,
        modelled: "task.predict_proven.nice=-10",
        tried: "proc.nice=now,-10",
    },
    Case {
        paced: PacedLoop {
            rate: 60,
            work: 5_000,
            grid: false,
        },
        beside: 4,
        modelled: "task.predict_proven.nice=10",
        tried: "proc.nice=now,10",
    },
    Case {
        paced: PacedLoop {
            rate: 100,
            work: 2_000,
            grid: true,
        },
        beside: 4,
        modelled: "task.predict_proven.nice=10",
        tried: "proc.nice=now,10",
    },
];

/// A running loop. Dropping it stops the loop.
struct Going(Child);

impl Drop for Going {
    fn drop(&mut self) {
        // Ignore errors: the loop may already have exited.
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

fn main() -> Outcome<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    if let Some((LOOP, typed)) = words.split_first().map(|(first, rest)| (&**first, rest)) {
        let paced = PacedLoop::parse(typed).ok_or("name a rate, work and a rule")?;
        paced.run(Nanos::from_secs(LONGEST.into()));
        return Ok(());
    }
    let blocks = words.first().map_or(Ok(8), |word| word.parse::<u32>())?;
    let (tool, own) = (tool()?, env::current_exe()?);
    let folder = tempfile::tempdir()?;
    println!(
        "| loop | beside | in the model | tried | metric | predicted | proven | off, points |\n\
         |---|---|---|---|---|---|---|--:|"
    );
    for case in &CASES {
        // If a case fails, continue with the others.
        match compare(&tool, &own, folder.path(), case, blocks) {
            Ok(comparison) => {
                for effect in &comparison.effects {
                    println!("| {} | {} |", words_of(case), line(&comparison, effect));
                }
            }
            Err(error) => println!(
                "| {} | nothing: {} | | | |",
                words_of(case),
                error.to_string().trim().replace('\n', " ")
            ),
        }
    }
    Ok(())
}

fn words_of(case: &Case) -> String {
    let beside = match case.beside {
        0 => "nothing else".to_owned(),
        count => format!("{count} programs that compute"),
    };
    format!(
        "{} | {beside} | `{}` | `{}`",
        case.paced.words(),
        case.modelled,
        case.tried
    )
}

/// Records the loop of a case, predicts how the setting would affect it, and tries the setting.
fn compare(
    tool: &Path,
    own: &Path,
    folder: &Path,
    case: &Case,
    blocks: u32,
) -> Outcome<Comparison> {
    let beside = match case.beside {
        0 => None,
        count => Some(Going(computing(&[], count, LONGEST)?)),
    };
    let mut command = Command::new(own);
    let going = Going(command.arg(LOOP).args(case.paced.arguments()).spawn()?);
    thread::sleep(std::time::Duration::from_secs(1));
    let pid = going.0.id().to_string();
    let (recording, predicted) = (folder.join("loop.parquet"), folder.join("predicted.json"));
    let mut audit = Command::new(tool);
    audit.args([
        "audit",
        "--probe",
        "none",
        "--output",
        "/dev/null",
        "--pid",
        &pid,
    ]);
    printed(audit.args(["--for", RECORDED, "--save"]).arg(&recording))?;
    let mut sim = Command::new(tool);
    sim.args([
        "sim",
        "--format",
        "json",
        "--asked",
        &case.paced.rate.to_string(),
    ]);
    sim.args(["--program", NAME, "--vary", case.modelled, "--load"]);
    let output = sim.arg(&recording).output()?;
    let prediction: Comparison = serde_json::from_slice(&output.stdout)
        .map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let mut control = prediction.effects.iter();
    if let Some(effect) = control.find(|effect| effect.contrast.verdict.differs()) {
        let off = effect
            .contrast
            .effect
            .map_or(f64::NAN, |off| 100.0 * off.value);
        return Err(format!("the control failed, its frame rate is {off:+.1} % off").into());
    }
    fs::write(&predicted, output.stdout)?;
    let mut trial = Command::new(tool);
    trial.args([
        "try", case.tried, "--pid", &pid, "--for", RUN, "--format", "json",
    ]);
    trial.args([
        "--metric",
        "fps,cpu",
        "--noise-runs",
        "6",
        "--blocks",
        &blocks.to_string(),
    ]);
    trial.arg("--journal").arg(folder.join("journal"));
    let trial = printed(trial.arg("--predicted").arg(&predicted))?;
    drop((going, beside));
    Ok(serde_json::from_slice(&trial)?)
}

/// Formats one line: the predicted and the measured effect on a metric, and the error of the
/// prediction.
fn line(trial: &Comparison, compared: &ArmEffect) -> String {
    let percent = |value: f64| format!("{:+.2} %", 100.0 * value);
    let of_first = |(value, low, high): (f64, f64, f64)| match compared.scale {
        Scale::Relative => format!("{} ({} to {})", percent(value), percent(low), percent(high)),
        Scale::Absolute => format!("{value:+.2} ({low:+.2} to {high:+.2})"),
    };
    let effect = |effect: &Effect| of_first((effect.value, effect.low, effect.high));
    let predicted = compared.predicted.as_ref();
    let off = predicted.and_then(|predicted| predicted.error);
    let predicted = predicted.map(|predicted| effect(&predicted.effect));
    let proven = compared.contrast.effect.as_ref().map(effect);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    format!(
        "{} | {} | {} | {}",
        trial.metrics[compared.metric].id,
        or_dash(predicted),
        or_dash(proven),
        or_dash(off.map(|off| format!("{:+.2}", 100.0 * off)))
    )
}
