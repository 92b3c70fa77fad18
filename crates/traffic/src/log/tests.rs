use std::collections::VecDeque;

use ticktax_model::Nanos;
use ticktax_model::packets::{PacketLog, SocketBuffer};

use super::super::datagrams::{Arrivals, HEADER, write_head};
use super::super::departures::Departures;
use super::Log;

const TOKEN: u64 = 0x5ca1_ab1e;
const LENGTH: Nanos = Nanos::from_secs(1);
const US: i64 = 1_000;
const MS: i64 = 1_000_000;

fn datagram(number: u64, sent: i64) -> Vec<u8> {
    let mut bytes = vec![0; HEADER as usize];
    write_head(&mut bytes, TOKEN, number, Nanos(sent));
    bytes
}

fn log(same_clock: bool) -> Log {
    let arrivals = Arrivals::new(TOKEN);
    let rate_hz = 1e9 / Link::EACH as f64;
    Log::new(
        arrivals,
        LENGTH,
        Some(rate_hz),
        same_clock,
        SocketBuffer::default(),
    )
}

fn finish(mut log: Log, sent: Option<u64>, drops: u64) -> PacketLog {
    log.end(sent, drops);
    log.finish(drops, 0)
}

/// A simulated link. Every 20 µs, a datagram enters a buffer with room for `capacity` datagrams.
/// The receiver takes 2 µs to read each one, unless it is stalled.
struct Link {
    capacity: usize,
    stalls: Vec<(i64, i64)>,
    /// Lead of the sender's clock over the receiver's, in ns.
    ahead: i64,
    /// Period in which the sender is delayed. At its end, the sender sends all datagrams that have
    /// become due in the meantime.
    held: (i64, i64),
    /// Whether the receiver asks the sender when missing datagrams were sent.
    asked: bool,
    queue: VecDeque<(u64, i64, u32)>,
    next: u64,
    drops: u32,
}

impl Link {
    const EACH: i64 = 20 * US;
    const READ: i64 = 2 * US;

    fn new(capacity: usize, stalls: &[(i64, i64)]) -> Self {
        Self {
            capacity,
            stalls: stalls.to_vec(),
            ahead: 0,
            held: (0, 0),
            asked: false,
            queue: VecDeque::new(),
            next: 0,
            drops: 0,
        }
    }

    fn departure(&self, number: u64) -> i64 {
        let due = i64::try_from(number).unwrap() * Self::EACH;
        if (self.held.0..self.held.1).contains(&due) {
            self.held.1
        } else {
            due
        }
    }

    fn arrive(&mut self, until: i64, count: u64) {
        while self.next < count {
            let at = self.departure(self.next);
            if at > until {
                return;
            }
            if self.queue.len() < self.capacity {
                self.queue.push_back((self.next, at, self.drops));
            } else {
                self.drops += 1;
            }
            self.next += 1;
        }
    }

    fn answer(&self, log: &mut Log, count: u64) {
        let mut departures = Departures::default();
        for number in 0..count {
            departures.note(number, Nanos(self.departure(number) + self.ahead));
        }
        for (first, end) in log.unsure() {
            log.departed(first, end, &departures.within(first, end));
        }
    }

    fn run(mut self, count: u64, same_clock: bool) -> PacketLog {
        let mut log = log(same_clock);
        let mut now = 0;
        loop {
            if let Some(&(_, end)) = self
                .stalls
                .iter()
                .find(|stall| stall.0 <= now && now < stall.1)
            {
                now = end;
            }
            self.arrive(now, count);
            let Some((number, sent, drops)) = self.queue.pop_front() else {
                log.is_empty_now();
                if self.next >= count {
                    let drops = u64::from(self.drops);
                    log.end(Some(count), drops);
                    if self.asked {
                        self.answer(&mut log, count);
                    }
                    return log.finish(drops, 0);
                }
                now = now.max(self.departure(self.next));
                continue;
            };
            now += Self::READ;
            self.arrive(now, count);
            assert!(log.take(
                &datagram(number, sent + self.ahead),
                Nanos(now),
                Some(drops)
            ));
        }
    }
}

/// The buffer has room for 300 datagrams, and the receiver pauses for 17 ms. The sender is delayed
/// for 10 ms, starting 4 ms into the pause. Then it immediately sends all datagrams that are due.
fn held_up(asked: bool) -> PacketLog {
    let mut link = Link::new(300, &[(100 * MS, 117 * MS)]);
    (link.held, link.asked) = ((104 * MS, 114 * MS), asked);
    link.run(10_000, true)
}

/// 850 datagrams are sent during the pause: 200 before the sender is delayed, 500 at the end of the
/// delay, and the remaining 150 after it. The buffer has room for 300 datagrams, so the first loss
/// must be among the 500.
#[test]
fn a_delayed_sender_reports_when_it_sent_lost_datagrams() {
    let log = held_up(true);
    let [burst] = &*log.bursts else {
        panic!("{:#?}", log.bursts);
    };
    assert!((burst.lost_at.0 - 114 * MS).abs() <= 100 * US, "{burst:?}");
    assert!(burst.pause.unwrap().sent.unwrap().abs_diff(850) <= 2);
    let came = |log: &PacketLog, from: i64, to: i64| -> u64 {
        let course = &log.burst_windows[0];
        let place = |at: i64| usize::try_from((Nanos(at) - course.start).0 / course.slot.0);
        let slots = &course.sent[place(from).unwrap()..place(to).unwrap()];
        slots.iter().map(|&sent| u64::from(sent)).sum()
    };
    assert!(
        came(&log, 105 * MS, 113 * MS) == 0,
        "{:?}",
        log.burst_windows
    );
    let at_once = came(&log, 113 * MS, 115 * MS);
    assert!((540..=560).contains(&at_once), "{at_once}");
    let lost: u64 = log.by_time.iter().map(|slot| slot.lost).sum();
    assert_eq!(lost, burst.lost);
    // If the sender doesn't answer, the receiver must assume that the datagrams were evenly spaced.
    let evenly = held_up(false);
    let others: u64 = evenly.by_time.iter().map(|slot| slot.lost).sum();
    assert_eq!((others, evenly.bursts[0].lost), (lost, lost));
}

/// The sender is delayed for 40 ms, starting 3 ms before the end of the receiver's pause. All lost
/// datagrams were sent before the delay, and nothing was sent during it.
#[test]
fn a_sender_delayed_at_the_end_of_a_pause_sent_all_losses_before() {
    let mut link = Link::new(300, &[(100 * MS, 117 * MS)]);
    (link.held, link.asked) = ((114 * MS, 154 * MS), true);
    let log = link.run(10_000, true);
    // The datagrams sent at the end of the delay cause a second burst.
    let burst = &log.bursts[0];
    // In 14 ms at 50,000 datagrams per second, 700 datagrams are sent.
    let sent = burst.pause.unwrap().sent.unwrap();
    assert!(sent.abs_diff(700) <= 2, "{burst:?}");
    assert!(burst.lost.abs_diff(400) <= 2, "{burst:?}");
}

/// Invalid answers must have no effect.
#[test]
fn impossible_answers_of_a_sender_are_ignored() {
    let log_with = |answer: &[(u64, Nanos)]| {
        let mut log = log(true);
        for number in (0..1_000).filter(|number| !(400..440).contains(number)) {
            let at = i64::try_from(number).unwrap() * Link::EACH;
            log.take(&datagram(number, at), Nanos(at + US), None);
        }
        log.end(Some(1_000), 0);
        assert_eq!(log.unsure(), [(400, 440)]);
        log.departed(400, 440, answer);
        log.finish(0, 0)
    };
    let evenly = log_with(&[]);
    let (first, last) = (Nanos(8 * MS), Nanos(9 * MS));
    for answer in [
        vec![(400, first)],
        vec![(400, first), (440, last)],
        vec![(399, first), (439, last)],
        vec![(400, last), (439, first)],
        vec![(400, first), (420, last), (410, last), (439, last)],
    ] {
        assert_eq!(log_with(&answer), evenly, "{answer:?}");
    }
    let far = log_with(&[(400, Nanos(i64::MIN)), (439, Nanos(i64::MAX))]);
    let all: u64 = far.by_time.iter().map(|slot| slot.lost).sum();
    assert_eq!(all, 40);
    assert_ne!(log_with(&[(400, first), (439, last)]), evenly);
}

#[test]
fn a_reader_that_keeps_up_loses_nothing() {
    let log = Link::new(100, &[]).run(10_000, true);
    assert!(log.bursts.is_empty());
    assert_eq!((log.lost_outside_bursts, log.socket_drops), (0, 0));
    let arrived: u64 = log.by_time.iter().map(|slot| slot.arrived).sum();
    assert_eq!(arrived, 10_000);
    assert_eq!(log.delays.unwrap().max, Nanos(Link::READ));
}

/// 850 datagrams are sent during a stall of 17 ms. The buffer has room for 300 of them.
#[test]
fn a_stall_causes_one_burst_in_its_pause() {
    let stall = (100 * MS, 117 * MS);
    let log = Link::new(300, &[stall]).run(10_000, true);
    let [burst] = &*log.bursts else {
        panic!("{:#?}", log.bursts);
    };
    assert!((545..=551).contains(&burst.lost), "{burst:?}");
    assert_eq!(
        (burst.socket_drops, log.socket_drops),
        (burst.lost, burst.lost)
    );
    let pause = burst.pause.unwrap();
    assert!(pause.start <= Nanos(stall.0) && pause.end >= Nanos(stall.1));
    assert!(
        pause.end - pause.start < Nanos(17 * MS + 30 * US),
        "{pause:?}"
    );
    assert_eq!(pause.queued, 300);
    assert!((848..=852).contains(&pause.sent.unwrap()), "{pause:?}");
    assert_eq!(burst.lost_at - pause.start, Nanos(6 * MS));
    // The first loss occurs when 300 datagrams are waiting.
    assert!((burst.at - Nanos(106 * MS)).0.abs() < 50 * US, "{burst:?}");
    let lost: u64 = log.by_time.iter().map(|slot| slot.lost).sum();
    assert_eq!(lost, burst.lost);
    assert!(log.delays.unwrap().max >= Nanos(17 * MS));
}

/// A burst's course must contain all datagrams that are sent until the receiver would have read
/// even the lost ones.
#[test]
fn a_course_lasts_until_lost_datagrams_would_have_been_read() {
    let stall = (100 * MS, 117 * MS);
    let log = Link::new(300, &[stall]).run(10_000, true);
    let [course] = &*log.burst_windows else {
        panic!("{:#?}", log.burst_windows);
    };
    assert!(!log.burst_windows_incomplete);
    assert_eq!(course.slot, Nanos(4 * Link::EACH));
    assert!(course.start < Nanos(stall.0 - 5 * MS), "{course:?}");
    assert_eq!(course.read, Nanos(Link::READ));
    // Skip the last slot, because it is incomplete.
    let full_slots = &course.sent[..course.sent.len() - 1];
    assert!(
        full_slots.iter().all(|sent| (3..=5).contains(sent)),
        "{course:?}"
    );
    let [(start, end)] = *course.pauses else {
        panic!("{course:?}");
    };
    assert!(start <= Nanos(stall.0) && end >= Nanos(stall.1));
    // The receiver has to read 850 datagrams at 2 µs each. While it does so, a new datagram arrives
    // every 20 µs. Reading the new ones takes a tenth of the time, so the receiver needs 850 · 2 µs
    // / 0.9 in total.
    let length = course.slot.times(course.sent.len() as f64);
    let after = course.start + length - Nanos(stall.1);
    assert!((1_800 * US..3_000 * US).contains(&after.0), "{after:?}");
}

/// If the receiver stalls again before the course ends, the second stall must belong to the same
/// course even if the buffer was empty between the two.
#[test]
fn a_stall_before_the_end_of_a_course_belongs_to_it() {
    let log_with = |second: i64| {
        let stalls = [(100 * MS, 117 * MS), (second, second + 8 * MS)];
        Link::new(300, &stalls).run(10_000, true)
    };
    let log = log_with(118 * MS + 200 * US);
    assert_eq!((log.bursts.len(), log.burst_windows.len()), (2, 1));
    assert_eq!(log.burst_windows[0].pauses.len(), 2);
    let log = log_with(150 * MS);
    assert_eq!((log.bursts.len(), log.burst_windows.len()), (2, 2));
}

/// The datagrams from a 3 ms pause fit into the buffer, so that pause must be reported as the
/// longest one without losses.
#[test]
fn the_longest_pause_without_losses_is_reported() {
    let stalls = [
        (50 * MS, 53 * MS),
        (100 * MS, 117 * MS),
        (160 * MS, 161 * MS),
    ];
    let log = Link::new(300, &stalls).run(10_000, true);
    assert_eq!(log.bursts.len(), 1);
    let longest = log.other_pause.0;
    assert!(
        (3 * MS - 50 * US..3 * MS + 50 * US).contains(&longest),
        "{longest}"
    );
    let none = Link::new(300, &[]).run(10_000, true);
    assert_eq!(none.other_pause, Nanos::ZERO);
}

#[test]
fn courses_that_do_not_fit_are_reported_missing() {
    // The receiver is stalled for three quarters of the 10 s: 15 ms out of every 20 ms.
    let stalls: Vec<(i64, i64)> = (0..500)
        .map(|round| (round * 20 * MS, (round * 20 + 15) * MS))
        .collect();
    let log = Link::new(300, &stalls).run(500_000, true);
    assert!(log.burst_windows_incomplete);
    let size: usize = log
        .burst_windows
        .iter()
        .map(|course| course.sent.len())
        .sum();
    assert!(size <= 1 << 17, "{size}");
    // This stall is longer than the log remembers, so the slots at its start are missing.
    let log = Link::new(300, &[(100 * MS, 30_000 * MS)]).run(1_600_000, true);
    assert!(log.burst_windows_incomplete);
}

#[test]
fn each_stall_has_one_burst_and_bursts_sum_to_all_losses() {
    let stalls = [(20 * MS, 30 * MS), (60 * MS, 75 * MS), (80 * MS, 81 * MS)];
    let log = Link::new(200, &stalls).run(10_000, true);
    assert_eq!(log.bursts.len(), 2, "{:#?}", log.bursts);
    let lost: u64 = log.bursts.iter().map(|burst| burst.lost).sum();
    assert_eq!(lost, log.socket_drops);
}

/// If the sender's clock is an hour ahead, the pause must still be found, but no delays may be
/// reported.
#[test]
fn two_clocks_give_the_same_pauses_but_no_delays() {
    let mut link = Link::new(300, &[(100 * MS, 117 * MS)]);
    link.ahead = 3_600_000 * MS;
    let log = link.run(10_000, false);
    let pause = log.bursts[0].pause.unwrap();
    assert_eq!(pause.queued, 300);
    assert!(pause.sent.unwrap().abs_diff(850) <= 2, "{pause:?}");
    assert_eq!(log.delays, None);
}

#[test]
fn losses_before_the_socket_are_not_the_sockets() {
    let mut log = log(true);
    for number in (0..1_000).filter(|number| !(400..410).contains(number)) {
        let at = i64::try_from(number).unwrap() * Link::EACH;
        log.take(&datagram(number, at), Nanos(at + US), None);
        log.is_empty_now();
    }
    let log = finish(log, Some(1_000), 0);
    let [burst] = &*log.bursts else {
        panic!("{:#?}", log.bursts);
    };
    assert_eq!((burst.first, burst.lost, burst.socket_drops), (400, 10, 0));
}

#[test]
fn late_datagrams_are_not_lost() {
    let mut log = log(true);
    for (at, number) in [0, 1, 5, 3, 3, 6].into_iter().enumerate() {
        let at = i64::try_from(at).unwrap() * Link::EACH;
        assert!(log.take(&datagram(number, at), Nanos(at + US), None));
    }
    let counts = log.arrivals.finish(Some(9), Nanos::ZERO);
    let log = finish(log, Some(9), 0);
    let lost: u64 = log.bursts.iter().map(|burst| burst.lost).sum();
    // The datagrams with numbers 2, 4, 7 and 8 are lost.
    assert_eq!((lost, counts.lost()), (4, Some(4)));
    let slots: u64 = log.by_time.iter().map(|slot| slot.lost).sum();
    assert_eq!(slots, 4);
}

#[test]
fn datagrams_that_never_arrive_are_lost() {
    let log_after = |sent| finish(log(true), sent, 0);
    assert_eq!(log_after(Some(7)).lost_outside_bursts, 7);
    assert_eq!(log_after(None).lost_outside_bursts, 0);
    // Only one datagram arrives, and it isn't the first.
    let mut log = log(true);
    log.take(&datagram(3, 0), Nanos(US), None);
    let log = finish(log, Some(10), 0);
    let lost: u64 = log.bursts.iter().map(|burst| burst.lost).sum();
    assert_eq!(lost, 9);
}

#[test]
fn implausible_clocks_cause_no_panic() {
    for same_clock in [true, false] {
        let mut log = log(same_clock);
        for (number, sent) in [
            (0, i64::MIN),
            (7, i64::MAX),
            (9, 0),
            (8, -1),
            (12, i64::MAX),
        ] {
            log.take(&datagram(number, sent), Nanos(MS), Some(3));
        }
        assert!(!log.take(b"hello", Nanos(MS), None));
        let log = finish(log, Some(20), u64::MAX);
        let lost: u64 = log.bursts.iter().map(|burst| burst.lost).sum();
        assert_eq!(lost + log.lost_outside_bursts, 15);
    }
}
