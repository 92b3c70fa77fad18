//! A receiver's log of datagrams: missing ones, when they were sent, and when the receiver paused.
//!
//! # Which pause belongs to a loss
//! A datagram that finds the socket's buffer full is lost at the moment it arrives. The cause of
//! the full buffer is the pause in which it arrives: the time between two reads during which
//! datagrams were waiting. Each read therefore records how long datagrams had been waiting. A burst
//! of losses is assigned the pause during which its first datagram was sent, if there is one.
//! Between two hosts, times of sending are converted to the receiver's clock with the shortest
//! delay seen.
//!
//! A burst lasts until the receiver has read everything that was waiting. Until then, all losses
//! belong to the same pause.

mod course;
mod lost;

use std::collections::VecDeque;

use ticktax_model::packets::{LossBurst, PacketLog, Pause, SocketBuffer, TimeSlot};
use ticktax_model::{Histogram, Lengths, Nanos};

use super::datagrams::Arrivals;
use super::departures::{Departure, between};
use course::Courses;
use lost::SenderTimes;

/// Shortest time between two reads that counts as a pause.
const PAUSE: Nanos = Nanos::from_micros(50);

/// Maximum number of pauses kept. A burst is only noticed after the buffer that filled during its
/// pause has been read.
const PAUSES: usize = 1 << 12;

/// Maximum number of gaps in the sequence, 48 bytes each, and of bursts.
const GAPS: usize = 1 << 18;

/// If the times of sending in a gap are uncertain by more than this, the sender is asked.
const UNSURE: Nanos = Nanos::from_micros(200);

/// Maximum number of gaps that the sender is asked about.
const ASKED: usize = 1 << 12;

/// Maximum number of time slots.
const SLOTS: i64 = 60;

/// Shortest slot.
const SHORTEST_SLOT: Nanos = Nanos::from_millis(1);

/// Bound for all clock readings: 73 years.
const LATEST: Nanos = Nanos(1 << 61);

/// The p99 is reported from this number of delays on (95 % confidence).
const MIN_FOR_P99: u64 = 299;

/// A datagram that was read.
#[derive(Clone, Copy, Debug)]
struct Read {
    number: u64,
    /// When it was sent, by the sender's clock.
    sent: Nanos,
    /// When it was read, by the receiver's clock.
    at: Nanos,
    /// The socket's drop count when this datagram entered the buffer.
    drops: u32,
}

/// A time between two reads during which datagrams were waiting.
#[derive(Clone, Copy, Debug)]
struct Paused {
    start: Nanos,
    end: Nanos,
    /// Number of the datagram read at its end.
    number: u64,
    /// Whether datagrams were lost during it.
    has_lost: bool,
}

/// Missing numbers, from `first` up to but excluding `end`.
#[derive(Clone, Copy, Debug)]
struct Gap {
    first: u64,
    end: u64,
    /// When the first and the last were sent, by the sender's clock, interpolated from their
    /// neighbours.
    sent: (Nanos, Nanos),
    burst: usize,
    /// Whether one of them arrived late after all.
    has_late: bool,
    /// Whether the burst's pause ended between the sending of the datagrams before and after the
    /// gap.
    ends_pause: bool,
}

/// A receiver's log.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) arrivals: Arrivals,
    buffer: SocketBuffer,
    /// Whether both ends read the same clock.
    same_clock: bool,
    first_sent: Option<Nanos>,
    /// The last datagram in order.
    last: Option<Read>,
    /// When the last read of any datagram returned.
    read_at: Option<Nanos>,
    /// The shortest delay, which may span two clocks.
    shortest: Nanos,
    /// The latest pauses.
    pauses: VecDeque<Paused>,
    /// The longest earlier pause without losses.
    other_pause: Nanos,
    /// Whether new losses belong to the last burst: the waiting datagrams have not all been read
    /// since.
    open: bool,
    /// Whether the buffer was empty at some moment since the last read, in order or not.
    was_empty: bool,
    gaps: Vec<Gap>,
    departures: SenderTimes,
    bursts: Vec<LossBurst>,
    not_kept: u64,
    courses: Courses,
    delays: Histogram,
    longest: Nanos,
    slot: Nanos,
    slots: Vec<TimeSlot>,
}

impl Log {
    /// An empty log for datagrams that arrive at a rate for a length of time.
    pub(super) fn new(
        arrivals: Arrivals,
        (length, rate_hz): (Nanos, Option<f64>),
        same_clock: bool,
        buffer: SocketBuffer,
    ) -> Self {
        Self {
            arrivals,
            buffer,
            same_clock,
            first_sent: None,
            last: None,
            read_at: None,
            shortest: Nanos(i64::MAX),
            pauses: VecDeque::new(),
            other_pause: Nanos::ZERO,
            open: false,
            was_empty: false,
            gaps: Vec::new(),
            departures: SenderTimes::default(),
            bursts: Vec::new(),
            not_kept: 0,
            courses: Courses::new(rate_hz),
            delays: Histogram::default(),
            longest: Nanos::ZERO,
            slot: Nanos(length.0 / SLOTS).max(SHORTEST_SLOT),
            slots: Vec::new(),
        }
    }

    /// Notes that no datagram is waiting.
    pub(super) fn is_empty_now(&mut self) {
        self.open = false;
        self.was_empty = true;
    }

    /// Records a datagram read at this time, with the socket's drop count; false if it is a
    /// stranger's.
    pub(super) fn take(&mut self, datagram: &[u8], at: Nanos, drops: Option<u32>) -> bool {
        let was_empty = std::mem::take(&mut self.was_empty);
        let Some(arrival) = self.arrivals.note(datagram, at) else {
            return false;
        };
        // Clamped, so that implausible clock readings cannot overflow a difference of two times.
        let sent = Nanos(arrival.sent.0.clamp(-LATEST.0, LATEST.0));
        let number = arrival.number;
        let delay = at - sent;
        self.shortest = self.shortest.min(delay);
        let came = self.on_own_clock(sent);
        if let Some(before) = self.read_at.replace(at) {
            self.paused(before.max(came), at, number);
            self.courses.idle((came - before).max(Nanos::ZERO));
            if came < before && at - before < PAUSE {
                self.courses.read(at - before);
            }
        }
        if arrival.is_again {
            return true;
        }
        self.first_sent.get_or_insert(sent);
        let base = if self.same_clock {
            Nanos::ZERO
        } else {
            self.shortest
        };
        let delay = (delay - base).max(Nanos::ZERO);
        self.delays.record(delay);
        self.longest = self.longest.max(delay);
        let slot = self.slot_at(sent);
        slot.arrived += 1;
        slot.delay_max = slot.delay_max.max(delay);
        if arrival.is_late {
            self.came_late(number);
            return true;
        }
        let read = Read {
            number,
            sent,
            at,
            // The kernel omits the count until the first drop.
            drops: drops.unwrap_or_else(|| self.last.map_or(0, |last| last.drops)),
        };
        if let Some(last) = self.last {
            if number > last.number + 1 {
                self.gap(last, read);
                // If the buffer was empty since, this loss is only noticed now but happened before,
                // so the burst has ended.
                self.open = !was_empty;
            }
            self.settle(last, read);
        } else if number > 0 {
            let none = Read {
                number: 0,
                drops: 0,
                ..read
            };
            self.lose((0, number), (none, read));
        }
        self.courses.sent(came);
        self.last = Some(read);
        if !self.open && self.courses.is_done() {
            self.end_course();
        }
        true
    }

    /// Records that nothing was read between two moments, and that the second read returned
    /// `number`.
    fn paused(&mut self, start: Nanos, end: Nanos, number: u64) {
        if end - start < PAUSE {
            return;
        }
        if self.pauses.len() >= PAUSES {
            self.forget_a_pause();
        }
        self.pauses.push_back(Paused {
            start,
            end,
            number,
            has_lost: false,
        });
    }

    fn forget_a_pause(&mut self) {
        if let Some(pause) = self.pauses.pop_front().filter(|pause| !pause.has_lost) {
            self.other_pause = self.other_pause.max(pause.end - pause.start);
        }
    }

    fn end_course(&mut self) {
        let pauses = self.pauses.iter().map(|pause| (pause.start, pause.end));
        self.courses.end(pauses);
    }

    fn gap(&mut self, last: Read, read: Read) {
        self.lose((last.number + 1, read.number), (last, read));
    }

    /// Records missing numbers that lie between two datagrams that arrived.
    fn lose(&mut self, (first, end): (u64, u64), (before, after): (Read, Read)) {
        let ends = ((before.number, before.sent), (after.number, after.sent));
        let sent = (
            between(ends.0, ends.1, first),
            between(ends.0, ends.1, end - 1),
        );
        let lost = end - first;
        let drops = u64::from(after.drops.wrapping_sub(before.drops));
        if self.gaps.len() >= GAPS {
            self.not_kept += lost;
            self.courses.give_up();
            return;
        }
        let came = (self.on_own_clock(sent.0), self.on_own_clock(sent.1));
        let pause = self.pause_at(came.0, first);
        self.courses.reach(came.1);
        let since = pause.map_or(came.0, |pause| pause.start);
        self.courses.lose(lost, since);
        let same = self.bursts.last().filter(|_| self.open);
        let is_same = same.is_some_and(|burst| match (pause, burst.pause) {
            (Some(pause), Some(burst_pause)) => pause.start == burst_pause.start,
            (Some(_), None) => false,
            (None, _) => true,
        });
        if !is_same {
            self.bursts.push(LossBurst {
                first,
                lost: 0,
                in_socket: 0,
                at: sent.0 - self.first_sent.unwrap_or(sent.0),
                lost_at: came.0,
                pause,
            });
        }
        self.open = true;
        let burst = self.bursts.len() - 1;
        self.bursts[burst].lost += lost;
        self.bursts[burst].in_socket += drops.min(lost);
        self.gaps.push(Gap {
            first,
            end,
            sent,
            burst,
            has_late: false,
            ends_pause: false,
        });
    }

    /// The pause that contains a moment of the receiver's clock, at which the number `first` was
    /// lost.
    fn pause_at(&mut self, moment: Nanos, first: u64) -> Option<Pause> {
        let place = self.pauses.partition_point(|pause| pause.end < moment);
        let pauses = self.pauses.get_mut(place);
        let pause = pauses.filter(|pause| pause.start <= moment)?;
        pause.has_lost = true;
        Some(Pause {
            start: pause.start,
            end: pause.end,
            queued: first.saturating_sub(pause.number),
            sent: None,
        })
    }

    /// Computes how many datagrams had been sent by the end of the last burst's pause, once a
    /// datagram sent after it has arrived.
    fn settle(&mut self, last: Read, read: Read) {
        let reached = self.on_own_clock(read.sent);
        let from = self.on_own_clock(last.sent);
        let Some(burst) = self.bursts.last_mut() else {
            return;
        };
        let Some(pause) = burst.pause.as_mut().filter(|pause| pause.sent.is_none()) else {
            return;
        };
        if reached < pause.end {
            return;
        }
        let waiting_from = burst.first - pause.queued;
        let part = (pause.end - from).share_of(reached - from).clamp(0.0, 1.0);
        let numbers = (read.number - last.number) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the result lies between two datagram numbers"
        )]
        let sent = last.number + (part * numbers).floor() as u64 + 1;
        pause.sent = Some(sent.saturating_sub(waiting_from));
        if let Some(gap) = self.gaps.last_mut() {
            gap.ends_pause |= gap.first == last.number + 1;
        }
    }

    /// Records that a missing datagram has arrived after all.
    fn came_late(&mut self, number: u64) {
        let place = self.gaps.partition_point(|gap| gap.end <= number);
        match self.gaps.get_mut(place).filter(|gap| gap.first <= number) {
            Some(gap) => {
                gap.has_late = true;
                let ends = ((gap.first, gap.sent.0), (gap.end - 1, gap.sent.1));
                let burst = &mut self.bursts[gap.burst];
                burst.lost -= 1;
                burst.in_socket = burst.in_socket.min(burst.lost);
                // Its slot will count the loss when the gap is booked at the end.
                let slot = self.slot_at(between(ends.0, ends.1, number));
                slot.lost = slot.lost.wrapping_sub(1);
            }
            None => self.not_kept = self.not_kept.saturating_sub(1),
        }
    }

    /// Converts a time of sending to the receiver's clock.
    fn on_own_clock(&self, sent: Nanos) -> Nanos {
        if self.same_clock {
            return sent;
        }
        sent + self.shortest
    }

    fn slot_at(&mut self, sent: Nanos) -> &mut TimeSlot {
        let since = sent - self.first_sent.unwrap_or(sent);
        // The last slot also takes stragglers and implausible times.
        let place = (since.0 / self.slot.0).clamp(0, SLOTS - 1);
        let place = usize::try_from(place).unwrap_or(0);
        if place >= self.slots.len() {
            self.slots.resize(place + 1, TimeSlot::default());
        }
        &mut self.slots[place]
    }

    /// Ends the log. Datagrams sent after the last one that arrived are missing too.
    pub(super) fn end(&mut self, sent: Option<u64>, socket_drops: u64) {
        let next = self.last.map_or(0, |last| last.number + 1);
        if let (Some(sent), Some(last)) = (sent.filter(|&sent| sent > next), self.last) {
            let begun = self.first_sent.unwrap_or(last.sent);
            let each = i64::try_from(last.number.max(1)).unwrap_or(i64::MAX);
            let each = Nanos((last.sent - begun).0 / each);
            let after = Read {
                number: sent,
                sent: last.sent + each.times((sent - last.number) as f64).min(LATEST),
                at: last.at,
                drops: u32::try_from(socket_drops)
                    .unwrap_or(u32::MAX)
                    .max(last.drops),
            };
            self.open = false;
            self.lose((next, sent), (last, after));
            // No datagram was sent after it.
            if let Some(gap) = self.gaps.last_mut().filter(|gap| gap.first == next) {
                gap.ends_pause = true;
            }
        } else if let (Some(sent), None) = (sent.filter(|&sent| sent > 0), self.last) {
            self.not_kept += sent;
        }
        self.end_course();
    }

    /// Gaps with times of sending that only the sender knows, each as first number and end.
    pub(super) fn unsure(&self) -> Vec<(u64, u64)> {
        let unsure = |gap: &&Gap| gap.sent.1 - gap.sent.0 > UNSURE && !gap.has_late;
        let gaps = self.gaps.iter().filter(unsure).take(ASKED);
        gaps.map(|gap| (gap.first, gap.end)).collect()
    }

    /// Takes the sender's answer about when the datagrams of a gap were sent.
    pub(super) fn departed(&mut self, gap: (u64, u64), answer: &[Departure]) {
        if !self.departures.take(gap, answer) {
            return;
        }
        let place = self.gaps.partition_point(|known| known.first < gap.0);
        let Some(&gap) = self.gaps.get(place) else {
            return;
        };
        let known = self.departures.of_gap(&gap);
        let came: Vec<Departure> = known
            .iter()
            .map(|&(number, sent)| (number, self.on_own_clock(sent)))
            .collect();
        let begun = self.first_sent.unwrap_or_default();
        let burst = &mut self.bursts[gap.burst];
        if gap.first == burst.first {
            (burst.at, burst.lost_at) = (known[0].1 - begun, came[0].1);
        }
        if let Some(pause) = &mut burst.pause {
            // If the pause ended within the gap, all of it may have been sent earlier.
            let is_before = gap.ends_pause && came[0].1 <= pause.end;
            let last = lost::last_by(&came, pause.end).or(is_before.then_some(gap.end - 1));
            if let Some(last) = last {
                let waiting_from = burst.first - pause.queued;
                pause.sent = Some((last + 1).saturating_sub(waiting_from));
            }
        }
    }

    /// The complete log, given the numbers of datagrams that the socket dropped and that were never
    /// read.
    pub(super) fn finish(mut self, socket_drops: u64, never_read: u64) -> PacketLog {
        while !self.pauses.is_empty() {
            self.forget_a_pause();
        }
        for gap in std::mem::take(&mut self.gaps) {
            for sent in lost::each(&self.departures.of_gap(&gap)) {
                let slot = self.slot_at(sent);
                slot.lost = slot.lost.wrapping_add(1);
                let came = self.on_own_clock(sent);
                self.courses.never_came(came);
            }
        }
        self.bursts.retain(|burst| burst.lost > 0);
        let (courses, is_course_missing) = self.courses.finish();
        PacketLog {
            buffer: self.buffer,
            bursts: self.bursts,
            not_kept: self.not_kept,
            courses,
            is_course_missing,
            other_pause: self.other_pause,
            socket_drops,
            never_read,
            delays: lengths(&self.delays, self.longest).filter(|_| self.same_clock),
            by_time: self.slots,
            slot: self.slot,
        }
    }
}

fn lengths(delays: &Histogram, longest: Nanos) -> Option<Lengths> {
    Some(Lengths {
        median: delays.quantile(0.5)?.min(longest),
        p99: delays
            .quantile(0.99)
            .filter(|_| delays.total() >= MIN_FOR_P99)
            .map(|p99| p99.min(longest)),
        max: longest,
    })
}

#[cfg(test)]
mod tests;
