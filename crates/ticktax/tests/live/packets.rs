//! Datagrams at a pace, with stalls of known length.

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

use super::faults::{as_nobody, within_reach_of_nobody};
use super::fixture::{Place, check, ticktax};
use super::nets;

/// How long each stall is.
const STALL: Nanos = Nanos::from_millis(17);

const PACE: [&str; 4] = ["pace", "--udp", "--format", "json"];

fn told(mut command: Command) -> Result<PacketStatement, Failed> {
    read(&command.output()?)
}

fn read(output: &Output) -> Result<PacketStatement, Failed> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || complaint.clone().into_owned())?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The CPUs of the sender and of the receiver; `None` where they would have to share one, and a stall of the receiver
/// were one of the sender.
fn cpus() -> Result<Option<(String, String)>, Failed> {
    let cpus = ticktax_inject::allowed_cpus()?;
    let ends = cpus.iter().next().zip(cpus.iter().last());
    let apart = ends.filter(|(first, last)| first != last);
    Ok(apart.map(|(first, last)| (first.to_string(), last.to_string())))
}

/// What is told while a FIFO thread of this process takes the receiver's CPU for 17 ms of every 250. Both ends have a
/// session of the highest weight of its own, so that ordinary programs hardly hold them up.
fn stalled(
    arguments: &[&str],
    (sender, receiver): (&str, &str),
) -> Result<PacketStatement, Failed> {
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
    // Where sessions are groups for the scheduler, its weight is the group's.
    let _ = fs::write(format!("/proc/{}/autogroup", child.id()), "-20");
    let it = read(&child.wait_with_output()?);
    running.stop()?;
    it
}

/// Everything that is lost is placed, each burst has its stall and its name, and the stall's length predicts how much
/// it lost; what is saved tells the same again.
pub(crate) fn a_stall_is_named_and_predicts_what_it_loses() -> Result<(), Failed> {
    let Some((sender, receiver)) = cpus()? else {
        return Ok(());
    };
    let place = Place::new();
    let file = place.file("packets.parquet");
    let saved = file.to_str().ok_or("a folder that is no text")?;
    let asked = [
        "--rate", "20k", "--rcvbuf", "40000", "--for", "3s", "--save", saved,
    ];
    let it = stalled(&asked, (&sender, &receiver))?;
    let why = || format!("{it:#?}");
    let places = it.places.ok_or("no places")?;
    let bursts = it.bursts.as_ref().ok_or("no bursts")?;
    check(places.lost > 0 && places.not_placed == 0, why)?;
    check(places.socket_buffer == places.lost, why)?;
    let lost: u64 = bursts.iter().map(|burst| burst.lost).sum();
    check(lost == places.lost && it.lost_in_no_burst == 0, why)?;
    // The kernel's own reasons are another count of the same.
    if let Some(reasons) = &it.drop_reasons {
        let full = reasons.iter().find(|it| it.reason == "SOCKET_RCVBUFF");
        let full = full.ok_or_else(why)?;
        check(full.datagrams == places.socket_buffer, why)?;
    }
    let here = i32::try_from(std::process::id())?;
    let by_us = it.causes.iter().find(|cause| {
        let by = cause.held_by.as_ref();
        by.is_some_and(|by| by.pid == Some(here))
    });
    let cause = by_us.ok_or_else(why)?;
    check(cause.bursts >= 8 && cause.longest >= STALL, why)?;
    let ours = bursts.iter().filter(|burst| {
        let most = burst.stall.as_ref().and_then(|it| it.held_by.first());
        most.is_some_and(|by| by.pid == Some(here))
    });
    let met = |burst: &&Burst| {
        let off = burst.predicted.map(|it| it.abs_diff(burst.lost));
        off.is_some_and(|off| off <= 2.max(burst.lost / 20))
    };
    let (met, others): (Vec<&Burst>, Vec<&Burst>) = ours.partition(met);
    // A sender that the hypervisor held up catches up after some of the stalls, and the receiver loses more then.
    check(met.len() >= others.len(), why)?;
    reported_again(&file, &it)
}

fn reported_again(file: &Path, it: &PacketStatement) -> Result<(), Failed> {
    let file = file.to_str().ok_or("a folder that is no text")?;
    let output = ticktax(&["report", "--format", "json", file]).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || complaint.clone().into_owned())?;
    let again: PacketStatement = serde_json::from_slice(&output.stdout)?;
    check(again == *it, || format!("{again:#?} and not {it:#?}"))
}

/// The buffer that is printed, and half as much again for a machine that is busy.
pub(crate) fn a_buffer_as_it_is_printed_loses_next_to_nothing() -> Result<(), Failed> {
    let Some((sender, receiver)) = cpus()? else {
        return Ok(());
    };
    let asked = ["--rate", "20k", "--for", "2s", "--rcvbuf"];
    let at = (&*sender, &*receiver);
    let first = stalled(&[&asked[..], &["40000"]].concat(), at)?;
    let needed = first.needed.ok_or_else(|| format!("{first:#?}"))?;
    let bytes = (needed.ask_bytes * 3 / 2).to_string();
    let second = stalled(&[&asked[..], &[&bytes]].concat(), at)?;
    let lost = |it: &PacketStatement| it.places.map(|places| places.lost);
    let (before, after) = (lost(&first).ok_or("none")?, lost(&second).ok_or("none")?);
    check(after * 10 <= before, || format!("{needed:?}: {second:#?}"))
}

/// Without a loss nobody is blamed, however often the receiver waited.
pub(crate) fn where_nothing_is_lost_nobody_is_named() -> Result<(), Failed> {
    let it = told(ticktax(
        &[
            &PACE[..],
            &["--rate", "1k", "--for", "500ms", "--rcvbuf", "4000000"],
        ]
        .concat(),
    ))?;
    let places = it.places.ok_or("no places")?;
    check(places.lost == 0, || format!("{it:#?}"))?;
    check(it.causes.is_empty() && it.needed.is_none(), || {
        format!("{it:#?}")
    })?;
    check(
        it.link
            == Link::Veth {
                mtu: 1_500,
                shaping: None,
            },
        || format!("{it:#?}"),
    )?;
    let delays = it.delays.ok_or("no delays")?;
    check(delays.max > Nanos::ZERO, || format!("{it:#?}"))
}

pub(crate) fn a_killed_pair_leaves_nothing() -> Result<(), Failed> {
    nets::leaves_nothing_when_killed(&["pace", "--udp", "--for", "1h", "--untraced"])
}

pub(crate) fn without_rights_it_goes_over_loopback() -> Result<(), Failed> {
    let place = within_reach_of_nobody()?;
    let output = as_nobody(place.path())
        .args(["pace", "--udp", "--for", "200ms", "--format", "json"])
        .args(["--rcvbuf", "500000000"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    check(output.status.success(), || said.clone())?;
    let it: PacketStatement = serde_json::from_slice(&output.stdout)?;
    check(matches!(it.link, Link::Loopback { .. }), || {
        format!("{it:#?}")
    })?;
    check(it.no_trace.is_some() && it.causes.is_empty(), || {
        format!("{it:#?}")
    })?;
    // It has what the kernel gives anybody.
    let buffer = it.buffer.ok_or("no buffer")?;
    let most = buffer.max_ask_bytes.ok_or("no net.core.rmem_max")?;
    check(!buffer.is_forced && buffer.bytes == 2 * most, || {
        format!("{buffer:?}")
    })?;
    check(
        said.contains("loopback") && !said.contains("os error"),
        || said.clone(),
    )
}
