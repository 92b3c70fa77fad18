//! Tests for what screens leave to their sections.

use super::*;

/// If the kernel does not report all context switches, every process is affected. The page must
/// show this as one limitation, not as forty.
#[test]
fn only_a_few_incompletely_traced_processes_are_listed() {
    let mut statement = a_machine();
    let before = crate::text::foot::items(&statement).len();
    let in_part = |pid: i32| Limitation::ProcessPartlyTraced {
        name: "cc1".to_owned(),
        pid,
        ran: Nanos::from_millis(900),
        missing: Nanos::from_millis(i64::from(pid)),
    };
    statement.coverage.limitations.extend((1..=40).map(in_part));
    let style = TextStyle {
        view: View::Only(Sections::from_iter([Section::Limits])),
        ..TextStyle::default()
    };
    let page = text(&statement, &style);
    let words = page.lines().collect::<Vec<_>>().join(" ");
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("of 37 other programs. Up to 37.0 ms of the CPU time of each is missing"),
        "{page}"
    );
    assert!(
        words.contains("of cc1 (40): 40.0 ms of its 900 ms of CPU time are missing."),
        "{page}"
    );
    assert!(
        words.contains("of cc1 (39): 39.0 ms of its 900 ms of CPU time are missing."),
        "{page}"
    );
    let first = at(&statement, 80);
    let count = format!("{} limitations", before + 4);
    assert!(first.contains(&count), "{count}:\n{first}");
}

/// Together, the sections make up the full page except for its head and the legends.
#[test]
fn sections_are_parts_of_the_full_page() {
    let statement = held_up();
    let full = text(
        &statement,
        &TextStyle {
            view: View::Full,
            ..TextStyle::default()
        },
    );
    for section in Section::of_kind(ticktax_model::document::DocumentKind::Statement) {
        let style = TextStyle {
            view: View::Only(Sections::from_iter([*section])),
            ..TextStyle::default()
        };
        let page = text(&statement, &style);
        // If the requested section is empty, the page explains why.
        if matches!(
            section,
            Section::Net | Section::Profile | Section::Tick | Section::Accounting
        ) {
            assert!(page.starts_with(section.name()), "{page}");
            continue;
        }
        for line in page.lines() {
            assert!(full.contains(line), "{}: {line}", section.name());
        }
        let legend = "share: share of the time of all CPUs";
        assert_eq!(page.contains(legend), *section == Section::Legend, "{page}");
    }
}

#[test]
fn terms_are_explained_on_request() {
    let style = TextStyle {
        explain: true,
        ..TextStyle::default()
    };
    let page = text(&held_up(), &style);
    let meaning = "LONGEST DELAYS: the longest single stalls";
    assert!(page.contains(meaning), "{page}");
    assert!(!at(&held_up(), 80).contains("single stalls"));
}

#[test]
fn the_functions_of_a_profile_are_listed_with_their_share() {
    let mut statement = held_up();
    let style = TextStyle {
        view: View::Only(Sections::from_iter([Section::Profile])),
        ..TextStyle::default()
    };
    let page = text(&statement, &style);
    assert!(page.contains("audit --profile"), "{page}");
    statement.profile = Some(crate::profile::tests::profile());
    let page = text(&statement, &style);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    for row in ["read (sh) 100 ns 1.8 % 1", "tick (local_timer) 40 ns 0.7 %"] {
        assert!(
            page.lines().any(|line| words(line) == row),
            "{row}:\n{page}"
        );
    }
    assert!(
        page.contains("of all CPUs, 5 samples at 100 per second"),
        "{page}"
    );
}
