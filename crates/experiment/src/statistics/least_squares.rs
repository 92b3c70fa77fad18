//! Columns of numbers: which are sums of others, and what of them a column is.

/// What a sum of `columns` comes nearest to `target` with: how often each. `None` where the columns are not independent,
/// or more than their entries.
pub fn least_squares(columns: &[&[f64]], target: &[f64]) -> Option<Vec<f64>> {
    // The modified method of Gram and Schmidt.
    let mut basis: Vec<Vec<f64>> = Vec::new();
    let mut upper: Vec<Vec<f64>> = Vec::new();
    for column in columns {
        let mut left = column.to_vec();
        let mut row: Vec<f64> = Vec::new();
        for direction in &basis {
            let along = dot(direction, &left);
            take(&mut left, along, direction);
            row.push(along);
        }
        let length = norm(&left);
        if length <= 1e-10 * norm(column) {
            return None;
        }
        row.push(length);
        basis.push(left.iter().map(|it| it / length).collect());
        upper.push(row);
    }
    let mut left = target.to_vec();
    let mut along = Vec::new();
    for direction in &basis {
        let part = dot(direction, &left);
        take(&mut left, part, direction);
        along.push(part);
    }
    let mut found = vec![0.0; columns.len()];
    for at in (0..columns.len()).rev() {
        let later = (at + 1..columns.len()).map(|it| upper[it][at] * found[it]);
        found[at] = (along[at] - later.sum::<f64>()) / upper[at][at];
    }
    Some(found)
}

/// What is left of `target` once `columns` are taken from it, as often as `found` says.
pub fn left_over(columns: &[&[f64]], found: &[f64], target: &[f64]) -> Vec<f64> {
    let mut left = target.to_vec();
    for (column, &often) in columns.iter().zip(found) {
        take(&mut left, often, column);
    }
    left
}

/// Whether each column is independent of those before it, or else which of the independent ones it is, and how often
/// each. `slack` is how much may be left of a column, as a length, for it to count as a sum of others.
pub fn dependencies(columns: &[Vec<f64>], slack: &[f64]) -> Vec<Option<Vec<(usize, f64)>>> {
    let mut independent: Vec<usize> = Vec::new();
    let mut told = Vec::new();
    for (at, (column, slack)) in columns.iter().zip(slack).enumerate() {
        let before: Vec<&[f64]> = independent.iter().map(|&it| &*columns[it]).collect();
        // Independent columns have a solution.
        let found = least_squares(&before, column).unwrap_or_default();
        let left = norm(&left_over(&before, &found, column));
        if left > slack.max(1e-9 * norm(column)) {
            independent.push(at);
            told.push(None);
            continue;
        }
        let of = independent.iter().copied().zip(found);
        told.push(Some(of.filter(|(_, often)| often.abs() > 1e-9).collect()));
    }
    told
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The length of a column.
pub fn norm(column: &[f64]) -> f64 {
    dot(column, column).sqrt()
}

fn take(from: &mut [f64], often: f64, what: &[f64]) {
    for (from, what) in from.iter_mut().zip(what) {
        *from -= often * what;
    }
}

#[cfg(test)]
mod tests {
    use super::{dependencies, least_squares, left_over, norm};

    #[test]
    fn a_plane_through_points_is_found() {
        let one = [1.0; 5];
        let x = [0.0, 1.0, 2.0, 3.0, 4.0];
        let y = [1.0, 0.0, 5.0, 2.0, 2.0];
        let z: Vec<f64> = x
            .iter()
            .zip(y)
            .map(|(x, y)| 7.0 - 2.0 * x + 0.5 * y)
            .collect();
        let found = least_squares(&[&one, &x, &y], &z).unwrap();
        for (found, truth) in found.iter().zip([7.0, -2.0, 0.5]) {
            assert!((found - truth).abs() < 1e-9, "{found} {truth}");
        }
        assert!(norm(&left_over(&[&one, &x, &y], &found, &z)) < 1e-9);
        assert_eq!(least_squares(&[&one, &x, &one], &z), None);
        assert_eq!(least_squares(&[], &z), Some(Vec::new()));
    }

    #[test]
    fn a_column_that_others_make_up_is_told() {
        let columns = vec![
            vec![1.0, 1.0, 1.0, 1.0],
            vec![0.0, 1.0, 0.0, 1.0],
            vec![2.0, 5.0, 2.0, 5.0],
            vec![0.0; 4],
            vec![0.0, 0.0, 1.0, 1.01],
        ];
        let told = dependencies(&columns, &[0.0; 5]);
        assert_eq!((&told[0], &told[1], &told[4]), (&None, &None, &None));
        let of = told[2].as_ref().unwrap();
        assert_eq!((of[0].0, of[1].0), (0, 1));
        assert!((of[0].1 - 2.0).abs() < 1e-9 && (of[1].1 - 3.0).abs() < 1e-9);
        assert_eq!(told[3], Some(Vec::new()));
    }
}
