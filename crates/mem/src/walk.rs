//! Predicts the cost of a loop that touches some fields of many objects.

use std::collections::BTreeSet;

use ticktax_model::Nanos;
use ticktax_model::mem::{
    LatencyPoint, LevelFit, MemLatency, MemWalk, Prefetch, Touch, WalkCost, WalkKind, WalkPoint,
};
use ticktax_sim::cache::{Cache, Layout};

use crate::btf::{Field, Structure};

/// A loop over objects of one type.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Type of the objects.
    pub structure: Structure,
    /// Fields in the order in which the loop touches them.
    pub fields: Vec<(String, Field)>,
    /// Number of objects.
    pub items: u64,
    /// Time between the starts of two walks, if it is known.
    pub every: Option<Nanos>,
}

/// Cache lines that an item touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    /// Number of lines.
    pub(crate) all: u64,
    /// Lines that the hardware has fetched along with another line of the object.
    pub(crate) along: u64,
    /// Touches of a line that was touched before.
    pub(crate) again: u64,
}

impl Walk {
    /// Predicts the cost of the walk from measured latencies. Each object starts at a cache line,
    /// and the loop starts to load a line only when the one before has arrived.
    pub fn predict(&self, measured: &MemLatency) -> MemWalk {
        let line = measured.line_bytes.max(1);
        let offsets: Vec<u64> = self.fields.iter().map(|field| field.1.offset).collect();
        let layout = |offsets: &[u64]| Layout {
            objects: vec![(self.structure.size.next_multiple_of(line), offsets.to_vec())],
        };
        let packed = self.packed(line);
        let fits = measured.levels.iter().filter_map(|level| {
            let bytes = level.reported_bytes?;
            let cache = Cache {
                size: bytes,
                line,
                ways: level.ways.unwrap_or(8),
            };
            Some(LevelFit {
                level: level.name.clone(),
                size_bytes: bytes,
                items: layout(&offsets).capacity(&cache),
                packed_items: layout(&packed).capacity(&cache),
            })
        });
        let [interleaved, sequential, packed_cost] =
            self.costs(line, measured.prefetch, |_, size| {
                Loads::in_table(measured, size)
            });
        MemWalk {
            structure: self.structure.name.clone(),
            size_bytes: self.structure.size,
            hole_bytes: self.structure.holes.iter().map(|hole| hole.1).sum(),
            holes: self.structure.holes.len() as u64,
            line_bytes: line,
            touches: self.touches(line),
            items: self.items,
            lines: layout(&offsets).lines(line),
            packed_lines: layout(&packed).lines(line),
            fits: fits.collect(),
            interleaved,
            sequential,
            packed: packed_cost,
            every: self.every,
            prefetch: measured.prefetch,
            curve: self.curve(measured),
            check: None,
        }
    }

    /// Predicts the time per object for numbers of objects whose working sets were measured.
    fn curve(&self, measured: &MemLatency) -> Vec<WalkPoint> {
        let line = measured.line_bytes.max(1);
        let offsets: Vec<u64> = self.fields.iter().map(|field| field.1.offset).collect();
        let each = fetched(&offsets, line, measured.prefetch).max(1);
        let sizes = measured.points.iter().map(|point| point.size_bytes);
        let mut counts: Vec<u64> = sizes.map(|size| (size / each).max(1)).collect();
        counts.push(self.items);
        counts.sort_unstable();
        counts.dedup();
        let point = |items| {
            let walk = Self {
                items,
                ..self.clone()
            };
            let loads = |_, size| Loads::in_table(measured, size);
            let costs = walk.costs(line, measured.prefetch, loads);
            WalkPoint {
                items,
                interleaved_ns: costs[0].item_ns,
                sequential_ns: costs[1].item_ns,
                packed_ns: costs[2].item_ns,
            }
        };
        counts.into_iter().map(point).collect()
    }

    fn touches(&self, line: u64) -> Vec<Touch> {
        let mut seen = BTreeSet::new();
        let touch = |(name, field): &(String, Field)| Touch {
            field: name.clone(),
            offset_bytes: field.offset,
            size_bytes: field.size,
            line: field.offset / line,
            is_first: seen.insert(field.offset / line),
        };
        self.fields.iter().map(touch).collect()
    }

    /// Returns the offset of each touch after all touched fields were moved together.
    pub(crate) fn packed(&self, line: u64) -> Vec<u64> {
        let mut placed: Vec<(Field, u64)> = Vec::new();
        let mut end: u64 = 0;
        let place = |(_, field): &(String, Field)| {
            if let Some((_, at)) = placed.iter().find(|(known, _)| known == field) {
                return *at;
            }
            // The loop touches only the first word of a larger field.
            let size = field.size.min(8);
            let at = end.next_multiple_of(size.next_power_of_two().min(line));
            end = at + size;
            placed.push((*field, at));
            at
        };
        self.fields.iter().map(place).collect()
    }

    /// Predicts the costs of the walk with the fields in the loop's order, by address, and moved
    /// together.
    pub(crate) fn costs(
        &self,
        line: u64,
        prefetch: Option<Prefetch>,
        loads: impl Fn(WalkKind, u64) -> Loads,
    ) -> [WalkCost; 3] {
        let offsets: Vec<u64> = self.fields.iter().map(|field| field.1.offset).collect();
        let mut sorted = offsets.clone();
        sorted.sort_unstable();
        let packed = self.packed(line);
        [
            (WalkKind::InOrder, offsets),
            (WalkKind::ByAddress, sorted),
            (WalkKind::Packed, packed),
        ]
        .map(|(kind, offsets)| {
            let size = self.items.saturating_mul(fetched(&offsets, line, prefetch));
            let lines = lines(&offsets, line, prefetch);
            self.cost(lines, size, loads(kind, size))
        })
    }

    fn cost(&self, lines: Lines, working_set_bytes: u64, loads: Loads) -> WalkCost {
        let item_ns = (lines.all - lines.along) as f64 * loads.miss
            + lines.along as f64 * loads.next.min(loads.miss)
            + lines.again as f64 * loads.nearest;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a float beyond the range becomes the largest time"
        )]
        let stall = Nanos((item_ns * self.items as f64).round() as i64);
        WalkCost {
            working_set_bytes,
            item_ns,
            stall,
        }
    }
}

/// Times of the kinds of loads in a walk, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Loads {
    /// From a line that was touched just before.
    pub(crate) nearest: f64,
    /// From the working set.
    pub(crate) miss: f64,
    /// From the working set, if the load before went to the other line of the same pair.
    pub(crate) next: f64,
}

impl Loads {
    /// Looks up the times for a working set of `size` bytes.
    fn in_table(measured: &MemLatency, size: u64) -> Self {
        let nearest = measured.points.first();
        let point = at(&measured.points, size);
        let (miss, next) =
            point.map_or((0.0, 0.0), |point| (point.latency_ns(), point.next_line_ns));
        Self {
            nearest: nearest.map_or(0.0, LatencyPoint::latency_ns),
            miss,
            next,
        }
    }
}

/// Returns the smallest measured working set that is at least `size`, or the largest one.
pub(crate) fn at(points: &[LatencyPoint], size: u64) -> Option<&LatencyPoint> {
    let fits = points.iter().find(|point| point.size_bytes >= size);
    fits.or(points.last())
}

/// Returns the size of the memory that a visit of an object brings into the caches.
pub(crate) fn fetched(offsets: &[u64], line: u64, prefetch: Option<Prefetch>) -> u64 {
    let unit = prefetch
        .map_or(line, |prefetch| prefetch.fetch_bytes)
        .max(1);
    let units: BTreeSet<u64> = offsets.iter().map(|offset| offset / unit).collect();
    unit.saturating_mul(units.len() as u64)
}

/// Counts the touches of an object by the source of their line: memory, a prefetch or the L1.
///
/// A line comes along with an earlier one of the object if the hardware's prefetchers reach it from
/// there. Only a line that was loaded separately can bring others along. If the reach is
/// unknown, a line comes along with the other line of its aligned pair, touched just before.
pub(crate) fn lines(offsets: &[u64], line: u64, prefetch: Option<Prefetch>) -> Lines {
    let mut seen = BTreeSet::new();
    let mut leading: Vec<u64> = Vec::new();
    let mut counts = Lines {
        all: 0,
        along: 0,
        again: 0,
    };
    let mut before = None;
    for number in offsets.iter().map(|offset| offset / line) {
        if seen.insert(number) {
            counts.all += 1;
            let comes_along = match prefetch {
                Some(prefetch) => leading.iter().any(|&first| prefetch.covers(first, number)),
                None => before == Some(number ^ 1),
            };
            if comes_along {
                counts.along += 1;
            } else {
                leading.push(number);
            }
        } else {
            counts.again += 1;
        }
        before = Some(number);
    }
    counts
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use ticktax_model::mem::{Latency, LatencyPoint, MemLatency, MemLevel, PageBacking, Prefetch};
    use ticktax_model::{Cpu, Nanos};

    use super::{Lines, Walk, fetched, lines};
    use crate::btf::{Btf, Field};

    /// Returns a machine with the published latencies of besplex and an L2 of 1 MiB.
    pub(crate) fn besplex() -> MemLatency {
        let point = |size_bytes, median_ns| LatencyPoint {
            size_bytes,
            huge: None,
            small: Latency {
                median_ns,
                min_ns: median_ns,
                p90_ns: median_ns,
            },
            next_line_ns: 5.0,
            read_ns_per_byte: 0.1,
        };
        let level = |name: &str, bytes: Option<u64>, latency_ns| MemLevel {
            name: name.to_owned(),
            reported_bytes: bytes,
            found_bytes: bytes,
            ways: Some(16),
            latency_ns,
            spread: 0.0,
            points: 3,
        };
        MemLatency {
            cpu: Cpu(0),
            line_bytes: 64,
            huge_pages: PageBacking::Small,
            repetitions: 1,
            points: vec![
                point(64 << 10, 1.361),
                point(1 << 20, 5.609),
                point(64 << 20, 42.4),
            ],
            levels: vec![
                level("L2", Some(1 << 20), 5.609),
                level("memory", None, 42.4),
            ],
            prefetch: None,
            limitations: Vec::new(),
        }
    }

    pub(crate) fn walk(offsets: &[u64], items: u64) -> Walk {
        let btf = Btf::parse(&crate::btf::tests::item()).unwrap();
        let mut structure = btf.structure("item").unwrap();
        structure.size = 320;
        let field = |&offset| (format!("+{offset:#x}"), Field { offset, size: 4 });
        Walk {
            structure,
            fields: offsets.iter().map(field).collect(),
            items,
            every: Some(Nanos::from_secs(31)),
        }
    }

    /// Checks the published count of lines. The vnode has lines 0 to 2. The inode, a separate
    /// object in the publication, starts at line 4 here.
    #[test]
    fn the_published_walk_has_four_lines_and_its_published_costs() {
        let offsets = [0x90, 0x1c, 0x24, 0xa8, 0xa0, 0x100 + 0x18, 0x48, 0x1c];
        let predicted = walk(&offsets, 64_000).predict(&besplex());
        assert_eq!((predicted.lines, predicted.packed_lines), (4, 1));
        assert_eq!(predicted.fits[0].items, 4096);
        assert_eq!(predicted.fits[0].packed_items, 16_384);
        // Four misses and four hits in the L1.
        let expected = 4.0 * 42.4 + 4.0 * 1.361;
        assert!((predicted.interleaved.item_ns - expected).abs() < 1e-9);
        assert_eq!(predicted.interleaved.stall, Nanos(11_202_816));
        assert!(predicted.sequential.item_ns < predicted.interleaved.item_ns);
        assert!(predicted.packed.item_ns < predicted.sequential.item_ns);
        let firsts = predicted.touches.iter().filter(|touch| touch.is_first);
        assert_eq!(firsts.count(), 4);
        // The same walk over as many items as fit in the L2 has the latency of the L2.
        let fits = walk(&offsets, 4096).predict(&besplex());
        assert!((fits.interleaved.item_ns - (4.0 * 5.609 + 4.0 * 1.361)).abs() < 1e-9);
    }

    #[test]
    fn only_the_other_line_of_a_pair_comes_along() {
        let count = |all, along, again| Lines { all, along, again };
        assert_eq!(lines(&[0, 64, 128, 192], 64, None), count(4, 2, 0));
        assert_eq!(lines(&[64, 128, 0], 64, None), count(3, 0, 0));
        assert_eq!(lines(&[0, 8, 64, 0], 64, None), count(2, 1, 2));
    }

    #[test]
    fn lines_within_the_measured_reach_come_along() {
        let count = |all, along, again| Lines { all, along, again };
        let reach = |before_lines, after_lines| {
            Some(Prefetch {
                before_lines,
                after_lines,
                fetch_bytes: 128,
            })
        };
        let inode = [0x118, 0x90, 0x30, 0x90];
        assert_eq!(lines(&inode, 64, reach(4, 6)), count(3, 2, 1));
        assert_eq!(lines(&inode, 64, reach(3, 6)), count(3, 1, 1));
        assert_eq!(lines(&inode, 64, reach(0, 0)), count(3, 0, 1));
        // Line 12 is within reach of line 6 only, which itself came along with line 0.
        let far = [0, 6 * 64, 12 * 64];
        assert_eq!(lines(&far, 64, reach(4, 6)), count(3, 1, 0));
        assert_eq!(fetched(&inode, 64, reach(4, 6)), 3 * 128);
        assert_eq!(fetched(&[0, 64, 100], 64, reach(4, 6)), 128);
        assert_eq!(fetched(&[0, 64, 100], 64, None), 128);
    }

    #[test]
    fn prefetch_lowers_the_cost_and_pairs_enlarge_the_working_set() {
        let offsets = [0x118, 0x90, 0x30, 0x90];
        let mut table = besplex();
        let without = walk(&offsets, 64_000).predict(&table);
        table.prefetch = Some(Prefetch {
            before_lines: 4,
            after_lines: 6,
            fetch_bytes: 128,
        });
        let with = walk(&offsets, 64_000).predict(&table);
        assert!((without.interleaved.item_ns - (3.0 * 42.4 + 1.361)).abs() < 1e-9);
        assert!((with.interleaved.item_ns - (42.4 + 2.0 * 5.0 + 1.361)).abs() < 1e-9);
        assert_eq!(with.interleaved.working_set_bytes, 64_000 * 3 * 128);
        assert_eq!(without.interleaved.working_set_bytes, 64_000 * 3 * 64);
    }

    /// A cache that evicts the line whose last use is the longest ago.
    struct Lru {
        lines: u64,
        /// Cached lines, the most recently used one last.
        cached: Vec<u64>,
    }

    impl Lru {
        /// Returns whether the access misses.
        fn touch(&mut self, line: u64) -> bool {
            let place = self.cached.iter().position(|&cached| cached == line);
            if let Some(place) = place {
                self.cached.remove(place);
            } else if self.cached.len() as u64 == self.lines {
                self.cached.remove(0);
            }
            self.cached.push(line);
            place.is_none()
        }
    }

    /// Simulates two walks line by line, and returns the misses of the second one.
    fn simulated_misses(walk: &Walk, cache_lines: u64) -> u64 {
        let mut cache = Lru {
            lines: cache_lines,
            cached: Vec::new(),
        };
        let objects = crate::ring::shuffled(u32::try_from(walk.items).unwrap(), 7);
        let mut pass = || {
            let touch = |&number: &u32| {
                let start = u64::from(number) * walk.structure.size;
                let fields = walk.fields.iter();
                let missed = fields.filter(|field| cache.touch((start + field.1.offset) / 64));
                missed.count() as u64
            };
            objects.iter().map(touch).sum::<u64>()
        };
        pass();
        pass()
    }

    proptest! {
        #[test]
        fn a_simulated_cache_has_the_predicted_misses(
            offsets in prop::collection::vec(0_u64..320, 1..9), items in 1_u64..150
        ) {
            // A load takes 1 ns if it misses the cache of 128 lines, and otherwise no time.
            let mut machine = besplex();
            let mut point = machine.points[0];
            point.size_bytes = 128 * 64;
            (point.small.median_ns, point.next_line_ns) = (0.0, 0.0);
            let mut beyond = point;
            beyond.size_bytes = 1 << 30;
            (beyond.small.median_ns, beyond.next_line_ns) = (1.0, 1.0);
            machine.points = vec![point, beyond];
            machine.levels[0].reported_bytes = Some(128 * 64);
            let walk = walk(&offsets, items);
            let predicted = walk.predict(&machine);
            let misses = simulated_misses(&walk, 128);
            let expected = predicted.interleaved.stall;
            let misses = Nanos(i64::try_from(misses).unwrap());
            // The loop may touch an object's lines again in another order. Some of them then
            // survive if the cache lacks room for only one object.
            if items <= predicted.fits[0].items || (items - 1) * predicted.lines >= 128 {
                prop_assert_eq!(expected, misses);
            } else {
                prop_assert!(misses <= expected);
            }
        }
    }

    #[test]
    fn huge_counts_do_not_overflow() {
        let predicted = walk(&[0, 64], u64::MAX).predict(&besplex());
        assert_eq!(predicted.interleaved.working_set_bytes, u64::MAX);
        assert_eq!(predicted.interleaved.stall, Nanos::MAX);
    }
}
