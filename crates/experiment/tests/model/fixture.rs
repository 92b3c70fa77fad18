//! Proptest strategies that generate random setups, and a sink that collects rows.

use proptest::prelude::*;
use ticktax_model::autogroup::Autogroup;
use ticktax_model::pace::PaceRule;
use ticktax_model::recording::{Row, RowSink};
use ticktax_model::{Nanos, SourceTable};
use ticktax_sim::{
    Attributes, Call, Class, Costs, Device, Footprint, Group, Law, Link, Machine, Policy, Setup,
    Source, Speed, Step, TaskId, TaskSpec, Then, TickMode, TimerRule,
};

#[derive(Default)]
pub(crate) struct Rows(pub(crate) Vec<Row>);

impl RowSink for Rows {
    fn row(&mut self, _: &SourceTable, row: &Row) {
        self.0.push(row.clone());
    }
}

pub(crate) const EEVDF: Policy = Policy::Eevdf {
    slice: Nanos(3_000_000),
    hrtick: false,
};

/// Returns all policies with default parameters, plus variants with other parameters.
pub(crate) fn policies() -> impl Iterator<Item = Policy> {
    let hrtick = Policy::Eevdf {
        slice: Nanos(700_000),
        hrtick: true,
    };
    Policy::ALL.into_iter().chain([EEVDF, hrtick])
}

pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(policies().collect::<Vec<_>>())
}

pub(crate) fn micros(max: i64) -> impl Strategy<Value = Nanos> {
    (0..max * 1000).prop_map(Nanos)
}

pub(crate) fn law(max: i64) -> impl Strategy<Value = Law> {
    prop_oneof![
        micros(max).prop_map(Law::Fixed),
        (micros(max), micros(max)).prop_map(|(mean, sd)| Law::Normal(mean, sd)),
        micros(max).prop_map(Law::Exponential),
        (micros(max), micros(max)).prop_map(|(a, b)| Law::Uniform(a.min(b), a.max(b) + Nanos(1))),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop::sample::select(&[Call::Nanosleep, Call::Select, Call::Poll][..])
}

fn step(tasks: u32, links: bool) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => law(8_000).prop_map(Step::Work),
        2 => law(2_000).prop_map(Step::Kernel),
        1 => law(2_000).prop_map(Step::Masked),
        6 => (call(), law(20_000)).prop_map(|(call, law)| Step::Sleep(call, law)),
        1 => call().prop_map(|call| Step::SleepUntil(call, Nanos::from_millis(7))),
        1 => call().prop_map(|call| Step::SleepRest {
            call,
            time: Nanos::from_millis(9),
            unit: Nanos::from_millis(1),
        }),
        1 => law(3_000).prop_map(|work| Step::Every { period: Nanos::from_millis(5), work }),
        1 => Just(Step::SpinUntil(Nanos::from_millis(3))),
        1 => (prop::sample::select(&PaceRule::ALL[..]), 0_i64..8).prop_map(|(rule, spin)| Step::Pace {
            rule,
            period: Nanos::from_millis(6),
            unit: Nanos::from_millis(1),
            spin: Nanos::from_millis(spin),
        }),
        1 => law(300).prop_map(Step::Late),
        1 => law(9_000).prop_map(Step::Arrive),
        1 => Just(Step::Frame),
        1 => Just(Step::Yield),
        1 => (0_usize..2).prop_map(Step::Lock),
        1 => (0_usize..2).prop_map(Step::Unlock),
        1 => (0..tasks).prop_map(|task| Step::Signal(TaskId(task))),
        1 => Just(Step::Wait),
        1 => law(100).prop_map(move |law| if links { Step::Receive(0, law) } else { Step::Work(law) }),
    ]
}

fn autogroup() -> impl Strategy<Value = Autogroup> {
    (0_u32..3, -20_i8..20).prop_map(|(number, nice)| Autogroup { number, nice })
}

fn task(tasks: u32, cpus: usize) -> impl Strategy<Value = TaskSpec> {
    let class = prop_oneof![
        5 => Just(Class::Normal),
        1 => (1_u8..99).prop_map(Class::Fifo),
        1 => (1_u8..99).prop_map(Class::RoundRobin),
    ];
    (
        (
            (class, prop::option::weighted(0.3, autogroup())),
            -20_i8..20,
            prop::option::of(0..cpus),
            micros(30_000),
        ),
        prop::collection::vec(step(tasks, true), 1..7),
        prop::option::of(Just(0)),
        prop::option::of(micros(500)),
    )
        .prop_map(
            |(((class, autogroup), nice, cpu, start), mut program, group, refill)| {
                program.push(Step::Work(Law::Fixed(Nanos(1_000))));
                TaskSpec {
                    name: "task".to_owned(),
                    kernel: false,
                    attributes: Attributes {
                        class,
                        nice,
                        cpu,
                        process: 0,
                        slice: None,
                        autogroup,
                    },
                    start,
                    program,
                    group,
                    footprint: refill.map(|refill| Footprint {
                        refill,
                        tau: Nanos::from_millis(2),
                    }),
                }
            },
        )
}

fn source(cpus: usize, tasks: u32) -> impl Strategy<Value = Source> {
    let then = prop_oneof![
        Just(Then::Nothing),
        law(200).prop_map(Then::Softirq),
        (0..tasks).prop_map(|task| Then::Signal(TaskId(task))),
        Just(Then::Packets(0)),
    ];
    (
        0..cpus,
        1_u8..4,
        micros(10_000),
        law(5_000),
        law(1_500),
        then,
    )
        .prop_map(|(cpu, level, start, interval, cost, then)| Source {
            name: "source".to_owned(),
            cpu,
            level,
            start,
            interval: match interval {
                Law::Fixed(time) => Law::Fixed(time + Nanos(50_000)),
                other if other.mean() < Nanos(50_000) => Law::Fixed(Nanos(50_000)),
                other => other,
            },
            cost,
            then,
        })
}

fn machine() -> impl Strategy<Value = Machine> {
    let rule = prop::sample::select(TimerRule::ALL.to_vec());
    let tick = prop_oneof![
        Just(TickMode::Periodic),
        Just(TickMode::NohzIdle),
        (1_usize..4).prop_map(TickMode::nohz_full)
    ];
    let device = prop_oneof![
        Just(Device::Pit),
        Just(Device::TscDeadline),
        Just(Device::Lapic {
            bus_hz: 100_007_000,
            divisor: 16
        })
    ];
    let cost = || prop_oneof![Just(Nanos::ZERO), micros(200)];
    (
        (1_usize..4, prop::sample::select(&[100_u64, 250, 1000][..])),
        (device, rule, tick, policy()),
        (cost(), cost(), cost()),
        (
            0_i64..999_000,
            -100_000_i64..100_000,
            0_u8..4,
            prop_oneof![Just(Nanos::ZERO), micros(3_000)],
        ),
    )
        .prop_map(
            |((cpus, hz), (device, timers, tick, policy), costs, rest)| {
                let (phase, drift_ppb, tick_level, slack) = rest;
                let mut machine = Machine::new(cpus, hz, policy);
                machine.device = device;
                machine.timers = timers;
                machine.tick = tick;
                if let TickMode::NohzFull { cpus: full } = &mut machine.tick {
                    *full = full.iter().filter(|cpu| cpu.index() < cpus).collect();
                }
                machine.drift_ppb = drift_ppb;
                machine.slack = slack;
                machine.phases = vec![Nanos(phase)];
                machine.tick_level = tick_level.max(1);
                machine.costs = Costs {
                    tick: costs.0,
                    timer: costs.1,
                    switch: costs.2,
                };
                machine.speed = Speed::FULL;
                machine
            },
        )
}

/// Generates a random valid setup that simulates half a second.
pub(crate) fn setup() -> impl Strategy<Value = Setup> {
    (machine(), 1_u32..7, any::<u64>()).prop_flat_map(|(machine, tasks, seed)| {
        let cpus = machine.cpus;
        (
            prop::collection::vec(task(tasks, cpus), tasks as usize),
            prop::collection::vec(source(cpus, tasks), 0..4),
            (1_u64..20, 1_u64..20, 1_u64..20, micros(50)),
            (micros(9_000), micros(20_000)),
        )
            .prop_map(move |(tasks, sources, link, group)| Setup {
                machine: machine.clone(),
                tasks,
                sources,
                links: vec![Link {
                    ring: link.0,
                    protocol: link.1,
                    socket: link.2,
                    cost: link.3,
                }],
                groups: vec![Group {
                    quota: group.0 + Nanos(1_000),
                    period: group.1 + Nanos(1_000_000),
                }],
                length: Nanos::from_millis(500),
                seed,
            })
    })
}
