//! Numbered datagrams: their header, and a record of those that arrived.

use ticktax_model::Nanos;
use ticktax_model::net::Datagrams;

/// Size of the header, in bytes. It consists of the sender's token, the datagram's number and the
/// time of sending, with 8 bytes each.
pub(super) const HEADER: u32 = 24;

/// Maximum distance of a datagram's number from the highest so far. A datagram with a higher number
/// is rejected, so that a stray packet cannot exhaust the memory. At a million datagrams per
/// second, a sender takes a minute to send this many.
const FURTHEST: u64 = 1 << 26;

/// Minimum time to wait for datagrams that have not arrived when the sender finishes.
const SHORTEST: Nanos = Nanos::from_millis(200);

/// Maximum time to wait for datagrams that have not arrived when the sender finishes.
const LONGEST: Nanos = Nanos::from_secs(10);

/// Writes the header of a datagram to `into`, which must have at least [`HEADER`] bytes.
pub(super) fn write_head(into: &mut [u8], token: u64, number: u64, at: Nanos) {
    into[..8].copy_from_slice(&token.to_le_bytes());
    into[8..16].copy_from_slice(&number.to_le_bytes());
    into[16..24].copy_from_slice(&at.0.to_le_bytes());
}

/// Returns the datagram's number and when it was sent. Returns `None` if the datagram has a
/// different token.
fn read_head(datagram: &[u8], token: u64) -> Option<(u64, Nanos)> {
    let word = |at: usize| {
        let bytes = datagram.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let time = i64::from_le_bytes(word(16)?.to_le_bytes());
    (word(0)? == token).then_some((word(8)?, Nanos(time)))
}

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) number: u64,
    /// When the datagram was sent, on the sender's clock.
    pub(super) sent: Nanos,
    /// Whether the same datagram had already arrived.
    pub(super) is_again: bool,
    /// Whether a datagram with a higher number had already arrived.
    pub(super) is_late: bool,
}

/// Record of the datagrams that arrived.
#[derive(Debug)]
pub(super) struct Arrivals {
    token: u64,
    /// One bit per number, set if that datagram has arrived.
    seen: Vec<u64>,
    /// The highest number so far, plus 1.
    next: u64,
    counts: Datagrams,
    /// Shortest and longest delay so far. Both include the offset between the clocks of the two
    /// ends.
    delays: Option<(Nanos, Nanos)>,
}

impl Arrivals {
    pub(super) fn new(token: u64) -> Self {
        Self {
            token,
            seen: Vec::new(),
            next: 0,
            counts: Datagrams::default(),
            delays: None,
        }
    }

    /// Records a datagram that arrived at `at`. Returns `false` if the datagram is not from this
    /// sender.
    pub(super) fn take(&mut self, datagram: &[u8], at: Nanos) -> bool {
        self.note(datagram, at).is_some()
    }

    /// Same as [`Arrivals::take`], but returns details of the arrival, or `None` if the datagram is
    /// not from this sender.
    pub(super) fn note(&mut self, datagram: &[u8], at: Nanos) -> Option<Arrival> {
        let (number, sent) = read_head(datagram, self.token)?;
        let furthest = self.next.checked_add(FURTHEST)?;
        let word = usize::try_from(number / 64).ok()?;
        if number >= furthest {
            return None;
        }
        let mut arrival = Arrival {
            number,
            sent,
            is_again: false,
            is_late: false,
        };
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        let bit = 1 << (number % 64);
        if self.seen[word] & bit != 0 {
            self.counts.duplicates += 1;
            arrival.is_again = true;
            return Some(arrival);
        }
        self.seen[word] |= bit;
        self.counts.arrived += 1;
        if number < self.next {
            self.counts.reordered += 1;
            arrival.is_late = true;
        } else {
            self.next = number + 1;
        }
        let delay = Nanos(at.0.wrapping_sub(sent.0));
        let (min, max) = self.delays.unwrap_or((delay, delay));
        self.delays = Some((min.min(delay), max.max(delay)));
        Some(arrival)
    }

    /// Returns whether a datagram has this sender's token and has not arrived before.
    pub(super) fn is_new(&self, datagram: &[u8]) -> bool {
        let Some((number, _)) = read_head(datagram, self.token) else {
            return false;
        };
        let word = usize::try_from(number / 64).unwrap_or(usize::MAX);
        let seen = self.seen.get(word).copied().unwrap_or_default();
        seen & (1 << (number % 64)) == 0
    }

    /// Returns whether at least `sent` datagrams have arrived.
    pub(super) fn has_all(&self, sent: u64) -> bool {
        self.counts.arrived >= sent
    }

    /// Returns how long to wait for missing datagrams before they count as lost: much longer than
    /// the difference between the longest and the shortest delay so far. The delays themselves
    /// don't matter, because the clocks of two hosts can differ by any amount.
    pub(super) fn grace(&self) -> Nanos {
        let spread = self
            .delays
            .map_or(Nanos::ZERO, |(min, max)| Nanos(max.0.saturating_sub(min.0)));
        (SHORTEST + spread.min(LONGEST).times(2.0)).min(LONGEST)
    }

    /// Returns the totals. `sent` is how many datagrams were sent, if known. `drained` is how long
    /// the receiver waited for missing datagrams after the sender had finished.
    pub(super) fn finish(&self, sent: Option<u64>, drained: Nanos) -> Datagrams {
        Datagrams {
            sent,
            drained,
            ..self.counts
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Arrivals, FURTHEST, HEADER, SHORTEST, write_head};

    const TOKEN: u64 = 0x5ca1_ab1e;

    fn datagram(number: u64, at: i64) -> Vec<u8> {
        let mut bytes = vec![0; HEADER as usize];
        write_head(&mut bytes, TOKEN, number, Nanos(at));
        bytes
    }

    #[test]
    fn losses_duplicates_and_reordered_datagrams_are_counted() {
        let mut arrivals = Arrivals::new(TOKEN);
        for number in [0, 1, 4, 3, 3, 6] {
            assert!(arrivals.take(&datagram(number, 0), Nanos(10)));
        }
        let counts = arrivals.finish(Some(8), Nanos::ZERO);
        assert_eq!(
            (counts.arrived, counts.duplicates, counts.reordered),
            (5, 1, 1)
        );
        assert_eq!(counts.lost(), Some(3));
        assert!(arrivals.has_all(5) && !arrivals.has_all(6));
    }

    #[test]
    fn a_strangers_datagram_is_ignored_and_costs_no_memory() {
        let mut arrivals = Arrivals::new(TOKEN);
        assert!(!arrivals.take(b"hello", Nanos::ZERO));
        let mut strange = datagram(0, 0);
        strange[0] ^= 1;
        assert!(!arrivals.take(&strange, Nanos::ZERO));
        for number in [FURTHEST, u64::MAX] {
            assert!(!arrivals.take(&datagram(number, 0), Nanos::ZERO));
        }
        assert_eq!(arrivals.finish(None, Nanos::ZERO).arrived, 0);
        assert!(arrivals.seen.is_empty());
    }

    #[test]
    fn the_wait_for_stragglers_grows_with_the_spread_of_delays() {
        let mut arrivals = Arrivals::new(TOKEN);
        assert_eq!(arrivals.grace(), SHORTEST);
        // The receiver's clock is an hour behind the sender's. Only the 300 ms between the two
        // delays may count.
        let hour = 3_600_000_000_000;
        arrivals.take(&datagram(0, hour), Nanos(0));
        arrivals.take(&datagram(1, hour), Nanos(300_000_000));
        assert_eq!(arrivals.grace(), SHORTEST + Nanos::from_millis(600));
        // No send time may cause a panic or an overlong wait.
        arrivals.take(&datagram(2, i64::MIN), Nanos(1));
        assert!(arrivals.grace() <= Nanos::from_secs(10));
    }
}
