//! Merges lines that describe the same source on different CPUs.

use std::cmp::Reverse;

use ticktax_model::beats::{BeatGaps, BeatLine, FollowsTick};

/// A source's periods on two CPUs count as equal if they differ by at most this share.
const SAME: f64 = 1e-3;

/// Merges lines with the same name and period, and sorts the result by cost, costliest first.
///
/// A merged line gets its period from the CPU with the most beats, not from the one with the
/// narrowest confidence interval. Some of many intervals are narrow only by luck, and those contain
/// the true period less often.
pub(super) fn merge(mut lines: Vec<BeatLine>) -> Vec<BeatLine> {
    lines.sort_by_key(|line| Reverse(line.rhythm.seen));
    let mut merged: Vec<BeatLine> = Vec::new();
    for line in lines {
        let same = |other: &&mut BeatLine| {
            (other.kind, &other.name) == (line.kind, &line.name)
                && other.pid == line.pid
                && other.by_ticktax == line.by_ticktax
                && other.alias == line.alias
                && (other.rhythm.period / line.rhythm.period - 1.0).abs() < SAME
        };
        match merged.iter_mut().find(same) {
            Some(other) => join(other, line),
            None => merged.push(line),
        }
    }
    merged.sort_by(|a, b| {
        cost(b)
            .total_cmp(&cost(a))
            .then_with(|| a.name.cmp(&b.name))
    });
    merged
}

/// Returns the share of time that a beat costs, either directly or through the gaps it causes.
fn cost(line: &BeatLine) -> f64 {
    line.gaps
        .map_or(line.share, |gaps| gaps.share.max(line.share))
}

fn join(into: &mut BeatLine, line: BeatLine) {
    let (a, b) = (into.cpus.len() as f64, line.cpus.len() as f64);
    into.share = (into.share * a + line.share * b) / (a + b);
    into.gaps = match (into.gaps, line.gaps) {
        (Some(x), Some(y)) => Some(BeatGaps {
            threshold: x.threshold.min(y.threshold),
            count: x.count + y.count,
            lengths: x.lengths.longer(y.lengths),
            share: (x.share * a + y.share * b) / (a + b),
            inside: x.inside.min(y.inside),
            ..x
        }),
        (x, y) => x.or(y),
    };
    // Widen the confidence interval to include the other CPUs' periods.
    (into.rhythm.low, into.rhythm.high) = (
        into.rhythm.low.min(line.rhythm.period),
        into.rhythm.high.max(line.rhythm.period),
    );
    for tid in line.tids {
        if !into.tids.contains(&tid) {
            into.tids.push(tid);
        }
    }
    into.cpus = into.cpus.iter().chain(line.cpus.iter()).collect();
    into.rhythm.false_alarm = into.rhythm.false_alarm.min(line.rhythm.false_alarm);
    into.first = into.first.min(line.first);
    into.active_range = match (into.active_range, line.active_range) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        _ => None,
    };
    into.rhythm.seen += line.rhythm.seen;
    into.rhythm.expected += line.rhythm.expected;
    into.rhythm.jitter = into.rhythm.jitter.max(line.rhythm.jitter);
    into.rhythm.phase_jumps += line.rhythm.phase_jumps;
    into.events_per_period = into.events_per_period.max(line.events_per_period);
    into.lengths = into.lengths.longer(line.lengths);
    // Do not claim for all CPUs something that holds for only one.
    into.follows_tick = into
        .follows_tick
        .zip(line.follows_tick)
        .map(|(x, y)| FollowsTick {
            events: x.events + y.events,
            after: x.after + y.after,
            within: x.within.max(y.within),
            false_alarm: x.false_alarm.max(y.false_alarm),
        });
    if into.chain.len() < line.chain.len() {
        into.chain = line.chain;
    }
    // Do not claim for all CPUs something that is proven for only one.
    into.hypervisor_or_firmware = into
        .hypervisor_or_firmware
        .filter(|_| into.hypervisor_or_firmware == line.hypervisor_or_firmware);
    for same in line.same_period {
        if into.same_period.iter().all(|known| known.name != same.name) {
            into.same_period.push(same);
        }
    }
    into.ran_in_gaps
        .retain(|name| line.ran_in_gaps.contains(name));
}
