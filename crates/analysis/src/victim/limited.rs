//! Accounts for the waits of real-time threads that a limit caused.

use ticktax_model::victim::ThreadState;

use super::Victim;
use super::life::Life;
use super::shared::Queued;
use super::worst::Candidate;
use crate::real_time::LimitedWaits;
use crate::timeline::ThreadId;

impl Victim {
    /// Judges the waits that a limit on real-time threads may have caused. The others are ordinary
    /// waits for a CPU. Must be called after the last row.
    pub(crate) fn judge_limited(&mut self, limited: LimitedWaits) {
        for wait in std::mem::take(&mut self.maybe_limited) {
            let tid = wait.thread.tid;
            if limited.limit_of(tid, wait.span.start).is_some() {
                self.limited(&wait);
            } else {
                self.shared_quotas.push(wait);
            }
        }
        self.limited = Some(limited);
    }

    /// Accounts for a wait that a limit caused. The threads that ran in the meantime did not cause
    /// it, but the delay still lists them.
    fn limited(&mut self, wait: &Queued) {
        let ThreadId { tid, pid } = wait.thread;
        let life = self.threads.entry(tid).or_insert_with(|| Life::new(pid));
        life.held(ThreadState::RealTimeLimit, &wait.span);
        if let Some(losses) = &mut self.losses {
            losses.limited(wait.thread, &wait.span);
        }
        if self.worst.wants(wait.span.dur) {
            let ran = wait.pieces.iter().copied();
            let mut delay = Candidate::waiting(wait.kind, &wait.span, ran);
            delay.tid = tid;
            self.worst.offer(delay);
        }
    }
}
