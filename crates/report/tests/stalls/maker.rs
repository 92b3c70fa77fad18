//! Writes recordings of a program's threads, each alone on a CPU.

use std::collections::BTreeMap;

use ticktax_analysis::Auditor;
use ticktax_fixture::{books, header, off_cpu, row, thread};
use ticktax_model::document::Document;
use ticktax_model::hook::Hook;
use ticktax_model::machine::CpuTimes;
use ticktax_model::recording::{Coverage, Edge, Effect, Header, Row, RowSink, World};
use ticktax_model::statement::Statement;
use ticktax_model::victim::{Target, ThreadTimes, VictimHeader};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceId, SourceTable};
use ticktax_report::{Format, TextStyle, render};

/// Process ID of the watched program.
pub(crate) const PID: i32 = 4_121;
/// Start of all recordings on the clock, in µs.
const BEGIN: i64 = 77_000_000;

/// A recording in progress. All times are in µs since its start.
pub(crate) struct Maker {
    sources: SourceTable,
    rows: Vec<Row>,
    name: &'static str,
    /// End of each CPU's last row.
    until: BTreeMap<u32, i64>,
    header: Header,
}

/// A thread of the watched program.
#[derive(Clone, Copy)]
pub(crate) struct Of {
    pub(crate) tid: i32,
    pub(crate) name: &'static str,
    /// CPU on which the thread always runs.
    pub(crate) cpu: u32,
}

/// Returns a second thread of the program, which always runs on CPU 1.
pub(crate) const fn second_thread(name: &'static str) -> Of {
    Of {
        tid: PID + 1,
        name,
        cpu: 1,
    }
}

/// Returns a source that belongs to a different process with one thread.
pub(crate) fn other(name: &str, pid: i32) -> Source {
    thread(Owner::Program, name, name, (pid, pid))
}

/// Returns the source of the timer that ends a sleep.
pub(crate) fn timer() -> Source {
    Source::kernel(Kind::Irq, "local_timer", "hrtimer_wakeup")
}

impl Maker {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            sources: SourceTable::default(),
            rows: Vec::new(),
            name,
            until: [(0, 0), (1, 0)].into(),
            header: header(),
        }
    }

    /// Sets the freezer cgroup of the program.
    pub(crate) fn freezer(&mut self, path: &str) {
        self.victim().freezer = Some(path.to_owned());
    }

    fn victim(&mut self) -> &mut VictimHeader {
        let name = self.name;
        self.header.victim.get_or_insert_with(|| VictimHeader {
            pid: Some(PID),
            ..VictimHeader::new(Target::Process, name.to_owned(), Nanos::from_micros(BEGIN))
        })
    }

    pub(crate) fn source(&self, of: Of) -> Source {
        thread(Owner::Program, of.name, self.name, (PID, of.tid))
    }

    fn put(&mut self, cpu: u32, source: Source, from: i64, to: i64) {
        if from < to {
            let source = self.sources.intern(source);
            let (start, dur) = ((BEGIN + from) * 1_000, (to - from) * 1_000);
            self.rows.push(row(cpu, start, dur, dur, source));
        }
    }

    /// Fills the CPU with idle time up to `to`.
    fn idle(&mut self, cpu: u32, to: i64) {
        let from = self.until.insert(cpu, to).unwrap_or_default();
        self.put(cpu, Source::idle(), from, to);
    }

    /// Makes a different source run on a CPU.
    pub(crate) fn runs(&mut self, cpu: u32, source: Source, from: i64, to: i64) {
        self.idle(cpu, from);
        self.put(cpu, source, from, to);
        self.until.insert(cpu, to);
    }

    /// Makes a thread run. `detail` is empty for the thread's own code.
    pub(crate) fn run(&mut self, of: Of, detail: &str, from: i64, to: i64) {
        let source = Source {
            detail: detail.into(),
            ..self.source(of)
        };
        self.runs(of.cpu, source, from, to);
    }

    /// Records that a thread's timer woke it later than its slack allows.
    pub(crate) fn late_timer(&mut self, of: Of, asked: i64, woken: i64) {
        let source = self.sources.intern(off_cpu(self.source(of), "timer"));
        let (start, dur) = ((BEGIN + asked) * 1_000, (woken - asked) * 1_000);
        self.rows.push(row(of.cpu, start, dur, 0, source));
    }

    /// Makes the machine virtual, with a hypervisor that takes this much time from each CPU.
    pub(crate) fn steal(&mut self, millis: i64) {
        self.header.machine.hypervisor = Some("KVM".to_owned());
        let counters = |stolen| {
            let times = CpuTimes {
                steal: Nanos::from_millis(stolen),
                ..CpuTimes::default()
            };
            [(0, times), (1, times)].into()
        };
        self.header.before.cpu_times = counters(100);
        self.header.after.cpu_times = counters(100 + millis);
    }

    /// Takes a thread off CPU, with this detail.
    pub(crate) fn off(&mut self, of: Of, detail: &str, from: i64, to: i64) {
        let source = off_cpu(self.source(of), detail);
        self.put(of.cpu, source, from, to);
    }

    /// Like [`off`](Self::off), but makes `by` end the wait.
    pub(crate) fn off_until(&mut self, of: Of, detail: &str, (from, to): (i64, i64), by: &Source) {
        self.off(of, detail, from, to);
        let by: SourceId = self.sources.intern(by.clone());
        let at = Nanos::from_micros(BEGIN + to);
        let edge = Edge::new(Cpu(0), at, by, Effect::Woke(of.tid));
        self.rows.push(Row::Edge(edge));
    }

    /// Makes a thread sleep on a timer.
    pub(crate) fn sleep(&mut self, of: Of, from: i64, to: i64) {
        let place = "sleeping in clock_nanosleep at do_nanosleep";
        self.off_until(of, place, (from, to), &timer());
    }

    /// Ends the recording after this many seconds, and analyses it.
    pub(crate) fn statement(mut self, seconds: i64) -> Statement {
        let end = seconds * 1_000_000;
        self.idle(0, end);
        self.idle(1, end);
        self.victim();
        let ns = |at: i64| (BEGIN + at) * 1_000;
        let header = Header {
            cpus: vec![books(0, ns(0), ns(end)), books(1, ns(0), ns(end))],
            coverage: Coverage {
                every_entry_watched: true,
                attached: vec![Hook::PageFault, Hook::DirectReclaim],
                ..Coverage::default()
            },
            world: World::Live,
            ..self.header
        };
        // The tracer emits a row when the row ends.
        let end_of = |row: &Row| row.span().end();
        self.rows.sort_by_key(end_of);
        let mut auditor = Auditor::books().following(Nanos(ns(0)), Some(PID));
        for row in &self.rows {
            auditor.row(&self.sources, row);
        }
        let statement = auditor.finish(&header, &self.sources, 1);
        let threads = statement.victim.as_ref().unwrap().threads.as_ref().unwrap();
        assert!(threads.balances(), "{:?}", threads.imbalances);
        statement
    }

    /// Like [`statement`](Self::statement), but checks that the program had no stalls, and returns
    /// the times of its threads.
    pub(crate) fn without_stalls(self, seconds: i64) -> ThreadTimes {
        let statement = self.statement(seconds);
        let threads = statement.victim.unwrap().threads.unwrap();
        assert!(threads.stalls.is_empty(), "{:#?}", threads.stalls);
        threads
    }

    /// Like [`statement`](Self::statement), but renders the first screen.
    pub(crate) fn screen(self, seconds: i64) -> String {
        screen(self.statement(seconds))
    }
}

pub(crate) fn screen(statement: Statement) -> String {
    let style = TextStyle {
        width: 80,
        ..TextStyle::default()
    };
    let document = Document::Statement(Box::new(statement));
    let page = render(&document, Format::default(), &style);
    assert!(page.lines().count() <= 23, "{page}");
    page
}

/// A loop that works for 3 ms every 20 ms.
pub(crate) const LOOP: Of = Of {
    tid: PID,
    name: "game",
    cpu: 0,
};
pub(crate) const PERIOD: i64 = 20_000;
pub(crate) const WORK: i64 = 3_000;

/// Writes a loop with a frame every 20 ms for this many seconds. `disturb` receives the recording
/// and the start of a frame. If it writes the frame itself, it returns when the frame ends.
pub(crate) fn paced(
    maker: &mut Maker,
    seconds: i64,
    mut disturb: impl FnMut(&mut Maker, i64) -> Option<i64>,
) {
    let mut asleep = 0;
    let mut due = PERIOD;
    let end = seconds * 1_000_000;
    while due + WORK < end {
        maker.sleep(LOOP, asleep, due);
        let done = disturb(maker, due).unwrap_or_else(|| {
            maker.run(LOOP, "", due, due + WORK);
            due + WORK
        });
        asleep = done;
        while due <= done {
            due += PERIOD;
        }
    }
    maker.sleep(LOOP, asleep, end);
}
