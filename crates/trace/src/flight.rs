//! The tracer's part of the flight recorder: triggers, two tables of sums that are filled in turn,
//! and a ring that is read only after a trigger.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use aya::maps::{MapData, RingBuf};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ticktax_model::recording::Row;
use ticktax_model::{Cpu, CpuList, Histogram, Interval, Nanos, SourceTable};

use crate::decode::Identity;
use crate::error::TraceError;
use crate::object::map;
use crate::record::{
    RESTS_PER_CPU, TRIGGER_RULES, TriggerPlan, TriggerRecord, TriggerRule, kind, run, trigger, who,
};
use crate::sys;
use crate::tracer::{Tracer, shared};

mod cut;
mod event;
mod freeze;
mod naming;
mod notes;
mod packed;
mod ring;
mod rows;
mod waits;

pub use freeze::{Capture, Frozen};
pub use rows::FrozenRows;

pub(crate) use notes::Noted;

/// Kind of delay that a rule watches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// A thread is runnable and waits for a CPU, after it was woken or preempted.
    Waiting,
    /// A thread is runnable and waits for a CPU after it was woken. Waits after a preemption do not
    /// count.
    Woken,
    /// A thread is in an uninterruptible sleep.
    Blocked,
    /// A thread cannot run because its cgroup's quota is used up.
    Throttled,
    /// A kernel thread, interrupt or softirq runs for a long time without interruption.
    Stretch,
    /// A paced thread's frame starts late. The delay lasts from when the frame was due until it
    /// started.
    Frame,
}

impl Delay {
    fn bits(self) -> u32 {
        let bit = |trigger: u8| 1 << trigger;
        match self {
            Self::Waiting => bit(trigger::WOKEN) | bit(trigger::PREEMPTED),
            Self::Woken => bit(trigger::WOKEN),
            Self::Blocked => bit(trigger::BLOCKED),
            Self::Throttled => bit(trigger::THROTTLED),
            Self::Stretch => bit(trigger::STRETCH),
            Self::Frame => bit(trigger::FRAME),
        }
    }
}

/// Threads that a rule watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// All threads, except those of this process.
    Any,
    /// The threads of the process with this ID.
    Process(u32),
    /// Threads with this name, and all threads of processes with this name. Only the first 15 bytes
    /// are compared.
    Named(String),
    /// Threads in the cgroup with this number, and in cgroups below it.
    Cgroup(u64),
}

/// The thread that runs a program's frames, and the times at which the frames are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacedThread {
    /// ID of the thread.
    pub tid: i32,
    /// Time between the due times of two successive frames.
    pub period: Nanos,
    /// Due time of one of the frames, on `CLOCK_MONOTONIC`.
    pub due: Nanos,
    /// Whether each frame is due one period after the previous frame started. If `false`, frames
    /// are due at fixed intervals from `due`.
    pub rearmed: bool,
    /// Minimum CPU time between two sleeps that counts as a frame, or `None` if any amount counts.
    pub long_from: Option<Nanos>,
    /// Number of the learnt rhythm, starting at 1. When it changes, the BPF programs count frames
    /// from `due` again.
    pub armed: u64,
}

/// A rule that determines what triggers the flight recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The kind of delay to watch for.
    pub delay: Delay,
    /// Threads that the rule watches. [`Delay::Stretch`] and [`Delay::Frame`] ignore this field.
    pub whose: Whose,
    /// Length of a delay above which the rule fires, or [`Nanos::MAX`] if it must not fire yet.
    pub over: Nanos,
    /// Whether to also count the lengths of all delays of this kind. See [`Tracer::lengths`].
    pub counted: bool,
    /// The thread to watch for [`Delay::Frame`]. While it is `None`, a rule of that kind does not
    /// fire.
    pub paced: Option<PacedThread>,
}

impl Rule {
    /// The maximum number of rules.
    pub const MAX: usize = TRIGGER_RULES;

    fn record(&self) -> TriggerRule {
        let mut record = TriggerRule {
            over: u64::try_from(self.over.0).unwrap_or(0),
            triggers: self.delay.bits(),
            ..TriggerRule::default()
        };
        if let Some(paced) = self.paced {
            let time = |time: Nanos| u64::try_from(time.0).unwrap_or(0);
            record.tid = u32::try_from(paced.tid).unwrap_or(0);
            record.period = time(paced.period);
            record.due = time(paced.due);
            record.rearmed = paced.rearmed.into();
            record.long_from = paced.long_from.map_or(0, time);
            record.armed = paced.armed;
        }
        match &self.whose {
            Whose::Any => record.who = who::ANY,
            Whose::Process(pid) => (record.who, record.tgid) = (who::PROCESS, *pid),
            Whose::Cgroup(id) => (record.who, record.cgroup) = (who::CGROUP, *id),
            Whose::Named(name) => {
                record.who = who::NAME;
                let length = name.len().min(record.comm.len() - 1);
                record.comm[..length].copy_from_slice(&name.as_bytes()[..length]);
            }
        }
        record
    }
}

/// Converts rules to the form that the BPF programs use. Ignores rules beyond [`Rule::MAX`].
fn plan_of(rules: &[Rule], own: u32) -> TriggerPlan {
    let mut plan = TriggerPlan {
        limits: [u64::MAX; crate::record::TRIGGERS],
        own,
        ..TriggerPlan::default()
    };
    for (number, (place, rule)) in plan.rules.iter_mut().zip(rules).enumerate() {
        *place = rule.record();
        if place.tid > 0 {
            plan.framed |= 1 << (place.tid & 31);
        }
        let bit = u32::from(rule.counted) << number;
        for (number, limit) in plan.limits.iter_mut().enumerate() {
            if place.triggers >> number & 1 == 1 {
                let over = if rule.counted { 0 } else { place.over };
                *limit = (*limit).min(over);
                plan.counted[number] |= bit;
            }
        }
    }
    plan
}

/// A delay that exceeded a rule's limit, as reported by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// Index of the rule in the list passed to [`Tracer::set_rules`].
    pub rule: usize,
    /// When the delay ended, on `CLOCK_MONOTONIC`. A delay is noticed only at its end.
    pub time: Nanos,
    /// Length of the delay.
    pub lasted: Nanos,
    /// Limit that the rule had when the delay ended.
    pub over: Nanos,
    /// CPU on which the delay was noticed. After a wait for a CPU, this is the CPU on which the
    /// thread then ran. After an uninterruptible sleep, it is the CPU that woke the thread.
    pub cpu: Cpu,
    /// Thread ID, or 0 for an interrupt or softirq.
    pub tid: i32,
    /// Process ID, or 0 for an interrupt or softirq.
    pub pid: i32,
    /// Name of the thread, interrupt or softirq.
    pub name: String,
}

/// Receives triggers in the order in which they were noticed.
pub struct Triggers {
    ring: RingBuf<MapData>,
}

impl Triggers {
    /// Waits until a trigger arrives, `other` becomes readable, or `time` has passed. A signal may
    /// also end the wait.
    pub fn wait(&self, other: BorrowedFd<'_>, time: Duration) {
        let mut waited = [
            PollFd::new(self.ring.as_fd(), PollFlags::POLLIN),
            PollFd::new(other, PollFlags::POLLIN),
        ];
        // Round up. If the wait were too short, the caller would have to repeat it.
        let millis = time.as_nanos().div_ceil(1_000_000);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        // The caller checks for triggers, no matter how the wait ended.
        let _ = poll(&mut waited, timeout);
    }

    fn next(&mut self) -> Option<TriggerRecord> {
        loop {
            let item = self.ring.next()?;
            if let Some(record) = sys::trigger_record(&item) {
                return Some(record);
            }
        }
    }
}

/// State of the two tables of sums: which one is being filled, and the window that the other one
/// covers.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    watched: Vec<usize>,
    second: bool,
    /// Window that the inactive table covers. `None` once that table has been emptied.
    full: Option<Interval>,
}

impl Tracer {
    /// Starts accounting for the flight recorder, just as [`Tracer::start`] does for other outputs.
    pub fn start_flight(&mut self, watched: &CpuList, online: &CpuList) -> CpuList {
        let room = self.sizes.cpus;
        let cpus = watched.iter().map(Cpu::index);
        self.tables.watched = cpus.filter(|&cpu| cpu < room).collect();
        self.start(watched, online)
    }

    /// Sets the rules that trigger the flight recorder. Ignores rules beyond [`Rule::MAX`].
    ///
    /// # Errors
    /// Returns an error if the rules cannot be shared with the kernel.
    pub fn set_rules(&mut self, rules: &[Rule]) -> Result<(), TraceError> {
        let plans = shared::<TriggerPlan>(&mut self.programs, map::TRIGGER_PLANS, 1)?;
        plans.write(&plan_of(rules, std::process::id()));
        Ok(())
    }

    /// Returns the receiver of triggers. This succeeds only once.
    ///
    /// # Errors
    /// Returns an error if the receiver has already been taken, or cannot be mapped.
    pub fn triggers(&mut self) -> Result<Triggers, TraceError> {
        let refused = |why: String| TraceError::Refused { why };
        let map = self.programs.take_map(map::TRIGGERS);
        let map =
            map.ok_or_else(|| refused("another reader already has the triggers".to_owned()))?;
        let ring = RingBuf::try_from(map)
            .map_err(|error| refused(format!("cannot read the triggers: {error}")))?;
        Ok(Triggers { ring })
    }

    /// Returns the next trigger that has arrived, or `None` once all have been returned.
    pub fn next_trigger(&mut self, triggers: &mut Triggers) -> Option<Noticed> {
        let record = triggers.next()?;
        let number = |n: u32| i32::try_from(n).unwrap_or(0);
        let is_thread = record.trigger != trigger::STRETCH || record.kind == kind::TASK;
        Some(Noticed {
            rule: record.rule as usize,
            time: Nanos(record.time.cast_signed()),
            lasted: Nanos(record.lasted.cast_signed()),
            over: Nanos(record.over.cast_signed()),
            cpu: Cpu(record.cpu.into()),
            tid: if is_thread { number(record.tid) } else { 0 },
            pid: if is_thread { number(record.tgid) } else { 0 },
            name: self.trigger_name(&record, is_thread),
        })
    }

    fn trigger_name(&mut self, record: &TriggerRecord, is_thread: bool) -> String {
        let identity = Identity {
            kind: if is_thread { kind::TASK } else { record.kind },
            flags: 0,
            tid: record.tid,
            tgid: record.tgid,
            detail: 0,
            comm: record.comm,
            lock: 0,
        };
        let mut sources = SourceTable::default();
        // The table of sources is temporary, so the decoder must not remember its IDs.
        self.decoder.forget_sources();
        let id = self.decoder.source(&mut sources, &identity);
        self.decoder.forget_sources();
        sources.get(id).name.to_string()
    }

    /// Forgets the names of all programs. Call this from time to time, because process IDs are
    /// reused.
    pub fn forget_programs(&mut self) {
        self.decoder.forget_programs();
    }

    /// Returns a histogram of the delays that a rule has counted so far. `rule` is the rule's index
    /// in the list passed to [`Tracer::set_rules`]. If a different rule takes that index later, its
    /// delays are added to the old counts.
    pub fn lengths(&self, rule: usize) -> Histogram {
        let mut counts = [0_u64; Histogram::BUCKETS];
        for cpu in 0..self.sizes.cpus {
            let cpu_counts = self.rule_lengths.read(cpu * TRIGGER_RULES + rule);
            for (sum, count) in counts.iter_mut().zip(cpu_counts.counts) {
                *sum = sum.saturating_add(count);
            }
        }
        Histogram::from_counts(&counts).unwrap_or_default()
    }

    /// Returns the number of triggers suppressed so far. A trigger is suppressed if its CPU has
    /// already produced 16 within a second, or if the buffer for triggers is full.
    pub fn suppressed(&self) -> u64 {
        let cpus = 0..self.sizes.cpus;
        cpus.map(|cpu| self.states.read(cpu).suppressed).sum()
    }

    /// Returns the number of tracepoint hits so far, on all CPUs.
    pub fn events(&self) -> u64 {
        let cpus = 0..self.sizes.cpus;
        cpus.map(|cpu| self.states.read(cpu).events).sum()
    }

    /// Returns the number of records in each CPU's ring.
    pub fn ring_len(&self) -> usize {
        self.sizes.ring_len()
    }

    /// Makes the BPF programs start filling the other table of sums at `now`. Wait a few ms before
    /// calling [`Tracer::take_sums`] for the first table, because BPF programs that are already
    /// running may still add to it.
    pub fn switch_tables(&mut self, now: Nanos) {
        self.leave_table(now);
        let running = run::RECORD | if self.tables.second { run::SECOND } else { 0 };
        for &cpu in &self.tables.watched {
            self.controls.set_running(cpu, running);
        }
    }

    /// Makes the active table the inactive one, which [`Tracer::take_sums`] empties next.
    pub(crate) fn leave_table(&mut self, now: Nanos) {
        self.tables.second = !self.tables.second;
        self.tables.full = Some(Interval::new(self.window_begin, now));
        self.window_begin = now;
    }

    /// Passes the sums in the inactive table to `sink` and empties the table. Returns the window
    /// that these sums cover, or `None` if the inactive table has already been emptied since the
    /// last [`Tracer::switch_tables`].
    pub fn take_sums(
        &mut self,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, Row),
    ) -> Option<Interval> {
        let window = self.tables.full.take()?;
        self.decoder.forget_sources();
        let full = usize::from(!self.tables.second);
        let entries = self.sizes.sum_entries as usize;
        for index in full * entries..(full + 1) * entries {
            if self.sums.count(index) > 0 {
                let sum = self.sums.read(index);
                let row = self.decoder.sum(sources, None, &sum, window);
                self.sums.free(index);
                if let Some(row) = row {
                    sink(sources, row);
                }
            }
        }
        for cpu in 0..self.sizes.cpus {
            let first = (cpu * 2 + full) * RESTS_PER_CPU;
            for index in first..first + RESTS_PER_CPU {
                if self.rests.count(index) > 0 {
                    let sum = self.rests.read(index);
                    let row = self.decoder.sum(sources, None, &sum, window);
                    self.rests.free(index);
                    if let Some(row) = row {
                        sink(sources, row);
                    }
                }
            }
        }
        Some(window)
    }

    /// Returns the kernel's number for the cgroup with this directory.
    ///
    /// # Errors
    /// Returns an error if the directory's metadata cannot be read.
    pub fn cgroup_number(folder: &std::path::Path) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(std::fs::metadata(folder)?.ino())
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Delay, PacedThread, Rule, Whose, plan_of};
    use crate::record::{trigger, who};

    #[test]
    fn the_plan_keeps_the_shortest_limit_of_each_trigger() {
        let rule = |delay, millis| Rule {
            delay,
            whose: Whose::Any,
            over: Nanos::from_millis(millis),
            counted: false,
            paced: None,
        };
        let plan = plan_of(&[rule(Delay::Waiting, 5), rule(Delay::Woken, 2)], 7);
        let limit = |trigger: u8| plan.limits[usize::from(trigger)];
        assert_eq!(limit(trigger::WOKEN), 2_000_000);
        assert_eq!(limit(trigger::PREEMPTED), 5_000_000);
        assert_eq!(limit(trigger::STRETCH), u64::MAX);
        assert_eq!(plan.rules[2].triggers, 0);
        assert_eq!(plan.own, 7);
        assert_eq!(plan.counted, [0; crate::record::TRIGGERS]);
    }

    #[test]
    fn a_counting_rule_lowers_the_limit_to_zero() {
        let rule = |delay, counted| Rule {
            delay,
            whose: Whose::Any,
            over: Nanos::MAX,
            counted,
            paced: None,
        };
        let plan = plan_of(&[rule(Delay::Waiting, false), rule(Delay::Woken, true)], 7);
        let limit_and_counters = |trigger: u8| {
            let trigger = usize::from(trigger);
            (plan.limits[trigger], plan.counted[trigger])
        };
        assert_eq!(limit_and_counters(trigger::WOKEN), (0, 0b10));
        assert_eq!(
            limit_and_counters(trigger::PREEMPTED),
            (i64::MAX.cast_unsigned(), 0)
        );
    }

    #[test]
    fn only_paced_threads_are_checked_for_frames() {
        let frames = |paced| Rule {
            delay: Delay::Frame,
            whose: Whose::Any,
            over: Nanos::from_millis(20),
            counted: false,
            paced,
        };
        let paced = |tid, armed| {
            Some(PacedThread {
                tid,
                period: Nanos::from_millis(20),
                due: Nanos(7),
                rearmed: true,
                long_from: None,
                armed,
            })
        };
        let rules = [frames(None), frames(paced(4_129, 1)), frames(paced(66, 2))];
        let plan = plan_of(&rules, 7);
        assert_eq!(plan.framed, 1 << 1 | 1 << 2);
        let threads: Vec<u32> = plan.rules.iter().map(|rule| rule.tid).collect();
        assert_eq!(threads, [0, 4_129, 66, 0, 0, 0, 0, 0]);
        let rule = plan.rules[1];
        assert_eq!(
            (rule.period, rule.due, rule.rearmed, rule.long_from),
            (20_000_000, 7, 1, 0)
        );
    }

    #[test]
    fn a_name_is_cut_to_the_kernels_length() {
        let rule = Rule {
            delay: Delay::Blocked,
            whose: Whose::Named("a-name-of-more-than-15".to_owned()),
            over: Nanos(1),
            counted: false,
            paced: None,
        };
        assert_eq!(&rule.record().comm, b"a-name-of-more-\0");
    }

    #[test]
    fn a_rule_contains_the_number_of_its_process_or_cgroup() {
        let number_of = |whose| {
            let rule = Rule {
                delay: Delay::Throttled,
                whose,
                over: Nanos(1),
                counted: false,
                paced: None,
            };
            let record = rule.record();
            (record.who, record.tgid, record.cgroup)
        };
        assert_eq!(number_of(Whose::Any), (who::ANY, 0, 0));
        assert_eq!(number_of(Whose::Process(4_711)), (who::PROCESS, 4_711, 0));
        assert_eq!(number_of(Whose::Cgroup(1 << 40)), (who::CGROUP, 0, 1 << 40));
    }
}
