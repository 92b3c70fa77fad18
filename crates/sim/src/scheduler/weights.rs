//! Weights of nice values. A difference of one nice level changes a task's weight by 25 %
//! (`sched_prio_to_weight`, `kernel/sched/core.c`).

pub(super) const NICE_0: i64 = 1024;

/// Returns the weight of a task at `nice` (-20 to 19): 1024 · 1.25^-nice, rounded down after each
/// step away from nice 0. The kernel's table was rounded by hand and differs by less than 3 %.
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
fn a_nice_step_changes_the_weight_by_a_quarter() {
    assert_eq!((weight(0), weight(-1), weight(1)), (1024, 1280, 819));
    // The ends of the kernel's table are 88761 (nice -20) and 15 (nice 19).
    assert!((weight(-20) - 88_761).abs() < 2_700);
    assert!((weight(19) - 15).abs() <= 1);
}
