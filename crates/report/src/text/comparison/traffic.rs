//! The page about a traffic experiment. It shows what each option costs, the effects, and what
//! remains undecided. It also lists the arms, which are the combinations of options that were
//! measured.

mod words;

use ticktax_model::Nanos;
use ticktax_model::comparison::{ArmEffect, Comparison, Measure, Verdict};
use ticktax_model::net::{Link, Protocol};
use ticktax_model::net_experiment::{CostUnit, Term, TrafficRecord};

use super::super::TextStyle;
use super::super::block::{Columns, Written};
use super::super::net::words::{bits, size};
use super::super::numbers::{counted, percent};
use super::super::page::{Page, Tone, clean, tied};
use super::arms::{Column, NamedArm, headings, row};
use super::{arm_name, listed};
pub(super) use words::effect_name;
use words::{amount, change, effect_sum, ends, signed, unit, value_of};

/// The effects of a factor, or of a pair of factors.
struct FactorEffect<'a> {
    terms: &'a [Term],
    cpu: &'a ArmEffect,
    rate: &'a ArmEffect,
    /// CPU time added per byte: the total, and the shares of the sender, the receiver and softirqs.
    added: [f64; 4],
}

fn factor_effects(comparison: &Comparison) -> Vec<FactorEffect<'_>> {
    let metric = |measure: Measure| comparison.metric(measure.id());
    let of_terms = comparison.effects.chunk_by(|a, b| a.terms == b.terms);
    let effects = of_terms.filter_map(|all| {
        let on = |measure| {
            all.iter()
                .find(|effect| Some(effect.metric) == metric(measure))
        };
        let added = |measure| on(measure).and_then(|effect| effect.amount);
        let cpu = on(Measure::CpuPerByte)?;
        let parts = [
            Measure::CpuPerByte,
            Measure::SenderPerByte,
            Measure::ReceiverPerByte,
            Measure::SoftirqPerByte,
        ];
        Some(FactorEffect {
            terms: &cpu.terms,
            cpu,
            rate: on(Measure::Throughput)?,
            added: parts.map(|part| added(part).map_or(0.0, |amount| amount.value)),
        })
    });
    effects.collect()
}

/// Renders an experiment with network traffic as a page that ends with a line break.
pub(super) fn page(comparison: &Comparison, record: &TrafficRecord, style: &TextStyle) -> Written {
    let factor_effects = factor_effects(comparison);
    let mut page = Page::new(*style);
    head(&mut page, record);
    answer(&mut page, record, &factor_effects);
    design(&mut page, record);
    combinations(&mut page, comparison, record);
    effects(&mut page, record, &factor_effects);
    costs(&mut page, record);
    unresolved(&mut page, comparison, record);
    page.finish()
}

fn head(page: &mut Page, experiment: &TrafficRecord) {
    let names: Vec<String> = experiment
        .factors
        .iter()
        .map(|factor| clean(&factor.name))
        .collect();
    let over = match &experiment.link {
        Link::Loopback { .. } => "the loopback device",
        Link::Veth { .. } | Link::Network { .. } => "a veth pair",
    };
    let title = format!(
        "ticktax: effect of {} on {} over {over} on {}",
        listed(&names),
        experiment.spec.protocol.name(),
        clean(&experiment.host)
    );
    page.line(Tone::Strong, &title);
    let plan = &experiment.plan;
    let text = format!(
        "{}, each run {} for {}, in {} in random order (seed {}); {} in total.",
        counted(experiment.details.len() as u64, "combination"),
        counted(plan.blocks * 2, "time"),
        plan.run,
        counted(plan.blocks, "block"),
        plan.seed,
        tied(plan.took),
    );
    page.paragraph(Tone::Faint, "", &text);
    if let Some(why) = &plan.ended_early {
        let text = format!(
            "Ended early, after {} of {} blocks: {}.",
            plan.blocks,
            plan.planned,
            clean(why)
        );
        page.paragraph(Tone::Warning, "", &text);
    }
}

/// Writes which options have an effect, largest effect first, then those that have no effect, then
/// those that are undecided.
fn answer(page: &mut Page, experiment: &TrafficRecord, effects: &[FactorEffect<'_>]) {
    let size = |effect: &&FactorEffect<'_>| {
        let magnitude = |share: Option<ticktax_model::comparison::Effect>| {
            share.map_or(0.0, |effect| effect.value.abs())
        };
        magnitude(effect.cpu.contrast.effect).max(magnitude(effect.rate.contrast.effect))
    };
    let mut all: Vec<&FactorEffect<'_>> = effects.iter().collect();
    all.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let (mut same, mut open) = (Vec::new(), Vec::new());
    for effect in all {
        let (label, tone) = match (effect.cpu.contrast.verdict, effect.rate.contrast.verdict) {
            (Verdict::Worse, _) => ("More CPU: ", Tone::Warning),
            (Verdict::Better, _) => ("Less CPU: ", Tone::Good),
            (_, rate) if rate.differs() => ("Changes throughput only: ", Tone::Plain),
            (
                Verdict::NoDifferenceBeyond { bound },
                Verdict::NoDifferenceBeyond { bound: other },
            ) => {
                same.push(format!(
                    "{} (CPU time and throughput change by at most {})",
                    effect_name(experiment, effect.terms),
                    tied(percent(bound.max(other)))
                ));
                continue;
            }
            _ => {
                open.push(effect_name(experiment, effect.terms));
                continue;
            }
        };
        page.paragraph(tone, label, &sentence(experiment, effect));
    }
    if !same.is_empty() {
        page.paragraph(Tone::Plain, "No effect: ", &format!("{}.", same.join(", ")));
    }
    if !open.is_empty() {
        let text = format!(
            "{}: an effect of {} is neither shown nor excluded.",
            open.join(", "),
            percent(experiment.plan.resolution)
        );
        page.paragraph(Tone::Plain, "Undecided: ", &text);
    }
}

/// Describes an effect in one sentence.
fn sentence(experiment: &TrafficRecord, effect: &FactorEffect<'_>) -> String {
    let what = match effect.terms[..] {
        [term] => format!(
            "{} instead of {}",
            effect_name(experiment, effect.terms),
            value_of(experiment, term.factor, 0)
        ),
        _ => format!(
            "{}, beyond the sum of both effects",
            effect_name(experiment, effect.terms)
        ),
    };
    let mut text = format!("{what}: ");
    let mut parts = Vec::new();
    if let (Some(share), Some(ns)) = (effect.cpu.contrast.effect, effect.cpu.amount) {
        parts.push(match effect.cpu.contrast.verdict {
            verdict if verdict.differs() => format!(
                "{} CPU time per byte ({}; {}){}",
                words::more_or_less(share),
                tied(format!(
                    "95 % CI {}",
                    ends(words::unsigned(share)).replace('+', "")
                )),
                tied(format!("{} ns", signed(ns.value.abs()))),
                mostly(effect)
            ),
            Verdict::NoDifferenceBeyond { bound } => {
                format!("CPU time per byte changes by at most {}", percent(bound))
            }
            _ => format!("effect on CPU time per byte undecided ({})", ends(share)),
        });
    }
    if let Some(share) = effect.rate.contrast.effect {
        parts.push(match effect.rate.contrast.verdict {
            verdict if verdict.differs() => {
                format!("{} throughput ({})", change(share), ends(share))
            }
            Verdict::NoDifferenceBeyond { bound } => {
                format!("throughput changes by at most {}", percent(bound))
            }
            _ => format!("effect on throughput undecided ({})", ends(share)),
        });
    }
    text.push_str(&parts.join("; "));
    text.push('.');
    text
}

/// Returns a phrase that names the part of the work that causes most of the effect, or an empty
/// string if no single part does.
fn mostly(effect: &FactorEffect<'_>) -> String {
    let [all, sender, receiver, softirq] = effect.added;
    let parts = [
        (sender, "the sender's"),
        (receiver, "the receiver's"),
        (softirq, "in softirqs"),
    ];
    let part = parts.iter().find(|(ns, _)| {
        let share = ns / all;
        (0.6..=1.4).contains(&share)
    });
    part.map_or_else(String::new, |(_, whose)| format!(", mostly {whose}"))
}

/// Writes how many arms really differ, and how many effects can still be estimated. Writes nothing
/// if all arms and effects are as planned.
fn design(page: &mut Page, experiment: &TrafficRecord) {
    let check = &experiment.check;
    if check.is_whole() {
        return;
    }
    let text = format!(
        "{} of the {} are effectively different, so only {} of {} can be separated (see \
         Limitations).",
        match check.different {
            1 => "none".to_owned(),
            many => format!("only {many}"),
        },
        counted(check.arms as u64, "combination"),
        check.rank,
        counted(check.effects as u64, "effect"),
    );
    page.paragraph(Tone::Warning, "Check: ", &text);
}

const COLUMNS: [Column<'_>; 5] = [
    ("throughput", Measure::Throughput),
    ("ns/byte", Measure::CpuPerByte),
    ("sender", Measure::SenderPerByte),
    ("receiver", Measure::ReceiverPerByte),
    ("softirq", Measure::SoftirqPerByte),
];

/// Writes a table with a row for each arm.
fn combinations(page: &mut Page, comparison: &Comparison, experiment: &TrafficRecord) {
    page.section("Combinations");
    let columns = &COLUMNS[..if experiment.no_books.is_some() { 4 } else { 5 }];
    let names: Vec<String> = experiment
        .factors
        .iter()
        .map(|factor| clean(&factor.name))
        .collect();
    headings(page, &format!("#  {}", names.join(" ")), columns);
    let arms = comparison.arms.iter().zip(&experiment.details);
    for (at, (arm, details)) in arms.enumerate() {
        let same = match details.same_as {
            same if same == at => String::new(),
            same => format!(" (same as #{})", same + 1),
        };
        let named = NamedArm {
            arm,
            name: arm_name(comparison, arm) + &same,
            tone: Tone::Plain,
        };
        row(page, comparison, columns, &named);
    }
    let text = match &experiment.no_books {
        None => {
            "ns/byte: CPU time for each byte received, broken down in the columns to the right."
                .to_owned()
        }
        Some(why) => format!(
            "ns/byte: CPU time of the two threads, by their own clocks, for each byte received, \
             broken down in the columns to the right. No softirqs: {}.",
            clean(why)
        ),
    };
    page.paragraph(Tone::Faint, "", &text);
}

fn effects(page: &mut Page, experiment: &TrafficRecord, effects: &[FactorEffect<'_>]) {
    if effects.is_empty() {
        return;
    }
    page.section("Effects, averaged over all other factors");
    let columns = |cells: [&str; 4]| Columns::right([8, 17, 8, 11].into_iter().zip(cells));
    let head = columns(["CPU/byte", "95 % CI", "ns/byte", "throughput"]);
    page.headings(Tone::Faint, "", &head);
    for effect in effects {
        let share = effect.cpu.contrast.effect;
        let cells = [
            share.map_or_else(String::new, change),
            share.map_or_else(String::new, ends),
            effect
                .cpu
                .amount
                .map_or_else(String::new, |effect| amount(effect.value)),
            effect.rate.contrast.effect.map_or_else(String::new, change),
        ];
        let cells = cells.each_ref().map(String::as_str);
        let tone = match effect.cpu.contrast.verdict {
            Verdict::Worse => Tone::Warning,
            Verdict::Better => Tone::Good,
            _ => Tone::Plain,
        };
        page.row(
            tone,
            2,
            &effect_name(experiment, effect.terms),
            &columns(cells),
        );
    }
    let text = "Each value is compared with the first value of its factor. A row with × \
        shows the additional effect of the combination. Intervals come from the means of the \
        blocks. The probability that any effect is due to chance is at most 5 %.";
    page.paragraph(Tone::Faint, "", text);
}

fn costs(page: &mut Page, experiment: &TrafficRecord) {
    let costs = &experiment.costs;
    page.section("CPU time per byte, packet and call (95 % CI)");
    for cost in &costs.costs {
        let Some(ns) = cost.ns else { continue };
        let text = format!(
            "{} ns  ({} to {})",
            signed(ns.value),
            signed(ns.low),
            signed(ns.high)
        );
        page.row(Tone::Plain, 2, &format!("per {}", unit(cost.unit)), &text);
    }
    if let Some(refused) = costs.refused {
        page.paragraph(
            Tone::Warning,
            "No result: ",
            &words::refusal(refused, costs.misfit),
        );
    }
    let plurals = |units: &[CostUnit]| -> Vec<String> {
        let each = units.iter();
        each.map(|&counted| format!("{}s", unit(counted))).collect()
    };
    for same in costs.bound.chunk_by(|a, b| a.with == b.with) {
        let units: Vec<CostUnit> = same.iter().map(|bound| bound.unit).collect();
        let text = format!(
            "{}. They scale with {} here, so their cost is included in {}.",
            listed(&plurals(&units)),
            listed(&plurals(&same[0].with)),
            match &*same[0].with {
                [only] => format!("the cost per {}", unit(*only)),
                _ => "their costs".to_owned(),
            },
        );
        page.paragraph(Tone::Plain, "Not separable: ", &text);
    }
    let text = match costs.misfit {
        Some(misfit) => format!(
            "Least-squares fit of the CPU time over {}; it leaves {} unexplained.",
            counted(costs.equations as u64, "combination"),
            percent(misfit)
        ),
        None => "There are as many combinations as costs, so the fit cannot be checked.".to_owned(),
    };
    page.paragraph(Tone::Faint, "", &text);
}

fn unresolved(page: &mut Page, comparison: &Comparison, experiment: &TrafficRecord) {
    page.section("Limitations");
    for idle in &experiment.check.idle {
        let Some(factor) = experiment.factors.get(idle.factor) else {
            continue;
        };
        let name = clean(&factor.name);
        let text = match idle.while_at {
            None => format!("{name}: all values gave the same effective setting."),
            Some(term) => format!(
                "{name}: all values gave the same effective setting while {}.",
                effect_name(experiment, &[term])
            ),
        };
        page.hanging(Tone::Plain, &text);
    }
    for terms in &experiment.check.nothing {
        if terms.len() > 1 {
            let text = format!(
                "{}: the combinations are effectively the same.",
                effect_name(experiment, terms)
            );
            page.hanging(Tone::Plain, &text);
        }
    }
    for alias in &experiment.check.aliases {
        let text = format!(
            "{} cannot be separated from {}.",
            effect_name(experiment, &alias.terms),
            effect_sum(experiment, &alias.is)
        );
        page.hanging(Tone::Plain, &text);
    }
    for needed in &experiment.plan.needed {
        let own = counted(experiment.plan.blocks, "block");
        let by = match experiment.plan.pilot_blocks {
            Some(pilot) => format!(
                "estimated from a pilot of {}; this experiment had {own}",
                counted(pilot, "block")
            ),
            None => format!("estimated from this experiment's {own}"),
        };
        let text = format!(
            "Detecting an effect of {} takes about {} ({by}).",
            tied(percent(needed.share)),
            counted(needed.blocks, "block"),
        );
        page.hanging(Tone::Plain, &text);
    }
    windows(page, comparison, experiment);
}

/// Writes how large a window the fastest arm needs.
fn windows(page: &mut Page, comparison: &Comparison, experiment: &TrafficRecord) {
    /// Minimum round-trip time. Links with shorter ones reveal nothing about long distances.
    const NEAR: Nanos = Nanos::from_millis(1);
    /// Largest TCP window without window scaling, in bytes.
    const UNSCALED: f64 = 65_535.0;
    let window = |rate: f64, trip: Nanos| rate / 8.0 * trip.as_secs_f64();
    let arms = comparison.arms.iter().zip(&experiment.details);
    let windows = arms.filter_map(|(arm, details)| {
        let (shortest, smoothed) = (details.shortest_round_trip?, details.round_trip?);
        let rate = comparison.value(arm, Measure::Throughput)?;
        Some((window(rate, shortest), rate, shortest, smoothed))
    });
    let Some((bytes, rate, shortest, smoothed)) = windows.max_by(|a, b| a.0.total_cmp(&b.0)) else {
        if experiment.spec.protocol == Protocol::Udp {
            return;
        }
        page.hanging(
            Tone::Plain,
            "The kernel reported no round-trip time, so the needed window is unknown.",
        );
        return;
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number of bytes in flight is small and positive"
    )]
    let needed = size(bytes as u64);
    let unscaled = tied("65.5 kB");
    let enough = if bytes <= UNSCALED {
        format!("no more than TCP allows without window scaling ({unscaled})")
    } else {
        format!("more than TCP allows without window scaling ({unscaled})")
    };
    let far = if shortest < NEAR {
        " On a link this short, larger windows show no benefit."
    } else {
        ""
    };
    let text = format!(
        "A round trip took {shortest} at best, {smoothed} with queueing. At {}, the window must \
         hold {needed} ({} × {}): {enough}.{far}",
        tied(bits(rate)),
        tied(bits(rate)),
        tied(shortest)
    );
    page.hanging(Tone::Plain, &text);
}
