//! Clock-event devices, and the times at which they tick.
//!
//! A device counts the cycles of its input clock, so a tick takes a whole number of cycles rather
//! than exactly 1/HZ. [`Grid`] stores tick times in fixed point and converts between tick numbers
//! and times with a single multiplication. This lets the engine skip ticks that change nothing.

use ticktax_model::Nanos;

use crate::fixed::narrow;

/// Input frequency of the i8254 interval timer, in Hz (`PIT_TICK_RATE`, `include/linux/timex.h`).
pub const PIT_HZ: u64 = 1_193_182;

/// A device that generates tick interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The i8254, which counts `LATCH = (PIT_HZ + HZ/2) / HZ` input cycles per tick (`LATCH`,
    /// `include/linux/jiffies.h`). The counter has 16 bits, so the lowest tick rate is 19 Hz.
    Pit,
    /// A local APIC timer in periodic mode. Its count per tick is truncated to whole bus clock
    /// cycles (`calibrate_APIC_clock`, `arch/x86/kernel/apic/apic.c`).
    Lapic {
        /// Bus clock frequency, in Hz.
        bus_hz: u64,
        /// Divider of the bus clock, from 1 to 128. Linux uses 16.
        divisor: u64,
    },
    /// TSC deadline mode. Every tick is programmed for an absolute time, so rounding errors do not
    /// accumulate and a tick takes exactly 1/HZ (`lapic_next_deadline`).
    TscDeadline,
}

impl Device {
    /// One device of each kind, with default parameters.
    pub const ALL: [Self; 3] = [
        Self::Pit,
        Self::TscDeadline,
        Self::Lapic {
            bus_hz: 100_000_000,
            divisor: 16,
        },
    ];

    /// Returns the device's name, without its parameters, as used in scenarios and on the command
    /// line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pit => "pit",
            Self::TscDeadline => "tsc-deadline",
            Self::Lapic { .. } => "lapic",
        }
    }

    /// Returns the number of input cycles per tick and the input frequency in Hz; `None` if the
    /// device cannot tick at `hz`.
    fn count(self, hz: u64) -> Option<(u64, u64)> {
        let (count, rate) = match self {
            Self::Pit => ((PIT_HZ + hz / 2).checked_div(hz)?, PIT_HZ),
            Self::Lapic { bus_hz, divisor } => {
                let rate = bus_hz.checked_div(divisor)?;
                // Count cycles of the undivided bus clock, so that the frequency stays exact.
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

    /// Returns this device's tick grid at `hz`, with the first tick at `origin`. The device's clock
    /// is `drift_ppb` parts per billion fast, which shortens the ticks. Returns `None` if the
    /// device cannot tick at `hz`.
    pub fn grid(self, hz: u64, origin: Nanos, drift_ppb: i64) -> Option<Grid> {
        let (count, rate) = self.count(hz)?;
        let billion = 1_000_000_000_u128;
        let fast = u128::try_from(drift_ppb.checked_add(1_000_000_000)?).ok()?;
        if fast == 0 {
            return None;
        }
        // A tick takes count / (rate · (1 + drift)) seconds. Convert that to units of 2^-32 ns.
        let numerator = (u128::from(count) * billion * billion) << 32;
        let denominator = u128::from(rate) * fast;
        let step = numerator.checked_add(denominator / 2)? / denominator;
        Grid::new(origin, u64::try_from(step).ok()?)
    }
}

/// Equally spaced instants `origin + n · step`, for n from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    origin: Nanos,
    /// Distance between instants, in 2^-32 ns. Rounding it to this unit adds at most 1 ns of error
    /// per 8 · 10^9 ticks.
    step: u64,
    /// 2^95 / `step`. Multiplying by this value replaces a division by `step`.
    inverse: u64,
}

impl Grid {
    /// Shortest allowed step: 1 µs, in 2^-32 ns.
    const SHORTEST: u64 = 1_000 << 32;

    /// Creates a grid with `step` in 2^-32 ns; `None` if `step` is below 1 µs.
    fn new(origin: Nanos, step: u64) -> Option<Self> {
        let inverse = u64::try_from((1_u128 << 95) / u128::from(step.max(1))).ok()?;
        (step >= Self::SHORTEST).then_some(Self {
            origin,
            step,
            inverse,
        })
    }

    /// Returns the same grid, delayed by `shift`.
    #[must_use]
    pub fn shifted(self, shift: Nanos) -> Self {
        Self {
            origin: self.origin + shift,
            ..self
        }
    }

    /// Returns the step, rounded down to whole ns.
    pub fn step(&self) -> Nanos {
        Nanos(narrow(i128::from(self.step >> 32)))
    }

    /// Returns the step in ns, including its fraction, for display.
    pub fn step_f64(&self) -> f64 {
        self.step as f64 / 4_294_967_296.0
    }

    /// Returns the time of instant `n`, to the nearest ns. For a negative `n`, this is before
    /// `origin`.
    pub fn at(&self, n: i64) -> Nanos {
        self.origin
            + Nanos(narrow(
                (i128::from(n) * i128::from(self.step) + (1 << 31)) >> 32,
            ))
    }

    /// Returns the number of the last instant at or before `t`, or -1 if `t` is before the first
    /// instant.
    pub fn last_at(&self, t: Nanos) -> i64 {
        let passed = t - self.origin;
        if passed < Nanos::ZERO {
            return -1;
        }
        let guess = narrow((i128::from(passed.0) * i128::from(self.inverse)) >> 63);
        // The inverse and the instants are rounded down, so `guess` is off by at most two.
        let mut n = guess;
        while self.at(n + 1) <= t {
            n += 1;
        }
        n
    }

    /// Returns the number of the first instant at or after `t`.
    pub fn first_from(&self, t: Nanos) -> i64 {
        self.last_at(t - Nanos(1)) + 1
    }

    /// Returns how many steps it takes to cover `time`, rounded up. Like `timespec_to_jiffies`
    /// (`kernel/time/time.c`), it uses the actual tick length rather than 1/HZ.
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
        // The PIT counts 1193 input cycles per tick at 1000 Hz and 11932 at 100 Hz. A cycle takes
        // 1/1193182 s.
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
        // The count per tick, 6250.39, is truncated to 6250, so the ticks run fast by 62.5 µs per
        // second.
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
