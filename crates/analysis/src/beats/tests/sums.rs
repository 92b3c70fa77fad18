//! Tests recordings with sums, in which only long events have times.

use ticktax_fixture::{Summing, books, process, replay};
use ticktax_model::beats::{BeatKind, BeatStatement};
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Row, Sum};
use ticktax_model::{Cpu, Histogram, Kind, Nanos, Owner, Source, Span};

use super::super::BeatFinder;
use super::{MS, Story, US, every, header, near};

impl Story {
    /// Searches a recording that contains the story's rows as sums.
    fn search_sums(mut self, length: i64) -> BeatStatement {
        self.rows.sort_by_key(|row| (row.span().end(), row.cpu()));
        let mut summing = Summing::new(BeatFinder::new().with_halves());
        replay(&self.sources, &self.rows, &mut summing);
        let finder = summing.finish(&self.sources, Nanos(length));
        finder.finish(&header(books(0, 0, length), Vec::new()), 2)
    }
}

#[test]
fn long_beats_and_gaps_are_found_over_hours() {
    let length = 7_200_000 * MS;
    let mut world = Story::default();
    for at in every(1_000 * MS, length) {
        world.add(process(Owner::Program, "short", 8), 0, at, 300 * US);
    }
    for at in every(30_999 * MS, length) {
        world.add(process(Owner::Program, "backup", 7), 0, at, 17 * MS);
        world.add(
            Source::kernel(Kind::Gap, "spin", ""),
            0,
            at - US,
            17 * MS + 3 * US,
        );
    }
    for at in every(7_013 * MS, length) {
        world.add(Source::kernel(Kind::Gap, "spin", ""), 0, at, 5 * MS);
    }
    let found = world.search_sums(length);
    let [gaps, backup] = &found.beats[..] else {
        panic!("{found:#?}")
    };
    assert_eq!(backup.name, "backup");
    assert!(
        near(backup, 30_999 * MS) && backup.rhythm.seen == 232,
        "{backup:#?}"
    );
    assert_eq!(backup.gaps.unwrap().count, 232);
    assert!(gaps.kind == BeatKind::Gaps && near(gaps, 7_013 * MS));
    // Shorter events may have run in the gaps, so nothing is proven about the gaps.
    assert_eq!(gaps.hypervisor_or_firmware, None);
    let limits = &found.limitations;
    let summed = |limitation: &Limitation| matches!(limitation, Limitation::BeatTimesSummed { .. });
    assert!(limits.iter().any(summed), "{limits:?}");
    let other = |limitation: &Limitation| {
        matches!(
            limitation,
            Limitation::BeatLongTimesSummed { .. } | Limitation::RecordingHoles { .. }
        )
    };
    assert!(!limits.iter().any(other), "{limits:?}");
}

/// Searches a 200 s recording of a thread that runs for 2 ms every second. After 50 s, `windows`
/// one-second windows record its runs only as sums.
fn with_full_buffer(windows: i64) -> BeatStatement {
    let (second, length) = (1_000 * MS, 200_000 * MS);
    let mut world = Story::default();
    let thread = process(Owner::Program, "steady", 7);
    let source = world.sources.intern(thread.clone());
    for at in (0..length / second).map(|k| k * second) {
        let summed = at / second >= 50 && at / second < 50 + windows;
        if !summed {
            world.add(thread.clone(), 0, at + 500 * MS, 2 * MS);
        }
        let lengths = Nanos(2 * MS);
        let mut histogram = Histogram::default();
        histogram.record(lengths);
        let idle = world.sources.intern(Source::idle());
        world.rows.push(Row::Sum(Sum {
            span: Span {
                cpu: Cpu(0),
                start: Nanos(at),
                dur: Nanos(second),
                self_time: lengths,
                source: if summed { source } else { idle },
            },
            count: 1,
            max: lengths,
            histogram,
        }));
    }
    world.search(length)
}

#[test]
fn windows_without_times_count_as_unobserved() {
    let limit = |statement: &BeatStatement| {
        let limits = statement.limitations.iter();
        let mut limits = limits.filter_map(|limitation| match *limitation {
            Limitation::BeatLongTimesSummed {
                windows, sources, ..
            } => Some((windows, sources)),
            _ => None,
        });
        limits.next()
    };
    let complete = with_full_buffer(0);
    assert_eq!(
        (complete.beats[0].rhythm.seen, limit(&complete)),
        (200, None)
    );
    let part = with_full_buffer(20);
    let beat = &part.beats[0];
    assert!(near(beat, 1_000 * MS), "{beat:#?}");
    assert_eq!((beat.rhythm.seen, limit(&part)), (180, Some((20, 0))));
    assert!(beat.rhythm.expected <= 182, "{beat:#?}");
    let most = with_full_buffer(100);
    assert!(most.beats.is_empty());
    assert_eq!(limit(&most), Some((100, 1)));
}
