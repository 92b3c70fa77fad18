//! Searches the events of all sources for beats, using several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

use ticktax_model::Nanos;

use super::Finder;
use super::stream::Identity;
use ticktax_beats::{Beat, Events, FEWEST, detect, knowable};

/// Unobserved time is ignored if it is at most this share of a window.
const NEGLIGIBLE: f64 = 0.02;
/// A thread's lifetime becomes a separate window if it covers at least this share of the
/// observation.
const MIN_LIFE: f64 = 0.25;
/// A thread's lifetime becomes a separate window only if it is at least this long.
const SHORTEST_LIFE: Nanos = Nanos::from_secs(1);

/// A beat found in one source.
#[derive(Clone, Debug)]
pub(super) struct StreamBeat {
    pub(super) stream: u32,
    pub(super) beat: Beat,
    /// The part of the observation in which the beat was present, or `None` for all of it.
    pub(super) during: Option<(Nanos, Nanos)>,
}

/// Maximum number of searches per stream: one for the whole observation, and one each for its
/// first, middle and last halves.
pub(super) const SEARCHES: usize = 4;
/// A stream's halves are searched only if it has at least this many events.
const ENOUGH: usize = 20;

/// Returns the streams with enough events for a search. Omits streams of thread starts if the
/// recording keeps sums, because a thread's first row is then not necessarily its first run.
pub(super) fn searchable(finder: &Finder) -> Vec<u32> {
    (0u32..)
        .zip(finder.streams.iter())
        .filter(|(_, stream)| stream.collector.count() >= FEWEST as u64 && !stream.stunted)
        .filter(|(_, stream)| {
            finder.sums == 0 || !matches!(stream.key.identity, Identity::Starts { .. })
        })
        .map(|(index, _)| index)
        .collect()
}

/// Returns a stream's events, limited to the time in which the stream was observed.
pub(super) fn events(finder: &Finder, stream: u32) -> Events {
    let stream = &finder.streams[stream as usize];
    let tick = finder.ticks.for_source(&stream.key);
    let mut events = stream.collector.events(finder.last).with_tick(tick);
    let window = events.span();
    let cpu = stream.only_cpu().or(stream.key.cpu);
    let trail = cpu.and_then(|cpu| finder.trails.get(cpu.index()));
    stream
        .untimed
        .iter()
        .for_each(|&(from, to)| cut(&mut events, from, to));
    // A recording with sums lacks most rows, so a period without rows may still have been observed.
    if let Some(trail) = trail.filter(|_| finder.sums == 0) {
        let lost: i64 = trail.holes.iter().map(|hole| (hole.1 - hole.0).0).sum();
        if lost as f64 > NEGLIGIBLE * window.0 as f64 {
            for &(from, to) in &trail.holes {
                cut(&mut events, from, to);
            }
        }
        if let Some((from, to)) = trail.covered() {
            let late = (from - finder.first.unwrap_or_default()) + (finder.last - to);
            if late.0 as f64 > NEGLIGIBLE * window.0 as f64 {
                cut(&mut events, Nanos(i64::MIN), from);
                cut(&mut events, to, Nanos::MAX);
            }
        }
    }
    let life = stream.last - stream.first;
    if stream.key.identity.is_mortal()
        && (life.0 as f64) < 0.75 * window.0 as f64
        && life.0 as f64 > MIN_LIFE * window.0 as f64
        && life > SHORTEST_LIFE
    {
        // The beat starts around the first event and ends around the last. Extend the window by
        // half an interval on either side.
        let count = i64::try_from(events.starts.len()).unwrap_or(i64::MAX);
        let half = Nanos(life.0 / count.max(1) / 2);
        cut(&mut events, Nanos(i64::MIN), stream.first - half);
        cut(&mut events, stream.last + half, Nanos::MAX);
    }
    events
}

/// Marks the time from `from` to `to` as unobserved.
fn cut(events: &mut Events, from: Nanos, to: Nanos) {
    let pieces = events.observed.iter().flat_map(|&(begin, end)| {
        let before = (begin, end.min(from));
        let after = (begin.max(to), end);
        [before, after]
            .into_iter()
            .filter(|(begin, end)| begin < end)
    });
    let mut pieces: Vec<_> = pieces.collect();
    pieces.dedup();
    events.observed = pieces;
}

/// Searches `streams`, using `threads` threads. The result is sorted by stream, then by strength.
pub(super) fn search(finder: &Finder, streams: &[u32], threads: usize) -> Vec<StreamBeat> {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Vec::new());
    let work = || {
        while let Some(&stream) = streams.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = search_one(finder, stream);
            if !found.is_empty() {
                all.lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .extend(found);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(streams.len()) {
            // If a thread cannot be started, the others still find the same beats, just more
            // slowly.
            if Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let mut all = all.into_inner().unwrap_or_default();
    // Make the order independent of thread timing. The sort is stable, so each stream's beats keep
    // their order.
    all.sort_by_key(|found| found.stream);
    all
}

/// Finds the beats in one stream. Searches the whole observation first. A beat that is present for
/// only part of it can be missed that way, so if nothing is found, the first, middle and last
/// halves are searched too.
fn search_one(finder: &Finder, stream: u32) -> Vec<StreamBeat> {
    let events = events(finder, stream);
    if knowable(&events).is_err() {
        return Vec::new();
    }
    let with_window = |beats: Vec<Beat>, during| {
        let found = move |beat| StreamBeat {
            stream,
            beat,
            during,
        };
        beats.into_iter().map(found).collect()
    };
    let collector = &finder.streams[stream as usize].collector;
    let beats = collector.detect_among(&events, finder.last);
    let (Some(&(begin, _)), Some(&(_, end))) = (events.observed.first(), events.observed.last())
    else {
        return Vec::new();
    };
    if !beats.is_empty() || events.starts.len() < ENOUGH || !finder.halves {
        let life = finder.last - finder.first.unwrap_or_default();
        let is_nearly_all = (end - begin).0 as f64 > 0.9 * life.0 as f64;
        return with_window(beats, (!is_nearly_all).then_some((begin, end)));
    }
    let quarter = Nanos((end - begin).0 / 4);
    for (skip, leave) in [(0, 2), (2, 0), (1, 1)] {
        let from = begin + Nanos(quarter.0 * skip);
        let to = end - Nanos(quarter.0 * leave);
        let mut half = events.clone();
        cut(&mut half, Nanos(i64::MIN), from);
        cut(&mut half, to, Nanos::MAX);
        let beats = detect(&half);
        if !beats.is_empty() {
            return with_window(beats, Some((from, to)));
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Events, cut};

    #[test]
    fn unobserved_intervals_are_cut_out() {
        let mut events = Events::new(Nanos(0), Nanos(100), Vec::new(), Vec::new());
        cut(&mut events, Nanos(40), Nanos(60));
        cut(&mut events, Nanos(i64::MIN), Nanos(10));
        cut(&mut events, Nanos(50), Nanos(70));
        cut(&mut events, Nanos(200), Nanos::MAX);
        assert_eq!(
            events.observed,
            [(Nanos(10), Nanos(40)), (Nanos(70), Nanos(100))]
        );
    }
}
