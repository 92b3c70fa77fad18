//! Probes that wait for a long gap: nobody reads what they measure until one has lasted too long.
//!
//! The threads are those of the [`sleep`](crate::sleep) and the [`spin`](crate::spin) probe. Each counts its gaps by
//! length, and hands over those from a limit on as soon as it runs again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use ticktax_model::histogram::Histogram;
use ticktax_model::{Cpu, CpuList, Nanos};

use crate::clock::{Clock, now};
use crate::pinned::{ThreadGroup, Worker};
use crate::sleep::sleep_until;
use crate::spin::SpinLoop;
use crate::{PolicyGrant, ProbeError, SchedulingPolicy, cpus, policy, sys};

/// From one wakeup of a sleeping thread to the next.
const INTERVAL: Nanos = Nanos::from_millis(1);

/// Gaps that wait to be read; further ones are counted.
const WAITING: usize = 256;

/// Gaps that a CPU hands over within [`BURST_TIME`], as the tracer does triggers.
const BURST: u32 = 16;
const BURST_TIME: Nanos = Nanos::from_secs(1);

/// How a thread finds gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapProbe {
    /// It is woken each millisecond: a gap is from when that was due until it ran. What is shorter than a millisecond
    /// and falls between is not seen.
    Sleep,
    /// It never gives its CPU away: a gap is from one reading of the clock to the next.
    Spin,
}

impl GapProbe {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::Sleep, Self::Spin];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Spin => "spin",
        }
    }

    /// What it is and what it costs, for help.
    pub fn about(self) -> &'static str {
        match self {
            Self::Sleep => {
                "A thread on each CPU that wakes 1000 times a second, before all that is not real-time"
            }
            Self::Spin => {
                "A loop on each CPU at the lowest priority: no CPU idles any more, and programs make gaps, too"
            }
        }
    }

    /// The policy that its threads ask for. A sleeping one comes before all that is not real-time, so that what it
    /// waits for is the kernel or the hypervisor; one that spins comes last.
    pub fn policy(self) -> SchedulingPolicy {
        match self {
            Self::Sleep => SchedulingPolicy::Fifo(1),
            Self::Spin => SchedulingPolicy::Idle,
        }
    }
}

/// A gap that lasted too long, on `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongGap {
    /// Where.
    pub cpu: Cpu,
    /// When the thread should have run.
    pub begin: Nanos,
    /// When it ran.
    pub end: Nanos,
}

/// Threads that wait for a long gap. Dropping it tells them to stop and does not wait for them.
#[derive(Debug)]
pub struct GapWatch {
    group: ThreadGroup<()>,
    heard: Receiver<LongGap>,
    notes: Vec<(Cpu, Arc<Notes>)>,
}

/// What a thread and its reader share.
#[derive(Debug)]
struct Notes {
    /// A gap from here on is handed over, ns.
    limit: AtomicI64,
    /// Gaps by length.
    counts: Vec<AtomicU64>,
    /// Gaps that were too long and were not handed over.
    suppressed: AtomicU64,
}

impl GapWatch {
    /// Starts a thread on each of `cpus`; returns once all of them wait for [`GapWatch::begin`]. Each calls `bell`
    /// after it has handed a gap over.
    ///
    /// # Errors
    /// A CPU that is not online or not allowed, or a thread that did not start. No thread goes on then. A policy that
    /// is refused is no error: see [`GapWatch::refused`].
    pub fn prepare(
        probe: GapProbe,
        cpus: &CpuList,
        bell: impl Fn() + Clone + Send + 'static,
    ) -> Result<Self, ProbeError> {
        cpus::require_online(cpus, &cpus::online_cpus()?)?;
        policy::validate(probe.policy())?;
        let clock = (probe == GapProbe::Spin).then(Clock::calibrate);
        let (sender, heard) = sync_channel(WAITING);
        let (mut workers, mut notes) = (Vec::new(), Vec::new());
        for cpu in cpus.iter() {
            let shared = Arc::new(Notes::default());
            notes.push((cpu, Arc::clone(&shared)));
            let watcher = Watcher {
                way: clock.as_ref().map_or(Way::Sleep, |clock| {
                    Way::Spin(SpinLoop::new(clock), clock.clone())
                }),
                desk: Outbox {
                    sender: sender.clone(),
                    notes: shared,
                    bell: bell.clone(),
                    burst: Burst::default(),
                },
            };
            workers.push((cpu, watcher));
        }
        let name = match probe {
            GapProbe::Sleep => "ttx-sleep",
            GapProbe::Spin => "ttx-spin",
        };
        Ok(Self {
            group: ThreadGroup::prepare(name, probe.policy(), workers)?,
            heard,
            notes,
        })
    }

    /// Has the threads begin, if they have not yet. They give up all capabilities first: they need none any more, and
    /// capabilities are each thread's own. So a process that becomes another user does that before: all of its threads
    /// must be allowed to, or none.
    pub fn begin(&mut self) {
        self.group.begin();
    }

    /// Has gaps on `cpu` handed over from `limit` on.
    pub fn set_limit(&self, cpu: Cpu, limit: Nanos) {
        for (_, notes) in self.notes.iter().filter(|(of, _)| *of == cpu) {
            notes.limit.store(limit.0, Ordering::Relaxed);
        }
    }

    /// The CPUs.
    pub fn cpus(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.notes.iter().map(|(cpu, _)| *cpu)
    }

    /// The next gap that was handed over.
    pub fn next_gap(&self) -> Option<LongGap> {
        self.heard.try_recv().ok()
    }

    /// All gaps of a CPU so far, by length.
    pub fn counted(&self, cpu: Cpu) -> Option<Histogram> {
        let (_, notes) = self.notes.iter().find(|(of, _)| *of == cpu)?;
        let counts = notes.counts.iter();
        let counts: Vec<u64> = counts.map(|it| it.load(Ordering::Relaxed)).collect();
        Histogram::from_counts(&counts)
    }

    /// Gaps so far that were too long and were not handed over: more than 16 on a CPU within a second.
    pub fn suppressed(&self) -> u64 {
        let all = self.notes.iter();
        all.map(|(_, notes)| notes.suppressed.load(Ordering::Relaxed))
            .sum()
    }

    /// The policy that was not granted, where it was not.
    pub fn refused(&self) -> Option<&PolicyGrant> {
        let mut grants = self.group.slots().map(|slot| &slot.policy);
        grants.find(|grant| grant.refusal.is_some())
    }

    /// Stops the threads; waits for 5 s at most.
    pub fn stop(self) {
        // What they bring back is nothing.
        drop(self.group.stop());
    }
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            limit: AtomicI64::new(Nanos::MAX.0),
            counts: (0..Histogram::BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            suppressed: AtomicU64::new(0),
        }
    }
}

/// How many gaps were handed over lately.
#[derive(Debug, Default)]
struct Burst {
    began: Nanos,
    count: u32,
}

impl Burst {
    /// Whether another may be, at this time.
    fn allows(&mut self, time: Nanos) -> bool {
        if time - self.began >= BURST_TIME {
            (self.began, self.count) = (time, 0);
        }
        self.count += 1;
        self.count <= BURST
    }
}

/// What a thread does with its gaps.
struct Outbox<B> {
    sender: SyncSender<LongGap>,
    notes: Arc<Notes>,
    bell: B,
    burst: Burst,
}

impl<B: Fn()> Outbox<B> {
    /// Counts a gap, and hands it over where it was too long.
    fn take(&mut self, gap: LongGap) {
        let length = gap.end - gap.begin;
        self.notes.counts[Histogram::bucket(length)].fetch_add(1, Ordering::Relaxed);
        if length.0 < self.notes.limit.load(Ordering::Relaxed) {
            return;
        }
        if self.burst.allows(gap.end) && self.sender.try_send(gap).is_ok() {
            (self.bell)();
        } else {
            self.notes.suppressed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One thread's work.
struct Watcher<B> {
    way: Way,
    desk: Outbox<B>,
}

enum Way {
    Sleep,
    Spin(SpinLoop, Clock),
}

impl<B: Fn() + Send + 'static> Worker for Watcher<B> {
    type Report = ();

    fn prepare(&mut self, _: Cpu) {
        if let Way::Spin(spin, _) = &mut self.way {
            spin.calibrate();
        }
    }

    fn run(self, cpu: Cpu, stop: &AtomicBool) {
        // Where that fails it has what the process has.
        let _ = sys::give_up_capabilities();
        let mut desk = self.desk;
        match self.way {
            Way::Sleep => watch_asleep(cpu, stop, |gap| desk.take(gap)),
            Way::Spin(spin, clock) => spin.run(cpu, stop, |gap| {
                let length = clock.to_nanos(gap.end_counter - gap.start_counter);
                // The clock is read a moment after the counter.
                let end = now();
                desk.take(LongGap {
                    cpu,
                    begin: end - length,
                    end,
                });
            }),
        }
    }
}

/// Is woken each interval, and hands out from when until when it should have run.
fn watch_asleep(cpu: Cpu, stop: &AtomicBool, mut sink: impl FnMut(LongGap)) {
    let mut due = now() + INTERVAL;
    while !stop.load(Ordering::Relaxed) && sleep_until(due) {
        let woke = now();
        if cpus::current().is_some_and(|current| current != cpu) {
            return;
        }
        sink(LongGap {
            cpu,
            begin: due,
            end: woke,
        });
        due = next_due(due, woke);
    }
}

/// The first time on the grid that is to come: what was slept through is one gap.
fn next_due(due: Nanos, woke: Nanos) -> Nanos {
    let late = (woke - due).0.max(0);
    due + Nanos((late / INTERVAL.0 + 1) * INTERVAL.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use ticktax_model::{Cpu, CpuList, Nanos};

    use super::{BURST, Burst, GapProbe, GapWatch, LongGap, Notes, Outbox, next_due};
    use crate::cpus;

    #[test]
    fn what_was_slept_through_is_one_gap_and_the_grid_stays() {
        let at = |micros| Nanos::from_micros(micros);
        assert_eq!(next_due(at(5_000), at(5_050)), at(6_000));
        assert_eq!(next_due(at(5_000), at(25_400)), at(26_000));
        assert_eq!(next_due(at(5_000), at(6_000)), at(7_000));
        // A clock that says that it was woken before.
        assert_eq!(next_due(at(5_000), at(4_000)), at(6_000));
    }

    #[test]
    fn a_gap_is_counted_and_from_the_limit_on_handed_over() {
        let (sender, heard) = sync_channel(4);
        let calls = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&calls);
        let notes = Arc::new(Notes::default());
        let mut desk = Outbox {
            sender,
            notes: Arc::clone(&notes),
            bell: move || {
                counter.fetch_add(1, Ordering::Relaxed);
            },
            burst: Burst::default(),
        };
        let gap = |begin, micros| LongGap {
            cpu: Cpu(1),
            begin: Nanos(begin),
            end: Nanos(begin) + Nanos::from_micros(micros),
        };
        desk.take(gap(0, 60_000_000));
        assert!(heard.try_recv().is_err());
        notes.limit.store(50_000, Ordering::Relaxed);
        desk.take(gap(0, 49));
        desk.take(gap(0, 50));
        assert_eq!(heard.try_recv(), Ok(gap(0, 50)));
        let counts = notes.counts.iter().map(|it| it.load(Ordering::Relaxed));
        assert_eq!((counts.sum::<u64>(), calls.load(Ordering::Relaxed)), (3, 1));
        // There is room for four.
        for _ in 0..6 {
            desk.take(gap(0, 50));
        }
        assert_eq!(notes.suppressed.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_bad_second_does_not_become_one_of_triggers() {
        let mut burst = Burst::default();
        let second = Nanos::from_secs(1);
        for number in 0..40 {
            let allowed = burst.allows(second + Nanos(number));
            assert_eq!(allowed, number < i64::from(BURST));
        }
        assert!(burst.allows(second + second));
    }

    #[test]
    fn both_sorts_of_threads_find_gaps_and_end() {
        let cpus: CpuList = cpus::allowed();
        for probe in [GapProbe::Sleep, GapProbe::Spin] {
            let mut watch = GapWatch::prepare(probe, &cpus, || {}).unwrap();
            let first = watch.cpus().next().unwrap();
            watch.set_limit(first, Nanos(1));
            watch.begin();
            let mut found = None;
            for _ in 0..1_000 {
                found = watch.next_gap();
                if found.is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let found = found.unwrap();
            assert!(found.cpu == first && found.begin < found.end, "{found:?}");
            assert!(watch.counted(first).unwrap().total() > 0);
            watch.stop();
        }
    }
}
