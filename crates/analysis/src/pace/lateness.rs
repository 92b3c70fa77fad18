//! Finds a loop's late frames and their causes.
//!
//! A frame is late if it starts more than [`late_from`](ticktax_model::pace::late_from) after it
//! was due. Its delay is examined from when it was due or, if the previous frame overran, from when
//! that frame was due. Everything that kept the thread from running in that interval counts. If the
//! previous frame ended in time, the rest of the interval was sleep. If it overran, its CPU time in
//! excess of the median frame's counts as the loop's own work, and the rest is unexplained. The
//! late frame is attributed to the largest cause.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ticktax_model::beats::BeatLine;
use ticktax_model::hook::Hook;
use ticktax_model::pace::Frame;
use ticktax_model::recording::Header;
use ticktax_model::statement::Class;
use ticktax_model::victim::{
    HoldUp, Interferer, LateCause, LateFrame, LateFrames, LateTime, LostTo, ThreadPolicy,
};
use ticktax_model::witness::Proof;
use ticktax_model::{Cpu, CpuList, Kind, Nanos};

use crate::ledger::Books;
use crate::ran::Ran;
use crate::victim::{Loss, Moment, Moments, beat_of, in_rhythm, timer_of};

/// Maximum number of late frames listed individually.
const LATEST: usize = 10;

/// Identifies a cause by the kind of delay and, if known, the culprit's name and kind.
type Key = (HoldUp, Option<(String, Kind)>);

/// [`Kind`] of a culprit that is a system call of the program itself.
pub(crate) const CALL: Kind = Kind::Wait;

/// A source's name, kind and process id.
pub(crate) type Named = (String, Kind, Option<i32>);

/// Time that the hypervisor took from a loop's CPUs, with its uncertainty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outside {
    /// The loop's CPU, if the loop ran on only one. Otherwise, stolen time cannot be attributed to
    /// the loop, which may have been on another CPU.
    pub(crate) cpu: Option<Cpu>,
    /// Number of the probe's empty gaps that could contain something other than stolen time. `None`
    /// if any gap could, or if there is no hypervisor.
    pub(crate) unseen: Option<usize>,
    /// Upper bound on the total stolen time. `None` if the hypervisor does not report it.
    stolen: Option<Nanos>,
}

impl Outside {
    /// Returns the values for a thread that is pinned to `cpu`. Use this if only the thread's own
    /// rows are available.
    pub(crate) fn of_cpu(cpu: Option<Cpu>) -> Self {
        Self {
            cpu,
            ..Self::default()
        }
    }

    /// Returns the values for a loop that ran on `cpus`, from the recording's header and accounts.
    pub(crate) fn from_books(cpus: &CpuList, header: &Header, books: &Books) -> Self {
        let cpus: Vec<Cpu> = cpus.iter().collect();
        let cpu = match *cpus {
            [cpu] => Some(cpu),
            _ => None,
        };
        if header.machine.hypervisor.is_none() {
            return Self {
                cpu,
                ..Self::default()
            };
        }
        let proof = books.proofs.iter().find(|proof| Some(proof.cpu) == cpu);
        // If the steal clock never advanced, the hypervisor possibly does not implement it, so its
        // zero proves nothing.
        let tells = header.after.tells_steal();
        let stolen = |&cpu: &Cpu| {
            let clock = header.after.steal_since(&header.before, cpu)?;
            let books = books.cpus.iter().filter(|books| books.cpu == cpu);
            let seen = books.map(|books| {
                books.time_of(Class::Steal) + books.time_of(Class::HypervisorOrFirmware)
            });
            let seen: Nanos = seen.sum();
            (tells || seen > Nanos::ZERO).then(|| clock.max(seen))
        };
        Self {
            cpu,
            unseen: proof.and_then(|proof| match proof.proof {
                Proof::Proven | Proof::Unconfirmed => Some(0),
                Proof::Bounded(unseen) => usize::try_from(unseen).ok(),
                Proof::Unproven => None,
            }),
            stolen: cpus.iter().map(stolen).sum(),
        }
    }
}

struct Delayed {
    frame: Frame,
    lost: u64,
    main: Key,
    by: BTreeMap<Key, LostTo>,
}

/// Finds the causes of delay for each of `frames` that started over `late_from` after it was due.
/// `terms` is (period, `late_from`). `frames` and `losses` (of the loop's thread) must be sorted by
/// start. Losses after `full_at` are missing. `at_memory_limit` means that a cgroup's memory limit
/// caused all waits for memory and all reclaim. `name` returns a loss's source.
pub(crate) fn late_frames(
    frames: &[Frame],
    terms: (Nanos, Nanos),
    begin: Nanos,
    (losses, full_at): (&[Loss], Option<Nanos>),
    at_memory_limit: bool,
    name: &dyn Fn(&Loss) -> Option<Named>,
) -> LateFrames {
    let (period, late_from) = terms;
    let mut work: Vec<Nanos> = frames.iter().map(|frame| frame.cpu).collect();
    work.sort_unstable();
    let usual = work.get(work.len() / 2).copied().unwrap_or_default();
    let pairs = std::iter::once(None).chain(frames.iter().map(Some));
    let late = frames.iter().zip(pairs);
    let late = late.filter(|(frame, _)| frame.began - frame.due > late_from);
    let is_known = |frame: &Frame| full_at.is_none_or(|full_at| frame.began <= full_at);
    let (known, unknown): (Vec<_>, Vec<_>) = late.partition(|(frame, _)| is_known(frame));
    let losses = ByTime::new(losses, at_memory_limit);
    let delayed: Vec<Delayed> = known
        .into_iter()
        .map(|(frame, before)| delayed(frame, before, period, usual.min(period), &losses, name))
        .collect();
    let mut late = summary(&delayed, begin);
    late.unclassified = unknown.len() as u64;
    // If one frame after the other is late, the series only shows the rhythm of the loop.
    late.series
        .retain(|series| series.period > 1.5 * period.0 as f64);
    late
}

/// A thread's losses, sorted by start. They may overlap.
struct ByTime<'a> {
    losses: &'a [Loss],
    /// For each loss, the latest end among the losses up to and including it.
    reach: Vec<Nanos>,
    at_memory_limit: bool,
}

impl<'a> ByTime<'a> {
    fn new(losses: &'a [Loss], at_memory_limit: bool) -> Self {
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
}

fn delayed(
    frame: &Frame,
    before: Option<&Frame>,
    period: Nanos,
    usual: Nanos,
    losses: &ByTime<'_>,
    name: &dyn Fn(&Loss) -> Option<Named>,
) -> Delayed {
    let overrun = before.filter(|before| before.ended > frame.due);
    let from = overrun.map_or(frame.due, |before| before.due.min(frame.due));
    let to = frame.began;
    let mut by: BTreeMap<Key, LostTo> = BTreeMap::new();
    let mut taken = Nanos::ZERO;
    // The part of the previous frame's CPU time that is due to page faults and reclaim.
    let mut on_cpu = Nanos::ZERO;
    let mut stolen_until = Nanos::ZERO;
    for loss in losses.between(from, to) {
        let (hold_up, named) = hold_up(loss, name(loss));
        // Do not count stolen time twice if both a row and the probe show it.
        let start = match hold_up {
            HoldUp::Steal => loss.start.max(stolen_until),
            _ => loss.start,
        };
        let time = loss.end.min(to) - start.max(from);
        if time <= Nanos::ZERO {
            continue;
        }
        if hold_up == HoldUp::Steal {
            stolen_until = stolen_until.max(loss.end);
        }
        taken += time;
        if matches!(
            hold_up,
            HoldUp::PageFaults | HoldUp::Reclaim | HoldUp::SystemCall
        ) {
            on_cpu += time;
        }
        let hold_up = match hold_up {
            HoldUp::Reclaim | HoldUp::Memory if losses.at_memory_limit => HoldUp::MemoryLimit,
            other => other,
        };
        let (key, kind, pid) = match named {
            Some((name, kind, pid)) => (Some((name, kind)), kind, pid),
            None => (None, Kind::Wait, None),
        };
        let entry = by.entry((hold_up, key.clone())).or_insert_with(|| LostTo {
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
    let left = match overrun {
        Some(before) => {
            let cpu = before.cpu.max(on_cpu);
            let rest = to - from - cpu - (taken - on_cpu);
            let work = (HoldUp::OwnWork, cpu - usual - on_cpu);
            vec![work, (HoldUp::Unexplained, rest)]
        }
        None => vec![(HoldUp::OwnSleep, to - from - taken)],
    };
    for (own, time) in left {
        if time > Nanos::ZERO {
            let own_time = LostTo {
                name: String::new(),
                kind: Kind::Task,
                pids: Vec::new(),
                time,
                count: 1,
            };
            by.insert((own, None), own_time);
        }
    }
    let most = by.iter().max_by_key(|(_, lost)| lost.time);
    let main = most.map_or((HoldUp::Unexplained, None), |(key, _)| key.clone());
    Delayed {
        frame: *frame,
        lost: frame.dropped(period).unsigned_abs(),
        main,
        by,
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

fn summary(delayed: &[Delayed], begin: Nanos) -> LateFrames {
    let mut causes: BTreeMap<&Key, LateCause> = BTreeMap::new();
    let mut kinds: BTreeMap<HoldUp, LateTime> = BTreeMap::new();
    for kind in HoldUp::ALL {
        let none = LateTime {
            kind,
            time: Nanos::ZERO,
            frames: 0,
        };
        kinds.insert(kind, none);
    }
    for late in delayed {
        for ((kind, _), lost) in &late.by {
            if let Some(time) = kinds.get_mut(kind) {
                time.time += lost.time;
            }
        }
        if let Some(time) = kinds.get_mut(&late.main.0) {
            time.frames += 1;
        }
        let cause = causes.entry(&late.main).or_insert_with(|| LateCause {
            kind: late.main.0,
            culprit: None,
            syscall: call_of(&late.main),
            frames: 0,
            dropped: 0,
            max: Nanos::ZERO,
            period: None,
            timer: None,
            policy: None,
        });
        cause.frames += 1;
        cause.dropped += late.lost;
        cause.max = cause.max.max(late.frame.began - late.frame.due);
        if let (Some(lost), Some((_, kind))) = (late.by.get(&late.main), &late.main.1)
            && *kind != CALL
        {
            add(&mut cause.culprit, lost);
        }
    }
    let mut moments: BTreeMap<HoldUp, Moments> = BTreeMap::new();
    for late in delayed {
        let lost = late.by.get(&late.main);
        moments.entry(late.main.0).or_default().add(Moment {
            at: (late.frame.due - begin).max(Nanos::ZERO),
            length: lost.map_or(Nanos::ZERO, |lost| lost.time),
            dropped: Some(late.lost),
        });
    }
    let series = moments.into_iter();
    let series = series.flat_map(|(kind, moments)| moments.series(kind));
    let mut causes: Vec<LateCause> = causes.into_values().collect();
    causes.sort_by_key(|cause| (Reverse(cause.frames), Reverse(cause.max)));
    let mut order: Vec<&Delayed> = delayed.iter().collect();
    order.sort_by_key(|late| Reverse(late.frame.began - late.frame.due));
    LateFrames {
        frames: delayed.len() as u64,
        unclassified: 0,
        dropped: delayed.iter().map(|late| late.lost).sum(),
        causes,
        by_kind: kinds.into_values().collect(),
        stolen: None,
        series: series.collect(),
        longest: order
            .into_iter()
            .take(LATEST)
            .map(|late| latest(late, begin))
            .collect(),
    }
}

/// Returns the system call that a cause consists of.
fn call_of((_, culprit): &Key) -> Option<String> {
    let call = culprit.as_ref().filter(|(_, kind)| *kind == CALL);
    call.map(|(name, _)| name.clone())
}

fn add(sum: &mut Option<LostTo>, lost: &LostTo) {
    let Some(sum) = sum else {
        *sum = Some(lost.clone());
        return;
    };
    sum.time += lost.time;
    sum.count += lost.count;
    for pid in &lost.pids {
        if !sum.pids.contains(pid) {
            sum.pids.push(*pid);
        }
    }
}

fn latest(late: &Delayed, begin: Nanos) -> LateFrame {
    let others = late.by.iter().filter(|((_, whose), _)| {
        let kind = whose.as_ref().map(|(_, kind)| *kind);
        kind.is_some_and(|kind| kind != CALL)
    });
    let mut lost_to: Vec<LostTo> = others.map(|(_, lost)| lost.clone()).collect();
    lost_to.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    LateFrame {
        at: (late.frame.due - begin).max(Nanos::ZERO),
        late: late.frame.began - late.frame.due,
        dropped: late.lost,
        kind: late.main.0,
        causes: lost_to,
    }
}

/// Removes the kinds of delay that could not have been observed, and adds the total stolen time.
pub(crate) fn seen(late: LateFrames, outside: &Outside, attached: &[Hook]) -> LateFrames {
    let watched = |hooks: &[Hook]| hooks.iter().all(|hook| attached.contains(hook));
    let could_be = |late: &LateTime| match late.kind {
        _ if late.time > Nanos::ZERO => true,
        HoldUp::Interrupts => watched(&[Hook::LocalTimer, Hook::IrqHandler]),
        HoldUp::PageFaults => watched(&[Hook::PageFault]),
        HoldUp::Reclaim => watched(&[Hook::DirectReclaim]),
        HoldUp::Steal => outside.stolen.is_some(),
        kind if kind.is_rare() => false,
        _ => true,
    };
    LateFrames {
        by_kind: late.by_kind.into_iter().filter(could_be).collect(),
        stolen: outside.stolen,
        ..late
    }
}

/// Adds period, timer and scheduling policy to each cause that is a single process. `behind` lists
/// the sources that ran while the program waited, costliest first.
pub(crate) fn link(
    late: &mut LateFrames,
    (behind, beats): (&[Interferer], &[BeatLine]),
    (ran, policies): (&Ran, &[ThreadPolicy]),
) {
    for cause in &mut late.causes {
        let Some(&[pid]) = cause.culprit.as_ref().map(|by| &*by.pids) else {
            continue;
        };
        let its = behind
            .iter()
            .filter(|interferer| interferer.pid == Some(pid));
        let rhythm = in_rhythm(&its.collect::<Vec<&Interferer>>());
        cause.period = rhythm.map(|rhythm| rhythm.period);
        let beat = cause.period.and_then(|period| beat_of(beats, pid, period));
        cause.timer = beat.and_then(timer_of).cloned();
        cause.policy = ran.policy(pid, policies);
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::pace::Frame;
    use ticktax_model::policy::SpecialPolicy;
    use ticktax_model::victim::{HoldUp, LateFrames, ThreadPolicy};
    use ticktax_model::{Kind, Nanos, Owner, SourceId};

    use super::{late_frames, link};
    use crate::ran::Ran;
    use crate::victim::Loss;

    const MS: i64 = 1_000_000;
    const NAMES: [&str; 2] = ["backupd", "cc1"];

    /// Returns the late frames among 20 frames, one every 20 ms with 3 ms of work. `others` lists
    /// the frames that deviate, as (number, began, ended, CPU time), with times in ms since the
    /// frame's slot started.
    fn late(
        others: &[(i64, i64, i64, i64)],
        losses: &[(i64, i64, HoldUp, Option<u32>)],
    ) -> LateFrames {
        let frames: Vec<Frame> = (0..20)
            .filter(|k| {
                !others
                    .iter()
                    .any(|&(n, began, ..)| n + began / 20 >= *k && n < *k)
            })
            .map(|k| {
                let other = others.iter().find(|&&(number, ..)| number == k);
                let (began, ended, cpu) = other.map_or((0, 3, 3), |&(_, b, e, c)| (b, e, c));
                let due = Nanos(k * 20 * MS);
                Frame {
                    due,
                    began: due + Nanos(began * MS),
                    ended: due + Nanos(ended * MS),
                    cpu: Nanos(cpu * MS),
                }
            })
            .collect();
        let losses: Vec<Loss> = losses
            .iter()
            .map(|&(start, end, kind, by)| Loss {
                start: Nanos(start * MS),
                end: Nanos(end * MS),
                kind,
                by: by.map(SourceId),
                moved: false,
            })
            .collect();
        let name = |loss: &Loss| {
            let by = loss.by?.0 as usize;
            Some((NAMES[by].to_owned(), Kind::Task, i32::try_from(by).ok()))
        };
        let terms = (Nanos(20 * MS), Nanos(4 * MS));
        late_frames(&frames, terms, Nanos::ZERO, (&losses, None), false, &name)
    }

    /// Frame 3 starts 30 ms late, because `backupd` ran for 22 ms and `cc1` for 7 ms. Before frame
    /// 9, the thread oversleeps by 8 ms.
    #[test]
    fn a_late_frame_is_attributed_to_its_largest_cause() {
        use HoldUp::{OwnSleep, Waiting};
        let late_frames = late(
            &[(3, 30, 33, 3), (9, 8, 11, 3)],
            &[(60, 67, Waiting, Some(1)), (67, 89, Waiting, Some(0))],
        );
        assert_eq!((late_frames.frames, late_frames.dropped), (2, 1));
        let [first, second] = &*late_frames.causes else {
            panic!("{late_frames:#?}");
        };
        let by = first.culprit.as_ref().unwrap();
        assert_eq!(
            (&*by.name, by.time, &*by.pids),
            ("backupd", Nanos(22 * MS), &[0][..])
        );
        assert_eq!(
            (first.frames, first.dropped, first.max),
            (1, 1, Nanos(30 * MS))
        );
        assert_eq!(
            (second.kind, second.frames, second.culprit.is_none()),
            (OwnSleep, 1, true)
        );
        let names: Vec<&str> = late_frames.longest[0]
            .causes
            .iter()
            .map(|lost| &*lost.name)
            .collect();
        assert_eq!(names, NAMES);
        let interrupts = late_frames
            .by_kind
            .iter()
            .find(|time| time.kind == HoldUp::Interrupts)
            .unwrap();
        assert_eq!((interrupts.time, interrupts.frames), (Nanos::ZERO, 0));
    }

    /// The thread waits for 27 ms, starting before frame 3 is due. It is also interrupted often
    /// during that time.
    #[test]
    fn a_wait_with_many_interrupts_is_still_the_cause() {
        let interrupt = |k: u32| (59, 60, HoldUp::Interrupts, Some(k % 2));
        let mut losses = vec![(58, 85, HoldUp::Waiting, Some(0))];
        losses.extend((0..20).map(interrupt));
        let late_frames = late(&[(3, 25, 28, 3)], &losses);
        let by = late_frames.causes[0].culprit.as_ref().unwrap();
        assert_eq!((&*by.name, by.time), ("backupd", Nanos(25 * MS)));
    }

    /// Frame 5 takes 26 ms, which makes the next one late. Of this, 23 ms are its own work in the
    /// first case, page faults in the second, and throttling in the third.
    #[test]
    fn a_frame_that_overran_makes_the_next_one_late() {
        let next = (6, 6, 9, 3);
        let own = late(&[(5, 0, 26, 26), next], &[]);
        assert_eq!((own.frames, own.causes[0].kind), (1, HoldUp::OwnWork));
        let faults = late(
            &[(5, 0, 26, 3), next],
            &[(102, 125, HoldUp::PageFaults, None)],
        );
        assert_eq!(
            (faults.frames, faults.causes[0].kind),
            (1, HoldUp::PageFaults)
        );
        let quota = late(&[(5, 0, 26, 3), next], &[(90, 125, HoldUp::Quota, None)]);
        assert_eq!(quota.causes[0].kind, HoldUp::Quota);
    }

    #[test]
    fn a_cause_that_is_a_single_process_gets_its_scheduling_policy() {
        let losses = [(60, 69, HoldUp::Waiting, Some(0))];
        let mut late_frames = late(&[(3, 9, 12, 3)], &losses);
        let policies = [ThreadPolicy {
            pid: 0,
            tid: 0,
            policy: SpecialPolicy::Fifo(10),
        }];
        let mut ran = Ran::default();
        let source = ticktax_fixture::process(Owner::Program, "backupd", 0);
        ran.add(&source, Nanos(9 * MS));
        link(&mut late_frames, (&[], &[]), (&ran, &policies));
        assert_eq!(late_frames.causes[0].policy, Some(SpecialPolicy::Fifo(10)));
        assert_eq!(late_frames.causes[0].period, None);
        // Here, the real-time thread belongs to another process.
        link(&mut late_frames, (&[], &[]), (&Ran::default(), &policies));
        assert_eq!(late_frames.causes[0].policy, None);
    }

    #[test]
    fn unknown_time_is_not_the_loops_own_work() {
        let next = (6, 6, 9, 3);
        let unseen = late(&[(5, 0, 26, 3), next], &[]);
        assert_eq!(unseen.causes[0].kind, HoldUp::Unexplained);
        let disk = late(&[(3, 9, 12, 3)], &[(60, 68, HoldUp::Disk, None)]);
        assert_eq!(disk.causes[0].kind, HoldUp::Disk);
    }

    #[test]
    fn consecutive_late_frames_are_not_a_periodic_cause() {
        let late_frames = |step: i64| late(&[2, 3, 4, 5].map(|k| (k * step, 8, 11, 3)), &[]);
        assert_eq!(late_frames(1).series, []);
        let periods = late_frames(3).series;
        let periods: Vec<f64> = periods.iter().map(|series| series.period).collect();
        assert_eq!(periods, [60.0 * MS as f64]);
    }

    /// The second frame starts after the list of losses has become incomplete.
    #[test]
    fn frames_whose_delays_were_not_kept_are_only_counted() {
        let frames = |began: i64| Frame {
            due: Nanos(0),
            began: Nanos(began * MS),
            ended: Nanos((began + 3) * MS),
            cpu: Nanos(3 * MS),
        };
        let frames = [frames(9), frames(12)];
        let terms = (Nanos(20 * MS), Nanos(4 * MS));
        let full_at = Some(Nanos(10 * MS));
        let known: (&[Loss], _) = (&[], full_at);
        let late_frames = super::late_frames(&frames, terms, Nanos::ZERO, known, false, &|_| None);
        assert_eq!((late_frames.frames, late_frames.unclassified), (1, 1));
    }
}
