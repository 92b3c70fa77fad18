//! Tests for audits of a machine that has no CPU to spare.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::Nanos;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::Level;

use super::attached;
use super::fixture::{check, statement};

/// Seconds after which the spinners end if the test does not end them.
const AT_MOST: &str = "60";

/// Spinners on every CPU, in a control group with the highest weight if such a group can be
/// created. When this is dropped, the spinners stop and the group is removed.
struct Spinners {
    processes: Vec<Child>,
    group: Option<PathBuf>,
}

impl Spinners {
    fn start(count: usize) -> Result<Self, Failed> {
        let mut spinners = Self {
            processes: Vec::new(),
            group: group(),
        };
        let join = spinners.group.as_ref().map_or_else(String::new, |group| {
            format!("echo $$ > {}/cgroup.procs; ", group.display())
        });
        for _ in 0..count {
            let script = format!("{join}exec timeout {AT_MOST} sh -c 'while :; do :; done'");
            let mut command = Command::new("sh");
            // Start a process group, so that `timeout` and the spinner can be ended together.
            command.args(["-c", &script]).process_group(0);
            let spinner = command.stdin(Stdio::null()).spawn()?;
            spinners.processes.push(spinner);
        }
        Ok(spinners)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for spinner in &mut self.processes {
            if let Ok(pid) = i32::try_from(spinner.id()) {
                let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            }
            let _ = spinner.wait();
        }
        let Some(group) = &self.group else {
            return;
        };
        // Try several times, because a process that has just exited can still be in the group.
        for _ in 0..100 {
            if fs::remove_dir(group).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Creates a control group with the highest weight, or returns `None` if that is impossible.
fn group() -> Option<PathBuf> {
    let name = format!("ticktax-starved-{}", std::process::id());
    let make = |root: &str, file: &str, weight: &str| {
        let folder = Path::new(root).join(&name);
        fs::create_dir(&folder).ok()?;
        if fs::write(folder.join(file), weight).is_err() {
            let _ = fs::remove_dir(&folder);
            return None;
        }
        Some(folder)
    };
    make("/sys/fs/cgroup/cpu", "cpu.shares", "262144")
        .or_else(|| make("/sys/fs/cgroup", "cpu.weight", "10000"))
}

/// Checks that an audit loses no events while spinners use all CPUs. The events come from real-time
/// threads, which the spinners do not delay.
pub(crate) fn nothing_is_lost_without_a_cpu_to_spare() -> Result<(), Failed> {
    let cpus = ticktax_inject::allowed_cpus()?;
    // Each thread causes four events every 100 µs on its CPU: a timer expiry, two switches and a
    // wake-up.
    let schedule = Schedule::every(Nanos::from_micros(100), Nanos::from_micros(2));
    let events = cpus.iter().map(|cpu| {
        let plan = Plan::new(Disturbance::Fifo { priority: 20 }, cpu);
        let plan = plan.schedule(schedule).duration(Nanos::from_secs(40));
        ticktax_inject::spawn(&plan)
    });
    let events = events.collect::<Result<Vec<_>, _>>()?;
    // The spinners also slow down this test. Once they run, a shell with a real-time priority
    // starts the audit with an ordinary policy.
    let audit = Command::new("chrt")
        .args(["-f", "30", "sh", "-c"])
        .arg("sleep 2; exec chrt -o 0 \"$0\" audit --for 4s --format json")
        .arg(env!("CARGO_BIN_EXE_ticktax"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let spinners = Spinners::start(2 * cpus.len())?;
    let output = audit.wait_with_output()?;
    drop(spinners);
    for events in events {
        events.stop()?;
    }
    let statement = statement(&output)?;
    check(statement.level == Level::Kernel, || {
        format!("{:?}", statement.coverage)
    })?;
    check(statement.cost.events > 100_000, || {
        format!("only {} events", statement.cost.events)
    })?;
    check(statement.coverage.events_lost() == 0, || {
        format!("{:?}", statement.coverage.lost)
    })?;
    check(statement.balance.balances(), || {
        format!("{:?}", statement.balance)
    })?;
    let limitations = &statement.coverage.limitations;
    let is_late = |limitation: &Limitation| {
        matches!(
            limitation,
            Limitation::PriorityRefused { .. } | Limitation::AccountsBeganLate { .. }
        )
    };
    check(!limitations.iter().any(is_late), || {
        format!("{limitations:?}")
    })
}

/// Checks that the audit reports that it was refused a real-time priority. To make the audit need
/// the priority, the test stops it for a while, which has the same effect as a busy CPU.
pub(crate) fn a_refused_priority_is_reported() -> Result<(), Failed> {
    let audit = Command::new("setpriv")
        .args(["--bounding-set=-sys_nice", "--inh-caps=-sys_nice"])
        .arg(env!("CARGO_BIN_EXE_ticktax"))
        .args(["audit", "--for", "8s", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = Pid::from_raw(i32::try_from(audit.id())?);
    attached::wait_for_all(audit.id())?;
    // Stop the audit several times, because the first stops may come before the recording starts.
    for _ in 0..6 {
        kill(pid, Signal::SIGSTOP)?;
        thread::sleep(Duration::from_millis(300));
        kill(pid, Signal::SIGCONT)?;
        thread::sleep(Duration::from_millis(500));
    }
    let statement = statement(&audit.wait_with_output()?)?;
    check(statement.level == Level::Kernel, || {
        format!("{:?}", statement.coverage)
    })?;
    let limitations = &statement.coverage.limitations;
    let is_refused = limitations.iter().any(|limitation| match limitation {
        Limitation::PriorityRefused { reason } => !reason.is_empty(),
        _ => false,
    });
    check(is_refused, || format!("{limitations:?}"))
}
