//! Cases about virtual machines on their host.

use ticktax_model::Nanos;
use ticktax_model::guests::{
    ExitSet, GuestMachine, GuestStatement, GuestTicks, GuestTimer, GuestVcpu, GuestWaits, Halts,
    InterruptEnds, TickMode, TimerCost,
};

use super::tree::Expected::{Found, Silence};
use super::tree::{Case, case};

const POLLING: (&str, &str) = ("sys/module/kvm/parameters/halt_poll_ns", "200000\n");

/// Returns a second in which a machine's only vCPU ran for 100 ms, waited, and was polled for. Both
/// times are in ms.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the machines of a case are optional"
)]
fn machine(waited: i64, polled: i64) -> Option<GuestStatement> {
    let ran = Nanos::from_millis(100);
    Some(GuestStatement {
        exit_set: ExitSet::Vmx,
        elapsed: Nanos::from_secs(1),
        ticks: None,
        machines: vec![GuestMachine {
            name: "web".to_owned(),
            pid: 7,
            time: ran,
            halts: Some(Halts {
                polled: 900,
                polled_time: Nanos::from_millis(polled),
                ..Halts::default()
            }),
            waits: Some(GuestWaits {
                time: Nanos::from_millis(waited),
                count: 50,
                max: Nanos::from_millis(3),
            }),
            vcpus: vec![GuestVcpu {
                time: ran,
                ..GuestVcpu::default()
            }],
            ..GuestMachine::default()
        }],
    })
}

/// Returns a second in which a machine's timer expired 1,000 times. Its wake-ups took this many µs
/// of the host each.
fn ticking(each: i64, mode: TickMode, is_pit: bool) -> Option<GuestStatement> {
    let mut guests = machine(0, 0)?;
    guests.machines[0].ticks = Some(GuestTicks {
        ticks: 1_000,
        ticks_per_s: 1_000.0,
        cost: TimerCost {
            wakeups: 1_000,
            ticks: 1_000,
            exits: 3_000,
            host: Nanos::from_micros(1_000 * each),
            ..TimerCost::default()
        },
        ..GuestTicks::default()
    });
    guests.machines[0].vcpus[0].timer = Some(GuestTimer {
        ticks: 1_000,
        ticks_per_s: 1_000.0,
        is_pit,
        regular: Some(1_000.0),
        hz: Some(1_000),
        mode,
        ..GuestTimer::default()
    });
    Some(guests)
}

/// Returns a second in which KVM injected 500 interrupts, and the guest ended some.
fn ended(count: u64, without_exit: u64) -> Option<GuestStatement> {
    let mut guests = machine(0, 0)?;
    guests.machines[0].injected = Some(500);
    guests.machines[0].interrupt_ends = Some(InterruptEnds {
        count,
        without_exit,
    });
    Some(guests)
}

/// Returns the cases about timers and interrupts.
fn interrupts() -> Vec<Case> {
    let (ticks, chip) = ("guest-keeps-ticking", "guest-timer-chip");
    let ends = "guest-without-pv-eoi";
    vec![
        Case {
            guests: || ticking(15, TickMode::KeepsTicking, false),
            ..case(
                ticks,
                "an idle guest with nohz=off",
                &[],
                Found("the timers of web (7) expired 1000 times per second, 3.0 exits each"),
            )
        },
        Case {
            guests: || ticking(15, TickMode::StopsWhenIdle, false),
            ..case(ticks, "a tick that stops", &[], Silence)
        },
        Case {
            guests: || ticking(1, TickMode::KeepsTicking, false),
            ..case(ticks, "a cheap tick", &[], Silence)
        },
        Case {
            guests: || ticking(15, TickMode::Unknown, true),
            ..case(
                chip,
                "a guest without a local APIC",
                &[],
                Found("the timer chip of web (7) expired 1000 times per second"),
            )
        },
        Case {
            guests: || ticking(15, TickMode::KeepsTicking, false),
            ..case(chip, "a guest with a local APIC", &[], Silence)
        },
        Case {
            guests: || ended(500, 0),
            ..case(
                ends,
                "a guest without PV EOI",
                &[],
                Found("web (7) ended 500 interrupts with an exit, 500 per second, and none"),
            )
        },
        Case {
            guests: || ended(500, 350),
            ..case(ends, "a guest with PV EOI", &[], Silence)
        },
        Case {
            guests: || ended(250, 0),
            ..case(
                ends,
                "a guest that ends only some with an exit",
                &[],
                Silence,
            )
        },
        Case {
            guests: || ended(99, 0),
            ..case(ends, "few interrupts", &[], Silence)
        },
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = scheduling();
    cases.extend(interrupts());
    cases
}

/// Returns the cases about polling and waiting.
fn scheduling() -> Vec<Case> {
    let (polling, waits) = ("guest-halt-polling", "guest-waits-for-cpu");
    vec![
        Case {
            guests: || machine(0, 60),
            ..case(
                polling,
                "an idle guest",
                &[POLLING],
                Found("KVM polled for 60.0 ms while web (7) was halted, until 900 of its halts"),
            )
        },
        Case {
            guests: || machine(0, 60),
            ..case(
                polling,
                "an unknown limit",
                &[],
                Found("halt_poll_ns is unknown"),
            )
        },
        Case {
            guests: || machine(0, 19),
            ..case(polling, "short polling", &[POLLING], Silence)
        },
        case(polling, "no machine", &[POLLING], Silence),
        Case {
            guests: || machine(20, 0),
            ..case(
                waits,
                "a busy host",
                &[],
                Found("they waited 20.0 ms of the 120 ms in which they wanted to run"),
            )
        },
        Case {
            guests: || machine(9, 0),
            ..case(waits, "a short wait", &[], Silence)
        },
        case(waits, "no machine", &[], Silence),
    ]
}
