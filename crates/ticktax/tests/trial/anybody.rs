//! Tests for trials that change only their commands' settings, and for invalid arguments.

use libtest_mimic::Failed;

use crate::Test;
use crate::common::{complaint, text};
use crate::fixture::{JournalDir, check};

pub(crate) const ALL: &[(&str, Test)] = &[
    (
        "invalid_trials_are_refused_in_one_line",
        invalid_trials_are_refused_in_one_line,
    ),
    (
        "a_command_that_always_fails_is_not_compared",
        a_command_that_always_fails_is_not_compared,
    ),
    (
        "arms_are_compared_by_success_too",
        arms_are_compared_by_success_too,
    ),
    (
        "programs_are_compared_with_the_resources_they_used",
        programs_are_compared_with_the_resources_they_used,
    ),
    (
        "a_fail_if_condition_sets_the_exit_code",
        a_fail_if_condition_sets_the_exit_code,
    ),
];

/// Checks that invalid trials are refused in one line. The commands are children of this test, and
/// no setting on the machine changes.
fn invalid_trials_are_refused_in_one_line() -> Result<(), Failed> {
    let dir = JournalDir::new();
    let mut wrong = Vec::new();
    for (arguments, code, why) in [
        (
            &["vm.swapiness=1,2", "--", "true"][..],
            2,
            "did you mean vm.swappiness",
        ),
        (&["vm.swappiness=1,201", "--", "true"], 2, "0 to 200"),
        (&["proc.nice=1", "--", "true"], 2, "compares at least two"),
        (&["proc.nice=0,0", "--", "true"], 2, "are the same"),
        (&["vm.min_free_kbytes=2000,4000", "--", "true"], 2, "--yes"),
        (&["boot.isolcpus=1,2", "--", "true"], 2, "lab run"),
        (
            &["proc.nice=0,1", "--", "/nonexistent"],
            127,
            "program not found",
        ),
        (
            &["proc.nice=0,1", "--", "/etc/passwd"],
            126,
            "check that the file is executable",
        ),
        (
            &["proc.nice=0,1", "--fail-if", "x", "--", "true"],
            2,
            "invalid condition",
        ),
        (
            &["proc.nice=0,1", "--fail-if", "p99 > +1%", "--", "true"],
            2,
            "choose time",
        ),
        (
            &["proc.nice=0,1", "--pid", "8388608"],
            1,
            "no process 8388608",
        ),
        (
            &["proc.nice=0,1", "--pid", "1", "--metric", "time"],
            2,
            "requires a command",
        ),
        (&["proc.nice=0,1", "--cpu", "0", "--", "true"], 2, "--cpu"),
        (&["--", "true"], 2, "nothing to compare"),
        (&["--", "true", "--vs"], 2, "a command is missing"),
        (&["--", "--vs", "true"], 2, "a command is missing"),
        (&["--", "true", "--vs", "true"], 2, "both run `true`"),
        (
            &["--", "true", "--vs", "/nonexistent"],
            127,
            "program not found",
        ),
        (
            &["proc.nice=0,1,2", "--", "true", "--vs", "false"],
            2,
            "give the same number",
        ),
        (
            &["proc.nice=0,1", "--output", "/nonexistent/x", "--", "true"],
            1,
            "/nonexistent/x",
        ),
    ] {
        let output = dir.run(arguments);
        let errors = text(&output.stderr);
        let is_expected = errors.lines().count() == 1 && errors.contains(why);
        if !is_expected || output.status.code() != Some(code) {
            wrong.push(format!("{arguments:?}: {}, {errors}", output.status));
        }
    }
    check(wrong.is_empty(), || format!("{wrong:#?}"))?;
    check(!dir.journal().exists(), || "there is a journal".to_owned())
}

fn a_command_that_always_fails_is_not_compared() -> Result<(), Failed> {
    let dir = JournalDir::new();
    let output = dir.run(&["proc.nice=now,5", "--", "false"]);
    let why = complaint(&output);
    check(output.status.code() == Some(1), || {
        format!("{}", output.status)
    })?;
    check(
        why.contains("COMMAND fails in every arm (exit status: 1)"),
        || why.clone(),
    )?;
    dir.require_clear()
}

/// Each fork of B costs page faults, however busy the machine is. The command given with
/// `--before` has to run before every run, with the name of its arm.
fn programs_are_compared_with_the_resources_they_used() -> Result<(), Failed> {
    let dir = JournalDir::new();
    let list = dir.journal().with_file_name("arms");
    let before = format!("echo $TICKTAX_ARM >> {}", list.display());
    let statement = dir.statement(&[
        "--before",
        &before,
        "--blocks",
        "8",
        "--noise-runs",
        "0",
        "--no-audit",
        "--",
        "sh",
        "-c",
        "exit 0",
        "--vs",
        "sh",
        "-c",
        "for i in 1 2 3 4 5; do (exit 0); done",
    ])?;
    let setting = &statement["arms"][1]["settings"][0];
    check(setting["name"] == "command", || setting.to_string())?;
    let value = setting["value"].as_str().unwrap_or_default();
    check(value.starts_with("sh -c for i in"), || value.to_owned())?;
    let reasons = statement["experiment"]["reasons"].as_array();
    let mut reasons = reasons.into_iter().flatten();
    let faults = reasons.find(|reason| reason["resource"]["id"] == "faults");
    let verdict = faults.map(|faults| faults["contrast"]["verdict"].to_string());
    check(
        verdict
            .as_deref()
            .is_some_and(|text| text.contains("worse")),
        || format!("{faults:?}"),
    )?;
    let arms = std::fs::read_to_string(&list)?;
    let count = |arm: &str| arms.lines().filter(|line| *line == arm).count();
    check((count("A"), count("B")) == (17, 17), || arms.clone())?;
    dir.require_clear()
}

fn arms_are_compared_by_success_too() -> Result<(), Failed> {
    let dir = JournalDir::new();
    let statement = dir.statement(&[
        "proc.nice=now,5",
        "--blocks",
        "6",
        "--noise-runs",
        "0",
        "--",
        "sh",
        "-c",
        "[ $(nice) -lt 5 ]",
    ])?;
    let failed = |arm: usize| statement["arms"][arm]["failed"].as_u64();
    check(failed(0) == Some(0) && failed(1) == Some(12), || {
        format!("{:#}", statement["arms"])
    })
}

fn a_fail_if_condition_sets_the_exit_code() -> Result<(), Failed> {
    let dir = JournalDir::new();
    // The command sleeps longer in the second arm.
    let script = "[ $(nice) -lt 5 ] || sleep 0.15; sleep 0.02";
    let (met, unmet) = ("time > +20%", "time < -1%");
    for (conditions, code) in [(&[met][..], 6), (&[unmet], 0), (&[unmet, met], 6)] {
        let arguments = ["proc.nice=now,5", "--blocks", "6", "--noise-runs", "0"];
        let conditions = conditions
            .iter()
            .flat_map(|condition| ["--fail-if", condition]);
        let output = dir
            .command(&arguments)
            .args(conditions.clone())
            .args(["--", "sh", "-c", script])
            .output()?;
        check(output.status.code() == Some(code), || {
            let conditions: Vec<_> = conditions.collect();
            format!(
                "{conditions:?}: {}, {}",
                output.status,
                text(&output.stdout)
            )
        })?;
    }
    Ok(())
}
