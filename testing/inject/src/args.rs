//! Parses command-line arguments into a plan.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use ticktax_inject::{Disturbance, InjectError, Plan, Schedule, Window};
use ticktax_model::{Cpu, Nanos};

/// Runs one disturbance of known size and time on one CPU, and prints the truth about it.
///
/// All changes to the machine are undone at the end, also after Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "ticktax-inject", version)]
pub(crate) struct Args {
    /// Kind of disturbance.
    kind: Kind,
    /// The CPU to disturb [default: the last one allowed].
    #[arg(long)]
    cpu: Option<u32>,
    /// Interval between events.
    #[arg(long, default_value = "10ms")]
    period: Nanos,
    /// Length of an event (fifo, block, filter).
    #[arg(long, default_value = "200us")]
    length: Nanos,
    /// Maximum random delay of each event.
    #[arg(long, default_value = "0us")]
    jitter: Nanos,
    /// Share of events that do not happen.
    #[arg(long, default_value_t = 0.0)]
    missing: f64,
    /// Events per burst. Each period has one burst.
    #[arg(long, default_value_t = 1)]
    burst: u32,
    /// Interval between the events of a burst.
    #[arg(long, default_value = "500us")]
    spacing: Nanos,
    /// Poisson arrivals. The period is their mean interval.
    #[arg(long)]
    random: bool,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Duration.
    #[arg(long = "for", default_value = "5s")]
    duration: Nanos,
    /// Print the complete truth as JSON, including a list of the events.
    #[arg(long)]
    pub(crate) json: bool,
    /// Real-time priority (fifo).
    #[arg(long, default_value_t = 50)]
    priority: i32,
    /// Pages unmapped per event (munmap).
    #[arg(long, default_value_t = 16)]
    pages: u32,
    /// Packets per event (softirq).
    #[arg(long, default_value_t = 16)]
    packets: u32,
    /// Cycles between interrupts (overflow).
    #[arg(long, default_value_t = 1_000_000)]
    cycles: u64,
    /// CPU time per period (throttle) [default: half of the period].
    #[arg(long)]
    quota: Option<Nanos>,
    /// Folder for the file (writeback).
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Bytes written per event (writeback).
    #[arg(long, default_value_t = 1 << 20)]
    bytes: u32,
    /// Start of the working time (dodge), as a share of the tick; negative values are before the
    /// tick.
    #[arg(long, default_value_t = Window::BETWEEN.from, allow_hyphen_values = true)]
    from: f64,
    /// End of the working time (dodge), as a share of the tick.
    #[arg(long, default_value_t = Window::BETWEEN.to)]
    to: f64,
    /// Also commit the file system's journal (writeback).
    #[arg(long)]
    fsync: bool,
}

/// The kinds, as typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A real-time thread that spins (root).
    Fifo,
    /// Function-call interrupts from membarrier.
    Membarrier,
    /// TLB shootdowns from munmap.
    Munmap,
    /// `NET_RX` softirqs from UDP in a private network namespace (root).
    Softirq,
    /// One long `NET_RX` softirq from filters in a private network namespace (root).
    Filter,
    /// Timer expiries.
    Timer,
    /// A process throttled by CFS bandwidth control (root).
    Throttle,
    /// A thread blocked in the kernel, immune to signals.
    Block,
    /// Stop-class work: a running thread is moved away and back.
    Stop,
    /// SIGALRM from setitimer.
    Itimer,
    /// Writeback of dirty pages.
    Writeback,
    /// A program that works in one part of each tick; --period is the length of the tick.
    Dodge,
    /// Interrupts from the performance counters (root).
    Overflow,
    /// Interrupts that the CPU sends to itself, one per --period (root).
    IrqWork,
    /// Nothing, as a control.
    None,
}

impl Args {
    /// Builds the plan.
    pub(crate) fn plan(&self) -> Result<Plan, InjectError> {
        let cpu = self
            .cpu
            .map_or_else(ticktax_inject::default_cpu, |cpu| Ok(Cpu(cpu)))?;
        let schedule = Schedule {
            period: self.period,
            length: self.length,
            jitter: self.jitter,
            missing: self.missing,
            burst: self.burst,
            spacing: self.spacing,
            random: self.random,
            seed: self.seed,
        };
        let plan = Plan::new(self.disturbance(), cpu);
        Ok(plan.schedule(schedule).duration(self.duration))
    }

    fn disturbance(&self) -> Disturbance {
        match self.kind {
            Kind::Fifo => Disturbance::Fifo {
                priority: self.priority,
            },
            Kind::Membarrier => Disturbance::Membarrier,
            Kind::Munmap => Disturbance::Munmap { pages: self.pages },
            Kind::Softirq => Disturbance::Softirq {
                packets: self.packets,
            },
            Kind::Filter => Disturbance::Filter,
            Kind::Timer => Disturbance::Timer,
            Kind::Throttle => {
                let quota = self.quota.unwrap_or(Nanos(self.period.0 / 2));
                Disturbance::Throttle { quota }
            }
            Kind::Block => Disturbance::Block,
            Kind::Stop => Disturbance::Stop,
            Kind::Dodge => Disturbance::Dodge {
                window: Window {
                    from: self.from,
                    to: self.to,
                },
            },
            Kind::Itimer => Disturbance::Itimer,
            Kind::Writeback => Disturbance::Writeback {
                dir: self.dir.clone(),
                bytes: self.bytes,
                fsync: self.fsync,
            },
            Kind::Overflow => Disturbance::Overflow {
                cycles: self.cycles,
            },
            Kind::IrqWork => Disturbance::IrqWork,
            Kind::None => Disturbance::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Args;
    use clap::{CommandFactory, Parser};
    use ticktax_model::Nanos;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn options_reach_the_plan() {
        let typed = "ticktax-inject timer --cpu 3 --period 2ms --for 1s --random --missing 0.2";
        let plan = Args::try_parse_from(typed.split(' '))
            .unwrap()
            .plan()
            .unwrap();
        assert_eq!(
            (plan.cpu.0, plan.schedule.period),
            (3, Nanos::from_millis(2))
        );
        assert!(plan.schedule.random);
        assert_eq!(plan.duration, Nanos::from_secs(1));
    }
}
