//! Statements written by hand.

use ticktax_model::clock::{CounterSource, CounterVerdict};
use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::{Machine, Preemption, TickMode};
use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};
use ticktax_model::recording::{
    ClockReport, CommandReport, Coverage, Level, Loss, ProbeFailure, ProbeKind, ProbeReport,
    ToolCost, World,
};
use ticktax_model::statement::{
    Account, Balance, Class, ClassTime, CpuAccounts, EntryExitBound, GapCause, GapParts,
    GapStatement, Part, Statement, ThrottledProgram, WorstGap,
};
use ticktax_model::victim::OffCpuReason;
use ticktax_model::witness::{CpuProof, Doubt, Proof};
use ticktax_model::{Cpu, Intervals, Nanos};

use crate::text::statement::statement;
use crate::{TextStyle, View};

/// Renders the full page of a statement.
pub(crate) fn full(content: &Statement, style: &TextStyle) -> String {
    statement(content, &everything(style)).into()
}

/// Returns `style`, changed to show the full page.
pub(crate) fn everything(style: &TextStyle) -> TextStyle {
    TextStyle {
        view: View::Full,
        ..*style
    }
}

/// Returns a statement that contains no data.
pub(crate) fn empty() -> Statement {
    Statement {
        coverage: Coverage {
            every_entry_watched: true,
            ..Coverage::default()
        },
        ..ticktax_fixture::statement()
    }
}

/// Returns intervals with this count and these lengths in ns. A length of 0 means that the length
/// is unknown.
fn intervals(count: u64, median: i64, p99: i64, max: i64) -> Intervals {
    let length = |ns: i64| (ns > 0).then_some(Nanos(ns));
    Intervals {
        count,
        median: length(median),
        p99: length(p99),
        max: length(max),
    }
}

fn account(class: Class, name: &str, us: i64, count: u64, lengths: [i64; 3]) -> Account {
    let [median, p99, max] = lengths;
    Account {
        class,
        name: name.to_owned(),
        pid: None,
        sampled: false,
        time: Nanos::from_micros(us),
        intervals: intervals(count, median, p99, max),
        longest: None,
        parts: Vec::new(),
    }
}

/// Returns an account whose time comes from the kernel's counters.
fn sampled(class: Class, name: &str, us: i64, count: u64) -> Account {
    Account {
        sampled: true,
        ..account(class, name, us, count, [0; 3])
    }
}

fn part(name: &str, ns: i64, count: u64, max: i64) -> Part {
    Part {
        name: name.to_owned(),
        time: Nanos(ns),
        count,
        max: (max > 0).then_some(Nanos(max)),
    }
}

/// Splits the accounts evenly among `cpus` CPUs. Computes each CPU's accounts and the balance.
fn settle(statement: &mut Statement, cpus: u32) {
    let mut accounted = Nanos::ZERO;
    for cpu in (0..cpus).map(Cpu) {
        let classes: Vec<ClassTime> = Class::ALL
            .into_iter()
            .map(|class| {
                let of_class = statement
                    .accounts
                    .iter()
                    .filter(|account| account.class == class);
                let time: Nanos = of_class.map(|account| account.time).sum();
                let rest = i64::from(cpu.0 == 0) * (time.0 % i64::from(cpus));
                ClassTime {
                    class,
                    time: Nanos(time.0 / i64::from(cpus) + rest),
                }
            })
            .filter(|part| part.time != Nanos::ZERO)
            .collect();
        let elapsed = classes.iter().map(|part| part.time).sum();
        accounted += elapsed;
        statement.cpus.push(CpuAccounts {
            cpu,
            elapsed,
            classes,
        });
    }
    statement.balance = Balance {
        elapsed: accounted,
        accounted,
        imbalances: Vec::new(),
    };
}

fn a_machine() -> Machine {
    Machine {
        host: "audio-7".to_owned(),
        kernel: "6.12.9-generic".to_owned(),
        arch: "x86_64".to_owned(),
        hz_configured: Some(1000),
        tick_mode: Some(TickMode::NohzIdle),
        high_resolution: Some(true),
        clocksource: Some("kvm-clock".to_owned()),
        cmdline: Some("quiet".to_owned()),
        online: "0-1".parse().unwrap(),
        hypervisor: Some("KVM".to_owned()),
        accounting: vec!["TICK_CPU_ACCOUNTING".to_owned()],
        preemption: Some(Preemption::Voluntary),
        ..Machine::default()
    }
}

fn programs() -> Vec<Account> {
    let mut game = account(
        Class::Program,
        "game",
        3_000_000,
        16_240,
        [151_000, 1_210_000, 3_210_000],
    );
    game.pid = Some(4_121);
    game.parts = vec![
        part("render", 2_000_000_000, 8_000, 3_210_000),
        part("audio-out", 800_000_000, 8_000, 900_000),
        part("game", 200_000_000, 240, 1_200_000),
    ];
    let lengths = [900_000, 9_700_000, 14_100_000];
    let compiler = account(Class::Program, "rustc", 1_520_000, 1_240, lengths);
    vec![game, compiler]
}

fn kernel_accounts() -> Vec<Account> {
    let lengths = [8_100, 61_000, 140_000];
    let mut kworker = account(Class::KernelThread, "kworker", 9_400, 812, lengths);
    kworker.parts = vec![part("vmstat_update", 6_100_000, 400, 90_000)];
    let lengths = [14_900, 31_200, 182_000];
    let mut tick = account(Class::Irq, "local_timer", 612_000, 40_012, lengths);
    tick.parts = vec![
        part("tick_nohz_handler", 490_400_000, 40_000, 171_000),
        part("hrtimer_wakeup", 6_100_000, 410, 22_000),
        part("posix_cpu_timer", 900_000, 12, 0),
    ];
    let mut accounts = vec![kworker, tick];
    for (name, us, count) in [
        ("virtio0-req.0", 1_900, 600),
        ("virtio1-input.0", 950, 300),
        ("resched", 633, 200),
        ("call_function", 475, 150),
    ] {
        let lengths = [2_900, 9_000, 20_000];
        accounts.push(account(Class::Irq, name, us, count, lengths));
    }
    for (name, us, count, lengths) in [
        ("NET_RX", 41_000, 5_120, [6_200, 44_000, 210_000]),
        ("TIMER", 900, 2_100, [300, 2_100, 9_100]),
        ("SCHED", 900, 2_100, [300, 2_100, 9_100]),
        ("RCU", 900, 2_100, [300, 2_100, 9_100]),
    ] {
        accounts.push(account(Class::Softirq, name, us, count, lengths));
    }
    accounts.push(account(Class::Nmi, "nmi", 12, 3, [4_000, 4_000, 4_100]));
    accounts
}

fn accounts() -> Vec<Account> {
    let mut accounts = programs();
    accounts.extend(kernel_accounts());
    for (class, name, us, count, lengths) in [
        (
            Class::EntryExit,
            "entry and exit",
            1_031_000,
            41_900,
            [22_400, 61_000, 118_000],
        ),
        (
            Class::HypervisorOrFirmware,
            "hypervisor or firmware",
            612_400,
            220_400,
            [2_510, 9_800, 1_320_000],
        ),
        (
            Class::Unexplained,
            "unexplained",
            4_300,
            210,
            [3_000, 90_000, 190_000],
        ),
        (
            Class::Tool,
            "ticktax",
            22_000,
            410,
            [40_000, 90_000, 120_000],
        ),
        (Class::Probe, "probe", 33_130_000, 0, [0, 0, 0]),
    ] {
        let mut account = account(class, name, us, count, lengths);
        if class == Class::EntryExit {
            account.parts = vec![part("around local_timer", 960_000_000, 39_000, 118_000)];
        }
        accounts.push(account);
    }
    let spent: Nanos = accounts.iter().map(|account| account.time).sum();
    let idle = (Nanos::from_secs(40) - spent).0 / 1_000;
    let lengths = [100_000, 990_000, 1_000_000];
    accounts.push(account(Class::Idle, "idle", idle, 45, lengths));
    accounts
}

fn gaps() -> GapStatement {
    let cause = |name: &str, count, us, ns, max| GapCause {
        name: name.to_owned(),
        count,
        time: Nanos::from_micros(us),
        named: Nanos::from_micros(us / 3),
        median: Some(Nanos(ns)),
        max: Some(Nanos(max)),
    };
    let mut causes = vec![
        cause("local_timer", 39_000, 1_537_900, 38_100, 300_000),
        cause("hypervisor or firmware", 220_400, 612_400, 2_510, 1_320_000),
        cause("local_timer + NET_RX", 2_100, 91_000, 44_000, 410_000),
        cause("unexplained", 210, 4_300, 3_000, 190_000),
    ];
    for (name, count, us) in [
        ("virtio0-req.0", 150, 900),
        ("kworker", 90, 800),
        ("call_function", 120, 700),
        ("TIMER", 110, 600),
        ("RCU", 90, 500),
        ("resched", 80, 400),
        ("SCHED", 60, 300),
        ("rest", 40, 200),
    ] {
        causes.push(cause(name, count, us, 5_000, 20_000));
    }
    GapStatement {
        probe: ProbeKind::Spin,
        watched: Nanos::from_secs(40),
        long: GapParts {
            gaps: intervals(262_450, 2_610, 61_200, 1_320_000),
            time: Nanos::from_micros(2_250_000),
            named: Nanos::from_micros(602_300),
            entry_exit: Nanos::from_micros(1_031_000),
            hypervisor_or_firmware: Nanos::from_micros(612_400),
            unexplained: Nanos::from_micros(4_300),
        },
        short: GapParts {
            gaps: intervals(12_300, 480, 980, 999),
            time: Nanos::from_micros(6_100),
            ..GapParts::default()
        },
        yielded: GapParts {
            gaps: intervals(17_480, 152_000, 3_190_000, 14_100_000),
            time: Nanos::from_micros(4_586_300),
            named: Nanos::from_micros(4_586_300),
            ..GapParts::default()
        },
        longest: worst_gaps(),
        causes,
        proofs: proofs(),
        entry_exit: vec![EntryExitBound {
            account: "local_timer".to_owned(),
            count: 39_000,
            median: Nanos(22_100),
            bound: Nanos(118_000),
            beyond_count: 12,
            beyond: Nanos::from_micros(310),
        }],
    }
}

fn proofs() -> Vec<CpuProof> {
    let proof = |cpu, proof, doubts| CpuProof {
        cpu: Cpu(cpu),
        proof,
        doubts,
    };
    let doubts = vec![
        Doubt::SwitchesNotReported { count: 2 },
        Doubt::InterruptsNotTraced { count: 1 },
    ];
    vec![
        proof(0, Proof::Proven, Vec::new()),
        proof(1, Proof::Bounded(3), doubts),
    ]
}

fn worst_gaps() -> Vec<WorstGap> {
    let worst = |cpu, at, length, parts| WorstGap {
        cpu: Cpu(cpu),
        at: Nanos(at),
        length: Nanos(length),
        parts,
    };
    vec![
        worst(1, 12_345_678_901, 1_320_000, vec![]),
        worst(
            0,
            3_000_111_000,
            410_000,
            vec![
                part("local_timer tick_nohz_handler", 171_000, 1, 171_000),
                part("NET_RX", 121_000, 3, 61_000),
                part("virtio1-input.0", 9_000, 3, 4_000),
                part("SCHED", 2_000, 1, 2_000),
                part("RCU", 1_000, 1, 1_000),
            ],
        ),
        worst(
            0,
            900,
            300_000,
            vec![part("local_timer", 182_000, 1, 182_000)],
        ),
    ]
}

fn probe(probe: ProbeKind, cpu: u32) -> ProbeReport {
    let spin = probe == ProbeKind::Spin;
    ProbeReport {
        probe,
        cpu: Cpu(cpu),
        tid: 900,
        policy: PolicyGrant::full(SchedulingPolicy::Other),
        period: if spin {
            Nanos(11)
        } else {
            Nanos::from_millis(1)
        },
        threshold: if spin { Nanos(57) } else { Nanos(1_000) },
        iterations: 1_700_000_000,
        begin: Nanos::ZERO,
        end: Nanos::from_secs(20),
        ended_early: None,
    }
}

/// Returns a statement about a virtual machine with two CPUs that runs a game. It was fully traced,
/// and a spin probe ran.
pub(crate) fn kernel_level() -> Statement {
    let mut statement = Statement {
        machine: a_machine(),
        began_unix: 1_700_000_000,
        accounts: accounts(),
        throttled: vec![ThrottledProgram {
            name: "game".to_owned(),
            pid: Some(4_121),
            reason: OffCpuReason::Throttled,
            time: Nanos::from_millis(1_210),
            intervals: intervals(31, 38_000_000, 71_000_000, 72_000_000),
        }],
        gaps: Some(gaps()),
        coverage: Coverage {
            attached: vec![Hook::IrqHandler],
            limitations: vec![Limitation::FunctionNamesHidden],
            lost: vec![Loss {
                cpu: Cpu(1),
                events: 1_234,
                self_time: Nanos(3_210_000),
                gaps: 3,
            }],
            every_entry_watched: true,
        },
        clock: Some(ClockReport {
            counter: CounterSource::Tsc,
            frequency_hz: 2_495_998_123.0,
            drift_ppm: 0.081,
            backwards_steps: 0,
            verdict: CounterVerdict::Trusted,
            bracket: Nanos(15),
            uncertainty: Nanos(21),
            anchors: 400,
        }),
        probes: vec![probe(ProbeKind::Spin, 0), probe(ProbeKind::Spin, 1)],
        cost: ToolCost {
            nice: 0,
            raised: Nanos::ZERO,
            avoided_program_cpus: false,
            load: Nanos::from_millis(812),
            cpu: Nanos::from_millis(22),
            memory_bytes: 47_300_000,
            events: 1_234_567,
            tracer: Some(Nanos::from_millis(61)),
        },
        command: Some(CommandReport {
            argv: vec![
                "./game".to_owned(),
                "--server".to_owned(),
                "eu-west".to_owned(),
            ],
            pid: 4_121,
            exit: Some(139),
        }),
        ..empty()
    };
    settle(&mut statement, 2);
    statement
}

/// Returns a statement about the same machine as [`kernel_level`], recorded without root and with a
/// sleep probe.
pub(crate) fn proc_level() -> Statement {
    let mut statement = Statement {
        level: Level::Proc,
        machine: Machine {
            hz_configured: None,
            ..a_machine()
        },
        began_unix: 1_700_000_000,
        accounts: vec![
            sampled(Class::Program, "programs", 3_010_000, 0),
            sampled(Class::Irq, "interrupts", 610_000, 40_612),
            sampled(Class::Softirq, "softirqs", 40_000, 9_000),
            account(Class::Unexplained, "unexplained", 20_000, 0, [0; 3]),
            sampled(Class::Idle, "idle", 36_320_000, 0),
        ],
        gaps: Some(GapStatement {
            probe: ProbeKind::Sleep,
            watched: Nanos::from_secs(32),
            long: GapParts {
                gaps: intervals(30_390, 51_000, 91_000, 4_100_000),
                time: Nanos::from_micros(1_610_000),
                unexplained: Nanos::from_micros(1_610_000),
                ..GapParts::default()
            },
            short: GapParts::default(),
            yielded: GapParts::default(),
            longest: vec![WorstGap {
                cpu: Cpu(0),
                at: Nanos(77_000_000),
                length: Nanos(4_100_000),
                parts: Vec::new(),
            }],
            causes: Vec::new(),
            proofs: Vec::new(),
            entry_exit: Vec::new(),
        }),
        coverage: Coverage {
            limitations: vec![
                Limitation::KernelNotTraced {
                    message: "ordinary users cannot trace the kernel".to_owned(),
                    needs_root: true,
                },
                Limitation::Other {
                    topic: "steal time".to_owned(),
                    reason: "the hypervisor does not report it".to_owned(),
                },
            ],
            ..Coverage::default()
        },
        probes: vec![
            ProbeReport {
                end: Nanos::from_secs(12),
                ended_early: Some(ProbeFailure::Moved { to: Cpu(1) }),
                ..probe(ProbeKind::Sleep, 0)
            },
            probe(ProbeKind::Sleep, 1),
        ],
        cost: ToolCost {
            cpu: Nanos::from_millis(18),
            ..ToolCost::default()
        },
        ..empty()
    };
    settle(&mut statement, 2);
    statement
}

/// Returns a statement whose accounts do not balance.
pub(crate) fn off_by_17_ns() -> Statement {
    let mut statement = Statement {
        world: World::Simulated,
        ..kernel_level()
    };
    statement.balance.accounted += Nanos(17);
    statement.balance.imbalances = vec![(Cpu(1), Nanos(17))];
    statement.cpus[1].classes[0].time += Nanos(17);
    statement.gaps = None;
    statement.command = None;
    statement.coverage.every_entry_watched = false;
    statement
}

/// Returns a statement that covers so little time that its page shows every nanosecond.
pub(crate) fn small_change(times: &[(Class, i64)]) -> Statement {
    let accounts = times.iter().enumerate().map(|(i, &(class, ns))| Account {
        time: Nanos(ns),
        ..account(class, &format!("account-{i}"), 0, 1, [0; 3])
    });
    let mut statement = Statement {
        accounts: accounts.collect(),
        ..empty()
    };
    settle(&mut statement, 1);
    statement
}

/// Returns a statement about a machine with many CPUs and little load. CPU 40 handles more
/// interrupts than the others.
pub(crate) fn many_cpus() -> Statement {
    let scale = 32;
    let more = |account: Account| Account {
        time: Nanos(account.time.0 * scale),
        intervals: Intervals {
            count: account.intervals.count * scale.unsigned_abs(),
            ..account.intervals
        },
        parts: account
            .parts
            .into_iter()
            .map(|part| Part {
                time: Nanos(part.time.0 * scale),
                count: part.count * scale.unsigned_abs(),
                ..part
            })
            .collect(),
        ..account
    };
    let mut statement = Statement {
        machine: Machine {
            online: "0-63".parse().unwrap(),
            ..a_machine()
        },
        began_unix: 1_700_000_000,
        accounts: accounts().into_iter().map(more).collect(),
        ..empty()
    };
    settle(&mut statement, 64);
    for cpu in &mut statement.cpus {
        let extra = Nanos::from_millis(if cpu.cpu == Cpu(40) { 315 } else { -5 });
        for part in &mut cpu.classes {
            match part.class {
                Class::Irq => part.time += extra,
                Class::Probe => part.time -= extra,
                _ => {}
            }
        }
    }
    statement
}
