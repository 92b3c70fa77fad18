//! Snapshots of pages about statements.

use ticktax_model::Cpu;
use ticktax_model::statement::Statement;
use ticktax_model::witness::{CpuProof, Doubt, Proof};

use super::beats::{a_server, nothing_repeats};
use super::samples::{empty, kernel_level, many_cpus, off_by_17_ns, proc_level};
use super::samples::{everything, full as text};
use super::ticks::{a_bill, counted_only, findings, summed};
use crate::text::beats::{beat_news, beats};
use crate::{Section, Sections, TextStyle, View};

/// Renders only one `section` of a statement.
fn only(section: Section, statement: &Statement) -> String {
    let style = TextStyle {
        view: View::Only(Sections::from_iter([section])),
        ..TextStyle::default()
    };
    crate::text::statement::statement(statement, &style).into()
}

#[test]
fn page_of_a_fully_traced_machine() {
    insta::assert_snapshot!(text(&kernel_level(), &TextStyle::default()));
}

#[test]
fn page_of_a_machine_without_root() {
    insta::assert_snapshot!(text(&proc_level(), &TextStyle::default()));
}

#[test]
fn page_with_accounts_that_do_not_balance() {
    insta::assert_snapshot!(text(&off_by_17_ns(), &TextStyle::default()));
}

#[test]
fn page_of_an_empty_statement() {
    insta::assert_snapshot!(text(&empty(), &TextStyle::default()));
}

#[test]
fn page_of_a_machine_with_many_cpus() {
    insta::assert_snapshot!(text(
        &many_cpus(),
        &TextStyle {
            width: 100,
            ..TextStyle::default()
        }
    ));
}

#[test]
fn an_imbalance_is_printed_in_red() {
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
        .find(|line| line.contains("ACCOUNTS DO NOT BALANCE"))
        .unwrap();
    assert!(
        last.starts_with("\u{1b}[31;1m") && last.ends_with("\u{1b}[0m"),
        "{last:?}"
    );
}

#[test]
fn the_page_of_periodic_sources_fits_its_width() {
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

/// The recording contains more periodic sources than a screen has lines.
#[test]
fn many_periodic_sources_fit_on_one_screen() {
    let mut many = a_server();
    let all = many.beats.clone();
    many.beats.extend((0..20).flat_map(|_| all.clone()));
    let first = beats(&many, &TextStyle::default());
    assert!(first.lines().count() <= 23, "{first}");
    assert!(first.contains(" more (--section repeats)"), "{first}");
}

#[test]
fn section_of_periodic_sources_in_a_statement() {
    let mut statement = empty();
    statement.beats = Some(a_server());
    insta::assert_snapshot!(only(Section::Repeats, &statement));
    let news = beat_news(&a_server().beats[0], &TextStyle::default());
    assert!(news.starts_with("every 30.9990"), "{news}");
}

#[test]
fn page_without_periodic_sources_gives_the_reason() {
    let first = beats(&nothing_repeats(), &TextStyle::default());
    assert!(first.contains("None of "), "{first}");
    let full = beats(&nothing_repeats(), &everything(&TextStyle::default()));
    insta::assert_snapshot!(full);
}

#[test]
fn tick_section_with_cost_per_host() {
    let mut statement = empty();
    statement.machine.hypervisor = Some("KVM".to_owned());
    statement.tick = Some(a_bill());
    insta::assert_snapshot!(only(Section::Tick, &statement));
}

#[test]
fn tick_section_of_a_recording_of_sums() {
    let mut statement = empty();
    statement.tick = Some(summed());
    insta::assert_snapshot!(only(Section::Tick, &statement));
}

#[test]
fn tick_section_from_kernel_counters() {
    let mut statement = empty();
    statement.tick = Some(counted_only());
    insta::assert_snapshot!(only(Section::Tick, &statement));
}

#[test]
fn section_of_findings() {
    let mut statement = empty();
    statement.findings = findings();
    insta::assert_snapshot!(only(Section::Findings, &statement));
}

/// CPUs with the same proof share a line.
#[test]
fn gaps_are_proven_cpu_by_cpu() {
    let mut statement = kernel_level();
    let proof = |cpu, proof, doubts: &[Doubt]| CpuProof {
        cpu: Cpu(cpu),
        proof,
        doubts: doubts.to_vec(),
    };
    statement.gaps.as_mut().unwrap().proofs = vec![
        proof(0, Proof::Proven, &[]),
        proof(
            1,
            Proof::Bounded(3),
            &[Doubt::SwitchesNotReported { count: 3 }],
        ),
        proof(2, Proof::Proven, &[]),
        proof(3, Proof::Unproven, &[Doubt::EventsLost { events: 7 }]),
    ];
    let page = only(Section::Noise, &statement);
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "CPUs 0,2: gaps without kernel activity provably went to",
        "CPU 1: a gap without traced activity went to the hypervisor or firmware, or was",
        "CPU 3: a gap without traced activity proves nothing (7 events lost) and counts as",
    ] {
        assert!(words.contains(expected), "{expected}: {page}");
    }
}
