//! Tests that ticks are found only where intervals are regular, and that their cost is summed.

use ticktax_model::Nanos;
use ticktax_model::guests::{
    GuestTimer, Halts, TickMode, TimerCost, TimerInterval, TimerSums, VcpuSums,
};

use super::{all, machine, timer};

const ELAPSED: Nanos = Nanos(10_000_000_000);

/// Returns a timer that expired for 10 s, with these frequent intervals: count and length in ns.
fn sums(intervals: u64, frequent: &[(u64, i64)]) -> TimerSums {
    TimerSums {
        ticks: intervals + 1,
        last: ELAPSED,
        intervals,
        frequent: frequent
            .iter()
            .map(|&(count, length)| TimerInterval {
                count,
                total: Nanos(count.cast_signed() * length),
            })
            .collect(),
        ..TimerSums::default()
    }
}

fn idle(part: i64) -> Halts {
    Halts {
        slept_time: Nanos(ELAPSED.0 * part / 100),
        ..Halts::default()
    }
}

fn described(sums: &TimerSums, slept: i64) -> GuestTimer {
    timer(sums, Some(&idle(slept)), ELAPSED, ELAPSED)
}

#[test]
fn a_continuous_tick_keeps_ticking() {
    let timer = described(&sums(9_990, &[(9_980, 1_001_000)]), 90);
    assert_eq!(
        (timer.hz, timer.mode),
        (Some(1_000), TickMode::KeepsTicking)
    );
    assert!((timer.regular.unwrap() - 999.0).abs() < 0.1);
    assert!((timer.ticks_per_s - 999.1).abs() < 1e-9);
    // Without idle time, it is unknown whether the tick would stop.
    let busy = described(&sums(9_990, &[(9_980, 1_001_000)]), 10);
    assert_eq!((busy.hz, busy.mode), (Some(1_000), TickMode::Unknown));
}

#[test]
fn a_vcpu_that_is_idle_after_its_last_tick_does_not_keep_ticking() {
    let second = Nanos::from_secs(1);
    let sums = TimerSums {
        last: second,
        ..sums(249, &[(249, 4_000_000)])
    };
    let mode = |slept, seen| timer(&sums, Some(&idle(slept)), seen, ELAPSED).mode;
    assert_eq!(mode(90, ELAPSED), TickMode::Unknown);
    // The machine existed for one second, and was idle for half of it.
    assert_eq!(mode(5, second), TickMode::KeepsTicking);
}

#[test]
fn a_tick_that_stops_has_multiples_of_its_period() {
    let timer = described(&sums(600, &[(300, 8_000_000), (200, 4_000_000)]), 90);
    assert_eq!((timer.hz, timer.mode), (Some(250), TickMode::StopsWhenIdle));
}

#[test]
fn other_rates_are_no_hz() {
    let timer = described(&sums(640, &[(640, 15_625_000)]), 90);
    assert_eq!((timer.hz, timer.mode), (None, TickMode::KeepsTicking));
    assert!((timer.regular.unwrap() - 64.0).abs() < 1e-6);
}

#[test]
fn irregular_expiries_are_no_tick() {
    for frequent in [&[(90, 4_000_000)][..], &[(19, 4_000_000)], &[]] {
        let timer = described(&sums(400, frequent), 90);
        assert_eq!((timer.regular, timer.hz), (None, None), "{frequent:?}");
        assert_eq!(timer.mode, TickMode::Unknown);
    }
}

#[test]
fn the_kind_of_timer_is_known() {
    let mut sums = sums(1_000, &[]);
    let kind = |sums: &TimerSums| {
        let timer = described(sums, 0);
        (timer.is_pit, timer.is_one_shot)
    };
    assert_eq!(kind(&sums), (false, false));
    sums.armed = 990;
    assert_eq!(kind(&sums), (false, true));
    (sums.armed, sums.pit_ticks) = (0, 900);
    assert_eq!(kind(&sums), (true, false));
}

/// Returns a vCPU with 1,000 wake-ups. Half of them took 8,000 ns, the others 24,000 ns.
fn vcpu(timer: TimerSums) -> VcpuSums {
    let wakeups: u64 = 1_000;
    VcpuSums {
        timer: Some(TimerSums {
            cost: TimerCost {
                wakeups,
                ticks: wakeups,
                exits: 3_000,
                host: Nanos(16_000_000),
                guest: Nanos(1_000_000),
                squares_16ns: wakeups / 2 * (500 * 500 + 1_500 * 1_500),
            },
            ..timer
        }),
        ..VcpuSums::default()
    }
}

#[test]
fn cost_and_savings_follow_from_the_wake_ups() {
    let vcpu = vcpu(sums(9_999, &[(9_999, 1_000_000)]));
    let timer = described(vcpu.timer.as_ref().unwrap(), 90);
    let ticks = machine(&[&timer], &[&vcpu], ELAPSED).unwrap();
    let each = ticks.each.unwrap();
    assert_eq!(each.mean, Nanos(16_000));
    // The standard error is 8,000 ns divided by the square root of 1,000.
    assert_eq!((each.low, each.high), (Nanos(15_504), Nanos(16_496)));
    assert_eq!(ticks.cost.exits_per_tick(), Some(3.0));
    // 1,000 ticks per second.
    assert_eq!(ticks.per_day.unwrap().mean, Nanos(1_382_400_000_000));
    let saved: Vec<_> = ticks
        .savings
        .iter()
        .map(|saving| {
            (
                saving.hz,
                saving.avoided_per_s.round(),
                saving.per_day.mean.0,
            )
        })
        .collect();
    assert_eq!(
        saved,
        [
            (Some(100), 900.0, 1_244_160_000_000),
            (Some(250), 750.0, 1_036_800_000_000),
            (Some(300), 700.0, 967_680_000_000),
            (None, 100.0, 138_240_000_000),
        ]
    );
    let sum = all([&ticks, &ticks].into_iter(), ELAPSED).unwrap();
    assert_eq!((sum.ticks, sum.cost.wakeups), (20_000, 2_000));
    assert_eq!(sum.per_day.unwrap().mean, Nanos(2_764_800_000_000));
    assert_eq!(sum.savings.len(), ticks.savings.len());
    assert_eq!(sum.savings[0].per_day.mean, Nanos(2_488_320_000_000));
}

#[test]
fn few_wake_ups_have_no_cost() {
    let mut vcpu = vcpu(sums(9_999, &[(9_999, 1_000_000)]));
    vcpu.timer.as_mut().unwrap().cost.wakeups = 9;
    let timer = described(vcpu.timer.as_ref().unwrap(), 90);
    let ticks = machine(&[&timer], &[&vcpu], ELAPSED).unwrap();
    assert_eq!((ticks.each, ticks.per_day), (None, None));
    assert_eq!(ticks.savings, []);
    assert_eq!(machine(&[], &[&vcpu], ELAPSED), None);
    assert_eq!(all([].into_iter(), ELAPSED), None);
}
