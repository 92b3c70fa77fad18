//! Tests for experiments with traffic between network namespaces.

use std::fs;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_model::comparison::{ArmEffect, Comparison, Experiment, Measure, Verdict};
use ticktax_model::net_experiment::{CostUnit, Term, TrafficRecord};

use super::faults::{as_nobody, folder_for_nobody};
use super::fixture::{check, ticktax};
use super::nets::leaves_nothing_when_killed;

const START: [&str; 7] = ["net", "pair", "--format", "json", "--seed", "1", "--for"];

/// The result of an experiment.
#[derive(Debug)]
struct Outcome {
    comparison: Comparison,
    record: TrafficRecord,
}

impl Outcome {
    /// Returns the throughput of the arm with this index.
    fn rate(&self, arm: usize) -> f64 {
        let arm = &self.comparison.arms[arm];
        self.comparison
            .value(arm, Measure::Throughput)
            .unwrap_or(f64::NAN)
    }
}

fn statement(output: &Output) -> Result<Outcome, Failed> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || complaint.clone().into_owned())?;
    let comparison = ticktax_fixture::comparison(&output.stdout)?;
    let Experiment::Traffic(record) = comparison.experiment.clone() else {
        return Err("not an experiment with traffic".into());
    };
    let record = *record;
    Ok(Outcome { comparison, record })
}

fn experiment(arguments: &[&str]) -> Result<Outcome, Failed> {
    statement(&ticktax(&START).args(arguments).output()?)
}

/// Checks that invalid arguments are refused with exit code 2 and a one-line error that contains
/// `why`.
fn refused(arguments: &[&str], why: &str) -> Result<(), Failed> {
    let output = ticktax(&["net", "pair"]).args(arguments).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_refused = output.status.code() == Some(2) && output.stdout.is_empty();
    let one_line = errors.trim_end().lines().count() == 1 && !errors.contains("os error");
    check(is_refused && one_line && errors.contains(why), || {
        format!("{arguments:?}: {errors}")
    })
}

/// Checks that small calls cost more CPU time. On every machine, 512-byte calls take several times
/// as much CPU time per byte as 64 KiB calls.
pub(crate) fn small_calls_cost() -> Result<(), Failed> {
    let result = experiment(&["150ms", "--blocks", "3", "--vary", "size=512,65536"])?;
    let why = || format!("{result:?}");
    check(
        result.record.check.is_whole() && result.record.plan.blocks == 3,
        why,
    )?;
    check(result.record.no_books.is_none(), why)?;
    let effects: &[ArmEffect] = &result.comparison.effects;
    let effect = effects.first().ok_or("no effect")?;
    let share = effect.contrast.effect.ok_or("no interval")?;
    check(effect.contrast.verdict == Verdict::Better, why)?;
    check(share.high < -0.3, why)?;
    let mut costs = result.record.costs.costs.iter();
    let call = costs.find(|cost| cost.unit == CostUnit::Call);
    let ns = call.and_then(|cost| cost.ns).ok_or("no cost of a call")?;
    // A system call, together with the little work around it, takes 20 ns to 50 µs on any machine.
    check(ns.value > 20.0 && ns.value < 50_000.0, why)
}

/// Checks that arms with identical effects are reported as one.
pub(crate) fn a_degenerate_design_is_explained() -> Result<(), Failed> {
    // Segmentation offload requires checksum offload, so only three of the four combinations
    // differ.
    let result = experiment(&[
        "60ms",
        "--blocks",
        "2",
        "--untraced",
        "--vary",
        "tx-checksum=0,1",
        "--vary",
        "tso=0,1",
    ])?;
    let why = || format!("{result:?}");
    check(
        (result.record.check.arms, result.record.check.different) == (4, 3),
        why,
    )?;
    check(result.record.check.rank < result.record.check.effects, why)?;
    let off = Term {
        factor: 0,
        value: 0,
    };
    let mut idle = result.record.check.idle.iter();
    check(
        idle.any(|setting| setting.factor == 1 && setting.while_at == Some(off)),
        why,
    )?;
    // All values above the kernel's limit have the same effect as the limit itself.
    let result = experiment(&[
        "60ms",
        "--blocks",
        "2",
        "--untraced",
        "--vary",
        "rcvbuf=512M,1024M",
    ])?;
    let why = || format!("{result:?}");
    check(
        result.record.check.rank == 0 && result.comparison.effects.is_empty(),
        why,
    )?;
    check(result.record.details[1].same_as == 0, why)
}

pub(crate) fn options_are_in_effect_and_only_in_the_namespaces() -> Result<(), Failed> {
    let sysctl = || fs::read_to_string("/proc/sys/net/ipv4/tcp_timestamps");
    let before = sysctl()?;
    let result = experiment(&[
        "60ms",
        "--blocks",
        "1",
        "--untraced",
        "--vary",
        "tcp_timestamps=0,1",
        "--vary",
        "mss=536,1400",
    ])?;
    let why = || format!("{result:?}");
    check(sysctl()? == before, why)?;
    check(result.record.check.different == 4, why)?;
    for (place, details) in result.record.details.iter().enumerate() {
        let (stamped, large) = (place / 2, place % 2);
        let fact = |name: &str| {
            let mut facts = details.facts.iter().filter(|fact| fact.name == name);
            facts.next().map(|fact| fact.value.clone())
        };
        let stamps = ["off", "on"][stamped];
        check(fact("timestamps").as_deref() == Some(stamps), why)?;
        // Timestamps take up 12 bytes of each segment.
        let data = [536, 1_400][large] - 12 * stamped;
        check(fact("segment data") == Some(data.to_string()), why)?;
        check(details.shortest_round_trip.is_some(), why)?;
    }
    Ok(())
}

pub(crate) fn invalid_factors_are_refused_before_any_run() -> Result<(), Failed> {
    refused(&["--vary", "speed=1,2"], "unknown factor")?;
    refused(
        &["--vary", "net.ipv4.tcp_nothing=0,1"],
        "no sysctl net.ipv4.tcp_nothing",
    )?;
    refused(&["--vary", "net.ipv4.tcp_sack=0,many"], "to `many`")?;
    refused(
        &["--vary", "net.ipv4.tcp_mem=1 2 3,4 5 6"],
        "applies to the whole machine",
    )?;
    refused(
        &["--vary", "congestion=cubic,fast"],
        "cannot set a socket's congestion to fast",
    )?;
    refused(
        &["--vary", "mss=10,1460"],
        "cannot set a socket's mss to 10",
    )?;
    refused(&["--vary", "mtu=64,1500"], "invalid MTU 64")?;
    refused(&["--vary", "delay=0,301ms"], "0 to 300ms")?;
    refused(
        &["--vary", "tcp_sack=0,1", "--vary", "net.ipv4.tcp_sack=0,1"],
        "it is already varied, as tcp_sack",
    )?;
    for (option, value, vary) in [
        ("--size", "512", "size=512,1k"),
        ("--mtu", "1500", "mtu=1500,9000"),
        ("--rate", "1M", "rate=1M,max"),
        ("--link-rate", "10M", "link-rate=10M,20M"),
    ] {
        refused(&[option, value, "--vary", vary], "omit one of them")?;
    }
    refused(&["--udp", "--vary", "protocol=tcp,udp"], "set by --udp")?;
    refused(
        &["--vary", "size=1,2,3,4,5,6,7,8", "--blocks", "900"],
        "14400 runs",
    )
}

pub(crate) fn a_pilot_determines_the_number_of_blocks() -> Result<(), Failed> {
    let vary = ["--untraced", "--vary", "size=512,65536", "--resolve", "60%"];
    let output = ticktax(&START).arg("60ms").args(vary).output()?;
    let result = statement(&output)?;
    let why = || format!("{result:?}");
    let plan = &result.record.plan;
    let mut needed = plan.needed.iter();
    let needed = needed.find(|row| (row.share - plan.resolution).abs() < 1e-9);
    check(
        plan.pilot_blocks == Some(3) && (plan.resolution - 0.6).abs() < 1e-9,
        why,
    )?;
    check(plan.spread.is_some_and(|spread| spread > 0.0), why)?;
    check(plan.planned >= 2 && plan.blocks == plan.planned, why)?;
    let needed = needed.ok_or("no number of blocks")?;
    check(needed.blocks == plan.planned, why)?;
    let runs: u64 = result.comparison.arms.iter().map(|arm| arm.runs).sum();
    check(runs == 2 * 2 * plan.blocks, why)?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let remark = format!("{} blocks resolve 60.0 %", plan.planned);
    check(errors.contains(&remark), || errors.clone())
}

/// Checks that less data arrives over a narrower link.
pub(crate) fn a_link_can_be_varied() -> Result<(), Failed> {
    let vary = ["--blocks", "3", "--untraced", "--vary", "link-rate=10M,40M"];
    let result = experiment(&[&["300ms"][..], &vary].concat())?;
    let why = || format!("{result:?}");
    let (narrow, wide) = (result.rate(0), result.rate(1));
    check(narrow < 10.5e6 && wide < 42e6, why)?;
    check(wide > 2.0 * narrow, why)
}

/// Checks that devices, queueing disciplines and namespaces disappear along with the process, and
/// that nothing is left to undo.
pub(crate) fn a_killed_experiment_leaves_nothing() -> Result<(), Failed> {
    leaves_nothing_when_killed(&[
        "net",
        "pair",
        "--for",
        "1h",
        "--untraced",
        "--link-rate",
        "100M",
        "--vary",
        "tcp_sack=0,1",
        "--vary",
        "tso=0,1",
    ])?;
    let undone = ticktax(&["undo"]).output()?;
    let page = String::from_utf8_lossy(&undone.stdout).into_owned();
    check(undone.status.success(), || page.clone())?;
    // The killed experiment must not affect the next one.
    experiment(&["60ms", "--blocks", "1", "--untraced", "--vary", "tso=0,1"]).map(|_| ())
}

/// Checks that a user without rights can vary sizes over loopback, but not the namespaces'
/// settings.
pub(crate) fn without_rights_only_socket_options_are_varied() -> Result<(), Failed> {
    let place = folder_for_nobody()?;
    let run = |vary: &str| {
        let mut command = as_nobody(place.path());
        command
            .args(START)
            .args(["60ms", "--blocks", "1", "--vary", vary]);
        command.output()
    };
    let result = statement(&run("size=1k,64k")?)?;
    check(
        result.record.no_books.is_some() && result.record.check.is_whole(),
        || format!("{result:?}"),
    )?;
    let output = run("tcp_sack=0,1")?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    check(output.status.code() == Some(2), || errors.clone())?;
    check(
        errors.contains("cannot vary tcp_sack") && errors.contains("CAP_NET_ADMIN"),
        || errors.clone(),
    )
}

pub(crate) fn an_interrupted_experiment_keeps_whole_blocks() -> Result<(), Failed> {
    let child = ticktax(&START)
        .args([
            "50ms",
            "--blocks",
            "500",
            "--untraced",
            "--vary",
            "size=1k,64k",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // On a quiet machine, a block takes half a second, so several blocks are complete after 8 s.
    thread::sleep(Duration::from_secs(8));
    kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGINT)?;
    let result = statement(&child.wait_with_output()?)?;
    let why = || format!("{result:?}");
    check(result.record.plan.ended_early.is_some(), why)?;
    check(
        result.record.plan.blocks > 0 && result.record.plan.blocks < 500,
        why,
    )?;
    let mut arms = result.comparison.arms.iter();
    check(
        arms.all(|arm| arm.runs == 2 * result.record.plan.blocks),
        why,
    )
}
