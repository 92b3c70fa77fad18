//! Sending at a rate: how long to wait before the next call, and how much to send in it.

use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_model::net::Protocol;

use super::LOOK;

/// A sender that was held up catches up with at most this much.
const LATE: Nanos = Nanos::from_millis(10);

/// A sender of datagrams sends at most this much of it in one burst: a receiver whose buffer has room for its own stalls
/// alone would lose more.
const AT_ONCE: Nanos = Nanos::from_millis(1);

/// By how much faster it then sends, until it has caught up.
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
    /// What it is still behind with.
    debt: Nanos,
    /// The longest burst.
    at_once: Nanos,
    /// How late it usually is after a sleep: where timers end on ticks, that is no hold-up.
    usual: Nanos,
    slept: bool,
}

impl Pacer {
    /// Keeps this rate, in bits a second, from a moment on. A stream's receiver loses nothing, whatever is sent at once.
    pub(super) fn new(protocol: Protocol, bits_hz: f64, begin: Nanos) -> Self {
        Self {
            bits_hz,
            begin,
            sent: 0.0,
            debt: Nanos::ZERO,
            at_once: match protocol {
                Protocol::Tcp => LATE,
                Protocol::Udp => AT_ONCE,
            },
            usual: Nanos::ZERO,
            slept: false,
        }
    }

    /// How long to sleep at this time before the next call; `None` where it is due. Never longer than a thread may
    /// take to notice that it is to stop.
    pub(super) fn wait(&mut self, at: Nanos) -> Option<Duration> {
        let due = self.begin + self.time_of(self.sent);
        if at >= due {
            let at_once = self.at_once.max(self.usual + self.usual).min(LATE);
            if at - due > at_once {
                let later = at - due - at_once;
                self.begin += later;
                self.debt = (self.debt + later).min(LATE - at_once);
            }
            if std::mem::take(&mut self.slept) {
                self.usual += ((at - due).min(LATE) - self.usual).times(1.0 / 8.0);
            }
            return None;
        }
        self.slept = true;
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
    use ticktax_model::net::Protocol;

    use super::{AT_ONCE, FASTER, LATE, LOOK, Pacer};

    #[test]
    fn a_second_holds_what_was_asked_for() {
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
    fn a_slow_sender_sleeps_no_longer_than_it_may_take_to_stop() {
        let mut pacer = Pacer::new(Protocol::Udp, 1.0, Nanos::ZERO);
        assert_eq!(pacer.wait(Nanos::ZERO), None);
        pacer.sent(1_000_000);
        let longest = Duration::from_nanos(LOOK.0.unsigned_abs());
        assert_eq!(pacer.wait(Nanos::from_millis(1)), Some(longest));
    }

    /// Sends 100 bytes a time from one moment to another, with sleeps that end at `wake`; returns how many bytes.
    fn sent(pacer: &mut Pacer, (from, until): (Nanos, Nanos), wake: fn(Nanos) -> Nanos) -> f64 {
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
    fn a_sender_that_was_held_up_does_not_send_it_all_at_once() {
        let late = Nanos::from_secs(5);
        for (protocol, at_once) in [(Protocol::Udp, AT_ONCE), (Protocol::Tcp, LATE)] {
            let mut pacer = Pacer::new(protocol, RATE, Nanos::ZERO);
            let mut bytes = 0;
            while pacer.wait(late).is_none() {
                pacer.sent(100);
                bytes += 100;
            }
            let off = f64::from(bytes) - bytes_of(at_once);
            assert!(off.abs() <= 200.0, "{protocol:?}: {bytes}");
            let soon = sent(&mut pacer, (late, late + LATE.times(10.0)), |at| at);
            let (later, end) = (late + LATE.times(10.0), late + LATE.times(40.0));
            let all = soon + sent(&mut pacer, (later, end), |at| at);
            // It sends a little faster until it has caught up, and not for longer.
            let debt = LATE - at_once;
            if debt > Nanos::ZERO {
                let faster = soon / bytes_of(LATE.times(10.0)) - 1.0;
                assert!((faster - FASTER).abs() < 0.01, "{faster}");
            }
            let off = all - bytes_of(LATE.times(40.0) + debt);
            assert!(off.abs() <= 300.0, "{protocol:?}: {all}");
        }
    }

    /// Where timers end on ticks of 4 ms, each sleep ends late, and what is due by then is sent.
    #[test]
    fn sleeps_that_end_on_ticks_do_not_lower_the_rate() {
        const TICK: i64 = 4_000_000;
        let mut pacer = Pacer::new(Protocol::Udp, RATE, Nanos::ZERO);
        let end = Nanos::from_secs(2);
        let on_tick = |at: Nanos| Nanos((at.0 + TICK - 1) / TICK * TICK);
        let bytes = sent(&mut pacer, (Nanos::ZERO, end), on_tick);
        assert!((bytes / bytes_of(end) - 1.0).abs() < 0.01, "{bytes}");
    }

    /// Held up for 10 ms of every 50, again and again: no more is owed than for one.
    #[test]
    fn the_debt_of_a_sender_that_is_held_up_again_and_again_does_not_grow() {
        let mut pacer = Pacer::new(Protocol::Udp, RATE, Nanos::ZERO);
        for round in 0..20 {
            let begin = Nanos::from_millis(50 * round);
            let held = begin + Nanos::from_millis(40);
            sent(&mut pacer, (begin, held), |at| at);
            assert!(pacer.debt <= LATE, "{:?}", pacer.debt);
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
