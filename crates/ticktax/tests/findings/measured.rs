//! Cases that compare measured values with settings.

use ticktax_model::accounting::{AccountingStatement, Bias, BiasKind, Counting, CpuCheck};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::{CpuTimes, InterruptRow};
use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};
use ticktax_model::recording::{Header, ProbeKind, ProbeReport};
use ticktax_model::tick::{Basis, CpuTicks, Estimate, Frequency, TickBill, TickCost, Ticks};
use ticktax_model::{Cpu, CpuList, Intervals, Nanos};

use super::tree::Expected::{self, Found, Silence};
use super::tree::{CONFIG, Case, case};

const CMDLINE: &str = "proc/cmdline";

fn with(
    rule: &'static str,
    name: &'static str,
    files: &[(&'static str, &str)],
    measured: fn(&mut Header) -> Option<TickBill>,
    expected: Expected,
) -> Case {
    Case {
        measured,
        ..case(rule, name, files, expected)
    }
}

/// Returns the accounting check for a CPU that was 60 % busy. `top` shows it as busy for the
/// fraction `share` of the time.
#[expect(clippy::unnecessary_wraps, reason = "the check of a case is optional")]
fn shown(share: f64) -> Option<AccountingStatement> {
    let second = Nanos::from_secs(1);
    let busy = Nanos::from_millis(600);
    Some(AccountingStatement {
        config: Counting::default(),
        cpus: vec![CpuCheck {
            cpu: Cpu(1),
            stat_elapsed: second,
            columns: CpuTimes::default(),
            shown_busy: Nanos::ZERO,
            shown_share: share,
            uncounted: busy,
            elapsed: second,
            busy: Some(busy),
            busy_share: Some(0.6),
            unexplained: Nanos::ZERO,
            interrupts: None,
            hypervisor_or_firmware: None,
            spare: None,
            ticks: None,
            causes: Vec::new(),
        }],
        programs: Vec::new(),
        programs_left_out: 0,
        unwatched_cpus: CpuList::default(),
    })
}

/// Returns the accounting check for a CPU that looks idle in `top` because of one program. The
/// ticks never find this program running, so its samples are charged to a different program.
fn dodged() -> Option<AccountingStatement> {
    let mut check = shown(0.08)?;
    let phase = |program: &str, ms: i64| Bias {
        kind: BiasKind::TickPhase,
        time: Nanos::from_millis(ms),
        program: Some(program.to_owned()),
        pid: Some(1),
        ran: Nanos::from_millis(500),
        sampled: Nanos::from_millis(500 + ms),
    };
    check.cpus[0].causes = vec![phase("bystander", 450), phase("dodger", -400)];
    Some(check)
}

fn accounted(
    name: &'static str,
    accounting: fn() -> Option<AccountingStatement>,
    expected: Expected,
) -> Case {
    Case {
        accounting,
        ..case("cpu-time-not-as-shown", name, &[], expected)
    }
}

/// Returns the tick costs of a CPU that had `hz` ticks per second while busy and `idle` while idle,
/// and whose tick stopped `stopped` times.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the measurement of a case is optional"
)]
fn bill(hz: f64, idle: u64, stopped: Option<u64>) -> Option<TickBill> {
    let ticks = |count, secs| Ticks {
        count,
        time: Nanos::from_secs(secs),
    };
    Some(TickBill {
        basis: Basis::Spans,
        hz_configured: Some(250),
        user_hz: Some(100),
        mode: None,
        parameters: Vec::new(),
        cpus: vec![CpuTicks {
            cpu: Cpu(1),
            all: ticks(5_000, 20),
            busy: Some(ticks(2_500, 10)),
            probed: None,
            idle: Some(ticks(10 * idle, 10)),
            frequency: Some(Frequency {
                hz,
                plus_minus: 0.1,
                intervals: 2_499,
            }),
            stopped,
            pauses: 0,
            saved: 0,
            interrupts: None,
        }],
        cost: None,
        fleet: None,
    })
}

/// Returns the tick costs of a CPU whose ticks took 10 ms.
fn costly() -> Option<TickBill> {
    let mut bill = bill(250.0, 10, None)?;
    bill.cost = Some(TickCost {
        ticks: Intervals::default(),
        time: Nanos::from_millis(10),
        parts: Vec::new(),
        softirqs: Vec::new(),
        entry_exit: None,
        cores: Estimate::default(),
    });
    Some(bill)
}

fn fifo_probe(header: &mut Header) -> Option<TickBill> {
    header.probes.push(ProbeReport {
        probe: ProbeKind::Spin,
        cpu: Cpu(1),
        tid: 7,
        policy: PolicyGrant::full(SchedulingPolicy::Fifo(50)),
        period: Nanos(10),
        threshold: Nanos(100),
        iterations: 1,
        begin: Nanos::ZERO,
        end: Nanos::from_secs(1),
        ended_early: None,
    });
    None
}

fn refused_probe(header: &mut Header) -> Option<TickBill> {
    header
        .coverage
        .limitations
        .push(Limitation::ProbePolicyRefused {
            cpu: Cpu(1),
            policy: PolicyGrant {
                requested: SchedulingPolicy::Fifo(50),
                granted: SchedulingPolicy::Other,
                refusal: Some("Operation not permitted".to_owned()),
            },
        });
    None
}

/// Makes interrupt 24 arrive thirty times on CPU 1, and interrupt 25 only on CPU 0.
fn interrupted(header: &mut Header) -> Option<TickBill> {
    for (number, counts) in [("24", [0, 30]), ("25", [900, 0])] {
        let row = |times: u64| InterruptRow {
            description: "eth0".to_owned(),
            counts: (0..).zip(counts.map(|count| count * times)).collect(),
        };
        header.before.interrupts.insert(number.to_owned(), row(1));
        header.after.interrupts.insert(number.to_owned(), row(2));
    }
    None
}

pub(crate) fn cases() -> Vec<Case> {
    let lists = [
        samples(),
        rates(),
        ticks_not_saved(),
        stopping(),
        policies(),
        interrupts(),
    ];
    lists.into_iter().flatten().collect()
}

fn samples() -> Vec<Case> {
    vec![
        accounted(
            "a CPU that looks idle",
            || shown(0.08),
            Found("60.0 % busy"),
        ),
        accounted(
            "a CPU that looks busier than it is",
            || shown(0.9),
            Found("less busy"),
        ),
        accounted(
            "a CPU that looks idle by one program's doing",
            dodged,
            Found("use the CPU time of dodger itself"),
        ),
        accounted("a CPU that is off by two points", || shown(0.58), Silence),
    ]
}

fn rates() -> Vec<Case> {
    let full = ("sys/devices/system/cpu/nohz_full", "1\n");
    vec![
        with(
            "hz-not-as-built",
            "ticks lost",
            &[CONFIG],
            |_| bill(201.0, 10, None),
            Found("201.00 ± 0.10 Hz on CPU 1"),
        ),
        with(
            "hz-not-as-built",
            "ticks lost where nobody can take a CPU away",
            &[CONFIG],
            |_| bill(201.0, 10, None),
            Found("remedy: \"check what the CPUs did in the longest gaps\""),
        ),
        with(
            "hz-not-as-built",
            "ticks lost in a guest",
            &[CONFIG],
            |header| {
                header.machine.hypervisor = Some("KVM".to_owned());
                bill(201.0, 10, None)
            },
            Found("give the virtual machine dedicated CPUs"),
        ),
        with(
            "hz-not-as-built",
            "too fast",
            &[CONFIG],
            |_| bill(260.0, 10, None),
            Found("The tick is faster than"),
        ),
        with(
            "hz-not-as-built",
            "as built",
            &[CONFIG],
            |_| bill(249.5, 10, None),
            Silence,
        ),
        with(
            "hz-not-as-built",
            "no tick by design",
            &[CONFIG, full],
            |_| bill(1.0, 1, None),
            Silence,
        ),
    ]
}

fn ticks_not_saved() -> Vec<Case> {
    let divider = [CONFIG, (CMDLINE, "divider=10")];
    vec![
        with(
            "tick-divider-without-effect",
            "measured",
            &divider,
            |_| bill(250.0, 10, None),
            Found("250.00 Hz"),
        ),
        with(
            "tick-divider-without-effect",
            "what is not left out costs nine tenths",
            &divider,
            |_| costly(),
            Found("been skipped\", time: Some(Nanos(9000000))"),
        ),
        with(
            "nohz-full-without-effect",
            "the busy half of a CPU's ticks",
            &[CONFIG, (CMDLINE, "nohz_full=1")],
            |_| costly(),
            Found("\"ticks of CPU 1 while busy\", time: Some(Nanos(5000000))"),
        ),
        with(
            "nohz-full-without-effect",
            "a CPU without a bill",
            &[CONFIG, (CMDLINE, "nohz_full=2-3")],
            |_| costly(),
            Found("\"ticks of CPUs 2-3 while busy\", time: None"),
        ),
        with(
            "tick-divider-without-effect",
            "divided",
            &divider,
            |_| bill(25.0, 10, None),
            Silence,
        ),
    ]
}

fn stopping() -> Vec<Case> {
    let off = [CONFIG, (CMDLINE, "nohz=off")];
    vec![
        with(
            "nohz-not-as-requested",
            "stops though off",
            &off,
            |_| bill(250.0, 10, Some(40)),
            Found("40 times"),
        ),
        with(
            "nohz-not-as-requested",
            "off as asked",
            &off,
            |_| bill(250.0, 250, Some(0)),
            Silence,
        ),
        with(
            "nohz-not-as-requested",
            "goes on while idle",
            &[CONFIG],
            |_| bill(250.0, 250, Some(0)),
            Found("continued at 250 Hz"),
        ),
        with(
            "nohz-not-as-requested",
            "stops while idle",
            &[CONFIG],
            |_| bill(250.0, 10, Some(40)),
            Silence,
        ),
        with(
            "nohz-not-as-requested",
            "not counted",
            &[CONFIG],
            |_| bill(250.0, 250, None),
            Silence,
        ),
    ]
}

fn policies() -> Vec<Case> {
    const RUNTIME: &str = "proc/sys/kernel/sched_rt_runtime_us";
    const PERIOD: (&str, &str) = ("proc/sys/kernel/sched_rt_period_us", "1000000\n");
    vec![
        with(
            "probe-policy-not-granted",
            "refused",
            &[],
            refused_probe,
            Found("SCHED_FIFO:50 was refused"),
        ),
        with(
            "probe-policy-not-granted",
            "granted",
            &[],
            fifo_probe,
            Silence,
        ),
        with(
            "real-time-throttled",
            "throttled",
            &[(RUNTIME, "950000\n"), PERIOD],
            fifo_probe,
            Found("gaps of up to 50 ms"),
        ),
        with(
            "real-time-throttled",
            "not throttled",
            &[(RUNTIME, "-1\n"), PERIOD],
            fifo_probe,
            Silence,
        ),
        with(
            "real-time-throttled",
            "nobody concerned",
            &[(RUNTIME, "950000\n"), PERIOD],
            |_| None,
            Silence,
        ),
    ]
}

fn interrupts() -> Vec<Case> {
    const ISOLATED: (&str, &str) = ("sys/devices/system/cpu/isolated", "1\n");
    const ANYWHERE: (&str, &str) = ("proc/irq/24/effective_affinity_list", "0-1\n");
    const ITS_OWN: (&str, &str) = ("proc/irq/24/effective_affinity_list", "1\n");
    vec![
        with(
            "interrupts-on-cpus-set-apart",
            "a line that may go elsewhere",
            &[ISOLATED, ANYWHERE],
            interrupted,
            Found("30 interrupts on these CPUs: 24 (eth0)"),
        ),
        with(
            "interrupts-on-cpus-set-apart",
            "a single CPU",
            &[ISOLATED, ANYWHERE],
            interrupted,
            Found("\"CPU 1 isolated"),
        ),
        with(
            "interrupts-on-cpus-set-apart",
            "irqbalance put it there",
            &[ISOLATED, ITS_OWN, ("proc/77/comm", "irqbalance\n")],
            interrupted,
            Found("in irqbalance"),
        ),
        with(
            "interrupts-on-cpus-set-apart",
            "a queue of that CPU",
            &[ISOLATED, ITS_OWN],
            interrupted,
            Silence,
        ),
        with(
            "interrupts-on-cpus-set-apart",
            "no CPU set apart",
            &[ANYWHERE],
            interrupted,
            Silence,
        ),
    ]
}
