//! When a sleep ends: what each system call asks for, and what each kernel makes of it.

use ticktax_model::Nanos;
use ticktax_model::pace::SleepMethod;

use crate::clock::Grid;

/// How a kernel keeps the timers of sleeping tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerRule {
    /// Linux 2.4: jiffies, a request rounded up to ticks of exactly 1/HZ
    /// (`timespec_to_jiffies`, `include/linux/time.h`), plus one for the tick under way.
    NominalJiffies,
    /// Linux 2.6 to 2.6.15: jiffies, a request rounded up to ticks of their real length
    /// (`TICK_NSEC`), plus one.
    Jiffies,
    /// High-resolution timers without a high-resolution device (2.6.16 on, `highres=off`): the
    /// first tick of this CPU at or after the deadline (`hrtimer_run_queues`), or after its slack
    /// where the tick stood still.
    FirstTick,
    /// High-resolution timers with a one-shot device: at the deadline.
    HighResolution,
}

impl TimerRule {
    /// Every rule.
    pub const ALL: [Self; 4] = [
        Self::NominalJiffies,
        Self::Jiffies,
        Self::FirstTick,
        Self::HighResolution,
    ];

    /// The word for it in scenarios and on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NominalJiffies => "jiffies-2.4",
            Self::Jiffies => "jiffies-2.6",
            Self::FirstTick => "first-tick",
            Self::HighResolution => "high-resolution",
        }
    }
}

/// The system call that a task sleeps in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `nanosleep`: rounded up, plus one tick (`sys_nanosleep`).
    Nanosleep,
    /// `select`: rounded up, without the tick more, so that it can be short by part of a tick
    /// (2.4's `sys_select`).
    Select,
    /// `poll`: whole ms, rounded up to ticks, plus one (2.4's `sys_poll`).
    Poll,
}

impl Call {
    /// What a loop that waits by this method is modelled to sleep in; `None` where it spins.
    pub const fn of(method: SleepMethod) -> Option<Self> {
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

    /// The method that is this call.
    pub const fn method(self) -> SleepMethod {
        match self {
            Self::Nanosleep => SleepMethod::Nanosleep,
            Self::Select => SleepMethod::Select,
            Self::Poll => SleepMethod::Poll,
        }
    }

    /// A time as a program has to ask for it that does not want to be woken early: `poll` takes
    /// whole ms, `select` whole µs. With high-resolution timers this is all the rounding there is.
    fn in_its_unit(self, time: Nanos) -> Nanos {
        match self.method().unit().0 {
            1 => time,
            unit => Nanos((time.0 + unit - 1).div_euclid(unit) * unit),
        }
    }

    /// The slack of this call where its task's is `slack`: `select` and `poll` take 0.1 % of the
    /// time, 100 ms at most, where that is more (`select_estimate_accuracy`, `fs/select.c`).
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

/// When a timer goes off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At this tick of the CPU's own grid.
    Tick(i64),
    /// At a tick of the CPU's own grid: at the first from `soonest` on while the tick goes on, and at
    /// `latest` where it stands still until then. A kernel that stops its tick looks for the end of
    /// the next timer's slack (`cmp_next_hrtimer_event`, `kernel/time/timer.c`, which asks
    /// `hrtimer_get_next_event`), one that has a tick anyway runs all whose slack has begun.
    TickWithin {
        /// When the time that was asked for is over.
        soonest: Nanos,
        /// The first tick after its slack.
        latest: i64,
    },
    /// By an interrupt of its own at `latest`; by a tick or another's timer that comes before, from
    /// `soonest` on. Linux runs every timer whose slack has begun, whatever interrupt it is for
    /// (`__hrtimer_run_queues` compares with `hrtimer_get_softexpires`, `kernel/time/hrtimer.c`).
    Within {
        /// When the time that was asked for is over.
        soonest: Nanos,
        /// And its slack.
        latest: Nanos,
    },
}

/// The grids that a CPU's timers live on.
#[derive(Clone, Copy, Debug)]
pub struct Grids<'a> {
    /// The ticks at which `jiffies` is counted up.
    pub jiffies: &'a Grid,
    /// The ticks of the CPU's own timer, at which its timers are looked at.
    pub local: &'a Grid,
    /// The configured tick rate, in Hz.
    pub hz: i64,
    /// By how much a task's timer may be late, so as to go off with others (`PR_SET_TIMERSLACK`).
    /// Jiffies know none.
    pub slack: Nanos,
}

impl TimerRule {
    /// When a sleep of `time` (0 or more) that begins at `now` ends on a CPU with these grids.
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

/// `time` in ticks of 1/HZ, rounded up.
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
    fn each_call_rounds_in_its_own_way() {
        let of = |rule, call| {
            // Just after the tenth tick at 100 Hz, whose real length is 10.00015 ms.
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
        assert_eq!(of(TimerRule::NominalJiffies, Call::Nanosleep), 2);
        assert_eq!(of(TimerRule::NominalJiffies, Call::Select), 1);
        assert_eq!(of(TimerRule::NominalJiffies, Call::Poll), 2);
        assert_eq!(of(TimerRule::FirstTick, Call::Nanosleep), 2);
        // At 1000 Hz a tick is 0.99985 ms, so that 1 ms is two ticks, and one more is three.
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
    fn a_coarse_call_asks_for_whole_units() {
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
        let of = |rule, call| with_slack(rule, call, Nanos(3_200_100), Nanos::ZERO);
        let fine = |call| of(TimerRule::HighResolution, call);
        assert_eq!(fine(Call::Nanosleep), Nanos(3_200_600));
        assert_eq!(fine(Call::Select), Nanos(3_201_500));
        assert_eq!(fine(Call::Poll), Nanos(4_000_500));
        // The same ms more is a tick more where it goes past one.
        let coarse = |call| of(TimerRule::FirstTick, call);
        assert_eq!(coarse(Call::Nanosleep), Nanos(4_000_000));
        assert_eq!(coarse(Call::Poll), Nanos(8_000_000));
        // 0.1 % of a second is more than the 50 µs of a task.
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
        // It is over before the tick, its slack is not.
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
        fn no_sleep_is_short(
            rule in rules(), hz in 19_u64..2_000, now in 0_i64..1 << 40, time in 0_i64..1 << 33,
            phase in 0_i64..1_000_000
        ) {
            // A nominal tick may be longer than a real one by its rounding to the device's clock:
            // by up to 1 µs in each of the ticks asked for.
            let end = end(rule, Call::Nanosleep, Nanos(now), Nanos(time), hz, Nanos(phase));
            let ticks = 1 + time * i64::try_from(hz).unwrap() / 1_000_000_000;
            let short = if rule == TimerRule::NominalJiffies { ticks } else { 0 };
            prop_assert!(end >= Nanos(now + time - 1_000 * short), "short by {}", now + time - end.0);
        }

        #[test]
        fn a_timeout_of_n_ticks_takes_more_than_one_less(
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
