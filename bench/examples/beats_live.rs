//! Tests the search for periodic sources on this machine by auditing disturbances with known
//! periods.
//!
//! `cargo build --release -p ticktax && cargo figure beats_live [quick|full|slow|sums] [seed]`, as
//! root, prints a Markdown table. `quick` takes three minutes and `full` eight. `slow` covers six
//! periods of 30.999 s. `sums` runs a ten-minute audit that keeps sums instead of individual spans.
//! Each case is one `ticktax audit` of a command that injects one or two disturbances into one CPU.
//! If the machine was too busy for an injector to keep to its schedule, the case is listed but not
//! judged.
//!
//! - An injected source is *found* if an entry whose period is off by at most 0.5 % names the
//!   source or has it in its chain of causes.
//! - An entry is *wrong* if it is about an injecting thread but its period is not one of the
//!   injected periods. For an injector that runs at random times, every entry is wrong. Entries
//!   about the rest of the machine are not judged.
//! - The *cause* is right if the entry's chain or name contains the injector's action.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example that reports"
)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use ticktax_inject::{Disturbance, Plan, Schedule, Truth};
use ticktax_model::beats::{BeatLine, BeatStatement};
use ticktax_model::statement::Statement;
use ticktax_model::{Cpu, Nanos};

const INJECT: &str = "--inject";
/// Largest relative error at which a detected period still counts as right.
const NEAR: f64 = 0.005;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Disturbances that are injected at the same time during one audit.
struct Case {
    name: String,
    plans: Vec<Plan>,
    keep: &'static str,
}

impl Case {
    /// Creates a case whose audit keeps every span rather than sums.
    fn new(plans: Vec<Plan>) -> Self {
        let names: Vec<String> = plans.iter().map(describe).collect();
        Self {
            name: names.join(" and "),
            plans,
            keep: "spans",
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let result = match &arguments[1..] {
        [flag, plans] if flag == INJECT => inject(Path::new(plans)),
        [] => measure("quick", 1),
        [size] => measure(size, 1),
        [size, seed, ..] => measure(size, seed.parse().unwrap_or(1)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("beats_live: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a case's disturbances at the same time. This is what the audited command does.
fn inject(file: &Path) -> Result<()> {
    let plans: Vec<Plan> = serde_json::from_slice(&std::fs::read(file)?)?;
    let running: Vec<_> = plans
        .iter()
        .map(ticktax_inject::spawn)
        .collect::<std::result::Result<_, _>>()?;
    let truths: Vec<Truth> = running
        .into_iter()
        .map(ticktax_inject::Running::finish)
        .collect::<std::result::Result<_, _>>()?;
    std::fs::write(truths_beside(file), serde_json::to_vec(&truths)?)?;
    Ok(())
}

/// Returns the file next to `plans` in which the injecting command stores its results.
fn truths_beside(plans: &Path) -> PathBuf {
    plans.with_extension("truths")
}

/// An injector kept to its schedule if at least this fraction of the planned events happened.
const KEPT: f64 = 0.95;

/// Describes the first injector that fell behind its schedule. Returns `None` if they all kept to
/// it.
fn not_kept(truths: &[Truth]) -> Option<String> {
    let broken = |truth: &&Truth| (truth.events as f64) < KEPT * truth.planned as f64;
    let truth = truths.iter().find(broken)?;
    Some(format!(
        "{} of {} planned events happened",
        truth.events, truth.planned
    ))
}

/// Runs all cases and prints the results.
fn measure(size: &str, seed: u64) -> Result<()> {
    let cpu = ticktax_inject::default_cpu()?;
    let cases = match size {
        "slow" => slow(cpu),
        "sums" => sums(cpu, seed),
        _ => grid(cpu, size == "full", seed)?,
    };
    let folder = tempfile::tempdir()?;
    let mut sums = Sums::default();
    println!("| disturbance | found | period off by | cause | wrong entries |");
    println!("|---|---|---|---|---|");
    for case in &cases {
        match audit(case, folder.path()) {
            Ok(beats) => {
                let verdict = judge(case, &beats);
                println!("| {} | {verdict} |", case.name);
                sums.add(case, &verdict);
            }
            Err(why) => {
                println!("| {} | could not be run: {why} | | | |", case.name);
                sums.failed += 1;
            }
        }
    }
    sums.print();
    Ok(())
}

/// Audits one case and returns the periodic sources that its statement contains.
fn audit(case: &Case, folder: &Path) -> Result<BeatStatement> {
    let plans = folder.join("plans.json");
    std::fs::write(&plans, serde_json::to_vec(&case.plans)?)?;
    let own = std::env::current_exe()?;
    let output = Command::new(command()?)
        .args(["audit", "--format", "json", "--probe", "spin", "--keep"])
        .args([case.keep, "--"])
        .arg(own)
        .arg(INJECT)
        .arg(&plans)
        .output()?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let statement: Statement = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("{}: {complaint}", output.status))?;
    if statement.command.as_ref().and_then(|c| c.exit) != Some(0) {
        return Err(complaint.into());
    }
    let truths: Vec<Truth> = serde_json::from_slice(&std::fs::read(truths_beside(&plans))?)?;
    if let Some(why) = not_kept(&truths) {
        return Err(why.into());
    }
    Ok(statement.beats.ok_or("the statement has no beats")?)
}

/// Returns the path of the `ticktax` command, which is one directory above the examples.
fn command() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(Path::parent);
    let command = folder.ok_or("no folder")?.join("ticktax");
    if command.is_file() {
        Ok(command)
    } else {
        Err(format!("{} is missing: build it first", command.display()).into())
    }
}

/// Creates the cases of `quick` and `full`: a real-time thread at several periods, with and without
/// jitter and missing events; every other kind of disturbance at two periods, and some of them at
/// random times; pairs of concurrent disturbances; and one case without a disturbance.
fn grid(cpu: Cpu, full: bool, seed: u64) -> Result<Vec<Case>> {
    let fifo = || Disturbance::Fifo { priority: 50 };
    let mut cases = Vec::new();
    let mut add = |disturbance: Disturbance, schedule: Schedule| {
        let plan = plan(disturbance, cpu, Schedule { seed, ..schedule });
        cases.push(Case::new(vec![plan]));
    };
    let periods: &[i64] = if full {
        &[1, 2, 5, 10, 20, 50, 100, 200, 500]
    } else {
        &[1, 10, 50, 500]
    };
    for &ms in periods {
        for jitter in [0.0, 0.05] {
            for missing in [0.0, 0.2] {
                let schedule = every(ms);
                add(
                    fifo(),
                    Schedule {
                        jitter: share(schedule.period, jitter),
                        missing,
                        ..schedule
                    },
                );
            }
        }
    }
    other_kinds(&mut add)?;
    for (a, b) in [(7, 10), (50, 13), (100, 101)] {
        let plans = vec![
            plan(fifo(), cpu, Schedule { seed, ..every(a) }),
            plan(
                Disturbance::Timer,
                cpu,
                Schedule {
                    seed: seed + 1,
                    ..every(b)
                },
            ),
        ];
        cases.push(Case::new(plans));
    }
    cases.push(Case {
        name: "none".to_owned(),
        ..Case::new(vec![
            Plan::new(Disturbance::None, cpu).duration(Nanos::from_secs(4)),
        ])
    });
    Ok(cases)
}

/// Creates a case that imitates a slow kernel loop over all vnodes, which takes 8 ms every 30.999
/// s. The period must not be reported as 31 s.
fn slow(cpu: Cpu) -> Vec<Case> {
    let schedule = Schedule::every(Nanos::from_millis(30_999), Nanos::from_millis(8));
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(schedule)
        .duration(Nanos::from_secs(187));
    vec![Case::new(vec![plan])]
}

/// Creates a case whose periodic sources only a long audit can detect. The audit sums up all
/// intervals below 1 ms. The disturbances take 17 ms every 30.999 s and 3 ms every 7.013 s, among
/// threads that run for 2 ms at random times.
fn sums(cpu: Cpu, seed: u64) -> Vec<Case> {
    let fifo = |seed: u64, schedule: Schedule| {
        Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
            .schedule(Schedule { seed, ..schedule })
            .duration(Nanos::from_secs(600))
    };
    let every =
        |period, length| Schedule::every(Nanos::from_millis(period), Nanos::from_millis(length));
    let random = Schedule {
        random: true,
        ..every(2_000, 2)
    };
    let plans = vec![
        fifo(seed, every(30_999, 17)),
        fifo(seed + 1, every(7_013, 3)),
        fifo(seed + 2, random),
    ];
    vec![Case {
        keep: "sums",
        ..Case::new(plans)
    }]
}

/// Adds every kind of disturbance except real-time threads, each at two periods and some also at
/// random times.
fn other_kinds(add: &mut dyn FnMut(Disturbance, Schedule)) -> Result<()> {
    let fifo = || Disturbance::Fifo { priority: 50 };
    let folder = std::env::current_dir()?;
    for ms in [10, 100] {
        for disturbance in [
            Disturbance::Timer,
            Disturbance::Itimer,
            Disturbance::Membarrier,
            Disturbance::Munmap { pages: 16 },
            Disturbance::Softirq { packets: 16 },
            Disturbance::Stop,
        ] {
            add(disturbance, every(ms));
        }
    }
    for ms in [50, 100] {
        let quota = Nanos::from_millis(ms / 2);
        add(Disturbance::Throttle { quota }, every(ms));
    }
    let bytes = 1 << 18;
    add(
        Disturbance::Writeback {
            dir: folder,
            bytes,
            fsync: false,
        },
        every(500),
    );
    for (disturbance, ms) in [(fifo(), 10), (fifo(), 100), (Disturbance::Timer, 5)] {
        add(
            disturbance,
            Schedule {
                random: true,
                ..every(ms)
            },
        );
    }
    Ok(())
}

fn every(ms: i64) -> Schedule {
    let period = Nanos::from_millis(ms);
    Schedule::every(
        period,
        share(period, 0.02).max(Nanos(20_000)).min(Nanos(300_000)),
    )
}

#[expect(clippy::cast_possible_truncation, reason = "a part of a period")]
fn share(period: Nanos, part: f64) -> Nanos {
    Nanos((period.0 as f64 * part) as i64)
}

/// Creates a plan that lasts for thirty periods, but at least 3 s and at most 12 s.
fn plan(disturbance: Disturbance, cpu: Cpu, schedule: Schedule) -> Plan {
    let wanted = Nanos(schedule.period.0 * 30);
    let length = wanted.clamp(Nanos::from_secs(3), Nanos::from_secs(12));
    Plan::new(disturbance, cpu)
        .schedule(schedule)
        .duration(length)
}

fn describe(plan: &Plan) -> String {
    let schedule = &plan.schedule;
    // Print all digits, so that 30.999 s does not look like 31 s.
    let period = schedule.period.0 as f64 / 1e6;
    let mut text = format!("{} {period} ms", plan.disturbance.name());
    if schedule.random {
        text += " at random";
    }
    if schedule.jitter > Nanos::ZERO {
        let share = schedule.jitter.share_of(schedule.period) * 100.0;
        text.push_str(", jitter ");
        text.push_str(&share.round().to_string());
        text.push_str(" %");
    }
    if schedule.missing > 0.0 {
        let share = schedule.missing * 100.0;
        text.push_str(", ");
        text.push_str(&share.round().to_string());
        text.push_str(" % missing");
    }
    text
}

/// Returns words that identify a disturbance. The right entry has at least one of them in its name
/// or its chain.
fn causes(disturbance: &Disturbance) -> Vec<&'static str> {
    let mut words = vec![disturbance.comm()];
    words.extend_from_slice(match disturbance {
        Disturbance::Membarrier | Disturbance::Munmap { .. } => &["call_function"][..],
        Disturbance::Softirq { .. } => &["NET_RX"],
        Disturbance::Itimer => &["it_real_fn"],
        Disturbance::Stop => &["migration/"],
        Disturbance::Throttle { .. } => &["ttx-inj-hog", "throttled", "sched_cfs_period_timer"],
        Disturbance::Writeback { .. } => &["wb_workfn", "BLOCK"],
        _ => &[],
    });
    words
}

fn says(line: &BeatLine, word: &str) -> bool {
    line.name.contains(word) || line.chain.iter().any(|step| step.contains(word))
}

/// The error of a detected period as a fraction, and whether the entry names the right cause.
/// `None` if the period was not detected.
type Hit = Option<(f64, bool)>;

#[derive(Default)]
struct Verdict {
    /// One result for each injected disturbance.
    beats: Vec<Hit>,
    right: u64,
    wrong: Vec<String>,
}

fn judge(case: &Case, beats: &BeatStatement) -> Verdict {
    let mut verdict = Verdict::default();
    let lines: Vec<&BeatLine> = beats.beats.iter().filter(|line| !line.by_ticktax).collect();
    let off =
        |line: &BeatLine, plan: &Plan| line.rhythm.period / plan.schedule.period.0 as f64 - 1.0;
    for plan in case.plans.iter().filter(|plan| is_beat(plan)) {
        let near = lines.iter().filter(|line| off(line, plan).abs() < NEAR);
        let names_it = |line: &BeatLine| causes(&plan.disturbance).iter().any(|w| says(line, w));
        let named = near
            .clone()
            .filter(|line| names_it(line))
            .map(|line| off(line, plan).abs())
            .min_by(f64::total_cmp);
        let any = near
            .map(|line| off(line, plan).abs())
            .min_by(f64::total_cmp);
        verdict
            .beats
            .push(named.or(any).map(|error| (error, named.is_some())));
    }
    for line in lines.iter().filter(|line| line.name.contains("ttx-inj")) {
        let right = case
            .plans
            .iter()
            .any(|plan| is_beat(plan) && off(line, plan).abs() < NEAR);
        if right {
            verdict.right += 1;
        } else {
            verdict
                .wrong
                .push(format!("{} {:.3} ms", line.name, line.rhythm.period / 1e6));
        }
    }
    verdict
}

fn is_beat(plan: &Plan) -> bool {
    !plan.schedule.random && !matches!(plan.disturbance, Disturbance::None)
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let column = |text: &dyn Fn(&Hit) -> String| {
            let texts: Vec<String> = self.beats.iter().map(text).collect();
            texts.join(", ")
        };
        let yes = |yes: bool| if yes { "yes" } else { "**no**" }.to_owned();
        write!(
            f,
            "{} | {} | {} | {}",
            column(&|beat| yes(beat.is_some())),
            column(&|beat| beat.map_or_else(String::new, |b| format!("{:.4} %", b.0 * 100.0))),
            column(&|beat| beat.map_or_else(String::new, |b| yes(b.1))),
            self.wrong.join(", ")
        )
    }
}

#[derive(Default)]
struct Sums {
    injected: u64,
    errors: Vec<f64>,
    named: u64,
    right: u64,
    wrong: u64,
    failed: u64,
    plain: Vec<f64>,
}

impl Sums {
    fn add(&mut self, case: &Case, verdict: &Verdict) {
        self.injected += verdict.beats.len() as u64;
        let plans = case.plans.iter().filter(|plan| is_beat(plan));
        for (plan, beat) in plans.zip(&verdict.beats) {
            if let Some((error, named)) = *beat {
                self.errors.push(error);
                self.named += u64::from(named);
                if plan.schedule.jitter == Nanos::ZERO {
                    self.plain.push(error);
                }
            }
        }
        self.right += verdict.right;
        self.wrong += verdict.wrong.len() as u64;
    }

    fn print(mut self) {
        let share = |a: u64, b: u64| a as f64 / b.max(1) as f64 * 100.0;
        let found = self.errors.len() as u64;
        let middle = |errors: &mut Vec<f64>| {
            errors.sort_by(f64::total_cmp);
            errors.get(errors.len() / 2).copied().unwrap_or(f64::NAN) * 100.0
        };
        let over = self.errors.iter().filter(|error| **error > 1e-3).count();
        let total = self.right + self.wrong;
        println!();
        println!(
            "- recall {found} of {} = {:.1} %",
            self.injected,
            share(found, self.injected)
        );
        println!(
            "- precision of entries about injecting threads {} of {total} = {:.1} %",
            self.right,
            share(self.right, total)
        );
        println!(
            "- period off by {:.4} % in the median ({:.4} % without jitter), by more than 0.1 % in {over}",
            middle(&mut self.errors),
            middle(&mut self.plain)
        );
        println!(
            "- cause named {} of {found} = {:.1} %",
            self.named,
            share(self.named, found)
        );
        if self.failed > 0 {
            println!("- {} cases could not be run", self.failed);
        }
    }
}
