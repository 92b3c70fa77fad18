//! Clock-event devices and their tick grids.
//!
//! A device counts its own input clock, so a tick is not exactly 1/HZ long but a whole number of
//! input periods. The grid of its ticks is stored in fixed point. Converting between tick numbers
//! and times costs one multiplication, which lets the engine skip ticks that change nothing.

use ticktax_model::Nanos;

use crate::fixed::narrow;

/// Input frequency of the i8254 interval timer, in Hz (`PIT_TICK_RATE`, `include/linux/timex.h`).
pub const PIT_HZ: u64 = 1_193_182;

/// A device that interrupts a CPU periodically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The i8254 counts `LATCH = (PIT_HZ + HZ/2) / HZ` input periods per tick (`LATCH`,
    /// `include/linux/jiffies.h`). It is 16 bits wide, so 19 Hz is the slowest tick rate.
    Pit,
    /// A local APIC timer. Its count per tick is truncated to whole periods of its bus clock
    /// (`calibrate_APIC_clock`, `arch/x86/kernel/apic/apic.c`).
    Lapic {
        /// Frequency of its input, in Hz.
        bus_hz: u64,
        /// Divisor of its input: 1 to 128, 16 in Linux.
        divisor: u64,
    },
    /// Programmed to an absolute time for every tick, so that rounding errors do not add up: a tick
    /// is 1/HZ long (`lapic_next_deadline`).
    TscDeadline,
}

impl Device {
    /// All devices, with default settings.
    pub const ALL: [Self; 3] = [
        Self::Pit,
        Self::TscDeadline,
        Self::Lapic {
            bus_hz: 100_000_000,
            divisor: 16,
        },
    ];

    /// Name in scenarios and on the command line, without its settings.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pit => "pit",
            Self::TscDeadline => "tsc-deadline",
            Self::Lapic { .. } => "lapic",
        }
    }

    /// Number of input periods per tick, and their frequency. `None` if the device cannot tick at
    /// `hz`.
    fn count(self, hz: u64) -> Option<(u64, u64)> {
        let (count, rate) = match self {
            Self::Pit => ((PIT_HZ + hz / 2).checked_div(hz)?, PIT_HZ),
            Self::Lapic { bus_hz, divisor } => {
                let rate = bus_hz.checked_div(divisor)?;
                // In periods of the undivided input, so that the rate stays exact.
                return match rate.checked_div(hz)? {
                    0 => None,
                    count => Some((count * divisor, bus_hz)),
                };
            }
            Self::TscDeadline => (1, hz),
        };
        let fits = count > 0 && rate > 0 && (self != Self::Pit || u16::try_from(count).is_ok());
        fits.then_some((count, rate))
    }

    /// The grid of this device's ticks at `hz`, with the first tick at `origin`. Its clock runs too
    /// fast by `drift_ppb` parts per billion, which shortens the ticks accordingly. `None` if the
    /// device cannot tick at `hz`.
    pub fn grid(self, hz: u64, origin: Nanos, drift_ppb: i64) -> Option<Grid> {
        let (count, rate) = self.count(hz)?;
        let billion = 1_000_000_000_u128;
        let fast = u128::try_from(drift_ppb.checked_add(1_000_000_000)?).ok()?;
        if fast == 0 {
            return None;
        }
        // count / (rate · (1 + drift)) seconds, in 2^-32 ns.
        let numerator = (u128::from(count) * billion * billion) << 32;
        let denominator = u128::from(rate) * fast;
        let step = numerator.checked_add(denominator / 2)? / denominator;
        Grid::new(origin, u64::try_from(step).ok()?)
    }
}

/// Instants at equal distances: `origin + n · step`, for n from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    origin: Nanos,
    /// In 2^-32 ns. The error is at most half of that unit, which adds up to 1 ns after 8 · 10^9
    /// ticks.
    step: u64,
    /// 2^95 / `step`, which replaces a division by a multiplication.
    inverse: u64,
}

impl Grid {
    /// Shortest step, in 2^-32 ns: 1 µs.
    const SHORTEST: u64 = 1_000 << 32;

    /// A grid with a step in 2^-32 ns; `None` if it is shorter than 1 µs.
    fn new(origin: Nanos, step: u64) -> Option<Self> {
        let inverse = u64::try_from((1_u128 << 95) / u128::from(step.max(1))).ok()?;
        (step >= Self::SHORTEST).then_some(Self {
            origin,
            step,
            inverse,
        })
    }

    /// The same grid, later by `shift`.
    #[must_use]
    pub fn shifted(self, shift: Nanos) -> Self {
        Self {
            origin: self.origin + shift,
            ..self
        }
    }

    /// Length of a step, rounded down to ns.
    pub fn step(&self) -> Nanos {
        Nanos(narrow(i128::from(self.step >> 32)))
    }

    /// Length of a step in ns, for display.
    pub fn step_f64(&self) -> f64 {
        self.step as f64 / 4_294_967_296.0
    }

    /// Time of instant `n`, to the nearest ns. A negative `n` gives times before the first.
    pub fn at(&self, n: i64) -> Nanos {
        self.origin
            + Nanos(narrow(
                (i128::from(n) * i128::from(self.step) + (1 << 31)) >> 32,
            ))
    }

    /// The last instant at or before `t`; -1 if all are later.
    pub fn last_at(&self, t: Nanos) -> i64 {
        let passed = t - self.origin;
        if passed < Nanos::ZERO {
            return -1;
        }
        let guess = narrow((i128::from(passed.0) * i128::from(self.inverse)) >> 63);
        // The inverse and the times of instants are rounded down, so the guess is off by at most
        // two.
        let mut n = guess;
        while self.at(n + 1) <= t {
            n += 1;
        }
        n
    }

    /// The first instant at or after `t`.
    pub fn first_from(&self, t: Nanos) -> i64 {
        self.last_at(t - Nanos(1)) + 1
    }

    /// Number of steps in `time`, rounded up (`timespec_to_jiffies`, `kernel/time/time.c`, which
    /// rounds by the real length of a tick).
    pub fn steps_up(&self, time: Nanos) -> i64 {
        let fixed = i128::from(time.0) << 32;
        let step = i128::from(self.step);
        narrow((fixed + step - 1).div_euclid(step))
    }
}

#[cfg(test)]
mod tests {
    use super::{Device, Grid};
    use proptest::prelude::*;
    use ticktax_model::Nanos;

    fn grid(device: Device, hz: u64) -> Grid {
        device.grid(hz, Nanos::ZERO, 0).unwrap()
    }

    #[test]
    fn devices_round_ticks_to_their_own_clock() {
        // LATCH: 1193 and 11932 input periods of 1/1193182 s.
        assert_eq!(
            grid(Device::Pit, 1000).at(1_193_182),
            Nanos(1_193_000_000_000)
        );
        assert_eq!(
            grid(Device::Pit, 100).at(1_193_182),
            Nanos(11_932_000_000_000)
        );
        assert_eq!(
            grid(Device::TscDeadline, 300).at(300 * 3600),
            Nanos::from_secs(3600)
        );
        // 6250.39 counts are truncated to 6250, which is short by 64 µs per second.
        let bus = Device::Lapic {
            bus_hz: 100_006_250,
            divisor: 16,
        };
        assert_eq!(grid(bus, 1000).at(1000), Nanos(999_937_504));
    }

    #[test]
    fn impossible_rates_have_no_grid() {
        assert!(Device::Pit.grid(18, Nanos::ZERO, 0).is_none());
        assert!(Device::Pit.grid(0, Nanos::ZERO, 0).is_none());
        assert!(Device::Pit.grid(2_000_000, Nanos::ZERO, 0).is_none());
        let slow = Device::Lapic {
            bus_hz: 100,
            divisor: 16,
        };
        assert!(slow.grid(1000, Nanos::ZERO, 0).is_none());
        assert!(
            Device::TscDeadline
                .grid(1000, Nanos::ZERO, -1_000_000_001)
                .is_none()
        );
    }

    #[test]
    fn a_fast_clock_ticks_early() {
        let fast = Device::TscDeadline.grid(1000, Nanos(5), 100_000).unwrap();
        assert_eq!(fast.at(1_000_100), Nanos::from_secs(1000) + Nanos(5));
    }

    proptest! {
        #[test]
        fn ticks_and_times_convert_both_ways(
            hz in 19_u64..20_000, n in 0_i64..4_000_000_000, off in 0_i64..50_000, origin in 0_i64..1 << 40
        ) {
            let grid = Device::Pit.grid(hz, Nanos(origin), 0).unwrap();
            let t = grid.at(n);
            prop_assert_eq!(grid.last_at(t), n);
            prop_assert_eq!(grid.first_from(t), n);
            prop_assert_eq!(grid.last_at(t - Nanos(1)), n - 1);
            let off = Nanos(off).min(grid.step() - Nanos(1));
            prop_assert_eq!(grid.last_at(t + off), n);
        }

        #[test]
        fn rounding_up_covers_the_time(hz in 19_u64..2_000, time in 0_i64..1 << 40) {
            let grid = Device::Pit.grid(hz, Nanos::ZERO, 0).unwrap();
            let n = grid.steps_up(Nanos(time));
            prop_assert!(grid.at(n) >= Nanos(time - 1));
            prop_assert!(n == 0 || grid.at(n - 1) < Nanos(time));
        }
    }
}
