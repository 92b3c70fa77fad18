//! A plot of the points of a sweep with the highest and lowest values.

use ticktax_model::sweep::{GridStatement, RankedPoint};

use super::Plot;
use super::axis::{Axis, Unit};
use super::strips::{Mark, Strips};

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
    let axis = Axis::fitting(&ranking.column, all().map(|point| point.value), unit);
    let title = "The extreme points";
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
                &[point.value.to_string()],
                &[&[Mark::at(0, point.value)]],
            );
        }
    }
    let mut html = "<p class=\"legend\">A shape at the value of each point. All points are in the file of results.</p>\n".to_owned();
    html.push_str(&table.finish());
    Some(Plot {
        id: "points",
        title,
        html,
    })
}
