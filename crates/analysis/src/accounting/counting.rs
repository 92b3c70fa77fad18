//! How a kernel counts CPU time, and when its ticks are due.

use ticktax_model::accounting::{Counting, Method};
use ticktax_model::machine::Machine;
use ticktax_model::{Cpu, CpuList, Nanos};

/// Returns how this machine's kernel counts CPU time, according to its configuration.
pub fn counting(machine: &Machine) -> Counting {
    let known = !machine.accounting.is_empty();
    let hz = machine.hz_configured.filter(|&hz| hz > 0);
    Counting {
        options: machine.accounting.clone(),
        method: method(machine),
        tick: hz.map(|hz| Nanos(1_000_000_000 / i64::from(hz))),
        interrupts_measured: known.then(|| has(machine, "IRQ_TIME_ACCOUNTING")),
    }
}

fn method(machine: &Machine) -> Option<Method> {
    if has(machine, "VIRT_CPU_ACCOUNTING_NATIVE") {
        Some(Method::Measured)
    } else if has(machine, "VIRT_CPU_ACCOUNTING_GEN") {
        Some(Method::MeasuredWithoutTick)
    } else {
        (!machine.accounting.is_empty()).then_some(Method::Sampled)
    }
}

fn has(machine: &Machine, option: &str) -> bool {
    machine.accounting.iter().any(|name| name == option)
}

/// Returns whether the columns of `cpu` are sampled by its tick, or `None` if the kernel's
/// configuration is unknown. `VIRT_CPU_ACCOUNTING_GEN` samples on most CPUs. It measures on CPUs
/// with context tracking (`include/linux/vtime.h`, `vtime_accounting_enabled_cpu`), which are the
/// `nohz_full` CPUs.
pub fn sampled(machine: &Machine, cpu: Cpu) -> Option<bool> {
    Some(match method(machine)? {
        Method::Sampled => true,
        Method::MeasuredWithoutTick => !nohz_full(machine).contains(cpu),
        Method::Measured => false,
    })
}

/// Returns the CPUs whose tick can stop while they are busy. The list comes from sysfs or, if that
/// file is missing, from the kernel command line.
fn nohz_full(machine: &Machine) -> CpuList {
    let in_force = machine.configured.file("sys/devices/system/cpu/nohz_full");
    let list = in_force.or_else(|| machine.parameter("nohz_full"));
    // The file contains `(null)` if the list is empty.
    list.and_then(|list| list.parse().ok()).unwrap_or_default()
}

/// The grid on which one CPU's ticks are due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grid(Option<Nanos>);

impl Grid {
    /// A tick may be early by at most 1/`EARLY` of the period. One that is earlier starts a new
    /// grid.
    const EARLY: i64 = 20;
    /// Number of ticks over which the grid adapts to a timer that is slower than its nominal rate.
    const FOLLOW: i64 = 64;

    /// Adds a tick. Interrupt delays can make a tick late, but never early.
    pub(super) fn tick(&mut self, at: Nanos, tick: Nanos) {
        let slack = tick.0 / Self::EARLY;
        let due = self.0.map(|due| {
            let periods = ((at - due).0 + slack).div_euclid(tick.0);
            due + Nanos(periods * tick.0)
        });
        self.0 = Some(match (self.0, due) {
            (Some(before), Some(due)) if due > before && at >= due => {
                due + Nanos((at - due).0.min(slack) / Self::FOLLOW)
            }
            _ => at,
        });
    }

    /// Returns the number of ticks due at or after `from` and before `to`. Before the first tick,
    /// this is 0.
    pub(super) fn due(&self, from: Nanos, to: Nanos, tick: Nanos) -> u64 {
        let Some(due) = self.0 else { return 0 };
        let before = |time: Nanos| (time - due).0.saturating_sub(1).div_euclid(tick.0);
        u64::try_from(before(to) - before(from)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Grid, Nanos};

    const TICK: Nanos = Nanos::from_millis(4);

    #[test]
    fn a_late_tick_does_not_move_the_grid_and_a_lost_one_is_still_due() {
        let ms = Nanos::from_millis;
        let mut grid = Grid::default();
        assert_eq!(grid.due(ms(0), ms(100), TICK), 0);
        // The first tick and the one due at 12 ms are late. The one due at 16 ms never fires.
        for at in [5, 8, 15, 20, 24] {
            grid.tick(ms(at), TICK);
        }
        assert_eq!(grid.due(ms(7), ms(9), TICK), 1);
        assert_eq!(grid.due(ms(9), ms(11), TICK), 0);
        assert_eq!(grid.due(ms(16), ms(20), TICK), 1);
        assert_eq!(grid.due(ms(6), ms(26), TICK), 5);
    }
}
