//! Tests for audits of a program, with disturbances of known size.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_host::Proc;
use ticktax_inject::{Disturbance, Plan, Schedule, Truth};
use ticktax_model::advice::Advice;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::victim::{ThreadState, ThreadTimes};
use ticktax_model::{Cpu, Nanos};

use super::attached;
use super::checks::Tolerance;
use super::checks::victims::{self as checks, threads, time};
use super::fixture::{Recorded, RecordingDir, check, close, injector, statement, ticktax};

struct Shell(Child);

impl Shell {
    /// Runs a script in a shell. If `cpu` is given, the shell runs only on that CPU.
    fn run(script: &str, cpu: Option<Cpu>) -> Result<Self, Failed> {
        let child = Command::new("sh").args(["-c", script]).spawn()?;
        let shell = Self(child);
        if let Some(cpu) = cpu {
            let mut only = CpuSet::new();
            only.set(cpu.index())?;
            sched_setaffinity(Pid::from_raw(shell.pid()?), &only)?;
        }
        Ok(shell)
    }

    fn pid(&self) -> Result<i32, Failed> {
        Ok(i32::try_from(self.0.id())?)
    }

    fn audit(&self) -> Result<ThreadTimes, Failed> {
        let dir = RecordingDir::new();
        self.audit_to(&dir.file("recording.parquet"))
    }

    fn audit_to(&self, recording: &Path) -> Result<ThreadTimes, Failed> {
        let pid = self.pid()?.to_string();
        let output = ticktax(&[
            "audit", "--probe", "none", "--format", "json", "--for", "2s",
        ])
        .args(["--pid", &pid, "--save"])
        .arg(recording)
        .output()?;
        threads(&statement(&output)?)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Ignore errors: the shell may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn audit_of(plan: &Plan) -> Result<(Truth, ThreadTimes), Failed> {
    let dir = RecordingDir::new();
    let (command, truth) = injector(plan, &dir)?;
    let output = ticktax(&["audit", "--probe", "none", "--format", "json", "--"])
        .args(command)
        .output()?;
    let threads = threads(&statement(&output)?)?;
    Ok((serde_json::from_slice(&fs::read(truth)?)?, threads))
}

/// Checks that a program only counts as throttled while its own quota is used up. A different
/// cgroup's quota is refilled every 10 ms, and a real-time thread runs most of the time. Once the
/// quota of the program's own cgroup is refilled, waiting behind that thread is not throttling,
/// even if the wait lasts for several quota periods.
pub(crate) fn is_throttled_by_its_own_quota_alone() -> Result<(), Failed> {
    let millis = Nanos::from_millis;
    own_quota_alone(millis(10), millis(100))?;
    own_quota_alone(millis(2), millis(20))
}

fn own_quota_alone(length: Nanos, period: Nanos) -> Result<(), Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let (forever, millis) = (Nanos::from_secs(3600), Nanos::from_millis);
    let quota = |quota, period| {
        let quota = Disturbance::Throttle { quota };
        Plan::new(quota, cpu).schedule(Schedule::every(period, Nanos::ZERO))
    };
    let thief = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(Schedule::every(millis(70), millis(40)))
        .duration(forever);
    let thief = ticktax_inject::spawn(&thief)?;
    let other = ticktax_inject::spawn(&quota(millis(1), millis(10)).duration(forever))?;
    let plan = quota(length, period).duration(Nanos::from_secs(4));
    let (truth, threads) = audit_of(&plan)?;
    thief.stop()?;
    other.stop()?;
    let held = truth.injected.as_ref().ok_or("no truth")?.time;
    let throttled = time(&threads, ThreadState::Throttled);
    let what = format!("throttled of {length} in {period}");
    checks::is_held_by_its_own_quota(&what, throttled, held)
}

/// Checks that a program waits behind a FIFO thread. The disturbance starts before the audit and
/// ends after it, no matter how long the audit takes to start.
pub(crate) fn waits_behind_a_fifo_thread() -> Result<(), Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let schedule = Schedule::every(Nanos::from_millis(20), Nanos::from_millis(4));
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(schedule)
        .duration(Nanos::from_secs(3600));
    let loop_forever = Shell::run("while :; do :; done", Some(cpu))?;
    let running = ticktax_inject::spawn(&plan)?;
    let dir = RecordingDir::new();
    let recording = dir.file("recording.parquet");
    let threads = loop_forever.audit_to(&recording)?;
    let truth = running.stop()?;
    let recorded = Recorded::read(&recording)?;
    checks::waits_behind(&truth, &recorded, &threads, Tolerance::LIVE)
}

/// Checks that the report names the code of two programs that compete with the watched one: a
/// program that spends its time in a system call, and a shell that spends it in user mode.
pub(crate) fn names_the_code_of_its_competitors() -> Result<(), Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let victim = Shell::run("while :; do :; done", Some(cpu))?;
    let reader = Shell::run("exec dd if=/dev/zero of=/dev/null bs=16M", Some(cpu))?;
    let spinner = Shell::run("while :; do :; done", Some(cpu))?;
    let threads = victim.audit()?;
    let code = |shell: &Shell| {
        let pid = shell.pid()?;
        let mut behind = threads.behind.iter();
        let culprit = behind.find(|culprit| culprit.pid == Some(pid));
        let code = culprit.and_then(|culprit| culprit.code.as_ref());
        let code = code.ok_or_else(|| format!("no code of {pid}: {:#?}", threads.behind))?;
        let place = code.places.first().ok_or_else(|| format!("{code:#?}"))?;
        check(code.places.len() == 1 && code.samples > 10, || {
            format!("{code:#?}")
        })?;
        Ok::<_, Failed>(place.clone())
    };
    let place = code(&reader)?;
    let is_read = place.is_kernel && place.called_from.as_deref() == Some("read");
    check(is_read, || format!("{place:#?}"))?;
    let shell = fs::canonicalize("/bin/sh")?;
    let shell = shell.file_name().and_then(|file| file.to_str());
    let place = code(&spinner)?;
    // The shell's file may have no symbols.
    let file = place.file.as_deref().or(place.function.split('+').next());
    let is_shell = !place.is_kernel && file == shell;
    check(is_shell, || format!("{place:#?}, not {shell:?}"))
}

/// Checks the throttling of real-time threads. A real-time loop and an ordinary loop share a CPU
/// for more than three of the periods in which the kernel reserves time for ordinary threads.
pub(crate) fn a_real_time_loop_is_throttled_by_the_kernel() -> Result<(), Failed> {
    let machine = Proc::default().machine();
    let limits = |name: &str| {
        let file = machine.configured.file(&format!("proc/sys/kernel/{name}"));
        file.and_then(|text| text.parse::<i64>().ok())
    };
    let (runtime, period) = (limits("sched_rt_runtime_us"), limits("sched_rt_period_us"));
    if (runtime, period) != (Some(950_000), Some(1_000_000)) {
        return Ok(());
    }
    let cpu = ticktax_inject::default_cpu()?;
    // If the test fails, the limit on CPU time ends the loops.
    let _ordinary = Shell::run("ulimit -t 20; while :; do :; done", Some(cpu))?;
    let hog = Shell::run("ulimit -t 20; while :; do :; done", Some(cpu))?;
    let changed = Command::new("chrt")
        .args(["-f", "-p", "10", &hog.pid()?.to_string()])
        .status()?;
    check(changed.success(), || format!("chrt: {changed}"))?;
    let output = ticktax(&[
        "audit", "--probe", "none", "--format", "json", "--for", "5s",
    ])
    .args(["--pid", &hog.pid()?.to_string()])
    .output()?;
    drop(hog);
    let statement = statement(&output)?;
    let threads = threads(&statement)?;
    let held = &threads.real_time;
    check(!held.is_empty(), || format!("{:?}", threads.delays))?;
    // The limit can be recognised only in delays that end at least one period after the start of
    // the audit, because it must be known how much of the previous period was used. If a delay is
    // longer than the reserved time plus a few ticks, the limit is not its cause.
    let upper = Nanos::from_millis(60);
    let mut delays = threads.delays.iter().filter(|delay| delay.length <= upper);
    let longest = delays.find(|delay| delay.at >= Nanos::from_secs(1));
    let longest = longest.ok_or_else(|| format!("{:?}", threads.delays))?;
    check(longest.limit.is_some(), || format!("{longest:?}"))?;
    let time: Nanos = held.iter().map(|held| held.time).sum();
    let accounted = checks::time(&threads, ThreadState::RealTimeLimit);
    check(time == accounted && time >= Nanos::from_millis(20), || {
        format!("{time}, but {accounted} in the account: {held:?}")
    })?;
    let advised = |advice: &Advice| matches!(advice, Advice::RealTimeLimited { .. });
    check(statement.advice.iter().any(advised), || {
        format!("{:?}", statement.advice)
    })
}

pub(crate) fn is_throttled_by_its_quota() -> Result<(), Failed> {
    let quota = Nanos::from_millis(20);
    let cpu = ticktax_inject::default_cpu()?;
    let plan = Plan::new(Disturbance::Throttle { quota }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(100), Nanos::ZERO))
        .duration(Nanos::from_secs(3));
    let (truth, threads) = audit_of(&plan)?;
    checks::is_throttled(&truth, &threads)
}

pub(crate) fn sleeps() -> Result<(), Failed> {
    let sleeper = Shell::run("exec sleep 60", None)?;
    thread::sleep(Duration::from_millis(200));
    let threads = sleeper.audit()?;
    // The program never runs during the audit, so its recording contains a single wait and no
    // events.
    let asleep = time(&threads, ThreadState::Sleeping);
    check(asleep == threads.elapsed, || format!("{threads:?}"))?;
    close("asleep", asleep.as_secs_f64(), 2.0, 0.2)
}

pub(crate) fn ends_with_the_victim() -> Result<(), Failed> {
    let ending = Shell::run("while sleep 0.01; do :; done", None)?;
    let pid = ending.pid()?.to_string();
    let audit = ticktax(&[
        "audit", "--probe", "none", "--format", "json", "--for", "10m",
    ])
    .args(["--pid", &pid])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()?;
    attached::wait_for_all(audit.id())?;
    drop(ending);
    let threads = threads(&statement(&audit.wait_with_output()?)?)?;
    check(threads.elapsed < Nanos::from_secs(60), || {
        format!("{}", threads.elapsed)
    })
}

pub(crate) fn follows_children_and_threads() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    // The script starts eight processes in addition to the shell, and then this test binary, which
    // lists its tests and has several threads.
    let script = "for i in 1 2 3 4 5 6 7 8; do /bin/true; done; \"$1\" --list > \"$2\"";
    let recording = dir.file("x.parquet");
    let output = ticktax(&["audit", "--probe", "none", "--format", "json", "--save"])
        .arg(&recording)
        .args(["--", "sh", "-c", script, "sh"])
        .arg(env::current_exe()?)
        .arg(dir.file("list"))
        .output()?;
    let report = ticktax(&["report", "--format", "json"])
        .arg(&recording)
        .output()?;
    check(report.stdout == output.stdout, || {
        "the report of the recording is not the audit's statement".to_owned()
    })?;
    let threads = threads(&statement(&output)?)?;
    check(threads.processes >= 9, || {
        format!("{} processes", threads.processes)
    })?;
    check(time(&threads, ThreadState::Running) > Nanos::ZERO, || {
        "nothing ran".to_owned()
    })
}

pub(crate) fn a_stopped_program_is_stopped() -> Result<(), Failed> {
    let stopped = Shell::run("while :; do :; done", None)?;
    kill(Pid::from_raw(stopped.pid()?), Signal::SIGSTOP)?;
    thread::sleep(Duration::from_millis(100));
    let threads = stopped.audit()?;
    check(
        time(&threads, ThreadState::Stopped) == threads.elapsed,
        || format!("{threads:?}"),
    )
}

/// A memory cgroup (v1) with a limit. It is removed when this is dropped.
struct MemoryLimit(std::path::PathBuf);

impl MemoryLimit {
    fn new(bytes: u64) -> Result<Option<Self>, Failed> {
        let root = std::path::Path::new("/sys/fs/cgroup/memory");
        if !root.join("memory.limit_in_bytes").is_file() {
            return Ok(None);
        }
        let group = Self(root.join(format!("ticktax-test-{}", std::process::id())));
        fs::create_dir(&group.0)?;
        fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string())?;
        Ok(Some(group))
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // The kernel must first free the cached pages. The directory can be removed once the
        // process in the cgroup has exited.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Checks that the kernel does not kill an audit whose control group may use 96 MiB.
pub(crate) fn a_small_group_does_not_kill_the_audit() -> Result<(), Failed> {
    let Some(limit) = MemoryLimit::new(96 << 20)? else {
        return Ok(());
    };
    let busy = Shell::run("while :; do /bin/true; done", None)?;
    let script = "echo $$ > \"$1\"/cgroup.procs; shift; exec \"$@\"";
    let audits = [&["--keep", "spans"][..], &[]].map(|keep| {
        let mut audit = std::process::Command::new("sh");
        audit.args(["-c", script, "sh"]).arg(&limit.0);
        audit.arg(env!("CARGO_BIN_EXE_ticktax"));
        audit
            .args(["audit", "--for", "2s", "--format", "json"])
            .args(keep);
        audit.output()
    });
    drop(busy);
    let [spans, sums] = audits;
    for output in [spans?, sums?] {
        let statement = statement(&output)?;
        check(statement.balances(), || format!("{:?}", statement.balance))?;
    }
    Ok(())
}

/// Checks that a program has to reclaim memory if it reads and writes more than its cgroup's limit.
pub(crate) fn reclaims_for_its_limit() -> Result<(), Failed> {
    let Some(limit) = MemoryLimit::new(16 << 20)? else {
        return Ok(());
    };
    // Do not use a tmpfs, because its pages cannot be dropped.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let script = "echo $$ > \"$1\"/cgroup.procs; \
                  dd if=/dev/zero of=\"$2\"/big bs=1M count=128 2>/dev/null; \
                  cat \"$2\"/big > /dev/null";
    let output = ticktax(&["audit", "--format", "json", "--", "sh", "-c", script, "sh"])
        .arg(&limit.0)
        .arg(dir.path())
        .output()?;
    let statement = statement(&output)?;
    let limitations = statement.coverage.limitations.iter();
    if limitations.clone().any(|limitation| {
        matches!(
            limitation,
            Limitation::HookMissing {
                hook: Hook::MemcgReclaim,
                ..
            }
        )
    }) {
        return Ok(());
    }
    let threads = threads(&statement)?;
    let reclaiming = time(&threads, ThreadState::Reclaim);
    check(reclaiming > Nanos::from_millis(1), || {
        format!("{threads:?}")
    })
}

pub(crate) fn a_missing_process_is_named() -> Result<(), Failed> {
    let output = ticktax(&["audit", "--pid", "2000000000"]).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.code() == Some(1), || {
        output.status.to_string()
    })?;
    check(complaint.lines().count() == 1, || complaint.to_string())?;
    check(complaint.contains("2000000000"), || complaint.to_string())
}

pub(crate) fn without_root_the_counters_are_reported() -> Result<(), Failed> {
    const NOBODY: u32 = 65_534;
    let dir = tempfile::Builder::new()
        .prefix("ticktax-test")
        .tempdir_in("/tmp")?;
    let copy = dir.path().join("ticktax");
    fs::copy(env!("CARGO_BIN_EXE_ticktax"), &copy)?;
    for path in [dir.path(), &copy] {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, all)?;
    }
    let output = Command::new(&copy)
        .args([
            "audit", "--probe", "none", "--format", "json", "--", "sh", "-c",
        ])
        .arg("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()?;
    let statement = statement(&output)?;
    let victim = statement.victim.ok_or("no victim")?;
    check(victim.threads.is_none(), || "it was followed".to_owned())?;
    let usage = victim.usage.ok_or("no counters")?;
    check(usage.user > Nanos::ZERO, || format!("{usage:?}"))
}
