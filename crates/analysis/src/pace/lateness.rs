//! Which of a loop's frames were late, and who cost it.
//!
//! A frame is late that begins more than [`late_from`](ticktax_model::pace::late_from) after it was due. What its delay is made of lies
//! between two moments: where the frame before was done in time, from when this one was due; where
//! it was not, from when that one was due. Everything that kept the thread from running in between
//! counts. Of what is left it was asleep where the frame before was done in time; where it was not, that frame's
//! CPU time counts as far as it exceeds the median frame's, and the rest is unexplained. The frame counts for
//! whatever took most.

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
use crate::victim::{Loss, beat_of, in_rhythm, timer_of};

/// Frames that are told one by one.
const LATEST: usize = 10;

/// Who or what: the kind of delay, and whose.
type Key = (HoldUp, Option<(String, Kind)>);

/// What is known of a source: the name by which it is counted, what it is, and its process.
pub(crate) type Named = (String, Kind, Option<i32>);

/// What is known of the time that the hypervisor took from a loop's CPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outside {
    /// Where what it took can be put beside the loop: a loop on several CPUs may have been on another.
    pub(crate) cpu: Option<Cpu>,
    /// How many of the probe's empty gaps there may be something else in; `None` where that may be any
    /// of them, or there is no hypervisor.
    pub(crate) unseen: Option<usize>,
    /// How much that was at most, in all; `None` where the hypervisor does not tell.
    stolen: Option<Nanos>,
}

impl Outside {
    /// What rows say, of a thread that was kept on a CPU.
    pub(crate) fn of_cpu(cpu: Option<Cpu>) -> Self {
        Self {
            cpu,
            ..Self::default()
        }
    }

    /// By the recording's header and books, of a loop that ran on `cpus`.
    pub(crate) fn of(cpus: &CpuList, header: &Header, books: &Books) -> Self {
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
        // One that has never run may never run.
        let tells = header.after.tells_steal();
        let stolen = |&cpu: &Cpu| {
            let clock = header.after.steal_since(&header.before, cpu)?;
            let books = books.cpus.iter().filter(|books| books.cpu == cpu);
            let seen = books.map(|books| books.of(Class::Steal) + books.of(Class::Outside));
            let seen: Nanos = seen.sum();
            (tells || seen > Nanos::ZERO).then(|| clock.max(seen))
        };
        Self {
            cpu,
            unseen: proof.and_then(|proof| match proof.proof {
                Proof::Proven | Proof::Unwitnessed => Some(0),
                Proof::Bounded(unseen) => usize::try_from(unseen).ok(),
                Proof::Unproven => None,
            }),
            stolen: cpus.iter().map(stolen).sum(),
        }
    }
}

/// What went into one late frame.
struct Delayed {
    frame: Frame,
    lost: u64,
    main: Key,
    by: BTreeMap<Key, LostTo>,
}

/// What held up those of `frames`, which are in order, that began more than `late_from` after they were
/// due. `losses` are their thread's, by begin, of which some are missing from a moment on where there were too many;
/// `name` says what a source is called.
pub(crate) fn late_frames(
    frames: &[Frame],
    terms: (Nanos, Nanos),
    begin: Nanos,
    (losses, full_at): (&[Loss], Option<Nanos>),
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
    let delayed: Vec<Delayed> = known
        .into_iter()
        .map(|(frame, before)| delayed(frame, before, period, usual.min(period), losses, name))
        .collect();
    LateFrames {
        not_judged: unknown.len() as u64,
        ..told(&delayed, begin)
    }
}

fn delayed(
    frame: &Frame,
    before: Option<&Frame>,
    period: Nanos,
    usual: Nanos,
    losses: &[Loss],
    name: &dyn Fn(&Loss) -> Option<Named>,
) -> Delayed {
    let overrun = before.filter(|before| before.ended > frame.due);
    let from = overrun.map_or(frame.due, |before| before.due.min(frame.due));
    let to = frame.began;
    let mut by: BTreeMap<Key, LostTo> = BTreeMap::new();
    let mut taken = Nanos::ZERO;
    // A frame's CPU time has its page faults in it.
    let mut on_cpu = Nanos::ZERO;
    let mut stolen_until = Nanos::ZERO;
    // None is longer than it is, so the first that may reach in lies a while before.
    let first = losses.partition_point(|loss| loss.start < from);
    let before_it = losses[..first].iter().rev().take(8).rev();
    for loss in before_it.chain(losses[first..].iter().take_while(|loss| loss.start < to)) {
        let (hold_up, named) = hold_up(loss, name(loss));
        // The probe may have seen what rows say as well.
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
        if matches!(hold_up, HoldUp::PageFaults | HoldUp::Reclaim) {
            on_cpu += time;
        }
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

/// What kind of delay a loss to somebody of this name is, and whose where that says more.
fn hold_up(loss: &Loss, named: Option<Named>) -> (HoldUp, Option<Named>) {
    match named.as_ref().map(|(_, kind, _)| *kind) {
        Some(Kind::Idle) if loss.moved => (HoldUp::Migration, None),
        Some(Kind::Irq | Kind::Softirq | Kind::Nmi) => (HoldUp::Interrupts, named),
        Some(Kind::Steal) => (HoldUp::Steal, None),
        _ => (loss.kind, named),
    }
}

fn told(delayed: &[Delayed], begin: Nanos) -> LateFrames {
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
    for one in delayed {
        for ((kind, _), lost) in &one.by {
            if let Some(time) = kinds.get_mut(kind) {
                time.time += lost.time;
            }
        }
        if let Some(time) = kinds.get_mut(&one.main.0) {
            time.frames += 1;
        }
        let cause = causes.entry(&one.main).or_insert_with(|| LateCause {
            kind: one.main.0,
            by: None,
            frames: 0,
            lost: 0,
            max: Nanos::ZERO,
            period: None,
            timer: None,
            policy: None,
        });
        cause.frames += 1;
        cause.lost += one.lost;
        cause.max = cause.max.max(one.frame.began - one.frame.due);
        if let (Some(lost), Some(_)) = (one.by.get(&one.main), &one.main.1) {
            add(&mut cause.by, lost);
        }
    }
    let mut causes: Vec<LateCause> = causes.into_values().collect();
    causes.sort_by_key(|cause| (Reverse(cause.frames), Reverse(cause.max)));
    let mut order: Vec<&Delayed> = delayed.iter().collect();
    order.sort_by_key(|one| Reverse(one.frame.began - one.frame.due));
    LateFrames {
        frames: delayed.len() as u64,
        not_judged: 0,
        lost: delayed.iter().map(|one| one.lost).sum(),
        causes,
        by_kind: kinds.into_values().collect(),
        stolen: None,
        latest: order
            .into_iter()
            .take(LATEST)
            .map(|one| latest(one, begin))
            .collect(),
    }
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

fn latest(one: &Delayed, begin: Nanos) -> LateFrame {
    let others = one.by.iter().filter(|((_, whose), _)| whose.is_some());
    let mut lost_to: Vec<LostTo> = others.map(|(_, lost)| lost.clone()).collect();
    lost_to.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    LateFrame {
        at: (one.frame.due - begin).max(Nanos::ZERO),
        late: one.frame.began - one.frame.due,
        lost: one.lost,
        kind: one.main.0,
        lost_to,
    }
}

/// Leaves out the kinds that could not have been seen, and adds how much the hypervisor took in all.
pub(crate) fn seen(late: LateFrames, outside: &Outside, attached: &[Hook]) -> LateFrames {
    let watched = |hooks: &[Hook]| hooks.iter().all(|hook| attached.contains(hook));
    let could_be = |one: &LateTime| match one.kind {
        _ if one.time > Nanos::ZERO => true,
        HoldUp::Interrupts => watched(&[Hook::LocalTimer, Hook::IrqHandler]),
        HoldUp::PageFaults => watched(&[Hook::PageFault]),
        HoldUp::Reclaim => watched(&[Hook::DirectReclaim]),
        HoldUp::Steal => outside.stolen.is_some(),
        _ => true,
    };
    LateFrames {
        by_kind: late.by_kind.into_iter().filter(could_be).collect(),
        stolen: outside.stolen,
        ..late
    }
}

/// Says of each cause that is one process in which period it runs, by which timer, and how it is
/// scheduled. `behind` is who had the CPU while the program waited, the costliest first.
pub(crate) fn link(
    late: &mut LateFrames,
    (behind, beats): (&[Interferer], &[BeatLine]),
    (ran, policies): (&Ran, &[ThreadPolicy]),
) {
    for cause in &mut late.causes {
        let Some(&[pid]) = cause.by.as_ref().map(|by| &*by.pids) else {
            continue;
        };
        let its = behind.iter().filter(|one| one.pid == Some(pid));
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

    /// Frames every 20 ms of 3 ms of work, but for those that are given as (number, began, ended, CPU
    /// time), in ms since the number's slot.
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
        late_frames(&frames, terms, Nanos::ZERO, (&losses, None), &name)
    }

    /// Frame 3 wakes 30 ms late, of which `backupd` had 22 ms and `cc1` 7; frame 9 sleeps 8 ms too long.
    #[test]
    fn a_late_frame_counts_for_whoever_took_most_of_its_delay() {
        use HoldUp::{OwnSleep, Waiting};
        let told = late(
            &[(3, 30, 33, 3), (9, 8, 11, 3)],
            &[(60, 67, Waiting, Some(1)), (67, 89, Waiting, Some(0))],
        );
        assert_eq!((told.frames, told.lost), (2, 1));
        let [first, second] = &*told.causes else {
            panic!("{told:#?}");
        };
        let by = first.by.as_ref().unwrap();
        assert_eq!(
            (&*by.name, by.time, &*by.pids),
            ("backupd", Nanos(22 * MS), &[0][..])
        );
        assert_eq!(
            (first.frames, first.lost, first.max),
            (1, 1, Nanos(30 * MS))
        );
        assert_eq!(
            (second.kind, second.frames, second.by.is_none()),
            (OwnSleep, 1, true)
        );
        let names: Vec<&str> = told.latest[0]
            .lost_to
            .iter()
            .map(|lost| &*lost.name)
            .collect();
        assert_eq!(names, NAMES);
        let interrupts = told
            .by_kind
            .iter()
            .find(|one| one.kind == HoldUp::Interrupts)
            .unwrap();
        assert_eq!((interrupts.time, interrupts.frames), (Nanos::ZERO, 0));
    }

    /// Frame 5 takes 26 ms, of which 23 are its own work in one case, and page faults in the other: the
    /// next one is late because of that.
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
    fn a_single_process_is_linked_with_how_it_is_scheduled() {
        let losses = [(60, 69, HoldUp::Waiting, Some(0))];
        let mut told = late(&[(3, 9, 12, 3)], &losses);
        let policies = [ThreadPolicy {
            pid: 0,
            tid: 0,
            policy: SpecialPolicy::Fifo(10),
        }];
        let mut ran = Ran::default();
        let source = ticktax_fixture::process(Owner::Program, "backupd", 0);
        ran.add(&source, Nanos(9 * MS));
        link(&mut told, (&[], &[]), (&ran, &policies));
        assert_eq!(told.causes[0].policy, Some(SpecialPolicy::Fifo(10)));
        assert_eq!(told.causes[0].period, None);
        // It is another thread that is real-time.
        link(&mut told, (&[], &[]), (&Ran::default(), &policies));
        assert_eq!(told.causes[0].policy, None);
    }

    /// A frame in which nothing is known to have taken the time is nobody's fault, and a loop whose usual work is
    /// longer than its period is late by that.
    #[test]
    fn what_is_not_known_is_not_the_loops_own_work() {
        let next = (6, 6, 9, 3);
        let unseen = late(&[(5, 0, 26, 3), next], &[]);
        assert_eq!(unseen.causes[0].kind, HoldUp::Unexplained);
        let disk = late(&[(3, 9, 12, 3)], &[(60, 68, HoldUp::Disk, None)]);
        assert_eq!(disk.causes[0].kind, HoldUp::Disk);
    }

    /// Frame 9 came when there was no room any more for what delayed it.
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
        let told = late_frames(&frames, terms, Nanos::ZERO, (&[], full_at), &|_| None);
        assert_eq!((told.frames, told.not_judged), (1, 1));
    }
}
