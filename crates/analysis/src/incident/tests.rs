//! Tests incidents whose cause is known.

use ticktax_fixture::{books, header, process, replay, row, whole};
use ticktax_model::incident::{Incident, Trigger, TriggerKind};
use ticktax_model::recording::{Edge, Effect, Header, Row};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceId, SourceTable};

use super::IncidentAnalysis;

mod code;
mod groups;

const MS: i64 = 1_000_000;

/// The sources: two programs, a kernel thread, the idle task, a timer interrupt and a softirq.
struct Cast {
    sources: SourceTable,
    game: SourceId,
    backup: SourceId,
    worker: SourceId,
    idle: SourceId,
    timer: SourceId,
    softirq: SourceId,
}

const GAME: i32 = 10;
const BACKUP: i32 = 20;
const WORKER: i32 = 30;

impl Cast {
    fn new() -> Self {
        let mut sources = SourceTable::default();
        Self {
            game: sources.intern(process(Owner::Program, "game", GAME)),
            backup: sources.intern(process(Owner::Program, "backup", BACKUP)),
            worker: sources.intern(Source {
                detail: "flush_work".into(),
                ..process(Owner::Kernel, "kworker/0:1", WORKER)
            }),
            idle: sources.intern(Source::idle()),
            timer: sources.intern(Source::kernel(Kind::Irq, "local_timer", "hrtimer_wakeup")),
            softirq: sources.intern(Source::kernel(Kind::Softirq, "NET_RX", "")),
            sources,
        }
    }

    fn analyse(&self, triggers: &[Trigger], rows: &[Row]) -> Incident {
        let mut header: Header = header();
        header.cpus.push(books(0, 0, 1_000 * MS));
        header.triggers = triggers.to_vec();
        let mut analysis = IncidentAnalysis::new(&header.triggers).expect("a trigger made it");
        replay(&self.sources, rows, &mut analysis);
        analysis.finish(&header, &self.sources, 1_700_000_000_000)
    }
}

fn trigger(kind: TriggerKind, end_ms: i64, lasted_ms: i64, tid: i32, comm: &str) -> Trigger {
    Trigger {
        kind,
        at: Nanos(end_ms * MS),
        cpu: Some(Cpu(0)),
        tid,
        pid: tid,
        comm: comm.to_owned(),
        lasted: Nanos(lasted_ms * MS),
        above: None,
        place: None,
    }
}

fn ran(cpu: u32, from: i64, to: i64, source: SourceId) -> Row {
    whole(cpu, from * MS, (to - from) * MS, source)
}

fn edge(cpu: u32, at: i64, by: SourceId, effect: Effect) -> Row {
    Row::Edge(Edge::new(Cpu(cpu), Nanos(at), by, effect))
}

/// Returns the names of the sources that ran instead, with their times (in ms).
fn instead(incident: &Incident) -> Vec<(&str, i64)> {
    let ran = incident.ran.iter();
    ran.map(|ran| (&*ran.name, ran.time.0 / MS)).collect()
}

#[test]
fn a_wait_is_explained_by_own_times_and_edges() {
    let cast = Cast::new();
    // The timer wakes the game at 100, while the backup runs from 90 to 120. The timer woke the
    // backup at 89, and interrupts it for 2 ms.
    let rows = [
        ran(0, 0, 80, cast.game),
        ran(0, 80, 90, cast.idle),
        edge(0, 89 * MS, cast.timer, Effect::Woke(BACKUP)),
        edge(0, 100 * MS - 500, cast.timer, Effect::Woke(GAME)),
        ran(0, 110, 112, cast.timer),
        row(0, 90 * MS, 30 * MS, 28 * MS, cast.backup),
        ran(0, 120, 130, cast.game),
    ];
    let incident = cast.analyse(&[trigger(TriggerKind::Wait, 120, 20, GAME, "game")], &rows);
    assert_eq!(instead(&incident), [("backup", 18), ("local_timer", 2)]);
    assert_eq!(incident.unseen, Nanos::ZERO);
    assert_eq!(
        incident.woken_by.as_deref(),
        Some("local_timer hrtimer_wakeup")
    );
    assert_eq!(incident.chain, ["local_timer hrtimer_wakeup", "backup"]);
    assert_eq!(
        incident.thread.as_ref().map(|thread| &*thread.program),
        Some("game")
    );
    let signature = incident.signature();
    assert_eq!(
        (&*signature.program, &*signature.culprit),
        ("game", "backup")
    );
}

#[test]
fn without_an_edge_no_cause_is_reported() {
    let cast = Cast::new();
    // The backup resumes after the game's slice. Nothing woke either of them then: the wake-up at
    // 10 led to an earlier run.
    let rows = [
        edge(0, 10 * MS, cast.timer, Effect::Woke(BACKUP)),
        ran(0, 11, 20, cast.backup),
        ran(0, 20, 100, cast.game),
        ran(0, 100, 120, cast.backup),
        ran(0, 120, 130, cast.game),
    ];
    let incident = cast.analyse(&[trigger(TriggerKind::Wait, 120, 20, GAME, "game")], &rows);
    assert_eq!(instead(&incident), [("backup", 20)]);
    assert_eq!((incident.woken_by, incident.chain), (None, Vec::new()));
    // The game was woken by an interrupt that no hook watches.
    let rows = [
        edge(0, 100 * MS, cast.idle, Effect::Woke(GAME)),
        ran(0, 100, 120, cast.backup),
    ];
    let incident = cast.analyse(&[trigger(TriggerKind::Wait, 120, 20, GAME, "game")], &rows);
    assert_eq!(incident.woken_by, None);
}

#[test]
fn a_wait_before_migration_is_explained_by_the_earlier_cpu() {
    let cast = Cast::new();
    // The game is preempted on CPU 1 at 100. At 118, it migrates to CPU 0, which was idle until
    // 115.
    let rows = [
        ran(1, 50, 100, cast.game),
        ran(1, 100, 140, cast.backup),
        ran(0, 60, 115, cast.idle),
        ran(0, 115, 118, cast.worker),
        ran(0, 118, 130, cast.game),
    ];
    let incident = cast.analyse(&[trigger(TriggerKind::Wait, 118, 18, GAME, "game")], &rows);
    assert_eq!(instead(&incident), [("backup", 15), ("kworker/0:1", 3)]);
    assert_eq!(
        (incident.cpu, incident.waited_on),
        (Some(Cpu(0)), Some(Cpu(1)))
    );
    assert_eq!(incident.unseen, Nanos::ZERO);
}

#[test]
fn excess_rows_before_the_delay_are_dropped() {
    let cast = Cast::new();
    let around = |busy: Vec<Row>| {
        let own = ran(1, 50, 100, cast.game);
        let other = [
            ran(1, 100, 140, cast.backup),
            ran(0, 60, 115, cast.idle),
            ran(0, 115, 130, cast.worker),
        ];
        [vec![own], busy, other.to_vec()].concat()
    };
    let wait = [trigger(TriggerKind::Wait, 118, 18, GAME, "game")];
    // There are more rows than fit, all of them from before the delay and on another CPU.
    let many = i64::try_from(super::MAX_ROWS).unwrap() + 10;
    let busy = (0..many).map(|at| whole(2, at, 1, cast.backup)).collect();
    let incident = cast.analyse(&wait, &around(busy));
    assert_eq!(incident, cast.analyse(&wait, &around(Vec::new())));
    assert_eq!(instead(&incident), [("backup", 15), ("kworker/0:1", 3)]);
}

#[test]
fn time_without_rows_is_unseen() {
    let cast = Cast::new();
    let rows = [ran(0, 0, 105, cast.game), ran(0, 110, 120, cast.backup)];
    let incident = cast.analyse(&[trigger(TriggerKind::Wait, 120, 20, GAME, "game")], &rows);
    assert_eq!(incident.unseen, Nanos::from_millis(5));
    let incident = cast.analyse(&[trigger(TriggerKind::Wait, 120, 20, GAME, "game")], &[]);
    assert_eq!(
        (incident.unseen, incident.ran),
        (Nanos::from_millis(20), Vec::new())
    );
}

#[test]
fn a_gap_is_explained_by_what_ran_but_never_by_the_probe() {
    let mut cast = Cast::new();
    let probe = process(Owner::Probe, "ttx-spin/0", 40);
    let probe = cast.sources.intern(probe);
    // The hypervisor takes the CPU, but the spinning probe is not seen to leave it.
    let rows = [
        ran(0, 50, 106, probe),
        ran(0, 106, 118, cast.backup),
        ran(0, 118, 130, probe),
    ];
    let incident = cast.analyse(&[trigger(TriggerKind::Gap, 120, 20, 0, "")], &rows);
    assert_eq!(instead(&incident), [("backup", 12)]);
    assert_eq!(
        (incident.thread, incident.unseen),
        (None, Nanos::from_millis(8))
    );
    // A sleeping probe's CPU is idle until a timer fires late.
    let rows = [ran(0, 50, 119, cast.idle), ran(0, 119, 130, probe)];
    let incident = cast.analyse(&[trigger(TriggerKind::Gap, 119, 19, 0, "")], &rows);
    assert_eq!(instead(&incident), [("idle", 19)]);
    assert_eq!(incident.unseen, Nanos::ZERO);
}

#[test]
fn a_late_frame_is_explained_by_what_its_thread_waited_for() {
    let cast = Cast::new();
    // The frame is due at 100, when the timer wakes the game. The backup runs on the game's CPU
    // until 148.
    let rows = [
        ran(0, 80, 85, cast.game),
        edge(0, 100 * MS, cast.timer, Effect::Woke(GAME)),
        ran(0, 85, 95, cast.idle),
        ran(0, 95, 148, cast.backup),
        ran(0, 148, 150, cast.game),
    ];
    let late = [trigger(TriggerKind::Frame, 148, 48, GAME, "game")];
    let incident = cast.analyse(&late, &rows);
    assert_eq!(instead(&incident), [("backup", 48)]);
    assert_eq!(
        (incident.asleep, incident.unseen),
        (Nanos::ZERO, Nanos::ZERO)
    );
    assert_eq!(
        incident.woken_by.as_deref(),
        Some("local_timer hrtimer_wakeup")
    );
    assert_eq!(&*incident.signature().culprit, "backup");
    // If no wake-up was observed, it is unknown what kept the game waiting.
    let incident = cast.analyse(&late, &[rows[0].clone(), rows[3].clone()]);
    assert_eq!((incident.ran.len(), incident.unseen), (0, Nanos(48 * MS)));
}

#[test]
fn a_frame_delayed_by_the_previous_one_is_its_own_work() {
    let cast = Cast::new();
    // The work goes on from 80 to 130, except for 10 ms in which the backup runs. The thread then
    // sleeps until 140.
    let rows = [
        ran(0, 80, 110, cast.game),
        ran(0, 110, 120, cast.backup),
        ran(0, 120, 130, cast.game),
        ran(0, 130, 140, cast.idle),
        edge(0, 140 * MS, cast.timer, Effect::Woke(GAME)),
        ran(0, 140, 141, cast.game),
    ];
    let late = [trigger(TriggerKind::Frame, 140, 40, GAME, "game")];
    let incident = cast.analyse(&late, &rows);
    assert_eq!(instead(&incident), [("game", 20), ("backup", 10)]);
    assert_eq!(
        (incident.asleep, incident.unseen),
        (Nanos(10 * MS), Nanos::ZERO)
    );
    assert_eq!(incident.overrun, Nanos(30 * MS));
    let signature = incident.signature();
    assert_eq!((&*signature.program, &*signature.culprit), ("game", "game"));
}

#[test]
fn a_slot_overrun_by_the_previous_frame_shows_how_long() {
    let cast = Cast::new();
    // The backup delays the game, but mostly before the frame is due at 100, and that time is not
    // examined. The game then checks the clock and sleeps until the next slot.
    let rows = [
        ran(0, 70, 80, cast.game),
        ran(0, 80, 102, cast.backup),
        ran(0, 102, 103, cast.game),
        ran(0, 103, 120, cast.idle),
        edge(0, 120 * MS, cast.timer, Effect::Woke(GAME)),
        ran(0, 120, 125, cast.game),
    ];
    let late = [trigger(TriggerKind::Frame, 120, 20, GAME, "game")];
    let incident = cast.analyse(&late, &rows);
    assert_eq!(instead(&incident), [("backup", 2), ("game", 1)]);
    assert_eq!(
        (incident.asleep, incident.overrun),
        (Nanos(17 * MS), Nanos(3 * MS))
    );
    assert_eq!(incident.signature().culprit, "");
    assert!(incident.chain.is_empty());
}

#[test]
fn a_late_frame_of_a_sleeping_thread_has_no_culprit() {
    let cast = Cast::new();
    // Another program runs during the sleep and for another 2 ms after the wake-up.
    let rows = [
        ran(0, 80, 85, cast.game),
        edge(0, 85 * MS, cast.timer, Effect::Woke(BACKUP)),
        ran(0, 85, 142, cast.backup),
        edge(0, 140 * MS, cast.timer, Effect::Woke(GAME)),
        ran(0, 142, 150, cast.game),
    ];
    let late = [trigger(TriggerKind::Frame, 142, 42, GAME, "game")];
    let incident = cast.analyse(&late, &rows);
    assert_eq!(
        (incident.asleep, incident.unseen),
        (Nanos(40 * MS), Nanos::ZERO)
    );
    assert_eq!(instead(&incident), [("backup", 2)]);
    assert_eq!(incident.signature().culprit, "");
    assert!(incident.chain.is_empty());
    assert_eq!(incident.overrun, Nanos::ZERO);
    // The game's last run was too long ago to be examined.
    let incident = cast.analyse(&late, &rows[1..]);
    assert_eq!(
        (incident.asleep, incident.unseen),
        (Nanos(40 * MS), Nanos::ZERO)
    );
}

#[test]
fn each_nap_before_a_late_frame_is_examined() {
    let cast = Cast::new();
    // The game checks the clock every 10 ms. From 120 onwards, the backup keeps it from running.
    let mut rows = vec![ran(0, 80, 81, cast.game)];
    for nap in [90, 100, 110] {
        rows.push(ran(0, nap - 9, nap, cast.idle));
        rows.push(edge(0, nap * MS, cast.timer, Effect::Woke(GAME)));
        rows.push(ran(0, nap, nap + 1, cast.game));
    }
    rows.push(ran(0, 111, 119, cast.idle));
    rows.push(ran(0, 119, 150, cast.backup));
    rows.push(edge(0, 120 * MS, cast.timer, Effect::Woke(GAME)));
    let late = [trigger(TriggerKind::Frame, 150, 45, GAME, "game")];
    let incident = cast.analyse(&late, &rows);
    // After 105, the game sleeps until 110, checks the clock, and sleeps until 120.
    assert_eq!(instead(&incident), [("backup", 30), ("game", 1)]);
    assert_eq!(
        (incident.asleep, incident.unseen),
        (Nanos(14 * MS), Nanos::ZERO)
    );
}

#[test]
fn a_blocked_thread_is_explained_by_its_waker() {
    let cast = Cast::new();
    let rows = [
        edge(0, 90 * MS, cast.backup, Effect::Queued("flush_work".into())),
        ran(0, 95, 119, cast.worker),
        edge(0, 118 * MS, cast.worker, Effect::Woke(GAME)),
        ran(0, 119, 130, cast.game),
    ];
    let incident = cast.analyse(
        &[trigger(TriggerKind::Blocked, 119, 60, GAME, "game")],
        &rows,
    );
    assert_eq!(incident.woken_by.as_deref(), Some("kworker/0:1 flush_work"));
    assert_eq!(incident.chain, ["backup", "kworker/0:1 flush_work"]);
    assert!(incident.ran.is_empty());
    assert_eq!(incident.signature().culprit, "kworker/0:1 flush_work");
}

#[test]
fn a_long_softirq_keeps_the_interrupted_thread_waiting() {
    let cast = Cast::new();
    let rows = [
        edge(0, 99 * MS, cast.timer, Effect::Raised("NET_RX".into())),
        ran(0, 100, 112, cast.softirq),
        row(0, 80 * MS, 50 * MS, 38 * MS, cast.game),
    ];
    let incident = cast.analyse(
        &[trigger(TriggerKind::Stretch, 112, 12, 0, "NET_RX")],
        &rows,
    );
    assert_eq!(instead(&incident), [("NET_RX", 12)]);
    assert_eq!(incident.thread.map(|thread| thread.tid), Some(GAME));
    assert_eq!(incident.chain, ["local_timer hrtimer_wakeup", "NET_RX"]);
}

#[test]
fn a_long_kernel_thread_run_keeps_the_next_runnable_thread_waiting() {
    let cast = Cast::new();
    let rows = [
        ran(0, 60, 100, cast.game),
        ran(0, 100, 112, cast.worker),
        ran(0, 112, 130, cast.game),
    ];
    let stretch = trigger(TriggerKind::Stretch, 112, 12, WORKER, "kworker/0:1");
    let incident = cast.analyse(std::slice::from_ref(&stretch), &rows);
    assert_eq!(instead(&incident), [("kworker/0:1", 12)]);
    assert_eq!(incident.thread.map(|thread| thread.tid), Some(GAME));
    // The thread is woken after the kernel work ends, so it does not wait.
    let rows = [
        ran(0, 100, 112, cast.worker),
        ran(0, 112, 113, cast.idle),
        edge(0, 113 * MS, cast.timer, Effect::Woke(GAME)),
        ran(0, 113, 130, cast.game),
    ];
    assert_eq!(cast.analyse(&[stretch], &rows).thread, None);
}

#[test]
fn the_longest_delay_is_explained_and_a_mark_only_without_one() {
    let cast = Cast::new();
    let mark = Trigger {
        cpu: None,
        lasted: Nanos::ZERO,
        ..trigger(TriggerKind::Mark, 50, 0, 0, "level loaded")
    };
    let short = trigger(TriggerKind::Wait, 60, 6, BACKUP, "backup");
    let long = trigger(TriggerKind::Wait, 120, 20, GAME, "game");
    let incident = cast.analyse(&[mark.clone(), long, short], &[]);
    assert_eq!(
        (incident.lasted, incident.triggers),
        (Nanos::from_millis(20), 3)
    );
    let incident = cast.analyse(&[mark], &[]);
    assert_eq!(
        (incident.kind, &*incident.text),
        (TriggerKind::Mark, "level loaded")
    );
    assert_eq!((incident.thread, incident.unseen), (None, Nanos::ZERO));
}

#[test]
fn a_recording_without_triggers_has_no_incident() {
    assert!(IncidentAnalysis::new(&[]).is_none());
}

#[test]
fn absurd_times_in_a_file_are_harmless() {
    let cast = Cast::new();
    let ends = [i64::MIN / 2, -1, 0, i64::MAX / 2];
    for end in ends {
        for lasted in [i64::MIN / 4, 0, i64::MAX / 4] {
            let wild = Trigger {
                at: Nanos(end),
                lasted: Nanos(lasted),
                ..trigger(TriggerKind::Wait, 0, 0, GAME, "game")
            };
            for kind in TriggerKind::ALL {
                let rows = [ran(0, 0, 10, cast.backup), ran(0, 10, 20, cast.game)];
                let _ = cast.analyse(
                    &[Trigger {
                        kind,
                        ..wild.clone()
                    }],
                    &rows,
                );
            }
        }
    }
}
