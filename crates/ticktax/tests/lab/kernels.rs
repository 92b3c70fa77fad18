//! Tests kernels on which the tracer's BPF programs must load. Each kernel boots once.

use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Failed, Trial};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use ticktax_fixture::left_out;
use ticktax_inject::{Disturbance, Plan, Schedule, Truth};
use ticktax_model::Nanos;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::{HookMissing, Limitation};

use crate::boot::{COUNTED, Guest};
use crate::checks::disturbances::cgroup_quota;
use crate::checks::{Recorded, Tolerance, check, coverage};
use crate::fixture::why_not;
use crate::inside::{self, Outcome, Tracer, mount_cgroups};
use crate::scenario::plan::CPU;
use crate::scenario::report_of;
use crate::shared;

/// The argument that tells this guest what to do.
pub(crate) const VERB: &str = "kernel-guest";

/// A kernel that loads the committed BPF object for kernels before 5.12. The scenario's guest has a
/// newer kernel, which loads the other object.
const OLD: &str = "bullseye:linux-image-cloud-amd64";

/// Additional kernels, which boot only if the tests on all kernels are requested.
const OTHERS: [&str; 4] = [
    "bullseye:linux-image-rt-amd64",
    "linux-image-rt-amd64",
    "linux-image-6.12-cloud-amd64",
    "linux-image-6.12-rt-amd64",
];

/// Triggers that are sure to fire. Even in an idle guest, the kernel often runs for more than 10 µs
/// or makes a thread wait for that long.
const TRIGGERS: [&str; 2] = ["stretch>10us", "wait>10us"];
/// JSON file with the quota's `Truth`.
const TRUTH: &str = "truth.json";

type Test = fn(&Path) -> Result<(), Failed>;

const TESTS: [(&str, Test); 3] = [
    ("the_tracer_loads_on", the_tracer_loads),
    (
        "the_recorder_keeps_a_window_on",
        the_recorder_keeps_a_window,
    ),
    (
        "a_quota_throttles_a_program_on",
        a_quota_throttles_a_program,
    ),
];

/// Directory with the results from a kernel's guest, or the reason why the guest failed.
type Booted = OnceLock<Result<TempDir, String>>;

/// Name of the test tier that includes the additional kernels.
pub(crate) const TIER: &str = "kernels";

/// Creates the tests of all kernels. If a kernel cannot boot on this machine, prints the reason and
/// marks its tests as ignored.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for kernel in [OLD].into_iter().chain(OTHERS) {
        let why = left_out(TIER).filter(|_| kernel != OLD);
        let why = why.or_else(|| why_not(kernel));
        if let Some(why) = &why {
            eprintln!("vm:: tests on {kernel} are ignored: {why}");
        }
        let booted = Arc::new(Booted::new());
        for (name, test) in TESTS {
            let booted = Arc::clone(&booted);
            let trial = shared(&format!("vm::{name}::{kernel}"), move || {
                let booted = booted.get_or_init(|| boot(kernel));
                test(booted.as_ref()?.path())
            });
            trials.push(trial.with_ignored_flag(why.is_some()));
        }
    }
    trials
}

fn boot(kernel: &str) -> Result<TempDir, String> {
    let booted = || {
        let folder = tempfile::tempdir()?;
        let guest = Guest {
            kernel,
            verb: VERB,
            cmdline: "",
            cpus: 1,
            clock: COUNTED,
            debugger: None,
            disk: None,
            files: &[],
        };
        guest.boot(folder.path())?;
        Ok::<_, Failed>(folder)
    };
    booted().map_err(|failed| failed.message().unwrap_or("no reason").to_owned())
}

/// Runs in the guest: audits a program that has a quota, and then runs a recorder.
pub(crate) fn run() -> Outcome {
    mount_cgroups()?;
    let audit = ["audit", "--probe", "none", "--for", "10m"];
    // The host reports on the recording, because that would take many times as long in the guest.
    let save = ["--no-report", "--save", "audit.parquet"];
    let tracer = Tracer::start("audit", &[&audit[..], &save].concat())?;
    let quota = Disturbance::Throttle {
        quota: Nanos::from_millis(5),
    };
    let plan = Plan::new(quota, CPU)
        .schedule(Schedule::every(Nanos::from_millis(10), Nanos::ZERO))
        .duration(Nanos::from_millis(500));
    let truth = inside::inject("quota", &plan)?;
    fs::write(TRUTH, serde_json::to_vec(&truth)?)?;
    tracer.interrupt()?;
    // Following a program needs additional BPF programs.
    let own = std::process::id().to_string();
    let follow = ["--save", "followed.parquet", "--pid", &own];
    let tracer = Tracer::start(
        "followed",
        &[&audit[..], &["--no-report"], &follow].concat(),
    )?;
    tracer.interrupt()?;
    let mut record = vec!["record", "--dir", "/tmp/incidents"];
    for trigger in TRIGGERS {
        record.extend(["--trigger", trigger]);
    }
    let tracer = Tracer::start("recorder", &record)?;
    tracer.says("Recording CPU")?;
    // A trigger saves a window that starts 2 s before the trigger and ends 2 s after it. Wait until
    // that window has ended.
    std::thread::sleep(std::time::Duration::from_secs(4));
    tracer.signal(Signal::SIGTERM)?;
    tracer.ended()
}

/// Checks that the committed BPF object loads on a kernel other than the one it was built on, even
/// if it follows a program.
fn the_tracer_loads(folder: &Path) -> Result<(), Failed> {
    let audit = folder.join("audit.parquet");
    let followed = folder.join("followed.parquet");
    for file in [&audit, &followed] {
        let statement = report_of(file)?;
        check(statement.balances(), || format!("{:?}", statement.balance))?;
    }
    coverage::is_complete(&Recorded::read(&audit)?.header)?;
    let followed = Recorded::read(&followed)?.header;
    let missing = Limitation::HookMissing {
        hook: Hook::LockContention,
        reason: HookMissing::NoTracepoint,
    };
    let is_missing = followed.coverage.limitations.contains(&missing);
    // The kernel reports contended locks since 5.19.
    let is_old = followed.machine.kernel.starts_with("5.10.");
    check(is_missing == is_old, || format!("{:?}", followed.coverage))
}

/// Checks that the recorder keeps the window around a trigger. The audit does not cover this,
/// because only the recorder's BPF programs have a ring buffer, thread names and triggers.
fn the_recorder_keeps_a_window(folder: &Path) -> Result<(), Failed> {
    let incidents = fs::read_to_string(folder.join("recorder.json"))?;
    let remarks = fs::read_to_string(folder.join("recorder.err"))?;
    check(incidents.contains(" UTC  1  "), || {
        format!("{incidents}{remarks}")
    })
}

/// Checks a program that always needs the CPU but may run for only 5 ms out of every 10 ms. It must
/// be throttled for as long as its cgroup reports, and run for about half of the time.
fn a_quota_throttles_a_program(folder: &Path) -> Result<(), Failed> {
    let truth: Truth = serde_json::from_slice(&fs::read(folder.join(TRUTH))?)?;
    let recorded = Recorded::read(&folder.join("audit.parquet"))?;
    cgroup_quota(&truth, &recorded, Tolerance::GUEST)?;
    let (ran, _) = recorded.sum(|span, source| {
        source.kind == ticktax_model::Kind::Task
            && crate::checks::recorded::is_during(span, &truth)
            && crate::checks::disturbances::is_of_thread(source, truth.tid)
    });
    let share = ran.share_of(truth.end - truth.start);
    check((0.45..0.55).contains(&share), || {
        format!("{share}: {truth:?}")
    })
}
