//! Datagrams lost in paced traffic: where they were lost, what delayed the receiver, and what
//! buffer size would have prevented the loss.

mod needed;
mod replay;
mod stalls;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ticktax_model::beats::Periodicity;
use ticktax_model::net::{EndReport, TrafficSpec};
use ticktax_model::packets::{
    Burst, BurstCause, Charge, LossBurst, NeededBuffer, PacketLog, PacketRun, PacketStatement,
    Pause, StallCause, places,
};
use ticktax_model::recording::Header;
use ticktax_model::victim::HoldUp;
use ticktax_model::{Kind, Nanos};

use crate::beats::FAMILY;
use ticktax_beats::{Beat, Events, detect};

use needed::{needed, predicted};
pub use stalls::{HoldUps, ReceiverWatch};

/// Conclusions drawn from both the log and the trace.
#[derive(Clone, Debug, Default, PartialEq)]
struct Judged {
    bursts: Vec<Burst>,
    causes: Vec<BurstCause>,
    beat: Option<Periodicity>,
    needed: Option<NeededBuffer>,
}

/// Returns the statement about a run's datagrams. `hold_ups` lists the receiver's delays, if they
/// were traced.
pub fn packet_statement(
    header: &Header,
    run: &PacketRun,
    hold_ups: Option<&HoldUps>,
) -> PacketStatement {
    let log = run.log.clone().map(with_charge);
    let receiver = run.receiver.as_ref();
    let judged = log
        .as_ref()
        .map(|log| judge(log, &run.spec, run.sender.as_ref(), receiver, hold_ups))
        .unwrap_or_default();
    let reasons = run.drop_reasons.as_deref().unwrap_or_default();
    let places =
        receiver.and_then(|receiver| places(run.sender.as_ref(), receiver, log.as_ref(), reasons));
    PacketStatement {
        tool_version: header.tool_version.clone(),
        host: header.machine.host.clone(),
        spec: run.spec,
        link: run.link.clone(),
        local_ends: run.local_ends.clone(),
        sender: run.sender.clone(),
        receiver: run.receiver.clone(),
        receiver_cpu: run.receiver_cpu,
        buffer: log.as_ref().map(|log| log.buffer),
        losses: places,
        drop_reasons: run.drop_reasons.clone(),
        bursts: log.as_ref().map(|_| judged.bursts),
        lost_outside_bursts: log.as_ref().map_or(0, |log| log.lost_outside_bursts),
        causes: judged.causes,
        beat: judged.beat,
        needed: judged.needed,
        delays: log.as_ref().and_then(|log| log.delays),
        slot: log.as_ref().map_or(Nanos::ZERO, |log| log.slot),
        by_time: log.map_or_else(Vec::new, |log| log.by_time),
        untraced_reason: run.untraced_reason.clone(),
        events_lost: header.coverage.events_lost(),
    }
}

fn judge(
    log: &PacketLog,
    spec: &TrafficSpec,
    sender: Option<&EndReport>,
    receiver: Option<&EndReport>,
    hold_ups: Option<&HoldUps>,
) -> Judged {
    let asked_hz = spec
        .rate
        .map(|bits| bits / 8.0 / f64::from(spec.call_bytes));
    let reached_hz =
        sender.and_then(|sender| Some(sender.calls as f64 / some_time(sender.elapsed())?));
    let rate_hz = reached_hz.or(asked_hz);
    let capacity = log.buffer.charge.map(|charge| charge.datagrams);
    // If both ends share a clock, nothing can have arrived after the sender's last datagram.
    let until = sender
        .filter(|_| log.delays.is_some())
        .map(|sender| sender.last);
    let bursts: Vec<Burst> = log
        .bursts
        .iter()
        .map(|burst| {
            let stall = hold_ups.and_then(|hold_ups| hold_ups.during(&burst.pause?, until));
            // Prefer the rate measured during the pause, because the sender may have been delayed
            // too.
            let rate_hz = burst.pause.as_ref().and_then(rate_in).or(rate_hz);
            let terms = stall.as_ref().zip(rate_hz).zip(capacity);
            Burst {
                at: burst.at,
                first: burst.first,
                lost: burst.lost,
                socket_drops: burst.socket_drops,
                read_pause: burst.pause.map(|pause| pause.end - pause.start),
                sent_in_pause: burst.pause.and_then(|pause| pause.sent),
                queued: burst.pause.map(|pause| pause.queued),
                predicted: terms
                    .filter(|_| burst.socket_drops > 0)
                    .map(|((stall, rate), held)| predicted(rate, stall.length, held)),
                stall,
            }
        })
        .collect();
    Judged {
        causes: causes(&bursts),
        beat: beat(
            &log.bursts,
            receiver.map_or(Nanos::ZERO, EndReport::elapsed),
        ),
        needed: needed(log),
        bursts,
    }
}

/// Returns the sending rate during a pause, in datagrams per second.
fn rate_in(pause: &Pause) -> Option<f64> {
    Some(pause.sent? as f64 / some_time(pause.end - pause.start)?)
}

fn some_time(elapsed: Nanos) -> Option<f64> {
    (elapsed > Nanos::ZERO).then(|| elapsed.as_secs_f64())
}

/// Groups bursts by their main delay.
fn causes(bursts: &[Burst]) -> Vec<BurstCause> {
    let mut by: BTreeMap<Option<(HoldUp, String, Kind)>, BurstCause> = BTreeMap::new();
    for burst in bursts {
        let most = burst.stall.as_ref().and_then(|stall| stall.causes.first());
        let key = most.map(|held| (held.kind, held.name.clone(), held.source_kind));
        let cause = by.entry(key).or_insert_with(|| BurstCause {
            cause: most.map(|held| StallCause {
                time: Nanos::ZERO,
                ..held.clone()
            }),
            bursts: 0,
            lost: 0,
            longest: Nanos::ZERO,
        });
        cause.bursts += 1;
        cause.lost += burst.lost;
        if let Some(stall) = &burst.stall {
            cause.longest = cause.longest.max(stall.length);
        }
        if let (Some(sum), Some(most)) = (&mut cause.cause, most) {
            sum.time += most.time;
            // Processes that merely share a name have no common PID.
            sum.pid = sum.pid.filter(|_| sum.pid == most.pid);
        }
    }
    let mut causes: Vec<BurstCause> = by.into_values().collect();
    causes.sort_by_key(|cause| (Reverse(cause.lost), Reverse(cause.bursts)));
    causes
}

fn beat(bursts: &[LossBurst], elapsed: Nanos) -> Option<Periodicity> {
    let starts: Vec<Nanos> = bursts.iter().map(|burst| burst.at).collect();
    let lengths = bursts.iter().map(|burst| {
        let pause = burst.pause.unwrap_or_default();
        pause.end - pause.start
    });
    let end = starts.last().map_or(elapsed, |&last| elapsed.max(last));
    let durations = lengths.collect();
    let mut beats = detect(&Events::new(Nanos::ZERO, end, starts, durations));
    beats.retain(|beat| beat.false_alarm <= FAMILY);
    beats.sort_by(|a, b| a.false_alarm.total_cmp(&b.false_alarm));
    beats.first().map(Beat::periodicity)
}

/// Completes the log if the buffer's capacity was not measured by filling the buffer before the
/// run. The capacity is then the number of datagrams that were waiting when the first burst
/// started.
fn with_charge(mut log: PacketLog) -> PacketLog {
    if log.buffer.charge.is_none() {
        let mut bursts = log.bursts.iter().filter(|burst| burst.socket_drops > 0);
        let queued = bursts.find_map(|burst| Some(burst.pause?.queued));
        log.buffer.charge = queued.filter(|&queued| queued > 0).map(|datagrams| Charge {
            bytes_per_datagram: log.buffer.bytes / datagrams,
            datagrams,
            measured_beforehand: false,
        });
    }
    log
}

#[cfg(test)]
mod tests;
