//! Runs the queries in `docs/reference/data.md` on a recording, each in a separate process.
//!
//! The queries need the Python packages `duckdb`, `pandas` and `pyarrow`. If a package is missing,
//! the tests that need it are reported as ignored.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

use common::{GAME, text, ticktax};

const PAGE: &str = include_str!("../../../docs/reference/data.md");

fn main() -> ExitCode {
    let imports = |packages: &str| {
        let found = Command::new("python3")
            .args(["-c", &format!("import {packages}")])
            .output();
        found.is_ok_and(|output| output.status.success())
    };
    let trials = vec![
        Trial::test("python::the_sql_of_the_page_runs", || run("sql", SQL))
            .with_ignored_flag(!imports("duckdb")),
        Trial::test("python::the_pandas_of_the_page_runs", || {
            run("python", PANDAS)
        })
        .with_ignored_flag(!imports("pandas, pyarrow")),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Python program that runs a query from a file and prints the number of rows.
const SQL: &str = "
import duckdb, sys
rows = duckdb.sql(open(sys.argv[1]).read()).fetchall()
print(len(rows))
print(rows[:1])
";
const PANDAS: &str = "
import sys
import pandas as pd
rows = pd.read_parquet('lag.parquet')
scope = {'pd': pd, 'rows': rows}
exec(open(sys.argv[1]).read(), scope)
print(len(scope['result']))
print(scope['result'])
";

/// Runs every code block on the page that is written in `language`. Each block must return at least
/// one row.
fn run(language: &str, runner: &str) -> Result<(), Failed> {
    let queries = blocks(language);
    assert_eq!(queries.len(), 5, "{language}");
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    record(at)?;
    fs::write(at.join("run.py"), runner)?;
    for query in queries {
        fs::write(at.join("query"), &query)?;
        let output = Command::new("python3")
            .args(["run.py", "query"])
            .current_dir(at)
            .output()?;
        let printed = text(&output.stdout);
        let rows = printed
            .lines()
            .next()
            .and_then(|count| count.parse::<u64>().ok());
        if rows.is_none_or(|rows| rows < 1) {
            return Err(format!("{query}\n{printed}{}", text(&output.stderr)).into());
        }
        if query.contains("AS seconds") {
            // The recording covers one CPU (CPU 0) for 30 s.
            assert!(printed.contains("(0, 30.0)"), "{printed}");
        }
    }
    Ok(())
}

/// Simulates a scenario and saves the recording as `lag.parquet`.
fn record(folder: &Path) -> Result<(), Failed> {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (scenario, recording) = (path("game.toml"), path("lag.parquet"));
    fs::write(&scenario, GAME)?;
    let output = ticktax(&["sim", "--load", &scenario, "--save", &recording]);
    if !output.status.success() {
        return Err(text(&output.stderr).into());
    }
    Ok(())
}

fn blocks(language: &str) -> Vec<String> {
    let fence = format!("```{language}");
    let mut lines = PAGE.lines();
    let mut blocks = Vec::new();
    while lines.by_ref().any(|line| line == fence) {
        let block = lines.by_ref().take_while(|line| *line != "```");
        blocks.push(block.collect::<Vec<_>>().join("\n"));
    }
    blocks
}
