//! Distributions, effects and the verdict of a study.

use std::collections::BTreeMap;

use ticktax_experiment::statistics::{QuantileRanks, mean_interval, median};
use ticktax_model::Nanos;
use ticktax_model::storage::{
    Fsync, FsyncArm, FsyncEffect, FsyncStudy, FsyncVerdict, FsyncWaits, FsyncWrites,
    StorageLimitation,
};

/// Part of the foreign data, in percent, that has to be dirty for an fsync to count for the
/// verdict.
const MUST_BE_DIRTY: u64 = 50;
/// Part of the dirty foreign data, in percent, that an fsync has to write to be said to write it.
const WRITES: u64 = 10;

/// Adds the arms, the effect and the verdict to a study. Returns `None` if an arm has no fsync.
pub(crate) fn summarise(mut study: FsyncStudy) -> Option<FsyncStudy> {
    study.without = arm(study.fsyncs.iter().filter(|fsync| !fsync.with_foreign))?;
    study.with = arm(study.fsyncs.iter().filter(|fsync| fsync.with_foreign))?;
    study.effect = effect(&study.fsyncs);
    study.verdict = verdict(&study);
    study.limitations.extend(written_early(&study));
    Some(study)
}

fn arm<'a>(fsyncs: impl Iterator<Item = &'a Fsync>) -> Option<FsyncArm> {
    let mut lengths = Vec::new();
    let (mut own, mut meanwhile) = (None::<FsyncWrites>, None::<FsyncWrites>);
    let mut waits = None::<FsyncWaits>;
    for fsync in fsyncs {
        lengths.push(fsync.length);
        for (sum, one) in [(&mut own, fsync.own), (&mut meanwhile, fsync.meanwhile)] {
            if let Some(one) = one {
                sum.get_or_insert_default().add(&one);
            }
        }
        if let Some(one) = fsync.waits {
            waits.get_or_insert_default().add(&one);
        }
    }
    lengths.sort_unstable();
    let count = lengths.len() as u64;
    let at = |quantile: f64| {
        let rank = QuantileRanks::new(count, quantile).estimate();
        let index = usize::try_from(rank.max(1) - 1).ok()?;
        lengths.get(index).or(lengths.last()).copied()
    };
    Some(FsyncArm {
        count,
        max: *lengths.last()?,
        median: at(0.5)?,
        p99: at(0.99)?,
        own,
        meanwhile,
        waits,
    })
}

/// Returns the mean of the differences between the medians of each pair's blocks.
fn effect(fsyncs: &[Fsync]) -> Option<FsyncEffect> {
    let mut pairs: BTreeMap<u64, [Vec<f64>; 2]> = BTreeMap::new();
    for fsync in fsyncs {
        let blocks = pairs.entry(fsync.pair).or_default();
        blocks[usize::from(fsync.with_foreign)].push(fsync.length.0 as f64);
    }
    let both = pairs
        .values()
        .filter(|blocks| blocks.iter().all(|block| !block.is_empty()));
    let differences: Vec<f64> = both
        .map(|[without, with]| median(with) - median(without))
        .collect();
    let (low, high) = mean_interval(&differences)?;
    let mean = differences.iter().sum::<f64>() / differences.len() as f64;
    #[expect(clippy::cast_possible_truncation, reason = "far below 2^63 ns")]
    let time = |ns: f64| Nanos(ns.round() as i64);
    Some(FsyncEffect {
        pairs: differences.len() as u64,
        mean: time(mean),
        low: time(low),
        high: time(high),
    })
}

fn verdict(study: &FsyncStudy) -> Option<FsyncVerdict> {
    let dirty = |fsync: &&Fsync| {
        fsync.with_foreign
            && fsync
                .dirty_foreign_bytes
                .is_some_and(|dirty| dirty * 100 >= study.foreign_bytes * MUST_BE_DIRTY)
    };
    let is_lost = |limitation| matches!(limitation, &StorageLimitation::Lost { .. });
    if study.limitations.iter().any(is_lost) {
        return None;
    }
    let fsyncs: Vec<&Fsync> = study.fsyncs.iter().filter(dirty).collect();
    let most = |condition: &dyn Fn(&Fsync, &FsyncWrites) -> bool| {
        let meets = |fsync: &&&Fsync| fsync.own.is_some_and(|own| condition(fsync, &own));
        fsyncs.iter().filter(meets).count() * 2 >= fsyncs.len()
    };
    if fsyncs.is_empty() {
        return None;
    }
    let writes_others = |fsync: &Fsync, own: &FsyncWrites| {
        own.foreign_bytes * 100 >= fsync.dirty_foreign_bytes.unwrap_or(0).max(1) * WRITES
    };
    // Data without an owner may be anybody's.
    let is_known = |own: &FsyncWrites| own.unknown_bytes * 100 < own.bytes().max(1) * WRITES;
    if most(&|_, own| own.elsewhere_bytes > 0) {
        Some(FsyncVerdict::World)
    } else if most(&writes_others) {
        Some(FsyncVerdict::Partition)
    } else if !most(&|_, own| is_known(own)) {
        None
    } else if most(&|_, own| own.metadata_bytes > 0) {
        Some(FsyncVerdict::Metadata)
    } else {
        most(&|_, own| own.others_bytes() == 0).then_some(FsyncVerdict::File)
    }
}

/// Returns a limitation if the kernel wrote much of the foreign data before the fsyncs.
fn written_early(study: &FsyncStudy) -> Option<StorageLimitation> {
    // Only the first fsync of a block finds all foreign data dirty.
    let mut pairs: BTreeMap<u64, u64> = BTreeMap::new();
    for fsync in study.fsyncs.iter().filter(|fsync| fsync.with_foreign) {
        let dirty = fsync.dirty_foreign_bytes?;
        pairs.entry(fsync.pair).or_insert(dirty);
    }
    if pairs.is_empty() {
        return None;
    }
    let dirty: Vec<f64> = pairs.into_values().map(|dirty| dirty as f64).collect();
    let share = median(&dirty) / study.foreign_bytes.max(1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share in percent"
    )]
    let dirty_percent = (share * 100.0) as u64;
    (dirty_percent < MUST_BE_DIRTY).then_some(StorageLimitation::WrittenEarly { dirty_percent })
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::storage::{Fsync, FsyncStudy, FsyncVerdict, FsyncWrites, StorageLimitation};

    use super::summarise;

    const FOREIGN: u64 = 1 << 20;

    fn fsync(pair: u64, with_foreign: bool, ms: i64, own: FsyncWrites) -> Fsync {
        Fsync {
            pair,
            with_foreign,
            start: Nanos::ZERO,
            length: Nanos::from_millis(ms),
            dirty_foreign_bytes: Some(if with_foreign { FOREIGN } else { 0 }),
            disk_bytes: None,
            own: Some(own),
            meanwhile: Some(FsyncWrites::default()),
            waits: None,
        }
    }

    /// Returns a study in which fsyncs take 3 ms longer next to foreign data, and write `own`.
    fn study(own: FsyncWrites) -> FsyncStudy {
        let alone = FsyncWrites {
            file_bytes: 4_096,
            ..FsyncWrites::default()
        };
        let fsyncs = (0..5_u64).flat_map(|pair| {
            let drift = pair.cast_signed();
            [
                fsync(pair, false, 2 + drift, alone),
                fsync(pair, true, 5 + drift, own),
            ]
        });
        FsyncStudy {
            foreign_bytes: FOREIGN,
            fsyncs: fsyncs.collect(),
            ..FsyncStudy::default()
        }
    }

    fn verdict(own: FsyncWrites) -> Option<FsyncVerdict> {
        summarise(study(own)).unwrap().verdict
    }

    #[test]
    fn the_effect_is_a_difference_of_pairs() {
        let found = summarise(study(FsyncWrites::default())).unwrap();
        let effect = found.effect.unwrap();
        assert_eq!(effect.pairs, 5);
        // All pairs differ by the same time, in spite of the drift.
        for time in [effect.mean, effect.low, effect.high] {
            assert_eq!(time, Nanos::from_millis(3));
        }
        assert_eq!(found.without.median, Nanos::from_millis(4));
        assert_eq!(found.with.max, Nanos::from_millis(9));
        assert_eq!(found.without.own.unwrap().file_bytes, 5 * 4_096);
    }

    #[test]
    fn the_verdict_follows_from_the_bytes() {
        let file = FsyncWrites {
            file_bytes: 4_096,
            ..FsyncWrites::default()
        };
        assert_eq!(verdict(file), Some(FsyncVerdict::File));
        let metadata = FsyncWrites {
            metadata_bytes: 8_192,
            // Below a tenth of the foreign data.
            foreign_bytes: 65_536,
            ..file
        };
        assert_eq!(verdict(metadata), Some(FsyncVerdict::Metadata));
        let partition = FsyncWrites {
            foreign_bytes: FOREIGN,
            ..metadata
        };
        assert_eq!(verdict(partition), Some(FsyncVerdict::Partition));
        let world = FsyncWrites {
            elsewhere_bytes: 4_096,
            ..partition
        };
        assert_eq!(verdict(world), Some(FsyncVerdict::World));
    }

    #[test]
    fn without_dirty_foreign_data_there_is_no_verdict() {
        let mut early = study(FsyncWrites::default());
        for fsync in &mut early.fsyncs {
            fsync.dirty_foreign_bytes = Some(FOREIGN / 4);
        }
        let early = summarise(early).unwrap();
        assert_eq!(early.verdict, None);
        let limitation = StorageLimitation::WrittenEarly { dirty_percent: 25 };
        assert_eq!(early.limitations, [limitation]);
    }

    #[test]
    fn an_arm_without_fsyncs_is_no_result() {
        let mut half = study(FsyncWrites::default());
        half.fsyncs.retain(|fsync| fsync.with_foreign);
        assert!(summarise(half).is_none());
    }
}
