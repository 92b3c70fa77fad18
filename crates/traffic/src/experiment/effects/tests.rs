//! Tests the verdicts on simulated experiments with known effects.

use ticktax_model::Nanos;
use ticktax_model::comparison::{ArmEffect, Comparison, Experiment, Measure, Verdict};
use ticktax_model::net::Link;
use ticktax_model::net_experiment::{
    ConnectionFacts, CostRefusal, CostUnit, CpuCost, DesignCheck, ExperimentPlan, Fact,
    TrafficRecord, UnitCosts,
};
use ticktax_sim::{Law, Stream};

use super::{Judged, MeasuredRun, RunFigures, blocks_to_resolve, judge, spread};
use crate::experiment::Factors;
use crate::experiment::factors::tests::read;
use ticktax_experiment::plan;

fn factors(typed: &[&str]) -> Factors {
    read(typed).unwrap()
}

/// Draws an approximately normal random number with mean 0 and standard deviation 1, as the sum of
/// twelve uniform draws.
fn normal(stream: &mut Stream) -> f64 {
    let even = Law::Uniform(Nanos(0), Nanos(1 << 30));
    let sum: f64 = (0..12).map(|_| stream.draw(&even).0 as f64).sum();
    sum / f64::from(1 << 30) - 6.0
}

fn run(arm: usize, block: u64, ns: f64, facts: Vec<Fact>) -> MeasuredRun {
    MeasuredRun {
        block,
        arm,
        figures: RunFigures {
            rate: 1e9 / ns,
            cpu: CpuCost {
                ns_per_byte: ns,
                sender_ns_per_byte: ns / 2.0,
                receiver_ns_per_byte: ns / 4.0,
                softirq_ns_per_byte: ns / 4.0,
            },
            packets: 1.0 / 1_448.0,
            calls: 2.0 / 65_536.0,
            bytes: 1_000_000,
            facts,
            connection: Some(ConnectionFacts {
                acks: 20,
                segment_bytes: 1_448,
                round_trip: Nanos::from_micros(300),
                shortest_round_trip: Nanos::from_micros(50),
                peer_window_bytes: None,
            }),
        },
    }
}

/// Returns a document without verdicts.
pub(in crate::experiment) fn record(factors: &Factors) -> TrafficRecord {
    TrafficRecord {
        host: "vm".to_owned(),
        link: Link::Veth {
            mtu: 1_500,
            shaping: None,
        },
        spec: factors.base().spec(),
        factors: factors.varied(),
        plan: ExperimentPlan {
            blocks: 6,
            planned: 6,
            seed: 1,
            resolution: 0.05,
            pilot_blocks: None,
            spread: None,
            needed: Vec::new(),
            run: Nanos::from_millis(300),
            took: Nanos::from_secs(60),
            ended_early: None,
        },
        no_books: None,
        details: Vec::new(),
        check: DesignCheck::default(),
        costs: UnitCosts::default(),
    }
}

/// Simulates runs in the planned order on a drifting machine. `ns` returns an arm's cost per byte
/// without noise.
fn simulated(
    factors: &Factors,
    (blocks, seed): (u64, u64),
    noise: f64,
    ns: impl Fn(&[usize]) -> f64,
) -> Vec<MeasuredRun> {
    let arms = factors.factorial().arms();
    let mut stream = Stream::new(seed, 1);
    plan(arms.len(), blocks, seed)
        .iter()
        .enumerate()
        .map(|(at, slot)| {
            let drift = 1.0 + 0.001 * at as f64;
            let moved = (noise * normal(&mut stream)).exp();
            let ns = ns(&arms[slot.arm]) * drift * moved;
            run(slot.arm, slot.block, ns, Vec::new())
        })
        .collect()
}

fn judged(factors: &Factors, runs: &[MeasuredRun]) -> (Comparison, TrafficRecord) {
    let record = record(factors);
    let judged = Judged {
        factors,
        runs,
        record,
    };
    let comparison = judge(judged, "0");
    let Experiment::Traffic(record) = comparison.experiment.clone() else {
        panic!("{comparison:?}");
    };
    (comparison, *record)
}

/// Returns the effects on one of the tested measures.
fn effects_on(comparison: &Comparison, measure: Measure) -> Vec<&ArmEffect> {
    let metric = comparison.metric(measure.id()).unwrap();
    let effects = comparison.effects.iter();
    effects.filter(|effect| effect.metric == metric).collect()
}

#[test]
fn intervals_hold_known_effects_and_false_verdicts_are_rare() {
    const EXPERIMENTS: u64 = 400;
    let factors = factors(&["mtu=1500,9000", "size=1k,64k", "nodelay=0,1"]);
    // The second factor costs 3 %, plus another 4 % in combination with the third.
    let truth = [0.0, 0.03_f64, 0.02];
    let ns = |arm: &[usize]| {
        let on = |at: usize| arm[at] as f64;
        (truth[1] * on(1) + 0.04 * on(1) * on(2)).exp()
    };
    let mut held = 0_u64;
    let mut all = 0_u64;
    let mut false_verdicts = 0;
    for seed in 0..EXPERIMENTS {
        let runs = with_nodelay_facts(simulated(&factors, (6, seed), 0.03, ns), &factors);
        let (document, _) = judged(&factors, &runs);
        let effects = effects_on(&document, Measure::CpuPerByte);
        // Effects are averages over the other factors. The 4 % that the second and third factors
        // cost together apply to only half of the arms, so they add 2 % to the effect of each.
        let expected = [0.0, 0.05, 0.02, 0.0, 0.0, 0.04];
        assert_eq!(effects.len(), expected.len());
        for (effect, expected) in effects.into_iter().zip(expected) {
            let share = effect.contrast.effect.unwrap();
            let truth = f64::exp_m1(expected);
            held += u64::from(share.low <= truth && truth <= share.high);
            all += 1;
        }
        let runs = with_nodelay_facts(simulated(&factors, (6, seed), 0.03, |_| 1.0), &factors);
        let (document, _) = judged(&factors, &runs);
        let mut verdicts = document
            .effects
            .iter()
            .map(|effect| effect.contrast.verdict);
        false_verdicts += u64::from(verdicts.any(Verdict::differs));
    }
    let held = held as f64 / all as f64;
    assert!((0.93..0.97).contains(&held), "{held}");
    // At most 5 % of the experiments may report a false effect. With 400 experiments, the standard
    // error is 1.1 %.
    let wrong = false_verdicts as f64 / EXPERIMENTS as f64;
    assert!(wrong <= 0.072, "{wrong}");
}

/// Adds the facts that a kernel would report about `nodelay`.
fn with_nodelay_facts(mut runs: Vec<MeasuredRun>, factors: &Factors) -> Vec<MeasuredRun> {
    let arms = factors.factorial().arms();
    for run in &mut runs {
        let facts = vec![Fact::new("nodelay", arms[run.arm][2])];
        run.figures.facts = facts;
    }
    runs
}

#[test]
fn cells_with_equal_facts_are_merged() {
    let factors = factors(&["tcp_timestamps=0,1", "rcvbuf=1M,2M"]);
    let arms = factors.factorial().arms();
    let mut runs = simulated(&factors, (6, 3), 0.001, |arm| 1.0 + 0.02 * arm[0] as f64);
    for run in &mut runs {
        run.figures.facts = vec![
            Fact::new("timestamps", arms[run.arm][0]),
            Fact::new("receive buffer", 425_984),
        ];
    }
    let (document, record) = judged(&factors, &runs);
    let check = &record.check;
    assert_eq!((check.arms, check.different, check.rank), (4, 2, 1));
    assert_eq!(check.idle.len(), 1);
    for measure in [Measure::CpuPerByte, Measure::Throughput] {
        let [effect] = effects_on(&document, measure)[..] else {
            panic!("{:?}", document.effects);
        };
        assert_eq!(effect.contrast.verdict, Verdict::Worse);
        assert_eq!((effect.base, effect.arm), (0, 2));
    }
    assert_eq!(record.details[1].same_as, 0);
    assert_eq!(record.details[3].same_as, 2);
    // A fact that differs between the arm's runs must be reported as changed.
    runs[0].figures.facts.clear();
    let (_, record) = judged(&factors, &runs);
    let odd = &record.details[runs[0].arm];
    assert!(
        odd.facts
            .iter()
            .any(|fact| fact.value == "changed between runs")
    );
}

#[test]
fn the_planned_number_of_blocks_finds_the_effect() {
    assert_eq!(blocks_to_resolve(0.5, 0.000_001, 2), None);
    let few = blocks_to_resolve(0.01, 0.05, 2).unwrap();
    let many = blocks_to_resolve(0.01, 0.01, 12).unwrap();
    assert!((2..=4).contains(&few) && many > 10, "{few} {many}");
    let factors = factors(&["size=1k,64k"]);
    let pilot = simulated(&factors, (3, 1), 0.02, |_| 1.0);
    assert!(spread(&factors, &pilot).is_some());
    assert!(spread(&factors, &pilot[..4]).is_none());
    // Noise of an effect within a block in which each of the two arms runs twice.
    let noise = 0.02_f64.exp_m1();
    let blocks = blocks_to_resolve(noise, 0.02, 2).unwrap();
    let found = (0..300).filter(|&seed| {
        let runs = simulated(&factors, (blocks, seed), 0.02, |arm| {
            1.02_f64.powf(arm[0] as f64)
        });
        judged(&factors, &runs).0.effects[0]
            .contrast
            .verdict
            .differs()
    });
    let found = found.count() as f64 / 300.0;
    assert!(found >= 0.75, "{found} of {blocks} blocks");
}

#[test]
fn independent_unit_costs_are_estimated() {
    let factors = factors(&["size=1k,64k", "mss=536,1460"]);
    let arms = factors.factorial().arms();
    let ns = |arm: &[usize]| {
        let (calls, packets) = (
            2.0 / [1_024.0, 65_536.0][arm[0]],
            1.0 / [536.0, 1_460.0][arm[1]],
        );
        0.2 + 400.0 * calls + 300.0 * packets
    };
    let mut runs = simulated(&factors, (6, 5), 0.005, ns);
    for run in &mut runs {
        let arm = &arms[run.arm];
        let figures = &mut run.figures;
        figures.facts = vec![Fact::new("segment data", [536, 1_460][arm[1]])];
        figures.calls = 2.0 / [1_024.0, 65_536.0][arm[0]];
        figures.packets = 1.0 / [536.0, 1_460.0][arm[1]];
        // Simulate one acknowledgement for every two packets.
        let acks = (figures.packets / 2.0 * figures.bytes as f64).round();
        figures.connection.as_mut().unwrap().acks = format!("{acks}").parse().unwrap();
    }
    let costs = judged(&factors, &runs).1.costs;
    assert_eq!((costs.equations, costs.refused), (4, None));
    let cost_of = |unit| {
        costs
            .costs
            .iter()
            .find(|cost| cost.unit == unit)
            .unwrap()
            .ns
            .unwrap()
    };
    // Averaged over the 48 runs, the machine's drift adds 2.4 %.
    for (unit, truth) in [
        (CostUnit::Byte, 0.2),
        (CostUnit::Packet, 300.0),
        (CostUnit::Call, 400.0),
    ] {
        let ns = cost_of(unit);
        assert!((ns.value / truth - 1.0).abs() < 0.12, "{unit:?}: {ns:?}");
    }
    assert_eq!(costs.bound.len(), 1);
    assert_eq!(
        (costs.bound[0].unit, &*costs.bound[0].with),
        (CostUnit::Ack, &[CostUnit::Packet][..])
    );
    assert!(costs.misfit.unwrap() < 0.02);
    // These CPU times don't depend on any of the units.
    for run in &mut runs {
        run.figures.cpu.ns_per_byte = if run.arm == 1 || run.arm == 2 {
            9.0
        } else {
            1.0
        };
    }
    let costs = judged(&factors, &runs).1.costs;
    assert_eq!(costs.refused, Some(CostRefusal::Misfit));
    assert!(costs.costs.is_empty());
}
