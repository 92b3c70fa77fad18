//! A receiver with another buffer that was sent what the real one was, and paused as it did.

use ticktax_model::Nanos;
use ticktax_model::packets::Course;

/// The part of a buffer that may have been read and still be charged: the kernel gives memory back a quarter of the
/// buffer at a time, or when all that it had handed to the reader was read (`udp_rmem_release` in `net/ipv4/udp.c`).
pub(super) const CHARGED: u64 = 4;

/// Whether a buffer that holds `capacity` datagrams loses any of a course.
pub(super) fn loses(course: &Course, capacity: u64) -> bool {
    let mut receiver = Receiver::new(course, capacity);
    sent(course).any(|at| !receiver.comes(at))
}

/// When each datagram of a course was sent: those of a slot evenly over it.
fn sent(course: &Course) -> impl Iterator<Item = Nanos> {
    let slots = (0_i64..).zip(&course.sent);
    slots.flat_map(move |(slot, &sent)| {
        let begin = course.start + Nanos(course.slot.0.saturating_mul(slot));
        let at = move |number| Nanos(course.slot.0.saturating_mul(number) / i64::from(sent));
        (0..i64::from(sent)).map(move |number| begin + at(number))
    })
}

/// Whether the receiver is slower than what comes for all the time that it has.
pub(super) fn is_too_slow(course: &Course) -> bool {
    let all: i64 = course.sent.iter().map(|&sent| i64::from(sent)).sum();
    let length = course.slot.times(course.sent.len() as f64);
    let paused: Nanos = course.pauses.iter().map(|pause| pause.1 - pause.0).sum();
    course.read.times(all as f64) >= length - paused
}

struct Receiver<'a> {
    pauses: &'a [(Nanos, Nanos)],
    read: Nanos,
    capacity: u64,
    /// Datagrams that were read and are still charged, at most.
    quarter: u64,
    /// Datagrams that wait: those that the kernel has handed to the reader, and those that came since.
    handed: u64,
    came: u64,
    /// Those that were read and are still charged.
    charged: u64,
    /// When it has read what it reads, or could begin to.
    free: Nanos,
}

impl<'a> Receiver<'a> {
    fn new(course: &'a Course, capacity: u64) -> Self {
        Self {
            pauses: &course.pauses,
            read: course.read.max(Nanos(1)),
            capacity,
            quarter: capacity.div_ceil(CHARGED).max(1),
            handed: 0,
            came: 0,
            charged: 0,
            free: course.start,
        }
    }

    /// Puts a datagram into the buffer that comes then; false where it is full.
    fn comes(&mut self, at: Nanos) -> bool {
        self.read_until(at);
        let has_room = self.handed + self.came + self.charged < self.capacity;
        self.came += u64::from(has_room);
        has_room
    }

    /// Reads what waits until a time, one after the other.
    fn read_until(&mut self, at: Nanos) {
        while self.handed + self.came > 0 {
            let done = self.done();
            if done > at {
                return;
            }
            self.free = done;
            self.read_one();
        }
        self.free = self.free.max(at);
    }

    /// When the next is read; pauses that lie behind are forgotten.
    fn done(&mut self) -> Nanos {
        let done = self.free + self.read;
        while let Some((&(start, end), later)) = self.pauses.split_first() {
            if end <= self.free {
                self.pauses = later;
            } else if start < done {
                // A pause ends when a datagram was read.
                return end.max(done);
            } else {
                break;
            }
        }
        done
    }

    fn read_one(&mut self) {
        if self.handed == 0 {
            self.handed = std::mem::take(&mut self.came);
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
    use ticktax_model::packets::Course;

    use super::{Receiver, is_too_slow, loses, sent};

    const US: i64 = 1_000;
    const MS: i64 = 1_000_000;

    /// 40 datagrams a ms for 200 ms, read at so much each.
    fn course(read: i64) -> Course {
        Course {
            start: Nanos(MS),
            slot: Nanos(100 * US),
            sent: vec![4; 2_000],
            pauses: vec![(Nanos(50 * MS), Nanos(67 * MS))],
            read: Nanos(read),
        }
    }

    fn sum(course: &Course, capacity: u64) -> u64 {
        let mut receiver = Receiver::new(course, capacity);
        let lost = sent(course).filter(|&at| !receiver.comes(at)).count() as u64;
        assert_eq!(loses(course, capacity), lost > 0);
        lost
    }

    /// A rate of 40 a ms, a stall of 17: 680 less what the buffer holds.
    #[test]
    fn a_reader_that_takes_no_time_loses_what_the_formula_says() {
        let it = course(US);
        for capacity in [100_u64, 277, 600, 670] {
            let formula = 680 - capacity + 1;
            // 1 µs each for a quarter of the buffer, at 40 a ms.
            let more = capacity / 4 * 40 / 1_000;
            let lost = sum(&it, capacity);
            assert!(lost.abs_diff(formula + more) <= 2, "{capacity}: {lost}");
        }
        assert_eq!(sum(&it, 700), 0);
    }

    /// What comes while a quarter of the buffer is read has to fit as well: B ≥ P + ρ·B/4.
    #[test]
    fn a_busy_reader_needs_room_for_what_it_has_read() {
        let it = course(20 * US);
        let smallest = (600..1_200).find(|&capacity| sum(&it, capacity) == 0);
        // 680 waited; the reader is busy for 0.8 of the time.
        let expected = 680.0 / (1.0 - 0.8 / 4.0);
        let smallest = smallest.unwrap() as f64;
        assert!((smallest - expected).abs() < 6.0, "{smallest} {expected}");
    }

    #[test]
    fn what_comes_at_once_is_lost_without_a_pause() {
        let mut it = course(US);
        it.pauses.clear();
        assert_eq!(sum(&it, 10), 0);
        it.sent[500] = 400;
        // 100 µs of reading at 1 µs each while 400 come.
        let lost = sum(&it, 100);
        assert!((200..=230).contains(&lost), "{lost}");
        assert_eq!(sum(&it, 400), 0);
    }

    #[test]
    fn a_reader_that_takes_longer_than_the_sender_is_too_slow() {
        assert!(!is_too_slow(&course(20 * US)));
        assert!(is_too_slow(&course(25 * US)));
        // The pause is not its own slowness.
        assert!(is_too_slow(&course(24 * US)));
    }
}
