//! A plot of the points of a sweep with the highest and lowest values.

use ticktax_model::sweep::{GridStatement, RankedPoint};

use super::Plot;
use super::axis::{Axis, Unit};
use super::strips::{Mark, Strips};
use crate::html::quantity::Quantity;
use crate::text::Topic;

/// The points with the highest and lowest values. `None` if no column was ranked.
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
    let axis = Axis::fitting(&ranking.column, all().map(|point| point.value), unit);
    let title = "Highest and lowest points";
    let column = [&*ranking.column];
    let mut table = Strips::new(title, &column, &["point"], vec![axis]);
    let name = |point: &RankedPoint| {
        let values = statement.axes.iter().zip(&point.values);
        let values: Vec<String> = values
            .map(|((name, _), value)| format!("{name}={value}"))
            .collect();
        format!("#{} {}", point.point, values.join(" "))
    };
    for (group, points) in [("highest", &ranking.highest), ("lowest", &ranking.lowest)] {
        if points.is_empty() {
            continue;
        }
        table.group(group);
        for point in points {
            table.row(
                &name(point),
                &[quantity(point.value)],
                &[&[Mark::at(0, point.value)]],
            );
        }
    }
    let mut html = "<p class=\"legend\">Each circle is one combination of settings. The results \
        file contains all of them.</p>\n"
        .to_owned();
    html.push_str(&table.finish());
    Some(Plot {
        id: "points",
        title,
        topic: Topic::Other,
        html,
    })
}
