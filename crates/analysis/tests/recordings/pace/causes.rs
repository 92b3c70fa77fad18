//! Tests the causes reported for late frames. In each test, every fiftieth frame of a loop is 9 ms
//! late for a single reason. The statement must name that cause and no other.

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
/// CPU time of a frame.
const WORK: i64 = 3 * MS;
/// Delay of a late frame.
const LATE: i64 = 9 * MS;
/// Time stolen before the recording starts, which shows that the steal clock works.
const STOLEN_BEFORE: i64 = 1_000 * MS;

/// The injected cause of late frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Injected {
    /// Another program runs.
    Program,
    /// A softirq runs on an otherwise idle CPU.
    SoftirqWhileIdle,
    /// A softirq interrupts another program.
    SoftirqWhileBusy,
    /// The thread waits for a CPU, then migrates to an idle one.
    Migration,
    /// The thread is woken late, and a row shows that its CPU was stolen.
    StealRow,
    /// The thread is woken late, and only a gap of the probe shows that its CPU was stolen.
    StealGap,
    Quota,
    /// The previous frame has page faults.
    PageFaults,
    /// The previous frame reclaims memory.
    Reclaim,
    Disk,
    Lock,
    Stopped,
    /// The previous frame takes longer.
    Work,
    Sleep,
}

use Injected::{
    Disk, Lock, Migration, PageFaults, Program, Quota, Reclaim, Sleep, SoftirqWhileBusy,
    SoftirqWhileIdle, StealGap, StealRow, Stopped, Work,
};

/// All causes, each with the kind of delay and the name to be reported.
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

/// Builds a recording.
struct Maker {
    auditor: Auditor,
    sources: SourceTable,
    game: Source,
    /// Whether a probe uses CPU 0's idle time.
    probe: bool,
    asleep: i64,
    idle: [i64; 2],
}

impl Maker {
    fn put(&mut self, cpu: u32, source: Source, from: i64, to: i64, own: i64) {
        let source: SourceId = self.sources.intern(source);
        let row: Row = row(cpu, from, to - from, own, source);
        self.auditor.row(&self.sources, &row);
    }

    fn span(&mut self, cpu: u32, source: Source, from: i64, to: i64) {
        if from < to {
            self.put(cpu, source, from, to, to - from);
        }
    }

    fn off(&mut self, why: &str, from: i64, to: i64) {
        let source = off_cpu(self.game.clone(), why);
        self.span(0, source, from, to);
    }

    /// Fills the CPU with idle time or the probe up to `to`. Interrupts take `taken` of that time.
    fn background(&mut self, cpu: u32, to: i64, taken: i64) {
        let from = std::mem::replace(&mut self.idle[cpu as usize], to);
        let source = if self.probe && cpu == 0 {
            thread(Owner::Probe, "ticktax-spin", "ticktax", (99, 99))
        } else {
            Source::idle()
        };
        self.put(cpu, source, from, to, to - from - taken);
    }

    /// Adds a frame due at `due`, which is on time unless a cause is injected.
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

    /// Adds a frame whose thread is woken on time while something else is running.
    fn kept_waiting(&mut self, due: i64, injected: Injected) {
        let began = due + LATE;
        let softirq = Source::kernel(Kind::Softirq, "NET_RX", "");
        self.off("sleeping", self.asleep, due);
        if injected == SoftirqWhileIdle {
            self.span(0, softirq, due, began);
            self.background(0, began, LATE);
        } else {
            let softirqs = injected == SoftirqWhileBusy;
            let taken = if softirqs { LATE - MS } else { 0 };
            self.background(0, due, 0);
            self.span(0, softirq, began - taken, began);
            let cc1 = process(Owner::Program, "cc1", 77);
            self.put(0, cc1, due, began, LATE - taken);
        }
        self.off("woken", due, began);
        self.works(0, began);
    }

    /// Adds a frame whose thread is migrated, throttled or woken late.
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
            self.span(0, outside, due, began);
        }
        self.off("sleeping", self.asleep, until);
        if injected == Migration {
            self.background(0, began + WORK, 0);
            self.background(1, began, 0);
            let waits = off_cpu(self.game.clone(), "woken, moved");
            self.span(1, waits, due, began);
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

    /// Adds a late frame whose predecessor starts on time but runs until this one starts.
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
        // The thread does not go to sleep in the middle of reclaim.
        let done = ended - 10_000;
        self.span(0, more, self.asleep, done);
        self.span(0, self.game.clone(), done, ended);
        self.idle[0] = ended;
        self.off("sleeping", ended, began);
        self.background(0, began, 0);
        self.works(0, began);
    }

    /// Adds a frame's work, after which the thread sleeps.
    fn works(&mut self, cpu: u32, from: i64) {
        let to = from + WORK;
        self.span(cpu, self.game.clone(), from, to);
        self.asleep = to;
        self.idle[cpu as usize] = to;
    }
}

fn header(injected: Injected) -> Header {
    let end = BEGIN + FRAMES * PERIOD;
    let mut header = Header {
        victim: Some(VictimHeader {
            pid: Some(PID),
            ..VictimHeader::new(Target::Process, "game".to_owned(), Nanos(BEGIN))
        }),
        cpus: vec![books(0, BEGIN, end), books(1, BEGIN, end)],
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
    let mut maker = Maker {
        auditor: Auditor::books().following(Nanos(BEGIN - 1), Some(PID)),
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
fn the_cause_of_late_frames_is_named_and_no_other() {
    for (injected, kind, name) in ALL {
        let late = late(injected, &header(injected));
        assert_eq!(late.frames, 10, "{injected:?}: {late:#?}");
        let [cause] = &*late.causes else {
            panic!("{injected:?}: {late:#?}");
        };
        let by = cause.culprit.as_ref().map(|by| &*by.name);
        assert_eq!((cause.kind, by), (kind, name), "{injected:?}: {late:#?}");
        assert_eq!(late.by_kind.len(), usual_kinds(), "{injected:?}: {late:#?}");
        for late_time in &late.by_kind {
            let most = if late_time.kind == kind { 10 } else { 0 };
            assert_eq!(late_time.frames, most, "{injected:?}: {late:#?}");
            let all: Nanos = late.by_kind.iter().map(|late_time| late_time.time).sum();
            let share = late_time.time.0 as f64 / all.0 as f64;
            // A softirq delays the loop partly by delaying the program that it interrupts. 1 ms of
            // that delay counts as waiting for that program.
            let other = injected == SoftirqWhileBusy && late_time.kind == HoldUp::Waiting;
            assert_eq!(
                share > 0.02,
                late_time.kind == kind || other,
                "{injected:?}: {late:#?}"
            );
        }
    }
}

#[test]
fn unwatched_kinds_of_delay_are_left_out() {
    let mut header = header(Program);
    header.coverage.attached.clear();
    header.machine.hypervisor = None;
    let late = late(Program, &header);
    let kinds: Vec<HoldUp> = late.by_kind.iter().map(|time| time.kind).collect();
    for unseen in [
        HoldUp::Interrupts,
        HoldUp::PageFaults,
        HoldUp::Reclaim,
        HoldUp::Steal,
    ] {
        assert!(!kinds.contains(&unseen), "{unseen:?}");
    }
    assert_eq!((late.stolen, kinds.len()), (None, usual_kinds() - 4));
}

/// Interrupts count as unwatched if only device interrupts are watched but timer interrupts are
/// not.
#[test]
fn partly_watched_interrupts_are_left_out() {
    let mut header = header(Program);
    header.coverage.attached = vec![Hook::IrqHandler];
    let late = late(Program, &header);
    let mut kinds = late.by_kind.iter().map(|time| time.kind);
    assert!(!kinds.any(|kind| kind == HoldUp::Interrupts), "{late:#?}");
}

/// `/proc/stat` has a steal column even if the hypervisor never fills it in.
#[test]
fn a_steal_clock_that_never_ran_does_not_show_zero_steal() {
    let mut header = header(Program);
    for counters in [&mut header.before, &mut header.after] {
        for times in counters.cpu_times.values_mut() {
            times.steal = Nanos::ZERO;
        }
    }
    let late = late(Program, &header);
    let mut kinds = late.by_kind.iter().map(|time| time.kind);
    assert!(!kinds.any(|kind| kind == HoldUp::Steal), "{late:#?}");
    assert_eq!(late.stolen, None);
}

/// A gap is attributed to the hypervisor only if the tracer would have seen anything else.
#[test]
fn a_gap_without_proof_is_not_blamed_on_the_hypervisor() {
    let mut unproven = header(StealGap);
    unproven.coverage.every_entry_watched = false;
    let late_frames = late(StealGap, &unproven);
    assert_eq!(late_frames.causes[0].kind, HoldUp::OwnSleep);
    // The steal clock still gives an upper bound.
    assert_eq!(late_frames.stolen, Some(Nanos(10 * LATE)));
    let mut metal = header(StealGap);
    metal.machine.hypervisor = None;
    assert_eq!(late(StealGap, &metal).causes[0].kind, HoldUp::OwnSleep);
}

/// Returns the number of kinds of delay that are listed even if they did not occur.
fn usual_kinds() -> usize {
    let kinds = HoldUp::ALL.into_iter();
    kinds.filter(|kind| !kind.is_rare()).count()
}
