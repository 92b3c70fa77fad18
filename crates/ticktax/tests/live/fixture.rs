//! Audits as the tests make them: of a disturbance, of nothing, as another user.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use libtest_mimic::Failed;
use nix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use ticktax_fixture::wrong_own_time;
use ticktax_inject::{Disturbance, Measured, Plan, Truth};
use ticktax_model::recording::{Header, RecordingReader, Row};
use ticktax_model::statement::Statement;
use ticktax_model::{Cpu, Kind, Nanos, Source, Span};

/// How this binary is told to be the audited command.
const AS_INJECTOR: &str = "--as-injector";

/// The truth's method that is of all threads of the injecting process, from its beginning to its end.
pub(crate) const WHOLE_PROCESS: &str = "CLOCK_PROCESS_CPUTIME_ID at the end";

fn own_cpu_time() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap();
    Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

/// Whether this process may trace the kernel.
pub(crate) fn may_trace() -> bool {
    nix::unistd::geteuid().is_root() && Path::new("/sys/kernel/btf/vmlinux").exists()
}

/// Why no thread here may be a real-time one, if none may: with `CONFIG_RT_GROUP_SCHED` a cgroup has none unless
/// it is given time for them.
pub(crate) fn no_real_time() -> Option<&'static str> {
    let tried = Command::new("chrt").args(["--rr", "1", "true"]).output();
    let may = tried.is_ok_and(|output| output.status.success());
    (!may).then_some("needs a cgroup that may run real-time threads")
}

/// Makes the disturbance whose plan the arguments name and writes down what it did, if that is
/// what this process is for.
pub(crate) fn as_injector() -> Option<ExitCode> {
    let arguments: Vec<OsString> = env::args_os().collect();
    let [_, flag, plan, truth] = &arguments[..] else {
        return None;
    };
    if flag != AS_INJECTOR {
        return None;
    }
    let plan: Plan = serde_json::from_slice(&fs::read(plan).unwrap()).unwrap();
    Some(match ticktax_inject::run(&plan) {
        Ok(mut done) => {
            done.measured.push(Measured {
                time: own_cpu_time(),
                method: WHOLE_PROCESS.to_owned(),
            });
            fs::write(truth, serde_json::to_vec(&done).unwrap()).unwrap();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// A folder for recordings, gone with the test.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// The command under test, with these arguments.
pub(crate) fn ticktax(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
    command.args(arguments);
    command
}

/// The statement that an audit printed as JSON; what it complained of when it failed.
pub(crate) fn statement(output: &Output) -> Result<Statement, Failed> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {complaint}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Fails unless each row's own time is what the rows within it leave of it, to the ns.
fn nests(spans: &[(Span, Source)]) -> Result<(), Failed> {
    let takes_time =
        |kind: Kind| !matches!(kind, Kind::Steal | Kind::Gap | Kind::Wait | Kind::Frame);
    let mut cpus: BTreeMap<Cpu, Vec<Span>> = BTreeMap::new();
    for (span, _) in spans.iter().filter(|(_, source)| takes_time(source.kind)) {
        cpus.entry(span.cpu).or_default().push(*span);
    }
    if let Some((wrong, own)) = cpus.values().find_map(|spans| wrong_own_time(spans)) {
        let source = spans.iter().find(|(span, _)| *span == wrong);
        return Err(format!("own time is {own} of {source:?}").into());
    }
    Ok(())
}

/// What an audit recorded.
pub(crate) struct Recorded {
    pub(crate) header: Header,
    pub(crate) spans: Vec<(Span, Source)>,
}

impl Recorded {
    pub(crate) fn read(file: &Path) -> Result<Self, Failed> {
        let mut reader = RecordingReader::open(file)?;
        let mut spans = Vec::new();
        reader.replay(&mut |sources, row| {
            if let Row::Span(span) = row {
                spans.push((*span, sources.get(span.source).clone()));
            }
        })?;
        let header = reader.header();
        if header.coverage.events_lost() == 0 {
            nests(&spans)?;
        }
        Ok(Self {
            header: reader.header().clone(),
            spans,
        })
    }

    /// Time and number of the spans of which `wanted` holds.
    pub(crate) fn sum(&self, wanted: impl Fn(&Span, &Source) -> bool) -> (Nanos, u64) {
        let found = self
            .spans
            .iter()
            .filter(|(span, source)| wanted(span, source));
        found.fold((Nanos::ZERO, 0), |(time, count), (span, _)| {
            (time + span.self_time, count + 1)
        })
    }
}

/// The command that makes a disturbance, and the file in which it will say what it did.
///
/// Those that spin all the time to see or to be interrupted are above all programs: however busy the
/// machine is, they are there.
pub(crate) fn injector(plan: &Plan, place: &Place) -> Result<(Vec<OsString>, PathBuf), Failed> {
    let (plan_file, truth_file) = (place.file("plan"), place.file("truth"));
    fs::write(&plan_file, serde_json::to_vec(plan)?)?;
    let spins = matches!(
        plan.disturbance,
        Disturbance::Dodge { .. } | Disturbance::Membarrier | Disturbance::Munmap { .. }
    );
    let mut command: Vec<OsString> = Vec::new();
    if spins {
        // In turns, because one thread of theirs spins until another, on its CPU as well, ends that.
        command.extend(["chrt", "--rr", "1"].map(OsString::from));
    }
    command.extend([
        env::current_exe()?.into(),
        AS_INJECTOR.into(),
        plan_file.into(),
        truth_file.clone().into(),
    ]);
    Ok((command, truth_file))
}

/// Audits a disturbance: what it did, and what was recorded of it.
pub(crate) fn audit_of(plan: &Plan) -> Result<(Truth, Recorded), Failed> {
    let place = Place::new();
    let recording = place.file("recording.parquet");
    let truth = audit_to(plan, &place, &recording)?;
    Ok((truth, Recorded::read(&recording)?))
}

/// Audits a disturbance, and saves the recording.
pub(crate) fn audit_to(plan: &Plan, place: &Place, recording: &Path) -> Result<Truth, Failed> {
    let (command, truth_file) = injector(plan, place)?;
    let output = ticktax(&["audit", "--probe", "none", "--format", "json", "--save"])
        .arg(recording)
        .arg("--")
        .args(command)
        .output()?;
    let statement = statement(&output)?;
    check(statement.balance.balances(), || {
        format!("{:?}", statement.balance)
    })?;
    Ok(serde_json::from_slice(&fs::read(&truth_file)?)?)
}

/// Fails, saying why, unless `holds`.
pub(crate) fn check(holds: bool, why: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(why().into()) }
}

/// Fails unless `told` is within 5 % of `truth`, or within `slack` of it.
pub(crate) fn close(what: &str, told: f64, truth: f64, slack: f64) -> Result<(), Failed> {
    let allowed = (0.05 * truth).max(slack);
    check((told - truth).abs() <= allowed, || {
        format!("{what}: told {told}, in truth {truth} (± {allowed})")
    })
}
