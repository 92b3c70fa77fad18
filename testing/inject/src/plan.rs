//! The kinds of disturbances, and plans for running them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use ticktax_model::{Cpu, Nanos};

use crate::error::InjectError;
use crate::place;
use crate::schedule::Schedule;

/// A plan for one disturbance on one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The kind of disturbance, with its parameters.
    pub disturbance: Disturbance,
    /// The CPU to disturb.
    pub cpu: Cpu,
    /// Times at which the events happen.
    pub schedule: Schedule,
    /// Duration of the disturbance.
    pub duration: Nanos,
}

/// The kinds of disturbances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disturbance {
    /// A `SCHED_FIFO` thread that spins.
    Fifo {
        /// Real-time priority, from 1 to 99.
        priority: i32,
    },
    /// `membarrier` calls from another CPU. Each call sends a function-call interrupt.
    Membarrier,
    /// `munmap` calls from another CPU. Each call causes a TLB shootdown.
    Munmap {
        /// Number of pages mapped, touched and unmapped per event.
        pages: u32,
    },
    /// `NET_RX` softirqs, caused by UDP packets over the loopback device of a private network
    /// namespace.
    Softirq {
        /// Number of packets per event, from 1 to 1024.
        packets: u32,
    },
    /// One long `NET_RX` softirq, in which many sockets inspect a packet on a private loopback
    /// device.
    Filter,
    /// Expiries of a high-resolution timer.
    Timer,
    /// A CPU-bound process that is throttled by CFS bandwidth control.
    Throttle {
        /// CPU time that the process may use in each period of the schedule.
        quota: Nanos,
    },
    /// A thread that is blocked in the kernel. It is immune to signals and uses no CPU time.
    Block,
    /// Stop-class work: moves a running thread to another CPU and back.
    Stop,
    /// `SIGALRM` signals from `setitimer`.
    Itimer,
    /// Writeback of the dirty pages of a file.
    Writeback {
        /// Directory in which the file is created. It must not be on a tmpfs.
        dir: PathBuf,
        /// Number of bytes made dirty per event.
        bytes: u32,
        /// Whether to call `fsync`, which also commits the file system's journal. If not, only the
        /// pages are written.
        fsync: bool,
    },
    /// A program that works in only one part of each kernel tick. The schedule's period is the
    /// length of a tick.
    Dodge {
        /// The part of each tick in which the program works.
        window: Window,
    },
    /// Interrupts from the CPU's performance counter.
    Overflow {
        /// Number of cycles between two interrupts, at least 10 000.
        cycles: u64,
    },
    /// Interrupts that the CPU sends to itself.
    IrqWork,
    /// A control that does not disturb anything.
    None,
}

/// A part of each tick period. Its bounds are fractions of the period, relative to the tick, and
/// negative before the tick.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Start, which must be greater than -1.
    pub from: f64,
    /// End, which must be less than 1 and after `from`.
    pub to: f64,
}

impl Window {
    /// Between two ticks, far from both. Samples at the tick never find the program running, even
    /// though it runs 60 % of the time.
    pub const BETWEEN: Self = Self { from: 0.2, to: 0.8 };
    /// Around each tick. Samples at the tick always find the program running, even though it runs
    /// only 10 % of the time.
    pub const AROUND: Self = Self {
        from: -0.07,
        to: 0.03,
    };

    /// Returns the start of the window relative to a tick. `tick` is the tick period.
    pub fn begin(self, tick: Nanos) -> Nanos {
        share(tick, self.from)
    }

    /// Returns the end of the window relative to a tick. `tick` is the tick period.
    pub fn end(self, tick: Nanos) -> Nanos {
        share(tick, self.to)
    }

    fn is_sound(self) -> bool {
        self.from > -1.0 && self.from < self.to && self.to < 1.0 && self.to - self.from < 0.95
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a part of a tick")]
fn share(tick: Nanos, part: f64) -> Nanos {
    Nanos((tick.0 as f64 * part) as i64)
}

impl Disturbance {
    /// Returns the name used on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fifo { .. } => "fifo",
            Self::Membarrier => "membarrier",
            Self::Munmap { .. } => "munmap",
            Self::Softirq { .. } => "softirq",
            Self::Filter => "filter",
            Self::Timer => "timer",
            Self::Throttle { .. } => "throttle",
            Self::Block => "block",
            Self::Stop => "stop",
            Self::Dodge { .. } => "dodge",
            Self::Itimer => "itimer",
            Self::Writeback { .. } => "writeback",
            Self::Overflow { .. } => "overflow",
            Self::IrqWork => "irq-work",
            Self::None => "none",
        }
    }

    /// Returns the kernel's name for the thread that causes the events.
    pub fn comm(&self) -> &'static str {
        match self {
            Self::Fifo { .. } => "ttx-inj-fifo",
            Self::Membarrier => "ttx-inj-membar",
            Self::Munmap { .. } => "ttx-inj-munmap",
            Self::Softirq { .. } => "ttx-inj-netrx",
            Self::Filter => "ttx-inj-filter",
            Self::Timer => "ttx-inj-timer",
            Self::Throttle { .. } => "ttx-inj-throttl",
            Self::Block => "ttx-inj-block",
            Self::Stop => "ttx-inj-stop",
            Self::Dodge { .. } => "ttx-inj-dodge",
            Self::Itimer => "ttx-inj-itimer",
            Self::Writeback { .. } => "ttx-inj-write",
            Self::Overflow { .. } => "ttx-inj-overflo",
            Self::IrqWork => "ttx-inj-irqwork",
            Self::None => "ttx-inj-none",
        }
    }

    /// Returns the action that requires root, or `None` if the disturbance does not require root.
    pub fn needs_root(&self) -> Option<&'static str> {
        match self {
            Self::Fifo { .. } => Some("give a thread a real-time priority"),
            Self::Softirq { .. } | Self::Filter => Some("make a network namespace"),
            Self::Throttle { .. } => Some("make a cgroup"),
            Self::Overflow { .. } => Some("count the cycles of a CPU"),
            Self::IrqWork => Some("sample a CPU's clock"),
            _ => None,
        }
    }
}

impl Plan {
    /// Creates a plan with the default schedule and a duration of one second.
    pub fn new(disturbance: Disturbance, cpu: Cpu) -> Self {
        Self {
            disturbance,
            cpu,
            schedule: Schedule::default(),
            duration: Nanos::from_secs(1),
        }
    }

    /// Replaces the schedule.
    #[must_use]
    pub fn schedule(self, schedule: Schedule) -> Self {
        Self { schedule, ..self }
    }

    /// Replaces the duration.
    #[must_use]
    pub fn duration(self, duration: Nanos) -> Self {
        Self { duration, ..self }
    }

    /// Returns an error if this process cannot run the plan on this machine.
    pub fn check(&self) -> Result<(), InjectError> {
        let kind = self.disturbance.name();
        let refused = |why: String| Err(InjectError::Refused { kind, why });
        self.schedule.check()?;
        if self.duration <= Nanos::ZERO {
            return refused(format!(
                "cannot run for {}: give a longer time",
                self.duration
            ));
        }
        match self.disturbance {
            Disturbance::Fifo { priority } if !(1..=99).contains(&priority) => {
                return refused(format!("has no priority {priority}: give one from 1 to 99"));
            }
            Disturbance::Fifo { .. } if self.schedule.load() > MAX_FIFO_LOAD => {
                return refused(format!(
                    "would take {:.0} % of the CPU, and the kernel stops real-time threads that \
                     take 95 %: give a longer period or a shorter length",
                    100.0 * self.schedule.load()
                ));
            }
            Disturbance::Munmap { pages } if !(1..=65536).contains(&pages) => {
                return refused(format!("cannot map {pages} pages: give 1 to 65536"));
            }
            Disturbance::Softirq { packets } if !(1..=1024).contains(&packets) => {
                return refused(format!(
                    "cannot send {packets} packets: give 1 to 1024 an event"
                ));
            }
            Disturbance::Overflow { cycles: 0..10_000 } => {
                return refused("would take all of the CPU: give 10000 cycles or more".to_owned());
            }
            Disturbance::IrqWork if !self.schedule.is_plain() => {
                return refused(
                    "keeps the clock's own beat: leave jitter, missing, burst and random out"
                        .to_owned(),
                );
            }
            Disturbance::IrqWork if self.schedule.period < SHORTEST_SAMPLING => {
                return refused(format!(
                    "would take too much of the CPU: give a period of {SHORTEST_SAMPLING} or more"
                ));
            }
            Disturbance::Writeback { bytes: 0, .. } => {
                return refused("has nothing to write: give at least 1 byte".to_owned());
            }
            Disturbance::Throttle { quota } => self.check_throttle(quota)?,
            Disturbance::Dodge { window } if !window.is_sound() => {
                return refused(
                    "takes a part of a tick: --from above -1, --to after it and below 1".to_owned(),
                );
            }
            _ => {}
        }
        if let Some(why) = self.disturbance.needs_root()
            && !nix::unistd::geteuid().is_root()
        {
            return Err(InjectError::NeedsRoot { kind, why });
        }
        place::check(self.cpu)
    }

    /// Checks the period and the quota against the limits of CFS bandwidth control.
    fn check_throttle(&self, quota: Nanos) -> Result<(), InjectError> {
        let refused = |why| {
            Err(InjectError::Refused {
                kind: "throttle",
                why: String::from(why),
            })
        };
        let period = self.schedule.period;
        if !self.schedule.is_plain() {
            return refused(
                "keeps the kernel's own beat: leave jitter, missing, burst and random out",
            );
        }
        if !(Nanos::from_millis(1)..=Nanos::from_secs(1)).contains(&period) {
            return refused("takes a period from 1 ms to 1 s, as the kernel does");
        }
        if quota < Nanos::from_millis(1) || quota >= period {
            return refused("takes a quota from 1 ms to below the period");
        }
        Ok(())
    }
}

/// Minimum interval between samples. With shorter ones, the kernel might throttle the samples: by
/// default, `perf_event_max_sample_rate` is 100 000 per second.
const SHORTEST_SAMPLING: Nanos = Nanos::from_micros(100);

/// Maximum share of the CPU that `fifo` may use. It is below the kernel's real-time limit of 95 %
/// (`sched_rt_runtime_us`), above which the thread would be throttled.
const MAX_FIFO_LOAD: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::{Disturbance, Plan};
    use crate::schedule::Schedule;
    use ticktax_model::{Cpu, Nanos};

    #[test]
    fn invalid_plans_are_refused_in_one_line() {
        let ms = Nanos::from_millis;
        let random = Schedule {
            random: true,
            ..Schedule::default()
        };
        let full = Schedule::every(ms(10), ms(10));
        let throttle = |quota| Plan::new(Disturbance::Throttle { quota }, Cpu(0));
        let fifo = |priority| Plan::new(Disturbance::Fifo { priority }, Cpu(0));
        for (plan, says) in [
            (fifo(0), "priority 0"),
            (fifo(50).schedule(full), "100 % of the CPU"),
            (throttle(ms(10)), "below the period"),
            (throttle(ms(5)).schedule(random), "own beat"),
            (
                Plan::new(Disturbance::Softirq { packets: 0 }, Cpu(0)),
                "0 packets",
            ),
            (
                Plan::new(Disturbance::Overflow { cycles: 9_999 }, Cpu(0)),
                "10000 cycles",
            ),
            (
                Plan::new(Disturbance::IrqWork, Cpu(0)).schedule(random),
                "own beat",
            ),
            (
                Plan::new(Disturbance::IrqWork, Cpu(0))
                    .schedule(Schedule::every(Nanos(99_999), Nanos(1))),
                "100 µs or more",
            ),
            (
                Plan::new(Disturbance::None, Cpu(0)).duration(Nanos::ZERO),
                "longer time",
            ),
            (Plan::new(Disturbance::None, Cpu(8191)), "CPU 8191"),
        ] {
            let text = plan.check().unwrap_err().to_string();
            assert!(text.contains(says), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn names_fit_into_the_kernels_15_bytes() {
        for kind in [
            Disturbance::Throttle { quota: Nanos::ZERO },
            Disturbance::Membarrier,
            Disturbance::IrqWork,
        ] {
            assert!(kind.comm().len() <= 15);
        }
    }
}
