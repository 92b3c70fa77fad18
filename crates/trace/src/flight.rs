//! The tracer's part in the flight recorder: triggers, sums in two alternating tables, and a ring
//! that is read only after a trigger.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use aya::maps::{MapData, RingBuf};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ticktax_model::recording::Row;
use ticktax_model::{Cpu, CpuList, Histogram, Nanos, SourceTable};

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
mod packed;
mod ring;
mod rows;
mod waits;

pub use freeze::{Capture, Frozen};
pub use rows::FrozenRows;

/// The kind of delay that a rule watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// A thread is runnable and waits for a CPU, after a wake-up or a preemption.
    Waiting,
    /// A thread is runnable and waits for a CPU, after a wake-up only.
    Woken,
    /// A thread is off CPU in an uninterruptible sleep.
    Blocked,
    /// A thread is off CPU because its cgroup's quota is used up.
    Throttled,
    /// A kernel thread, interrupt or softirq runs without interruption.
    Stretch,
    /// A paced thread's next frame is late, measured from when it was due to when it started.
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

/// Which threads a rule watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// All threads, except those of this process.
    Any,
    /// The threads of one process.
    Process(u32),
    /// Threads with this name, and all threads of processes with this name. Only the first 15 bytes
    /// are compared.
    Named(String),
    /// Threads in the cgroup with this number, and in cgroups below it.
    Cgroup(u64),
}

/// The thread that runs a program's frames, and when the frames are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacedThread {
    /// Id of the thread.
    pub tid: i32,
    /// Time between two due times.
    pub period: Nanos,
    /// When one of the frames was due, on `CLOCK_MONOTONIC`.
    pub due: Nanos,
    /// Whether a frame is due one period after the previous frame started. Otherwise, frames are
    /// due on a fixed grid.
    pub rearmed: bool,
    /// Minimum CPU time between two sleeps that counts as a frame. `None` if any CPU time does.
    pub long_from: Option<Nanos>,
    /// Number of the rhythm, starting at 1 and different for each rhythm. Whenever it changes,
    /// slots are counted from `due` again.
    pub armed: u64,
}

/// A rule that determines what triggers the flight recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The kind of delay to watch for.
    pub delay: Delay,
    /// Threads that the rule watches. Ignored for [`Delay::Stretch`] and [`Delay::Frame`].
    pub whose: Whose,
    /// Duration above which the rule fires. [`Nanos::MAX`] if it must not fire yet.
    pub over: Nanos,
    /// Whether to also count the delays of this kind by length: see [`Tracer::lengths`].
    pub counted: bool,
    /// The paced thread for [`Delay::Frame`]. While this is `None`, the rule does not fire.
    pub paced: Option<PacedThread>,
}

impl Rule {
    /// Maximum number of rules.
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

/// Converts rules to the form that the BPF programs use. Rules beyond [`Rule::MAX`] are ignored.
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

/// A delay beyond its rule's limit, as reported by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// Index of the rule in the list passed to [`Tracer::set_rules`].
    pub rule: usize,
    /// When the delay ended and was noticed, on `CLOCK_MONOTONIC`.
    pub time: Nanos,
    /// Length of the delay.
    pub lasted: Nanos,
    /// The rule's limit at that time.
    pub over: Nanos,
    /// CPU on which the delay was noticed: after a wait, the CPU that the thread got. For a blocked
    /// thread, the CPU that woke it.
    pub cpu: Cpu,
    /// Thread id; 0 for an interrupt or softirq.
    pub tid: i32,
    /// Process id; 0 for an interrupt or softirq.
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
    /// end the wait early.
    pub fn wait(&self, other: BorrowedFd<'_>, time: Duration) {
        let mut waited = [
            PollFd::new(self.ring.as_fd(), PollFlags::POLLIN),
            PollFd::new(other, PollFlags::POLLIN),
        ];
        // Round up, because a wait that is too short would only be repeated.
        let millis = time.as_nanos().div_ceil(1_000_000);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        // However the wait ended, the caller checks for triggers.
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

/// Which of the two tables of sums is being filled, and which window the other covers.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    watched: Vec<usize>,
    second: bool,
    /// Window that the inactive table covers, until the table is emptied.
    full: Option<(Nanos, Nanos)>,
}

impl Tracer {
    /// Starts accounting for the flight recorder, as [`Tracer::start`] does for other outputs.
    pub fn start_flight(&mut self, watched: &CpuList, online: &CpuList) -> CpuList {
        let room = self.sizes.cpus;
        let cpus = watched.iter().map(Cpu::index);
        self.tables.watched = cpus.filter(|&cpu| cpu < room).collect();
        self.start(watched, online)
    }

    /// Sets the kernel's trigger rules. Rules beyond [`Rule::MAX`] are ignored.
    ///
    /// # Errors
    /// Returns an error if the plan cannot be shared with the kernel.
    pub fn set_rules(&mut self, rules: &[Rule]) -> Result<(), TraceError> {
        let plans = shared::<TriggerPlan>(&mut self.programs, map::TRIGGER_PLANS, 1)?;
        plans.write(&plan_of(rules, std::process::id()));
        Ok(())
    }

    /// Returns the receiver of triggers. This works only once.
    ///
    /// # Errors
    /// Returns an error if the receiver was already taken or cannot be mapped.
    pub fn triggers(&mut self) -> Result<Triggers, TraceError> {
        let refused = |why: String| TraceError::Refused { why };
        let map = self.programs.take_map(map::TRIGGERS);
        let map =
            map.ok_or_else(|| refused("another reader already has the triggers".to_owned()))?;
        let ring = RingBuf::try_from(map)
            .map_err(|error| refused(format!("cannot read the triggers: {error}")))?;
        Ok(Triggers { ring })
    }

    /// Returns the next trigger that has arrived, if any.
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
        };
        let mut sources = SourceTable::default();
        // The table is temporary, so its source ids must not be remembered.
        self.decoder.forget_sources();
        let id = self.decoder.source(&mut sources, &identity);
        self.decoder.forget_sources();
        sources.get(id).name.to_string()
    }

    /// Forgets program names, because process ids are reused. Call it from time to time.
    pub fn forget_programs(&mut self) {
        self.decoder.forget_programs();
    }

    /// Histogram of the delays counted so far by a rule. `rule` is the rule's index in the list
    /// passed to [`Tracer::set_rules`]. If another rule takes that index, counting continues from
    /// the old counts.
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

    /// Number of triggers suppressed so far because their CPU had more than 16 within a second.
    pub fn suppressed(&self) -> u64 {
        let cpus = 0..self.sizes.cpus;
        cpus.map(|cpu| self.states.read(cpu).suppressed).sum()
    }

    /// Number of tracepoint hits so far, on all CPUs.
    pub fn events(&self) -> u64 {
        let cpus = 0..self.sizes.cpus;
        cpus.map(|cpu| self.states.read(cpu).events).sum()
    }

    /// Number of records in each CPU's ring.
    pub fn ring_len(&self) -> usize {
        self.sizes.ring_len()
    }

    /// Sums go to the other table from `now` on. Wait a few ms before calling [`Tracer::take_sums`]
    /// for the first table, because BPF programs that have already started may still add to it.
    pub fn switch_tables(&mut self, now: Nanos) {
        self.leave_table(now);
        let running = run::RECORD | if self.tables.second { run::SECOND } else { 0 };
        for &cpu in &self.tables.watched {
            self.controls.set_running(cpu, running);
        }
    }

    /// Makes the active table the one that [`Tracer::take_sums`] empties next.
    pub(crate) fn leave_table(&mut self, now: Nanos) {
        self.tables.second = !self.tables.second;
        self.tables.full = Some((self.window_begin, now));
        self.window_begin = now;
    }

    /// Passes the sums in the table that [`Tracer::switch_tables`] left to `sink`, and empties the
    /// table. Returns the window that these sums cover, or `None` if no table is waiting.
    pub fn take_sums(
        &mut self,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, Row),
    ) -> Option<(Nanos, Nanos)> {
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

    /// The kernel's number for the cgroup with this directory.
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
