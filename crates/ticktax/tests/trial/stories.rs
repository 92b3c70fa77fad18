//! Runs the examples in `docs/reference/try.md`, called stories, exactly as they are written there.

use std::fs;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;
use serde_json::Value;

use crate::common::text;
use crate::fixture::{JournalDir, check, verdict};

const PAGE: &str = include_str!("../../../../docs/reference/try.md");
/// Start of the comment before a story: `<!-- story NAME: METRIC RESULT, … -->`.
const MARK: &str = "<!-- story ";
/// Size below which an effect counts as small, as a fraction.
const SMALL: f64 = 0.5;
/// Load average above which a story may end with "cannot tell".
const BUSY: f64 = 3.0;

/// A command in `docs/reference/try.md`, and the results expected from it.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    /// The metrics, each with the expected result: `worse` or `small`.
    expected: Vec<(&'static str, &'static str)>,
    command: &'static str,
}

pub(crate) fn all() -> Vec<Story> {
    PAGE.split(MARK).skip(1).map(story).collect()
}

fn story(text: &'static str) -> Story {
    let (mark, rest) = text.split_once(" -->").unwrap();
    let (name, expected) = mark.split_once(": ").unwrap();
    let (_, block) = rest.split_once("```sh\n").unwrap();
    let (command, _) = block.split_once("\n```").unwrap();
    Story {
        name,
        expected: expected
            .split(", ")
            .map(|result| result.split_once(' ').unwrap())
            .collect(),
        command,
    }
}

impl Story {
    pub(crate) fn check(&self) -> Result<(), Failed> {
        let dir = JournalDir::new();
        let typed = self.command.strip_prefix("sudo ticktax try ");
        let typed = typed.ok_or_else(|| format!("{}: {}", self.name, self.command))?;
        let program = env!("CARGO_BIN_EXE_ticktax");
        let journal = dir.journal();
        let script = format!(
            "{program} try --format json --journal {} {typed}",
            journal.display()
        );
        let output = Command::new("bash").args(["-c", &script]).output()?;
        check(output.status.success(), || {
            format!("{}: {}", output.status, text(&output.stderr))
        })?;
        let statement: Value = serde_json::from_slice(&output.stdout)?;
        for (metric, expected) in &self.expected {
            let (verdict, effect) = verdict(&statement, metric);
            let is_expected = match *expected {
                "worse" => verdict == "worse" || (verdict == "cannot-tell" && is_busy()),
                _ => verdict == "no-difference-beyond" || effect.abs() < SMALL || is_busy(),
            };
            check(is_expected, || {
                format!("{metric}: {verdict}, {effect}: {statement:#}")
            })?;
        }
        dir.require_clear()
    }
}

fn is_busy() -> bool {
    let load = fs::read_to_string(Path::new("/proc/loadavg")).unwrap();
    let recent = load
        .split_whitespace()
        .next()
        .and_then(|load| load.parse().ok());
    recent.is_some_and(|load: f64| load > BUSY)
}
