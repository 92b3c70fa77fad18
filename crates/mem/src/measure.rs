//! Measures the latency and the bandwidth of caches and memory.
//!
//! A thread on the chosen CPU follows a cycle of pointers that visits each cache line of the
//! working set once, in a random order. Each load needs the result of the one before it, so neither
//! the CPU nor its prefetchers can start it early. Every latency is the median of many short
//! measurements. An interruption lengthens only the measurements during which it occurs. If the
//! measurements differ, for example because other machines share the cache, they are repeated.

use std::fs;

use nix::errno::Errno;
use ticktax_model::mem::{Latency, LatencyPoint, MemLatency, MemLimitation, PageBacking};
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock::now;
use ticktax_probes::memory::{Mapping, Request, Ring};

use crate::prefetch::prefetch;
use crate::ring::shuffled;
use crate::{CacheSize, MemError, levels};

/// Number of short measurements for each latency.
const REPETITIONS: usize = 31;
/// Length that each short measurement should have.
const LENGTH: Nanos = Nanos::from_micros(300);
/// Loads in one round of [`Ring::follow`].
pub(crate) const ROUND: u64 = 16;
/// Smallest working set in bytes.
pub(crate) const SMALLEST: u64 = 4 << 10;
/// Line size if the kernel does not report one.
const LINE: u64 = 64;
/// Working set of at least this many times the largest cache shows the latency of memory.
const BEYOND: u64 = 8;
/// Largest working set if the kernel reports no caches.
const UNREPORTED: u64 = 256 << 20;
/// Times that a disturbed latency is measured. The lowest of the medians counts.
const ATTEMPTS: usize = 4;
/// A latency is not disturbed if the ninetieth percentile is within this factor of the median.
const CALM: f64 = 1.05;
/// A repetition is disturbed if the ninetieth percentile exceeds the median by this factor.
const DISTURBED: f64 = 1.25;

/// Settings of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// CPU on which to measure.
    pub cpu: Cpu,
    /// Reported caches of that CPU.
    pub caches: Vec<CacheSize>,
    /// Largest working set in bytes; `None` for eight times the largest cache.
    pub max_bytes: Option<u64>,
}

impl Plan {
    fn line(&self) -> u64 {
        let line = self.caches.first().map_or(LINE, |cache| cache.line);
        line.max(8).next_power_of_two()
    }

    /// Lists the working sets: four per octave, so that a cache's size is known to a fifth.
    fn sizes(&self, largest: u64) -> Vec<u64> {
        let pair = 2 * self.line();
        let mut sizes = Vec::new();
        let mut octave = SMALLEST.max(pair);
        while octave <= largest {
            let part = |quarter: f64| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "working sets are far below 2^53 bytes"
                )]
                let size = (octave as f64 * (quarter / 4.0).exp2()) as u64;
                size / pair * pair
            };
            sizes.extend([0.0, 1.0, 2.0, 3.0].map(part));
            octave = octave.saturating_mul(2);
        }
        sizes.retain(|&size| size <= largest);
        sizes.dedup();
        sizes
    }

    /// Returns the largest working set. It shrinks to what the machine has unless the user chose
    /// it.
    fn largest(&self) -> Result<u64, MemError> {
        let wanted = self.max_bytes.unwrap_or_else(|| {
            let largest = self.caches.last().map(|cache| cache.bytes);
            largest.map_or(UNREPORTED, |bytes| bytes.saturating_mul(BEYOND))
        });
        let Some(free) = available_memory() else {
            return Ok(wanted);
        };
        // The two mappings and the order of the lines take about two and a half times as much.
        let room = free / 5;
        match self.max_bytes {
            Some(asked) if asked > room => Err(MemError::TooLarge {
                asked_mib: (asked.saturating_mul(5) / 2) >> 20,
                free_mib: free >> 20,
            }),
            Some(asked) => Ok(asked),
            None => Ok(wanted.min(room)),
        }
    }
}

/// Returns the memory in bytes that programs can use without swapping; `None` if the kernel does
/// not report it.
pub(crate) fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Measures on a separate thread. This takes about 20 seconds.
///
/// # Errors
/// Fails if the thread cannot run on the CPU, or if there is too little memory.
pub fn measure(plan: &Plan) -> Result<MemLatency, MemError> {
    on_cpu(plan.cpu, || points(plan))
}

/// Runs `work` on a thread that is pinned to a CPU, so that the caller's thread stays where it is.
pub(crate) fn on_cpu<T: Send>(
    cpu: Cpu,
    work: impl FnOnce() -> Result<T, MemError> + Send,
) -> Result<T, MemError> {
    let body = || {
        ticktax_probes::pin_to_cpu(cpu)?;
        work()
    };
    let joined = std::thread::scope(|scope| scope.spawn(body).join());
    joined.unwrap_or(Err(MemError::Panicked))
}

fn points(plan: &Plan) -> Result<MemLatency, MemError> {
    let largest = plan.largest()?;
    let line = plan.line();
    let sizes = plan.sizes(largest);
    let (mut huge, backing) = huge_pages(largest)?;
    let mut small = map(largest, Request::Small)?;
    let mut points = Vec::new();
    for size in sizes {
        let order = lines_in_random_order(size, line, 1);
        let small_latency = follow(&mut small, &order);
        let (memory, huge_latency) = if backing.is_huge() {
            let latency = follow(&mut huge, &order);
            (&mut huge, Some(latency))
        } else {
            (&mut small, None)
        };
        // Every second load of this order goes to the line after the one just loaded.
        let pairs = follow(memory, &lines_in_random_order(size, line, 2)).median_ns;
        let single = huge_latency.unwrap_or(small_latency).median_ns;
        points.push(LatencyPoint {
            size_bytes: size,
            huge: huge_latency,
            small: small_latency,
            next_line_ns: (2.0 * pairs - single).max(0.0),
            read_ns_per_byte: read_time(memory, size),
        });
    }
    let memory = if backing.is_huge() {
        &mut huge
    } else {
        &mut small
    };
    let second_cache = plan.caches.get(1).or(plan.caches.first());
    let prefetch = second_cache.and_then(|cache| prefetch(memory, line, cache.bytes));
    let limitations = limitations(plan, &points, backing);
    Ok(MemLatency {
        cpu: plan.cpu,
        line_bytes: line,
        huge_pages: backing,
        repetitions: REPETITIONS as u64,
        levels: levels::levels(&points, &plan.caches),
        points,
        prefetch,
        limitations,
    })
}

fn limitations(plan: &Plan, points: &[LatencyPoint], backing: PageBacking) -> Vec<MemLimitation> {
    let mut limitations = Vec::new();
    if !backing.is_huge() {
        limitations.push(MemLimitation::NoHugePages);
    }
    let largest = points.last().map_or(0, |point| point.size_bytes);
    match plan.caches.last() {
        None => limitations.push(MemLimitation::NoCacheSizes),
        Some(cache) if largest < cache.bytes.saturating_mul(4) => {
            limitations.push(MemLimitation::TooSmall {
                size_bytes: largest,
            });
        }
        Some(_) => {}
    }
    let is_disturbed = |point: &&LatencyPoint| {
        let latency = point.huge.unwrap_or(point.small);
        latency.p90_ns > latency.median_ns * DISTURBED
    };
    let disturbed = points.iter().filter(is_disturbed).count();
    if disturbed * 4 > points.len() {
        let share = disturbed as f64 / points.len() as f64;
        limitations.push(MemLimitation::Disturbed { share });
    }
    limitations
}

fn map(bytes: u64, request: Request) -> Result<Mapping, MemError> {
    let no_memory = |errno: Errno| MemError::NoMemory {
        mebibytes: bytes >> 20,
        why: errno.desc(),
    };
    let length = usize::try_from(bytes).map_err(|_| no_memory(Errno::ENOMEM))?;
    Mapping::new(length, request).map_err(no_memory)
}

/// Maps memory on huge pages if the machine has any: those that were reserved, otherwise
/// transparent ones.
pub(crate) fn huge_pages(bytes: u64) -> Result<(Mapping, PageBacking), MemError> {
    if let Ok(mapping) = map(bytes, Request::Hugetlb) {
        return Ok((mapping, PageBacking::Reserved));
    }
    let mapping = map(bytes, Request::Transparent)?;
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let huge = huge_bytes(&smaps, mapping.address());
    let share = (huge as f64 / mapping.size() as f64).min(1.0);
    let backing = if huge > 0 {
        PageBacking::Transparent { share }
    } else {
        PageBacking::Small
    };
    Ok((mapping, backing))
}

/// Returns how many bytes of the mapping that contains `address` lie on huge pages, from the text
/// of `/proc/PID/smaps`.
fn huge_bytes(smaps: &str, address: usize) -> u64 {
    let mut inside = false;
    for line in smaps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| {
            let (start, end) = range.split_once('-')?;
            let hex = |text| usize::from_str_radix(text, 16).ok();
            Some(hex(start)?..hex(end)?)
        });
        if let Some(range) = range {
            inside = range.contains(&address);
        } else if inside && let Some(size) = line.strip_prefix("AnonHugePages:") {
            let kibibytes = size.trim().trim_end_matches("kB").trim();
            return kibibytes.parse::<u64>().map_or(0, |number| number << 10);
        }
    }
    0
}

/// Returns the offsets of all lines in `size` bytes. Groups of `together` adjacent lines follow one
/// another; the groups are in a random order.
pub(crate) fn lines_in_random_order(size: u64, line: u64, together: u64) -> Vec<u64> {
    let groups = u32::try_from(size / line / together).unwrap_or(u32::MAX);
    let order = shuffled(groups, size);
    let lines = |group: u32| {
        let first = u64::from(group) * together;
        (first..first + together).map(move |number| number * line)
    };
    order.into_iter().flat_map(lines).collect()
}

/// Returns how many rounds take about `length`, given that `rounds` took `pass`.
pub(crate) fn rounds_in(length: Nanos, pass: Nanos, rounds: u64) -> u64 {
    let each = (pass.0.max(1) as f64 / rounds as f64).max(0.1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "limited below"
    )]
    let rounds = (length.0 as f64 / each) as u64;
    rounds.clamp(16, 1 << 22)
}

/// Measures the time per load of a cycle through these offsets.
pub(crate) fn follow(memory: &mut Mapping, offsets: &[u64]) -> Latency {
    let Some(mut ring) = Ring::write(memory, offsets) else {
        return Latency::default();
    };
    // The first pass loads the caches, and shows how many rounds a measurement needs.
    let rounds = (offsets.len() as u64).div_ceil(ROUND);
    let pass = time(&mut ring, rounds);
    let rounds = rounds_in(LENGTH, pass, rounds);
    let mut best = repeat(&mut ring, rounds);
    for _ in 1..ATTEMPTS {
        if best.p90_ns <= best.median_ns * CALM {
            break;
        }
        let again = repeat(&mut ring, rounds);
        if again.median_ns < best.median_ns {
            best = again;
        }
    }
    best
}

fn repeat(ring: &mut Ring<'_>, rounds: u64) -> Latency {
    let loads = (rounds * ROUND) as f64;
    let mut times: Vec<f64> = (0..REPETITIONS)
        .map(|_| time(ring, rounds).0 as f64 / loads)
        .collect();
    times.sort_by(f64::total_cmp);
    Latency {
        median_ns: times[REPETITIONS / 2],
        min_ns: times[0],
        p90_ns: times[REPETITIONS * 9 / 10],
    }
}

fn time(ring: &mut Ring<'_>, rounds: u64) -> Nanos {
    let start = now();
    ring.follow(rounds);
    now() - start
}

/// Measures the time in ns in which a thread reads one byte, if it reads the first `size` bytes in
/// sequential order.
fn read_time(memory: &mut Mapping, size: u64) -> f64 {
    const SWEEPS: u64 = 1 << 20;
    let length = usize::try_from(size)
        .unwrap_or(usize::MAX)
        .min(memory.size());
    let bytes = &memory.bytes()[..length];
    let sweeps = (SWEEPS / size).max(1);
    let mut best = f64::MAX;
    for _ in 0..REPETITIONS / 3 {
        let start = now();
        for _ in 0..sweeps {
            std::hint::black_box(sum(std::hint::black_box(bytes)));
        }
        best = best.min((now() - start).0.max(1) as f64);
    }
    best / (size * sweeps) as f64
}

/// Adds up all words, in eight independent sums so that additions do not wait for one another.
fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 8];
    for chunk in bytes.as_chunks::<64>().0 {
        for (sum, word) in sums.iter_mut().zip(chunk.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Cpu;

    use super::{MemError, Plan, huge_bytes, lines_in_random_order, measure, sum};

    fn plan(max_bytes: Option<u64>) -> Plan {
        let cpu = ticktax_probes::allowed_cpus().iter().next().unwrap();
        Plan {
            cpu,
            caches: Vec::new(),
            max_bytes,
        }
    }

    #[test]
    fn a_measurement_has_every_working_set_and_positive_figures() {
        let measured = measure(&plan(Some(64 << 10))).unwrap();
        assert_eq!(measured.points.len(), 17);
        assert_eq!(measured.points[16].size_bytes, 64 << 10);
        for point in &measured.points {
            let small = point.small;
            assert!(
                small.min_ns > 0.0 && small.min_ns <= small.median_ns,
                "{point:?}"
            );
            assert!(small.median_ns <= small.p90_ns && point.read_ns_per_byte > 0.0);
        }
    }

    #[test]
    fn a_measurement_that_does_not_fit_is_refused() {
        let error = measure(&plan(Some(1 << 60))).unwrap_err();
        assert!(matches!(error, MemError::TooLarge { .. }), "{error}");
        let elsewhere = Plan {
            cpu: Cpu(8000),
            ..plan(None)
        };
        let error = measure(&elsewhere).unwrap_err().to_string();
        assert!(error.contains("cannot pin a thread to CPU 8000"), "{error}");
    }

    #[test]
    fn an_order_visits_each_line_once_and_keeps_pairs() {
        let order = lines_in_random_order(8192, 64, 2);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq((0..128).map(|line| line * 64)));
        for pair in order.chunks(2) {
            assert_eq!(pair[1], pair[0] + 64);
            assert_eq!(pair[0] % 128, 0);
        }
    }

    #[test]
    fn all_words_are_added() {
        let bytes: Vec<u8> = (0..16_u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(sum(&bytes), 120);
    }

    #[test]
    fn huge_pages_are_counted_in_the_right_mapping() {
        let smaps = "1000-2000 rw-p 0 00:00 0\nAnonHugePages:      2048 kB\n\
                     3000-5000 rw-p 0 00:00 0\nSize: 8 kB\nAnonHugePages:      4096 kB\n";
        assert_eq!(huge_bytes(smaps, 0x1800), 2 << 20);
        assert_eq!(huge_bytes(smaps, 0x4fff), 4 << 20);
        assert_eq!(huge_bytes(smaps, 0x5000), 0);
    }
}
