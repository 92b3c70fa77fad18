//! Computes when a sleep ends, depending on the system call and on how the kernel implements
//! timers.

use ticktax_model::Nanos;
use ticktax_model::pace::SleepMethod;

use crate::clock::Grid;

/// How the kernel implements the timers of sleeping tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerRule {
    /// Linux 2.4: jiffies. Sleeps are rounded up to nominal ticks of exactly 1/HZ
    /// (`timespec_to_jiffies`, `include/linux/time.h`). One tick is added, because part of the
    /// current tick has already passed.
    NominalJiffies,
    /// Linux 2.6 to 2.6.15: jiffies. Sleeps are rounded up to ticks of the actual length
    /// (`TICK_NSEC`) rather than nominal ones, and one tick is added.
    Jiffies,
    /// hrtimers on a machine without a high-resolution device (2.6.16 and later, `highres=off`). A
    /// sleep ends at this CPU's first tick at or after the deadline (`hrtimer_run_queues`). If the
    /// tick is stopped, the sleep ends at the first tick after the end of the sleep's timer slack.
    FirstTick,
    /// hrtimers with a one-shot device. A sleep ends at the end of its timer slack, or earlier
    /// within the slack if another interrupt expires the timer.
    HighResolution,
}

impl TimerRule {
    /// All rules.
    pub const ALL: [Self; 4] = [
        Self::NominalJiffies,
        Self::Jiffies,
        Self::FirstTick,
        Self::HighResolution,
    ];

    /// Returns the rule's name as used in scenarios and on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NominalJiffies => "jiffies-2.4",
            Self::Jiffies => "jiffies-2.6",
            Self::FirstTick => "first-tick",
            Self::HighResolution => "high-resolution",
        }
    }
}

/// System call in which a task sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `nanosleep`. Jiffies kernels round the sleep up to ticks and add one tick (`sys_nanosleep`).
    Nanosleep,
    /// `select`. Jiffies kernels round the sleep up to ticks but do not add one, so the call can
    /// return early by part of a tick (`sys_select` in 2.4).
    Select,
    /// `poll`. Jiffies kernels round the sleep up to whole milliseconds and then to ticks, and add
    /// one tick (`sys_poll` in 2.4).
    Poll,
}

impl Call {
    /// Returns the call that models a sleep method, or `None` for a method that spins.
    pub const fn from_method(method: SleepMethod) -> Option<Self> {
        match method {
            SleepMethod::Nanosleep
            | SleepMethod::Usleep
            | SleepMethod::ClockNanosleepAbs
            | SleepMethod::Timerfd => Some(Self::Nanosleep),
            SleepMethod::Select => Some(Self::Select),
            SleepMethod::Poll | SleepMethod::Epoll => Some(Self::Poll),
            SleepMethod::Spin | SleepMethod::Hybrid => None,
        }
    }

    /// Returns the sleep method that uses this call.
    pub const fn method(self) -> SleepMethod {
        match self {
            Self::Nanosleep => SleepMethod::Nanosleep,
            Self::Select => SleepMethod::Select,
            Self::Poll => SleepMethod::Poll,
        }
    }

    /// Rounds a time up to this call's unit, which is 1 ms for `poll` and 1 µs for `select`. A
    /// program must do this to avoid waking up early. With high-resolution timers, nothing else is
    /// rounded.
    fn in_its_unit(self, time: Nanos) -> Nanos {
        match self.method().unit().0 {
            1 => time,
            unit => Nanos((time.0 + unit - 1).div_euclid(unit) * unit),
        }
    }

    /// Returns the timer slack for a sleep of `time` in this call. `slack` is the task's own timer
    /// slack. `select` and `poll` allow at least 0.1 % of the time, but at most 100 ms
    /// (`select_estimate_accuracy`, `fs/select.c`).
    fn slack(self, time: Nanos, slack: Nanos) -> Nanos {
        match self {
            Self::Nanosleep => slack,
            Self::Select | Self::Poll if slack == Nanos::ZERO => slack,
            Self::Select | Self::Poll => {
                slack.max(Nanos(time.0 / 1_000).min(Nanos::from_millis(100)))
            }
        }
    }
}

/// The time at which a sleep timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At the tick with this number on the grid of the task's CPU.
    Tick(i64),
    /// At the CPU's first tick at or after `soonest`, or at tick `latest` if the tick is stopped
    /// until then. Before the kernel stops the tick, it determines when the next timer's slack ends
    /// (`cmp_next_hrtimer_event`, `kernel/time/timer.c`, which calls `hrtimer_get_next_event`).
    /// Every tick expires all timers whose slack has begun.
    TickWithin {
        /// Requested end of the sleep, where the slack begins.
        soonest: Nanos,
        /// Number of the first tick after the end of the slack.
        latest: i64,
    },
    /// At `latest`, when the timer's own interrupt occurs. At or after `soonest`, a tick or another
    /// task's timer interrupt may expire the timer earlier. In Linux, every timer interrupt expires
    /// all timers whose slack has begun (`__hrtimer_run_queues` compares with
    /// `hrtimer_get_softexpires`, `kernel/time/hrtimer.c`).
    Within {
        /// Requested end of the sleep, where the slack begins.
        soonest: Nanos,
        /// End of the slack.
        latest: Nanos,
    },
}

/// The clock grids and settings that determine when a CPU's timers expire.
#[derive(Clone, Copy, Debug)]
pub struct Grids<'a> {
    /// The ticks that increment `jiffies`.
    pub jiffies: &'a Grid,
    /// The CPU's own ticks, which process its timers.
    pub local: &'a Grid,
    /// Configured tick rate in Hz.
    pub hz: i64,
    /// Timer slack of tasks: how long a timer may be delayed so that it expires together with
    /// others (`PR_SET_TIMERSLACK`). Jiffies timers have no slack.
    pub slack: Nanos,
}

impl TimerRule {
    /// Returns when a sleep that starts at `now` ends on a CPU with these grids. `time` is its
    /// requested length, which must be 0 or more.
    pub fn due(self, call: Call, now: Nanos, time: Nanos, grids: &Grids<'_>) -> Due {
        let Grids {
            jiffies, local, hz, ..
        } = *grids;
        match self {
            Self::NominalJiffies | Self::Jiffies => {
                let ticks = match (self, call) {
                    (Self::NominalJiffies, _) | (_, Call::Poll) => nominal_ticks(time, hz),
                    _ => jiffies.steps_up(time),
                };
                let more = i64::from(call != Call::Select);
                let expires = jiffies.last_at(now) + ticks + more;
                Due::Tick(local.first_from(jiffies.at(expires)))
            }
            Self::FirstTick => {
                let time = call.in_its_unit(time);
                Due::TickWithin {
                    soonest: now + time,
                    latest: local.first_from(now + time + call.slack(time, grids.slack)),
                }
            }
            Self::HighResolution => {
                let time = call.in_its_unit(time);
                Due::Within {
                    soonest: now + time,
                    latest: now + time + call.slack(time, grids.slack),
                }
            }
        }
    }
}

/// Converts `time` to nominal ticks of 1/HZ, rounded up.
fn nominal_ticks(time: Nanos, hz: i64) -> i64 {
    let tick = 1_000_000_000 / hz.max(1);
    (time.0 + tick - 1).div_euclid(tick)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ticktax_model::Nanos;

    use super::{Call, Due, Grids, TimerRule};
    use crate::clock::{Device, Grid};

    fn grids(hz: u64, phase: Nanos) -> (Grid, Grid) {
        let jiffies = Device::Pit.grid(hz, Nanos::ZERO, 0).unwrap();
        (jiffies, jiffies.shifted(phase))
    }

    fn end(rule: TimerRule, call: Call, now: Nanos, time: Nanos, hz: u64, phase: Nanos) -> Nanos {
        let (jiffies, local) = grids(hz, phase);
        let grids = Grids {
            jiffies: &jiffies,
            local: &local,
            hz: i64::try_from(hz).unwrap(),
            slack: Nanos::ZERO,
        };
        match rule.due(call, now, time, &grids) {
            Due::Tick(n) | Due::TickWithin { latest: n, .. } => local.at(n),
            Due::Within { latest, .. } => latest,
        }
    }

    #[test]
    fn calls_round_differently() {
        let ticks_of = |rule, call| {
            // The sleep starts just after the tenth tick. At a configured rate of 100 Hz, a tick
            // actually takes 10.00015 ms.
            let end = end(
                rule,
                call,
                Nanos(100_010_000),
                Nanos::from_millis(10),
                100,
                Nanos::ZERO,
            );
            (end.0 - 100_001_500) / 10_000_000
        };
        assert_eq!(ticks_of(TimerRule::NominalJiffies, Call::Nanosleep), 2);
        assert_eq!(ticks_of(TimerRule::NominalJiffies, Call::Select), 1);
        assert_eq!(ticks_of(TimerRule::NominalJiffies, Call::Poll), 2);
        assert_eq!(ticks_of(TimerRule::FirstTick, Call::Nanosleep), 2);
        // At 1000 Hz, an actual tick takes 0.99985 ms. Linux 2.6 therefore rounds a sleep of 1 ms
        // up to two ticks and adds one. Linux 2.4 counts 1 ms as one nominal tick and adds one.
        let at_1000 = |rule| {
            let end = end(
                rule,
                Call::Nanosleep,
                Nanos(0),
                Nanos(1_000_000),
                1000,
                Nanos::ZERO,
            );
            end.0 / 999_000
        };
        assert_eq!(at_1000(TimerRule::NominalJiffies), 2);
        assert_eq!(at_1000(TimerRule::Jiffies), 3);
    }

    #[test]
    fn coarse_calls_use_whole_units() {
        let grid = Device::TscDeadline.grid(250, Nanos::ZERO, 0).unwrap();
        let with_slack = |rule, call, time, slack| {
            let grids = Grids {
                jiffies: &grid,
                local: &grid,
                hz: 250,
                slack,
            };
            rule_end(rule, call, Nanos(500), time, &grids)
        };
        let end_of = |rule, call| with_slack(rule, call, Nanos(3_200_100), Nanos::ZERO);
        let fine = |call| end_of(TimerRule::HighResolution, call);
        assert_eq!(fine(Call::Nanosleep), Nanos(3_200_600));
        assert_eq!(fine(Call::Select), Nanos(3_201_500));
        assert_eq!(fine(Call::Poll), Nanos(4_000_500));
        // `poll` rounds the sleep up to 4 ms. The deadline is then just after the tick at 4 ms, so
        // the task wakes up one tick later than with `nanosleep`.
        let coarse = |call| end_of(TimerRule::FirstTick, call);
        assert_eq!(coarse(Call::Nanosleep), Nanos(4_000_000));
        assert_eq!(coarse(Call::Poll), Nanos(8_000_000));
        // For a sleep of 1 s, 0.1 % is 1 ms, which is more than the task's own slack of 50 µs.
        let late = |rule, call| with_slack(rule, call, Nanos::from_secs(1), Nanos(50_000));
        let fine = |call| late(TimerRule::HighResolution, call) - Nanos(1_000_000_500);
        assert_eq!(fine(Call::Nanosleep), Nanos(50_000));
        assert_eq!(fine(Call::Poll), Nanos(1_000_000));
        let coarse = |time| {
            with_slack(
                TimerRule::FirstTick,
                Call::Nanosleep,
                Nanos(time),
                Nanos(50_000),
            )
        };
        assert_eq!(coarse(3_940_000), Nanos(4_000_000));
        // The deadline is before the tick at 4 ms, but the sleep's slack ends after that tick. If
        // the tick is stopped, the sleep ends at the next tick after its slack.
        assert_eq!(coarse(3_960_000), Nanos(8_000_000));
    }

    fn rule_end(rule: TimerRule, call: Call, now: Nanos, time: Nanos, grids: &Grids<'_>) -> Nanos {
        match rule.due(call, now, time, grids) {
            Due::Tick(n) | Due::TickWithin { latest: n, .. } => grids.local.at(n),
            Due::Within { latest, .. } => latest,
        }
    }

    fn rules() -> impl Strategy<Value = TimerRule> {
        prop_oneof![
            Just(TimerRule::NominalJiffies),
            Just(TimerRule::Jiffies),
            Just(TimerRule::FirstTick),
            Just(TimerRule::HighResolution)
        ]
    }

    proptest! {
        #[test]
        fn no_sleep_is_too_short(
            rule in rules(), hz in 19_u64..2_000, now in 0_i64..1 << 40, time in 0_i64..1 << 33,
            phase in 0_i64..1_000_000
        ) {
            // Ticks are rounded to the device's clock, so an actual tick can be shorter than a
            // nominal one. Allow 1 µs for each tick of the sleep.
            let end = end(rule, Call::Nanosleep, Nanos(now), Nanos(time), hz, Nanos(phase));
            let ticks = 1 + time * i64::try_from(hz).unwrap() / 1_000_000_000;
            let short = if rule == TimerRule::NominalJiffies { ticks } else { 0 };
            prop_assert!(end >= Nanos(now + time - 1_000 * short), "short by {}", now + time - end.0);
        }

        #[test]
        fn a_timeout_of_n_ticks_takes_more_than_n_minus_one(
            hz in 19_u64..2_000, now in 0_i64..1 << 40, n in 1_i64..1_000, phase in 0_i64..1_000_000
        ) {
            let (jiffies, _) = grids(hz, Nanos(phase));
            let time = jiffies.at(n);
            for call in [Call::Nanosleep, Call::Select] {
                let end = end(TimerRule::Jiffies, call, Nanos(now), time, hz, Nanos(phase));
                prop_assert!(end - Nanos(now) > jiffies.at(n - 1));
            }
        }
    }
}
