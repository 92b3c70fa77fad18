//! Somebody else's loop, watched: what is found in it must be what it was asked for.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use ticktax_model::pace::{PaceStatement, Subject};

use super::fixture::{check, ticktax};

/// A program, ended with the test.
struct Program(Child);

impl Program {
    fn start(command: &mut Command) -> Result<Self, Failed> {
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let program = Self(command.spawn()?);
        // Its loop has begun by then; if not, it has fewer frames.
        thread::sleep(Duration::from_millis(300));
        Ok(program)
    }

    fn watch(&self, length: &str) -> Result<PaceStatement, Failed> {
        let pid = self.0.id().to_string();
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("frames.parquet");
        let file = file.to_str().ok_or("a folder that is no text")?;
        let watched = ["--for", length, "--pid", &pid, "--save", file];
        let output = ticktax(&[&["pace", "--format", "json"][..], &watched].concat()).output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        check(output.status.success(), || complaint.to_string())?;
        let again = ticktax(&["report", "--format", "json", file]).output()?;
        check(again.stdout == output.stdout, || {
            format!(
                "reported otherwise: {}",
                String::from_utf8_lossy(&again.stderr)
            )
        })?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn finds_the_rate_of_a_loop_by_its_wakeups() -> Result<(), Failed> {
    let arguments = ["pace", "--rate", "50", "--work", "2ms", "--for", "1h"];
    let program = Program::start(&mut ticktax(&arguments))?;
    let told = program.watch("4s")?;
    let Subject::Process(report) = &told.subject else {
        return Err("it is not told as a process".into());
    };
    let chosen = report
        .chosen
        .ok_or_else(|| format!("no rhythm: {report:#?}"))?;
    let thread = &report.threads[chosen];
    check(thread.name.starts_with("ttx-pace"), || {
        format!("{thread:#?}")
    })?;
    let period = thread.rhythms[0].period;
    check((period / 20e6 - 1.0).abs() < 1e-3, || {
        format!("{period} ns")
    })?;
    let figures = told.figures.ok_or("no figures")?;
    // All slots are accounted for, however busy the machine is.
    let slots = figures.frames + figures.dropped;
    check((195..=201).contains(&slots), || format!("{figures:#?}"))?;
    let work = figures.work.ok_or("no work")?;
    // Others preempt some of the frames on a machine that is shared.
    let median = work.quantile(0.5).ok_or("no median")?;
    check((median.0 - 2_000_000).abs() < 200_000, || {
        format!("{work:#?}")
    })
}

pub(crate) fn says_that_a_program_has_no_rhythm() -> Result<(), Failed> {
    let program = Program::start(Command::new("sleep").arg("60"))?;
    let told = program.watch("500ms")?;
    check(told.figures.is_none(), || format!("{told:#?}"))
}

pub(crate) fn ends_with_the_process() -> Result<(), Failed> {
    let program = Program::start(Command::new("sleep").arg("1"))?;
    let told = program.watch("1m")?;
    let why = told.ended_early.unwrap_or_default();
    check(why.contains("ended"), || why.clone())
}
