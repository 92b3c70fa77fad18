//! Tests for pages about traffic experiments.

use ticktax_model::Nanos;
use ticktax_model::comparison::{
    Arm, ArmEffect, Comparison, Contrast, Effect, Experiment, Figure, Measure, Origin, Setting,
    Verdict, tabulate,
};
use ticktax_model::net::{Link, Protocol, TrafficSpec};
use ticktax_model::net_experiment::{
    Alias, AliasPart, BlocksNeeded, BoundUnit, CostRefusal, CostUnit, DesignCheck, ExperimentPlan,
    FactorPlace, IdleFactor, Term, TrafficArm, TrafficRecord, UnitCost, UnitCosts, VariedFactor,
};

use super::page;

fn factor(name: &str, place: FactorPlace, values: &[&str]) -> VariedFactor {
    VariedFactor {
        name: name.to_owned(),
        place,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    }
}

/// Returns an arm, given the CPU time that the sender, the receiver and softirqs take, in ns per
/// byte.
fn arm(values: [&str; 3], parts: [f64; 3]) -> (Arm, Vec<(Measure, Figure)>) {
    let settings = ["size", "tcp_timestamps", "rcvbuf"].iter().zip(values);
    let settings = settings.map(|(name, value)| Setting::new(name, value));
    let arm = Arm {
        runs: 10,
        ..Arm::new(Origin::Measured, settings.collect())
    };
    let ns: f64 = parts.iter().sum();
    let figures = [
        (Measure::CpuPerByte, ns),
        (Measure::Throughput, 8e9 / ns),
        (Measure::SenderPerByte, parts[0]),
        (Measure::ReceiverPerByte, parts[1]),
        (Measure::SoftirqPerByte, parts[2]),
    ];
    (
        arm,
        figures
            .map(|(measure, value)| (measure, value.into()))
            .to_vec(),
    )
}

/// Returns the effect of some terms on a metric, as a share and in the metric's unit.
fn effect(
    metric: usize,
    terms: &[Term],
    (value, plus_minus, unit): (f64, f64, f64),
    verdict: Verdict,
) -> ArmEffect {
    ArmEffect {
        metric,
        terms: terms.to_vec(),
        contrast: Contrast {
            effect: Some(Effect::within(value, plus_minus)),
            chance: Some(0.001),
            verdict,
        },
        amount: Some(Effect::within(value * unit, plus_minus * unit)),
        ..ArmEffect::default()
    }
}

const fn term(factor: usize) -> Term {
    Term { factor, value: 1 }
}

/// Returns an experiment in which small calls are expensive and a capped buffer size has no effect.
pub(crate) fn small_calls() -> Comparison {
    let details = |same_as| TrafficArm {
        facts: Vec::new(),
        same_as,
        shortest_round_trip: Some(Nanos::from_micros(41)),
        round_trip: Some(Nanos::from_micros(312)),
    };
    let record = TrafficRecord {
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
        details: [0, 0, 2, 2, 4, 4, 6, 6].map(details).to_vec(),
        check: check(),
        costs: costs(),
    };
    let arms = vec![
        arm(["512", "0", "1M"], [0.80, 0.40, 0.21]),
        arm(["512", "0", "2M"], [0.80, 0.41, 0.21]),
        arm(["512", "1", "1M"], [0.81, 0.40, 0.21]),
        arm(["512", "1", "2M"], [0.80, 0.41, 0.21]),
        arm(["65536", "0", "1M"], [0.20, 0.21, 0.11]),
        arm(["65536", "0", "2M"], [0.20, 0.21, 0.11]),
        arm(["65536", "1", "1M"], [0.20, 0.21, 0.11]),
        arm(["65536", "1", "2M"], [0.21, 0.21, 0.11]),
    ];
    let (metrics, mut arms) = tabulate(arms);
    for (arm, number) in arms.iter_mut().zip(1..) {
        arm.label = format!("#{number}");
    }
    Comparison {
        metrics,
        arms,
        effects: effects(),
        ..Comparison::new("0.1.0", Experiment::Traffic(Box::new(record)))
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

fn effects() -> Vec<ArmEffect> {
    let no = Verdict::NoDifferenceBeyond { bound: 0.016 };
    let open = Verdict::CannotTell {
        more_blocks: Some(1),
    };
    let part = |metric, amount| ArmEffect {
        metric,
        terms: vec![term(0)],
        amount: Some(Effect::within(amount, 0.01)),
        ..ArmEffect::default()
    };
    let both = [term(0), term(1)];
    vec![
        effect(0, &[term(0)], (-0.631, 0.013, 1.417_5), Verdict::Better),
        effect(1, &[term(0)], (1.71, 0.05, 5.644e9), Verdict::Better),
        part(2, -0.6),
        part(3, -0.195),
        part(4, -0.1),
        effect(0, &[term(1)], (0.005, 0.008, 0.967_5), no),
        effect(1, &[term(1)], (-0.008, 0.008, 10.52e9), no),
        effect(0, &both, (0.004, 0.05, 1.41), open),
        effect(1, &both, (-0.008, 0.008, 5.674e9), no),
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
    let mut comparison = small_calls();
    let Experiment::Traffic(experiment) = &mut comparison.experiment else {
        panic!("{comparison:?}");
    };
    experiment.check.idle[0].while_at = Some(Term {
        factor: 1,
        value: 0,
    });
    (experiment.check.different, experiment.check.rank) = (6, 4);
    (experiment.details[3].same_as, experiment.details[7].same_as) = (3, 7);
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
    experiment.no_books = Some("nothing was traced, as asked for (--untraced)".to_owned());
    for arm in &mut comparison.arms {
        arm.runs = 4;
        // Without a trace, softirqs count as time of the thread that they interrupted.
        let softirq = arm.value(4).unwrap();
        arm.figures[3] = arm
            .value(3)
            .map(|receiver| Figure::from(receiver + softirq));
        arm.figures[4] = Some(0.0.into());
    }
    insta::assert_snapshot!(page(comparison));
}
