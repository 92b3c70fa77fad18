//! Parses the osnoise tracer's events (`include/trace/events/osnoise.h`) in tracefs format.
//!
//! `sample_threshold` describes a gap in the tracer's loop: its start, its length and the number of
//! interferences in it. An interference is an event that ran instead of the loop: `irq_noise`,
//! `softirq_noise`, `thread_noise` or `nmi_noise`. It has a start and a run time, which excludes
//! nested interruptions. `rtla osnoise top` reports how many interferences there were, but not how
//! long they took. This module therefore computes how much of the time in gaps can be attributed to
//! named events.

use std::collections::BTreeMap;

use super::statement::Attribution;
use ticktax_model::Nanos;

use super::Unreadable;

const WHAT: &str = "trace of osnoise's events";

/// An event of any kind from the trace.
struct Event<'a> {
    cpu: u32,
    start: Nanos,
    length: Nanos,
    kind: Kind<'a>,
}

enum Kind<'a> {
    /// A gap in the loop, with the number of interferences in it.
    Gap(u64),
    /// An interference, with the name of the thing that ran instead of the loop.
    Noise(&'a str),
}

/// Breaks down the time in all gaps of a trace. Events that started within a gap are charged to it,
/// up to the gap's length. Returns `None` if the kernel dropped events, because the breakdown would
/// then be wrong.
pub(super) fn attribution(trace: &str) -> Result<Option<Attribution>, Unreadable> {
    if lost(trace)? {
        return Ok(None);
    }
    // In the trace, interferences precede the gap that contains them, but they are in order of end
    // time.
    let mut noises: BTreeMap<(u32, Nanos), (Nanos, &str)> = BTreeMap::new();
    let mut gaps = Vec::new();
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        let event = event(line).ok_or_else(|| Unreadable::line("event of osnoise", line))?;
        match event.kind {
            Kind::Noise(name) => {
                let noise = noises.entry((event.cpu, event.start)).or_default();
                *noise = (noise.0 + event.length, name);
            }
            Kind::Gap(interferences) => gaps.push((event, interferences)),
        }
    }
    let mut sum = Attribution::default();
    for (gap, interferences) in gaps {
        let within = (gap.cpu, gap.start)..(gap.cpu, gap.start + gap.length);
        let inside = || noises.range(within.clone()).map(|(_, noise)| noise);
        let named: Nanos = inside().map(|&(length, _)| length).sum();
        let own: Nanos = inside()
            .filter(|(_, name)| *name == "rtla")
            .map(|&(length, _)| length)
            .sum();
        let named = named.min(gap.length);
        let rest = gap.length - named;
        sum.gaps += 1;
        sum.time += gap.length;
        sum.named += named;
        sum.own += own.min(named);
        if interferences == 0 && named == Nanos::ZERO {
            sum.outside += rest;
        } else {
            sum.unexplained += rest;
        }
    }
    Ok(Some(sum))
}

/// Returns whether the trace contains fewer events than were written. Both numbers are in a header
/// line such as `# entries-in-buffer/entries-written: 554/554   #P:1`.
fn lost(trace: &str) -> Result<bool, Unreadable> {
    const ENTRIES: &str = "entries-in-buffer/entries-written:";
    let line = trace.lines().find(|line| line.contains(ENTRIES));
    let line = line.ok_or(Unreadable::Nothing(WHAT))?;
    let counts = || {
        let words = line.split_once(ENTRIES)?.1.split_whitespace().next()?;
        let (kept, written) = words.split_once('/')?;
        Some((kept.parse::<u64>().ok()?, written.parse::<u64>().ok()?))
    };
    let (kept, written) = counts().ok_or_else(|| Unreadable::line(WHAT, line))?;
    Ok(kept < written)
}

/// Parses an event, such as `rcuc/0-19  [000] d...3..  21.988400: thread_noise:   rcuc/0:19 start
/// 21.988383593 duration 15180 ns`. Returns `None` if the line is not in this format.
fn event(line: &str) -> Option<Event<'_>> {
    let (head, rest) = line.split_once("_noise: ").map_or_else(
        || {
            line.split_once("sample_threshold: ")
                .map(|(head, rest)| (head, (true, rest)))
        },
        |(head, rest)| Some((head, (false, rest))),
    )?;
    let (is_gap, rest) = rest;
    let cpu = head.split_once(" [")?.1.split_once(']')?.0.parse().ok()?;
    // A thread's name may contain any characters, but the text after it has a fixed format.
    let (name, numbers) = rest.rsplit_once("start ")?;
    let words: Vec<&str> = numbers.split_whitespace().collect();
    let (start, length, interferences) = match words[..] {
        [start, "duration", length, "ns"] if !is_gap => (start, length, 0),
        [start, "duration", length, "ns", "interference", count] if is_gap => {
            (start, length, count.parse().ok()?)
        }
        _ => return None,
    };
    let (seconds, ns) = start.split_once('.')?;
    let start = seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?;
    let name = name.trim();
    let kind = if is_gap {
        Kind::Gap(interferences)
    } else {
        Kind::Noise(name.rsplit_once(':').map_or(name, |(name, _)| name))
    };
    (ns.len() == 9).then_some(())?;
    Some(Event {
        cpu,
        start: Nanos(start.checked_add(ns.parse().ok()?)?),
        length: Nanos(length.parse().ok()?),
        kind,
    })
}
