//! Timers that KVM runs for guests: their functions' addresses, and what the tracer counted.

use std::fs;
use std::fs::File;
use std::io::{BufRead, BufReader};

use aya::EbpfLoader;
use ticktax_model::guests::{TimerCost, TimerInterval, TimerSums};

use super::nanos;
use crate::load::Sizes;
use crate::object::{global, map};
use crate::record::VcpuTimer;

/// Facts about KVM that the BPF programs need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kvm {
    /// Address of the function of the local APIC's timer, or 0 if it is unknown.
    lapic: u64,
    /// Address of the function of the timer chip's timer, or 0 if it is unknown.
    pit: u64,
    /// 1 if exits have VMX's reasons. KVM may then also use a timer of the processor.
    exits_are_vmx: u32,
    /// 1 if exits have an exception class, as on arm64.
    exits_are_traps: u32,
}

impl Kvm {
    /// Reads the facts of the running kernel. `is_watched`: whether virtual machines are watched.
    pub(crate) fn read(is_watched: bool) -> Self {
        let facts = if is_watched {
            Self::of_kernel()
        } else {
            Self::default()
        };
        Self {
            exits_are_traps: u32::from(cfg!(target_arch = "aarch64")),
            ..facts
        }
    }

    /// Sets the constants and the sizes of the maps.
    pub(crate) fn prepare<'a>(&'a self, loader: &mut EbpfLoader<'a>, sizes: Sizes) {
        let entries = u32::try_from(sizes.vcpu_entries()).unwrap_or(u32::MAX);
        loader
            .override_global(global::EXITS_ARE_TRAPS, &self.exits_are_traps, true)
            .override_global(global::EXITS_ARE_VMX, &self.exits_are_vmx, true)
            .override_global(global::LAPIC_TIMER_FN, &self.lapic, true)
            .override_global(global::PIT_TIMER_FN, &self.pit, true)
            .map_max_entries(map::VCPUS, entries)
            .map_max_entries(map::VCPU_OWNERS, entries)
            .map_max_entries(map::GUEST_TIMERS, 2 * entries)
            .map_max_entries(map::PIT_WORKERS, entries);
    }

    fn of_kernel() -> Self {
        let symbols = File::open("/proc/kallsyms").map(BufReader::new);
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        symbols.map_or_else(|_| Self::default(), |symbols| Self::find(symbols, &cpuinfo))
    }

    fn find(mut symbols: impl BufRead, cpuinfo: &str) -> Self {
        let has_vmx = cpuinfo.split_whitespace().any(|flag| flag == "vmx");
        let mut timers = Self {
            exits_are_vmx: u32::from(has_vmx),
            ..Self::default()
        };
        let mut line = String::new();
        while symbols.read_line(&mut line).is_ok_and(|read| read > 0) {
            let mut words = line.split_ascii_whitespace();
            let address = words
                .next()
                .and_then(|hex| u64::from_str_radix(hex, 16).ok());
            match (address, words.nth(1), words.next()) {
                (Some(address), Some("apic_timer_fn"), Some("[kvm]") | None) => {
                    timers.lapic = address;
                }
                (Some(address), Some("pit_timer_fn"), Some("[kvm]") | None) => {
                    timers.pit = address;
                }
                _ => {}
            }
            line.clear();
        }
        timers
    }
}

/// Converts the sums of a vCPU's timer. Returns `None` if the timer never expired.
pub(super) fn timer_sums(timer: &VcpuTimer) -> Option<TimerSums> {
    let used = timer.periods.iter().filter(|slot| slot.weight > 0);
    let mut frequent: Vec<TimerInterval> = used
        .map(|slot| TimerInterval {
            count: slot.count,
            total: nanos(slot.sum),
        })
        .collect();
    frequent.sort_by_key(|interval| (std::cmp::Reverse(interval.count), interval.total));
    (timer.ticks > 0).then(|| TimerSums {
        ticks: timer.ticks,
        pit_ticks: timer.pit_ticks,
        armed: timer.armed,
        first: nanos(timer.first),
        last: nanos(timer.last),
        intervals: timer.intervals,
        frequent,
        cost: TimerCost {
            wakeups: timer.windows,
            ticks: timer.cost_ticks,
            exits: timer.cost_exits,
            host: nanos(timer.cost_host_ns),
            guest: nanos(timer.cost_guest_ns),
            squares_16ns: timer.cost_squares,
        },
        busy_ticks: timer.other_ticks,
    })
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::*;

    #[test]
    fn the_functions_of_kvm_are_found() {
        let symbols = "ffffffff81000000 T apic_timer_fn_of_another\n\
            ffffffff81000010 t apic_timer_fn\t[other]\n\
            ffffffffc0a00010 t apic_timer_fn\t[kvm]\n\
            ffffffffc0a00020 t pit_timer_fn\t[kvm]\n";
        let timers = Kvm::find(symbols.as_bytes(), "flags : fpu svm");
        assert_eq!(timers.lapic, 0xffff_ffff_c0a0_0010);
        assert_eq!(timers.pit, 0xffff_ffff_c0a0_0020);
        assert_eq!(timers.exits_are_vmx, 0);
        let none = Kvm::find(&b"0 t nothing\n"[..], "flags : fpu vmx");
        assert_eq!((none.lapic, none.pit), (0, 0));
        assert_eq!(none.exits_are_vmx, 1);
    }

    #[test]
    fn a_timer_that_never_expired_has_no_sums() {
        let mut timer = VcpuTimer::default();
        assert_eq!(timer_sums(&timer), None);
        timer.ticks = 3;
        timer.periods[5].weight = 1;
        (timer.periods[5].count, timer.periods[5].sum) = (2, 8_000_000);
        let sums = timer_sums(&timer).unwrap();
        assert_eq!(sums.frequent[0].mean(), Nanos(4_000_000));
        assert_eq!(sums.frequent.len(), 1);
    }
}
