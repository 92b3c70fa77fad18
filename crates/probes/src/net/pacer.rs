//! Sending at a rate: how long to wait before the next call, and how much to send in it.

use std::time::Duration;

use ticktax_model::Nanos;

use super::LOOK;

/// A sender that was held up catches up with no more than this at once: more would be lost by a receiver whose buffer
/// has room for its own stalls alone.
const BURST: Nanos = Nanos::from_millis(1);

/// With so much it catches up afterwards, and with no more.
const DEBT: Nanos = Nanos::from_millis(10);

/// By how much faster it sends meanwhile.
const FASTER: f64 = 0.05;

/// A call of a slow stream holds at most what so long sends, so that something flows many times a second.
const SLICE: Nanos = Nanos::from_millis(50);

/// When the next call is due.
#[derive(Debug)]
pub(super) struct Pacer {
    bits_hz: f64,
    /// From when on the rate is kept: later where the sender was held up.
    begin: Nanos,
    sent: f64,
    /// What is still to be caught up with.
    debt: Nanos,
}

impl Pacer {
    /// Keeps this rate, in bits a second, from a moment on.
    pub(super) fn new(bits_hz: f64, begin: Nanos) -> Self {
        Self {
            bits_hz,
            begin,
            sent: 0.0,
            debt: Nanos::ZERO,
        }
    }

    /// How long to sleep at this time before the next call; `None` where it is due. Never longer than a thread may
    /// take to notice that it is to stop.
    pub(super) fn wait(&mut self, at: Nanos) -> Option<Duration> {
        let due = self.begin + self.time_of(self.sent);
        if at >= due {
            let late = at - due - BURST;
            if late > Nanos::ZERO {
                self.begin += late;
                self.debt = (self.debt + late).min(DEBT);
            }
            return None;
        }
        let wait = u64::try_from((due - at).min(LOOK).0).unwrap_or(0);
        Some(Duration::from_nanos(wait))
    }

    /// So many bytes were sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as f64;
        let sooner = self.time_of(bytes as f64).times(FASTER).min(self.debt);
        self.debt -= sooner;
        self.begin -= sooner;
    }

    /// Bytes of a call of a stream whose calls have at most so many.
    pub(super) fn call(bits_hz: Option<f64>, most: usize) -> usize {
        let Some(bits_hz) = bits_hz else {
            return most;
        };
        let slice = bits_hz / 8.0 * SLICE.as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 1 and `most`"
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

    use super::{BURST, DEBT, FASTER, LOOK, Pacer};

    #[test]
    fn a_second_holds_what_was_asked_for() {
        let mut pacer = Pacer::new(8_000.0, Nanos::ZERO);
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
    fn a_slow_sender_sleeps_no_longer_than_it_may_take_to_stop() {
        let mut pacer = Pacer::new(1.0, Nanos::ZERO);
        assert_eq!(pacer.wait(Nanos::ZERO), None);
        pacer.sent(1_000_000);
        let longest = Duration::from_nanos(LOOK.0.unsigned_abs());
        assert_eq!(pacer.wait(Nanos::from_millis(1)), Some(longest));
    }

    #[test]
    fn a_sender_that_was_held_up_does_not_send_it_all_at_once() {
        let rate = 8e6;
        let mut pacer = Pacer::new(rate, Nanos::ZERO);
        let late = Nanos::from_secs(5);
        let mut bytes = 0;
        while pacer.wait(late).is_none() {
            pacer.sent(100);
            bytes += 100;
        }
        let of = |time: Nanos| rate / 8.0 * time.as_secs_f64();
        assert!((f64::from(bytes) - of(BURST)).abs() <= 200.0, "{bytes}");
        // It sends a little faster until it has caught up, and not for longer.
        let mut sent_until = |until: Nanos| {
            let mut bytes = 0_u32;
            let mut at = late;
            while at < until {
                match pacer.wait(at) {
                    Some(wait) => at += Nanos(i64::try_from(wait.as_nanos()).unwrap().max(1)),
                    None => {
                        pacer.sent(100);
                        bytes += 100;
                    }
                }
            }
            f64::from(bytes)
        };
        let (soon, later) = (Nanos::from_millis(100), Nanos::from_millis(400));
        let bytes = sent_until(late + soon);
        assert!((bytes / of(soon) - 1.0 - FASTER).abs() < 0.01, "{bytes}");
        let bytes = bytes + sent_until(late + later);
        assert!((bytes - of(later + DEBT)).abs() <= 300.0, "{bytes}");
    }

    #[test]
    fn calls_of_a_slow_stream_are_small() {
        assert_eq!(Pacer::call(None, 1_000), 1_000);
        assert_eq!(Pacer::call(Some(8_000.0), 1_000), 50);
        assert_eq!(Pacer::call(Some(0.5), 1_000), 1);
        assert_eq!(Pacer::call(Some(1e12), 1_000), 1_000);
    }
}
