//! Solves least-squares problems, and finds linear dependencies between columns.

/// Returns the coefficients of the linear combination of `columns` that is closest to `target`;
/// `None` if the columns are linearly dependent or outnumber the rows.
pub fn least_squares(columns: &[&[f64]], target: &[f64]) -> Option<Vec<f64>> {
    // Modified Gram–Schmidt.
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
        basis.push(left.iter().map(|entry| entry / length).collect());
        upper.push(row);
    }
    let mut left = target.to_vec();
    let mut along = Vec::new();
    for direction in &basis {
        let part = dot(direction, &left);
        take(&mut left, part, direction);
        along.push(part);
    }
    let mut coefficients = vec![0.0; columns.len()];
    for at in (0..columns.len()).rev() {
        let later = (at + 1..columns.len()).map(|other| upper[other][at] * coefficients[other]);
        coefficients[at] = (along[at] - later.sum::<f64>()) / upper[at][at];
    }
    Some(coefficients)
}

/// Returns the residual: `target` minus the sum of `columns` weighted by `coefficients`.
pub fn left_over(columns: &[&[f64]], coefficients: &[f64], target: &[f64]) -> Vec<f64> {
    let mut left = target.to_vec();
    for (column, &often) in columns.iter().zip(coefficients) {
        take(&mut left, often, column);
    }
    left
}

/// Determines which columns depend linearly on earlier ones.
///
/// The result for a column is `None` if it is independent of the columns before it. Otherwise, it
/// is the linear combination of earlier independent columns that is closest to it, as indices and
/// coefficients. A column counts as dependent if its residual is no longer than its entry in
/// `slack`.
pub fn dependencies(columns: &[Vec<f64>], slack: &[f64]) -> Vec<Option<Vec<(usize, f64)>>> {
    let mut independent: Vec<usize> = Vec::new();
    let mut result = Vec::new();
    for (at, (column, slack)) in columns.iter().zip(slack).enumerate() {
        let before: Vec<&[f64]> = independent.iter().map(|&place| &*columns[place]).collect();
        // The columns in `before` are independent, so a solution exists.
        let coefficients = least_squares(&before, column).unwrap_or_default();
        let left = norm(&left_over(&before, &coefficients, column));
        if left > slack.max(1e-9 * norm(column)) {
            independent.push(at);
            result.push(None);
            continue;
        }
        let terms = independent.iter().copied().zip(coefficients);
        result.push(Some(
            terms.filter(|(_, often)| often.abs() > 1e-9).collect(),
        ));
    }
    result
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns the Euclidean norm of a column.
pub fn norm(column: &[f64]) -> f64 {
    dot(column, column).sqrt()
}

fn take(from: &mut [f64], often: f64, column: &[f64]) {
    for (from, entry) in from.iter_mut().zip(column) {
        *from -= often * entry;
    }
}

#[cfg(test)]
mod tests {
    use super::{dependencies, least_squares, left_over, norm};

    #[test]
    fn least_squares_recovers_a_plane() {
        let one = [1.0; 5];
        let x = [0.0, 1.0, 2.0, 3.0, 4.0];
        let y = [1.0, 0.0, 5.0, 2.0, 2.0];
        let z: Vec<f64> = x
            .iter()
            .zip(y)
            .map(|(x, y)| 7.0 - 2.0 * x + 0.5 * y)
            .collect();
        let coefficients = least_squares(&[&one, &x, &y], &z).unwrap();
        for (coefficients, truth) in coefficients.iter().zip([7.0, -2.0, 0.5]) {
            assert!(
                (coefficients - truth).abs() < 1e-9,
                "{coefficients} {truth}"
            );
        }
        assert!(norm(&left_over(&[&one, &x, &y], &coefficients, &z)) < 1e-9);
        assert_eq!(least_squares(&[&one, &x, &one], &z), None);
        assert_eq!(least_squares(&[], &z), Some(Vec::new()));
    }

    #[test]
    fn a_linear_combination_of_columns_is_detected() {
        let columns = vec![
            vec![1.0, 1.0, 1.0, 1.0],
            vec![0.0, 1.0, 0.0, 1.0],
            vec![2.0, 5.0, 2.0, 5.0],
            vec![0.0; 4],
            vec![0.0, 0.0, 1.0, 1.01],
        ];
        let result = dependencies(&columns, &[0.0; 5]);
        assert_eq!((&result[0], &result[1], &result[4]), (&None, &None, &None));
        let terms = result[2].as_ref().unwrap();
        assert_eq!((terms[0].0, terms[1].0), (0, 1));
        assert!((terms[0].1 - 2.0).abs() < 1e-9 && (terms[1].1 - 3.0).abs() < 1e-9);
        assert_eq!(result[3], Some(Vec::new()));
    }
}
