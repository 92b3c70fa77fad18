//! Tests for `ticktax pace`. They don't need root and don't measure time.

use std::process::Output;

use ticktax_model::Nanos;
use ticktax_model::comparison::Experiment;
use ticktax_model::pace::{CpuClock, PaceStatement, Subject};

use crate::common::{complaint, refused_as_usage, text, ticktax};

fn pace(arguments: &[&str]) -> Output {
    ticktax(&[&["pace"], arguments].concat())
}

#[test]
fn invalid_arguments_exit_with_2_and_a_hint() {
    refused_as_usage(
        &["pace"],
        &[
            (&["--rate", "0"], "1 to 50000"),
            (&["--rate", "-5"], "1 to 50000"),
            (&["--rate", "1e9"], "1 to 50000"),
            (&["--rate", "fast"], "invalid rate"),
            (&["--work", "much"], "500ms"),
            (&["--sleep", "nap"], "nanosleep"),
            (&["--rule", "sometimes"], "deadline"),
            (&["--policy", "fifo:0"], "fifo:1"),
            (&["--vary", "nanosleep"], "NAME=LIST"),
            (&["--vary", "sleep=nap"], "clock_nanosleep-abs"),
            (&["--vary", "speed=3"], "sleep, rule, rate, work"),
            (&["--rounds", "0", "--vary", "rate=35"], "1..=1000"),
            (&["--rounds", "3"], "--vary"),
            (&["--pid", "1", "--rate", "35"], "--pid"),
            (
                &["--rate", "400", "--work", "3ms"],
                "3.00 ms of work does not fit in a frame of 2.50 ms",
            ),
            (&["--vary", "rate=35,400", "--work", "3ms"], "does not fit"),
            (&["--work", "-3ms"], "invalid duration `-3ms`"),
            (&["--for", "-1s"], "20s, 500ms"),
            (&["--pid", "abc"], "invalid PID"),
            (&["--pid", "-5"], "invalid PID"),
            (
                &["--rate", "1", "--for", "500ms"],
                "before the first frame is due",
            ),
        ],
    );
}

#[test]
fn an_offline_cpu_is_named() {
    let output = pace(&["--cpu", "8000", "--for", "50ms"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = complaint(&output);
    assert!(errors.contains("CPU 8000 is not online"), "{errors}");
}

#[test]
fn a_missing_process_is_named() {
    let output = pace(&["--pid", "4194304", "--for", "50ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("no process 4194304"));
}

#[test]
fn an_unwritable_output_stops_the_loop_before_it_starts() {
    let output = pace(&["--for", "7d", "--output", "/nonexistent/page"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("/nonexistent/page"));
}

#[test]
fn a_short_loop_has_complete_figures() {
    let arguments = [
        "--rate", "100", "--work", "1ms", "--for", "300ms", "--format", "json",
    ];
    let output = pace(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let statement: PaceStatement = serde_json::from_slice(&output.stdout).unwrap();
    let figures = statement.figures.unwrap();
    assert!(figures.frames > 0);
    assert_eq!(figures.expected, Some(figures.frames + figures.dropped));
    assert_eq!(figures.slipped, Some(0), "frames on a grid do not slip");
    assert!(figures.work.unwrap().min >= Nanos::from_millis(1));
    let expected = Nanos::from_millis(1);
    assert!(matches!(statement.subject, Subject::Loop(report) if report.spec.work == expected));
    let clocks: Vec<CpuClock> = statement
        .cpu
        .readings
        .iter()
        .map(|reading| reading.clock)
        .collect();
    assert_eq!(clocks[0], CpuClock::Thread);
    assert!(clocks.contains(&CpuClock::Stat) && clocks.contains(&CpuClock::Machine));
}

/// Before the loop starts, the hybrid method sleeps several times to measure how late its sleeps
/// end. These sleeps must not be counted.
#[test]
fn calibration_sleeps_of_the_hybrid_method_do_not_count() {
    let output = pace(&[
        "--rate", "50", "--work", "1ms", "--sleep", "hybrid", "--for", "400ms", "--format", "json",
    ]);
    let statement: PaceStatement = serde_json::from_slice(&output.stdout).unwrap();
    let frames = statement.figures.unwrap().frames;
    let woken = statement.wakeups.unwrap().count;
    assert!(
        woken <= frames + 10,
        "woken {woken} times for {frames} frames"
    );
}

/// Checks that no range of sampled CPU times is reported for a loop that never sleeps. Every tick
/// interrupts such a loop, so the tick cannot miss it.
#[test]
fn a_spinning_loop_is_not_aliased_with_the_tick() {
    let output = pace(&[
        "--rate", "50", "--work", "1ms", "--sleep", "spin", "--for", "800ms", "--format", "json",
    ]);
    let statement: PaceStatement = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(statement.cpu.alias, None);
}

#[test]
fn a_pipe_gets_neither_colours_nor_a_progress_bar() {
    let output = pace(&["--for", "200ms", "--work", "0ms"]);
    for printed in [text(&output.stdout), text(&output.stderr)] {
        assert!(
            !printed.contains('\x1b') && !printed.contains('\r'),
            "{printed}"
        );
    }
    let printed = text(&output.stdout);
    assert!(
        printed.contains(" FPS, ") && printed.contains(" dropped, "),
        "{printed}"
    );
    assert!(printed.lines().count() <= 24, "{printed}");
    let full = text(&pace(&["--for", "200ms", "--work", "0ms", "--full"]).stdout);
    assert!(full.contains("\nFrames\n"), "{full}");
    let words = full.split_whitespace().collect::<Vec<_>>().join(" ");
    for phrase in ["dropped: slots in which", "without a frame in time"] {
        assert!(words.contains(phrase), "{full}");
    }
    assert!(
        printed.lines().all(|line| line.chars().count() <= 80),
        "{printed}"
    );
}

#[test]
fn a_comparison_has_a_row_per_combination_and_a_choice_per_rate() {
    let (sleeps, rates) = ("sleep=nanosleep,timerfd", "rate=100,200");
    let arguments = [
        "--vary", sleeps, "--vary", rates, "--work", "100us", "--rounds", "2", "--for", "100ms",
    ];
    let output = pace(&[&arguments[..], &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let comparison = ticktax_fixture::comparison(&output.stdout).unwrap();
    assert_eq!(comparison.arms.len(), 4);
    assert!(comparison.arms.iter().all(|arm| arm.runs == 2));
    let Experiment::Loops(loops) = &comparison.experiment else {
        panic!("{:?}", comparison.experiment);
    };
    let rates: Vec<f64> = loops.choices.iter().map(|choice| choice.rate).collect();
    assert_eq!(rates, [100.0, 200.0]);
    assert!(loops.choices.iter().all(|choice| !choice.best.is_empty()));
}

#[test]
fn a_saved_loop_prints_the_same_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("frames.parquet");
    let file = file.to_str().unwrap();
    let short = ["--rate", "100", "--work", "1ms", "--for", "300ms"];
    let live = pace(&[&short[..], &["--format", "json", "--save", file]].concat());
    assert_eq!(live.status.code(), Some(0), "{}", text(&live.stderr));
    let again = ticktax(&["report", file, "--format", "json"]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    assert_eq!(text(&again.stdout), text(&live.stdout));
}

#[test]
fn an_unwritable_recording_stops_the_loop_before_it_starts() {
    let output = pace(&["--for", "7d", "--save", "/nonexistent/frames.parquet"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("/nonexistent/frames.parquet"));
}

#[test]
fn live_and_recorded_traces_hold_the_same_frames() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, live, again) = (path("x.parquet"), path("live.pftrace"), path("x.pftrace"));
    let short = ["--rate", "100", "--work", "1ms", "--for", "300ms"];
    let output = pace(&[&short[..], &["--save", &file, "--perfetto", &live]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = ticktax(&["report", &file, "--perfetto", &again]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let [live, again] = [live, again].map(|file| std::fs::read(file).unwrap());
    assert!(live == again, "{} and {} bytes", live.len(), again.len());
    let frames = live.windows(7).filter(|bytes| bytes == b"late_ns").count();
    // On a busy machine, the loop may miss most of its 30 frames, so require only one.
    assert!(frames > 0, "no frames");
}

#[test]
fn a_failed_run_writes_no_trace_and_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, trace) = (path("x.parquet"), path("x.pftrace"));
    let output = pace(&["--rate", "100", "--for", "100ms", "--save", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // Damage the rows, but keep the header readable.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[10] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    std::fs::write(&trace, "before").unwrap();
    let output = ticktax(&["report", &file, "--perfetto", &trace]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("is damaged"));
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), "before");
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "a partial trace is left");
}

#[test]
fn variants_are_compared_again_from_their_recording() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.parquet").to_str().unwrap().to_owned();
    let vary = ["--vary", "rate=50,100", "--vary", "sleep=nanosleep,timerfd"];
    let short = [
        "--work", "1ms", "--for", "100ms", "--rounds", "2", "--format", "json",
    ];
    let output = pace(&[&vary[..], &short, &["--save", &file]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let live: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(live["document"], "comparison");
    assert_eq!(live["arms"].as_array().unwrap().len(), 4);
    assert_eq!(live["arms"][3]["runs"], 2);
    let output = ticktax(&["report", &file, "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let again: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(live, again);
}
