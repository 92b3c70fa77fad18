//! Tests comparisons of made-up statements and values.

use ticktax_model::beats::{BeatKind, BeatLine, BeatStatement};
use ticktax_model::comparison::{Contrast, Verdict};
use ticktax_model::{Lengths, Nanos};
use ticktax_sim::{Law, Stream};

use super::judge::{Change, Draft, Programs, beats, judge};
use ticktax_experiment::statistics::mean;

/// Returns twenty blocks in which an account takes random times between `mean` - 5 ms and `mean` +
/// 5 ms.
fn blocks(stream: &mut Stream, mean: i64) -> Vec<f64> {
    let law = Law::Uniform(Nanos::from_millis(mean - 5), Nanos::from_millis(mean + 5));
    (0..20).map(|_| stream.draw(&law).as_secs_f64()).collect()
}

/// Compares two lists as one of `members` tests that are judged together. The other tests have no
/// evidence.
fn compared(a: &[f64], b: &[f64], members: usize) -> Change {
    let mut drafts = vec![Draft::new(
        (Some(mean(a)), Some(mean(b))),
        (Some(a.to_vec()), Some(b.to_vec())),
    )];
    drafts.resize_with(members, || Draft::new((None, None), (None, None)));
    judge(drafts).remove(0)
}

#[test]
fn equal_sides_rarely_differ_and_the_interval_holds_the_truth() {
    let mut stream = Stream::new(11, 0);
    let (mut false_one, mut false_many, mut covered) = (0, 0, 0);
    for _ in 0..2_000 {
        let (a, b) = (blocks(&mut stream, 50), blocks(&mut stream, 50));
        let change = compared(&a, &b, 1);
        false_one += u32::from(change.contrast.differs() == Some(true));
        false_many += u32::from(compared(&a, &b, 40).contrast.differs() == Some(true));
        covered += u32::from(change.contrast.effect.unwrap().may_be_none());
    }
    // Out of 2,000 comparisons, 5 % are expected to differ by chance, that is, 100 ± 10. If each is
    // one of 40 tests, the level is 0.125 %, so 2.5 ± 1.6 are expected to differ.
    assert!((70..=130).contains(&false_one), "{false_one}");
    assert!(false_many <= 9, "{false_many}");
    assert_eq!(covered, 2_000 - false_one);
}

#[test]
fn changes_beyond_the_spread_are_certain() {
    let mut stream = Stream::new(12, 0);
    let (a, b) = (blocks(&mut stream, 50), blocks(&mut stream, 80));
    let change = compared(&a, &b, 100);
    assert_eq!(change.contrast.verdict, Verdict::Differs);
    let difference = change.difference().unwrap();
    assert!((0.025..0.035).contains(&difference), "{difference}");
    // With too few blocks, there must be no verdict.
    let open = compared(&a[..4], &b, 1);
    assert_eq!(open.contrast, Contrast::default());
}

fn beat(name: &str, period: f64, share: f64) -> BeatLine {
    BeatLine {
        pid: Some(7),
        lengths: Lengths {
            median: Nanos(1_000),
            p99: Some(Nanos(2_000)),
            max: Nanos(3_000),
        },
        share,
        ..ticktax_fixture::beat(name, period, 10.0)
    }
}

#[test]
fn beats_appear_disappear_move_and_stay() {
    let with = |beats: Vec<BeatLine>| BeatStatement {
        beats,
        ..BeatStatement::default()
    };
    let first = with(vec![
        beat("tick", 4e6, 0.001),
        beat("backup", 3e9, 0.01),
        beat("mixer", 10e6, 0.002),
    ]);
    let second = with(vec![
        // The other machine's clock is slightly fast.
        beat("tick", 4e6 * 1.000_05, 0.001),
        beat("mixer", 20e6, 0.002),
        beat("poller", 50e6, 0.003),
    ]);
    let programs = Programs::from([(7, "server".to_owned())]);
    let (changes, kept) = beats(Some((&first, &programs)), Some((&second, &programs)));
    assert_eq!(kept, 1);
    let names = |beat: &Option<BeatLine>| beat.as_ref().map(|beat| beat.name.clone());
    let changed: Vec<_> = changes
        .iter()
        .map(|change| (names(&change.first), names(&change.second)))
        .collect();
    let name_of = |name: &str| Some(name.to_owned());
    assert_eq!(
        changed,
        [
            (name_of("backup"), None),
            (None, name_of("poller")),
            (name_of("mixer"), name_of("mixer"))
        ]
    );
    // If one side was not searched for periodic sources, none may be reported as having appeared or
    // disappeared.
    assert_eq!(beats(Some((&first, &programs)), None), (Vec::new(), 0));
}

#[test]
fn another_process_is_another_beat_and_sleep_is_ignored() {
    let with = |beats: Vec<BeatLine>| BeatStatement {
        beats,
        ..BeatStatement::default()
    };
    let asleep = BeatLine {
        kind: BeatKind::OffCpu,
        ..beat("mixer sleeping", 10e6, 0.9)
    };
    let other = |period| BeatLine {
        pid: Some(8),
        ..beat("mixer", period, 0.002)
    };
    let (server, game) = ("server".to_owned(), "game".to_owned());
    let before = Programs::from([(7, server.clone())]);
    let first = with(vec![beat("mixer", 10e6, 0.002)]);
    let compare = |second, program: &String| {
        let programs = Programs::from([(8, program.clone())]);
        let (changes, kept) = beats(Some((&first, &before)), Some((&with(second), &programs)));
        (changes.len(), kept)
    };
    // After a restart, the program's periodic source must count as the same.
    assert_eq!(compare(vec![other(10e6), asleep], &server), (0, 1));
    // If the process is a different one, a longer period must count as two changes: one source
    // disappeared, and another appeared.
    assert_eq!(compare(vec![other(20e6)], &server), (2, 0));
    assert_eq!(compare(vec![other(10e6)], &game), (2, 0));
}

#[test]
fn sleep_timers_of_different_programs_are_different_sources() {
    let with = |name: &str, period| BeatStatement {
        beats: vec![BeatLine {
            pid: None,
            kind: BeatKind::Interrupt,
            ..beat(name, period, 0.002)
        }],
        ..BeatStatement::default()
    };
    let none = Programs::new();
    let changed = |name: &str| {
        let (a, b) = (with(name, 10e6), with(name, 30e6));
        beats(Some((&a, &none)), Some((&b, &none))).0
    };
    let sleep = changed("local_timer hrtimer_wakeup");
    assert_eq!(sleep.len(), 2);
    assert!(
        sleep
            .iter()
            .all(|change| change.first.is_none() || change.second.is_none())
    );
    // The kernel's own timer is the same source before and after.
    assert_eq!(changed("local_timer tick_nohz_handler").len(), 1);
}
