//! Collects measurements and prints Markdown tables.

use std::fmt;

/// Results from several rounds, in ascending order.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<f64>);

impl Series {
    /// Creates an empty series.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Inserts a result.
    pub fn push(&mut self, value: f64) {
        let at = self.0.partition_point(|other| *other < value);
        self.0.insert(at, value);
    }

    /// Returns the same results, converted to a unit `size` times as large.
    #[must_use]
    pub fn scaled(&self, size: f64) -> Self {
        Self(self.0.iter().map(|value| value / size).collect())
    }

    /// Number of results.
    pub fn n(&self) -> usize {
        self.0.len()
    }

    /// Returns the `q`-quantile (`q` from 0 to 1), interpolated between neighbouring results.
    pub fn quantile(&self, q: f64) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else {
            return f64::NAN;
        };
        let place = q * last as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the index is between 0 and the last one"
        )]
        let below = place as usize;
        let above = (below + 1).min(last);
        self.0[below] + (self.0[above] - self.0[below]) * (place - below as f64)
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Formats the minimum and the maximum.
    pub fn range(&self, digits: usize) -> String {
        self.between(0.0, 1.0, digits)
    }

    /// Formats the first and the third quartile.
    pub fn quartiles(&self, digits: usize) -> String {
        self.between(0.25, 0.75, digits)
    }

    fn between(&self, low: f64, high: f64, digits: usize) -> String {
        let (low, high) = (self.quantile(low), self.quantile(high));
        format!("{low:.digits$} to {high:.digits$}")
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }
}

/// A Markdown table.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with the given column headings.
    pub fn new<const N: usize>(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.map(str::to_owned).to_vec()],
        }
    }

    /// Appends a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Prints an empty line and then the table.
    #[expect(
        clippy::print_stdout,
        reason = "a benchmark's table goes to the terminal"
    )]
    pub fn print(&self) {
        print!(
            "
{self}"
        );
    }
}

impl fmt::Display for Table {
    /// Aligns the columns, so that the table is also readable in a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
                .max(3)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            writeln!(f, "| {} |", cells.collect::<Vec<_>>().join(" | "))?;
            if number == 0 {
                let rules = widths
                    .iter()
                    .enumerate()
                    .map(|(column, width)| match column {
                        0 => "-".repeat(*width),
                        _ => format!("{}:", "-".repeat(width - 1)),
                    });
                writeln!(f, "| {} |", rules.collect::<Vec<_>>().join(" | "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Series;

    #[test]
    fn quantiles_lie_between_their_neighbours() {
        let series: Series = [4.0, 1.0, 3.0, 2.0].into_iter().collect();
        assert!((series.median() - 2.5).abs() < 1e-12);
        assert_eq!(series.range(0), "1 to 4");
        assert_eq!(series.quartiles(2), "1.75 to 3.25");
        assert!(Series::default().median().is_nan());
    }

    #[test]
    fn a_series_stays_in_order() {
        let mut series = Series::default();
        for value in [3.0, 1.0, 2.0] {
            series.push(value);
        }
        assert_eq!((series.n(), series.range(0)), (3, "1 to 3".to_owned()));
    }
}
