//! Converts command-line arguments into a plan.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use ticktax_inject::{Disturbance, InjectError, Plan, Schedule, Window};
use ticktax_model::{Cpu, Nanos};

/// Runs one disturbance of known size and time on one CPU, and prints the truth about it.
///
/// All changes to the machine are undone at the end, even after Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "ticktax-inject", version)]
pub(crate) struct Args {
    /// Kind of disturbance.
    kind: Kind,
    /// Disturb this CPU [default: the last one allowed].
    #[arg(long)]
    cpu: Option<u32>,
    /// Set the interval between bursts.
    #[arg(long, default_value = "10ms")]
    period: Nanos,
    /// Set the length of an event (fifo, block, filter).
    #[arg(long, default_value = "200us")]
    length: Nanos,
    /// Delay each burst by a random time of at most this length.
    #[arg(long, default_value = "0us")]
    jitter: Nanos,
    /// Skip this share of the bursts.
    #[arg(long, default_value_t = 0.0)]
    missing: f64,
    /// Set the number of events per burst; each period has one burst.
    #[arg(long, default_value_t = 1)]
    burst: u32,
    /// Set the interval between the events of a burst.
    #[arg(long, default_value = "500us")]
    spacing: Nanos,
    /// Start bursts at random (Poisson); the period is their mean interval.
    #[arg(long)]
    random: bool,
    /// Set the seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run for this long.
    #[arg(long = "for", default_value = "5s")]
    duration: Nanos,
    /// Print the complete truth as JSON, including a list of the events.
    #[arg(long)]
    pub(crate) json: bool,
    /// Set the real-time priority (fifo).
    #[arg(long, default_value_t = 50)]
    priority: i32,
    /// Unmap this many pages per event (munmap).
    #[arg(long, default_value_t = 16)]
    pages: u32,
    /// Send this many packets per event (softirq).
    #[arg(long, default_value_t = 16)]
    packets: u32,
    /// Interrupt after this many cycles (overflow).
    #[arg(long, default_value_t = 1_000_000)]
    cycles: u64,
    /// Allow this much CPU time per period (throttle) [default: half of the period].
    #[arg(long)]
    quota: Option<Nanos>,
    /// Create the file in this directory (writeback).
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Write this many bytes per event (writeback).
    #[arg(long, default_value_t = 1 << 20)]
    bytes: u32,
    /// Start working at this fraction of the tick (dodge); negative values are before the tick.
    #[arg(long, default_value_t = Window::BETWEEN.from, allow_hyphen_values = true)]
    from: f64,
    /// Stop working at this fraction of the tick (dodge).
    #[arg(long, default_value_t = Window::BETWEEN.to)]
    to: f64,
    /// Also commit the file system's journal (writeback).
    #[arg(long)]
    fsync: bool,
}

/// The kinds of disturbances, in the form in which users type them.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A real-time thread that spins (root).
    Fifo,
    /// Function-call interrupts, sent with membarrier.
    Membarrier,
    /// TLB shootdowns, caused by munmap.
    Munmap,
    /// `NET_RX` softirqs, from UDP packets in a private network namespace (root).
    Softirq,
    /// One long `NET_RX` softirq, from filters in a private network namespace (root).
    Filter,
    /// Timer expiries.
    Timer,
    /// A process throttled by CFS bandwidth control (root).
    Throttle,
    /// A thread that is blocked in the kernel, immune to signals.
    Block,
    /// Stop-class work: a running thread is moved to another CPU and back.
    Stop,
    /// SIGALRM signals from setitimer.
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
