//! A plot of the arms of a sweep that have the highest and lowest values. An arm is one of the
//! settings that the sweep tries.

use ticktax_model::sweep::{GridStatement, RankedArm};

use super::Plot;
use super::axis::{Axis, Unit};
use super::strips::{Mark, Strips};
use crate::html::quantity::Quantity;
use crate::text::Topic;

/// Draws the arms that have the highest and lowest values. Returns `None` if no column was ranked.
pub(super) fn plot(statement: &GridStatement) -> Option<Plot> {
    let ranking = statement.ranking.as_ref()?;
    let all = || ranking.highest.iter().chain(ranking.lowest.iter().rev());
    all().next()?;
    let unit = if ranking.column.ends_with("_ns") {
        Unit::Time
    } else {
        Unit::Number
    };
    let quantity = |value: f64| match unit {
        Unit::Time => Quantity::ns(value),
        Unit::Number | Unit::Share => Quantity::number(value, ""),
    };
    let axis = Axis::fitting(&ranking.column, all().map(|arm| arm.value), unit);
    let title = "Highest and lowest arms";
    let column = [&*ranking.column];
    let mut table = Strips::new(title, &column, &["arm"], vec![axis]);
    let name = |arm: &RankedArm| {
        let values = statement.axes.iter().zip(&arm.values);
        let values: Vec<String> = values
            .map(|((name, _), value)| format!("{name}={value}"))
            .collect();
        format!("#{} {}", arm.arm, values.join(" "))
    };
    for (group, arms) in [("highest", &ranking.highest), ("lowest", &ranking.lowest)] {
        if arms.is_empty() {
            continue;
        }
        table.group(group);
        for arm in arms {
            table.row(
                &name(arm),
                &[quantity(arm.value)],
                &[&[Mark::at(0, arm.value)]],
            );
        }
    }
    let mut html =
        "<p class=\"legend\">Each circle is one arm: a combination of settings. The results \
        file contains all of them.</p>\n"
            .to_owned();
    html.push_str(&table.finish());
    Some(Plot {
        id: "arms",
        title,
        topic: Topic::Other,
        html,
    })
}
