//! The truth about a disturbance: what the injector knows about its events and their cost.

use serde::{Deserialize, Serialize};
use ticktax_model::{Cpu, Nanos, Span};

/// The truth about a disturbance: when its events happened, and how much CPU time they took. All
/// times are on `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Name of the kind of disturbance.
    pub kind: String,
    /// The disturbed CPU.
    pub cpu: Cpu,
    /// PID of the process that caused the events.
    pub pid: i32,
    /// ID of the thread that caused the events.
    pub tid: i32,
    /// Name of the thread that caused the events.
    pub comm: String,
    /// When the disturbance started. The first event is due [`Truth::LEAD`] later.
    pub start: Nanos,
    /// When the disturbance ended.
    pub end: Nanos,
    /// Whether the disturbance was stopped early.
    pub stopped: bool,
    /// Number of events that were due before the end.
    pub planned: u64,
    /// Number of events that were completed, which is less than `planned` if the injector could not
    /// keep up.
    pub events: u64,
    /// CPU time that the disturbance took on the disturbed CPU, or `None` if the injector cannot
    /// determine it.
    pub injected: Option<Measured>,
    /// The same time as measured in other ways, and related times.
    pub measured: Vec<Measured>,
    /// Account in which the disturbance should appear, under the kernel's name for the work.
    pub account: String,
    /// Other accounts that the disturbance affects.
    pub also: Vec<String>,
    /// Increase of the kernel's counters for the disturbed CPU during the disturbance. Other causes
    /// can contribute.
    pub counts: Vec<Count>,
    /// The first [`Truth::MAX_LOGGED`] events. For `throttle`, these are the gaps that the
    /// throttled process noticed.
    pub log: Vec<Event>,
    /// Number of events that are not in the log because it was full.
    pub log_left_out: u64,
}

/// A time, and how it was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The time.
    pub time: Nanos,
    /// How the time was measured.
    pub method: String,
}

/// A kernel counter, and the amount by which it rose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Name of the counter.
    pub name: String,
    /// Amount by which the counter rose.
    pub value: u64,
}

/// One event of a disturbance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When the event was due.
    pub due: Nanos,
    /// When the event actually started.
    pub start: Nanos,
    /// Time from the start to the end of the event, or 0 for events without a duration (`timer`,
    /// `itimer`).
    pub length: Nanos,
    /// CPU time that the event's thread used for the event, if it was measured.
    pub cpu_time: Option<Nanos>,
}

impl Truth {
    /// Time from the start of the disturbance to the earliest possible event.
    pub const LEAD: Nanos = Nanos::from_millis(1);
    /// Maximum number of events in the log.
    pub const MAX_LOGGED: usize = 100_000;

    /// Returns whether `reported` is a plausible throttled time, within 5 %.
    ///
    /// The cgroup's clock stops as soon as quota is available again. The process notices only when
    /// it runs again, which takes longer if other threads run first.
    pub fn allows_throttled(&self, reported: Nanos) -> bool {
        let least = self
            .injected
            .as_ref()
            .map_or(Nanos::ZERO, |injected| injected.time);
        let most = self.logged_length().max(least);
        let reported = reported.as_secs_f64();
        reported >= 0.95 * least.as_secs_f64() && reported <= 1.05 * most.as_secs_f64()
    }

    /// Returns the total length of the events in the log.
    pub fn logged_length(&self) -> Nanos {
        self.log.iter().map(|event| event.length).sum()
    }

    /// Returns how much time `stretches`, the intervals in which a thread ran, have in common with
    /// `events`. `events` must be in chronological order and must not overlap each other.
    pub fn time_within<'a>(
        events: &[Event],
        stretches: impl IntoIterator<Item = &'a Span>,
    ) -> Nanos {
        let end = |event: &Event| event.start + event.length;
        let within = |span: &Span| -> Nanos {
            let first = events.partition_point(|event| end(event) <= span.start);
            let during = events[first..].iter();
            during
                .take_while(|event| event.start < span.end())
                .map(|event| end(event).min(span.end()) - event.start.max(span.start))
                .sum()
        };
        stretches.into_iter().map(within).sum()
    }

    /// Returns how much the kernel counter called `name` rose, or `None` if it was not recorded.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts
            .iter()
            .find(|count| count.name == name)
            .map(|count| count.value)
    }
}

impl Measured {
    pub(crate) fn new(time: Nanos, method: impl Into<String>) -> Self {
        Self {
            time,
            method: method.into(),
        }
    }
}

/// A log of events: totals over all of them, and a list of the first ones. Does not allocate memory
/// after `new`.
#[derive(Debug)]
pub(crate) struct EventLog {
    kept: Vec<Event>,
    pub(crate) happened: u64,
    pub(crate) length: Nanos,
    pub(crate) cpu_time: Nanos,
}

impl EventLog {
    /// Reserves room for `expected` events, up to [`Truth::MAX_LOGGED`].
    pub(crate) fn new(expected: usize) -> Self {
        let mut kept = Vec::with_capacity(expected.min(Truth::MAX_LOGGED));
        // Touch the memory now, so that it causes no page faults during the disturbance.
        kept.resize(
            kept.capacity().min(Truth::MAX_LOGGED),
            Event {
                due: Nanos(1),
                ..Event::default()
            },
        );
        kept.clear();
        Self {
            kept,
            happened: 0,
            length: Nanos::ZERO,
            cpu_time: Nanos::ZERO,
        }
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.happened += 1;
        self.length += event.length;
        self.cpu_time += event.cpu_time.unwrap_or_default();
        if self.kept.len() < self.kept.capacity().min(Truth::MAX_LOGGED) {
            self.kept.push(event);
        }
    }

    pub(crate) fn kept(&self) -> &[Event] {
        &self.kept
    }

    /// Returns the list of events, and the number of events that did not fit into it.
    pub(crate) fn into_list(self) -> (Vec<Event>, u64) {
        let left_out = self.happened - self.kept.len() as u64;
        (self.kept, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, EventLog};
    use ticktax_model::Nanos;

    #[test]
    fn a_log_counts_what_it_leaves_out() {
        let mut log = EventLog::new(2);
        for length in [1, 2, 4] {
            log.push(Event {
                length: Nanos(length),
                ..Event::default()
            });
        }
        assert_eq!((log.happened, log.length), (3, Nanos(7)));
        let (kept, left_out) = log.into_list();
        assert_eq!((kept.len(), left_out), (2, 1));
    }
}
