//! Groups similar incidents, and finds groups that are periodic.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ticktax_model::Nanos;
use ticktax_model::beats::Periodicity;
use ticktax_model::incident::{
    IncidentEntry, IncidentGroup, IncidentIndex, IncidentList, IncidentSheet, IndexLine, LossCause,
    NotKept, Signature,
};

use crate::beats::FAMILY;
use ticktax_beats::{Beat, Events, FEWEST, detect};

/// Maximum number of incidents per group that are searched for beats. Older ones are ignored.
const SEARCHED: usize = 2_048;
/// An incident that starts within this many ns of a beat's grid belongs to the beat even if the
/// jitter is smaller, because times are in whole milliseconds.
const NEAR: f64 = 2e6;

/// Lists the incidents in a directory's index. If `since` (ms since 1970) is given, earlier ones
/// are omitted. `folder` is the directory's name.
pub fn incident_list(folder: &str, index: &IncidentIndex, since: Option<i64>) -> IncidentList {
    let watched = watched(index, since);
    let groups = alike(index, since);
    let searched = groups
        .values()
        .filter(|entries| entries.len() >= FEWEST)
        .count();
    let mut groups: Vec<IncidentGroup> = groups
        .iter()
        .map(|(signature, entries)| {
            let beats = beats(entries, &watched, searched);
            let beats = beats.iter().map(Beat::periodicity).collect();
            group(signature, entries, beats)
        })
        .collect();
    // Rare long delays come first and frequent short ones last. Counts are compared only by
    // magnitude, so small differences don't matter.
    groups.sort_by_key(|group| (group.count.ilog2(), Reverse(group.time)));
    IncidentList {
        directory: folder.to_owned(),
        since_unix_ms: since,
        watched: watched.iter().map(|(from, to)| *to - *from).sum(),
        groups,
        searched: searched as u64,
        family_alarm: FAMILY,
        not_kept: not_kept(index),
        recovered: index.found_again,
        damaged_lines: index.damaged,
    }
}

/// Returns incident `number` and its group, or `None` if it is not in the index. `path` is the
/// location of its recording.
pub fn incident_sheet(
    index: &IncidentIndex,
    number: u64,
    path: Option<String>,
) -> Option<IncidentSheet> {
    let entry = index.entries().find(|entry| entry.number == number)?;
    let groups = alike(index, None);
    let searched = groups
        .values()
        .filter(|entries| entries.len() >= FEWEST)
        .count();
    let alike = groups.get(&entry.incident.signature())?;
    let beats = beats(alike, &watched(index, None), searched);
    let beat = beats.iter().find(|beat| is_on(beat, entry, alike));
    Some(IncidentSheet {
        position: 1 + alike.iter().position(|other| other.number == number)? as u64,
        similar_count: alike.len() as u64,
        first_unix_ms: alike.first().map_or(0, |first| first.incident.at_unix_ms),
        beat: beat.map(Beat::periodicity),
        path,
        entry: entry.clone(),
    })
}

/// Groups incidents by signature. Each group is sorted by time.
fn alike(index: &IncidentIndex, since: Option<i64>) -> BTreeMap<Signature, Vec<&IncidentEntry>> {
    let mut groups: BTreeMap<Signature, Vec<&IncidentEntry>> = BTreeMap::new();
    for entry in index.entries() {
        if since.is_none_or(|since| entry.incident.at_unix_ms >= since) {
            let signature = entry.incident.signature();
            groups.entry(signature).or_default().push(entry);
        }
    }
    for entries in groups.values_mut() {
        entries.sort_by_key(|entry| (entry.incident.at_unix_ms, entry.number));
    }
    groups
}

fn group(
    signature: &Signature,
    entries: &[&IncidentEntry],
    beats: Vec<Periodicity>,
) -> IncidentGroup {
    let incidents = || entries.iter().map(|entry| &entry.incident);
    let longest = entries.iter().max_by_key(|entry| entry.incident.lasted);
    let (first, last) = (entries.first(), entries.last());
    let mut chains = incidents()
        .map(|incident| &incident.chain)
        .filter(|chain| !chain.is_empty());
    let known = chains.clone().count() as u64;
    let chain = chains
        .next()
        .filter(|first| chains.all(|chain| chain == *first));
    // Saturate the sum, because a file can contain any times.
    let lasted = incidents().map(|incident| incident.lasted.0);
    IncidentGroup {
        signature: signature.clone(),
        count: entries.len() as u64,
        time: Nanos(lasted.fold(0, i64::saturating_add)),
        max: longest.map_or(Nanos::ZERO, |entry| entry.incident.lasted),
        max_number: longest.map_or(0, |entry| entry.number),
        first_unix_ms: first.map_or(0, |entry| entry.incident.at_unix_ms),
        last_unix_ms: last.map_or(0, |entry| entry.incident.at_unix_ms),
        last_number: last.map_or(0, |entry| entry.number),
        at_unix_ms: incidents()
            .skip(entries.len().saturating_sub(IncidentGroup::MAX_TIMES))
            .map(|incident| incident.at_unix_ms)
            .collect(),
        chain: chain.cloned().unwrap_or_default(),
        chain_count: known,
        beats,
    }
}

/// Returns the beats in similar incidents, most certain first. `searched` is the number of groups
/// searched.
fn beats(entries: &[&IncidentEntry], watched: &[(Nanos, Nanos)], searched: usize) -> Vec<Beat> {
    if entries.len() < FEWEST {
        return Vec::new();
    }
    let latest = &entries[entries.len().saturating_sub(SEARCHED)..];
    let mut times: Vec<(Nanos, Nanos)> = latest
        .iter()
        .map(|entry| (began(entry), entry.incident.lasted))
        .collect();
    times.sort_unstable();
    let Some((&(first, _), &(last, lasted))) = times.first().zip(times.last()) else {
        return Vec::new();
    };
    let cut = latest.len() < entries.len();
    let mut observed: Vec<(Nanos, Nanos)> = watched
        .iter()
        .map(|&(from, to)| (if cut { from.max(first) } else { from }, to))
        .filter(|(from, to)| from < to)
        .collect();
    if observed.is_empty() {
        observed.push((first, Nanos(last.0.saturating_add(lasted.0))));
    }
    let (starts, durations) = times.into_iter().unzip();
    let events = Events {
        starts,
        durations,
        observed,
        tick: None,
    };
    let mut beats = detect(&events);
    // Each group is one more chance of a false alarm (Bonferroni's bound).
    let limit = FAMILY / searched.max(1) as f64;
    beats.retain(|beat| beat.false_alarm <= limit);
    beats.sort_by(|a, b| a.false_alarm.total_cmp(&b.false_alarm));
    beats
}

/// Returns whether an incident belongs to `beat`: another one must be one period away. Because some
/// can be missing, two or three periods count too.
fn is_on(beat: &Beat, entry: &IncidentEntry, alike: &[&IncidentEntry]) -> bool {
    let at = began(entry);
    alike.iter().any(|other| {
        let away = (began(other).0.saturating_sub(at.0)) as f64;
        let periods = (away / beat.period.value).round();
        let off = (away - periods * beat.period.value).abs();
        (1.0..=3.0).contains(&periods.abs()) && off <= NEAR.max(4.0 * beat.jitter.0 as f64)
    })
}

/// Returns when an incident's delay started, in ns since 1970.
fn began(entry: &IncidentEntry) -> Nanos {
    let at = entry.incident.at_unix_ms.saturating_mul(1_000_000);
    Nanos(at.saturating_sub(entry.incident.lasted.0))
}

/// Returns the intervals in which a recorder was watching, in ns since 1970, starting no earlier
/// than `since`. They are sorted and disjoint.
fn watched(index: &IncidentIndex, since: Option<i64>) -> Vec<(Nanos, Nanos)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for line in &index.lines {
        match line {
            IndexLine::Began { at_unix_ms } => runs.push((*at_unix_ms, *at_unix_ms)),
            IndexLine::Ended { at_unix_ms } => extend(&mut runs, *at_unix_ms),
            IndexLine::Incident(entry) => extend(&mut runs, entry.incident.at_unix_ms),
            IndexLine::Recorded { .. }
            | IndexLine::NotRecorded { .. }
            | IndexLine::Removed { .. }
            | IndexLine::Lost { .. } => {}
        }
    }
    runs.sort_unstable();
    let mut watched: Vec<(Nanos, Nanos)> = Vec::new();
    for (from, to) in runs {
        let from = since.map_or(from, |since| from.max(since));
        let (from, to) = (
            Nanos(from.saturating_mul(1_000_000)),
            Nanos(to.saturating_mul(1_000_000)),
        );
        match watched.last_mut() {
            // Intervals can overlap if the clock was set back.
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ if from < to => watched.push((from, to)),
            _ => {}
        }
    }
    watched
}

fn extend(runs: &mut [(i64, i64)], at: i64) {
    if let Some(run) = runs.last_mut() {
        run.1 = run.1.max(at);
    }
}

fn not_kept(index: &IncidentIndex) -> Vec<NotKept> {
    let mut counts: BTreeMap<LossCause, u64> = BTreeMap::new();
    for line in &index.lines {
        let (cause, count) = match line {
            IndexLine::Incident(entry) => match entry.not_kept {
                Some(cause) => (cause, 1),
                None => continue,
            },
            IndexLine::Removed { cause, .. } => (*cause, 1),
            IndexLine::Lost { cause, count } => (*cause, *count),
            // An incident's own entry already shows whether its recording was kept.
            IndexLine::Recorded { .. }
            | IndexLine::NotRecorded { .. }
            | IndexLine::Began { .. }
            | IndexLine::Ended { .. } => continue,
        };
        let sum = counts.entry(cause).or_default();
        *sum = sum.saturating_add(count);
    }
    let counts = counts.into_iter();
    counts
        .map(|(cause, count)| NotKept { cause, count })
        .collect()
}
