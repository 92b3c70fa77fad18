//! Tests for `pace --pid`, which watches another program's loop. The results must match that loop's
//! settings.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::Nanos;
use ticktax_model::pace::{PaceEnd, PaceStatement, Subject};
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::victim::LateCause;

use super::attached;
use super::fixture::{check, ticktax};

/// A running program, which is killed when this is dropped.
struct Program(Child);

impl Program {
    fn start(command: &mut Command) -> Result<Self, Failed> {
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let program = Self(command.spawn()?);
        // Give the loop time to start. If it starts even later, the test merely sees fewer frames.
        thread::sleep(Duration::from_millis(300));
        Ok(program)
    }

    fn watch(&self, length: &str) -> Result<PaceStatement, Failed> {
        let pid = self.0.id().to_string();
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("frames.parquet");
        let file = file.to_str().ok_or("the path of the folder is not UTF-8")?;
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
        // Ignore errors: the program may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn finds_the_rate_of_a_loop_from_its_wakeups() -> Result<(), Failed> {
    // Give the loop a higher priority than all ordinary programs. Behind ten busy programs, it
    // would constantly have to catch up, so there would be no frame rate to find.
    let mut arguments = vec!["pace", "--rate", "50", "--work", "2ms", "--for", "1h"];
    arguments.extend(["--policy", "rr:1"]);
    let program = Program::start(&mut ticktax(&arguments))?;
    let statement = program.watch("4s")?;
    let Subject::Process(report) = &statement.subject else {
        return Err("the subject is not a process".into());
    };
    let chosen = report
        .chosen
        .ok_or_else(|| format!("no rhythm: {report:#?}"))?;
    let thread = &report.threads[chosen];
    check(thread.name.starts_with("ttx-pace"), || {
        format!("{thread:#?}")
    })?;
    let period = thread.periods[0].rhythm.period;
    check((period / 20e6 - 1.0).abs() < 1e-3, || {
        format!("{period} ns")
    })?;
    let figures = statement.figures.ok_or("no figures")?;
    // All slots in the watched time must be accounted for, even on a busy machine. If the loop
    // wakes up for a reason other than its timer, such as the end of a page fault that waited for a
    // disk, the wake-up counts as a frame. The tolerance of 3 % allows for this.
    let slots = (figures.frames + figures.dropped) as f64;
    let due = statement.elapsed.as_secs_f64() * 50.0;
    check((slots / due - 1.0).abs() < 0.03, || {
        format!("{slots} slots of {due}: {figures:#?}")
    })?;
    let work = figures.work.ok_or("no work")?;
    // On a shared machine, other programs preempt the loop during some of its frames, so check only
    // the median.
    let median = work.quantile(0.5).ok_or("no median")?;
    check((median.0 - 2_000_000).abs() < 200_000, || {
        format!("{work:#?}")
    })
}

/// Checks that the culprit behind late frames is named. A FIFO thread takes the loop's CPU for 30
/// ms out of every 300 ms. It must be named as the cause of most late frames, with its period and
/// its policy.
pub(crate) fn names_the_culprit_of_late_frames() -> Result<(), Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let number = cpu.to_string();
    // Give the loop a higher priority than all ordinary programs, so that they do not delay it on a
    // busy machine.
    let mut arguments = vec!["pace", "--rate", "50", "--work", "2ms", "--for", "1h"];
    arguments.extend(["--cpu", &number, "--policy", "rr:1"]);
    let program = Program::start(&mut ticktax(&arguments))?;
    let period = Nanos::from_millis(300);
    let schedule = Schedule::every(period, Nanos::from_millis(30));
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(schedule)
        .duration(Nanos::from_secs(3600));
    let running = ticktax_inject::spawn(&plan)?;
    let statement = program.watch("6s")?;
    let truth = running.stop()?;
    let late = statement.late.ok_or("no frame was late")?;
    // The thread that disturbs the loop belongs to this process.
    let here = i32::try_from(std::process::id())?;
    let named = |cause: &&LateCause| {
        cause
            .culprit
            .as_ref()
            .is_some_and(|by| by.pids.contains(&here))
    };
    let cause = late.causes.iter().find(named);
    let cause = cause.ok_or_else(|| format!("{} is not named: {late:#?}", truth.comm))?;
    // The disturbing thread runs 20 times. In ten of eleven cases, it overlaps a slot by more than
    // a tick, so about 18 frames are late because of it. Require only 12.
    check(cause.frames >= 12, || format!("{late:#?}"))?;
    check(cause.policy == Some(SpecialPolicy::Fifo(50)), || {
        format!("{cause:#?}")
    })?;
    let found = cause
        .period
        .ok_or_else(|| format!("no period: {cause:#?}"))?;
    check((found / period.0 as f64 - 1.0).abs() < 1e-3, || {
        format!("{found} ns")
    })
}

pub(crate) fn reports_that_a_program_has_no_rhythm() -> Result<(), Failed> {
    let program = Program::start(Command::new("sleep").arg("60"))?;
    let statement = program.watch("500ms")?;
    check(statement.figures.is_none(), || format!("{statement:#?}"))
}

pub(crate) fn ends_with_the_process() -> Result<(), Failed> {
    let program = Program::start(Command::new("sleep").arg("1h"))?;
    let pid = program.0.id().to_string();
    let watching = ticktax(&["pace", "--format", "json", "--for", "10m", "--pid", &pid])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    attached::wait_for_all(watching.id())?;
    drop(program);
    let output = watching.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || complaint.to_string())?;
    let statement: PaceStatement = serde_json::from_slice(&output.stdout)?;
    let ended = matches!(statement.ended_early, Some(PaceEnd::ProcessExited { .. }));
    check(ended, || format!("{:?}", statement.ended_early))
}
