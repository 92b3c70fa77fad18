//! Tests processes whose rows cover less time than the scheduler counted for them.

use ticktax_fixture::thread;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::ProgramTime;
use ticktax_model::{Nanos, Owner, Source};

use crate::ledger::situations::{BEGIN, Desk, timer};

#[test]
fn a_process_with_cpu_time_and_no_rows_is_named() {
    let mut desk = Desk::open(100_000_000);
    desk.row(0, 100_000_000, 100_000_000, Source::idle());
    let program = |name: &str, ms| ProgramTime {
        name: name.to_owned(),
        on_cpu: Some(Nanos::from_millis(ms)),
        ..ProgramTime::default()
    };
    let known = thread(Owner::Program, "game", "game", (10, 10));
    desk.row(0, 90_000_000, 90_000_000, known);
    (desk.header.before.at, desk.header.after.at) = (Nanos(BEGIN), Nanos(BEGIN + 100_000_000));
    desk.header.before.programs = [(7, program("quiet", 3)), (8, program("waits", 5))].into();
    desk.header.after.programs = [
        (7, program("quiet", 37)),
        (8, program("waits", 5)),
        (10, program("game", 90)),
    ]
    .into();
    let missing = [Limitation::ProcessNotTraced {
        name: "quiet".to_owned(),
        pid: 7,
        ran: Nanos::from_millis(34),
    }];
    assert_eq!(desk.close().coverage.limitations, missing);
    // All the missing time may lie before the start of the recording.
    desk.header.before.at = Nanos(BEGIN - 40_000_000);
    assert_eq!(desk.close().coverage.limitations, []);
}

/// Builds a recording in which the scheduler counted `ran` ms for program 10, but rows cover only
/// `traced` ms.
fn traced_in_part(traced: i64, ran: i64) -> Desk {
    let mut desk = Desk::open(1_000_000_000);
    let game = thread(Owner::Program, "game", "game", (10, 10));
    let (traced, rest) = (traced * 1_000_000, 1_000_000_000 - traced * 1_000_000);
    // Half a millisecond of the traced time is an interrupt, which the scheduler charges to the
    // program.
    desk.row(0, 500_000, 500_000, timer());
    desk.row(0, traced, traced - 500_000, game);
    desk.row(traced, rest, rest, Source::idle());
    with_account(desk, ran)
}

/// Sets the scheduler's count for program 10 in `desk` to `ran` ms.
fn with_account(mut desk: Desk, ran: i64) -> Desk {
    let program = |ms| ProgramTime {
        name: "game".to_owned(),
        on_cpu: Some(Nanos::from_millis(ms)),
        ..ProgramTime::default()
    };
    let end = BEGIN + 1_000_000_000;
    (desk.header.before.at, desk.header.after.at) = (Nanos(BEGIN), Nanos(end));
    desk.header.after.programs_read = Some(Nanos(end + 2_000_000));
    desk.header.machine.hz_configured = Some(250);
    desk.header.before.programs = [(10, program(1_000))].into();
    desk.header.after.programs = [(10, program(1_000 + ran))].into();
    desk
}

#[test]
fn a_process_whose_rows_fall_short_of_its_cpu_time_is_named() {
    let named = |traced, ran| traced_in_part(traced, ran).close().coverage.limitations;
    let missing = |ran, missing| Limitation::ProcessPartlyTraced {
        name: "game".to_owned(),
        pid: 10,
        ran: Nanos::from_millis(ran),
        missing: Nanos::from_millis(missing),
    };
    assert_eq!(named(500, 534), [missing(534, 34)]);
    // The tolerance is one tick, plus 2 ms for the read itself, plus 1 % of 534 ms.
    assert_eq!(named(523, 534), []);
    assert_eq!(named(522, 534), [missing(534, 12)]);
    // The tolerance is at least 1 ms.
    assert_eq!(named(13, 20), []);
    assert_eq!(named(12, 20), [missing(20, 8)]);
    let mut desk = traced_in_part(500, 534);
    desk.header.after.programs_read = None;
    assert_eq!(
        desk.close().coverage.limitations,
        [],
        "the time of reading is unknown"
    );
    let mut desk = traced_in_part(500, 534);
    desk.header.before.at = Nanos(BEGIN - 40_000_000);
    assert_eq!(
        desk.close().coverage.limitations,
        [],
        "it may have run before the recording"
    );
}

/// The scheduler charges a thread from its wake-up, but the thread's rows start only at the switch.
#[test]
fn time_charged_before_a_switch_is_not_missing() {
    let mut desk = traced_in_part(500, 534);
    desk.header.after.programs.get_mut(&10).unwrap().on_cpu = Some(Nanos::from_millis(1_532));
    let named = desk.close().coverage.limitations;
    assert!(
        matches!(
            named[..],
            [Limitation::ProcessPartlyTraced { missing, .. }] if missing == Nanos::from_millis(32)
        ),
        "{named:?}"
    );
    // Spread the same time over 1000 on-CPU periods with idle time between them.
    let mut desk = Desk::open(1_000_000_000);
    let game = thread(Owner::Program, "game", "game", (10, 10));
    for run in 0..1_000 {
        desk.row(run * 1_000_000, 500_000, 500_000, game.clone());
        let end = run * 1_000_000 + 500_000;
        desk.row(end, 500_000, 500_000, Source::idle());
    }
    let mut desk = with_account(desk, 532);
    assert_eq!(desk.close().coverage.limitations, []);
    // The tolerance is 50 µs per on-CPU period.
    desk.header.after.programs.get_mut(&10).unwrap().on_cpu = Some(Nanos::from_millis(1_565));
    assert_eq!(desk.close().coverage.limitations.len(), 1);
}

/// On a busy machine, the counters may be read well before the recording ends.
#[test]
fn counters_read_before_the_end_do_not_make_time_missing() {
    let mut desk = traced_in_part(20, 20);
    let end = BEGIN + 1_000_000_000;
    desk.header.after.at = Nanos(end - 30_000_000);
    desk.header.after.programs_read = Some(Nanos(end - 28_000_000));
    assert_eq!(desk.close().coverage.limitations, []);
    desk.header.after.programs.get_mut(&10).unwrap().on_cpu = Some(Nanos::from_millis(1_024));
    assert_eq!(desk.close().coverage.limitations, []);
    desk.header.after.programs.get_mut(&10).unwrap().on_cpu = Some(Nanos::from_millis(1_026));
    assert_eq!(desk.close().coverage.limitations.len(), 1);
}

/// A process without rows may have run only while the counters were being read.
#[test]
fn time_while_the_counters_were_read_is_not_missing() {
    let mut desk = traced_in_part(20, 20);
    let quiet = |ms| ProgramTime {
        name: "quiet".to_owned(),
        on_cpu: Some(Nanos::from_millis(ms)),
        ..ProgramTime::default()
    };
    desk.header.before.programs.insert(7, quiet(3));
    // The tolerance is one tick, plus 2 ms for the read itself.
    desk.header.after.programs.insert(7, quiet(9));
    assert_eq!(desk.close().coverage.limitations, []);
    desk.header.after.programs.insert(7, quiet(10));
    assert_eq!(desk.close().coverage.limitations.len(), 1);
}
