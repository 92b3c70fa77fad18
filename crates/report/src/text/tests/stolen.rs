//! Tests for how late timer interrupts are shown.

use ticktax_model::Nanos;
use ticktax_model::late_timers::{Delays, LateTimers};
use ticktax_model::statement::{Account, Holder, Statement};

use super::samples::kernel_level;
use super::screens::flat;
use crate::text::statement::statement as text;
use crate::{Section, Sections, TextStyle, View};

fn delays(count: u64, millis: i64) -> Delays {
    Delays {
        count,
        time: Nanos::from_millis(millis),
        max: Nanos::from_millis(millis / 2),
    }
}

/// Returns a machine with these stops, and without a probe or a steal clock.
fn machine(stops: Delays, unproven: Delays) -> Statement {
    let mut statement = kernel_level();
    let is_stolen = |account: &Account| account.class.holder() == Holder::Hypervisor;
    statement.accounts.retain(|account| !is_stolen(account));
    statement.gaps = None;
    statement.late_timers = Some(LateTimers {
        stops,
        unproven,
        from: Nanos::from_millis(1),
        longest: Vec::new(),
    });
    statement
}

fn limits(statement: &Statement) -> String {
    let style = TextStyle {
        width: 200,
        view: View::Only(Sections::from_iter([Section::Limits])),
        ..TextStyle::default()
    };
    let page: String = text(statement, &style).into();
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_first_screen_shows_the_stolen_time_that_is_proven() {
    let none = machine(Delays::default(), delays(4, 900));
    let page = flat(&none);
    assert!(page.contains("stolen time unknown"), "{page}");
    let mut some = machine(delays(2, 400), Delays::default());
    let page = flat(&some);
    assert!(page.contains(" at least 1.0 % stolen, "), "{page}");
    // The steal clock shows more than what is proven.
    some.stolen = Some(Nanos::from_millis(800));
    let page = flat(&some);
    assert!(page.contains("2.0 % stolen (by the steal clock)"), "{page}");
}

#[test]
fn the_limits_show_what_late_timers_prove() {
    let page = limits(&machine(delays(2, 400), delays(4, 18)));
    let expected = "Timers at least 400 ms stolen: 2 timer interrupts late by 1.00 ms or more, \
                    max 200 ms, although the kernel ran nothing; 4 more, 18.0 ms in total, may be \
                    due to the kernel, which was running";
    assert!(page.contains(expected), "{page}");
    let page = limits(&machine(Delays::default(), Delays::default()));
    let expected = "Timers none was late by 1.00 ms or more while the kernel ran nothing";
    assert!(page.contains(expected), "{page}");
}
