//! Cases about kernel functions that walk lists of objects.

use ticktax_analysis::pace::FrameStats;
use ticktax_model::kernel_walk::{KernelList, SampledWalk};
use ticktax_model::pace::Frame;
use ticktax_model::sampled_code::SampledCode;
use ticktax_model::victim::{Interferer, ProgramFrames, ThreadTimes, VictimStatement};
use ticktax_model::{Kind, Nanos};

use super::tree::Expected::{Found, Silence};
use super::tree::{Case, case, program};

/// Returns the times of a program that waited up to 50 ms at once behind a program called `indexer`.
fn behind(walk: Option<SampledWalk>) -> ThreadTimes {
    let interferer = Interferer {
        name: "indexer".to_owned(),
        kind: Kind::Task,
        pid: Some(8),
        program: Some("indexer".to_owned()),
        threads: 1,
        same_program: false,
        time: Nanos::from_millis(120),
        count: 10,
        max: Nanos::from_millis(50),
        migrated: false,
        period: None,
        policy: None,
        code: Some(SampledCode {
            samples: 30,
            places: Vec::new(),
            walk,
        }),
    };
    ThreadTimes {
        behind: vec![interferer],
        ..ThreadTimes::default()
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a walk is optional in the code that samples found"
)]
fn walk(longest_ms: i64, samples: u64, objects: Option<u64>) -> Option<SampledWalk> {
    Some(SampledWalk {
        longest: Some(Nanos::from_millis(longest_ms)),
        function: "d_walk".to_owned(),
        list: KernelList::Dentries,
        samples,
        objects,
        per_object: objects.map(|_| Nanos(84)),
    })
}

/// Returns a program with or without a loop of 20 ms.
fn game(has_loop: bool) -> VictimStatement {
    let period = Nanos::from_millis(20);
    let mut stats = FrameStats::of_loop(period, None);
    for slot in 0..50 {
        let due = Nanos(period.0 * slot);
        stats.frame(Frame {
            due,
            began: due,
            ended: due + Nanos::from_millis(1),
            cpu: Nanos::from_millis(1),
        });
    }
    let frames = ProgramFrames {
        thread: "game".to_owned(),
        tid: 7,
        figures: stats.close().figures().unwrap(),
        late: None,
    };
    VictimStatement {
        frames: has_loop.then(|| Box::new(frames)),
        ..program("game")
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let rule = "kernel-walk-over-budget";
    vec![
        Case {
            threads: || Some(behind(walk(34, 29, Some(410_212)))),
            victim: || Some(game(true)),
            ..case(
                rule,
                "a walk of more than a period",
                &[],
                Found("for up to 34.0 ms"),
            )
        },
        Case {
            threads: || Some(behind(walk(34, 29, Some(410_212)))),
            victim: || Some(game(true)),
            ..case(
                rule,
                "a known number of objects",
                &[],
                Found("up to 410212 dentries"),
            )
        },
        Case {
            threads: || Some(behind(walk(34, 29, None))),
            victim: || Some(game(true)),
            ..case(
                rule,
                "an unknown number",
                &[],
                Found("an unknown number of dentries"),
            )
        },
        Case {
            threads: || Some(behind(walk(19, 29, Some(410_212)))),
            victim: || Some(game(true)),
            ..case(rule, "a walk of less than a period", &[], Silence)
        },
        Case {
            threads: || Some(behind(walk(34, 29, Some(410_212)))),
            victim: || Some(game(false)),
            ..case(rule, "a program without a loop", &[], Silence)
        },
        Case {
            threads: || Some(behind(walk(34, 2, Some(410_212)))),
            victim: || Some(game(true)),
            ..case(rule, "two samples", &[], Silence)
        },
        Case {
            threads: || Some(behind(None)),
            victim: || Some(game(true)),
            ..case(rule, "no walk", &[], Silence)
        },
    ]
}
