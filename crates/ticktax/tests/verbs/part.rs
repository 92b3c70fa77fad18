//! Tests for `ticktax report --from --to`, which reports part of a recording.
use std::fs;
use std::path::PathBuf;

use ticktax_model::Nanos;
use ticktax_model::beats::BeatStatement;
use ticktax_model::pace::PaceStatement;
use ticktax_model::statement::Statement;

use crate::common::{GAME, complaint, simulate, text, ticktax};

/// Simulates 30 s of [`GAME`] and saves the recording in a new directory.
fn recorded() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("game.toml");
    let recording = folder.path().join("game.parquet");
    fs::write(&scenario, GAME).unwrap();
    simulate(&scenario, &recording);
    (folder, recording)
}

fn json(arguments: &[&str]) -> Statement {
    let output = ticktax(&[arguments, &["--audit", "--format", "json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_part_balances_and_is_saved_as_a_recording_that_prints_the_same() {
    let (folder, recording) = recorded();
    let recording = recording.to_str().unwrap();
    let saved = folder.path().join("part.parquet");
    let saved = saved.to_str().unwrap();
    let part = json(&[
        "report", recording, "--from", "12s", "--to", "14", "--save", saved,
    ]);
    assert!(part.balance.balances(), "{:?}", part.balance);
    let cpus = i64::try_from(part.cpus.len()).unwrap();
    assert_eq!(part.balance.elapsed, Nanos(2_000_000_000 * cpus));
    let range = part.part.unwrap();
    assert_eq!(
        (range.from, range.to),
        (Nanos::from_secs(12), Nanos::from_secs(14))
    );

    let again = json(&["report", saved]);
    assert_eq!(again, part);
    // Times are relative to the start of the entire recording. In the part, a source's first event
    // must therefore come a whole number of periods after its first event in the entire recording.
    let beats = again.beats.unwrap().beats;
    assert!(!beats.is_empty());
    let complete = json(&["report", recording]);
    assert!(complete.part.is_none());
    let all = complete.beats.unwrap().beats;
    for beat in &beats {
        assert!(beat.first >= Nanos::from_secs(12), "{beat:#?}");
        let same = all.iter().find(|other| other.name == beat.name);
        if let Some(other) = same.filter(|other| !other.rhythm.rearmed && !beat.rhythm.rearmed) {
            let periods = (beat.first - other.first).0 as f64 / other.rhythm.period;
            let off = (periods - periods.round()).abs();
            assert!(
                off < 0.05,
                "{periods} periods between {beat:#?} and {other:#?}"
            );
        }
    }
    let page = ticktax(&["report", saved, "--audit"]);
    let page = text(&page.stdout);
    assert!(
        page.contains("Only 12.000 to 14.000 s of a recording of 30"),
        "{page}"
    );
}

#[test]
fn a_part_has_the_frames_that_were_due_in_it() {
    let (_folder, recording) = recorded();
    let recording = recording.to_str().unwrap();
    let output = ticktax(&[
        "report", recording, "--from", "10", "--to", "20", "--format", "json",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let statement: PaceStatement = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(statement.elapsed, Nanos::from_secs(10));
    let frames = statement.figures.unwrap().frames;
    assert!((394..=396).contains(&frames), "{frames} in 10 s at 25.3 ms");
}

#[test]
fn beats_and_report_find_the_same_periods_in_a_part() {
    let (_folder, recording) = recorded();
    let recording = recording.to_str().unwrap();
    let part = ["--from", "10", "--to", "20", "--format", "json"];
    let output = ticktax(&[&["beats", recording][..], &part].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: BeatStatement = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found.window <= Nanos::from_secs(10), "{}", found.window);
    let report = json(&["report", recording, "--from", "10", "--to", "20"]);
    let beats = report.beats.unwrap().beats;
    assert!(!beats.is_empty());
    for beat in &beats {
        assert!(
            found.beats.contains(beat),
            "{beat:#?} of {:#?}",
            found.beats
        );
    }
    let output = ticktax(&["beats", recording, "--from", "5", "--to", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("swap them"));
}

#[test]
fn completed_sections_depend_on_the_recording() {
    let (_folder, recording) = recorded();
    let offered = |words: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_ticktax"))
            .env("COMPLETE", "fish")
            .args([&["--", "ticktax"], words].concat())
            .output()
            .unwrap();
        let lines = text(&output.stdout);
        let words = lines.lines().filter_map(|line| line.split('\t').next());
        words.map(str::to_owned).collect::<Vec<String>>()
    };
    let file = recording.to_str().unwrap();
    let loop_sections = offered(&["report", file, "--section", ""]);
    assert_eq!(
        loop_sections,
        ["accounting", "frames", "limits", "legend"].map(String::from)
    );
    let audit = offered(&["report", file, "--audit", "--section", ""]);
    assert!(audit.contains(&"tick".to_owned()), "{audit:?}");
    assert!(!audit.contains(&"frames".to_owned()), "{audit:?}");
    let any = offered(&["report", "--section", ""]);
    assert!(any.contains(&"frames".to_owned()) && any.contains(&"tick".to_owned()));
}

#[test]
fn invalid_parts_are_refused_in_one_line() {
    let (_folder, recording) = recorded();
    let recording = recording.to_str().unwrap();
    for (arguments, why) in [
        (&["--from", "14s", "--to", "12s"][..], "swap them"),
        (&["--from", "12s", "--to", "12s"], "is empty"),
        (&["--from", "31s"], "31.0 s is outside the recording"),
        (&["--to", "40s"], "40.0 s is outside the recording"),
    ] {
        let output = ticktax(&[&["report", recording], arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        let errors = complaint(&output);
        assert!(errors.contains(why), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty());
    }
    let output = ticktax(&["report", recording, "--from", "-1s"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("invalid duration"));
}
