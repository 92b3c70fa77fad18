//! Checks the prediction of a walk: measures walks over synthetic objects on this machine.
//!
//! Each round measures every walk and every latency once, so that a change in the machine's load
//! affects all of them alike. Before each measurement, one untimed pass fills the caches.

use ticktax_model::mem::{
    CheckBasis, CheckedWalk, Latency, MemWalk, PageBacking, Prefetch, WalkCheck, WalkKind,
};
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock::now;
use ticktax_probes::memory::{Mapping, Objects, Ring};

use crate::MemError;
use crate::measure::{ROUND, SMALLEST, available_memory, huge_pages, on_cpu, rounds_in};
use crate::ring::shuffled;
use crate::walk::{Loads, Walk, fetched};

/// Maximum number of rounds.
const MOST_ROUNDS: usize = 31;
/// Minimum number of rounds, even if they take longer than [`BUDGET`].
const FEWEST_ROUNDS: usize = 7;
/// Time that all rounds together should take.
const BUDGET: Nanos = Nanos::from_secs(15);
/// Length that each measurement should have.
const LENGTH: Nanos = Nanos::from_millis(3);

/// Measured times of loads from one working set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chases {
    /// Loads in a random order.
    pub single: Latency,
    /// Loads of pairs of adjacent lines, with the pairs in a random order.
    pub pairs: Latency,
}

/// Measured times of walks over synthetic objects, and the latencies measured in between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// CPU on which the walks ran.
    pub cpu: Cpu,
    /// Number of times that each walk was measured.
    pub rounds: u64,
    /// Pages that backed the objects.
    pub huge_pages: PageBacking,
    /// Loads from the smallest working set.
    pub nearest: Latency,
    /// Loads from as many lines as the walk fetches, spread over the memory of the objects.
    pub spread: Chases,
    /// The same if the touched fields were moved together.
    pub packed: Chases,
    /// Time per object with the fields in the loop's order.
    pub in_order: Latency,
    /// Time per object with the fields in the order of their addresses.
    pub by_address: Latency,
    /// Time per object after the touched fields were moved together.
    pub moved: Latency,
    /// Time per object if only the address of the next object depends on a load.
    pub overlapping: Latency,
    /// Time per object if the objects are visited in the order of their addresses.
    pub sorted_objects: Latency,
}

impl Chases {
    fn loads(&self, nearest: Latency) -> Loads {
        Loads {
            nearest: nearest.median_ns,
            miss: self.single.median_ns,
            next: (2.0 * self.pairs.median_ns - self.single.median_ns).max(0.0),
        }
    }
}

impl Walk {
    /// Measures walks over synthetic objects on a separate thread. Each object starts at a cache
    /// line, and the objects lie one after another in memory.
    ///
    /// # Errors
    /// Fails if the thread cannot run on the CPU, if there is too little memory, or if the loop
    /// touches a line more often than the line has words.
    pub fn observe(
        &self,
        cpu: Cpu,
        line: u64,
        prefetch: Option<Prefetch>,
    ) -> Result<Observed, MemError> {
        let tracks = self.tracks(line.max(8), prefetch)?;
        let free = available_memory().unwrap_or(u64::MAX);
        // Each mapping has up to two huge pages more. The list of offsets is freed after each
        // layout.
        let mapped = tracks.iter().fold(0_u64, |sum, track| {
            sum.saturating_add(track.bytes).saturating_add(4 << 20)
        });
        let lists = tracks.iter().map(|track| track.steps().saturating_mul(8));
        let needed = mapped.saturating_add(lists.max().unwrap_or(0));
        if needed > free / 2 || u32::try_from(self.items).is_err() {
            return Err(MemError::TooManyObjects {
                asked_mib: needed >> 20,
                free_mib: free >> 20,
            });
        }
        on_cpu(cpu, || observe(cpu, &tracks))
    }

    fn tracks(&self, line: u64, prefetch: Option<Prefetch>) -> Result<Vec<Track>, MemError> {
        let offsets: Vec<u64> = self.fields.iter().map(|field| field.1.offset).collect();
        let packed = self.packed(line);
        let mut sorted = offsets.clone();
        sorted.sort_unstable();
        let words = |offsets: &[u64]| {
            words(offsets, line).ok_or(MemError::TooManyTouches { words: line / 8 })
        };
        let stride = self.structure.size.max(1).next_multiple_of(line);
        let walk = |words: Vec<u64>, order| Track {
            bytes: self.items.saturating_mul(stride),
            path: Path::Walk {
                items: self.items,
                stride,
                words,
                order,
            },
        };
        let nearest = Track {
            bytes: SMALLEST.max(2 * line),
            path: Path::Chase {
                line,
                block: 2 * line,
                together: 1,
            },
        };
        // As many loads as the walk's, spread over as much memory as the objects take.
        let chase = |offsets: &[u64], together| {
            let pair = 2 * line;
            let wanted = self.items.saturating_mul(fetched(offsets, line, prefetch)) / pair;
            let blocks = wanted.max(SMALLEST / pair).max(1);
            let span = self.items.saturating_mul(stride) / blocks;
            let block = (span / pair).max(1) * pair;
            Track {
                bytes: blocks.saturating_mul(block),
                path: Path::Chase {
                    line,
                    block,
                    together,
                },
            }
        };
        Ok(vec![
            nearest,
            chase(&offsets, 1),
            chase(&offsets, 2),
            chase(&packed, 1),
            chase(&packed, 2),
            walk(words(&offsets)?, Order::Random),
            walk(words(&sorted)?, Order::Random),
            walk(words(&packed)?, Order::Random),
            walk(words(&offsets)?, Order::Overlapping),
            walk(words(&offsets)?, Order::Sorted),
        ])
    }

    /// Compares a prediction with measured walks. [`CheckBasis::SameRun`] replaces the predicted
    /// costs by those that follow from the latencies measured between the walks.
    pub fn check(&self, predicted: &mut MemWalk, observed: &Observed, basis: CheckBasis) {
        if basis == CheckBasis::SameRun {
            let loads = observed.spread.loads(observed.nearest);
            let packed = observed.packed.loads(observed.nearest);
            let costs = self.costs(
                predicted.line_bytes,
                predicted.prefetch,
                |kind, _| match kind {
                    WalkKind::InOrder | WalkKind::ByAddress => loads,
                    WalkKind::Packed => packed,
                },
            );
            [
                predicted.interleaved,
                predicted.sequential,
                predicted.packed,
            ] = costs;
        }
        let row = |kind, predicted_ns, measured| CheckedWalk {
            kind,
            predicted_ns,
            measured,
        };
        predicted.check = Some(WalkCheck {
            cpu: observed.cpu,
            basis,
            rounds: observed.rounds,
            huge_pages: observed.huge_pages,
            tolerance: WalkCheck::TOLERANCE,
            walks: vec![
                row(
                    WalkKind::InOrder,
                    predicted.interleaved.item_ns,
                    observed.in_order,
                ),
                row(
                    WalkKind::ByAddress,
                    predicted.sequential.item_ns,
                    observed.by_address,
                ),
                row(WalkKind::Packed, predicted.packed.item_ns, observed.moved),
            ],
            overlapping: observed.overlapping,
            sorted_objects: observed.sorted_objects,
        });
    }
}

/// Order in which a walk visits the objects, and dependence between its loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// A random order; each load needs the result of the one before.
    Random,
    /// The order of addresses; each load needs the result of the one before.
    Sorted,
    /// A random order; only the first load of each object needs the result of an earlier load.
    Overlapping,
}

/// Memory to lay out, and the path of loads through it.
#[derive(Clone, Debug)]
struct Track {
    bytes: u64,
    path: Path,
}

#[derive(Clone, Debug)]
enum Path {
    /// A random line in each block of this many bytes, with the blocks in a random order. If two
    /// lines belong together, both lines of a random aligned pair in each block.
    Chase {
        line: u64,
        block: u64,
        together: u64,
    },
    /// Some words of each object.
    Walk {
        items: u64,
        stride: u64,
        words: Vec<u64>,
        order: Order,
    },
}

impl Track {
    /// Returns the number of loads whose order has to be listed.
    fn steps(&self) -> u64 {
        match &self.path {
            Path::Chase {
                block, together, ..
            } => self.bytes / block * together,
            Path::Walk { items, words, .. } => items.saturating_mul(words.len() as u64),
        }
    }
}

impl Path {
    /// Returns the loads that the reported time covers: one, or those of an object.
    fn unit(&self) -> u64 {
        match self {
            Self::Walk { words, order, .. } if *order != Order::Overlapping => words.len() as u64,
            _ => 1,
        }
    }
}

/// Returns a word of 8 bytes for each touch, in the same line as the touched field. Two touches
/// never share a word, because each word holds the address of the next one. Returns `None` if a
/// line has too few words.
fn words(offsets: &[u64], line: u64) -> Option<Vec<u64>> {
    let mut used: Vec<u64> = Vec::new();
    for offset in offsets {
        let start = offset / line * line;
        let own = offset % line / 8;
        let mut in_line = (0..line / 8).map(|step| start + (own + step) * 8 % line);
        let free = in_line.find(|word| !used.contains(word))?;
        used.push(free);
    }
    Some(used)
}

/// Returns the offsets of a random line in each block, with the blocks in a random order.
/// `together` is 2 for both lines of an aligned pair, and otherwise 1.
fn lines_in_blocks(blocks: u64, block: u64, line: u64, together: u64) -> Vec<u64> {
    let order = shuffled(u32::try_from(blocks).unwrap_or(u32::MAX), blocks);
    // The number of a block in another random order serves as a random number.
    let draws = shuffled(u32::try_from(blocks).unwrap_or(u32::MAX), !blocks);
    let lines = order.into_iter().zip(draws).flat_map(|(number, draw)| {
        let first = u64::from(draw) % (block / line);
        let start = u64::from(number) * block;
        // The distance is constant, as in a walk, so that prefetchers can learn it.
        let touched = if together == 2 {
            first & !1..(first & !1) + 2
        } else {
            first..first + 1
        };
        touched.map(move |number| start + number * line)
    });
    lines.collect()
}

/// A path of loads that can be timed.
enum Lap<'a> {
    Chain(Ring<'a>),
    Objects(Objects<'a>),
}

impl<'a> Lap<'a> {
    /// Returns the lap and the number of its steps.
    fn new(memory: &'a mut Mapping, track: &Track) -> Option<(Self, u64)> {
        let (items, stride, words, order) = match &track.path {
            Path::Chase {
                line,
                block,
                together,
            } => {
                let offsets = lines_in_blocks(track.bytes / block, *block, *line, *together);
                let ring = Ring::write(memory, &offsets)?;
                return Some((Self::Chain(ring), offsets.len() as u64));
            }
            Path::Walk {
                items,
                stride,
                words,
                order,
            } => (*items, *stride, words, *order),
        };
        let count = u32::try_from(items).ok()?;
        let objects = match order {
            Order::Sorted => (0..count).collect(),
            Order::Random | Order::Overlapping => shuffled(count, items),
        };
        let starts = objects.into_iter().map(|number| u64::from(number) * stride);
        if order == Order::Overlapping {
            let (first, others) = words.split_first()?;
            let starts: Vec<u64> = starts.map(|start| start + first).collect();
            let distances = others
                .iter()
                .map(|word| word.checked_signed_diff(*first))
                .collect::<Option<Vec<i64>>>()?;
            let objects = Objects::write(memory, &starts, &distances)?;
            return Some((Self::Objects(objects), items));
        }
        let offsets: Vec<u64> = starts
            .flat_map(|start| words.iter().map(move |word| start + word))
            .collect();
        let ring = Ring::write(memory, &offsets)?;
        Some((Self::Chain(ring), offsets.len() as u64))
    }

    /// Follows `16 × rounds` steps, and returns the time that they took.
    fn time(&mut self, rounds: u64) -> Nanos {
        let start = now();
        match self {
            Self::Chain(ring) => ring.follow(rounds),
            Self::Objects(objects) => objects.follow(rounds * ROUND),
        }
        now() - start
    }

    /// Fills the caches with one pass, then measures the time per step in ns.
    fn step_ns(&mut self, steps: u64) -> f64 {
        let pass = steps.div_ceil(ROUND).max(64);
        let warm = self.time(pass);
        let rounds = rounds_in(LENGTH, warm, pass);
        self.time(rounds).0 as f64 / (rounds * ROUND) as f64
    }
}

fn observe(cpu: Cpu, tracks: &[Track]) -> Result<Observed, MemError> {
    let mapped: Result<Vec<_>, MemError> =
        tracks.iter().map(|track| huge_pages(track.bytes)).collect();
    let mut mapped = mapped?;
    let backing = mapped
        .iter()
        .map(|(_, backing)| *backing)
        .find(|backing| !backing.is_huge())
        .unwrap_or(mapped[0].1);
    let laps: Option<Vec<_>> = mapped
        .iter_mut()
        .zip(tracks)
        .map(|((memory, _), track)| Lap::new(memory, track))
        .collect();
    let mut laps = laps.ok_or(MemError::Panicked)?;
    let mut times = vec![Vec::new(); laps.len()];
    let start = now();
    for round in 0..MOST_ROUNDS {
        let each = Nanos((now() - start).0 / i64::try_from(round.max(1)).unwrap_or(1));
        if round >= FEWEST_ROUNDS && now() + each > start + BUDGET {
            break;
        }
        for (((lap, steps), track), times) in laps.iter_mut().zip(tracks).zip(&mut times) {
            times.push(lap.step_ns(*steps) * track.path.unit() as f64);
        }
    }
    let rounds = times[0].len() as u64;
    let mut latencies = times.into_iter().map(summary);
    let mut next = || latencies.next().unwrap_or_default();
    Ok(Observed {
        cpu,
        rounds,
        huge_pages: backing,
        nearest: next(),
        spread: Chases {
            single: next(),
            pairs: next(),
        },
        packed: Chases {
            single: next(),
            pairs: next(),
        },
        in_order: next(),
        by_address: next(),
        moved: next(),
        overlapping: next(),
        sorted_objects: next(),
    })
}

fn summary(mut times: Vec<f64>) -> Latency {
    times.sort_by(f64::total_cmp);
    let at = |place: usize| times.get(place).copied().unwrap_or(0.0);
    Latency {
        median_ns: at(times.len() / 2),
        min_ns: at(0),
        p90_ns: at(times.len() * 9 / 10),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::mem::{CheckBasis, Latency, MemLatency, PageBacking};

    use super::{Chases, Observed, words};
    use crate::MemError;
    use crate::walk::tests::{besplex, walk};

    const OFFSETS: [u64; 8] = [0x90, 0x1c, 0x24, 0xa8, 0xa0, 0x100 + 0x18, 0x48, 0x1c];

    fn flat(ns: f64) -> Latency {
        Latency {
            median_ns: ns,
            min_ns: ns,
            p90_ns: ns,
        }
    }

    /// Returns what a machine measures whose loads take exactly the latencies of `table`.
    fn observed(table: &MemLatency, factor: f64) -> Observed {
        let predicted = walk(&OFFSETS, 64_000).predict(table);
        let last = table.points.last().unwrap();
        let chases = Chases {
            single: flat(last.latency_ns()),
            pairs: flat(f64::midpoint(last.latency_ns(), last.next_line_ns)),
        };
        Observed {
            cpu: table.cpu,
            rounds: 7,
            huge_pages: PageBacking::Reserved,
            nearest: flat(table.points[0].latency_ns()),
            spread: chases,
            packed: chases,
            in_order: flat(predicted.interleaved.item_ns * factor),
            by_address: flat(predicted.sequential.item_ns * factor),
            moved: flat(predicted.packed.item_ns * factor),
            overlapping: flat(50.0),
            sorted_objects: flat(20.0),
        }
    }

    #[test]
    fn a_wrong_table_of_latencies_is_rejected() {
        let walk = walk(&OFFSETS, 64_000);
        let mut wrong = besplex();
        for point in &mut wrong.points {
            point.small.median_ns *= 1.5;
        }
        for (table, fits) in [(besplex(), true), (wrong, false)] {
            let mut predicted = walk.predict(&table);
            let observed = observed(&besplex(), 1.0);
            walk.check(&mut predicted, &observed, CheckBasis::Table);
            assert_eq!(predicted.check.unwrap().fits(), fits);
        }
    }

    #[test]
    fn a_walk_that_its_own_latencies_do_not_explain_is_rejected() {
        let walk = walk(&OFFSETS, 64_000);
        for (factor, fits) in [(0.75, false), (0.85, true), (1.15, true), (1.25, false)] {
            let mut predicted = walk.predict(&besplex());
            let before = predicted.clone();
            let observed = observed(&besplex(), factor);
            walk.check(&mut predicted, &observed, CheckBasis::SameRun);
            let ratio = predicted.packed.item_ns / before.packed.item_ns;
            assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
            assert_eq!(predicted.check.unwrap().fits(), fits, "{factor}");
        }
    }

    #[test]
    fn latencies_of_the_same_run_replace_those_of_the_table() {
        let walk = walk(&OFFSETS, 64_000);
        let mut table = besplex();
        let observed = observed(&table, 1.0);
        for point in &mut table.points {
            point.small.median_ns *= 3.0;
        }
        let mut predicted = walk.predict(&table);
        walk.check(&mut predicted, &observed, CheckBasis::SameRun);
        let expected = walk.predict(&besplex());
        let difference = predicted.interleaved.item_ns - expected.interleaved.item_ns;
        assert!(difference.abs() < 1e-9, "{difference}");
        assert!(predicted.check.unwrap().fits());
    }

    #[test]
    fn touches_get_distinct_words_of_their_own_lines() {
        let found = words(&OFFSETS, 64).unwrap();
        for (word, offset) in found.iter().zip(OFFSETS) {
            assert_eq!(word / 64, offset / 64);
            assert!(word.is_multiple_of(8));
            assert_eq!(found.iter().filter(|other| *other == word).count(), 1);
        }
        assert_eq!(words(&[60; 8], 64).unwrap().len(), 8);
        assert_eq!(words(&[60; 9], 64), None);
    }

    #[test]
    fn a_chase_loads_one_line_or_one_pair_per_block() {
        let single = super::lines_in_blocks(100, 384, 64, 1);
        let pairs = super::lines_in_blocks(100, 384, 64, 2);
        assert_eq!((single.len(), pairs.len()), (100, 200));
        for (place, offset) in single.iter().enumerate() {
            assert_eq!(pairs[2 * place..][..2], [offset & !64, offset | 64]);
        }
        let mut blocks: Vec<u64> = single.iter().map(|offset| offset / 384).collect();
        blocks.sort_unstable();
        assert!(blocks.into_iter().eq(0..100));
        let places: std::collections::BTreeSet<u64> = single.iter().map(|at| at % 384).collect();
        assert_eq!(places.len(), 6);
    }

    #[test]
    fn synthetic_objects_are_walked_and_huge_counts_are_refused() {
        let cpu = ticktax_probes::allowed_cpus().iter().next().unwrap();
        for items in [1, 3, 500] {
            let observed = walk(&OFFSETS, items).observe(cpu, 64, None).unwrap();
            assert!(observed.rounds >= 7);
            for latency in [
                observed.nearest,
                observed.spread.pairs,
                observed.in_order,
                observed.moved,
                observed.overlapping,
                observed.sorted_objects,
            ] {
                assert!(latency.min_ns > 0.0, "{observed:?}");
                assert!(latency.min_ns <= latency.median_ns, "{observed:?}");
            }
        }
        let refused = walk(&OFFSETS, u64::MAX).observe(cpu, 64, None).unwrap_err();
        assert!(matches!(refused, MemError::TooManyObjects { .. }));
        let refused = walk(&[0; 9], 10).observe(cpu, 64, None).unwrap_err();
        assert_eq!(refused, MemError::TooManyTouches { words: 8 });
    }
}
