//! Every fiftieth frame of a loop is made 9 ms late, each time by something else: the statement
//! must name it, and nothing else.

use ticktax_analysis::Auditor;
use ticktax_fixture::{books, off_cpu, process, row, thread};
use ticktax_model::hook::Hook;
use ticktax_model::machine::CpuTimes;
use ticktax_model::recording::{Header, Level, Row, RowSink, World};
use ticktax_model::victim::{HoldUp, LateFrames, Target, VictimHeader};
use ticktax_model::{Kind, Nanos, Owner, Source, SourceId, SourceTable};

const MS: i64 = 1_000_000;
const BEGIN: i64 = 1_000 * MS;
const PID: i32 = 10;
const PERIOD: i64 = 20 * MS;
const FRAMES: i64 = 500;
/// How long a frame works.
const WORK: i64 = 3 * MS;
/// By how much a frame is late that is late.
const LATE: i64 = 9 * MS;
/// What the hypervisor had taken before: its clock runs.
const STOLEN_BEFORE: i64 = 1_000 * MS;

/// What makes frames late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Injected {
    /// Another program has the CPU.
    Program,
    /// A softirq has the CPU, which idles beneath it.
    SoftirqWhileIdle,
    /// A softirq interrupts another program.
    SoftirqWhileBusy,
    /// It waits where it was, and is moved to a CPU that idles.
    Migration,
    /// It is woken late, on a CPU of which a row says that the hypervisor had it.
    StealRow,
    /// The same, of which only the probe's gap tells.
    StealGap,
    /// Its quota is used up.
    Quota,
    /// The frame before has page faults.
    PageFaults,
    /// The frame before reclaims memory.
    Reclaim,
    /// It is off its CPU, waiting for a disk.
    Disk,
    /// The same for a lock.
    Lock,
    /// It is stopped.
    Stopped,
    /// The frame before works for longer.
    Work,
    /// Its timer is late.
    Sleep,
}

use Injected::{
    Disk, Lock, Migration, PageFaults, Program, Quota, Reclaim, Sleep, SoftirqWhileBusy,
    SoftirqWhileIdle, StealGap, StealRow, Stopped, Work,
};

/// Everything with what must be said of it.
const ALL: [(Injected, HoldUp, Option<&str>); 14] = [
    (Program, HoldUp::Waiting, Some("cc1")),
    (SoftirqWhileIdle, HoldUp::Interrupts, Some("NET_RX")),
    (SoftirqWhileBusy, HoldUp::Interrupts, Some("NET_RX")),
    (Migration, HoldUp::Migration, None),
    (StealRow, HoldUp::Steal, None),
    (StealGap, HoldUp::Steal, None),
    (Quota, HoldUp::Quota, None),
    (PageFaults, HoldUp::PageFaults, None),
    (Reclaim, HoldUp::Reclaim, None),
    (Disk, HoldUp::Disk, None),
    (Lock, HoldUp::Lock, None),
    (Stopped, HoldUp::Stopped, None),
    (Work, HoldUp::OwnWork, None),
    (Sleep, HoldUp::OwnSleep, None),
];

/// A recording that is being made.
struct Maker {
    auditor: Auditor,
    sources: SourceTable,
    game: Source,
    /// What else is on CPU 0.
    probe: bool,
    asleep: i64,
    idle: [i64; 2],
}

impl Maker {
    fn put(&mut self, cpu: u32, source: Source, (from, to): (i64, i64), own: i64) {
        let source: SourceId = self.sources.intern(source);
        let row: Row = row(cpu, from, to - from, own, source);
        self.auditor.row(&self.sources, &row);
    }

    fn whole(&mut self, cpu: u32, source: Source, from: i64, to: i64) {
        if from < to {
            self.put(cpu, source, (from, to), to - from);
        }
    }

    fn off(&mut self, why: &str, from: i64, to: i64) {
        let source = off_cpu(self.game.clone(), why);
        self.whole(0, source, from, to);
    }

    /// Nobody, or the probe, has had the CPU until `to`, but for `taken` of the time.
    fn background(&mut self, cpu: u32, to: i64, taken: i64) {
        let from = std::mem::replace(&mut self.idle[cpu as usize], to);
        let source = if self.probe && cpu == 0 {
            thread(Owner::Probe, "ticktax-spin", "ticktax", (99, 99))
        } else {
            Source::idle()
        };
        self.put(cpu, source, (from, to), to - from - taken);
    }

    /// A frame that was due at `due`, and begins in time or is made late.
    fn frame(&mut self, due: i64, injected: Option<Injected>) {
        match injected {
            None => {
                let began = due + 20_000;
                self.off("sleeping", self.asleep, due);
                self.background(0, began, 0);
                self.off("woken", due, began);
                self.works(0, began);
            }
            Some(injected @ (Program | SoftirqWhileBusy | SoftirqWhileIdle)) => {
                self.kept_waiting(due, injected);
            }
            Some(injected @ (PageFaults | Reclaim | Work)) => self.overruns(due, injected),
            Some(injected) => self.held_up(due, injected),
        }
    }

    /// It is woken in time, and something else has its CPU.
    fn kept_waiting(&mut self, due: i64, injected: Injected) {
        let began = due + LATE;
        let softirq = Source::kernel(Kind::Softirq, "NET_RX", "");
        self.off("sleeping", self.asleep, due);
        if injected == SoftirqWhileIdle {
            self.whole(0, softirq, due, began);
            self.background(0, began, LATE);
        } else {
            let softirqs = injected == SoftirqWhileBusy;
            let taken = if softirqs { LATE - MS } else { 0 };
            self.background(0, due, 0);
            self.whole(0, softirq, began - taken, began);
            let cc1 = process(Owner::Program, "cc1", 77);
            self.put(0, cc1, (due, began), LATE - taken);
        }
        self.off("woken", due, began);
        self.works(0, began);
    }

    /// It is moved, throttled, or woken late.
    fn held_up(&mut self, due: i64, injected: Injected) {
        let began = due + LATE;
        let until = match injected {
            Migration | Quota | Disk | Lock | Stopped => due,
            _ => began,
        };
        let taken = if injected == StealRow { LATE } else { 0 };
        let outside = match injected {
            StealRow => Some(Source::kernel(Kind::Steal, "steal", "")),
            StealGap => Some(Source::kernel(Kind::Gap, "spin", "")),
            _ => None,
        };
        if let Some(outside) = outside {
            self.whole(0, outside, due, began);
        }
        self.off("sleeping", self.asleep, until);
        if injected == Migration {
            self.background(0, began + WORK, 0);
            self.background(1, began, 0);
            let waits = off_cpu(self.game.clone(), "woken, moved");
            self.whole(1, waits, due, began);
            self.works(1, began);
            return;
        }
        self.background(0, began, taken);
        match injected {
            Quota => self.off("throttled", due, began),
            Disk => self.off("disk", due, began),
            Lock => self.off("lock", due, began),
            Stopped => self.off("stopped", due, began),
            _ => {}
        }
        self.works(0, began);
    }

    /// The frame before begins in time, and ends when this one begins.
    fn overruns(&mut self, due: i64, injected: Injected) {
        let (due, began) = (due - PERIOD, due + LATE);
        let detail = match injected {
            PageFaults => "page_fault",
            Reclaim => "reclaim",
            _ => "",
        };
        let more = Source {
            detail: detail.into(),
            ..self.game.clone()
        };
        self.off("sleeping", self.asleep, due);
        self.background(0, due, 0);
        self.works(0, due);
        let ended = began - 50_000;
        self.whole(0, more, self.asleep, ended);
        self.idle[0] = ended;
        self.off("sleeping", ended, began);
        self.background(0, began, 0);
        self.works(0, began);
    }

    /// A frame's work, after which it sleeps.
    fn works(&mut self, cpu: u32, from: i64) {
        let to = from + WORK;
        self.whole(cpu, self.game.clone(), from, to);
        self.asleep = to;
        self.idle[cpu as usize] = to;
    }
}

fn header(injected: Injected) -> Header {
    let end = BEGIN + FRAMES * PERIOD;
    let mut header = Header {
        victim: Some(VictimHeader {
            target: Target::Process,
            name: "game".to_owned(),
            pid: Some(PID),
            begin: Nanos(BEGIN),
            followed: true,
            incomplete: None,
            before: None,
            after: None,
            threads: None,
        }),
        books: vec![books(0, BEGIN, end), books(1, BEGIN, end)],
        ..Header::new(World::Live, Level::Kernel, "test")
    };
    header.coverage.attached = vec![
        Hook::LocalTimer,
        Hook::IrqHandler,
        Hook::PageFault,
        Hook::DirectReclaim,
    ];
    header.coverage.every_entry_watched = true;
    header.machine.hypervisor = Some("KVM".to_owned());
    let steals = matches!(injected, StealRow | StealGap);
    let stolen = if steals { FRAMES / 50 * LATE } else { 0 };
    for (counters, steal) in [(&mut header.before, 0), (&mut header.after, stolen)] {
        let steal = Nanos(STOLEN_BEFORE + steal);
        let times = |steal| CpuTimes {
            steal,
            ..CpuTimes::default()
        };
        counters.cpu_times = [(0, times(steal)), (1, times(Nanos::ZERO))].into();
    }
    header.before.at = Nanos(BEGIN);
    header.after.at = Nanos(end);
    header
}

fn late(injected: Injected, header: &Header) -> LateFrames {
    let mut auditor = Auditor::books();
    auditor.victim_since(Nanos(BEGIN - 1));
    auditor.frames_of(PID);
    let mut maker = Maker {
        auditor,
        sources: SourceTable::default(),
        game: process(Owner::Program, "game", PID),
        probe: injected == StealGap,
        asleep: BEGIN,
        idle: [BEGIN; 2],
    };
    let overran = matches!(injected, PageFaults | Reclaim | Work);
    for k in 1..FRAMES - 1 {
        let due = BEGIN + k * PERIOD;
        match k % 50 {
            25 => maker.frame(due, Some(injected)),
            24 if overran => {}
            _ => maker.frame(due, None),
        }
    }
    let end = BEGIN + FRAMES * PERIOD;
    maker.off("sleeping", maker.asleep, end);
    maker.background(0, end, 0);
    maker.background(1, end, 0);
    let statement = maker.auditor.finish(header, &maker.sources, 1);
    let frames = statement.victim.unwrap().frames;
    let frames = frames.unwrap_or_else(|| panic!("{injected:?}: no frames"));
    frames
        .late
        .unwrap_or_else(|| panic!("{injected:?}: none late"))
}

#[test]
fn whatever_makes_frames_late_is_named_and_nothing_else() {
    for (injected, kind, name) in ALL {
        let late = late(injected, &header(injected));
        assert_eq!(late.frames, 10, "{injected:?}: {late:#?}");
        let [cause] = &*late.causes else {
            panic!("{injected:?}: {late:#?}");
        };
        let by = cause.by.as_ref().map(|by| &*by.name);
        assert_eq!((cause.kind, by), (kind, name), "{injected:?}: {late:#?}");
        assert_eq!(late.by_kind.len(), HoldUp::ALL.len(), "all could be seen");
        for one in &late.by_kind {
            let most = if one.kind == kind { 10 } else { 0 };
            assert_eq!(one.frames, most, "{injected:?}: {late:#?}");
            let all: Nanos = late.by_kind.iter().map(|one| one.time).sum();
            let share = one.time.0 as f64 / all.0 as f64;
            // A millisecond of each softirq's wait is behind the program that it interrupts.
            let other = injected == SoftirqWhileBusy && one.kind == HoldUp::Waiting;
            assert_eq!(
                share > 0.02,
                one.kind == kind || other,
                "{injected:?}: {late:#?}"
            );
        }
    }
}

/// What nobody watched is not said to have done nothing.
#[test]
fn what_could_not_be_seen_is_not_told_as_none() {
    let mut header = header(Program);
    header.coverage.attached.clear();
    header.machine.hypervisor = None;
    let late = late(Program, &header);
    let kinds: Vec<HoldUp> = late.by_kind.iter().map(|one| one.kind).collect();
    for unseen in [
        HoldUp::Interrupts,
        HoldUp::PageFaults,
        HoldUp::Reclaim,
        HoldUp::Steal,
    ] {
        assert!(!kinds.contains(&unseen), "{unseen:?}");
    }
    assert_eq!((late.stolen, kinds.len()), (None, HoldUp::ALL.len() - 4));
}

/// A device's interrupts are not the timer's.
#[test]
fn interrupts_of_which_only_some_were_watched_may_have_been_the_cause() {
    let mut header = header(Program);
    header.coverage.attached = vec![Hook::IrqHandler];
    let late = late(Program, &header);
    let mut kinds = late.by_kind.iter().map(|one| one.kind);
    assert!(!kinds.any(|kind| kind == HoldUp::Interrupts), "{late:#?}");
}

/// `/proc/stat` has the column also where the hypervisor never fills it.
#[test]
fn a_clock_that_never_ran_does_not_say_that_nothing_was_stolen() {
    let mut header = header(Program);
    for counters in [&mut header.before, &mut header.after] {
        for times in counters.cpu_times.values_mut() {
            times.steal = Nanos::ZERO;
        }
    }
    let late = late(Program, &header);
    let mut kinds = late.by_kind.iter().map(|one| one.kind);
    assert!(!kinds.any(|kind| kind == HoldUp::Steal), "{late:#?}");
    assert_eq!(late.stolen, None);
}

/// A gap is the hypervisor's only where the tracer would have seen everything else.
#[test]
fn a_gap_without_proof_is_not_the_hypervisors() {
    let mut unproven = header(StealGap);
    unproven.coverage.every_entry_watched = false;
    let told = late(StealGap, &unproven);
    assert_eq!(told.causes[0].kind, HoldUp::OwnSleep);
    // But its clock says how much it was at most.
    assert_eq!(told.stolen, Some(Nanos(10 * LATE)));
    let mut metal = header(StealGap);
    metal.machine.hypervisor = None;
    assert_eq!(late(StealGap, &metal).causes[0].kind, HoldUp::OwnSleep);
}
