//! Tests programs that change their name or run on other CPUs.

use ticktax_fixture::process;
use ticktax_model::machine::ProgramTime;
use ticktax_model::{Nanos, Owner};

use super::{OneCpu, PID, TICK, TICKS, aligned};

fn at_the_end(name: &str, ms: i64) -> ProgramTime {
    ProgramTime {
        name: name.to_owned(),
        time: Nanos::from_millis(ms),
        ..ProgramTime::default()
    }
}

#[test]
fn a_process_that_changes_its_name_is_one_program() {
    // During the first bursts, the program is named `cargo`, which sorts before all other names.
    let mut world = OneCpu::new(&aligned(20, 80));
    let program = world.program;
    let before = world.sources.intern(process(Owner::Program, "cargo", PID));
    let mut bursts = 0;
    world.rename(before, |span| {
        bursts += u32::from(span.source == program);
        span.source == program && bursts <= 10
    });
    let mut header = OneCpu::header();
    header
        .after
        .programs
        .insert(PID, at_the_end("server", 6_000));
    let check = world.check(&header);
    assert_eq!(check.programs.len(), 1, "{:?}", check.programs);
    let program = &check.programs[0];
    assert_eq!(program.name, "server");
    assert_eq!(program.shown, Some(Nanos::from_millis(6_000)));
    let truth = Nanos(2_400_000 * (TICKS - 1));
    assert_eq!((program.ran, program.on_cpu), (Some(truth), Some(truth)));
    let mut causes = check.cpus[0].causes.iter();
    let phase = causes.find(|cause| cause.pid == Some(PID)).unwrap();
    assert_eq!(phase.ran, truth);
    assert_eq!(phase.program.as_deref(), Some("server"));
}

#[test]
fn an_exited_program_keeps_its_last_seen_name() {
    let mut world = OneCpu::new(&aligned(20, 80));
    let program = world.program;
    let after = world.sources.intern(process(Owner::Program, "rustc", PID));
    let mut bursts = 0;
    world.rename(after, |span| {
        bursts += u32::from(span.source == program);
        span.source == program && bursts > 10
    });
    let check = world.check(&OneCpu::header());
    assert_eq!(check.programs.len(), 1);
    assert_eq!(check.programs[0].name, "rustc");
}

#[test]
fn times_of_all_cpus_are_not_compared_with_those_of_watched_cpus() {
    let world = OneCpu::new(&aligned(20, 80));
    let mut header = OneCpu::header();
    let elsewhere = PID + 1;
    header
        .after
        .programs
        .insert(PID, at_the_end("server", 9_000));
    header
        .after
        .programs
        .insert(elsewhere, at_the_end("elsewhere", 5_000));
    let shown = |online: &str| {
        let mut header = header.clone();
        header.machine.online = online.parse().unwrap();
        let check = world.check(&header);
        let times: Vec<_> = check.programs.iter().map(|p| (p.pid, p.shown)).collect();
        (times, check.unwatched_cpus.to_string())
    };
    let secs = |secs| Some(Nanos::from_secs(secs));
    assert_eq!(
        shown("0"),
        (vec![(PID, secs(9)), (elsewhere, secs(5))], String::new())
    );
    assert_eq!(shown("0-2"), (vec![(PID, None)], "1-2".to_owned()));
    assert!(world.check(&header).cpus[0].elapsed == Nanos(TICK * TICKS));
}
