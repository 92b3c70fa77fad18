//! Tests that programs are shown with their services, containers and pods.

use ticktax_model::Nanos;
use ticktax_model::group::{Group, GroupKind, Unit};
use ticktax_model::statement::{Class, GroupAccount, StartedProcesses, Statement};
use ticktax_model::victim::Target;
use ticktax_model::waits::GroupWaits;

use super::screens::{a_machine, held_up};
use crate::text::statement::statement as text;
use crate::{Grouping, Section, Sections, TextStyle, View};

fn service(unit: &str, pids: &[i32]) -> GroupAccount {
    GroupAccount {
        name: unit.to_owned(),
        group: Group {
            path: format!("/system.slice/{unit}"),
            kind: GroupKind::Service(Unit {
                unit: unit.to_owned(),
                user: None,
            }),
            settings: None,
            counters: None,
        },
        pids: pids.to_vec(),
        time: Nanos::from_secs(1),
        count: 10,
        max: Some(Nanos::from_millis(1)),
        served_by: Vec::new(),
        woken: Vec::new(),
    }
}

/// Returns a statement about a machine with two services.
pub(crate) fn with_services(mut statement: Statement) -> Statement {
    let mut pid = 900;
    for account in &mut statement.accounts {
        if account.class == Class::Program && account.pid.is_none() {
            account.pid = Some(pid);
            pid += 1;
        }
    }
    let compiler: Vec<i32> = (900..910).chain(20_000..20_046).collect();
    statement.groups = vec![
        service("game.service", &[4_121]),
        service("build.service", &compiler),
    ];
    if let Some(waits) = &mut statement.waits {
        let mut groups = waits.programs.clone();
        groups[0].name = "game.service".to_owned();
        groups[1].name = "build.service".to_owned();
        groups[0].behind[0].name = "build.service".to_owned();
        waits.by_group = Some(GroupWaits {
            groups,
            groups_left_out: 0,
        });
    }
    statement
}

fn page(statement: &Statement, grouping: Grouping, width: usize) -> String {
    let style = TextStyle {
        width,
        grouping,
        ..TextStyle::default()
    };
    text(statement, &style).into()
}

fn section(statement: &Statement) -> String {
    let style = TextStyle {
        view: View::Only(Sections::from_iter([Section::Time])),
        ..TextStyle::default()
    };
    text(statement, &style).into()
}

#[test]
fn programs_are_followed_by_their_services() {
    let machine = with_services(a_machine());
    let screen = page(&machine, Grouping::Name, 80);
    assert_eq!(
        screen.matches("game (4121, game.service)").count(),
        2,
        "{screen}"
    );
    assert!(screen.contains("rustc (900, build.service)"), "{screen}");
    let program = page(&with_services(held_up()), Grouping::Name, 80);
    assert!(program.contains("cc1 x46 (build.service)"), "{program}");
    assert!(program.lines().count() <= 23, "{program}");
}

#[test]
fn a_service_that_all_programs_share_is_left_out() {
    let mut machine = with_services(a_machine());
    machine.groups = vec![service("all.service", &(0..5_000).collect::<Vec<i32>>())];
    let screen = page(&machine, Grouping::Name, 80);
    assert!(!screen.contains("all.service"), "{screen}");
    // A program without a known group counts as a difference.
    machine.groups = vec![service("game.service", &[4_121])];
    let screen = page(&machine, Grouping::Name, 80);
    assert!(screen.contains("game (4121, game.service)"), "{screen}");
}

#[test]
fn programs_in_several_services_are_shown_without_one() {
    let mut machine = with_services(a_machine());
    machine.groups = vec![
        service("a.service", &[900, 901]),
        service("b.service", &[902]),
    ];
    let section = section(&machine);
    assert!(section.contains("rustc (900, a.service)"), "{section}");
    assert!(section.contains("rustc x3  "), "{section}");
}

#[test]
fn time_and_waits_are_summed_by_service() {
    let screen = page(&with_services(a_machine()), Grouping::Group, 80);
    let row = |name: &str, cells: &str| {
        let mut lines = screen
            .lines()
            .filter(|line| line.trim_start().starts_with(name));
        assert!(
            lines.any(|line| line.contains(cells)),
            "{name} {cells}: {screen}"
        );
    };
    row("game.service (4121)", "3.00 s");
    row("build.service (900)", "1.52 s");
    row("game.service (4121)", "build.service");
    row("build.service x3", "8.00 ms");
    assert!(!screen.contains("BY NAME"), "{screen}");
    let program = page(&with_services(held_up()), Grouping::Group, 80);
    assert!(program.contains("build.service x46"), "{program}");
}

#[test]
fn sections_contain_the_services() {
    let section = section(&with_services(a_machine()));
    assert!(section.contains("game (4121, game.service)"), "{section}");
    assert!(section.contains("rustc x3 (build.service)"), "{section}");
}

#[test]
fn a_service_is_named_without_its_path() {
    let mut statement = with_services(held_up());
    let victim = statement.victim.as_mut().unwrap();
    victim.target = Target::Cgroup("/system.slice/game.service".to_owned());
    victim.pid = None;
    victim.name = "game.service".to_owned();
    let screen = page(&statement, Grouping::Name, 80);
    assert!(screen.starts_with("game.service on "), "{screen}");
    statement.victim.as_mut().unwrap().name = "/games".to_owned();
    let screen = page(&statement, Grouping::Name, 80);
    assert!(screen.starts_with("cgroup /games on "), "{screen}");
}

/// The compiler's processes are the children of a build script.
#[test]
fn short_lived_processes_are_shown_with_the_program_that_started_them() {
    let page = |mut statement: Statement, name: &str, count: u64| {
        statement.short_lived = vec![StartedProcesses {
            name: name.to_owned(),
            count,
            time: Nanos::from_secs(1),
            started_by: "sh".to_owned(),
            started_by_pid: 4_100,
        }];
        page(&statement, Grouping::Name, 80)
    };
    insta::assert_snapshot!(page(with_services(a_machine()), "rustc", 46));
    let program = page(with_services(held_up()), "cc1", 46);
    assert!(program.contains("cc1 x46 (by sh 4100)"), "{program}");
    // Only 19 of the processes: fewer than the minimum, and fewer than half of them.
    let program = page(with_services(held_up()), "cc1", 19);
    assert!(!program.contains("by sh"), "{program}");
}
