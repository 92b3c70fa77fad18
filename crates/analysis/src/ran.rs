//! Adds up the CPU time of each process's threads. With these times, the scheduling policy reported
//! for a process is that of the threads that did the work, not that of a helper thread that barely
//! ran.

use std::collections::BTreeMap;

use ticktax_model::policy::SpecialPolicy;
use ticktax_model::victim::ThreadPolicy;
use ticktax_model::{Kind, Nanos, Owner, Source};

/// CPU time of each thread, by process. If a single program is analysed, only the time during which
/// that program waited counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ran(BTreeMap<i32, BTreeMap<i32, Nanos>>);

impl Ran {
    /// Adds a source's CPU time. Only threads of programs count.
    pub(crate) fn add(&mut self, source: &Source, time: Nanos) {
        let is_program = source.kind == Kind::Task && source.owner == Owner::Program;
        if let Some(thread) = source.thread.as_ref().filter(|_| is_program) {
            let threads = self.0.entry(thread.pid).or_default();
            *threads.entry(thread.tid).or_default() += time;
        }
    }

    /// Returns the share (0 to 1) of process `pid`'s CPU time used by threads whose policy
    /// satisfies `matches`. `policies` lists all threads that do not have the default policy.
    /// Returns `None` if the process used no time.
    pub(crate) fn share(
        &self,
        pid: i32,
        policies: &[ThreadPolicy],
        matches: impl Fn(SpecialPolicy) -> bool,
    ) -> Option<f64> {
        let threads = self.0.get(&pid)?;
        let all: Nanos = threads.values().copied().sum();
        let matching = policies
            .iter()
            .filter(|thread| thread.pid == pid && matches(thread.policy));
        let times = matching.filter_map(|thread| threads.get(&thread.tid));
        let time: Nanos = times.copied().sum();
        (all > Nanos::ZERO).then(|| time.share_of(all))
    }

    /// Returns the policy of the thread that used the most CPU time in process `pid`, or `None` if
    /// that is the default policy.
    pub(crate) fn policy_of_most(
        &self,
        pid: i32,
        policies: &[ThreadPolicy],
    ) -> Option<SpecialPolicy> {
        let (tid, _) = self.0.get(&pid)?.iter().max_by_key(|(_, time)| **time)?;
        let mut of_process = policies.iter().filter(|thread| thread.pid == pid);
        Some(of_process.find(|thread| thread.tid == *tid)?.policy)
    }

    /// Returns the policy of process `pid`, provided that all of its threads that used CPU time
    /// share it. Returns `None` for the default policy too.
    pub(crate) fn policy(&self, pid: i32, policies: &[ThreadPolicy]) -> Option<SpecialPolicy> {
        let threads = self.0.get(&pid)?;
        let policy_of = |tid: i32| {
            let mut of_process = policies.iter().filter(|thread| thread.pid == pid);
            Some(of_process.find(|thread| thread.tid == tid)?.policy)
        };
        let first = policy_of(*threads.keys().next()?)?;
        threads
            .keys()
            .all(|&tid| policy_of(tid) == Some(first))
            .then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::policy::SpecialPolicy;
    use ticktax_model::victim::ThreadPolicy;
    use ticktax_model::{Nanos, Owner};

    use super::Ran;

    /// Builds the CPU times of a browser that ran for 100 ms. Its real-time audio thread ran for
    /// `audio_ms` of them.
    fn browser(audio_ms: i64) -> Ran {
        let mut ran = Ran::default();
        for (tid, ms) in [(312, 100 - audio_ms), (313, audio_ms)] {
            let source = ticktax_fixture::thread(Owner::Program, "x", "chrome", (312, tid));
            if ms > 0 {
                ran.add(&source, Nanos::from_millis(ms));
            }
        }
        ran
    }

    #[test]
    fn a_real_time_helper_thread_does_not_decide_the_policy_of_its_process() {
        let policies = [ThreadPolicy {
            pid: 312,
            tid: 313,
            policy: SpecialPolicy::Fifo(10),
        }];
        let share = |ms| browser(ms).share(312, &policies, SpecialPolicy::goes_first);
        assert_eq!((share(0), share(5)), (Some(0.0), Some(0.05)));
        assert_eq!(browser(5).share(7, &policies, |_| true), None);
        let policy = |ms| browser(ms).policy(312, &policies);
        assert_eq!((policy(0), policy(5)), (None, None));
        assert_eq!(policy(100), Some(SpecialPolicy::Fifo(10)));
    }
}
