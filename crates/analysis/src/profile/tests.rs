use proptest::prelude::*;
use ticktax_model::Nanos;

use super::divided;

#[test]
fn remaining_nanoseconds_go_to_the_largest_remainders() {
    let times = |time, counts: &[u64]| {
        let parts = divided(Nanos(time), counts).into_iter();
        parts.map(|part| part.0).collect::<Vec<_>>()
    };
    assert_eq!(times(100, &[1, 1, 1]), [34, 33, 33]);
    // The exact shares are 2.5, 5.0 and 2.5.
    assert_eq!(times(10, &[1, 2, 1]), [3, 5, 2]);
    // The exact shares are 0.2, 0.2 and 1.6.
    assert_eq!(times(2, &[1, 1, 8]), [0, 0, 2]);
    assert_eq!(times(0, &[3, 4]), [0, 0]);
    assert_eq!(times(i64::MAX, &[1, 1]), [i64::MAX / 2 + 1, i64::MAX / 2]);
}

proptest! {
    #[test]
    fn parts_add_up_and_are_proportional(
        time in -1_000i64..1_000_000_000_000,
        counts in prop::collection::vec(0u64..100_000, 1..50),
    ) {
        let all: u64 = counts.iter().sum();
        prop_assume!(all > 0);
        let parts = divided(Nanos(time), &counts);
        prop_assert_eq!(parts.iter().map(|part| part.0).sum::<i64>(), time);
        for (part, count) in parts.iter().zip(&counts) {
            let exact = i128::from(time) * i128::from(*count);
            let off = i128::from(part.0) * i128::from(all) - exact;
            prop_assert!(off.abs() < i128::from(all), "{part} of {time} for {count} of {all}");
        }
    }
}
