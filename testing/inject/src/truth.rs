//! What a disturbance did, as far as the injector itself can know.

use serde::{Deserialize, Serialize};
use ticktax_model::{Cpu, Nanos, Span};

/// What a disturbance did. Every time is on `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The kind of disturbance.
    pub kind: String,
    /// The CPU that it disturbed.
    pub cpu: Cpu,
    /// The process that made the events.
    pub pid: i32,
    /// The thread that made them.
    pub tid: i32,
    /// That thread's name.
    pub comm: String,
    /// When the disturbance began. The first event is due [`Truth::LEAD`] later.
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
    /// Whether it was ended before its time.
    pub stopped: bool,
    /// Events that were due until the end.
    pub planned: u64,
    /// Events that happened; fewer than planned if the injector could not keep up.
    pub events: u64,
    /// The CPU's time that it took, where the injector can know it.
    pub injected: Option<Measured>,
    /// The same by other methods, and what lies beside it.
    pub measured: Vec<Measured>,
    /// The account that should show it, named as the kernel names it.
    pub account: String,
    /// Other accounts in which the disturbance leaves something.
    pub also: Vec<String>,
    /// What the kernel counted meanwhile, on that CPU and from whatever cause.
    pub counts: Vec<Count>,
    /// The first [`Truth::MAX_LOGGED`] events; for `throttle`, as the throttled process saw them.
    pub log: Vec<Event>,
    /// How many further events are not in the log.
    pub log_left_out: u64,
}

/// A length of time, and how it was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// How long.
    pub time: Nanos,
    /// By what.
    pub method: String,
}

/// A number, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// What was counted.
    pub name: String,
    /// How many.
    pub value: u64,
}

/// One event of a disturbance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When the schedule wanted it.
    pub due: Nanos,
    /// When it began.
    pub start: Nanos,
    /// How long it took in wall time; 0 where it is a point in time (`timer`, `itimer`).
    pub length: Nanos,
    /// The CPU time that the thread which made it used for it, where that was measured.
    pub cpu_time: Option<Nanos>,
}

impl Truth {
    /// From the start to the first moment at which an event can be due.
    pub const LEAD: Nanos = Nanos::from_millis(1);
    /// The most events that a truth lists one by one.
    pub const MAX_LOGGED: usize = 100_000;

    /// Whether `told` can be the time for which a cgroup's quota kept the process off its CPU, to 5 %.
    /// The cgroup's clock stops as soon as there is quota again; the process sees itself run again,
    /// which is later where others run first.
    pub fn allows_throttled(&self, told: Nanos) -> bool {
        let least = self
            .injected
            .as_ref()
            .map_or(Nanos::ZERO, |injected| injected.time);
        let most = self.logged_length().max(least);
        let told = told.as_secs_f64();
        told >= 0.95 * least.as_secs_f64() && told <= 1.05 * most.as_secs_f64()
    }

    /// The sum of the lengths of the events in the log.
    pub fn logged_length(&self) -> Nanos {
        self.log.iter().map(|event| event.length).sum()
    }

    /// How long `stretches`, the intervals for which a thread had a CPU, lie within these events,
    /// which are in the order of time and do not overlap.
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

    /// What the kernel counted under a name.
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

/// The events as they happen: sums of all, a list of the first. Nothing is allocated after `new`.
#[derive(Debug)]
pub(crate) struct EventLog {
    kept: Vec<Event>,
    pub(crate) happened: u64,
    pub(crate) length: Nanos,
    pub(crate) cpu_time: Nanos,
}

impl EventLog {
    /// With room for `expected` events, as far as a truth lists them.
    pub(crate) fn new(expected: usize) -> Self {
        let mut kept = Vec::with_capacity(expected.min(Truth::MAX_LOGGED));
        // Touched once, so that no page fault falls into the disturbance.
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

    /// The list, and how many events it lacks.
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
