//! Measures how a default audit affects programs that are not audited: a 60 Hz loop and a
//! compilation.
//!
//! Each turn runs both programs once with an audit and once without, in an order that alternates
//! from turn to turn. All differences are between the two runs in a turn.

use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use tempfile::TempDir;
use ticktax_host::own_thread_cpu_time;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};

/// Length of an audit. It must exceed [`SETTLE`] plus the run time of both programs.
const AUDIT: u32 = 10;
/// Time for an audit to start up.
const SETTLE: Duration = Duration::from_millis(1_500);
/// The loop's period, and its number of frames.
const FRAME: Nanos = Nanos(16_666_667);
const FRAMES: usize = 180;
/// Number of additions per frame, which take one to two milliseconds.
const WORK: u64 = 3_000_000;
/// Number of functions in the compiled program.
const FUNCTIONS: usize = 250;

/// Results of one run.
#[derive(Clone, Copy)]
struct Results {
    /// Median and maximum of the frames' lateness, in µs.
    late: f64,
    latest: f64,
    /// CPU time of a frame, in µs.
    frame: f64,
    /// CPU time and elapsed time of the compilation, in ms.
    compile_cpu: f64,
    compile: f64,
}

/// A result: its description, its value in a run, and the number of digits to print.
type Quantity = (&'static str, fn(&Results) -> f64, usize);

const QUANTITIES: [Quantity; 5] = [
    ("lateness of a frame, median, µs", |run| run.late, 1),
    ("lateness of a frame, most, µs", |run| run.latest, 0),
    ("CPU time of a frame, µs", |run| run.frame, 1),
    ("CPU time of a compilation, ms", |run| run.compile_cpu, 0),
    ("elapsed time of a compilation, ms", |run| run.compile, 0),
];

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## bystanders");
    let tool = Tool::find()?;
    let source = Source::write()?;
    let mut turns = Vec::new();
    for turn in 0..bench.choose(20, 2) {
        let mut runs = [None, None];
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        for audited in order {
            bench.go_on()?;
            let audit = match audited {
                1 => Some(tool.audit(AUDIT, &[])?),
                _ => None,
            };
            bench.pause(SETTLE)?;
            runs[audited] = Some(both_programs(&source)?);
            if let Some(audit) = audit {
                let lost = audit.statement(bench)?.coverage.events_lost();
                if lost > 0 {
                    return Err(format!("the audit lost {lost} events").into());
                }
            }
        }
        if let [Some(without), Some(with)] = runs {
            turns.push((without, with));
        }
    }
    print(&turns);
    Ok(())
}

fn both_programs(source: &Source) -> Result<Results, Box<dyn std::error::Error>> {
    let (late, frame) = frames();
    let (compile_cpu, compile) = source.compile()?;
    Ok(Results {
        late: late.median(),
        latest: late.quantile(1.0),
        frame: frame.median(),
        compile_cpu,
        compile,
    })
}

/// Runs the loop. Returns how late its frames were and how much CPU time they took, in µs.
fn frames() -> (Series, Series) {
    let (mut late, mut used) = (Series::new(), Series::new());
    let begin = now();
    for number in 1..=FRAMES {
        let due = begin + Nanos(FRAME.0 * i64::try_from(number).unwrap_or(i64::MAX));
        let left = (due - now()).max(Nanos::ZERO);
        thread::sleep(Duration::from_nanos(left.0.unsigned_abs()));
        late.push(micros(now() - due));
        let before = own_thread_cpu_time();
        let mut sum = 0_u64;
        for value in 0..WORK {
            sum = black_box(sum.wrapping_add(value));
        }
        used.push(micros(own_thread_cpu_time() - before));
    }
    (late, used)
}

fn micros(time: Nanos) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A program to compile.
struct Source(TempDir);

impl Source {
    fn write() -> Result<Self, Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let mut text = String::from("use std::collections::BTreeMap;\n");
        for number in 0..FUNCTIONS {
            writeln!(
                text,
                "pub fn f{number}(text: &str) -> BTreeMap<String, [u8; {number}]> {{\n    \
                 text.split('{}').map(|word| (word.to_uppercase(), [7; {number}])).collect()\n}}",
                char::from(b'a' + u8::try_from(number % 26)?),
            )?;
        }
        fs::write(folder.path().join("source.rs"), text)?;
        Ok(Self(folder))
    }

    /// Compiles the program. Returns the CPU time and the elapsed time, in ms.
    fn compile(&self) -> Result<(f64, f64), Box<dyn std::error::Error>> {
        let (begin, before) = (now(), children_cpu_time()?);
        let status = Command::new("rustc")
            .args(["--crate-type=lib", "--edition=2021", "source.rs"])
            .current_dir(self.0.path())
            .stderr(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(format!("rustc: {status}").into());
        }
        let cpu = children_cpu_time()? - before;
        Ok((cpu, micros(now() - begin) / 1e3))
    }
}

/// Returns the CPU time of all children that have exited, in ms.
fn children_cpu_time() -> nix::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let millis = |time: TimeVal| time.tv_sec() as f64 * 1e3 + time.tv_usec() as f64 / 1e3;
    Ok(millis(usage.user_time()) + millis(usage.system_time()))
}

fn print(turns: &[(Results, Results)]) {
    let mut table = Table::new([
        "",
        "n",
        "without",
        "with an audit",
        "difference, median",
        "quartiles",
        "difference, %",
    ]);
    for (name, value, digits) in QUANTITIES {
        let without: Series = turns.iter().map(|(without, _)| value(without)).collect();
        let with: Series = turns.iter().map(|(_, with)| value(with)).collect();
        let difference = turns
            .iter()
            .map(|(without, with)| value(with) - value(without));
        let difference: Series = difference.collect();
        let share = 100.0 * difference.median() / without.median();
        table.row([
            name.to_owned(),
            turns.len().to_string(),
            format!("{:.digits$}", without.median()),
            format!("{:.digits$}", with.median()),
            format!("{:.digits$}", difference.median()),
            difference.quartiles(digits),
            format!("{share:.2}"),
        ]);
    }
    table.print();
}
