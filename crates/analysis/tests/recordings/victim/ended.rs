//! Tests whether the recording shows that a program has exited.

use ticktax_analysis::Auditor;
use ticktax_fixture::{process, replay, whole};
use ticktax_model::recording::{CommandReport, EndedEarly, Header};
use ticktax_model::victim::Target;
use ticktax_model::{Nanos, Owner, SourceTable};

use crate::victim::fixture::followed;

const BEGIN: i64 = 1_000_000_000;

/// Returns whether the program is reported as having exited after `change` has modified the header.
fn has_ended(target: Target, change: impl Fn(&mut Header)) -> bool {
    let mut sources = SourceTable::default();
    let game = sources.intern(process(Owner::Program, "game", 10));
    let mut header = followed(target, "game", Some(10), BEGIN);
    change(&mut header);
    let mut auditor = Auditor::books().following(Nanos(BEGIN - 1), None);
    replay(&sources, &[whole(0, BEGIN, 1_000, game)], &mut auditor);
    auditor.finish(&header, &sources, 1).victim.unwrap().exited
}

#[test]
fn a_program_has_exited_if_the_recording_shows_it() {
    let with = |why| move |header: &mut Header| header.ended_early = Some(why);
    assert!(has_ended(Target::Process, with(EndedEarly::ProgramExited)));
    assert!(!has_ended(Target::Process, with(EndedEarly::Interrupted)));
    let ran = |exit| {
        move |header: &mut Header| {
            header.command = Some(CommandReport {
                argv: vec!["game".to_owned()],
                pid: 10,
                exit,
            });
        }
    };
    assert!(has_ended(Target::Command, ran(Some(0))));
    assert!(
        !has_ended(Target::Command, ran(None)),
        "it is still running"
    );
    // If the target is a process, it does not matter that the command has ended.
    assert!(!has_ended(Target::Process, ran(Some(0))));
}
