//! Probes that report long gaps (times in which a thread did not run) individually, and only count
//! shorter ones.
//!
//! The threads run the loop of the [`sleep`](crate::sleep) or the [`spin`](crate::spin) probe. Each
//! thread counts its gaps by length. If a gap reaches the limit, the thread sends it to the
//! collector as soon as it runs again.

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

/// Interval at which a sleeping thread wakes up.
const INTERVAL: Nanos = Nanos::from_millis(1);

/// Maximum number of gaps queued for the collector. When the queue is full, gaps are only counted.
const WAITING: usize = 256;

/// Maximum number of gaps that a CPU may send per [`BURST_TIME`]. The tracer limits its triggers to
/// the same number.
const BURST: u32 = 16;
const BURST_TIME: Nanos = Nanos::from_secs(1);

/// How gaps are detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapProbe {
    /// The thread wakes up every millisecond. A gap lasts from the moment when the thread should
    /// have run until it does. An interruption that ends before the next wake-up goes unnoticed.
    Sleep,
    /// The thread never yields its CPU. A gap lasts from one clock reading to the next.
    Spin,
}

impl GapProbe {
    /// All variants.
    pub const ALL: [Self; 2] = [Self::Sleep, Self::Spin];

    /// Returns the probe's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Spin => "spin",
        }
    }

    /// Returns a description for the help text, including what the probe costs.
    pub fn about(self) -> &'static str {
        match self {
            Self::Sleep => {
                "A thread on each CPU that wakes up 1000 times per second, with priority over all \
                 tasks except real-time ones"
            }
            Self::Spin => {
                "A lowest-priority loop on each CPU; it prevents idling, and other programs also \
                 cause gaps"
            }
        }
    }

    /// Returns the scheduling policy to request for the threads.
    ///
    /// A sleeping thread preempts everything that is not real-time, so only real-time tasks, the
    /// kernel or the hypervisor can delay it. A spinning thread runs only if the CPU would
    /// otherwise be idle.
    pub fn policy(self) -> SchedulingPolicy {
        match self {
            Self::Sleep => SchedulingPolicy::Fifo(1),
            Self::Spin => SchedulingPolicy::Idle,
        }
    }
}

/// A gap whose length reached the limit. Times are on `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongGap {
    /// CPU on which the gap occurred.
    pub cpu: Cpu,
    /// When the thread should have run. For a spinning thread, this is when it last read the clock.
    pub begin: Nanos,
    /// When the thread actually ran.
    pub end: Nanos,
}

/// Threads that watch for long gaps. Dropping this asks them to stop but does not wait for them.
#[derive(Debug)]
pub struct GapWatch {
    group: ThreadGroup<()>,
    received: Receiver<LongGap>,
    notes: Vec<(Cpu, Arc<Notes>)>,
}

/// State that a thread shares with the collector.
#[derive(Debug)]
struct Notes {
    /// Minimum length of gaps that are sent to the collector, in ns.
    limit: AtomicI64,
    /// Number of gaps in each bucket of a [`Histogram`].
    counts: Vec<AtomicU64>,
    suppressed: AtomicU64,
}

impl GapWatch {
    /// Starts a thread on each of `cpus`. Returns once all of them are ready and wait for
    /// [`GapWatch::begin`]. The threads call `bell` whenever they have sent a gap.
    ///
    /// # Errors
    /// Returns an error if a CPU is not online or not allowed, or if a thread did not start. All
    /// threads end in that case. A scheduling policy that the kernel refuses is not an error: see
    /// [`GapWatch::refused`].
    pub fn prepare(
        probe: GapProbe,
        cpus: &CpuList,
        bell: impl Fn() + Clone + Send + 'static,
    ) -> Result<Self, ProbeError> {
        cpus::require_online(cpus, &cpus::online_cpus()?)?;
        policy::validate(probe.policy())?;
        let clock = (probe == GapProbe::Spin).then(Clock::calibrate);
        let (sender, received) = sync_channel(WAITING);
        let (mut workers, mut notes) = (Vec::new(), Vec::new());
        for cpu in cpus.iter() {
            let shared = Arc::new(Notes::default());
            notes.push((cpu, Arc::clone(&shared)));
            let watcher = Watcher {
                method: clock.as_ref().map_or(Method::Sleep, |clock| {
                    Method::Spin(SpinLoop::new(clock), clock.clone())
                }),
                outbox: Outbox {
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
            received,
            notes,
        })
    }

    /// Starts the measurement in all threads that are still waiting for this call.
    ///
    /// Each thread first drops its capabilities, because it no longer needs them. A process that
    /// wants to change its user must do so before this call, because the change requires the
    /// capabilities in all threads.
    pub fn begin(&mut self) {
        self.group.begin();
    }

    /// Sets the minimum length of a gap that is reported individually on `cpu`.
    pub fn set_limit(&self, cpu: Cpu, limit: Nanos) {
        for (_, notes) in self.notes.iter().filter(|(notes_cpu, _)| *notes_cpu == cpu) {
            notes.limit.store(limit.0, Ordering::Relaxed);
        }
    }

    /// Returns the CPUs on which the threads run.
    pub fn cpus(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.notes.iter().map(|(cpu, _)| *cpu)
    }

    /// Returns the next gap in the queue, or `None` if the queue is empty.
    pub fn next_gap(&self) -> Option<LongGap> {
        self.received.try_recv().ok()
    }

    /// Returns the histogram of all gaps on `cpu`, or `None` if no thread runs there.
    pub fn counted(&self, cpu: Cpu) -> Option<Histogram> {
        let (_, notes) = self.notes.iter().find(|(notes_cpu, _)| *notes_cpu == cpu)?;
        let counts = notes.counts.iter();
        let counts: Vec<u64> = counts.map(|count| count.load(Ordering::Relaxed)).collect();
        Histogram::from_counts(&counts)
    }

    /// Returns how many gaps reached the limit but were not sent, for example because there were
    /// more than 16 of them on a CPU within a second.
    pub fn suppressed(&self) -> u64 {
        let notes = self.notes.iter();
        notes
            .map(|(_, notes)| notes.suppressed.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns the first scheduling policy that the kernel refused, or `None` if all threads got
    /// the policy that they requested.
    pub fn refused(&self) -> Option<&PolicyGrant> {
        let mut grants = self.group.slots().map(|slot| &slot.policy);
        grants.find(|grant| grant.refusal.is_some())
    }

    /// Stops the threads, and waits up to 5 s until they have ended.
    pub fn stop(self) {
        // This probe's threads return no results.
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

/// Limits how many gaps a CPU sends per second.
#[derive(Debug, Default)]
struct Burst {
    began: Nanos,
    count: u32,
}

impl Burst {
    fn allows(&mut self, time: Nanos) -> bool {
        if time - self.began >= BURST_TIME {
            (self.began, self.count) = (time, 0);
        }
        self.count += 1;
        self.count <= BURST
    }
}

/// Counts the gaps of a thread and sends the long ones to the collector.
struct Outbox<B> {
    sender: SyncSender<LongGap>,
    notes: Arc<Notes>,
    bell: B,
    burst: Burst,
}

impl<B: Fn()> Outbox<B> {
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

struct Watcher<B> {
    method: Method,
    outbox: Outbox<B>,
}

enum Method {
    Sleep,
    Spin(SpinLoop, Clock),
}

impl<B: Fn() + Send + 'static> Worker for Watcher<B> {
    type Report = ();

    fn prepare(&mut self, _: Cpu) {
        if let Method::Spin(spin, _) = &mut self.method {
            spin.calibrate();
        }
    }

    fn run(self, cpu: Cpu, stop: &AtomicBool) {
        // If this fails, the thread simply keeps the process's capabilities.
        let _ = sys::give_up_capabilities();
        let mut outbox = self.outbox;
        match self.method {
            Method::Sleep => watch_asleep(cpu, stop, |gap| outbox.take(gap)),
            Method::Spin(spin, clock) => spin.run(cpu, stop, |gap| {
                let length = clock.to_nanos(gap.end_counter - gap.start_counter);
                // The gap's end is slightly late, because the clock is read after the loop has read
                // the counter.
                let end = now();
                outbox.take(LongGap {
                    cpu,
                    begin: end - length,
                    end,
                });
            }),
        }
    }
}

/// Wakes up at every interval. Passes the time from when the wake-up was due until the thread ran
/// to `sink`.
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

/// Returns the first due time after `woke`. Several wake-ups missed in a row thus form a single
/// gap.
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
    fn missed_wakeups_are_one_gap_and_the_grid_is_kept() {
        let at = |micros| Nanos::from_micros(micros);
        assert_eq!(next_due(at(5_000), at(5_050)), at(6_000));
        assert_eq!(next_due(at(5_000), at(25_400)), at(26_000));
        assert_eq!(next_due(at(5_000), at(6_000)), at(7_000));
        // Even if the clock shows less than the due time, the next one must be an interval after
        // it.
        assert_eq!(next_due(at(5_000), at(4_000)), at(6_000));
    }

    #[test]
    fn every_gap_is_counted_and_long_ones_are_sent() {
        let (sender, received) = sync_channel(4);
        let calls = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&calls);
        let notes = Arc::new(Notes::default());
        let mut outbox = Outbox {
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
        outbox.take(gap(0, 60_000_000));
        assert!(received.try_recv().is_err());
        notes.limit.store(50_000, Ordering::Relaxed);
        outbox.take(gap(0, 49));
        outbox.take(gap(0, 50));
        assert_eq!(received.try_recv(), Ok(gap(0, 50)));
        let counts = notes
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        assert_eq!((counts.sum::<u64>(), calls.load(Ordering::Relaxed)), (3, 1));
        // The channel has room for only four of the six gaps.
        for _ in 0..6 {
            outbox.take(gap(0, 50));
        }
        assert_eq!(notes.suppressed.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn gaps_sent_per_second_are_limited() {
        let mut burst = Burst::default();
        let second = Nanos::from_secs(1);
        for number in 0..40 {
            let allowed = burst.allows(second + Nanos(number));
            assert_eq!(allowed, number < i64::from(BURST));
        }
        assert!(burst.allows(second + second));
    }

    #[test]
    fn sleeping_and_spinning_threads_find_gaps_and_end() {
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
