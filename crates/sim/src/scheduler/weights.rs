//! What a step of nice is worth: 25 % more or less weight (`sched_prio_to_weight`,
//! `kernel/sched/core.c`).

/// The weight of nice 0.
pub(super) const NICE_0: i64 = 1024;

/// The weight of a task at `nice`, from -20 to 19: 1024 · 1.25^-nice, rounded down at each step
/// away from 0. The kernel's own table is rounded by hand and differs by less than 3 %.
pub(super) fn weight(nice: i8) -> i64 {
    let mut weight = NICE_0 << 10;
    for _ in 0..nice.unsigned_abs() {
        weight = if nice < 0 {
            weight * 5 / 4
        } else {
            weight * 4 / 5
        };
    }
    (weight >> 10).max(1)
}

#[test]
fn a_step_is_a_quarter() {
    assert_eq!((weight(0), weight(-1), weight(1)), (1024, 1280, 819));
    // The kernel's ends: 88761 and 15.
    assert!((weight(-20) - 88_761).abs() < 2_700);
    assert!((weight(19) - 15).abs() <= 1);
}
