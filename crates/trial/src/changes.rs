//! Compares two recordings, from the same machine or from two: their accounts, their periodic
//! sources, the watched program and the tick.
//!
//! Each recording is cut into blocks of equal length. An account's share of CPU time in a block is
//! one observation. The interval and the probability of a difference between the means are Welch's.
//! All probabilities are corrected together ([`ticktax_analysis::judge`]). If the machine did not
//! change between the recordings, the probability of reporting any change is therefore at most 5 %.
//! JSON statements contain only totals, so differences between statements have no intervals.

mod judge;
mod load;

use std::path::Path;

use ticktax_model::comparison::{
    Arm, ArmEffect, Better, ComparedRecording, Comparison, Experiment, Figure, Measure, Metric,
    Origin, RecordingsRecord, Scale, Setting, Unit,
};
use ticktax_model::limitation::Limitation;
use ticktax_model::statement::{Class, Statement};

use judge::{Change, Draft, beats, judge, programs};
pub use load::CompareError;
use load::Side;

/// A metric and how it changed.
type Compared = (Metric, Change);

/// Compares two files. Each is a recording or a JSON statement. Searches for periodic sources with
/// `threads` threads.
///
/// # Errors
/// Returns an error if a file cannot be read or contains nothing to compare.
pub fn compare(
    first: &Path,
    second: &Path,
    threads: usize,
    version: &str,
) -> Result<Comparison, CompareError> {
    let (a, b) = (Side::read(first, threads)?, Side::read(second, threads)?);
    Ok(compare_sides(&a, &b, version))
}

fn compare_sides(a: &Side, b: &Side, version: &str) -> Comparison {
    let keys = keys(a, b);
    let shares = keys.iter().map(|key| share(a, b, key));
    let mut changes = judge(shares.chain([waited(a, b)]).collect());
    let waited = changes.pop().unwrap_or_default();
    let accounts = keys.into_iter().zip(changes);
    let mut accounts: Vec<[Compared; 2]> = accounts
        .map(|(key, share)| account(a, b, &key, share))
        .collect();
    let size = |[(_, share), _]: &[Compared; 2]| share.difference().unwrap_or_default().abs();
    accounts.sort_by(|x, y| {
        let by_size = size(y).total_cmp(&size(x));
        by_size.then_with(|| x[0].0.id.cmp(&y[0].0.id))
    });
    let (in_a, in_b) = (programs(&a.statement), programs(&b.statement));
    let (beats, beats_kept) = beats(
        a.statement.beats.as_ref().map(|beats| (beats, &in_a)),
        b.statement.beats.as_ref().map(|beats| (beats, &in_b)),
    );
    let record = RecordingsRecord {
        first: about(a),
        second: about(b),
        beats,
        beats_kept,
    };
    let accounts = accounts.into_iter().flatten();
    let all = accounts
        .chain(program(a, b, waited))
        .chain(tick(&a.statement, &b.statement));
    let mut compared = Comparison {
        arms: [("A", a), ("B", b)].map(arm).to_vec(),
        ..Comparison::new(version, Experiment::Recordings(Box::new(record)))
    };
    for (at, (metric, change)) in all.enumerate() {
        for (arm, value) in compared.arms.iter_mut().zip([change.first, change.second]) {
            arm.figures.push(value.map(Figure::from));
        }
        compared.metrics.push(metric);
        compared.effects.push(ArmEffect {
            metric: at,
            arm: 1,
            scale: Scale::Absolute,
            contrast: change.contrast,
            ..ArmEffect::default()
        });
    }
    compared
}

fn arm((label, side): (&str, &Side)) -> Arm {
    Arm {
        label: label.to_owned(),
        ..Arm::new(Origin::Measured, vec![Setting::new("file", &side.file)])
    }
}

fn about(side: &Side) -> ComparedRecording {
    let statement = &side.statement;
    ComparedRecording {
        file: side.file.clone(),
        world: statement.world,
        level: statement.level,
        machine: statement.machine.clone(),
        began_unix: statement.began_unix,
        elapsed: side.wall,
        cpus: statement.cpus.iter().map(|cpu| cpu.cpu).collect(),
        program: statement.victim.as_ref().map(|victim| victim.name.clone()),
        blocks: side.blocks.as_ref().map(|blocks| blocks.len() as u64),
        not_verified: statement
            .coverage
            .limitations
            .contains(&Limitation::NotVerified),
    }
}

/// Returns the accounts that at least one side has.
fn keys(a: &Side, b: &Side) -> Vec<(Class, String)> {
    let mut keys: Vec<(Class, String)> = a.sums.keys().chain(b.sums.keys()).cloned().collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Returns an account's share of the time of all CPUs, and its number of intervals per second. Both
/// are 0 if the side does not have the account.
fn total(side: &Side, key: &(Class, String)) -> (f64, f64) {
    side.sums.get(key).copied().unwrap_or_default()
}

fn share(a: &Side, b: &Side, key: &(Class, String)) -> Draft {
    let shares = (Some(total(a, key).0), Some(total(b, key).0));
    Draft::new(shares, (a.shares(key), b.shares(key)))
}

/// Compares how much time per second the watched program spent waiting for a CPU.
fn waited(a: &Side, b: &Side) -> Draft {
    let waited = |side: &Side| side.measure(Measure::WaitedPerSecond);
    Draft::new((waited(a), waited(b)), (a.waited.clone(), b.waited.clone()))
}

/// Returns the metrics of an account: its share of CPU time, and its intervals per second.
fn account(a: &Side, b: &Side, key: &(Class, String), share: Change) -> [Compared; 2] {
    let (count_a, count_b) = (total(a, key).1, total(b, key).1);
    let counted = count_a + count_b > 0.0;
    let rate = Change {
        first: counted.then_some(count_a),
        second: counted.then_some(count_b),
        ..Change::default()
    };
    let metric = |unit| Metric {
        account: Some(key.0),
        ..Metric::new(&key.1, unit, Better::Unknown)
    };
    [(metric(Unit::Share), share), (metric(Unit::Hz), rate)]
}

/// Compares the watched program. Returns an empty list unless both sides have one.
fn program(a: &Side, b: &Side, waited: Change) -> Vec<Compared> {
    use Measure as M;
    let (Some(_), Some(_)) = (&a.statement.victim, &b.statement.victim) else {
        return Vec::new();
    };
    let mut measures: Vec<Compared> = [
        M::WaitedShare,
        M::ThrottledShare,
        M::RanShare,
        M::LatencyMedian,
        M::LatencyP99,
        M::LatencyMax,
        M::Fps,
        M::Dropped,
        M::LatePerMinute,
    ]
    .into_iter()
    .filter_map(|measure| plain_change(measure, a.measure(measure), b.measure(measure)))
    .collect();
    if waited.first.is_some() && waited.second.is_some() {
        measures.insert(0, (M::WaitedPerSecond.metric(), waited));
    }
    measures
}

/// Compares a figure that comes without an interval. Returns `None` if neither side has it.
fn plain_change(measure: Measure, first: Option<f64>, second: Option<f64>) -> Option<Compared> {
    let change = Change {
        first,
        second,
        ..Change::default()
    };
    (first.is_some() || second.is_some()).then(|| (measure.metric(), change))
}

fn tick(a: &Statement, b: &Statement) -> Vec<Compared> {
    use Measure as M;
    let value = |measure: Measure, statement: &Statement| {
        let bill = statement.tick.as_ref()?;
        let cpus = bill.cpus.len().max(1) as f64;
        match measure {
            M::TickRate => bill.all().rate(),
            M::TickMedian => Some(bill.cost.as_ref()?.ticks.median?.0 as f64),
            M::TickShare => Some(bill.cost.as_ref()?.cores.value / cpus),
            _ => None,
        }
    };
    let mut changes: Vec<Compared> = [M::TickRate, M::TickMedian, M::TickShare]
        .into_iter()
        .filter_map(|measure| plain_change(measure, value(measure, a), value(measure, b)))
        .collect();
    // The cost of the tick has its own interval, so blocks aren't needed.
    let margin = |statement: &Statement| {
        let bill = statement.tick.as_ref()?;
        let cpus = bill.cpus.len().max(1) as f64;
        Some(bill.cost.as_ref()?.cores.plus_minus? / cpus)
    };
    let share = changes
        .iter_mut()
        .find(|(metric, _)| metric.id == M::TickShare.id());
    if let (Some((_, share)), Some(x), Some(y)) = (share, margin(a), margin(b)) {
        let draft = Draft::with_margins(*share, x, y);
        *share = judge(vec![draft]).pop().unwrap_or_default();
    }
    changes
}

#[cfg(test)]
mod tests;
