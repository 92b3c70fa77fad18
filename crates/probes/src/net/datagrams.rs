//! Numbered datagrams: what each begins with, and which of them arrived.

use ticktax_model::Nanos;
use ticktax_model::net::Datagrams;

/// Bytes that each datagram begins with: whose it is, its number, and when it was sent.
pub(super) const HEADER: u32 = 24;

/// How far a number may be ahead of all before it: what is beyond is not believed, so that a stranger's packet costs
/// no memory. At a million a second this is a minute of nothing but losses.
const FURTHEST: u64 = 1 << 26;

/// The shortest time that stragglers are waited for.
const SHORTEST: Nanos = Nanos::from_millis(200);

/// The longest.
const LONGEST: Nanos = Nanos::from_secs(10);

/// Writes the head of a datagram, which has at least [`HEADER`] bytes.
pub(super) fn write_head(into: &mut [u8], token: u64, number: u64, at: Nanos) {
    into[..8].copy_from_slice(&token.to_le_bytes());
    into[8..16].copy_from_slice(&number.to_le_bytes());
    into[16..24].copy_from_slice(&at.0.to_le_bytes());
}

/// The number and the time of a datagram that begins with this token; `None` of a stranger's.
fn read_head(datagram: &[u8], token: u64) -> Option<(u64, Nanos)> {
    let word = |at: usize| {
        let bytes = datagram.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let time = i64::from_le_bytes(word(16)?.to_le_bytes());
    (word(0)? == token).then_some((word(8)?, Nanos(time)))
}

/// A datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) number: u64,
    /// When it was sent, by the sender's clock.
    pub(super) sent: Nanos,
    /// Whether it had arrived before.
    pub(super) is_again: bool,
    /// Whether one with a higher number had.
    pub(super) is_late: bool,
}

/// Which datagrams arrived.
#[derive(Debug)]
pub(super) struct Arrivals {
    token: u64,
    /// A bit for each number.
    seen: Vec<u64>,
    /// One above the highest number.
    next: u64,
    counts: Datagrams,
    /// By how much the receiver's clock is ahead of the sender's, at least, with the delay in it: of the fastest
    /// datagram, and of the slowest.
    delays: Option<(Nanos, Nanos)>,
}

impl Arrivals {
    pub(super) fn of(token: u64) -> Self {
        Self {
            token,
            seen: Vec::new(),
            next: 0,
            counts: Datagrams::default(),
            delays: None,
        }
    }

    /// Takes a datagram that arrived at this time; false where it is a stranger's.
    pub(super) fn take(&mut self, datagram: &[u8], at: Nanos) -> bool {
        self.note(datagram, at).is_some()
    }

    /// The same, and what it was; `None` where it is a stranger's.
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

    /// Whether a datagram is one of these, and has not arrived.
    pub(super) fn is_new(&self, datagram: &[u8]) -> bool {
        let Some((number, _)) = read_head(datagram, self.token) else {
            return false;
        };
        let word = usize::try_from(number / 64).unwrap_or(usize::MAX);
        let seen = self.seen.get(word).copied().unwrap_or_default();
        seen & (1 << (number % 64)) == 0
    }

    /// Whether all of so many are there.
    pub(super) fn has_all(&self, sent: u64) -> bool {
        self.counts.arrived >= sent
    }

    /// How long nothing has to come before what is missing counts as lost: well above the longest delay seen. Clocks
    /// of two hosts may differ by anything: what is known there is by how much the delays differ.
    pub(super) fn grace(&self) -> Nanos {
        let spread = self
            .delays
            .map_or(Nanos::ZERO, |(min, max)| Nanos(max.0.saturating_sub(min.0)));
        (SHORTEST + spread.min(LONGEST).times(2.0)).min(LONGEST)
    }

    /// What became of all that were sent.
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
    fn gaps_repeats_and_late_ones_are_told_apart() {
        let mut arrivals = Arrivals::of(TOKEN);
        for number in [0, 1, 4, 3, 3, 6] {
            assert!(arrivals.take(&datagram(number, 0), Nanos(10)));
        }
        let told = arrivals.finish(Some(8), Nanos::ZERO);
        assert_eq!((told.arrived, told.duplicates, told.reordered), (5, 1, 1));
        assert_eq!(told.lost(), Some(3));
        assert!(arrivals.has_all(5) && !arrivals.has_all(6));
    }

    #[test]
    fn a_strangers_datagram_is_not_counted_and_costs_no_memory() {
        let mut arrivals = Arrivals::of(TOKEN);
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
    fn stragglers_are_waited_for_longer_where_delays_differ() {
        let mut arrivals = Arrivals::of(TOKEN);
        assert_eq!(arrivals.grace(), SHORTEST);
        // The receiver's clock is an hour behind: only the difference of 300 ms counts.
        let hour = 3_600_000_000_000;
        arrivals.take(&datagram(0, hour), Nanos(0));
        arrivals.take(&datagram(1, hour), Nanos(300_000_000));
        assert_eq!(arrivals.grace(), SHORTEST + Nanos::from_millis(600));
        // No clock, however strange, makes a receiver wait for ever, or panics.
        arrivals.take(&datagram(2, i64::MIN), Nanos(1));
        assert!(arrivals.grace() <= Nanos::from_secs(10));
    }
}
