//! Collects the events of a source as they arrive, in bounded memory.
//!
//! All events are kept until there are too many. After that, the collector keeps two things:
//!
//! - For short periods, it keeps blocks of consecutive events: the first block, the latest one, and
//!   some evenly spread ones in between.
//! - For long periods, it counts events in coarse time bins that cover the whole recording.
//!
//! A source takes at most about 2 MB, however long the recording.

use super::{Beat, Events, detect, knowable};
use ticktax_model::Nanos;

/// Events per block.
const BLOCK: usize = 8192;
/// Maximum number of full blocks. Together with the block being filled, they hold
/// [`BeatCollector::CAPACITY`] events.
const BLOCKS: usize = 7;
/// Number of coarse time bins. When they run out, neighbouring bins are merged.
const BINS: usize = 1 << 16;
/// Initial width of a coarse time bin, in ns.
const BIN: i64 = 1 << 20;

/// Collects the events of one source as they happen.
#[derive(Clone, Debug)]
pub struct BeatCollector {
    begin: Nanos,
    /// Events per block.
    block: usize,
    /// The full blocks from oldest to newest, followed by the block being filled.
    blocks: Vec<Block>,
    bins: Vec<u32>,
    width: i64,
    count: u64,
    dropped: bool,
}

#[derive(Clone, Debug, Default)]
struct Block {
    /// Number of blocks before this one, including dropped ones.
    number: u64,
    starts: Vec<Nanos>,
    durations: Vec<Nanos>,
}

impl BeatCollector {
    /// Maximum number of events kept individually.
    pub const CAPACITY: usize = (BLOCKS + 1) * BLOCK;

    /// Creates a collector for an observation that starts at `begin`.
    pub fn new(begin: Nanos) -> Self {
        Self {
            begin,
            block: BLOCK,
            blocks: vec![Block::default()],
            bins: Vec::new(),
            width: BIN,
            count: 0,
            dropped: false,
        }
    }

    /// Creates a collector that keeps only eight times `block` events, to save memory if there are
    /// many sources. A few thousand events per source reveal nearly as much as all of them.
    pub fn small(begin: Nanos, block: usize) -> Self {
        Self {
            block: block.clamp(64, BLOCK),
            ..Self::new(begin)
        }
    }

    /// Adds the next event. Events must arrive in order of start time. An event that starts before
    /// the previous one is recorded with the previous one's start time.
    pub fn push(&mut self, start: Nanos, duration: Nanos) {
        self.count += 1;
        if self
            .blocks
            .last()
            .is_none_or(|b| b.starts.len() >= self.block)
        {
            let number = self.blocks.last().map_or(0, |b| b.number + 1);
            self.blocks.push(Block {
                number,
                ..Block::default()
            });
            if self.blocks.len() > BLOCKS + 1 {
                self.thin();
            }
        }
        if self.dropped {
            self.count_in_bin(start);
        }
        if let Some(block) = self.blocks.last_mut() {
            let start = block.starts.last().map_or(start, |&last| last.max(start));
            block.starts.push(start);
            block.durations.push(duration);
        }
    }

    /// Returns the number of events that have been added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Finds the beats among all events until `end`.
    pub fn detect(&self, end: Nanos) -> Vec<Beat> {
        self.detect_among(&self.events(end), end)
    }

    /// Same as [`Self::detect`], but the caller passes in the kept events, restricted to the times
    /// that were actually observed.
    pub fn detect_among(&self, kept: &Events, end: Nanos) -> Vec<Beat> {
        let mut beats = detect(kept);
        if self.dropped {
            let known = knowable(kept).map_or(0.0, |range| range.1.0 as f64);
            let coarse = detect(&self.coarse(end));
            beats.extend(coarse.into_iter().filter(|b| b.period.value > known));
        }
        beats
    }

    /// Returns the events that were kept, and the intervals in which no event is missing.
    pub fn events(&self, end: Nanos) -> Events {
        let mut events = Events::default();
        let mut last_number = None;
        for (i, block) in self.blocks.iter().enumerate() {
            let (Some(&first), Some(&last)) = (block.starts.first(), block.starts.last()) else {
                continue;
            };
            let to = if i + 1 == self.blocks.len() {
                end.max(last)
            } else {
                last
            };
            match events.observed.last_mut() {
                Some(observed) if last_number == block.number.checked_sub(1) => observed.1 = to,
                Some(_) => events.observed.push((first, to)),
                None => events.observed.push((self.begin.min(first), to)),
            }
            last_number = Some(block.number);
            events.starts.extend_from_slice(&block.starts);
            events.durations.extend_from_slice(&block.durations);
        }
        events
    }

    /// Converts the coarse time bins to events. Each bin with an unusually high count becomes one
    /// event in its middle.
    fn coarse(&self, end: Nanos) -> Events {
        let used = index((end - self.begin).0, self.width).min(self.bins.len());
        let mut sorted = self.bins[..used].to_vec();
        sorted.sort_unstable();
        let usual = sorted.get(used / 2).copied().unwrap_or(0);
        // A count is unusually high if it exceeds the median by four standard deviations of a
        // Poisson count.
        let half = Nanos(self.width / 2);
        let min = f64::from(usual) + 4.0 * f64::from(usual).sqrt();
        let mut starts = Vec::new();
        for (bin, &count) in (0..).zip(&self.bins[..used]) {
            if f64::from(count) > min {
                starts.push(self.begin + Nanos(bin * self.width) + half);
            }
        }
        let durations = vec![Nanos::ZERO; starts.len()];
        Events::new(self.begin, end, starts, durations)
    }

    fn count_in_bin(&mut self, start: Nanos) {
        if self.bins.is_empty() {
            self.bins = vec![0; BINS];
        }
        let time = (start - self.begin).0.max(0);
        while index(time, self.width) >= BINS {
            for i in 0..BINS / 2 {
                self.bins[i] = self.bins[2 * i].saturating_add(self.bins[2 * i + 1]);
            }
            self.bins[BINS / 2..].fill(0);
            self.width *= 2;
        }
        let bin = &mut self.bins[index(time, self.width)];
        *bin = bin.saturating_add(1);
    }

    /// Drops the full block whose neighbours are closest together, so that the remaining blocks are
    /// evenly spread. The first and the latest block are never dropped.
    fn thin(&mut self) {
        if !self.dropped {
            // Fill the bins only now, because most sources never need them.
            for block in std::mem::take(&mut self.blocks) {
                block
                    .starts
                    .iter()
                    .for_each(|&start| self.count_in_bin(start));
                self.blocks.push(block);
            }
            self.dropped = true;
        }
        let full = self.blocks.len() - 1;
        let closest = (1..full.saturating_sub(1))
            .min_by_key(|&i| self.blocks[i + 1].number - self.blocks[i - 1].number);
        if let Some(i) = closest {
            self.blocks.remove(i);
        }
    }
}

/// Returns the index of the bin that contains a time, which must not be negative.
fn index(time: i64, width: i64) -> usize {
    usize::try_from(time / width).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::BeatCollector;
    use ticktax_model::Nanos;

    #[test]
    fn an_hour_of_ticks_fits_and_keeps_its_period() {
        let mut collector = BeatCollector::new(Nanos::ZERO);
        let end = Nanos::from_secs(3600);
        for tick in 0..900_000 {
            collector.push(Nanos(tick * 4_000_000 + 17), Nanos(2_000));
        }
        assert_eq!(collector.count(), 900_000);
        let events = collector.events(end);
        assert!(events.starts.len() <= BeatCollector::CAPACITY);
        assert!(events.observed.len() >= 4);
        let beats = collector.detect(end);
        assert_eq!(beats.len(), 1, "{beats:?}");
        assert!((beats[0].period.value / 4e6 - 1.0).abs() < 1e-7);
    }

    #[test]
    fn a_rare_beat_is_found_although_most_events_were_dropped() {
        // A burst of a thousand events every 30.999 s makes 232,000 events in two hours.
        let mut collector = BeatCollector::new(Nanos::ZERO);
        let mut starts = Vec::new();
        for beat in 0..232 {
            for member in 0..1000 {
                starts.push(1_000_000_000 + beat * 30_999_000_000 + member * 8_000);
            }
        }
        starts.sort_unstable();
        for &start in &starts {
            collector.push(Nanos(start), Nanos(125));
        }
        let end = Nanos(starts[starts.len() - 1] + 1_000_000_000);
        let beats = collector.detect(end);
        let found = beats
            .iter()
            .find(|b| (b.period.value / 30.999e9 - 1.0).abs() < 1e-3);
        assert!(found.is_some(), "{beats:?}");
    }

    #[test]
    fn few_events_are_all_kept() {
        let mut collector = BeatCollector::new(Nanos::ZERO);
        for i in 0..20_000 {
            collector.push(Nanos(i * 1000), Nanos(10));
        }
        let events = collector.events(Nanos::from_millis(20));
        assert_eq!(events.starts.len(), 20_000);
        assert_eq!(events.observed, vec![(Nanos::ZERO, Nanos::from_millis(20))]);
    }
}
