//! Replays the datagrams sent to a receiver and the receiver's pauses, but with a buffer of a
//! different size.

use ticktax_model::Nanos;
use ticktax_model::packets::BurstWindow;

/// Up to 1/`CHARGED` of a buffer can have been read yet still be charged. The kernel returns memory
/// in units of a quarter of the buffer, or when the reader has read everything handed to it
/// (`udp_rmem_release` in `net/ipv4/udp.c`).
pub(super) const CHARGED: u64 = 4;

/// Returns whether a buffer with room for `capacity` datagrams would lose any of the datagrams in
/// `course`.
pub(super) fn loses(course: &BurstWindow, capacity: u64) -> bool {
    let mut receiver = Receiver::new(course, capacity);
    sent(course).any(|at| !receiver.accept(at))
}

/// Returns when a course's datagrams were sent. Datagrams are spread evenly over their slot.
fn sent(course: &BurstWindow) -> impl Iterator<Item = Nanos> {
    let slots = (0_i64..).zip(&course.sent);
    slots.flat_map(move |(slot, &sent)| {
        let begin = course.start + Nanos(course.slot.0.saturating_mul(slot));
        let at = move |number| Nanos(course.slot.0.saturating_mul(number) / i64::from(sent));
        (0..i64::from(sent)).map(move |number| begin + at(number))
    })
}

/// Returns whether the receiver could not have kept up even by using all the time outside its
/// pauses.
pub(super) fn is_too_slow(course: &BurstWindow) -> bool {
    let all: i64 = course.sent.iter().map(|&sent| i64::from(sent)).sum();
    let length = course.slot.times(course.sent.len() as f64);
    let paused: Nanos = course.pauses.iter().map(|pause| pause.1 - pause.0).sum();
    course.read.times(all as f64) >= length - paused
}

struct Receiver<'a> {
    pauses: &'a [(Nanos, Nanos)],
    read: Nanos,
    capacity: u64,
    /// Maximum number of datagrams that can have been read yet still be charged to the buffer.
    quarter: u64,
    /// Number of waiting datagrams that the kernel has handed to the reader.
    handed: u64,
    /// Number of waiting datagrams that arrived after the last hand-over to the reader.
    arrived: u64,
    /// Number of datagrams that have been read but are still charged.
    charged: u64,
    /// Time at which the reader can start on the next datagram.
    free: Nanos,
}

impl<'a> Receiver<'a> {
    fn new(course: &'a BurstWindow, capacity: u64) -> Self {
        Self {
            pauses: &course.pauses,
            read: course.read.max(Nanos(1)),
            capacity,
            quarter: capacity.div_ceil(CHARGED).max(1),
            handed: 0,
            arrived: 0,
            charged: 0,
            free: course.start,
        }
    }

    /// Adds a datagram that arrives at `at`. Returns `false` if the buffer is full.
    fn accept(&mut self, at: Nanos) -> bool {
        self.read_until(at);
        let has_room = self.handed + self.arrived + self.charged < self.capacity;
        self.arrived += u64::from(has_room);
        has_room
    }

    fn read_until(&mut self, at: Nanos) {
        while self.handed + self.arrived > 0 {
            let done = self.done();
            if done > at {
                return;
            }
            self.free = done;
            self.read_one();
        }
        self.free = self.free.max(at);
    }

    /// Returns when the next datagram will have been read. Drops pauses that are over.
    fn done(&mut self) -> Nanos {
        let done = self.free + self.read;
        while let Some((&(start, end), later)) = self.pauses.split_first() {
            if end <= self.free {
                self.pauses = later;
            } else if start < done {
                // A pause lasts until the receiver has read a datagram, so this one has been read
                // by the end of the pause.
                return end.max(done);
            } else {
                break;
            }
        }
        done
    }

    fn read_one(&mut self) {
        if self.handed == 0 {
            self.handed = std::mem::take(&mut self.arrived);
        }
        self.handed -= 1;
        self.charged += 1;
        if self.handed == 0 || self.charged >= self.quarter {
            self.charged = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::packets::BurstWindow;

    use super::{Receiver, is_too_slow, loses, sent};

    const US: i64 = 1_000;
    const MS: i64 = 1_000_000;

    /// Builds a course that sends 40 datagrams per millisecond for 200 ms. Each takes `read` ns to
    /// read.
    fn course(read: i64) -> BurstWindow {
        BurstWindow {
            start: Nanos(MS),
            slot: Nanos(100 * US),
            sent: vec![4; 2_000],
            pauses: vec![(Nanos(50 * MS), Nanos(67 * MS))],
            read: Nanos(read),
        }
    }

    fn sum(course: &BurstWindow, capacity: u64) -> u64 {
        let mut receiver = Receiver::new(course, capacity);
        let lost = sent(course).filter(|&at| !receiver.accept(at)).count() as u64;
        assert_eq!(loses(course, capacity), lost > 0);
        lost
    }

    /// At 40 per millisecond, 680 datagrams arrive during a 17 ms stall. The buffer loses those
    /// that exceed its capacity.
    #[test]
    fn a_fast_reader_loses_as_many_as_the_formula_says() {
        let course = self::course(US);
        for capacity in [100_u64, 277, 600, 670] {
            let formula = 680 - capacity + 1;
            // Datagrams arrive at 40 per millisecond while a quarter of the buffer is being read at
            // 1 µs each.
            let more = capacity / 4 * 40 / 1_000;
            let lost = sum(&course, capacity);
            assert!(lost.abs_diff(formula + more) <= 2, "{capacity}: {lost}");
        }
        assert_eq!(sum(&course, 700), 0);
    }

    /// Datagrams that arrive while a quarter of the buffer is being read need room too. If P
    /// datagrams are waiting and the reader is busy for a share ρ of its time, the buffer must hold
    /// B ≥ P + ρ·B/4 datagrams.
    #[test]
    fn a_busy_reader_needs_room_for_what_it_has_read() {
        let course = self::course(20 * US);
        let smallest = (600..1_200).find(|&capacity| sum(&course, capacity) == 0);
        // 680 datagrams are waiting, and the reader is busy 80 % of the time.
        let expected = 680.0 / (1.0 - 0.8 / 4.0);
        let smallest = smallest.unwrap() as f64;
        assert!((smallest - expected).abs() < 6.0, "{smallest} {expected}");
    }

    #[test]
    fn a_sudden_burst_is_lost_even_without_a_pause() {
        let mut course = self::course(US);
        course.pauses.clear();
        assert_eq!(sum(&course, 10), 0);
        course.sent[500] = 400;
        // Within 100 µs, 400 datagrams arrive and 100 are read.
        let lost = sum(&course, 100);
        assert!((200..=230).contains(&lost), "{lost}");
        assert_eq!(sum(&course, 400), 0);
    }

    #[test]
    fn a_reader_slower_than_the_sender_is_too_slow() {
        assert!(!is_too_slow(&course(20 * US)));
        assert!(is_too_slow(&course(25 * US)));
        // Without the pause, 24 µs per datagram would be fast enough.
        assert!(is_too_slow(&course(24 * US)));
    }
}
