//! Tests tick bills, using simulated machines whose ticks are known.

use ticktax_analysis::{Auditor, tick};
use ticktax_fixture::{books, process, replay, span, watched_header};
use ticktax_model::machine::{InterruptRow, Machine};
use ticktax_model::recording::{CpuInterval, Header, Level, Row, Sum};
use ticktax_model::tick::{Basis, TickBill};
use ticktax_model::{Histogram, Kind, Nanos, Owner, Source, SourceId, SourceTable};

const US: i64 = 1_000;
const SECOND: i64 = 1_000_000_000;

/// Cost of a tick: self time of the interrupt, of its function, and of the softirq that follows.
const OWN: i64 = 2 * US;
const FUNCTION: i64 = 3 * US;
const SOFTIRQ: i64 = US;
/// Time that another timer's function takes in every tenth tick. It is not part of the tick's cost.
const OTHER: i64 = 40 * US;

struct Machinery {
    sources: SourceTable,
    rows: Vec<Row>,
    books: Vec<CpuInterval>,
    seconds: i64,
}

impl Machinery {
    fn new(seconds: i64) -> Self {
        Self {
            sources: SourceTable::default(),
            rows: Vec::new(),
            books: Vec::new(),
            seconds,
        }
    }

    fn id(&mut self, kind: Kind, name: &str, detail: &str) -> SourceId {
        self.sources.intern(Source::kernel(kind, name, detail))
    }

    fn thread(&mut self, owner: Owner) -> SourceId {
        self.sources.intern(process(owner, "loop", 7))
    }

    fn row(&mut self, cpu: u32, start: i64, dur: i64, own: i64, source: SourceId) {
        self.rows
            .push(ticktax_fixture::row(cpu, start, dur, own, source));
    }

    /// Adds a tick at `at`. Returns its length, including the softirq.
    fn tick(&mut self, cpu: u32, at: i64, with_other: bool) -> i64 {
        let function = self.id(Kind::Irq, "local_timer", "tick_nohz_handler");
        let other = self.id(Kind::Irq, "local_timer", "hrtimer_wakeup");
        let frame = self.id(Kind::Irq, "local_timer", "");
        let softirq = self.id(Kind::Softirq, "SCHED", "");
        self.row(cpu, at + US, FUNCTION, FUNCTION, function);
        let mut inner = FUNCTION;
        if with_other {
            self.row(cpu, at + US + FUNCTION, OTHER, OTHER, other);
            inner += OTHER;
        }
        self.row(cpu, at, OWN + inner, OWN, frame);
        self.row(cpu, at + OWN + inner + US, SOFTIRQ, SOFTIRQ, softirq);
        OWN + inner + US + SOFTIRQ
    }

    /// Adds a CPU that has `hz` ticks per second and is kept busy by one of `owner`'s threads.
    fn busy(&mut self, cpu: u32, hz: i64, owner: Owner) -> i64 {
        let (thread, length) = (self.thread(owner), self.seconds * SECOND);
        let ticks = self.seconds * hz;
        let mut inner = 0;
        for number in 0..ticks {
            let other = number % 10 == 9;
            self.tick(cpu, number * SECOND / hz + 100 * US, other);
            inner += OWN + FUNCTION + SOFTIRQ + if other { OTHER } else { 0 };
        }
        self.row(cpu, 0, length, length - inner, thread);
        self.close(cpu);
        ticks
    }

    /// Adds an idle CPU that is woken every half second, with one tick each time.
    fn idle(&mut self, cpu: u32) -> i64 {
        let (idle, thread) = (
            self.sources.intern(Source::idle()),
            self.thread(Owner::Program),
        );
        let half = SECOND / 2;
        for number in 0..self.seconds * 2 {
            let at = number * half;
            self.tick(cpu, at + half / 2, false);
            let inner = OWN + FUNCTION + SOFTIRQ;
            self.row(cpu, at, half - US, half - US - inner, idle);
            self.row(cpu, at + half - US, US, US, thread);
        }
        self.close(cpu);
        self.seconds * 2
    }

    fn close(&mut self, cpu: u32) {
        self.books.push(books(cpu, 0, self.seconds * SECOND));
    }

    fn header(&self, hz: u32, level: Level) -> Header {
        Header {
            machine: Machine {
                hz_configured: Some(hz),
                cmdline: Some("quiet nohz=on skew_tick=1 -- divider=3".to_owned()),
                ..Machine::default()
            },
            cpus: self.books.clone(),
            level,
            ..watched_header()
        }
    }

    fn bill_of(&self, header: &Header) -> Option<TickBill> {
        let mut auditor = Auditor::books();
        replay(&self.sources, &self.rows, &mut auditor);
        auditor.finish(header, &self.sources, 1).tick
    }

    fn bill(&self, hz: u32) -> TickBill {
        self.bill_of(&self.header(hz, Level::Kernel)).unwrap()
    }
}

fn near(value: f64, truth: f64, part: f64) -> bool {
    (value - truth).abs() <= part * truth
}

#[test]
fn one_cpu_is_busy_and_the_other_idles_without_a_tick() {
    for hz in [25, 100, 250, 1000] {
        let mut machine = Machinery::new(20);
        let ticks = machine.busy(0, hz, Owner::Program) + machine.idle(1);
        let bill = machine.bill(u32::try_from(hz).unwrap());
        assert_eq!(bill.basis, Basis::Spans);
        let [busy, idle] = &bill.cpus[..] else {
            panic!("{bill:?}")
        };
        let frequency = busy.frequency.unwrap();
        assert!(near(frequency.hz, hz as f64, 1e-6), "{frequency:?}");
        assert!(frequency.plus_minus < 0.01, "{frequency:?}");
        assert!(near(busy.busy.unwrap().rate().unwrap(), hz as f64, 1e-3));
        assert_eq!((busy.idle, busy.pauses, busy.saved), (None, 0, 0));
        assert_eq!(idle.idle.unwrap().count, 40);
        assert!(idle.frequency.is_none());
        assert_eq!(idle.pauses, 39);
        // Half a second would have hz / 2 ticks, but only one of them fired.
        assert_eq!(
            i64::try_from(idle.saved).unwrap(),
            39 * (hz / 2 - 1) + 39 * (hz % 2) / 2
        );

        let cost = bill.cost.unwrap();
        assert_eq!(i64::try_from(cost.ticks.count).unwrap(), ticks);
        assert_eq!(cost.time, Nanos(ticks * (OWN + FUNCTION)));
        assert_eq!(cost.softirq_time(), Nanos(ticks * SOFTIRQ));
        assert!(near(
            cost.ticks.median.unwrap().0 as f64,
            (OWN + FUNCTION) as f64,
            0.12
        ));
        assert_eq!(cost.ticks.max, Some(Nanos(OWN + FUNCTION)));
        assert_eq!(cost.parts[0].name, "tick_nohz_handler");
        assert_eq!(cost.parts[0].time, Nanos(ticks * FUNCTION));
        assert!(cost.entry_exit.is_none());
        let truth = (ticks * (OWN + FUNCTION + SOFTIRQ)) as f64 / 20e9;
        assert!(near(cost.cores.value, truth, 1e-9));
        assert!(cost.cores.plus_minus.unwrap() < 0.02 * truth);
    }
}

#[test]
fn parameters_for_init_are_not_the_kernels() {
    let mut machine = Machinery::new(1);
    machine.busy(0, 100, Owner::Program);
    assert_eq!(machine.bill(100).parameters, ["nohz=on", "skew_tick=1"]);
}

#[test]
fn a_fleet_multiplies_the_machines_cost_and_its_confidence_interval() {
    let mut machine = Machinery::new(10);
    machine.idle(0);
    let bill = machine.bill(250);
    let machine_cost = bill.cost.as_ref().unwrap().cores;
    let fleet = tick::fleet(&bill, 40).unwrap();
    assert_eq!(fleet.guests, 40);
    assert!(near(fleet.cores.value, 40.0 * machine_cost.value, 1e-12));
    assert_eq!(
        fleet.cores.plus_minus,
        machine_cost.plus_minus.map(|half| 40.0 * half)
    );
}

#[test]
fn entry_and_exit_around_a_tick_come_from_the_spinning_probe() {
    const AROUND: i64 = 4 * US;
    let mut machine = Machinery::new(5);
    let gap = machine.sources.intern(Source {
        owner: Owner::Probe,
        ..Source::kernel(Kind::Gap, "spin", "")
    });
    let probe = machine.thread(Owner::Probe);
    for number in 0..5 * 250i64 {
        let at = number * 4_000 * US;
        let begin = at + 100 * US;
        let other = number % 10 == 9;
        let named = OWN + FUNCTION + SOFTIRQ + if other { OTHER } else { 0 };
        let length = machine.tick(0, begin, other);
        // The microsecond between the interrupt and the softirq isn't in any row either.
        machine.row(0, begin - 2 * US, length + 3 * US, length + 3 * US, gap);
        machine.row(0, at, 4_000 * US, 4_000 * US - named, probe);
    }
    machine.close(0);
    let bill = machine.bill(250);
    assert!(bill.cpus[0].busy.is_none(), "{bill:?}");
    assert_eq!(bill.cpus[0].probed.unwrap().count, 1250);
    let around = bill.cost.unwrap().entry_exit.unwrap();
    // Every tenth gap also contains another timer.
    assert_eq!(around.count, 1125);
    assert!(
        near(around.median.0 as f64, AROUND as f64, 0.13),
        "{around:?}"
    );
}

#[test]
fn sums_give_counts_and_times_only() {
    let mut machine = Machinery::new(10);
    for (detail, own, count) in [
        ("tick_nohz_handler", FUNCTION, 2_500u64),
        ("hrtimer_wakeup", OTHER, 100),
        ("", OWN, 2_600),
    ] {
        let source = machine.id(Kind::Irq, "local_timer", detail);
        let mut histogram = Histogram::default();
        (0..count).for_each(|_| histogram.record(Nanos(own)));
        machine.rows.push(Row::Sum(Sum {
            span: span(
                0,
                0,
                10 * SECOND,
                own * i64::try_from(count).unwrap(),
                source,
            ),
            count,
            max: Nanos(own),
            histogram,
        }));
    }
    machine.close(0);
    let bill = machine.bill(250);
    assert_eq!(bill.basis, Basis::Sums);
    assert_eq!(bill.cpus[0].all.count, 2_500);
    assert!(bill.cpus[0].busy.is_none());
    let cost = bill.cost.unwrap();
    assert_eq!(cost.time, Nanos(2_500 * (FUNCTION + OWN)));
    assert!(cost.cores.plus_minus.is_none());
}

#[test]
fn without_a_timer_function_every_interrupt_counts() {
    let mut machine = Machinery::new(5);
    let frame = machine.id(Kind::Irq, "local_timer", "");
    let thread = machine.thread(Owner::Program);
    for number in 0..500 {
        machine.row(0, number * 10_000 * US, OWN, OWN, frame);
    }
    machine.row(0, 0, 5 * SECOND, 5 * SECOND - 500 * OWN, thread);
    machine.close(0);
    let bill = machine.bill(100);
    assert_eq!(bill.basis, Basis::Interrupts);
    assert!(near(
        bill.cpus[0].busy.unwrap().rate().unwrap(),
        100.0,
        1e-9
    ));
    assert_eq!(bill.cost.unwrap().time, Nanos(500 * OWN));
}

#[test]
fn without_rights_the_kernels_count_is_an_upper_bound() {
    let mut machine = Machinery::new(4);
    machine.close(0);
    let mut header = machine.header(250, Level::Proc);
    assert!(machine.bill_of(&header).is_none());
    let row = |count| InterruptRow {
        description: String::new(),
        counts: [(0, count)].into(),
    };
    header.before.interrupts.insert("LOC".to_owned(), row(10));
    header.after.interrupts.insert("LOC".to_owned(), row(1_034));
    let bill = machine.bill_of(&header).unwrap();
    assert_eq!(
        (bill.basis, bill.cpus[0].all.count),
        (Basis::Counters, 1_024)
    );
    assert!(bill.cost.is_none());
    assert!(tick::fleet(&bill, 3).is_none());
}
