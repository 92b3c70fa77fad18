//! Divides the time from one frame of a loop to the next among the causes of delay.

use std::collections::BTreeMap;

use ticktax_model::pace::Frame;
use ticktax_model::victim::{HoldUp, LostTo};
use ticktax_model::{Kind, Nanos};

use super::{Key, Named};
use crate::victim::Loss;

/// A thread's losses, sorted by start. They may overlap.
pub(super) struct ByTime<'a> {
    losses: &'a [Loss],
    /// For each loss, the latest end among the losses up to and including it.
    reach: Vec<Nanos>,
    /// Whether a cgroup's memory limit caused all waits for memory and all reclaim.
    at_memory_limit: bool,
}

impl<'a> ByTime<'a> {
    pub(super) fn new(losses: &'a [Loss], at_memory_limit: bool) -> Self {
        let reach = losses.iter().scan(Nanos(i64::MIN), |latest, loss| {
            *latest = loss.end.max(*latest);
            Some(*latest)
        });
        Self {
            losses,
            reach: reach.collect(),
            at_memory_limit,
        }
    }

    /// Returns all losses that overlap the interval. The result may include losses that ended
    /// before the interval.
    fn between(&self, from: Nanos, to: Nanos) -> impl Iterator<Item = &'a Loss> {
        let first = self.reach.partition_point(|&end| end <= from);
        let losses = self.losses[first..].iter();
        losses.take_while(move |loss| loss.start < to)
    }

    /// Returns the part of a loss in the interval, without the time in which the hypervisor held
    /// the CPU. That time has its own losses.
    fn without_steal(&self, loss: &Loss, from: Nanos, to: Nanos) -> Nanos {
        let (from, to) = (loss.start.max(from), loss.end.min(to));
        let mut time = to - from;
        let mut until = from;
        let stolen = self.between(from, to);
        for steal in stolen.filter(|loss| loss.kind == HoldUp::Steal) {
            let (start, end) = (steal.start.max(until), steal.end.min(to));
            if start < end {
                time -= end - start;
                until = end;
            }
        }
        time
    }
}

/// The losses in an interval.
#[derive(Debug, Default)]
pub(super) struct Lost {
    pub(super) by: BTreeMap<Key, LostTo>,
    /// Total time.
    taken: Nanos,
    /// The part of this time that counts as the thread's CPU time.
    on_cpu: Nanos,
}

impl Lost {
    pub(super) fn between(
        losses: &ByTime<'_>,
        (from, to): (Nanos, Nanos),
        name: &dyn Fn(&Loss) -> Option<Named>,
    ) -> Self {
        let mut lost = Self::default();
        let mut stolen_until = Nanos::ZERO;
        for loss in losses.between(from, to) {
            let (hold_up, named) = hold_up(loss, name(loss));
            let time = match hold_up {
                // Do not count stolen time twice if both a row and the probe show it.
                HoldUp::Steal => loss.end.min(to) - loss.start.max(stolen_until).max(from),
                HoldUp::LateTimer => losses.without_steal(loss, from, to),
                _ => loss.end.min(to) - loss.start.max(from),
            };
            if time <= Nanos::ZERO {
                continue;
            }
            let time = loss.taken.map_or(time, |taken| {
                time.times(taken.share_of(loss.end - loss.start))
            });
            let mut on_cpu = matches!(
                hold_up,
                HoldUp::PageFaults | HoldUp::Reclaim | HoldUp::SystemCall
            );
            if hold_up == HoldUp::Steal {
                stolen_until = stolen_until.max(loss.end);
                on_cpu = loss.cpu.is_some();
            }
            if on_cpu {
                lost.on_cpu += time;
            }
            let hold_up = match hold_up {
                HoldUp::Reclaim | HoldUp::Memory if losses.at_memory_limit => HoldUp::MemoryLimit,
                other => other,
            };
            lost.add(hold_up, named, time);
        }
        lost
    }

    fn add(&mut self, hold_up: HoldUp, named: Option<Named>, time: Nanos) {
        self.taken += time;
        let (key, kind, pid) = match named {
            Some((name, kind, pid)) => (Some((name, kind)), kind, pid),
            None => (None, Kind::Wait, None),
        };
        let entry = self.by.entry((hold_up, key.clone()));
        let entry = entry.or_insert_with(|| LostTo {
            name: key.map_or_else(String::new, |(name, _)| name),
            kind,
            pids: Vec::new(),
            time: Nanos::ZERO,
            count: 0,
        });
        let pid = pid.filter(|pid| !entry.pids.contains(pid));
        entry.pids.extend(pid);
        entry.time += time;
        entry.count += 1;
    }

    /// Adds time that belongs to the program itself or is unexplained.
    pub(super) fn add_own(&mut self, kind: HoldUp, time: Nanos) {
        if time > Nanos::ZERO {
            let own_time = LostTo {
                name: String::new(),
                kind: Kind::Task,
                pids: Vec::new(),
                time,
                count: 1,
            };
            self.by.insert((kind, None), own_time);
        }
    }

    /// Subtracts the usual time of each kind from its causes, in proportion to their times.
    fn subtract(&mut self, usual: &BTreeMap<HoldUp, Nanos>) {
        let times = self.by_kind();
        for ((kind, _), lost) in &mut self.by {
            if let (Some(&all), Some(&usual)) = (times.get(kind), usual.get(kind)) {
                let left = (all - usual).max(Nanos::ZERO).share_of(all);
                lost.time = lost.time.times(left);
            }
        }
        self.by.retain(|_, lost| lost.time > Nanos::ZERO);
    }

    fn by_kind(&self) -> BTreeMap<HoldUp, Nanos> {
        let mut times = BTreeMap::new();
        for ((kind, _), lost) in &self.by {
            *times.entry(*kind).or_default() += lost.time;
        }
        times
    }
}

/// Returns which kind of delay a loss is, and its culprit unless the kind implies it.
fn hold_up(loss: &Loss, named: Option<Named>) -> (HoldUp, Option<Named>) {
    match named.as_ref().map(|(_, kind, _)| *kind) {
        Some(Kind::Idle) if loss.moved => (HoldUp::Migration, None),
        Some(Kind::Irq | Kind::Softirq | Kind::Nmi) => (HoldUp::Interrupts, named),
        Some(Kind::Steal) => (HoldUp::Steal, None),
        _ => (loss.kind, named),
    }
}

/// The time from the start of one frame to that of the next, and how the thread spent it.
struct Interval {
    lost: Lost,
    /// CPU time of the frame, without the losses that are CPU time.
    work: Nanos,
    /// Time after the frame that is not lost.
    slept: Nanos,
}

impl Interval {
    fn new(
        (frame, next): (&Frame, &Frame),
        losses: &ByTime<'_>,
        name: &dyn Fn(&Loss) -> Option<Named>,
    ) -> Self {
        let lost = Lost::between(losses, (frame.began, next.began), name);
        let ended = frame.ended.min(next.began);
        let asleep = Lost::between(losses, (ended, next.began), name);
        let work = (frame.cpu - lost.on_cpu).max(Nanos::ZERO);
        Self {
            work,
            slept: (next.began - ended - asleep.taken).max(Nanos::ZERO),
            lost,
        }
    }
}

/// Share of intervals that took no longer than usual. The frames' due times depend on the same
/// share of the shortest intervals.
const USUAL: f64 = 0.1;

/// Usual times between two frames of a loop that sleeps for the same time after each frame. A loss
/// that nearly every frame has does not explain why one of them is late.
#[derive(Debug)]
pub(super) struct Usual {
    work: Nanos,
    slept: Nanos,
    losses: BTreeMap<HoldUp, Nanos>,
}

impl Usual {
    pub(super) fn of(
        frames: &[Frame],
        losses: &ByTime<'_>,
        name: &dyn Fn(&Loss) -> Option<Named>,
    ) -> Self {
        let (mut work, mut slept) = (Vec::new(), Vec::new());
        let mut by_kind: BTreeMap<HoldUp, Vec<Nanos>> = BTreeMap::new();
        for pair in frames.windows(2) {
            let interval = Interval::new((&pair[0], &pair[1]), losses, name);
            for (kind, time) in interval.lost.by_kind() {
                by_kind.entry(kind).or_default().push(time);
            }
            work.push(interval.work);
            slept.push(interval.slept);
        }
        let count = work.len();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count is a valid index"
        )]
        let place = (count as f64 * USUAL) as usize;
        let usual = |mut times: Vec<Nanos>| {
            // Intervals without a loss of this kind lost nothing.
            times.resize(count, Nanos::ZERO);
            times.sort_unstable();
            times.get(place).copied().unwrap_or_default()
        };
        Self {
            work: usual(work),
            slept: usual(slept),
            losses: by_kind
                .into_iter()
                .map(|(kind, times)| (kind, usual(times)))
                .collect(),
        }
    }

    /// Returns what delayed `frame`, given the frame before it.
    pub(super) fn delays(
        &self,
        (before, frame): (&Frame, &Frame),
        losses: &ByTime<'_>,
        name: &dyn Fn(&Loss) -> Option<Named>,
    ) -> Lost {
        let interval = Interval::new((before, frame), losses, name);
        let Interval { mut lost, .. } = interval;
        let all = frame.began - before.began;
        let rest = all - lost.taken - interval.work - interval.slept;
        lost.subtract(&self.losses);
        lost.add_own(HoldUp::OwnWork, interval.work - self.work);
        lost.add_own(HoldUp::OwnSleep, interval.slept - self.slept);
        lost.add_own(HoldUp::Unexplained, rest);
        lost
    }
}

/// Returns what delayed a frame of a loop on a grid. `before` is the previous frame, and `usual`
/// the CPU time of a frame. If the previous frame ended in time, it delayed nothing.
pub(super) fn delays_on_grid(
    (before, frame): (Option<&Frame>, &Frame),
    usual: Nanos,
    losses: &ByTime<'_>,
    name: &dyn Fn(&Loss) -> Option<Named>,
) -> Lost {
    let overrun = before.filter(|before| before.ended > frame.due);
    let from = overrun.map_or(frame.due, |before| before.due.min(frame.due));
    let to = frame.began;
    let mut lost = Lost::between(losses, (from, to), name);
    match overrun {
        Some(before) => {
            let cpu = before.cpu.max(lost.on_cpu);
            let rest = to - from - cpu - (lost.taken - lost.on_cpu);
            lost.add_own(HoldUp::OwnWork, cpu - usual - lost.on_cpu);
            lost.add_own(HoldUp::Unexplained, rest);
        }
        None => lost.add_own(HoldUp::OwnSleep, to - from - lost.taken),
    }
    lost
}
