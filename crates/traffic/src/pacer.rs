//! Paces a sender: determines when its next call is due and how much the call sends.

use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_model::net::Protocol;

use super::LOOK;

/// Maximum delay that a sender makes up for. Any delay beyond that is removed from its schedule.
const MAX_DEBT: Nanos = Nanos::from_millis(10);

/// Longest burst that a sender of datagrams may send, as time at the given rate. A longer burst
/// could overflow the receiver's buffer, which may have been sized only for the receiver's own
/// stalls.
const LONGEST_BURST: Nanos = Nanos::from_millis(1);

/// Fraction by which the rate is raised while the sender catches up.
const CATCH_UP: f64 = 0.05;

/// A call sends no more data than the rate allows in this time, so that even a slow stream sends
/// data many times per second.
const SLICE: Nanos = Nanos::from_millis(50);

/// Schedule of a sender with a fixed rate.
#[derive(Debug)]
pub(super) struct Pacer {
    bits_hz: f64,
    /// Start of the schedule, which is moved when the sender is delayed.
    begin: Nanos,
    sent: f64,
    /// Delay that the sender has yet to make up for.
    debt: Nanos,
    /// Longest burst, as time at the given rate.
    longest_burst: Nanos,
    /// Mean delay of the sender's sleeps. If timers expire only at ticks, long delays are normal,
    /// and bursts can be longer.
    usual_delay: Nanos,
    slept: bool,
}

impl Pacer {
    /// Creates a pacer that starts at `begin`, for a rate in bits per second. Streams may send
    /// longer bursts, because their receivers don't lose data.
    pub(super) fn new(protocol: Protocol, bits_hz: f64, begin: Nanos) -> Self {
        Self {
            bits_hz,
            begin,
            sent: 0.0,
            debt: Nanos::ZERO,
            longest_burst: match protocol {
                Protocol::Tcp => MAX_DEBT,
                Protocol::Udp => LONGEST_BURST,
            },
            usual_delay: Nanos::ZERO,
            slept: false,
        }
    }

    /// Returns how long to sleep before the next call, or `None` if the call is due now. The sleep
    /// is never too long for the sender to notice a stop request in time.
    pub(super) fn wait(&mut self, at: Nanos) -> Option<Duration> {
        let due = self.begin + self.time_of(self.sent);
        if at >= due {
            let longest_burst = self
                .longest_burst
                .max(self.usual_delay + self.usual_delay)
                .min(MAX_DEBT);
            if at - due > longest_burst {
                let later = at - due - longest_burst;
                self.begin += later;
                self.debt = (self.debt + later).min(MAX_DEBT - longest_burst);
            }
            if std::mem::take(&mut self.slept) {
                self.usual_delay += ((at - due).min(MAX_DEBT) - self.usual_delay).times(1.0 / 8.0);
            }
            return None;
        }
        self.slept = true;
        let wait = u64::try_from((due - at).min(LOOK).0).unwrap_or(0);
        Some(Duration::from_nanos(wait))
    }

    /// Records that `bytes` were sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as f64;
        let sooner = self.time_of(bytes as f64).times(CATCH_UP).min(self.debt);
        self.debt -= sooner;
        self.begin -= sooner;
    }

    /// Returns how many bytes a stream should send per call, up to `most`. `bits_hz` is the rate in
    /// bits per second.
    pub(super) fn call(bits_hz: Option<f64>, most: usize) -> usize {
        let Some(bits_hz) = bits_hz else {
            return most;
        };
        let slice = bits_hz / 8.0 * SLICE.as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to the range from 1 to `most`"
        )]
        let slice = slice.clamp(1.0, most as f64) as usize;
        slice
    }

    fn time_of(&self, bytes: f64) -> Nanos {
        Nanos::from_secs(1).times(bytes * 8.0 / self.bits_hz)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ticktax_model::Nanos;
    use ticktax_model::net::Protocol;

    use super::{CATCH_UP, LONGEST_BURST, LOOK, MAX_DEBT, Pacer};

    #[test]
    fn the_requested_rate_is_kept() {
        let mut pacer = Pacer::new(Protocol::Tcp, 8_000.0, Nanos::ZERO);
        let (mut at, mut bytes) = (Nanos::ZERO, 0);
        while at < Nanos::from_secs(1) {
            if let Some(wait) = pacer.wait(at) {
                at += Nanos(i64::try_from(wait.as_nanos()).unwrap().max(1));
            } else {
                pacer.sent(10);
                bytes += 10;
            }
        }
        assert!((990..=1_010).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_slow_sender_sleeps_no_longer_than_a_stop_may_take() {
        let mut pacer = Pacer::new(Protocol::Udp, 1.0, Nanos::ZERO);
        assert_eq!(pacer.wait(Nanos::ZERO), None);
        pacer.sent(1_000_000);
        let longest = Duration::from_nanos(LOOK.0.unsigned_abs());
        assert_eq!(pacer.wait(Nanos::from_millis(1)), Some(longest));
    }

    /// Sends 100 bytes per call between two times, and returns how many bytes were sent. `wake`
    /// takes the time at which a sleep should end, and returns the time at which it does.
    fn sent(pacer: &mut Pacer, from: Nanos, until: Nanos, wake: fn(Nanos) -> Nanos) -> f64 {
        let (mut at, mut bytes) = (from, 0_u32);
        while at < until {
            if let Some(wait) = pacer.wait(at) {
                at = wake(at + Nanos(i64::try_from(wait.as_nanos()).unwrap().max(1)));
            } else {
                pacer.sent(100);
                bytes += 100;
            }
        }
        f64::from(bytes)
    }

    fn bytes_of(time: Nanos) -> f64 {
        RATE / 8.0 * time.as_secs_f64()
    }

    const RATE: f64 = 8e6;

    #[test]
    fn a_delayed_sender_catches_up_in_limited_bursts() {
        let late = Nanos::from_secs(5);
        for (protocol, longest_burst) in [(Protocol::Udp, LONGEST_BURST), (Protocol::Tcp, MAX_DEBT)]
        {
            let mut pacer = Pacer::new(protocol, RATE, Nanos::ZERO);
            let mut bytes = 0;
            while pacer.wait(late).is_none() {
                pacer.sent(100);
                bytes += 100;
            }
            let off = f64::from(bytes) - bytes_of(longest_burst);
            assert!(off.abs() <= 200.0, "{protocol:?}: {bytes}");
            let soon = sent(&mut pacer, late, late + MAX_DEBT.times(10.0), |at| at);
            let (later, end) = (late + MAX_DEBT.times(10.0), late + MAX_DEBT.times(40.0));
            let all = soon + sent(&mut pacer, later, end, |at| at);
            // Until it has caught up, the sender must be slightly faster than its rate.
            let debt = MAX_DEBT - longest_burst;
            if debt > Nanos::ZERO {
                let faster = soon / bytes_of(MAX_DEBT.times(10.0)) - 1.0;
                assert!((faster - CATCH_UP).abs() < 0.01, "{faster}");
            }
            let off = all - bytes_of(MAX_DEBT.times(40.0) + debt);
            assert!(off.abs() <= 300.0, "{protocol:?}: {all}");
        }
    }

    /// Timers expire only every 4 ms, so sleeps end late. After each sleep, the sender must send
    /// everything that is due.
    #[test]
    fn sleeps_that_end_on_ticks_do_not_lower_the_rate() {
        const TICK: i64 = 4_000_000;
        let mut pacer = Pacer::new(Protocol::Udp, RATE, Nanos::ZERO);
        let end = Nanos::from_secs(2);
        let on_tick = |at: Nanos| Nanos((at.0 + TICK - 1) / TICK * TICK);
        let bytes = sent(&mut pacer, Nanos::ZERO, end, on_tick);
        assert!((bytes / bytes_of(end) - 1.0).abs() < 0.01, "{bytes}");
    }

    /// A sender that is delayed for 10 ms in every 50 ms must never have more to catch up on than
    /// after a single delay.
    #[test]
    fn the_debt_of_a_repeatedly_delayed_sender_does_not_grow() {
        let mut pacer = Pacer::new(Protocol::Udp, RATE, Nanos::ZERO);
        for round in 0..20 {
            let begin = Nanos::from_millis(50 * round);
            let held = begin + Nanos::from_millis(40);
            sent(&mut pacer, begin, held, |at| at);
            assert!(pacer.debt <= MAX_DEBT, "{:?}", pacer.debt);
        }
    }

    #[test]
    fn calls_of_a_slow_stream_are_small() {
        assert_eq!(Pacer::call(None, 1_000), 1_000);
        assert_eq!(Pacer::call(Some(8_000.0), 1_000), 50);
        assert_eq!(Pacer::call(Some(0.5), 1_000), 1);
        assert_eq!(Pacer::call(Some(1e12), 1_000), 1_000);
    }
}
