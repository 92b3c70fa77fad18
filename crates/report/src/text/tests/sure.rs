//! Checks that first screens never claim more than ticktax knows.

use ticktax_model::accounting::AccountingStatement;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Level, Loss};
use ticktax_model::statement::{Class, Statement};
use ticktax_model::waits::WaitStatement;
use ticktax_model::{Cpu, Nanos};

use super::accounting::{checked, cpu};
use super::beats::a_server;
use super::samples::{everything, kernel_level, proc_level};
use super::screens::{flat, held_up};
use super::ticks::with_ticks;
use super::victims::with_victim;
use crate::TextStyle;
use crate::text::statement::statement as text;

/// Returns the causes that the screen lists as ruled out.
fn ruled_out(statement: &Statement) -> String {
    let page = flat(statement);
    let (_, rest) = page.split_once("Ruled out: ").unwrap();
    let (causes, _) = rest.split_once(" WHAT TO DO ").unwrap();
    causes.to_owned()
}

#[test]
fn interrupts_are_ruled_out_only_if_both_kinds_were_traced() {
    let mut statement = held_up();
    assert!(ruled_out(&statement).contains("interrupts"));
    for half in [Hook::LocalTimer, Hook::IrqHandler] {
        statement.coverage.attached = vec![half, Hook::PageFault];
        let causes = ruled_out(&statement);
        assert!(!causes.contains("interrupts"), "{causes}");
    }
}

#[test]
fn unreported_steal_is_unknown_not_ruled_out() {
    let mut statement = held_up();
    statement.victim.as_mut().unwrap().stolen = Some(Nanos::ZERO);
    let causes = ruled_out(&statement);
    assert!(
        causes.ends_with("migration (none), steal (none)."),
        "{causes}"
    );
    statement.victim.as_mut().unwrap().stolen = None;
    let causes = ruled_out(&statement);
    assert!(causes.ends_with(" Unknown: steal."), "{causes}");
    statement.machine.hypervisor = None;
    let causes = ruled_out(&statement);
    assert!(!causes.contains("steal"), "{causes}");
}

/// Renders the page about a machine after `cpus` has modified the accounting check.
fn topped(cpus: impl FnOnce(&mut AccountingStatement)) -> String {
    let mut statement = kernel_level();
    let mut check = checked().accounting.unwrap();
    check.cpus = vec![cpu(0, 10_000, 10_000, Vec::new())];
    cpus(&mut check);
    statement.accounting = Some(check);
    flat(&statement)
}

#[test]
fn top_is_called_right_only_if_nothing_can_make_it_wrong() {
    const RIGHT: &str = "`top` is accurate to 1 % on every CPU.";
    let right = topped(|_| {});
    assert!(right.contains(RIGHT), "{right}");
    // Either `top` shows too much, or the CPU was busy during the unexplained time.
    let unexplained = topped(|check| {
        let cpu = &mut check.cpus[0];
        cpu.shown_share += 0.05;
        cpu.unexplained = cpu.elapsed.times(0.06);
        let mut calmer = check.cpus[0].clone();
        (calmer.cpu, calmer.unexplained) = (Cpu(1), calmer.elapsed.times(0.055));
        check.cpus.push(calmer);
    });
    let beyond = "`top` is accurate on every CPU. At most 6.0 % of a CPU's time is unexplained.";
    assert!(unexplained.contains(beyond), "{unexplained}");
    let unknown = topped(|check| {
        let mut other = check.cpus[0].clone();
        (other.cpu, other.busy, other.busy_share) = (Cpu(1), None, None);
        check.cpus.push(other);
    });
    let some = "`top` is accurate on 1 of 2 CPUs; the others were not traced.";
    assert!(unknown.contains(some), "{unknown}");
    let wrong = topped(|check| check.cpus[0].shown_share += 0.05);
    assert!(wrong.contains("`top` is wrong: CPU 0"), "{wrong}");
    for page in [&unexplained, &unknown, &wrong] {
        assert!(!page.contains(RIGHT), "{page}");
    }
}

/// Several threads can be throttled at the same time, so their total time is not a share of
/// anything.
#[test]
fn throttled_time_has_no_share() {
    let page = text(&kernel_level(), &TextStyle::default());
    let at = page.lines().position(|line| line.starts_with("THROTTLED"));
    let table: Vec<&str> = page.lines().skip(at.unwrap()).take(2).collect();
    assert!(!table[0].contains("share"), "{page}");
    assert!(!table[1].contains('%'), "{page}");
}

/// Sources without a line are only counted, because it is unknown how much time they take from
/// other work. ticktax's own sources are not even counted.
#[test]
fn periodic_sources_without_a_line_are_only_counted() {
    let mut statement = kernel_level();
    let mut beats = a_server();
    for beat in &mut beats.beats {
        (beat.share, beat.gaps) = (0.000_1, None);
    }
    let others = beats.beats.iter().filter(|beat| !beat.by_ticktax).count();
    statement.beats = Some(beats.clone());
    let page = flat(&statement);
    let expected = format!("{others} periodic sources (--section repeats) Longest");
    assert!(page.contains(&expected), "{page}");
    beats
        .beats
        .iter_mut()
        .for_each(|beat| beat.by_ticktax = true);
    statement.beats = Some(beats);
    let page = flat(&statement);
    assert!(!page.contains("periodic source"), "{page}");
}

/// Running as root does not help if the kernel is locked down.
#[test]
fn the_obstacle_to_tracing_is_named_and_root_only_if_it_helps() {
    const LOCKED: &str = "kernel lockdown (confidentiality)";
    let mut statement = with_victim(with_ticks());
    statement.level = Level::Proc;
    statement.gaps = proc_level().gaps;
    statement.victim.as_mut().unwrap().threads = None;
    statement.tick.as_mut().unwrap().cost = None;
    let style = everything(&TextStyle::default());
    for (limitations, expected) in [
        (
            vec![Limitation::KernelNotTraced {
                message: LOCKED.to_owned(),
                needs_root: false,
            }],
            LOCKED,
        ),
        (Vec::new(), "the kernel was not traced"),
    ] {
        statement.coverage.limitations = limitations;
        let (first, full) = (flat(&statement), text(&statement, &style));
        assert!(first.starts_with("NOT TRACED"), "{first}");
        for page in [&*first, &*full] {
            assert!(!page.to_lowercase().contains("root"), "{page}");
        }
        let words: Vec<&str> = full.split_whitespace().collect();
        // The expected words appear in the head and in the parts about gaps, the program and the
        // tick.
        assert!(words.join(" ").matches(expected).count() >= 4, "{full}");
    }
}

/// Lost events make other figures too small, so the page reports them first.
#[test]
fn lost_time_is_reported_at_the_top() {
    let mut statement = kernel_level();
    statement.coverage.lost.clear();
    assert!(!flat(&statement).contains("LOST"));
    statement.coverage.lost.push(Loss {
        events: 945_444,
        self_time: statement.balance.elapsed.times(0.183),
        ..Loss::none(Cpu(0))
    });
    let page = flat(&statement);
    let expected = "LOST 945 444 events. 18.3 % of the CPU time is unknown.";
    assert!(page.starts_with(expected), "{page}");
}

/// The verdict shows the same share as the sentence about ticktax's cost. Time by ticktax's own
/// clock is labelled as such.
#[test]
fn a_screen_starts_with_ticktaxs_cost_if_that_is_large() {
    let mut statement = kernel_level();
    let small = flat(&statement);
    assert!(!small.starts_with("ticktax used"), "{small}");
    assert!(small.contains("ticktax used"), "{small}");
    let mut accounts = statement.accounts.iter_mut();
    let own = accounts
        .find(|account| account.class == Class::Tool)
        .unwrap();
    own.time = statement.balance.elapsed.times(0.02);
    statement.cost.cpu = statement.balance.elapsed.times(0.03);
    let page = flat(&statement);
    assert!(page.starts_with("ticktax used "), "{page}");
    assert!(page.contains("2.0 % ticktax, "), "{page}");
    assert!(
        page.contains("(2.0 % CPU), ") && page.contains(" by its own clock."),
        "{page}"
    );
    assert_eq!(page.matches("ticktax used ").count(), 1, "{page}");
}

#[test]
fn a_screen_starts_with_the_waits_for_ticktax_if_they_are_long() {
    let mut statement = kernel_level();
    statement.waits = Some(WaitStatement {
        behind_ticktax: statement.balance.elapsed.times(0.006),
        ..WaitStatement::default()
    });
    let page = flat(&statement);
    assert!(page.starts_with("ticktax used "), "{page}");
    assert!(page.contains("; other threads waited "), "{page}");
}

#[test]
fn a_program_named_like_ticktax_is_not_taken_for_it() {
    let mut statement = held_up();
    let behind = &mut statement
        .victim
        .as_mut()
        .unwrap()
        .threads
        .as_mut()
        .unwrap()
        .behind;
    let mut other = behind[0].clone();
    (other.name, other.pid) = ("ticktax".to_owned(), Some(4_711));
    behind.push(other);
    assert!(flat(&statement).contains("ticktax delayed game by 100 µs"));
}
