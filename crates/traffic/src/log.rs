//! A receiver's log of datagrams: which are missing, when they were sent, and when the receiver
//! paused.
//!
//! # Which pause caused a loss
//!
//! A datagram is lost when it arrives at a full socket buffer. The buffer fills up during a pause,
//! which is a time between two reads in which datagrams were waiting. That is why the log records,
//! for each read, how long datagrams had been waiting. A burst of losses is attributed to the pause
//! in which the first lost datagram was sent, if there was such a pause. If the ends are on two
//! hosts, send times are converted to the receiver's clock by adding the shortest delay so far.
//!
//! A burst lasts until the receiver has read everything that was waiting. All losses in a burst
//! have the same cause.

mod course;
mod lost;

use std::collections::VecDeque;

use ticktax_model::packets::{LossBurst, PacketLog, Pause, SocketBuffer, TimeSlot};
use ticktax_model::{Histogram, Lengths, Nanos};

use super::datagrams::Arrivals;
use super::departures::{Departure, between};
use course::Courses;
use lost::SenderTimes;

/// Shortest time between two reads that counts as a pause if datagrams were waiting.
const PAUSE: Nanos = Nanos::from_micros(50);

/// Number of recent pauses to remember. Several are needed because the receiver notices a burst of
/// losses only after it has read all the datagrams in the full buffer.
const PAUSES: usize = 1 << 12;

/// Maximum number of gaps (ranges of missing numbers) to store, and of bursts. Each gap takes 48
/// bytes.
const GAPS: usize = 1 << 18;

/// Maximum uncertainty about when a gap's datagrams were sent. If the uncertainty is larger, the
/// receiver asks the sender.
const UNSURE: Nanos = Nanos::from_micros(200);

/// Maximum number of gaps that the receiver asks the sender about.
const ASKED: usize = 1 << 12;

/// Maximum number of slots. Slots divide the length of the traffic into equal parts.
const SLOTS: i64 = 60;

/// Minimum length of a slot, even if there are then fewer than [`SLOTS`] slots.
const SHORTEST_SLOT: Nanos = Nanos::from_millis(1);

/// Limit for the absolute value of clock readings: 73 years. Readings beyond it are clamped.
const LATEST: Nanos = Nanos(1 << 61);

/// Minimum number of delays needed to report their 99th percentile with 95 % confidence.
const MIN_FOR_P99: u64 = 299;

/// A datagram that was read from the socket.
#[derive(Clone, Copy, Debug)]
struct Read {
    number: u64,
    /// When it was sent, on the sender's clock.
    sent: Nanos,
    /// When it was read, on the receiver's clock.
    at: Nanos,
    /// Number of datagrams that the socket had dropped by the time this one entered the buffer.
    drops: u32,
}

/// A time between two reads in which datagrams were waiting.
#[derive(Clone, Copy, Debug)]
struct Paused {
    start: Nanos,
    end: Nanos,
    /// Number of the datagram read at the end of the pause.
    number: u64,
    /// Whether any datagrams were lost in the pause.
    has_lost: bool,
}

/// A range of missing numbers, from `first` to `end` (exclusive).
#[derive(Clone, Copy, Debug)]
struct Gap {
    first: u64,
    end: u64,
    /// When the gap's first and last datagrams were sent, on the sender's clock. Both times are
    /// interpolated between the datagram before the gap and the one after it.
    sent: (Nanos, Nanos),
    burst: usize,
    /// Whether a datagram in the gap did arrive after all, only late.
    has_late: bool,
    /// Whether the pause that caused the burst ended within this gap, that is, between the sending
    /// of the datagram before the gap and that of the datagram after it.
    ends_pause: bool,
}

/// A receiver's log of datagrams.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) arrivals: Arrivals,
    buffer: SocketBuffer,
    /// Whether both ends read the same clock.
    same_clock: bool,
    first_sent: Option<Nanos>,
    /// The datagram with the highest number so far.
    last: Option<Read>,
    /// When any datagram was last read.
    read_at: Option<Nanos>,
    /// Shortest delay so far. If the ends read different clocks, it includes the offset between
    /// these.
    shortest: Nanos,
    /// Recent pauses.
    pauses: VecDeque<Paused>,
    /// The longest pause without losses among those already removed from `pauses`.
    other_pause: Nanos,
    /// Whether new losses belong to the last burst. They do until the receiver has read all the
    /// datagrams that were waiting.
    open: bool,
    /// Whether the buffer has been empty at any time since the last datagram was read.
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
    /// Creates a log for traffic of this length and rate. A rate of `None` means full speed.
    pub(super) fn new(
        arrivals: Arrivals,
        length: Nanos,
        rate_hz: Option<f64>,
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

    /// Records that no datagrams are waiting in the buffer.
    pub(super) fn is_empty_now(&mut self) {
        self.open = false;
        self.was_empty = true;
    }

    /// Records a datagram that was read at `at`. `drops` is how many datagrams the socket had
    /// dropped by the time this one arrived. Returns `false` if the datagram is not from this
    /// sender.
    pub(super) fn take(&mut self, datagram: &[u8], at: Nanos, drops: Option<u32>) -> bool {
        let was_empty = std::mem::take(&mut self.was_empty);
        let Some(arrival) = self.arrivals.note(datagram, at) else {
            return false;
        };
        // Clamp the time so that differences cannot overflow, no matter how wrong the clock is.
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
            // The kernel doesn't report the count until the socket has dropped a datagram. Until
            // then, use the previous datagram's count, or 0 for the first datagram.
            drops: drops.unwrap_or_else(|| self.last.map_or(0, |last| last.drops)),
        };
        if let Some(last) = self.last {
            if number > last.number + 1 {
                self.gap(last, read);
                // If the buffer was empty at some point since the last read, these losses occurred
                // before that and have only now become visible. Their burst is therefore over.
                self.open = !was_empty;
            }
            self.settle(last, read);
        } else if number > 0 {
            let none = Read {
                number: 0,
                drops: 0,
                ..read
            };
            self.lose(0, number, none, read);
        }
        self.courses.sent(came);
        self.last = Some(read);
        if !self.open && self.courses.is_done() {
            self.end_course();
        }
        true
    }

    /// Records that nothing was read from `start` to `end` even though datagrams were waiting. The
    /// read at `end` returned the datagram `number`.
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
        self.lose(last.number + 1, read.number, last, read);
    }

    /// Records that the datagrams from `first` to `end` (exclusive) are missing. They were sent
    /// between `before` and `after`.
    fn lose(&mut self, first: u64, end: u64, before: Read, after: Read) {
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
                socket_drops: 0,
                at: sent.0 - self.first_sent.unwrap_or(sent.0),
                lost_at: came.0,
                pause,
            });
        }
        self.open = true;
        let burst = self.bursts.len() - 1;
        self.bursts[burst].lost += lost;
        self.bursts[burst].socket_drops += drops.min(lost);
        self.gaps.push(Gap {
            first,
            end,
            sent,
            burst,
            has_late: false,
            ends_pause: false,
        });
    }

    /// Returns the pause in which the datagram `first` was lost, at `moment` on the receiver's
    /// clock. Returns `None` if the receiver was not pausing at that time.
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

    /// Determines how many datagrams were sent up to the end of the pause that caused the last
    /// burst. This is known once a datagram sent after the pause has arrived.
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

    /// Records that a datagram counted as missing has arrived late.
    fn came_late(&mut self, number: u64) {
        let place = self.gaps.partition_point(|gap| gap.end <= number);
        match self.gaps.get_mut(place).filter(|gap| gap.first <= number) {
            Some(gap) => {
                gap.has_late = true;
                let ends = ((gap.first, gap.sent.0), (gap.end - 1, gap.sent.1));
                let burst = &mut self.bursts[gap.burst];
                burst.lost -= 1;
                burst.socket_drops = burst.socket_drops.min(burst.lost);
                // When the log ends, all of the gap's datagrams are counted as lost in their slots.
                // Subtract this one in advance.
                let slot = self.slot_at(between(ends.0, ends.1, number));
                slot.lost = slot.lost.wrapping_sub(1);
            }
            None => self.not_kept = self.not_kept.saturating_sub(1),
        }
    }

    /// Converts a send time to the receiver's clock.
    fn on_own_clock(&self, sent: Nanos) -> Nanos {
        if self.same_clock {
            return sent;
        }
        sent + self.shortest
    }

    fn slot_at(&mut self, sent: Nanos) -> &mut TimeSlot {
        let since = sent - self.first_sent.unwrap_or(sent);
        // The last slot also counts datagrams with send times after the end of the traffic,
        // including absurd ones.
        let place = (since.0 / self.slot.0).clamp(0, SLOTS - 1);
        let place = usize::try_from(place).unwrap_or(0);
        if place >= self.slots.len() {
            self.slots.resize(place + 1, TimeSlot::default());
        }
        &mut self.slots[place]
    }

    /// Ends the log. `sent` is how many datagrams were sent, if known. Datagrams that were sent
    /// after the last one to arrive count as missing too.
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
            self.lose(next, sent, last, after);
            // No datagram was sent after this gap, so the pause cannot have ended later.
            if let Some(gap) = self.gaps.last_mut().filter(|gap| gap.first == next) {
                gap.ends_pause = true;
            }
        } else if let (Some(sent), None) = (sent.filter(|&sent| sent > 0), self.last) {
            self.not_kept += sent;
        }
        self.end_course();
    }

    /// Returns the gaps whose send times only the sender knows precisely, each as its first number
    /// and its end (exclusive).
    pub(super) fn unsure(&self) -> Vec<(u64, u64)> {
        let unsure = |gap: &&Gap| gap.sent.1 - gap.sent.0 > UNSURE && !gap.has_late;
        let gaps = self.gaps.iter().filter(unsure).take(ASKED);
        gaps.map(|gap| (gap.first, gap.end)).collect()
    }

    /// Takes in the sender's answer about when the datagrams from `first` to `end` (exclusive) were
    /// sent.
    pub(super) fn departed(&mut self, first: u64, end: u64, answer: &[Departure]) {
        if !self.departures.take(first, end, answer) {
            return;
        }
        let place = self.gaps.partition_point(|known| known.first < first);
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
            // If the pause ended within the gap, it may have ended after all of the gap's datagrams
            // had been sent.
            let is_before = gap.ends_pause && came[0].1 <= pause.end;
            let last = lost::last_by(&came, pause.end).or(is_before.then_some(gap.end - 1));
            if let Some(last) = last {
                let waiting_from = burst.first - pause.queued;
                pause.sent = Some((last + 1).saturating_sub(waiting_from));
            }
        }
    }

    /// Returns the complete log. `socket_drops` is how many datagrams the socket dropped, and
    /// `never_read` how many were still in its buffer at the end.
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
            lost_outside_bursts: self.not_kept,
            burst_windows: courses,
            burst_windows_incomplete: is_course_missing,
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
