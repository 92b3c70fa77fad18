//! Tests for pages about traffic experiments.

use ticktax_model::Nanos;
use ticktax_model::net::{Link, Protocol, TrafficSpec};
use ticktax_model::net_experiment::{
    Alias, AliasPart, BlocksNeeded, BoundUnit, CostRefusal, CostUnit, CpuCost, DesignCheck,
    ExperimentArm, ExperimentPlan, FactorEffect, FactorPlace, IdleFactor, MeasuredEffect,
    NetExperiment, Term, UnitCost, UnitCosts, VariedFactor,
};
use ticktax_model::trial::{Contrast, Effect, Verdict};

use super::page;

fn factor(name: &str, place: FactorPlace, values: &[&str]) -> VariedFactor {
    VariedFactor {
        name: name.to_owned(),
        place,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    }
}

/// Returns an arm, with the CPU time in ns per byte of the sender, the receiver and softirqs.
fn arm(values: &[usize], same_as: usize, [sender, receiver, softirq]: [f64; 3]) -> ExperimentArm {
    let ns = sender + receiver + softirq;
    let call_bytes = if values[0] == 0 { 512.0 } else { 65_536.0 };
    ExperimentArm {
        values: values.to_vec(),
        facts: Vec::new(),
        same_as,
        runs: 10,
        rate: 8e9 / ns,
        cpu: CpuCost {
            ns_per_byte: ns,
            sender_ns_per_byte: sender,
            receiver_ns_per_byte: receiver,
            softirq_ns_per_byte: softirq,
        },
        packets_per_byte: 1.0 / 1_448.0,
        acks_per_byte: Some(0.000_02),
        calls_per_byte: 2.0 / call_bytes,
        shortest_round_trip: Some(Nanos::from_micros(41)),
        round_trip: Some(Nanos::from_micros(312)),
    }
}

fn measured(value: f64, plus_minus: f64, unit: f64, verdict: Verdict) -> MeasuredEffect {
    let effect = |scale: f64| Effect {
        value: value * scale,
        low: (value - plus_minus) * scale,
        high: (value + plus_minus) * scale,
    };
    MeasuredEffect {
        contrast: Contrast {
            effect: Some(effect(1.0)),
            chance: Some(0.001),
            verdict,
        },
        amount: Some(effect(unit)),
    }
}

const fn term(factor: usize) -> Term {
    Term { factor, value: 1 }
}

/// Returns an experiment in which small calls are expensive and a capped buffer size has no effect.
pub(crate) fn small_calls() -> NetExperiment {
    NetExperiment {
        tool_version: "0.1.0".to_owned(),
        host: "vm".to_owned(),
        link: Link::Veth {
            mtu: 1_500,
            shaping: None,
        },
        spec: TrafficSpec {
            protocol: Protocol::Tcp,
            call_bytes: 131_072,
            rate: None,
            length: Nanos::from_millis(300),
        },
        factors: vec![
            factor("size", FactorPlace::Traffic, &["512", "65536"]),
            factor("tcp_timestamps", FactorPlace::Namespace, &["0", "1"]),
            factor("rcvbuf", FactorPlace::Socket, &["1M", "2M"]),
        ],
        plan: plan(),
        no_books: None,
        arms: vec![
            arm(&[0, 0, 0], 0, [0.80, 0.40, 0.21]),
            arm(&[0, 0, 1], 0, [0.80, 0.41, 0.21]),
            arm(&[0, 1, 0], 2, [0.81, 0.40, 0.21]),
            arm(&[0, 1, 1], 2, [0.80, 0.41, 0.21]),
            arm(&[1, 0, 0], 4, [0.20, 0.21, 0.11]),
            arm(&[1, 0, 1], 4, [0.20, 0.21, 0.11]),
            arm(&[1, 1, 0], 6, [0.20, 0.21, 0.11]),
            arm(&[1, 1, 1], 6, [0.21, 0.21, 0.11]),
        ],
        check: check(),
        effects: effects(),
        costs: costs(),
    }
}

fn plan() -> ExperimentPlan {
    ExperimentPlan {
        blocks: 5,
        planned: 5,
        seed: 117,
        resolution: 0.05,
        pilot_blocks: None,
        spread: Some(0.02),
        needed: vec![
            BlocksNeeded {
                share: 0.05,
                blocks: 6,
            },
            BlocksNeeded {
                share: 0.01,
                blocks: 61,
            },
        ],
        run: Nanos::from_millis(300),
        took: Nanos::from_secs(83),
        ended_early: None,
    }
}

fn check() -> DesignCheck {
    DesignCheck {
        arms: 8,
        different: 4,
        effects: 6,
        rank: 3,
        idle: vec![IdleFactor {
            factor: 2,
            while_at: None,
        }],
        nothing: vec![
            vec![term(2)],
            vec![term(0), term(2)],
            vec![term(1), term(2)],
        ],
        aliases: Vec::new(),
    }
}

fn effects() -> Vec<FactorEffect> {
    let no = Verdict::NoDifferenceBeyond { bound: 0.016 };
    let added = CpuCost {
        ns_per_byte: -0.895,
        sender_ns_per_byte: -0.6,
        receiver_ns_per_byte: -0.195,
        softirq_ns_per_byte: -0.1,
    };
    vec![
        FactorEffect {
            terms: vec![term(0)],
            cpu: measured(-0.631, 0.013, 1.417_5, Verdict::Better),
            rate: measured(1.71, 0.05, 5.644e9, Verdict::Better),
            added,
        },
        FactorEffect {
            terms: vec![term(1)],
            cpu: measured(0.005, 0.008, 0.967_5, no),
            rate: measured(-0.008, 0.008, 10.52e9, no),
            added: CpuCost::default(),
        },
        FactorEffect {
            terms: vec![term(0), term(1)],
            cpu: measured(
                0.004,
                0.05,
                1.41,
                Verdict::CannotTell {
                    more_blocks: Some(1),
                },
            ),
            rate: measured(-0.008, 0.008, 5.674e9, no),
            added: CpuCost::default(),
        },
    ]
}

fn costs() -> UnitCosts {
    UnitCosts {
        costs: vec![
            UnitCost {
                unit: CostUnit::Byte,
                ns: Some(Effect {
                    value: 0.515,
                    low: 0.505,
                    high: 0.525,
                }),
            },
            UnitCost {
                unit: CostUnit::Call,
                ns: Some(Effect {
                    value: 231.0,
                    low: 225.0,
                    high: 238.0,
                }),
            },
        ],
        bound: vec![
            BoundUnit {
                unit: CostUnit::Packet,
                with: vec![CostUnit::Byte],
            },
            BoundUnit {
                unit: CostUnit::Ack,
                with: vec![CostUnit::Byte],
            },
        ],
        equations: 4,
        misfit: Some(0.012),
        refused: None,
    }
}

#[test]
fn page_of_an_experiment_with_traffic() {
    insta::assert_snapshot!(page(small_calls()));
}

#[test]
fn page_of_an_experiment_with_aliased_effects() {
    let mut experiment = small_calls();
    experiment.check.idle[0].while_at = Some(Term {
        factor: 1,
        value: 0,
    });
    (experiment.check.different, experiment.check.rank) = (6, 4);
    (experiment.arms[3].same_as, experiment.arms[7].same_as) = (3, 7);
    experiment.check.nothing.clear();
    experiment.check.aliases = vec![
        Alias {
            terms: vec![term(1), term(2)],
            is: vec![AliasPart {
                value: 2.0,
                terms: vec![term(2)],
            }],
        },
        Alias {
            terms: vec![term(0), term(2)],
            is: vec![
                AliasPart {
                    value: -1.0,
                    terms: vec![term(0)],
                },
                AliasPart {
                    value: 0.5,
                    terms: vec![term(2)],
                },
            ],
        },
    ];
    experiment.costs.costs.clear();
    experiment.costs.misfit = Some(0.31);
    experiment.costs.refused = Some(CostRefusal::Misfit);
    experiment.plan.ended_early = Some("interrupted".to_owned());
    (experiment.plan.blocks, experiment.plan.pilot_blocks) = (2, Some(3));
    experiment.plan.took = Nanos::from_secs(34);
    for arm in &mut experiment.arms {
        arm.runs = 4;
        // Without a trace, the time of softirqs is part of the time of the interrupted thread.
        arm.cpu.receiver_ns_per_byte += arm.cpu.softirq_ns_per_byte;
        arm.cpu.softirq_ns_per_byte = 0.0;
    }
    experiment.no_books = Some("nothing was traced, as asked for (--untraced)".to_owned());
    insta::assert_snapshot!(page(experiment));
}
