//! Counts the samples taken during traffic.

use std::collections::BTreeMap;

use ticktax_model::net::{Sample, SampleCount, Sampled, SampledActivity, SampledCode};
use ticktax_model::{Interval, Nanos};

/// Threads used to classify samples.
#[derive(Clone, Debug, Default)]
pub struct TrafficThreads {
    /// Thread ID of the sender, if it runs on this machine.
    pub sender: Option<i32>,
    /// Thread ID of the receiver, if it runs on this machine.
    pub receiver: Option<i32>,
    /// Thread IDs of the soakers, which use up idle CPU time.
    pub soakers: Vec<i32>,
}

impl TrafficThreads {
    fn doing(&self, tid: i32) -> SampledActivity {
        if self.sender == Some(tid) {
            SampledActivity::Sender
        } else if self.receiver == Some(tid) {
            SampledActivity::Receiver
        } else if tid == 0 || self.soakers.contains(&tid) {
            SampledActivity::Spare
        } else {
            SampledActivity::Other
        }
    }

    /// Counts the samples taken during `interval`, both by the kind of code that ran and by the
    /// thread that it ran in or interrupted. Returns `None` if the interval has no samples.
    /// `period` is the sampling period.
    pub fn count(
        &self,
        samples: &[Sample],
        interval: Interval,
        period: Nanos,
        samples_lost: u64,
    ) -> Option<Sampled> {
        let mut counts: BTreeMap<SampledActivity, (u64, u64)> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| interval.contains(sample.at)) {
            let by_thread = self.doing(sample.tid);
            let by_code = match sample.code {
                SampledCode::Thread => by_thread,
                SampledCode::Softirq => SampledActivity::Softirq,
                SampledCode::Irq => SampledActivity::Irq,
            };
            counts.entry(by_code).or_default().0 += 1;
            counts.entry(by_thread).or_default().1 += 1;
        }
        let counts = counts.into_iter();
        let counts: Vec<SampleCount> = counts
            .map(|(doing, (by_code, by_thread))| SampleCount {
                activity: doing,
                by_code,
                by_thread,
            })
            .collect();
        (!counts.is_empty()).then_some(Sampled {
            period,
            counts,
            samples_lost,
        })
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::net::{Sample, SampledActivity, SampledCode};
    use ticktax_model::{Interval, Nanos};

    use super::TrafficThreads;

    #[test]
    fn a_softirq_counts_as_softirq_by_code_and_as_the_interrupted_thread_by_thread() {
        let threads = TrafficThreads {
            sender: Some(71),
            receiver: None,
            soakers: vec![73],
        };
        let sample = |at, tid, code| Sample {
            at: Nanos(at),
            tid,
            code,
        };
        let samples = [
            sample(9, 71, SampledCode::Thread),
            sample(10, 71, SampledCode::Thread),
            sample(11, 71, SampledCode::Softirq),
            sample(12, 73, SampledCode::Softirq),
            sample(13, 0, SampledCode::Thread),
            sample(14, 5, SampledCode::Irq),
            sample(20, 71, SampledCode::Thread),
        ];
        let during = Interval::new(Nanos(10), Nanos(20));
        let sampled = threads.count(&samples, during, Nanos(1), 2).unwrap();
        assert_eq!((sampled.samples(), sampled.samples_lost), (5, 2));
        let expected = [
            (SampledActivity::Sender, (0.2, 0.4)),
            (SampledActivity::Softirq, (0.4, 0.0)),
            (SampledActivity::Irq, (0.2, 0.0)),
            (SampledActivity::Other, (0.0, 0.2)),
            (SampledActivity::Spare, (0.2, 0.4)),
            (SampledActivity::Receiver, (0.0, 0.0)),
        ];
        for (doing, shares) in expected {
            assert_eq!(sampled.shares(doing), shares, "{doing:?}");
        }
        let after = Interval::new(Nanos(30), Nanos(40));
        assert_eq!(threads.count(&samples, after, Nanos(1), 0), None);
    }
}
