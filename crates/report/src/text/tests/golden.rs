//! Pages as they come out.

use super::beats::{a_server, nothing_repeats};
use super::samples::{empty, kernel_level, many_cpus, off_by_17_ns, proc_level};
use super::samples::{everything, full as text};
use super::ticks::{a_bill, counted_only, findings, summed};
use crate::TextStyle;
use crate::text::beats::{beat_news, beats};

#[test]
fn a_machine_seen_whole() {
    insta::assert_snapshot!(text(&kernel_level(), &TextStyle::default()));
}

#[test]
fn a_machine_seen_by_an_ordinary_user() {
    insta::assert_snapshot!(text(&proc_level(), &TextStyle::default()));
}

#[test]
fn books_that_are_off() {
    insta::assert_snapshot!(text(&off_by_17_ns(), &TextStyle::default()));
}

#[test]
fn nothing_at_all() {
    insta::assert_snapshot!(text(&empty(), &TextStyle::default()));
}

#[test]
fn more_cpus_than_lines() {
    insta::assert_snapshot!(text(
        &many_cpus(),
        &TextStyle {
            width: 100,
            ..TextStyle::default()
        }
    ));
}

#[test]
fn colours_say_what_is_wrong() {
    let page = text(
        &off_by_17_ns(),
        &TextStyle {
            colour: true,
            ..TextStyle::default()
        },
    );
    let last = page
        .lines()
        .rev()
        .find(|line| line.contains("THE BOOKS DO NOT BALANCE"))
        .unwrap();
    assert!(
        last.starts_with("\u{1b}[31;1m") && last.ends_with("\u{1b}[0m"),
        "{last:?}"
    );
}

#[test]
fn what_repeats_on_a_server() {
    insta::assert_snapshot!(beats(&a_server(), &everything(&TextStyle::default())));
    for width in [40, 80, 120, 200] {
        let style = TextStyle {
            width,
            ..TextStyle::default()
        };
        let first = beats(&a_server(), &style);
        assert!(width == 40 || first.lines().count() <= 23, "{first}");
        insta::assert_snapshot!(format!("beats_{width}"), first);
    }
}

/// A recording with more beats than lines.
#[test]
fn beats_keep_to_one_screen() {
    let mut many = a_server();
    let all = many.beats.clone();
    many.beats.extend((0..20).flat_map(|_| all.clone()));
    let first = beats(&many, &TextStyle::default());
    assert!(first.lines().count() <= 23, "{first}");
    assert!(first.contains(" more (--section repeats)"), "{first}");
}

#[test]
fn what_repeats_in_a_statement() {
    let mut statement = empty();
    statement.beats = Some(a_server());
    insta::assert_snapshot!(text(&statement, &TextStyle::default()));
    let news = beat_news(&a_server().beats[0], &TextStyle::default());
    assert!(news.starts_with("every 30.999 0"), "{news}");
}

#[test]
fn nothing_repeats_and_why_little_can_be_known() {
    let first = beats(&nothing_repeats(), &TextStyle::default());
    assert!(
        first.contains("Nothing repeats that could be seen"),
        "{first}"
    );
    let full = beats(&nothing_repeats(), &everything(&TextStyle::default()));
    insta::assert_snapshot!(full);
}

#[test]
fn a_tick_and_what_it_costs_a_host() {
    let mut statement = empty();
    statement.machine.hypervisor = Some("KVM".to_owned());
    statement.tick = Some(a_bill());
    insta::assert_snapshot!(text(&statement, &TextStyle::default()));
}

#[test]
fn a_tick_that_was_summed_up() {
    let mut statement = empty();
    statement.tick = Some(summed());
    insta::assert_snapshot!(text(&statement, &TextStyle::default()));
}

#[test]
fn a_tick_that_only_the_kernel_counted() {
    let mut statement = empty();
    statement.tick = Some(counted_only());
    insta::assert_snapshot!(text(&statement, &TextStyle::default()));
}

#[test]
fn what_is_configured_and_not_in_effect() {
    let mut statement = empty();
    statement.findings = findings();
    insta::assert_snapshot!(text(&statement, &TextStyle::default()));
}
