//! Tests in guests that run successfully.

use std::fs;
use std::sync::OnceLock;
use std::thread;

use libtest_mimic::Failed;
use ticktax_model::comparison::{Arm, Measure, Origin};
use ticktax_model::document::Document;
use ticktax_model::kernels::KernelsStatement;
use ticktax_model::pace::PaceStatement;
use ticktax_model::recording::World;
use ticktax_report::{Format, TextStyle, render};
use ticktax_store::recording::RecordingReader;

use crate::checks::{check, gaps, statement};
use crate::fixture::{CLOUD, LIMIT, complaint, lab_run, ticktax};

const PACE: [&str; 8] = [
    "pace",
    "--rate",
    "35",
    "--work",
    "1ms",
    "--for",
    "2s",
    "--sleep=nanosleep",
];

/// The results from a guest that ran `pace`: its recording, its text output and its statement.
struct Paced {
    recording: Vec<u8>,
    page: String,
    statement: PaceStatement,
}

impl Paced {
    fn run(cmdline: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pace.parquet");
        let mut command = lab_run(CLOUD);
        command
            .args(["--cmdline", cmdline, "--save"])
            .arg(&file)
            .arg("--")
            .args(PACE);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", complaint(&output));
        let report = |options: &str| {
            let mut command = ticktax();
            command.arg("report").arg(&file).args(options.split(' '));
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", complaint(&output));
            String::from_utf8(output.stdout).unwrap()
        };
        let page = String::from_utf8(output.stdout).unwrap();
        assert!(page.contains("(lab)"), "{page}");
        assert_eq!(report("--format text"), page);
        let limits = report("--section limits");
        assert!(limits.contains("caches, pipelines"), "{limits}");
        Self {
            statement: serde_json::from_str(&report("--format json")).unwrap(),
            recording: fs::read(file).unwrap(),
            page,
        }
    }
}

/// The guests of these tests: two that have coarse timers and run concurrently, and one that has
/// high-resolution timers.
struct Guests {
    coarse: [Paced; 2],
    fine: Paced,
}

fn guests() -> &'static Guests {
    static GUESTS: OnceLock<Guests> = OnceLock::new();
    GUESTS.get_or_init(|| {
        let coarse = || Paced::run("highres=off nohz=off");
        thread::scope(|scope| {
            let one = scope.spawn(coarse);
            let other = coarse();
            Guests {
                coarse: [one.join().unwrap(), other],
                fine: Paced::run(""),
            }
        })
    })
}

pub(crate) fn the_same_run_gives_the_same_bytes() {
    let [one, other] = &guests().coarse;
    assert!(one.recording.len() > 1_000);
    if one.recording == other.recording {
        return;
    }
    // Compare the pages and the statements first. A difference between them is easier to understand
    // than the position at which the two recordings differ.
    assert_eq!(one.page, other.page, "the two pages differ");
    assert_eq!(one.statement, other.statement, "the two statements differ");
    let pairs = one.recording.iter().zip(&other.recording);
    let first = pairs.take_while(|(one, other)| one == other).count();
    panic!(
        "the recordings of {} and {} bytes differ from byte {first}",
        one.recording.len(),
        other.recording.len()
    );
}

pub(crate) fn two_labs_at_once_do_not_interfere() {
    let [one, other] = &guests().coarse;
    assert!(one.page == other.page, "the two differ");
}

pub(crate) fn boot_parameters_change_the_kernel() {
    let guests = guests();
    let (fine, coarse) = (&guests.fine.statement, &guests.coarse[0].statement);
    assert_eq!(
        (fine.world, fine.machine.hz_configured),
        (World::Lab, Some(250))
    );
    assert_eq!(fine.machine.high_resolution, Some(true));
    assert_eq!(coarse.machine.high_resolution, Some(false));
    // Do not compare the longest delays. An unoptimised ticktax may run before a frame on the
    // guest's only CPU, and how often it does so changes with every build.
    let wait = |paced: &PaceStatement| {
        let wakeups = paced.figures.as_ref().unwrap().wakeup.as_ref().unwrap();
        wakeups.quantile(0.9).unwrap().0
    };
    // With high-resolution timers, a sleep ends late by the timer slack of 50 µs and a little more.
    // With coarse timers, it also lasts until the next tick, up to 4 ms later.
    assert!(wait(fine) < 200_000, "{}", wait(fine));
    assert!(
        (2_000_000..4_100_000).contains(&wait(coarse)),
        "{}",
        wait(coarse)
    );
}

pub(crate) fn a_guest_returns_a_complete_audit() -> Result<(), Failed> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.parquet");
    let mut command = lab_run(CLOUD);
    command
        .args(["--save"])
        .arg(&file)
        .args(["--", "audit", "--for", "1s"]);
    let output = command.args(["--probe", "spin"]).output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("lab kernel 6."), "{page}");
    let mut recording = RecordingReader::open(&file).unwrap();
    assert_eq!(recording.header().world, World::Lab);
    assert_eq!(recording.header().cpus.len(), 1);
    let mut rows = 0;
    recording.replay(&mut |_, _| rows += 1).unwrap();
    assert!(rows > 100, "{rows}");
    let mut report = ticktax();
    report.args(["report", "--format", "json"]).arg(&file);
    let statement = statement(&report.output().unwrap())?;
    check(statement.balances(), || format!("{:?}", statement.balance))?;
    gaps::are_explained(&statement)?;
    // The guest's clock counts its own instructions, so nothing outside the guest takes time.
    let watched = statement
        .gaps
        .as_ref()
        .map(|gaps| (gaps.long.hypervisor_or_firmware, gaps.watched));
    let (outside, watched) = watched.ok_or("no probe ran")?;
    check(outside.share_of(watched) < 0.001, || {
        format!("{outside} of {watched}")
    })
}

pub(crate) fn the_error_of_a_verb_is_printed() {
    let mut command = lab_run(CLOUD);
    // The guest has only one CPU, so CPU 7 does not exist.
    let output = command
        .args(["--", "pace", "--cpu", "7", "--for", "1s"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = complaint(&output);
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("CPU 7"), "{complaint}");
}

/// Compares a case with Debian's kernel, which ticks at 250 Hz, and returns the statement.
///
/// The program in the guest is not optimised, and the model ignores the instructions that it
/// executes around its sleeps. At 4 ns per instruction, the loop has 1.0 % fewer frames than
/// predicted, which is the limit. At 2 ns, it has 0.6 % fewer.
fn case(name: &str) -> KernelsStatement {
    let output = ticktax()
        .args(["lab", "compare", "--limit", LIMIT, "--format", "json"])
        .args(["--case", name])
        .arg("--icount=1")
        .args(["--vary", &format!("kernel={CLOUD}")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The loop works for 3 ms after a tick, and is done before the next one 4 ms later. Sampling at
/// ticks therefore misses nearly all of its work.
pub(crate) fn a_kernel_confirms_the_model_of_a_case() {
    let statement = case("frame-rate-vs-hz");
    assert_eq!(statement.met(), (2, 2), "{statement:#?}");
    let kernel = |what: &str| {
        let mut tables = statement.tables.iter();
        tables.find(|table| table.what == what).unwrap().rows[0].kernel
    };
    let (sampled, used) = (kernel("CPU as sampled at ticks"), kernel("CPU as used"));
    assert!(sampled < 0.1, "{sampled}");
    // 31 frames per second with 3.01 ms of work each take 9.3 % of a CPU, plus the kernel's own
    // work.
    assert!((9.3..9.7).contains(&used), "{used}");
}

pub(crate) fn an_idle_guests_instructions_are_counted() {
    let statement = case("idle-cost-vs-hz");
    let thousands: Vec<f64> = statement
        .tables
        .iter()
        .map(|table| table.rows[0].kernel)
        .collect();
    let [programs, idle, one_shot, stops] = thousands[..] else {
        panic!("{statement:#?}");
    };
    // These are thousands of instructions per second. At 250 Hz and at least 500 instructions per
    // tick, even an idle CPU executes 125 thousand. Programming each tick separately (`one_shot`)
    // adds to this, and so does waking programs (`programs`).
    assert!(
        125.0 < idle && idle < one_shot && idle < programs,
        "{thousands:?}"
    );
    assert!(0.0 < stops && stops < idle / 4.0, "{thousands:?}");
}

pub(crate) fn a_comparison_does_not_depend_on_the_number_of_jobs() {
    let compared = |jobs: &str, format: &str| {
        let mut command = ticktax();
        command.args(["lab", "compare", "--limit", LIMIT, "--jobs", jobs]);
        command.args(["--format", format, "--vary"]);
        command.arg(format!("kernel={CLOUD}"));
        command.args(["--vary", "cmdline=,highres=off nohz=off", "--", "pace"]);
        command.args(["--rate", "35", "--work", "1ms", "--for", "2s"]);
        command.args(["--rounds", "1", "--vary", "sleep=nanosleep,spin"]);
        let output = command.output().unwrap();
        // A 2-second run has too few samples for the range that the model predicts, so the exit
        // code may be 1.
        assert_eq!(complaint(&output), "");
        String::from_utf8(output.stdout).unwrap()
    };
    let json = compared("1", "json");
    let comparison = ticktax_fixture::comparison(json.as_bytes()).unwrap();
    // A predicted arm follows each of the four measured ones.
    let origins = [Origin::Measured, Origin::Predicted].into_iter().cycle();
    let is_modelled =
        |(arm, origin): (&Arm, Origin)| arm.setting("hz") == Some("250") && arm.origin == origin;
    assert_eq!(comparison.arms.len(), 8);
    assert!(
        comparison.arms.iter().zip(origins).all(is_modelled),
        "{comparison:#?}"
    );
    // Run the command again with text output. It must print exactly what the first run's JSON
    // document renders to.
    let document = Document::Comparison(Box::new(comparison.clone()));
    let text = Format::named("text").unwrap();
    let page = compared("2", "text");
    assert_eq!(page, render(&document, text, &TextStyle::default()));
    // All arms must have been compared, including the spinning loops. These must reach 35 frames
    // per second, both on the kernel and in the model.
    assert!(page.contains(" of 4 loops agree"), "{page}");
    let spins = comparison
        .arms
        .iter()
        .filter(|arm| arm.setting("sleep") == Some("spin"));
    let spins: Vec<&Arm> = spins.collect();
    // Use the same criterion as the text output, which is 1 %.
    let in_time = |arm: &&Arm| {
        let figure = comparison.figure(arm, Measure::Fps).unwrap();
        let ends = figure
            .interval
            .into_iter()
            .flat_map(|(low, high)| [low, high]);
        figure
            .value
            .into_iter()
            .chain(ends)
            .all(|rate| (rate - 35.0).abs() < 0.35)
    };
    assert!(spins.len() == 4 && spins.iter().all(in_time), "{page}");
}
