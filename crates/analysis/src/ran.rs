//! Which threads of a process had a CPU, and for how long: what a process is said to be goes by the threads that
//! did something, and not by a helper among them.

use std::collections::BTreeMap;

use ticktax_model::policy::SpecialPolicy;
use ticktax_model::victim::ThreadPolicy;
use ticktax_model::{Kind, Nanos, Owner, Source};

/// By process and by thread, how long it had a CPU: where a program is watched, while that waited for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ran(BTreeMap<i32, BTreeMap<i32, Nanos>>);

impl Ran {
    /// The source had a CPU for so long.
    pub(crate) fn add(&mut self, source: &Source, time: Nanos) {
        let is_program = source.kind == Kind::Task && source.owner == Owner::Program;
        if let Some(thread) = source.thread.as_ref().filter(|_| is_program) {
            let threads = self.0.entry(thread.pid).or_default();
            *threads.entry(thread.tid).or_default() += time;
        }
    }

    /// The part of the time of process `pid` that was of threads which are scheduled in such a way, 0 to 1; `policies`
    /// are of those that are not scheduled by the ordinary rules. `None` where it had no time.
    pub(crate) fn share(
        &self,
        pid: i32,
        policies: &[ThreadPolicy],
        is_such: impl Fn(SpecialPolicy) -> bool,
    ) -> Option<f64> {
        let threads = self.0.get(&pid)?;
        let all: Nanos = threads.values().copied().sum();
        let such = policies
            .iter()
            .filter(|it| it.pid == pid && is_such(it.policy));
        let such: Nanos = such.filter_map(|it| threads.get(&it.tid)).copied().sum();
        (all > Nanos::ZERO).then(|| such.share_of(all))
    }

    /// How that thread of process `pid` is scheduled which had most of its time, where that is not by the ordinary rules.
    pub(crate) fn policy_of_most(
        &self,
        pid: i32,
        policies: &[ThreadPolicy],
    ) -> Option<SpecialPolicy> {
        let (tid, _) = self.0.get(&pid)?.iter().max_by_key(|(_, time)| **time)?;
        let mut of_process = policies.iter().filter(|it| it.pid == pid);
        Some(of_process.find(|it| it.tid == *tid)?.policy)
    }

    /// How process `pid` is scheduled, where that is the same for all of its threads that had any time, and not by the
    /// ordinary rules.
    pub(crate) fn policy(&self, pid: i32, policies: &[ThreadPolicy]) -> Option<SpecialPolicy> {
        let threads = self.0.get(&pid)?;
        let of = |tid: i32| {
            let mut of_process = policies.iter().filter(|it| it.pid == pid);
            Some(of_process.find(|it| it.tid == tid)?.policy)
        };
        let first = of(*threads.keys().next()?)?;
        threads
            .keys()
            .all(|&tid| of(tid) == Some(first))
            .then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::policy::SpecialPolicy;
    use ticktax_model::victim::ThreadPolicy;
    use ticktax_model::{Nanos, Owner};

    use super::Ran;

    /// A browser whose audio thread is real-time, and had so much of 100 ms.
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
    fn a_real_time_helper_does_not_stand_for_its_process() {
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
