//! Tests with paced datagrams and stalls of known length.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::Nanos;
use ticktax_model::net::Link;
use ticktax_model::packets::{Burst, PacketStatement};

use super::faults::{as_nobody, folder_for_nobody};
use super::fixture::{RecordingDir, check, ticktax};
use super::nets;

const STALL: Nanos = Nanos::from_millis(17);

const PACE: [&str; 4] = ["pace", "--udp", "--format", "json"];

fn run(mut command: Command) -> Result<PacketStatement, Failed> {
    read(&command.output()?)
}

fn read(output: &Output) -> Result<PacketStatement, Failed> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || complaint.clone().into_owned())?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the CPUs of the sender and the receiver. Returns `None` if the machine has only one CPU,
/// because a stall of the receiver would then also stall the sender.
fn cpus() -> Result<Option<(String, String)>, Failed> {
    let cpus = ticktax_inject::allowed_cpus()?;
    let ends = cpus.iter().next().zip(cpus.iter().last());
    let separate = ends.filter(|(first, last)| first != last);
    Ok(separate.map(|(first, last)| (first.to_string(), last.to_string())))
}

/// Sends datagrams while a FIFO thread of this process takes the receiver's CPU for 17 ms out of
/// every 250 ms. Both ends run in a session with the highest weight, so ordinary programs hardly
/// delay them.
fn stalled(arguments: &[&str], sender: &str, receiver: &str) -> Result<PacketStatement, Failed> {
    let schedule = Schedule::every(Nanos::from_millis(250), STALL);
    let cpu = ticktax_inject::default_cpu()?;
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(schedule)
        .duration(Nanos::from_secs(3_600));
    let running = ticktax_inject::spawn(&plan)?;
    let at = ["--send-cpu", sender, "--recv-cpu", receiver];
    let mut command = Command::new("setsid");
    command.args(["nice", "-n", "-20", env!("CARGO_BIN_EXE_ticktax")]);
    command.args(PACE).args(at).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    thread::sleep(Duration::from_millis(50));
    // If the kernel schedules sessions as groups (autogroup), the weight has to be set for the
    // group.
    let _ = fs::write(format!("/proc/{}/autogroup", child.id()), "-20");
    let statement = read(&child.wait_with_output()?);
    running.stop()?;
    statement
}

/// Checks that ticktax knows where each datagram was lost, blames each burst of losses on a stall
/// whose length explains the number of lost datagrams, and gives the same report from the saved
/// recording.
pub(crate) fn a_stall_is_named_and_predicts_what_it_loses() -> Result<(), Failed> {
    let Some((sender, receiver)) = cpus()? else {
        return Ok(());
    };
    let dir = RecordingDir::new();
    let file = dir.file("packets.parquet");
    let saved = file.to_str().ok_or("the path of the folder is not UTF-8")?;
    let options = [
        "--rate", "20k", "--rcvbuf", "40000", "--for", "3s", "--save", saved,
    ];
    let statement = stalled(&options, &sender, &receiver)?;
    let why = || format!("{statement:#?}");
    let places = statement.losses.ok_or("no places")?;
    let bursts = statement.bursts.as_ref().ok_or("no bursts")?;
    check(places.total > 0 && places.unknown == 0, why)?;
    check(places.socket_buffer == places.total, why)?;
    let lost: u64 = bursts.iter().map(|burst| burst.lost).sum();
    check(
        lost == places.total && statement.lost_outside_bursts == 0,
        why,
    )?;
    // The kernel's drop reasons must count the same losses.
    if let Some(reasons) = &statement.drop_reasons {
        let full = reasons
            .iter()
            .find(|reason| reason.reason == "SOCKET_RCVBUFF");
        let full = full.ok_or_else(why)?;
        check(full.datagrams == places.socket_buffer, why)?;
    }
    let here = i32::try_from(std::process::id())?;
    let by_us = statement.causes.iter().find(|cause| {
        let by = cause.cause.as_ref();
        by.is_some_and(|by| by.pid == Some(here))
    });
    let cause = by_us.ok_or_else(why)?;
    check(cause.bursts >= 8 && cause.longest >= STALL, why)?;
    let ours = bursts.iter().filter(|burst| {
        let most = burst.stall.as_ref().and_then(|stall| stall.causes.first());
        most.is_some_and(|by| by.pid == Some(here))
    });
    let met = |burst: &&Burst| {
        let off = burst
            .predicted
            .map(|predicted| predicted.abs_diff(burst.lost));
        off.is_some_and(|off| off <= 2.max(burst.lost / 20))
    };
    let (met, others): (Vec<&Burst>, Vec<&Burst>) = ours.partition(met);
    // If the hypervisor delays the sender, the sender catches up after some of the stalls, and the
    // receiver then loses more datagrams than predicted. Most of the predictions must be met.
    check(met.len() >= others.len(), why)?;
    reported_again(&file, &statement)
}

fn reported_again(file: &Path, statement: &PacketStatement) -> Result<(), Failed> {
    let file = file.to_str().ok_or("the path of the folder is not UTF-8")?;
    let output = ticktax(&["report", "--format", "json", file]).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || complaint.clone().into_owned())?;
    // Part of a recording has no datagram report, so `report` must show an audit instead.
    let part = ticktax(&["report", "--from", "1s", file]).output()?;
    let complaint = String::from_utf8_lossy(&part.stderr);
    check(part.status.success(), || complaint.into_owned())?;
    let again: PacketStatement = serde_json::from_slice(&output.stdout)?;
    check(again == *statement, || {
        format!("{again:#?} and not {statement:#?}")
    })
}

/// Checks that the advised buffer prevents almost all losses. To allow for a busy machine, the test
/// makes the buffer half as large again as advised.
pub(crate) fn the_advised_buffer_loses_almost_nothing() -> Result<(), Failed> {
    let Some((sender, receiver)) = cpus()? else {
        return Ok(());
    };
    let options = ["--rate", "20k", "--for", "2s", "--rcvbuf"];
    let with_buffer = |bytes: &str| stalled(&[&options[..], &[bytes]].concat(), &sender, &receiver);
    let first = with_buffer("40000")?;
    let needed = first.needed.ok_or_else(|| format!("{first:#?}"))?;
    let bytes = (needed.request_bytes * 3 / 2).to_string();
    let second = with_buffer(&bytes)?;
    let lost = |statement: &PacketStatement| statement.losses.map(|places| places.total);
    let (before, after) = (lost(&first).ok_or("none")?, lost(&second).ok_or("none")?);
    check(after * 10 <= before, || format!("{needed:?}: {second:#?}"))
}

/// Checks that no cause is named if no datagram is lost, even if the receiver had to wait.
pub(crate) fn no_culprit_is_named_without_losses() -> Result<(), Failed> {
    let statement = run(ticktax(
        &[
            &PACE[..],
            &["--rate", "1k", "--for", "500ms", "--rcvbuf", "4000000"],
        ]
        .concat(),
    ))?;
    let places = statement.losses.ok_or("no places")?;
    check(places.total == 0, || format!("{statement:#?}"))?;
    check(
        statement.causes.is_empty() && statement.needed.is_none(),
        || format!("{statement:#?}"),
    )?;
    check(
        statement.link
            == Link::Veth {
                mtu: 1_500,
                shaping: None,
            },
        || format!("{statement:#?}"),
    )?;
    let delays = statement.delays.ok_or("no delays")?;
    check(delays.max > Nanos::ZERO, || format!("{statement:#?}"))
}

pub(crate) fn a_killed_pair_leaves_nothing() -> Result<(), Failed> {
    nets::leaves_nothing_when_killed(&["pace", "--udp", "--for", "1h", "--untraced"])
}

pub(crate) fn without_rights_it_goes_over_loopback() -> Result<(), Failed> {
    let dir = folder_for_nobody()?;
    let output = as_nobody(dir.path())
        .args(["pace", "--udp", "--for", "200ms", "--format", "json"])
        .args(["--rcvbuf", "500000000"])
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    check(output.status.success(), || errors.clone())?;
    let statement: PacketStatement = serde_json::from_slice(&output.stdout)?;
    check(matches!(statement.link, Link::Loopback { .. }), || {
        format!("{statement:#?}")
    })?;
    check(
        statement.untraced_reason.is_some() && statement.causes.is_empty(),
        || format!("{statement:#?}"),
    )?;
    // The receiver must get the largest buffer that the kernel allows ordinary users.
    let buffer = statement.buffer.ok_or("no buffer")?;
    let limit = buffer.max_request_bytes.ok_or("no net.core.rmem_max")?;
    check(!buffer.forced && buffer.bytes == 2 * limit, || {
        format!("{buffer:?}")
    })?;
    check(
        errors.contains("loopback") && !errors.contains("os error"),
        || errors.clone(),
    )
}
