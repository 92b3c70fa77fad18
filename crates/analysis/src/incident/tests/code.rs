//! Tests the code that incidents name.

use std::sync::Arc;

use ticktax_fixture::{header, replay};
use ticktax_model::incident::TriggerKind;
use ticktax_model::recording::{CodeFile, CodeFunction, Edge, Effect, Row};
use ticktax_model::victim::{Release, WaitPlace};
use ticktax_model::{Cpu, Nanos, SourceId};

use super::{BACKUP, Cast, GAME, MS, ran, trigger};
use crate::incident::IncidentAnalysis;

fn sample(cpu: u32, at: i64, source: SourceId, code: &str) -> Row {
    let effect = Effect::Sampled(Arc::from(code));
    Row::Edge(Edge::new(Cpu(cpu), Nanos(at * MS), source, effect))
}

#[test]
fn the_code_that_ran_during_the_delay_is_named() {
    let cast = Cast::new();
    let rows = [
        sample(0, 95, cast.backup, "backup;backup+0x99"),
        sample(0, 104, cast.backup, "backup;backup+0x10"),
        sample(0, 108, cast.backup, "backup;backup+0x11"),
        // These samples found the program on another CPU, and another program.
        sample(1, 110, cast.backup, "backup;backup+0x99"),
        sample(0, 112, cast.game, "read_[k]"),
        sample(0, 116, cast.backup, "backup;backup+0x99"),
        ran(0, 0, 100, cast.game),
        ran(0, 90, 120, cast.backup),
        ran(1, 90, 120, cast.backup),
        ran(0, 120, 130, cast.game),
    ];
    let mut header = header();
    header.code_files = vec![CodeFile {
        name: "backup".to_owned(),
        build_id: None,
        functions: vec![CodeFunction {
            name: "compress".to_owned(),
            first_offset: 0x10,
            last_offset: 0x11,
        }],
    }];
    header.triggers = vec![trigger(TriggerKind::Wait, 120, 20, GAME, "game")];
    let mut analysis = IncidentAnalysis::new(&header.triggers).unwrap();
    replay(&cast.sources, &rows, &mut analysis);
    let incident = analysis.finish(&header, &cast.sources, 0);
    let code = incident.ran[0].code.as_ref().unwrap();
    let [place] = &*code.places else {
        panic!("{code:?}");
    };
    assert_eq!((&*place.function, place.samples), ("compress", 2));
    assert_eq!(code.samples, 3);
    let stack = incident.ran_stack().unwrap().to_string();
    assert_eq!(stack, "backup;compress");
}

#[test]
fn without_samples_no_code_is_named() {
    let cast = Cast::new();
    let rows = [ran(0, 100, 120, cast.backup)];
    let incident = cast.analyse(&[trigger(TriggerKind::Wait, 120, 20, GAME, "game")], &rows);
    assert_eq!((incident.ran.len(), &incident.ran[0].code), (1, &None));
    assert_eq!(incident.ran_stack(), None);
}

#[test]
fn a_blocked_thread_has_the_place_in_its_trigger() {
    let cast = Cast::new();
    let place = WaitPlace {
        syscall: Some("mmap".to_owned()),
        function: Some("vm_mmap_pgoff".to_owned()),
        caller: None,
        release: Some(Release {
            function: Some("__mm_populate".to_owned()),
            syscall: Some("mlock".to_owned()),
        }),
    };
    let mut blocked = trigger(TriggerKind::Blocked, 120, 20, BACKUP, "backup");
    blocked.place = Some(place.clone());
    let incident = cast.analyse(&[blocked], &[ran(0, 120, 130, cast.backup)]);
    assert_eq!(incident.place, Some(place));
    let stack = |stack: Option<ticktax_model::recording::Stack>| stack.unwrap().to_string();
    assert_eq!(
        stack(incident.blocked_stack()),
        "mmap_[k];vm_mmap_pgoff_[k]"
    );
    assert_eq!(
        stack(incident.release_stack()),
        "mlock_[k];__mm_populate_[k]"
    );
}
