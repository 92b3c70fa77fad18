//! Cases about virtual machines on their host.

use ticktax_model::Nanos;
use ticktax_model::guests::{ExitSet, GuestMachine, GuestStatement, GuestVcpu, GuestWaits, Halts};

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

pub(crate) fn cases() -> Vec<Case> {
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
