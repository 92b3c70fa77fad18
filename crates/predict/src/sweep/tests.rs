use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ticktax_model::Nanos;
use ticktax_model::comparison::{Arm, Experiment};
use ticktax_model::table::Cell;
use ticktax_sim::{Report, Setup, SetupError, scenario};
use ticktax_store::table::TableReader;

use ticktax_experiment::vary::Vary;

use super::{Begun, Ended, Plan, PlanError, Ran, Sweep, SweepError, begin, journal_of, summarize};

const SCENARIO: &str = r#"
length = "300ms"
[machine]
cpus = 2
hz = 250
policy = "fair"
costs = { tick = "3us" }
[[task]]
name = "game"
program = ["frame", { work = "3ms ± 300us" }, { sleep = "11ms" }]
[[task]]
name = "hog"
count = 2
program = [{ work = "exp 5ms" }]
"#;

/// The axes of a grid with 12 arms.
const AXES: [&str; 3] = [
    "hz=100,250,1000",
    "task.game.work=1ms,4ms",
    "policy=fair,o1",
];

fn vary(text: &str) -> Vary {
    text.parse().unwrap()
}

fn plan(axes: &[&str]) -> Plan {
    let axes: Vec<Vary> = axes.iter().map(|&axis| vary(axis)).collect();
    Plan::new("game.toml", SCENARIO, &axes, Some(2)).unwrap()
}

fn ready(plan: Plan, results: &Path) -> Sweep {
    match begin(plan, results) {
        Ok(Begun::Ready(sweep)) => *sweep,
        Ok(Begun::Complete) => panic!("it is complete"),
        Err(error) => panic!("{error}"),
    }
}

fn run_completely(plan: Plan, results: &Path, jobs: usize) -> Vec<u8> {
    let mut sweep = ready(plan, results);
    let ended = sweep.run(jobs, &mut |_| true).unwrap();
    assert!(matches!(ended, Ended::Complete(_)));
    sweep.finish().unwrap();
    assert!(!journal_of(results).exists());
    fs::read(results).unwrap()
}

fn rows(results: &Path) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    let table = TableReader::open(results).unwrap().unwrap();
    table.rows(|row| rows.push(row)).unwrap();
    rows
}

/// Stops a sweep after a few arms. Returns how many have finished.
fn part(plan: Plan, results: &Path) -> usize {
    let mut sweep = ready(plan, results);
    let ended = sweep.run(2, &mut |progress| progress.done < 5).unwrap();
    let Ended::Stopped(progress) = ended else {
        panic!("it was complete")
    };
    progress.done
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("x.parquet");
    (folder, results)
}

#[test]
fn the_results_do_not_depend_on_the_number_of_threads() {
    let (folder, results) = folder();
    let one = run_completely(plan(&AXES), &results, 1);
    let four = run_completely(plan(&AXES), &folder.path().join("four"), 4);
    assert!(one == four, "{} and {} bytes", one.len(), four.len());
}

/// Returns the cell of `row` in the column `name`.
fn cell<'r>(plan: &Plan, row: &'r [Cell], name: &str) -> &'r Cell {
    let place = plan.columns().iter().position(|column| column.name == name);
    &row[place.unwrap_or_else(|| panic!("no column {name}"))]
}

#[test]
fn a_row_equals_a_run_of_the_edited_scenario() {
    let (_folder, results) = folder();
    run_completely(plan(&AXES), &results, 2);
    let plan = plan(&AXES);
    let rows = rows(&results);
    assert_eq!(rows.len(), 24);
    let mut arm = 0;
    for hz in ["100", "250", "1000"] {
        for work in ["1ms", "4ms"] {
            for policy in ["fair", "o1"] {
                for seed in ["1", "2"] {
                    let text = SCENARIO
                        .replace("hz = 250", &format!("hz = {hz}"))
                        .replace("3ms ±", &format!("{work} ±"))
                        .replace("\"fair\"", &format!("\"{policy}\""))
                        .replace("length", &format!("seed = {seed}\nlength"));
                    let setup = scenario::parse("x.toml", &text).unwrap();
                    let report = ticktax_sim::run(&setup).unwrap();
                    check(&plan, &rows[arm], arm, &report);
                    arm += 1;
                }
            }
        }
    }
}

fn check(plan: &Plan, row: &[Cell], arm: usize, report: &Report) {
    let cell = |name: &str| cell(plan, row, name);
    let integer = |number: i64| Cell::Integer(number);
    let text = |text: String| Cell::Text(text);
    assert_eq!(cell("point"), &integer(i64::try_from(arm).unwrap()));
    assert_eq!(cell("trace"), &text(format!("{:016x}", report.hash)));
    assert_eq!(cell("error"), &Cell::Nothing);
    // Two CPUs were simulated for 300 ms each.
    let (Cell::Integer(busy), Cell::Integer(idle)) = (cell("busy_ns"), cell("idle_ns")) else {
        panic!("{row:?}")
    };
    assert_eq!(busy + idle, 600_000_000);
    let game = &report.tasks[0];
    assert_eq!(cell("task.game.ran_ns"), &integer(game.ran.0));
    let share = game.ran.0 as f64 / 3e8;
    assert!((cell("task.game.cpu_share").number().unwrap() - share).abs() < 1e-12);
    let fps = game.frames as f64 / 0.3;
    assert!((cell("task.game.fps").number().unwrap() - fps).abs() < 1e-9);
    assert_eq!(
        cell("task.game.late_max_ns"),
        &integer(game.worst_lateness.0)
    );
    let hogs: i64 = report.tasks[1..].iter().map(|hog| hog.ran.0).sum();
    assert_eq!(cell("task.hog.ran_ns"), &integer(hogs));
    assert_eq!(cell("task.hog.fps"), &Cell::Nothing);
    let ticks: u64 = report
        .cpus
        .iter()
        .map(|cpu| cpu.samples.iter().sum::<u64>())
        .sum();
    assert_eq!(cell("ticks"), &integer(i64::try_from(ticks).unwrap()));
    assert_eq!(
        cell("tick_ns"),
        &integer(3_000 * i64::try_from(ticks).unwrap())
    );
}

#[test]
fn a_table_that_could_not_be_read_again_is_refused() {
    let task =
        |number| format!("[[task]]\nname = \"n{number}\"\nprogram = [{{ sleep = \"1s\" }}]\n");
    let tasks: String = (0..2_000).map(task).collect();
    let text = format!("{SCENARIO}{tasks}");
    let refused = Plan::new("x.toml", &text, &[], Some(1)).unwrap_err();
    let PlanError::TooManyColumns { columns } = refused else {
        panic!("{refused}");
    };
    assert!(columns > 20_000, "{columns}");
}

#[test]
fn column_names_are_unique() {
    let text = SCENARIO.replace("name = \"hog\"", "name = \"game.ran_ns\"");
    let axes = ["task.game.work=1ms", "task.game.count=1", "tick=nohz-idle"].map(vary);
    let plan = Plan::new("x.toml", &text, &axes, Some(1)).unwrap();
    let mut names: Vec<&str> = plan.columns().iter().map(|column| &*column.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn a_stopped_sweep_resumes() {
    let (folder, results) = folder();
    let done = part(plan(&AXES), &results);
    assert!((5..24).contains(&done), "{done}");
    let mut sweep = ready(plan(&AXES), &results);
    // A thread may have finished one more arm, but its result was not received and isn't in the
    // journal.
    assert_eq!((sweep.found(), sweep.damaged()), (done, 0));
    let mut min = usize::MAX;
    sweep
        .run(2, &mut |progress| {
            min = min.min(progress.done);
            true
        })
        .unwrap();
    assert!(min >= done, "it began anew");
    sweep.finish().unwrap();
    let other = run_completely(plan(&AXES), &folder.path().join("other"), 2);
    assert!(fs::read(&results).unwrap() == other);
}

#[test]
fn a_torn_end_and_damaged_lines_lose_only_their_points() {
    let (folder, results) = folder();
    let done = part(plan(&AXES), &results);
    let journal = journal_of(&results);
    let bytes = fs::read(&journal).unwrap();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    assert_eq!(lines.len(), done + 1);
    let mut damaged = lines[..=done].concat();
    // Change a digit in the second arm's line, truncate the last line, and append garbage.
    let digit = lines[0].len() + lines[1].len() + lines[2].len() / 2;
    damaged[digit] ^= 1;
    damaged.truncate(bytes.len() - 7);
    for tail in [&b""[..], b"\xff\xfe", b"\0\0\0\0\0\0\0\0\n{}\n"] {
        let mut text = damaged.clone();
        text.extend_from_slice(tail);
        fs::write(&journal, &text).unwrap();
        let sweep = ready(plan(&AXES), &results);
        assert_eq!(sweep.found(), done - 2, "{tail:?}");
        let lines = 1 + if tail.len() > 4 { 2 } else { 0 };
        assert_eq!(sweep.damaged(), lines, "{tail:?}");
    }
    let resumed = run_completely(plan(&AXES), &results, 2);
    assert!(resumed == run_completely(plan(&AXES), &folder.path().join("other"), 2));
}

#[test]
fn a_journal_truncated_anywhere_can_be_resumed() {
    let (_folder, results) = folder();
    let done = part(plan(&AXES), &results);
    let journal = journal_of(&results);
    let bytes = fs::read(&journal).unwrap();
    for length in (0..=bytes.len()).rev().step_by(97) {
        fs::write(&journal, &bytes[..length]).unwrap();
        let sweep = ready(plan(&AXES), &results);
        let lines = bytes[..length].split(|&byte| byte == b'\n').count() - 1;
        assert_eq!(
            sweep.found(),
            lines.saturating_sub(1),
            "{length} of {done} arms"
        );
        assert_eq!(sweep.damaged(), 0);
    }
}

fn refused(plan: Plan, results: &Path) -> String {
    match begin(plan, results) {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn another_sweep_with_the_same_file_is_refused_and_changes_nothing() {
    let (_folder, results) = folder();
    part(plan(&AXES), &results);
    let journal = journal_of(&results);
    let before = fs::read(&journal).unwrap();
    let error = refused(plan(&AXES[..2]), &results);
    assert!(
        error
            .contains("x.parquet.journal belongs to a sweep with different axes (hz=100,250,1000 "),
        "{error}"
    );
    assert!(error.contains("choose another results file"), "{error}");
    let text = SCENARIO.replace("11ms", "12ms");
    let axes = AXES.map(vary);
    let other = || Plan::new("game.toml", &text, &axes, Some(2)).unwrap();
    assert!(refused(other(), &results).contains("belongs to a sweep of a different scenario"));
    assert!(fs::read(&journal).unwrap() == before);

    let bytes = run_completely(plan(&AXES), &results, 2);
    assert!(
        refused(other(), &results)
            .contains("x.parquet contains the results of a sweep of a different scenario")
    );
    assert!(matches!(begin(plan(&AXES), &results), Ok(Begun::Complete)));
    assert!(!journal.exists());
    assert!(fs::read(&results).unwrap() == bytes);
}

#[test]
fn another_version_of_the_tool_is_another_sweep() {
    let (_folder, results) = folder();
    part(plan(&AXES), &results);
    let journal = journal_of(&results);
    let text = fs::read_to_string(&journal).unwrap();
    let (head, rest) = text.split_once('\n').unwrap();
    let json = head[9..].replace(env!("CARGO_PKG_VERSION"), "9.8.7");
    let head = format!("{:08x} {json}", crc32fast::hash(json.as_bytes()));
    fs::write(&journal, format!("{head}\n{rest}")).unwrap();
    let error = refused(plan(&AXES), &results);
    assert!(
        error.contains("belongs to a sweep by ticktax 9.8.7 (this is"),
        "{error}"
    );
}

#[test]
fn a_journal_that_is_a_link_or_writable_by_others_is_refused() {
    let (folder, results) = folder();
    let journal = journal_of(&results);
    let victim = folder.path().join("victim");
    symlink(&victim, &journal).unwrap();
    let error = refused(plan(&AXES), &results);
    assert!(
        error.contains("is not a regular file: move or remove it"),
        "{error}"
    );
    assert!(!victim.exists());
    fs::write(&victim, "").unwrap();
    refused(plan(&AXES), &results);
    assert_eq!(fs::read(&victim).unwrap(), b"");
    fs::remove_file(&journal).unwrap();
    part(plan(&AXES), &results);
    fs::set_permissions(&journal, Permissions::from_mode(0o666)).unwrap();
    let error = refused(plan(&AXES), &results);
    assert!(error.contains("other users can write to"), "{error}");
}

#[test]
fn foreign_files_are_left_alone() {
    let (folder, results) = folder();
    let journal = journal_of(&results);
    fs::write(&journal, "my diary\n").unwrap();
    assert!(refused(plan(&AXES), &results).contains("is not the journal of a sweep"));
    assert_eq!(fs::read(&journal).unwrap(), b"my diary\n");
    fs::write(&journal, "my diary").unwrap();
    assert!(refused(plan(&AXES), &results).contains("is not the journal of a sweep"));
    fs::remove_file(&journal).unwrap();
    fs::write(&results, "my thesis").unwrap();
    let error = refused(plan(&AXES), &results);
    assert!(
        error.contains("x.parquet exists, and does not contain results of a sweep"),
        "{error}"
    );
    assert_eq!(fs::read(&results).unwrap(), b"my thesis");
    assert!(!journal.exists());
    assert!(refused(plan(&AXES), folder.path()).contains("it is a directory"));
    let missing = folder.path().join("none/x.parquet");
    assert!(refused(plan(&AXES), &missing).contains("no such file or directory"));
}

#[test]
fn concurrent_sweeps_are_refused_until_the_holder_ends() {
    let (_folder, results) = folder();
    let first = ready(plan(&AXES), &results);
    let error = begin(plan(&AXES), &results).err().unwrap();
    assert_eq!(
        error,
        SweepError::Busy {
            results: results.clone()
        }
    );
    drop(first);
    drop(ready(plan(&AXES), &results));
}

/// Simulates an arm, but panics for seed 2 at 250 Hz.
fn breaks(setup: &Setup) -> Result<Report, SetupError> {
    assert!(setup.seed != 2 || setup.machine.hz != 250, "no such\nluck");
    ticktax_sim::run(setup)
}

#[test]
fn failed_points_are_reported_and_the_others_run() {
    let (_folder, results) = folder();
    let axes = ["hz=250,1000", "phase=0s,2ms"];
    let mut sweep = ready(plan(&axes), &results);
    let ended = sweep.run_by(breaks, 2, &mut |_| true).unwrap();
    assert!(matches!(ended, Ended::Complete(progress) if progress.done == 8));
    sweep.finish().unwrap();
    let ran = Ran {
        found: 0,
        damaged: 0,
        events: 0,
        took: Nanos(7),
    };
    let column = Some("task.hog.ran_ns");
    let found = summarize(&plan(&axes), &results, column, ran).unwrap();
    let Experiment::Sweep(record) = &found.experiment else {
        panic!("{:?}", found.experiment);
    };
    assert_eq!((record.combinations, record.took), (8, Nanos(7)));
    assert_eq!(record.axes[0], ("hz".to_owned(), 2));
    // Four arms fail, and the report lists three of them. Two arms panic. In the other two, one per
    // seed, the phase of 2 ms is invalid, because a tick takes only 1 ms at 1000 Hz.
    let [ranked @ .., first, _, last] = &*found.arms else {
        panic!("{:?}", found.arms);
    };
    assert_eq!((record.failed, &*first.label), (4, "#1"));
    let values: Vec<&str> = first
        .settings
        .iter()
        .map(|setting| &*setting.value)
        .collect();
    assert_eq!(values, ["250", "0s", "2"]);
    let reason = |arm: &Arm| arm.excluded.clone().unwrap();
    assert_eq!(reason(first), "the simulation crashed: no such luck");
    assert!(reason(last).contains("a phase must be between 0 and one tick"));
    assert_eq!((record.ranked, record.highest, ranked.len()), (4, 2, 4));
    let values: Vec<f64> = ranked.iter().filter_map(|arm| arm.value(0)).collect();
    assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
}
