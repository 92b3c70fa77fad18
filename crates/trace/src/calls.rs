//! System calls: their names, and totals for those too short to get their own records.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use ticktax_model::Nanos;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::victim::ShortCalls;

use crate::record::{
    CALL_LONG_NS, CpuState, FollowedThread, STACK_SHIFT, SpanRecord, call, detail, kind, run,
};
use crate::tracer::Tracer;

/// Numbers and names of the system calls of 64-bit programs.
const TABLE: &str = if cfg!(target_arch = "aarch64") {
    include_str!("calls/aarch64.txt")
} else {
    include_str!("calls/x86_64.txt")
};

static NAMES: LazyLock<HashMap<u64, &'static str>> = LazyLock::new(|| {
    let line = |line: &'static str| {
        let (number, name) = line.split_once(' ')?;
        Some((number.parse().ok()?, name))
    };
    TABLE.lines().filter_map(line).collect()
});

/// Returns the name of a system call. `number` includes [`detail::CALL_COMPAT`] if the call comes
/// from a 32-bit program, whose calls have other numbers and therefore no names here.
pub(crate) fn name(number: u64) -> String {
    let plain = number & !detail::CALL_COMPAT;
    match NAMES.get(&number) {
        Some(name) => (*name).to_owned(),
        None if plain == number => format!("call_{number}"),
        None => format!("compat_{plain}"),
    }
}

/// Returns the name of the system call that `call` in a [`CpuState`] stands for, or `None` if it
/// stands for something else.
pub(crate) fn name_of_state(call: u64) -> Option<String> {
    Some(name(call.checked_sub(call::FIRST)?))
}

/// Extra time that every system call of every thread takes while the programs are attached, as
/// measured on a virtual machine.
const COST: Nanos = Nanos(120);

/// Largest share of a CPU's time that the programs may take.
const BUDGET: f64 = 0.02;

/// Interval at which the cost is checked.
const INTERVAL: Nanos = Nanos::from_millis(500);

/// State of watching system calls.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Whether the programs are attached.
    pub(crate) are_watched: bool,
    /// Sums for threads that have exited, by process and thread ID.
    exited: BTreeMap<(u32, u32), (u64, u64)>,
    /// Number of system calls on each CPU when the cost was last checked.
    before: Vec<u64>,
    checked: Nanos,
}

impl Calls {
    pub(crate) fn new(are_watched: bool) -> Self {
        Self {
            are_watched,
            ..Self::default()
        }
    }

    /// Takes a record with the sums of an exiting thread. Returns whether the record was one of
    /// these.
    pub(crate) fn take(&mut self, record: &SpanRecord) -> bool {
        let count = record.detail >> STACK_SHIFT;
        let is_sum =
            record.kind == kind::WAIT && record.detail & u64::from(u32::MAX) == detail::SHORT_CALLS;
        if is_sum {
            let sum = self.exited.entry((record.tgid, record.tid)).or_default();
            sum.0 += record.self_ns.cast_unsigned();
            sum.1 += count;
        }
        is_sum
    }

    /// Returns the sums of all threads: those that have exited, the `threads` that are still
    /// followed, and those on a CPU. Returns `None` if system calls were not watched until the end.
    pub(crate) fn sums(
        &self,
        threads: &[(u32, FollowedThread)],
        on_cpus: &[(u32, u64, u64)],
    ) -> Option<Vec<ShortCalls>> {
        let mut sums = self.exited.clone();
        for (tid, thread) in threads {
            let sum = sums.entry((thread.tgid, *tid)).or_default();
            sum.0 += thread.short_calls;
            sum.1 += thread.short_count;
            for &(_, time, count) in on_cpus.iter().filter(|(id, ..)| id == tid) {
                sum.0 += time;
                sum.1 += count;
            }
        }
        let number = |id: u32| i32::try_from(id).unwrap_or(-1);
        let sums = sums.into_iter().filter(|(_, (_, count))| *count > 0);
        let all = sums.map(|((pid, tid), (time, count))| ShortCalls {
            pid: number(pid),
            tid: number(tid),
            time: Nanos(time.cast_signed()),
            count,
        });
        self.are_watched.then(|| all.collect())
    }
}

/// Returns the largest number of system calls on any CPU between two readings.
fn busiest(before: &[u64], now: &[u64]) -> u64 {
    let pairs = before.iter().zip(now);
    let most = pairs.map(|(before, now)| now.saturating_sub(*before)).max();
    most.unwrap_or(0)
}

impl Tracer {
    /// Returns the flags for what the BPF programs do while recording.
    pub(crate) fn actions(&self) -> u64 {
        let follow = u64::from(self.sizes.following) * run::FOLLOW;
        run::RECORD | follow | (u64::from(self.calls.are_watched) * run::CALLS)
    }

    /// Stops watching system calls if this costs a CPU more than [`BUDGET`]. While
    /// the programs are attached, they slow down the calls of every program on the machine.
    pub(crate) fn check_cost_of_calls(&mut self, now: Nanos) {
        let elapsed = now - self.calls.checked;
        if !self.calls.are_watched || elapsed < INTERVAL {
            return;
        }
        let cpus = 0..self.sizes.cpus;
        let calls: Vec<u64> = cpus.map(|cpu| self.states.read(cpu).calls).collect();
        let before = std::mem::replace(&mut self.calls.before, calls);
        self.calls.checked = now;
        let calls = busiest(&before, &self.calls.before);
        let cost = Nanos(COST.0.saturating_mul(calls.cast_signed()));
        if cost.share_of(elapsed) < BUDGET {
            return;
        }
        self.calls.are_watched = false;
        for cpu in 0..self.sizes.cpus {
            if self.controls.read(cpu).running != 0 {
                self.controls.set_running(cpu, self.actions());
            }
        }
        self.detach(Hook::SystemCalls);
        let per_second = u128::from(calls) * 1_000_000_000 / u128::from(elapsed.0.unsigned_abs());
        self.limit(Limitation::SystemCallsUnwatched {
            calls_per_s: u64::try_from(per_second).unwrap_or(u64::MAX),
        });
    }
}

/// Splits the last part of a run, which is the last span in `open`, if its thread is in a system
/// call at the end. Returns the time in that call if it is too short to be split off.
pub(crate) fn split_open_call(open: &mut Vec<SpanRecord>, state: &CpuState) -> Option<u64> {
    let run = open.last_mut()?;
    let number = u64::from(state.call).checked_sub(call::FIRST)?;
    if run.kind != kind::TASK || run.detail != detail::NONE {
        return None;
    }
    let end = run.start + run.dur;
    let since = state.call_since.max(run.start);
    let length = end.checked_sub(since)?;
    let child = if since > run.start {
        state.call_child
    } else {
        0
    };
    let before = (since - run.start).wrapping_sub(child).cast_signed();
    let within = run.self_ns - before;
    if within < i64::try_from(CALL_LONG_NS).unwrap_or(i64::MAX) {
        return Some(within.cast_unsigned());
    }
    let call = SpanRecord {
        start: since,
        dur: length,
        self_ns: within,
        detail: detail::CALL + number,
        ..*run
    };
    (run.dur, run.self_ns) = (since - run.start, before);
    open.push(call);
    None
}

#[cfg(test)]
mod tests {
    use super::{Calls, busiest, name, name_of_state, split_open_call};
    use crate::record::{CpuState, FollowedThread, STACK_SHIFT, SpanRecord, call, detail, kind};

    #[test]
    fn numbers_have_the_names_of_this_architecture() {
        let futex = libc::SYS_futex.unsigned_abs();
        assert_eq!(name(futex), "futex");
        assert_eq!(
            name(libc::SYS_clock_nanosleep.unsigned_abs()),
            "clock_nanosleep"
        );
        assert_eq!(name(9_999), "call_9999");
        assert_eq!(name(detail::CALL_COMPAT + 54), "compat_54");
        assert_eq!(name_of_state(call::FIRST + futex).as_deref(), Some("futex"));
        assert_eq!(name_of_state(call::USER), None);
    }

    #[test]
    fn short_calls_are_summed_for_each_thread() {
        let exit = SpanRecord {
            kind: kind::WAIT,
            detail: detail::SHORT_CALLS | 3 << STACK_SHIFT,
            self_ns: 700,
            tid: 8,
            tgid: 7,
            ..SpanRecord::default()
        };
        let mut calls = Calls {
            are_watched: true,
            ..Calls::default()
        };
        assert!(calls.take(&exit));
        let asleep = SpanRecord {
            detail: detail::SLEEPING,
            ..exit
        };
        assert!(!calls.take(&asleep));
        let living = FollowedThread {
            tgid: 7,
            short_calls: 50,
            short_count: 1,
            ..FollowedThread::default()
        };
        let sums = calls
            .sums(&[(9, living)], &[(9, 5, 1), (10, 100, 1)])
            .unwrap();
        let sums: Vec<_> = sums
            .iter()
            .map(|sum| (sum.pid, sum.tid, sum.time.0, sum.count))
            .collect();
        assert_eq!(sums, [(7, 8, 700, 3), (7, 9, 55, 2)]);
        calls.are_watched = false;
        assert_eq!(calls.sums(&[], &[]), None);
    }

    #[test]
    fn the_busiest_cpu_decides() {
        assert_eq!(busiest(&[10, 10], &[20, 510]), 500);
        // At the first reading, there is nothing to compare with.
        assert_eq!(busiest(&[], &[5]), 0);
    }

    #[test]
    fn a_call_that_is_open_at_the_end_is_split_off_if_it_is_long() {
        let run = SpanRecord {
            start: 1_000,
            dur: 100_000,
            self_ns: 90_000,
            kind: kind::TASK,
            ..SpanRecord::default()
        };
        let mut state = CpuState {
            call: u32::try_from(call::FIRST).unwrap() + 1,
            call_since: 21_000,
            call_child: 4_000,
            ..CpuState::default()
        };
        let mut open = vec![run];
        assert_eq!(split_open_call(&mut open, &state), None);
        let parts: Vec<_> = open
            .iter()
            .map(|part| (part.start, part.dur, part.self_ns, part.detail))
            .collect();
        let call = (21_000, 80_000, 74_000, detail::CALL + 1);
        assert_eq!(parts, [(1_000, 20_000, 16_000, detail::NONE), call]);
        state.call_since = 71_000;
        let mut open = vec![run];
        assert_eq!(split_open_call(&mut open, &state), Some(24_000));
        assert_eq!(open, [run]);
    }
}
