//! The truth about a disturbance, as far as the injector can know it.

use serde::{Deserialize, Serialize};
use ticktax_model::{Cpu, Nanos, Span};

/// The truth about a disturbance. All times are on `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Kind of disturbance.
    pub kind: String,
    /// The disturbed CPU.
    pub cpu: Cpu,
    /// The process that made the events.
    pub pid: i32,
    /// The thread that made the events.
    pub tid: i32,
    /// Name of that thread.
    pub comm: String,
    /// Start. The first event is due [`Truth::LEAD`] later.
    pub start: Nanos,
    /// End.
    pub end: Nanos,
    /// Whether it was stopped early.
    pub stopped: bool,
    /// Number of events due before the end.
    pub planned: u64,
    /// Number of completed events. It is smaller than `planned` if the injector could not keep up.
    pub events: u64,
    /// CPU time that it used on that CPU, if the injector can know it.
    pub injected: Option<Measured>,
    /// The same time by other methods, and related times.
    pub measured: Vec<Measured>,
    /// Name of the account that should show it, as the kernel names it.
    pub account: String,
    /// Other accounts affected by the disturbance.
    pub also: Vec<String>,
    /// The kernel's counts on that CPU during that time, from any cause.
    pub counts: Vec<Count>,
    /// The first [`Truth::MAX_LOGGED`] events. For `throttle`, they are gaps seen by the throttled
    /// process.
    pub log: Vec<Event>,
    /// Number of events missing from the log.
    pub log_left_out: u64,
}

/// A time, and how it was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The time.
    pub time: Nanos,
    /// Method of measurement.
    pub method: String,
}

/// A count, and its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Name of the counter.
    pub name: String,
    /// Increase of the counter.
    pub value: u64,
}

/// One event of a disturbance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Scheduled time.
    pub due: Nanos,
    /// Actual start.
    pub start: Nanos,
    /// Elapsed time, or 0 for instantaneous events (`timer`, `itimer`).
    pub length: Nanos,
    /// CPU time that its thread used for it, if measured.
    pub cpu_time: Option<Nanos>,
}

impl Truth {
    /// Time from the start until the first event can be due.
    pub const LEAD: Nanos = Nanos::from_millis(1);
    /// Maximum number of listed events.
    pub const MAX_LOGGED: usize = 100_000;

    /// Whether `told` is a plausible throttled time, within 5 %. The cgroup's clock stops when
    /// quota is available again. The process sees the end only when it runs again, which is later
    /// if other threads run first.
    pub fn allows_throttled(&self, reported: Nanos) -> bool {
        let least = self
            .injected
            .as_ref()
            .map_or(Nanos::ZERO, |injected| injected.time);
        let most = self.logged_length().max(least);
        let reported = reported.as_secs_f64();
        reported >= 0.95 * least.as_secs_f64() && reported <= 1.05 * most.as_secs_f64()
    }

    /// Total length of the events in the log.
    pub fn logged_length(&self) -> Nanos {
        self.log.iter().map(|event| event.length).sum()
    }

    /// Total time of `stretches` within these events. `stretches` are the intervals when a thread
    /// ran. The events are in time order and do not overlap.
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

    /// The kernel's count with this name.
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

/// Accumulates events: totals of all, and a list of the first ones. Allocates nothing after `new`.
#[derive(Debug)]
pub(crate) struct EventLog {
    kept: Vec<Event>,
    pub(crate) happened: u64,
    pub(crate) length: Nanos,
    pub(crate) cpu_time: Nanos,
}

impl EventLog {
    /// Reserves space for `expected` events, limited to the number that a truth lists.
    pub(crate) fn new(expected: usize) -> Self {
        let mut kept = Vec::with_capacity(expected.min(Truth::MAX_LOGGED));
        // Touches the memory, so that no page fault occurs during the disturbance.
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

    /// The list, and the number of missing events.
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
