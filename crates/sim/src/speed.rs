//! CPU speed: frequency scaling and clock modulation.

use ticktax_model::Nanos;

use crate::fixed::scale;

/// Speed of a CPU relative to its maximum.
///
/// A lower frequency slows down instructions but not memory accesses. Clock modulation (T-states,
/// `CLKMOD`) stops the clock for one or more eighths of the time, which slows down both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Frequency in thousandths of the maximum. Must be above 0.
    pub frequency: i64,
    /// Number of eighths of the time during which the clock runs, from 1 to 8.
    pub duty: i64,
}

impl Speed {
    /// The maximum speed.
    pub const FULL: Self = Self {
        frequency: 1000,
        duty: 8,
    };

    /// Returns whether both values are in range.
    pub fn is_sound(&self) -> bool {
        self.frequency > 0 && (1..=8).contains(&self.duty)
    }

    /// Returns how long a piece of work takes at this speed. At full speed, the work would spend
    /// `compute` on instructions and `memory` on memory accesses.
    pub fn wall(&self, compute: Nanos, memory: Nanos) -> Nanos {
        if *self == Self::FULL {
            return compute + memory;
        }
        let scaled = scale(compute.0, 1000, self.frequency) + memory.0;
        Nanos(scale(scaled, 8, self.duty))
    }
}

#[test]
fn memory_does_not_scale_with_the_frequency_but_with_the_duty_cycle() {
    let (compute, memory) = (Nanos(1_000), Nanos(3_000));
    let at = |frequency, duty| Speed { frequency, duty }.wall(compute, memory);
    assert_eq!(at(1000, 8), Nanos(4_000));
    assert_eq!(at(500, 8), Nanos(5_000));
    assert_eq!(at(1000, 1), Nanos(32_000));
    assert_eq!(at(500, 4), Nanos(10_000));
}
