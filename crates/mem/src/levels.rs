//! Finds caches in latencies. The latency is nearly constant while the working set fits in a cache
//! and rises where it no longer fits, so each cache appears as a plateau.

use std::ops::RangeInclusive;

use ticktax_model::mem::{LatencyPoint, MemLevel};

use crate::CacheSize;

/// Largest ratio between the latencies of adjacent working sets on the same plateau.
const STEP: f64 = 1.06;
/// Minimum number of working sets on a plateau.
const FEWEST: usize = 3;
/// Plateaus whose latencies differ by less than this factor belong to the same cache.
const APART: f64 = 1.25;
/// Share of a cache that a working set may fill and still fit in spite of other data.
const FULL: f64 = 0.6;
/// Working sets larger than a cache by this factor hardly profit from it.
const BEYOND: f64 = 2.0;
/// The same factor for the largest cache, which does not always replace the oldest line.
const FAR_BEYOND: f64 = 4.0;

/// A range of working sets with nearly the same latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plateau {
    /// Smallest working set in bytes.
    pub first: u64,
    /// Largest working set in bytes.
    pub last: u64,
    /// Median latency in ns.
    pub latency: f64,
}

/// Finds the plateaus, from the smallest working set to the largest.
pub fn plateaus(points: &[LatencyPoint]) -> Vec<Plateau> {
    let mut found: Vec<Vec<(u64, f64)>> = Vec::new();
    let mut run: Vec<(u64, f64)> = Vec::new();
    for point in points {
        let here = (point.size_bytes, point.latency_ns());
        if run.last().is_some_and(|last| here.1 > last.1 * STEP) {
            found.push(std::mem::take(&mut run));
        }
        run.push(here);
    }
    found.push(run);
    found.retain(|run| run.len() >= FEWEST);
    let mut merged: Vec<Vec<(u64, f64)>> = Vec::new();
    for run in found {
        match merged.last_mut() {
            Some(last) if median(&run) < median(last) * APART => last.extend(run),
            _ => merged.push(run),
        }
    }
    let plateau = |run: Vec<(u64, f64)>| {
        Some(Plateau {
            first: run.first()?.0,
            last: run.last()?.0,
            latency: median(&run),
        })
    };
    merged.into_iter().filter_map(plateau).collect()
}

fn median(run: &[(u64, f64)]) -> f64 {
    let mut sorted: Vec<f64> = run.iter().map(|point| point.1).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Describes each reported cache and main memory with the latencies of the working sets that fit
/// there but not in the level before. Without reported caches, each plateau is a level.
pub fn levels(points: &[LatencyPoint], caches: &[CacheSize]) -> Vec<MemLevel> {
    let plateaus = plateaus(points);
    if caches.is_empty() {
        return levels_of_plateaus(points, &plateaus);
    }
    let mut levels = Vec::new();
    let mut above = 0.0;
    for cache in caches {
        let size = cache.bytes as f64;
        let level = level(
            format!("L{}", cache.level),
            points,
            above..=size * FULL,
            &plateaus,
        );
        levels.push(MemLevel {
            reported_bytes: Some(cache.bytes),
            ways: cache.ways,
            ..level
        });
        above = size * BEYOND;
    }
    let far = above / BEYOND * FAR_BEYOND;
    levels.push(MemLevel {
        found_bytes: None,
        ..level("memory".to_owned(), points, far..=f64::INFINITY, &plateaus)
    });
    levels.retain(|level| level.points > 0);
    levels
}

fn level(
    name: String,
    points: &[LatencyPoint],
    range: RangeInclusive<f64>,
    plateaus: &[Plateau],
) -> MemLevel {
    let fits = |size: u64| range.contains(&(size as f64));
    let inside: Vec<(u64, f64)> = points
        .iter()
        .filter(|point| fits(point.size_bytes))
        .map(|point| (point.size_bytes, point.latency_ns()))
        .collect();
    let latency = median(&inside);
    let least = inside.iter().map(|point| point.1).fold(f64::MAX, f64::min);
    let most = inside.iter().map(|point| point.1).fold(f64::MIN, f64::max);
    // A reported cache belongs to the plateau that has most of its working sets.
    let shared = |plateau: &Plateau| {
        let on = |size: u64| (plateau.first..=plateau.last).contains(&size);
        inside.iter().filter(|point| on(point.0)).count()
    };
    let plateau = plateaus
        .iter()
        .max_by_key(|plateau| shared(plateau))
        .filter(|plateau| shared(plateau) * 2 > inside.len());
    MemLevel {
        name,
        reported_bytes: None,
        found_bytes: plateau.map(|plateau| plateau.last),
        ways: None,
        latency_ns: latency,
        spread: (most - least) / latency,
        points: inside.len() as u64,
    }
}

fn levels_of_plateaus(points: &[LatencyPoint], plateaus: &[Plateau]) -> Vec<MemLevel> {
    let each = plateaus.iter().enumerate().map(|(place, plateau)| {
        let is_last = points
            .last()
            .is_some_and(|point| point.size_bytes <= plateau.last);
        let name = if is_last {
            "memory".to_owned()
        } else {
            format!("L{}", place + 1)
        };
        let range = plateau.first as f64..=plateau.last as f64;
        let level = level(name, points, range, plateaus);
        MemLevel {
            found_bytes: level.found_bytes.filter(|_| !is_last),
            ..level
        }
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use ticktax_model::mem::{Latency, LatencyPoint};

    use super::{levels, plateaus};
    use crate::CacheSize;

    /// Returns the points of a machine with caches of these sizes and latencies, in which the
    /// latency rises over one octave after each cache.
    fn machine(caches: &[(u64, f64)], memory: f64, noise: f64) -> Vec<LatencyPoint> {
        let sizes = (0..64_u32).map(|step| f64::from(step).mul_add(0.25, 12.0).exp2());
        let latency = |size: f64| {
            let mut latency = caches[0].1;
            for (place, (capacity, _)) in caches.iter().enumerate() {
                let next = caches.get(place + 1).map_or(memory, |next| next.1);
                let over = (size / *capacity as f64).log2().clamp(0.0, 1.0);
                latency += (next - caches[place].1) * over;
            }
            latency
        };
        let point = |(place, size): (usize, f64)| {
            let sign = if place % 2 == 0 { 1.0 } else { -1.0 };
            let small = Latency {
                median_ns: latency(size) * (1.0 + sign * noise),
                ..Latency::default()
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "at most 2^28"
            )]
            LatencyPoint {
                size_bytes: size as u64 / 64 * 64,
                huge: Some(small),
                small,
                next_line_ns: 1.0,
                read_ns_per_byte: 0.1,
            }
        };
        sizes.enumerate().map(point).collect()
    }

    const SIZES: [(u64, f64); 3] = [(32 << 10, 1.0), (1 << 20, 4.0), (32 << 20, 15.0)];

    fn reported() -> Vec<CacheSize> {
        let each = SIZES.iter().zip(1..).map(|(size, level)| CacheSize {
            level,
            bytes: size.0,
            line: 64,
            ways: Some(8),
        });
        each.collect()
    }

    #[test]
    fn each_cache_is_a_plateau_that_ends_at_its_size() {
        for noise in [0.0, 0.02] {
            let points = machine(&SIZES, 100.0, noise);
            let found = plateaus(&points);
            assert_eq!(found.len(), 4, "{found:?}");
            for (plateau, (size, latency)) in found.iter().zip(SIZES) {
                let ratio = plateau.last as f64 / size as f64;
                assert!((0.8..=1.25).contains(&ratio), "{plateau:?}");
                assert!((plateau.latency / latency - 1.0).abs() < 0.05);
            }
        }
    }

    #[test]
    fn levels_have_their_latency_with_and_without_reported_sizes() {
        let points = machine(&SIZES, 100.0, 0.01);
        for caches in [reported(), Vec::new()] {
            let levels = levels(&points, &caches);
            let names: Vec<&str> = levels.iter().map(|level| &*level.name).collect();
            assert_eq!(names, ["L1", "L2", "L3", "memory"]);
            for (level, latency) in levels.iter().zip([1.0, 4.0, 15.0, 100.0]) {
                assert!((level.latency_ns / latency - 1.0).abs() < 0.03, "{level:?}");
                assert!(level.is_flat(), "{level:?}");
            }
        }
    }

    #[test]
    fn a_slope_is_not_flat() {
        // The kernel reports an L2 of four times the size that the latencies show.
        let points = machine(&SIZES, 100.0, 0.01);
        let mut caches = reported();
        caches[1].bytes *= 4;
        let levels = levels(&points, &caches);
        assert!(levels[0].is_flat() && !levels[1].is_flat(), "{levels:?}");
    }

    #[test]
    fn no_points_have_no_levels() {
        assert!(levels(&[], &[]).is_empty());
        assert!(levels(&[], &reported()).is_empty());
    }
}
