//! The effects of a trial's arms with their intervals, on one scale.

use std::fmt::Write;

use ticktax_model::trial::{Comparison, Effect, Scale, TrialStatement};

use super::Plot;
use crate::html::escape::text;

/// A line for each metric of each arm whose effect is a share; nothing where there is none.
pub(super) fn plot(statement: &TrialStatement) -> Option<Plot> {
    let relative = |it: &&Comparison| it.scale == Scale::Relative;
    let all = statement.comparisons.iter().filter(relative);
    let all: Vec<(&Comparison, Effect)> = all
        .filter_map(|it| it.effect.map(|effect| (it, effect)))
        .collect();
    let widest = all.iter().map(|(_, effect)| effect.bound());
    let widest = widest.fold(0.0, f64::max);
    if widest <= 0.0 || !widest.is_finite() {
        return None;
    }
    let arms = &statement.trial.arms;
    let first = arms.first().map_or("A", |arm| &*arm.label);
    let mut html = format!(
        "<p class=\"legend\">Effects of metrics that are compared as shares of {first}, with their 95 % intervals: a mark at \
         the effect, a line over its interval, a thin line at no effect. From {0} to {1}.</p>\n\
         <div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"Effects and their intervals\">\n<table>\n\
         <caption class=\"unseen\">Effects and their intervals</caption>\n<thead>\n<tr><td></td>\
         <th scope=\"col\">effect (%)</th><th scope=\"col\">from (%)</th><th scope=\"col\">to (%)</th><td></td></tr>\n\
         </thead>\n<tbody>\n",
        percents(-widest),
        percents(widest),
        first = text(first)
    );
    for (it, effect) in all {
        let arm = arms.get(it.arm).map_or("", |arm| &*arm.label);
        // Writing to a `String` cannot fail.
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{} of {}</th>",
            text(&it.metric),
            text(arm)
        );
        for value in [effect.value, effect.low, effect.high] {
            let _ = write!(html, "<td>{:+.2}</td>", 100.0 * value);
        }
        html.push_str("<td>");
        interval(&mut html, &effect, widest);
        html.push_str("</td></tr>\n");
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
    Some(Plot {
        id: "effects",
        title: "Effects and their intervals",
        html,
    })
}

fn percents(share: f64) -> String {
    format!("{:+.2} %", 100.0 * share)
}

fn interval(out: &mut String, effect: &Effect, widest: f64) {
    let at = |value: f64| 100.0 + 96.0 * value / widest;
    let (low, high, mark) = (at(effect.low), at(effect.high), at(effect.value));
    let _ = write!(
        out,
        "<svg class=\"interval\" viewBox=\"0 0 200 16\" aria-hidden=\"true\" focusable=\"false\">\
         <path class=\"zero\" d=\"M100 0V16\"/><path class=\"over\" d=\"M{low:.2} 8H{high:.2}\"/>\
         <rect class=\"part\" x=\"{:.2}\" y=\"3\" width=\"3\" height=\"10\"/></svg>",
        mark - 1.5
    );
}
