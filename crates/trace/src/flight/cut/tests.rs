use proptest::prelude::*;

use super::Borders;
use crate::flight::event::Event;
use crate::record::kind;

/// A window and the events in it.
#[derive(Debug)]
struct Window {
    begin: u64,
    end: u64,
    missing: i64,
    records: Vec<Event>,
}

fn cut(events: &[Event], begin: u64, end: u64, missing: bool) -> Option<Window> {
    let borders = Borders { begin, end };
    let cut = super::cut(&|| events.iter().copied(), borders, missing)?;
    Some(Window {
        begin: cut.begin,
        end: cut.end,
        missing: cut.missing,
        records: cut.apply(events.iter().copied()).collect(),
    })
}

fn own(events: &[Event]) -> i64 {
    let spans = events.iter().filter(|event| event.takes_time());
    spans.fold(0, |sum, span| sum.wrapping_add(span.self_ns))
}

/// A CPU that records its events in the same way as the BPF programs.
#[derive(Debug, Default)]
struct Machine {
    now: u64,
    /// Start, interrupted time and kind of each open span, outermost first.
    stack: Vec<(u64, u64, u8)>,
    records: Vec<Event>,
}

impl Machine {
    fn new() -> Self {
        Self {
            stack: vec![(0, 0, kind::IDLE)],
            ..Self::default()
        }
    }

    fn push(&mut self, kind: u8) {
        if self.stack.len() < 5 {
            self.stack.push((self.now, 0, kind));
        }
    }

    fn end(&mut self) {
        let Some((start, child, kind)) = self.stack.pop() else {
            return;
        };
        let dur = self.now - start;
        self.records.push(Event {
            start,
            dur,
            self_ns: (dur - child).cast_signed(),
            kind,
            ..Event::default()
        });
        if let Some(below) = self.stack.last_mut() {
            below.1 += dur;
        }
    }

    fn pop(&mut self) {
        if self.stack.len() > 1 {
            self.end();
        }
    }

    fn switch(&mut self, to: u8) {
        while !self.stack.is_empty() {
            self.end();
        }
        self.stack.push((self.now, 0, to));
    }
}

/// Generates random CPU activity. Each step waits for up to 50 ns and then does something.
fn machine() -> impl Strategy<Value = Machine> {
    prop::collection::vec((0u64..50, 0u8..6), 1..120).prop_map(|steps| {
        let mut machine = Machine::new();
        for (delay, action) in steps {
            machine.now += delay;
            match action {
                0 => machine.switch(kind::TASK),
                1 => machine.switch(kind::IDLE),
                2 => machine.push(kind::SOFTIRQ),
                3 => machine.push(kind::IRQ),
                _ => machine.pop(),
            }
        }
        machine.now += 1;
        machine.switch(kind::IDLE);
        machine
    })
}

proptest! {
    #[test]
    fn any_window_balances_to_the_ns(machine in machine(), from in 0u64..4_000, length in 1u64..4_000) {
        let Some(cut) = cut(&machine.records, from, from + length, false) else {
            prop_assert!(from >= machine.now);
            return Ok(());
        };
        prop_assert_eq!((cut.begin, cut.end), (from, (from + length).min(machine.now)));
        prop_assert_eq!(cut.missing, 0);
        for record in &cut.records {
            prop_assert!(record.start >= cut.begin && record.end() <= cut.end);
            prop_assert!(record.self_ns >= 0, "{:?}", record);
            prop_assert!(record.self_ns <= record.dur.cast_signed());
        }
        // The stretches must cover the window without gaps.
        let mut stretches: Vec<&Event> =
            cut.records.iter().filter(|event| event.kind < kind::SOFTIRQ).collect();
        stretches.sort_by_key(|event| (event.start, event.dur));
        let mut at = cut.begin;
        for stretch in stretches {
            prop_assert_eq!(stretch.start, at);
            at = stretch.end();
        }
        prop_assert_eq!(at, cut.end);
    }

    #[test]
    fn two_adjacent_windows_sum_to_the_whole(machine in machine(), at in 1u64..4_000) {
        prop_assume!(at < machine.now);
        let window = |begin, end| cut(&machine.records, begin, end, false);
        let (Some(before), Some(after)) = (window(0, at), window(at, machine.now)) else {
            return Err(TestCaseError::fail("both lie within the recording"));
        };
        prop_assert_eq!(own(&before.records) + own(&after.records), own(&machine.records));
    }
}

fn span(start: u64, end: u64, self_ns: i64, kind: u8) -> Event {
    Event {
        start,
        dur: end - start,
        self_ns,
        kind,
        ..Event::default()
    }
}

#[test]
fn an_interrupt_before_a_stretch_is_recorded_moves_the_border() {
    // The second stretch started at time 100. An interrupt during it was emitted before the first
    // stretch was.
    let records = [
        span(110, 120, 10, kind::IRQ),
        span(0, 100, 100, kind::TASK),
        span(100, 200, 90, kind::TASK),
        span(200, 300, 100, kind::IDLE),
    ];
    let cut = cut(&records, 50, 250, false).expect("it lies within the recording");
    assert_eq!(cut.missing, 0);
    assert!(cut.begin >= 50 && cut.end == 250, "{cut:?}");
    assert_eq!(own(&cut.records), (cut.end - cut.begin).cast_signed());
}

#[test]
fn missing_time_is_counted_and_moves_no_border() {
    let records = [
        span(0, 100, 100, kind::TASK),
        span(150, 300, 150, kind::TASK),
    ];
    let Some(Window {
        begin,
        end,
        missing,
        ..
    }) = cut(&records, 50, 250, true)
    else {
        panic!("it lies within the recording");
    };
    assert_eq!((begin, end, missing), (50, 250, 50));
}

#[test]
fn waits_are_cut_and_take_no_cpu_time() {
    let records = [
        span(0, 100, 100, kind::IDLE),
        span(10, 180, 170, kind::WAIT),
        span(100, 200, 100, kind::TASK),
    ];
    let cut = cut(&records, 50, 150, false).expect("it lies within the recording");
    let wait = cut
        .records
        .iter()
        .find(|event| !event.takes_time())
        .expect("the wait is kept");
    assert_eq!((wait.start, wait.dur, wait.self_ns), (50, 100, 100));
    assert_eq!(cut.missing, 0);
}
