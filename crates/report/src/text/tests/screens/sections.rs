//! Tests for what screens leave to their sections.

use ticktax_model::guests::{
    ExitSet, ExitSum, GuestExits, GuestMachine, GuestStatement, GuestTicks, GuestTimer, GuestVcpu,
    Halts, TickMode, TickSaving, TimeEstimate, TimerCost,
};

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
            Section::Net | Section::Profile | Section::Guests | Section::Tick | Section::Accounting
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

/// Returns a virtual machine that ran for 300 ms, with two reasons for exits.
fn virtual_machine(name: &str, pid: i32) -> GuestMachine {
    let ms = Nanos::from_millis;
    let exits = |reason: &str, count, kvm, vmm| GuestExits {
        reason: reason.to_owned(),
        sum: ExitSum {
            count,
            kvm: ms(kvm),
            vmm: ms(vmm),
            elapsed: ms(2 * (kvm + vmm)),
            ..ExitSum::default()
        },
    };
    GuestMachine {
        name: name.to_owned(),
        pid,
        time: ms(300),
        guest: ms(180),
        kvm: ms(60),
        vmm: ms(45),
        other_threads: ms(15),
        exits: 4_100,
        exits_per_s: 2_050.0,
        reasons: vec![exits("hlt", 4_000, 50, 0), exits("io", 100, 10, 45)],
        injected: Some(2_000),
        halts: Some(Halts {
            polled: 12,
            polled_time: ms(2),
            slept: 3_988,
            ..Halts::default()
        }),
        ticks: Some(ticks(2_000)),
        vcpus: vec![GuestVcpu {
            timer: Some(GuestTimer {
                ticks: 2_000,
                regular: Some(1_000.0),
                hz: Some(1_000),
                mode: TickMode::KeepsTicking,
                ..GuestTimer::default()
            }),
            ..GuestVcpu::default()
        }],
        ..GuestMachine::default()
    }
}

/// Returns this many ticks in 2 s. Each took 13 to 15 µs of the host.
fn ticks(count: u32) -> GuestTicks {
    let rate = f64::from(count) / 2.0;
    let each = TimeEstimate {
        mean: Nanos::from_micros(14),
        low: Nanos::from_micros(13),
        high: Nanos::from_micros(15),
    };
    let day = |rate: i64| each.map(|each| Nanos(each.0 * rate * 86_400));
    let saving = |hz, avoided: u32| TickSaving {
        hz,
        avoided_per_s: f64::from(avoided),
        per_day: day(avoided.into()),
    };
    GuestTicks {
        ticks: count.into(),
        ticks_per_s: rate,
        cost: TimerCost {
            ticks: 1_000,
            exits: 3_040,
            ..TimerCost::default()
        },
        each: Some(each),
        per_day: Some(day(i64::from(count) / 2)),
        savings: vec![saving(Some(250), count * 3 / 8), saving(None, count / 2)],
    }
}

#[test]
fn virtual_machines_have_a_section_and_a_line_on_the_first_screen() {
    let mut statement = held_up();
    statement.victim = None;
    statement.guests = Some(GuestStatement {
        exit_set: ExitSet::Svm,
        elapsed: Nanos::from_secs(2),
        machines: vec![virtual_machine("web", 7), virtual_machine("web", 8)],
        ticks: Some(ticks(4_000)),
    });
    let style = TextStyle {
        view: View::Only(Sections::from_iter([Section::Guests])),
        ..TextStyle::default()
    };
    let page = text(&statement, &style);
    let row = |start: &str| -> String {
        let line = page
            .lines()
            .find(|line| line.trim_start().starts_with(start));
        let line = line.unwrap_or_else(|| panic!("no {start} in\n{page}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        row("web (7)"),
        "web (7) 300 ms 60.0 % 20.0 % 15.0 % 5.0 % 2 050 ?"
    );
    assert_eq!(row("hlt"), "hlt 4 000 2 000 50.0 ms 0 ns 12.5 µs 100 ms");
    assert_eq!(row("io"), "io 100 50 10.0 ms 45.0 ms 550 µs 110 ms");
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let halts =
        "1 vCPU; 4 000 halts (12 ended while KVM polled, 2.00 ms); 2 000 interrupts injected.";
    assert!(words.contains(halts), "{page}");
    for sentence in [
        "TIMER TICKS tick idle ticks/s exits each per day",
        "web (8) HZ=1000 ticks 1 000 3.0 14.0 µs ± 7.1 % 1210 s",
        "all 2 2 000 3.0 14.0 µs ± 7.1 % 2419 s",
        "Predicted: with HZ=250 in guests whose HZ is higher, 1 500 fewer ticks/s would save 1685 \
         s to 1944 s of CPU time per day.",
        "a tick that stops while a vCPU is idle would avoid at most 2 000 ticks/s and save at most \
         2592 s of CPU time per day.",
    ] {
        assert!(words.contains(sentence), "{sentence}: {page}");
    }
    let first = at(&statement, 80);
    let words = first.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = "2 virtual machines: 600 ms of CPU time, 60.0 % in the guests; 4 100 exits/s.";
    assert!(words.contains(line), "{first}");
    assert!(first.lines().count() <= 23, "{first}");
}
