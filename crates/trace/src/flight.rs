//! The flight recorder's side of the tracer: what triggers, sums in two tables that take turns, and the
//! ring that is read only once something has happened.

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

/// The sorts of delay that one rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Able to run, and waiting for a CPU, since it was woken or since another took its place.
    Waiting,
    /// Able to run since it was woken, and waiting for a CPU.
    Woken,
    /// Off its CPU, uninterruptibly.
    Blocked,
    /// Off its CPU because the quota of its cgroup is used up.
    Throttled,
    /// A thread of the kernel, an interrupt or a softirq on a CPU in one piece.
    Stretch,
    /// The next frame of a paced thread, from when it was due to its begin.
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

/// Whose delays a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Every thread's but those of this process.
    Any,
    /// Those of the threads of a process.
    Process(u32),
    /// Those of threads, and of processes' threads, of this name; what is beyond 15 bytes of it is not
    /// looked at.
    Named(String),
    /// Those of threads in the cgroup of this number, or below it.
    Cgroup(u64),
}

/// A thread that has a program's frames, and when these are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacedThread {
    /// The thread.
    pub tid: i32,
    /// From when a frame is due to when the next one is.
    pub period: Nanos,
    /// When one was due, on `CLOCK_MONOTONIC`.
    pub due: Nanos,
    /// Whether a frame is due a period after the last began; else frames are due on a grid.
    pub rearmed: bool,
    /// The CPU time from which on a run is a frame; `None` where each is one.
    pub long_from: Option<Nanos>,
    /// A number of its own for each rhythm that was learnt, from 1 on. With another one, slots are counted from `due` on.
    pub armed: u64,
}

/// What is a trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The sort of delay.
    pub delay: Delay,
    /// Whose. Of a stretch and of frames it is not looked at.
    pub whose: Whose,
    /// From how long on; [`Nanos::MAX`] where it is not to fire yet.
    pub over: Nanos,
    /// Whether all that it is about is counted by length: see [`Tracer::lengths`].
    pub counted: bool,
    /// Of frames, whose they are; `None` where that is not known, and it does not fire.
    pub paced: Option<PacedThread>,
}

impl Rule {
    /// How many of them there is room for.
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

/// The plan of these rules, of which the first [`Rule::MAX`] count.
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

/// Something that lasted too long, as the kernel handed it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// Number of the rule, in the order of [`Tracer::set_rules`].
    pub rule: usize,
    /// When it was noticed, at its end, on `CLOCK_MONOTONIC`.
    pub time: Nanos,
    /// For how long it had lasted.
    pub lasted: Nanos,
    /// From how long on its rule fired then.
    pub over: Nanos,
    /// Where it was noticed: of a wait the CPU that the thread came to, of a block the one that woke it.
    pub cpu: Cpu,
    /// The thread; 0 of an interrupt or softirq.
    pub tid: i32,
    /// Its process; 0 where there is none.
    pub pid: i32,
    /// Its name, or that of the interrupt or softirq.
    pub name: String,
}

/// Where triggers come from, in the order in which they were noticed.
pub struct Triggers {
    ring: RingBuf<MapData>,
}

impl Triggers {
    /// Waits for a trigger, for `other` to become readable, or for `time` to be over. Returns early where
    /// a signal comes.
    pub fn wait(&self, other: BorrowedFd<'_>, time: Duration) {
        let mut waited = [
            PollFd::new(self.ring.as_fd(), PollFlags::POLLIN),
            PollFd::new(other, PollFlags::POLLIN),
        ];
        // Rounded up: a wait that is too short would only be repeated.
        let millis = time.as_nanos().div_ceil(1_000_000);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        // The caller looks at what there is, whatever ended the wait.
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

/// Which of the two tables of sums is filled, and since when.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    watched: Vec<usize>,
    second: bool,
    /// The window of the table that is not filled, until it is emptied.
    full: Option<(Nanos, Nanos)>,
}

impl Tracer {
    /// Opens the books as [`Tracer::start`] does, for the flight recorder.
    pub fn start_flight(&mut self, watched: &CpuList, online: &CpuList) -> CpuList {
        let room = self.sizes.cpus;
        let cpus = watched.iter().map(Cpu::index);
        self.tables.watched = cpus.filter(|&cpu| cpu < room).collect();
        self.start(watched, online)
    }

    /// Has the kernel hand out what is a trigger by these rules, of which the first [`Rule::MAX`] count.
    ///
    /// # Errors
    /// When the plan cannot be shared with the kernel.
    pub fn set_rules(&mut self, rules: &[Rule]) -> Result<(), TraceError> {
        let plans = shared::<TriggerPlan>(&mut self.programs, map::TRIGGER_PLANS, 1)?;
        plans.write(&plan_of(rules, std::process::id()));
        Ok(())
    }

    /// Where triggers come from. It can be taken once.
    ///
    /// # Errors
    /// When it was taken before, or cannot be mapped.
    pub fn triggers(&mut self) -> Result<Triggers, TraceError> {
        let refused = |why: String| TraceError::Refused { why };
        let map = self.programs.take_map(map::TRIGGERS);
        let map = map.ok_or_else(|| refused("the triggers are read already".to_owned()))?;
        let ring = RingBuf::try_from(map)
            .map_err(|error| refused(format!("the triggers cannot be read: {error}")))?;
        Ok(Triggers { ring })
    }

    /// The next trigger that is there.
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
        // The table is thrown away, so nothing may be remembered by its numbers.
        self.decoder.forget_sources();
        let id = self.decoder.source(&mut sources, &identity);
        self.decoder.forget_sources();
        sources.get(id).name.to_string()
    }

    /// Forgets the names of programs: processes' numbers are used again. To be called now and then.
    pub fn forget_programs(&mut self) {
        self.decoder.forget_programs();
    }

    /// All that a rule was about so far, by length, where it counts; the number is that of [`Tracer::set_rules`]. It goes
    /// on where another rule takes its place.
    pub fn lengths(&self, rule: usize) -> Histogram {
        let mut counts = [0_u64; Histogram::BUCKETS];
        for cpu in 0..self.sizes.cpus {
            let of_cpu = self.rule_lengths.read(cpu * TRIGGER_RULES + rule);
            for (sum, count) in counts.iter_mut().zip(of_cpu.counts) {
                *sum = sum.saturating_add(count);
            }
        }
        Histogram::from_counts(&counts).unwrap_or_default()
    }

    /// Triggers that the kernel did not hand out so far: more than 16 on one CPU within a second.
    pub fn suppressed(&self) -> u64 {
        let cpus = 0..self.sizes.cpus;
        cpus.map(|cpu| self.states.read(cpu).suppressed).sum()
    }

    /// Tracepoint hits so far, on all CPUs.
    pub fn events(&self) -> u64 {
        let cpus = 0..self.sizes.cpus;
        cpus.map(|cpu| self.states.read(cpu).events).sum()
    }

    /// Records that each CPU's ring holds.
    pub fn ring_len(&self) -> usize {
        self.sizes.ring_len()
    }

    /// Has sums go to the other table from `now` on. What is in the first can be taken with
    /// [`Tracer::take_sums`], some ms later: programs that have begun may still add to it.
    pub fn switch_tables(&mut self, now: Nanos) {
        self.leave_table(now);
        let running = run::RECORD | if self.tables.second { run::SECOND } else { 0 };
        for &cpu in &self.tables.watched {
            self.controls.set_running(cpu, running);
        }
    }

    /// Has the table that is filled be the next that [`Tracer::take_sums`] empties.
    pub(crate) fn leave_table(&mut self, now: Nanos) {
        self.tables.second = !self.tables.second;
        self.tables.full = Some((self.window_begin, now));
        self.window_begin = now;
    }

    /// Passes the sums of the table that [`Tracer::switch_tables`] left to `sink`, and empties it. Returns
    /// their window; `None` where there is none that was left.
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

    /// The number of the cgroup whose folder this is.
    ///
    /// # Errors
    /// When the folder cannot be looked at.
    pub fn cgroup_number(folder: &std::path::Path) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(std::fs::metadata(folder)?.ino())
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Delay, PacedThread, Rule, Whose, plan_of};
    use crate::record::trigger;

    #[test]
    fn the_shortest_limit_of_all_rules_is_looked_at_first() {
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
    fn where_a_rule_counts_everything_is_looked_at() {
        let rule = |delay, counted| Rule {
            delay,
            whose: Whose::Any,
            over: Nanos::MAX,
            counted,
            paced: None,
        };
        let plan = plan_of(&[rule(Delay::Waiting, false), rule(Delay::Woken, true)], 7);
        let of = |trigger: u8| {
            let trigger = usize::from(trigger);
            (plan.limits[trigger], plan.counted[trigger])
        };
        assert_eq!(of(trigger::WOKEN), (0, 0b10));
        assert_eq!(of(trigger::PREEMPTED), (i64::MAX.cast_unsigned(), 0));
    }

    #[test]
    fn only_threads_that_have_frames_are_looked_at_for_them() {
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
    fn a_name_is_cut_to_what_the_kernel_keeps() {
        let rule = Rule {
            delay: Delay::Blocked,
            whose: Whose::Named("a-name-of-more-than-15".to_owned()),
            over: Nanos(1),
            counted: false,
            paced: None,
        };
        assert_eq!(&rule.record().comm, b"a-name-of-more-\0");
    }
}
