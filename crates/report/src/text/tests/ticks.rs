//! Sample tick bills and findings, and tests for pages about them.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::knob::KnobProposal;
use ticktax_model::machine::TickMode;
use ticktax_model::statement::{Part, Statement};
use ticktax_model::tick::{
    Around, Basis, CpuTicks, Estimate, Fleet, Frequency, TickBill, TickCost, Ticks,
};
use ticktax_model::{Cpu, Intervals, Moment, Nanos};

use super::samples::many_cpus;

fn ticks(count: u64, millis: i64) -> Ticks {
    Ticks {
        count,
        time: Nanos::from_millis(millis),
    }
}

fn part(name: &str, time: i64, count: u64) -> Part {
    Part {
        name: name.to_owned(),
        time: Nanos(time),
        count,
        max: None,
    }
}

fn cpu(number: u32) -> CpuTicks {
    CpuTicks {
        cpu: Cpu(number),
        all: ticks(2_810, 20_000),
        busy: Some(ticks(2_500, 10_000)),
        probed: None,
        idle: Some(ticks(310, 10_000)),
        frequency: Some(Frequency {
            hz: 249.98,
            plus_minus: 0.21,
            intervals: 2_200,
        }),
        stopped: Some(1_204),
        pauses: 900,
        saved: 2_190,
        interrupts: Some(3_000),
    }
}

/// Returns the ticks on a CPU that was nearly idle, and on a CPU that ran only the probe.
fn quiet_cpus() -> [CpuTicks; 2] {
    let quiet = CpuTicks {
        all: ticks(41, 20_000),
        busy: Some(ticks(0, 3)),
        idle: Some(ticks(41, 19_997)),
        frequency: None,
        stopped: Some(312),
        saved: 4_958,
        ..cpu(1)
    };
    let probed = CpuTicks {
        all: ticks(5_000, 20_000),
        busy: None,
        probed: Some(ticks(5_000, 20_000)),
        idle: None,
        stopped: None,
        saved: 0,
        ..cpu(2)
    };
    [quiet, probed]
}

fn cost(basis: Basis) -> TickCost {
    let spans = basis == Basis::Spans;
    TickCost {
        ticks: Intervals {
            count: 7_851,
            median: Some(Nanos(7_680)),
            p99: Some(Nanos(18_400)),
            max: Some(Nanos(37_700)),
        },
        time: Nanos(7_851 * 8_000),
        parts: vec![
            part("rest of the interrupt", 7_851 * 5_400, 7_851),
            part("tick_nohz_handler", 7_851 * 2_600, 7_851),
        ],
        softirqs: if spans {
            vec![
                part("SCHED", 7_851 * 1_420, 3_100),
                part("RCU", 7_851 * 47, 212),
            ]
        } else {
            Vec::new()
        },
        entry_exit: spans.then_some(Around {
            count: 3_883,
            median: Nanos(9_210),
            p99: Some(Nanos(26_600)),
        }),
        cores: Estimate {
            value: if spans { 0.003_7 } else { 0.003_14 },
            plus_minus: spans.then_some(0.000_21),
        },
    }
}

fn bill(basis: Basis) -> TickBill {
    TickBill {
        basis,
        hz_configured: Some(250),
        user_hz: Some(100),
        mode: Some(TickMode::NohzIdle),
        parameters: vec!["nohz=on".to_owned(), "skew_tick=1".to_owned()],
        cpus: [cpu(0)].into_iter().chain(quiet_cpus()).collect(),
        cost: Some(cost(basis)),
        fleet: None,
    }
}

/// Returns the tick bill for the machine from [`kernel_level`](super::samples::kernel_level), whose
/// CPUs were never idle because a probe ran on them.
pub(super) fn of_two_busy_cpus() -> TickBill {
    let busy = |number| CpuTicks {
        all: ticks(20_000, 20_000),
        busy: None,
        probed: Some(ticks(20_000, 20_000)),
        idle: None,
        frequency: Some(Frequency {
            hz: 1_000.02,
            plus_minus: 0.21,
            intervals: 19_999,
        }),
        stopped: None,
        pauses: 0,
        saved: 0,
        interrupts: Some(20_006),
        ..cpu(number)
    };
    let count = 40_000;
    TickBill {
        hz_configured: Some(1_000),
        parameters: Vec::new(),
        cpus: vec![busy(0), busy(1)],
        cost: Some(TickCost {
            ticks: Intervals {
                count,
                median: Some(Nanos(14_900)),
                p99: Some(Nanos(31_200)),
                max: Some(Nanos(182_000)),
            },
            time: Nanos(40_000 * 15_300),
            parts: vec![
                part("rest of the interrupt", 40_000 * 3_040, count),
                part("tick_nohz_handler", 40_000 * 12_260, count),
            ],
            softirqs: vec![part("SCHED", 900_000, 2_100), part("RCU", 900_000, 2_100)],
            entry_exit: Some(Around {
                count: 38_800,
                median: Nanos(22_100),
                p99: Some(Nanos(61_000)),
            }),
            cores: Estimate {
                value: 0.030_5,
                plus_minus: Some(0.000_4),
            },
        }),
        ..bill(Basis::Spans)
    }
}

/// Returns a tick bill in which every optional field is set.
pub(crate) fn a_bill() -> TickBill {
    TickBill {
        fleet: Some(Fleet {
            guests: 40,
            cores: cost(Basis::Spans).cores.times(40.0),
        }),
        ..bill(Basis::Spans)
    }
}

/// Returns the tick bill for a recording that keeps sums.
pub(super) fn summed() -> TickBill {
    let mut bill = bill(Basis::Sums);
    for cpu in &mut bill.cpus {
        (cpu.busy, cpu.probed, cpu.idle, cpu.frequency) = (None, None, None, None);
        (cpu.pauses, cpu.saved) = (0, 0);
    }
    bill
}

/// Returns the tick bill that is available without root.
pub(super) fn counted_only() -> TickBill {
    TickBill {
        hz_configured: None,
        parameters: Vec::new(),
        cost: None,
        ..bill(Basis::Counters)
    }
}

/// Returns a finding that the sysctl `knob` has the value 1, even though its file in
/// `/etc/sysctl.d` sets `value`.
fn finding(knob: &str, value: u32, cost: Option<Cost>) -> Finding {
    Finding {
        rule: "sysctl-not-in-effect".to_owned(),
        title: format!("{knob} is not as configured"),
        configured: format!("{value} in /etc/sysctl.d/50-quiet.conf"),
        effective: "1".to_owned(),
        measured: format!("/proc/sys/{}", knob.replace('.', "/")),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost,
        proposal: KnobProposal::new(knob, i64::from(value)),
        remedy: "run `sysctl --system`".to_owned(),
    }
}

/// Returns findings from two rules.
pub(crate) fn findings() -> Vec<Finding> {
    let ksmd = Moment {
        at: Nanos::from_millis(1_250),
        length: Nanos::from_micros(840),
        cpu: Cpu(1),
    };
    vec![
        Finding {
            rule: "same-pages-never-merged".to_owned(),
            title: "KSM has found no pages to merge".to_owned(),
            configured: "1 in /sys/kernel/mm/ksm/run".to_owned(),
            effective: "0 pages shared".to_owned(),
            measured: "/sys/kernel/mm/ksm/pages_shared".to_owned(),
            confidence: Confidence::Likely,
            severity: Severity::Serious,
            remedy: "stop it with `echo 0 > /sys/kernel/mm/ksm/run`".to_owned(),
            proposal: None,
            cost: Some(Cost::new("the time of ksmd", Some(Nanos::from_millis(212))).at(Some(ksmd))),
        },
        finding(
            "kernel.nmi_watchdog",
            0,
            Cost::unmeasured("an NMI every few seconds on each CPU"),
        ),
        finding("vm.stat_interval", 120, None),
    ]
}

/// Returns a statement with a tick bill, and with more CPUs and findings than a page shows.
pub(super) fn with_ticks() -> Statement {
    let mut bill = a_bill();
    bill.cpus = (0..64).map(cpu).collect();
    Statement {
        tick: Some(bill),
        findings: (0..7).flat_map(|_| findings()).collect(),
        ..many_cpus()
    }
}
