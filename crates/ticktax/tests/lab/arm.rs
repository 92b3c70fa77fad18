//! Tests in guests whose architecture differs from the host's: arm64. They run the ticktax binary
//! that `cargo xtask cross arm64` builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde_json::Value;
use ticktax_lab::Arch;
use ticktax_lab::kernel::Wanted;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Level, Row};
use ticktax_model::statement::{Account, Class, GapCause, Statement};
use ticktax_model::witness::Proof;
use ticktax_model::{Kind, Nanos, Span};
use ticktax_store::recording::RecordingReader;

use crate::fixture::{audit, built, complaint, lab_run, why_not_there};

/// Debian's kernel for virtual machines in a cloud.
pub(crate) const KERNEL: &str = "linux-image-cloud-arm64";

/// A kernel that supports pseudo-NMIs, which Debian's kernels do not. `cargo xtask kernels
/// pseudo-nmi` builds it.
pub(crate) const PSEUDO_NMI: &str = "hz250+pseudo-nmi+arm64";

/// The newest kernels in Debian's backports.
pub(crate) const NEWEST: [&str; 2] = [
    "trixie-backports:linux-image-cloud-amd64",
    "trixie-backports:linux-image-cloud-arm64",
];

/// Returns why guests of `arch` with this kernel cannot be tested, or `None` if they can.
pub(crate) fn why_not(arch: Arch, kernel: &str) -> Option<String> {
    let version = Command::new(arch.qemu()).arg("--version").output();
    if version.is_err() {
        return Some(format!("{} is not installed", arch.qemu()));
    }
    for package in ["ticktax", "ticktax-inject"] {
        if built(arch, package).is_none() {
            return Some(format!(
                "{package} is not built for {arch}: run cargo xtask cross {arch}"
            ));
        }
    }
    why_not_there(kernel)
}

/// Returns why tests that use the host's clock cannot run, or `None` if they can. They need an
/// optimised ticktax, because an unoptimised one would use half of the guest's CPU.
pub(crate) fn why_too_slow() -> Option<String> {
    let program = built(Arch::Arm, "ticktax")?;
    let is_debug = program.parent()?.ends_with("debug");
    is_debug.then(|| "the command is not optimised: run cargo xtask cross arm64".to_owned())
}

fn account<'a>(statement: &'a Statement, class: Class, name: &str) -> &'a Account {
    let mut accounts = statement.accounts.iter();
    let found = accounts.find(|account| account.class == class && account.name == name);
    found.unwrap_or_else(|| panic!("no {name}: {:#?}", statement.accounts))
}

/// Returns the share of CPU time that the injecting thread used, according to the tracer. It should
/// be 5 %, because the thread runs for 2 ms every 40 ms.
fn disturbance(statement: &Statement) -> f64 {
    let accounts = statement.accounts.iter();
    let mine = accounts.filter(|account| account.name.contains("inject"));
    let time: Nanos = mine.map(|account| account.time).sum();
    time.share_of(statement.cpus[0].elapsed)
}

fn inject(arch: Arch) -> String {
    let program = built(arch, "ticktax-inject").unwrap();
    let words = "fifo --cpu 0 --period 40ms --length 2ms --for 5m --json";
    format!("{} {words}", program.display())
}

pub(crate) fn the_same_run_gives_the_same_bytes() {
    let recording = || {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.parquet");
        let mut command = lab_run(KERNEL);
        command.arg("--save").arg(&file);
        command.args(["--", "audit", "--for", "500ms"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", complaint(&output));
        fs::read(file).unwrap()
    };
    let first = recording();
    assert!(first.len() > 1_000);
    assert!(
        first == recording(),
        "the second run differs from the first"
    );
}

/// Checks that the tick, the timer interrupt and a thread are named, and that every kernel entry is
/// watched. Tracepoints that exist only on other architectures must not be reported as missing.
pub(crate) fn everything_on_this_architecture_is_recorded() {
    let beside = inject(Arch::Arm);
    let statement = audit(
        KERNEL,
        &["--beside", &beside],
        &["--probe", "spin", "--for", "2s"],
    );
    assert_eq!(statement.machine.arch, "aarch64");
    assert_eq!(statement.machine.hz_configured, Some(250));
    assert_eq!(statement.machine.hypervisor.as_deref(), Some("QEMU"));
    assert_eq!(statement.level, Level::Kernel);
    assert!(statement.balances(), "{:?}", statement.balance);
    let coverage = &statement.coverage;
    // Linux 6.1 on arm64 lacks these tracepoints. Tracepoints that only x86 has must not be
    // reported.
    let lacks = |hook: Hook| matches!(hook, Hook::CsdFunction | Hook::PageFault);
    for limitation in &coverage.limitations {
        let fits = !matches!(limitation, Limitation::HookMissing { hook, .. } if !lacks(*hook));
        assert!(fits, "{limitation:?}");
    }
    assert!(coverage.every_entry_watched);
    let timer = account(&statement, Class::Irq, "local_timer");
    let ticks = timer
        .parts
        .iter()
        .find(|part| part.name.starts_with("tick_"));
    let ticks = ticks.unwrap_or_else(|| panic!("{:?}", timer.parts)).count;
    // The probe keeps the CPU busy for 2 s at 250 ticks per second, which makes about 500 ticks.
    assert!((400..600).contains(&ticks), "{ticks}");
    // The kernel must have counted at least as many timer interrupts.
    let bill = statement.tick.as_ref().unwrap();
    assert!(
        bill.cpus[0].interrupts.is_some_and(|count| count >= ticks),
        "{bill:#?}"
    );
    let share = disturbance(&statement);
    assert!((0.045..0.055).contains(&share), "{share}");
    let clock = statement.clock.as_ref().unwrap();
    assert_eq!(clock.counter.to_string(), "CNTVCT_EL0");
    assert!(
        (clock.frequency_hz - 62.5e6).abs() < 62.5e6 / 1e3,
        "{clock:?}"
    );
    let gaps = statement.gaps.as_ref().unwrap();
    let proven = |proof: Proof| proof == Proof::Proven;
    assert!(
        gaps.proofs.iter().all(|gap| proven(gap.proof)),
        "{:?}",
        gaps.proofs
    );
    assert!(gaps.long.coverage() > 0.99, "{:?}", gaps.long);
    // Nothing outside this guest takes time. Each gap must therefore contain some time with a named
    // source, and such time must make up nearly all of the gaps.
    let outside = gaps.long.hypervisor_or_firmware.share_of(gaps.watched);
    assert!(outside < 0.001, "{outside}: {:?}", gaps.causes);
    let is_empty = |cause: &GapCause| cause.named == Nanos::ZERO;
    assert!(!gaps.causes.iter().any(is_empty), "{:?}", gaps.causes);
}

/// Returns the QEMU process that the process `lab` has started, if it has started one yet.
fn qemu_of(lab: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{lab}/task/{lab}/children")).ok()?;
    let mut children = children.split_whitespace();
    let is_guest = |pid: &&str| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.is_ok_and(|comm| comm.starts_with("qemu"))
    };
    children.find(is_guest)?.parse().ok().map(Pid::from_raw)
}

/// Repeatedly stops a guest that runs on the host's clock. The guest's kernel cannot see the stops,
/// and arm64 reports no stolen time in such a guest. Because the gaps contain nothing else, ticktax
/// must prove that something outside the guest took the time.
pub(crate) fn time_taken_by_the_host_is_outside() {
    const STOP: Nanos = Nanos::from_millis(100);
    const BETWEEN: Nanos = Nanos::from_millis(400);
    const WATCHED: Nanos = Nanos::from_secs(4);
    let sleep = |time: Nanos| thread::sleep(Duration::from_nanos(time.0.unsigned_abs()));
    let now = || {
        let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
        Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.parquet");
    let mut command = lab_run(KERNEL);
    command.arg("--tcg").arg("--save").arg(&file);
    command.args([
        "--format", "json", "--", "audit", "--probe", "spin", "--for", "4s",
    ]);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut lab = piped.spawn().unwrap();
    let id = lab.id();
    // The pipe cannot hold all of the output, so read it while the command runs.
    let mut out = lab.stdout.take().unwrap();
    let output_text = thread::spawn(move || std::io::read_to_string(&mut out));
    let (begin, mut rounds, mut longest) = (now(), 0, Nanos::ZERO);
    while lab.try_wait().unwrap().is_none() {
        if let Some(qemu) = qemu_of(id) {
            let stopped = now();
            // Ignore errors: QEMU may just have exited.
            let _ = kill(qemu, Signal::SIGSTOP);
            sleep(STOP);
            let _ = kill(qemu, Signal::SIGCONT);
            longest = longest.max(now() - stopped);
        }
        sleep(BETWEEN);
        rounds += 1;
    }
    // On a busy host, each round takes longer than planned, so use the mean length of a round.
    let each = Nanos((now() - begin).0 / rounds);
    let output = lab.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    let output_text = output_text.join().unwrap().unwrap();
    let statement: Statement = serde_json::from_str(&output_text).unwrap();
    assert!(statement.balances(), "{:?}", statement.balance);
    let gaps = statement.gaps.as_ref().unwrap();
    // The kernel may fail to report a switch at either end of the audit. It could have happened in
    // any of the empty gaps, and the analysis assumes the longest one.
    let bounds = gaps.proofs.iter().map(|gap| match gap.proof {
        Proof::Proven => 0,
        Proof::Bounded(gaps) => gaps,
        other => panic!("{other:?}"),
    });
    let doubted: u64 = bounds.sum();
    assert!(doubted <= 2, "{:?}", gaps.proofs);
    let Stops { outside, in_rows } = Stops::in_recording(&file, STOP);
    // Allow for two stops fewer, because those at the start and the end of the audit may be cut
    // off.
    let expected = usize::try_from(WATCHED.0 / each.0 - 2).unwrap();
    let found = outside.len() + in_rows;
    assert!(found >= expected, "{outside:?} and {in_rows} of {expected}");
    // QEMU translates new code while it runs, so a third of the time belongs to ticktax itself, and
    // many stops fall into its rows. Only a quarter of the stops must appear as gaps.
    assert!(outside.len() * 4 >= found, "{outside:?} and {in_rows}");
    // Allow for the tick that was pending during the stop, and for the work it causes.
    let named = Nanos::from_millis(20);
    // Allow for the longest stop, because the guest continues only when the host has a CPU for it.
    let upper = longest + STOP;
    assert!(
        outside.iter().all(|&length| length <= upper),
        "{outside:?}, {longest}"
    );
    let lower: Nanos = outside.iter().map(|&length| length - named).sum();
    let account = account(
        &statement,
        Class::HypervisorOrFirmware,
        "hypervisor or firmware",
    );
    // Subtract gaps that cannot be proven to be outside time, because they count as unexplained.
    let lower = lower - Nanos(2 * STOP.0 * doubted.cast_signed());
    assert!(account.time >= lower, "{account:?}, {outside:?}");
}

/// A guest's stops, grouped by how they appear in the recording.
struct Stops {
    /// Lengths of the stops that appear as gaps of the probe.
    outside: Vec<Nanos>,
    /// Number of stops during which an interrupt or another thread was running. To the guest, such
    /// a stop looks like time that the interrupt or thread used.
    in_rows: usize,
}

impl Stops {
    /// Finds the stops in a recording, each about as long as `stop`. Counts no stop twice.
    fn in_recording(file: &Path, stop: Nanos) -> Self {
        // The guest may have run for a few more µs after SIGSTOP was sent, so a stop can be
        // slightly shorter than requested.
        let least = stop - Nanos::from_millis(1);
        let (mut gaps, mut rows) = (Vec::new(), Vec::new());
        let mut reader = RecordingReader::open(file).unwrap();
        reader
            .replay(&mut |sources, row| {
                let Row::Span(span) = row else { return };
                let source = sources.get(span.source);
                if span.self_time < least {
                    return;
                }
                match source.kind {
                    Kind::Gap => gaps.push(*span),
                    Kind::Nmi | Kind::Irq | Kind::Softirq => rows.push(*span),
                    Kind::Task if !source.name.starts_with("ttx-spin") => rows.push(*span),
                    _ => {}
                }
            })
            .unwrap();
        let has_row = |gap: &Span| {
            rows.iter()
                .any(|row| row.start < gap.end() && gap.start < row.end())
        };
        Self {
            outside: gaps
                .iter()
                .filter(|gap| !has_row(gap))
                .map(|gap| gap.dur)
                .collect(),
            in_rows: rows.len(),
        }
    }
}

/// Returns the number of interrupts per second on the disturbed CPU: recorded, then injected.
fn interrupts(statement: &Statement, truth: &Path) -> (f64, f64) {
    let truth = fs::read(truth).unwrap();
    let truth: Value = serde_json::from_slice(&truth).unwrap();
    let number = |name: &str| truth[name].as_f64().unwrap();
    let made = number("events") / ((number("end") - number("start")) / 1e9);
    let line = account(statement, Class::Irq, truth["account"].as_str().unwrap());
    let cpu = statement.cpus.last().unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a count of some hundreds")]
    let seen = line.intervals.count as f64 / cpu.elapsed.as_secs_f64();
    (seen, made)
}

/// Output file of the first additional program.
const FIRST: &str = "ticktax-inject-0.stdout";

pub(crate) fn interrupts_between_cpus_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(Arch::Arm, "ticktax-inject").unwrap();
    let words = "membarrier --cpu 1 --period 10ms --length 10us --for 5m --json";
    let beside = format!("{} {words}", program.display());
    let kept = folder.path().to_str().unwrap();
    let more = [
        "--tcg",
        "--smp",
        "2",
        "--beside",
        &beside,
        "--guest-files",
        kept,
    ];
    let statement = audit(KERNEL, &more, &["--for", "4s", "--probe", "none"]);
    assert!(statement.balances(), "{:?}", statement.balance);
    let (seen, made) = interrupts(&statement, &folder.path().join(FIRST));
    assert!(seen > 0.8 * made, "{seen} of {made} a second");
}

/// Checks that the interrupts of performance counters (NMIs on x86) have a named account and are
/// all recorded. With `CONFIG_ARM64_PSEUDO_NMI`, they arrive even while other interrupts are
/// disabled.
pub(crate) fn interrupts_of_performance_counters_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(Arch::Arm, "ticktax-inject").unwrap();
    let words = "overflow --cpu 0 --cycles 2000000 --for 5m --json";
    let beside = format!("{} {words}", program.display());
    let kept = folder.path().to_str().unwrap();
    let parameter = "irqchip.gicv3_pseudo_nmi=1";
    let guest = ["--cmdline", parameter, "--guest-files", kept];
    let statement = audit(
        KERNEL,
        &[&guest[..], &["--beside", &beside]].concat(),
        &["--probe", "spin", "--for", "2s"],
    );
    assert!(statement.balances(), "{:?}", statement.balance);
    assert!(statement.coverage.every_entry_watched);
    let (seen, made) = interrupts(&statement, &folder.path().join(FIRST));
    // Check only a lower bound, because the injected rate can be lower than the rate during the
    // audit. It is averaged over a time that starts before the audit, when the CPU is idle and the
    // counter counts no cycles.
    assert!(seen >= 0.95 * made, "{seen} of {made} a second");
    assert!((100.0..1_000.0).contains(&seen), "{seen} a second");
    let gaps = statement.gaps.as_ref().unwrap();
    let outside = gaps.long.hypervisor_or_firmware.share_of(gaps.watched);
    assert!(outside < 0.001, "{outside}: {:?}", gaps.causes);
}

/// Returns the number of performance-counter interrupts per second: recorded, then injected. Also
/// returns how many of the recorded ones arrived during a timer interrupt, while other interrupts
/// were disabled.
fn within_the_timers(parameters: &str) -> (f64, f64, usize) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.parquet");
    let program = built(Arch::Arm, "ticktax-inject").unwrap();
    let words = "overflow --cpu 0 --cycles 100000 --for 5m --json";
    let beside = format!("{} {words}", program.display());
    let mut command = lab_run(PSEUDO_NMI);
    command.args(["--cmdline", parameters, "--beside", &beside, "--save"]);
    command.arg(&file).arg("--guest-files").arg(folder.path());
    command.args(["--format", "json", "--", "audit", "--for", "1s"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    let statement: Statement = serde_json::from_slice(&output.stdout).unwrap();
    let (seen, made) = interrupts(&statement, &folder.path().join(FIRST));
    let (mut counters, mut timers) = (Vec::new(), Vec::new());
    let mut reader = RecordingReader::open(&file).unwrap();
    reader
        .replay(&mut |sources, row| {
            let Row::Span(span) = row else { return };
            match &*sources.get(span.source).name {
                "arm-pmu" => counters.push(span.start),
                "local_timer" => timers.push((span.start, span.end())),
                _ => {}
            }
        })
        .unwrap();
    let within = |at: &&Nanos| timers.iter().any(|&(from, to)| from < **at && **at < to);
    (seen, made, counters.iter().filter(within).count())
}

/// Checks that pseudo-NMIs are recorded even within another interrupt. On the same kernel without
/// the boot parameter, none may be recorded within another interrupt.
pub(crate) fn pseudo_nmis_arrive_while_interrupts_are_disabled() {
    for (parameters, has_some) in [("irqchip.gicv3_pseudo_nmi=1", true), ("", false)] {
        let (seen, made, within) = within_the_timers(parameters);
        let figures = format!("{parameters}: {seen} of {made} a second, {within} within");
        // Check only a lower bound, because the injected rate can be lower than the rate during the
        // audit. It is averaged over a time that starts before the audit, when the CPU is idle and
        // the counter counts no cycles.
        assert!(seen >= 0.95 * made && made > 1_000.0, "{figures}");
        assert_eq!(within > 0, has_some, "{figures}");
    }
}

/// Returns the path of the arm64 package that `cargo xtask dist arm64` builds, if it has been
/// built.
fn package() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_BIN_EXE_ticktax"));
    let folder = own.ancestors().nth(2)?.join("dist-files");
    let mut files = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    files.find(|file| file.to_string_lossy().ends_with("_arm64.deb"))
}

/// Returns why the package cannot be tested, or `None` if it can.
pub(crate) fn missing_package() -> Option<String> {
    let why = || "no arm64 package is built: run cargo xtask dist arm64".to_owned();
    package().is_none().then(why)
}

/// Checks which files the package contains, and audits a guest with the ticktax binary in it.
pub(crate) fn the_package_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").arg(package().unwrap()).arg(folder.path());
    assert!(unpack.status().unwrap().success());
    for file in [
        "lib/systemd/system/ticktax-agent.service",
        "share/man/man1/ticktax.1.gz",
        "share/bash-completion/completions/ticktax",
        "share/doc/ticktax/copyright",
    ] {
        assert!(folder.path().join("usr").join(file).is_file(), "{file}");
    }
    let command = folder.path().join("usr/bin/ticktax");
    let command = command.display().to_string();
    let statement = audit(KERNEL, &["--binary", &command], &["--for", "500ms"]);
    assert_eq!(statement.machine.arch, "aarch64");
    assert_eq!(statement.level, Level::Kernel);
    assert!(statement.balances(), "{:?}", statement.balance);
}

/// Loads the committed BPF object on the newest kernel, where most fields and tracepoints have
/// changed since the object was built.
pub(crate) fn everything_is_named_on(kernel: &str) {
    let arch = kernel.parse::<Wanted>().unwrap().arch().unwrap();
    let (binary, beside) = (built(arch, "ticktax").unwrap(), inject(arch));
    let binary = binary.display().to_string();
    let program = built(arch, "ticktax-inject").unwrap();
    let sent = "irq-work --cpu 0 --period 10ms --for 5m --json";
    let sent = format!("{} {sent}", program.display());
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().to_str().unwrap();
    let more = ["--binary", &binary, "--guest-files", kept];
    let programs = ["--beside", &sent, "--beside", &beside];
    let more = [&more[..], &programs].concat();
    let statement = audit(kernel, &more, &["--probe", "spin", "--for", "2s"]);
    assert_eq!(
        statement.level,
        Level::Kernel,
        "{:?}",
        statement.coverage.limitations
    );
    assert!(statement.balances(), "{:?}", statement.balance);
    assert!(
        statement.coverage.every_entry_watched,
        "{:?}",
        statement.coverage.limitations
    );
    let timer = account(&statement, Class::Irq, "local_timer");
    let tick = timer
        .parts
        .iter()
        .any(|part| part.name.starts_with("tick_"));
    assert!(tick, "{:?}", timer.parts);
    let share = disturbance(&statement);
    assert!((0.045..0.055).contains(&share), "{share}");
    // The guest's clock counts its own instructions, so nothing outside the guest takes time.
    let outside = statement.accounts.iter();
    let outside = outside.filter(|account| {
        matches!(
            account.class,
            Class::HypervisorOrFirmware | Class::Unexplained
        )
    });
    let outside: Nanos = outside.map(|account| account.time).sum();
    let outside = outside.share_of(statement.cpus[0].elapsed);
    assert!(outside < 0.000_05, "{outside}");
    let (seen, made) = interrupts(&statement, &folder.path().join(FIRST));
    assert!(
        (seen - made).abs() < 0.05 * made,
        "{seen} of {made} a second"
    );
}
