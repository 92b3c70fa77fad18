//! What the kernel's own accounting says of CPU time, beside what really ran.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::CpuTimes;
use crate::{Cpu, CpuList, Nanos};

/// The accounting check: `/proc/stat`, `/proc/PID/stat` and what `top` makes of them, against the
/// books.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountingStatement {
    /// How this kernel counts.
    pub counting: Counting,
    /// Each CPU's line of `/proc/stat`.
    pub cpus: Vec<CpuCheck>,
    /// The programs that ran, or were said to have run, the longest.
    pub programs: Vec<ProgramCheck>,
    /// How many further programs there were.
    pub programs_left_out: u64,
    /// Online CPUs that were not watched. Where there are some, [`ProgramCheck::shown`] is left out:
    /// a program's own time is of all CPUs.
    #[serde(default)]
    pub unwatched: CpuList,
}

/// How a kernel counts CPU time, as far as its configuration tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counting {
    /// The options in force, as the kernel's configuration names them.
    pub options: Vec<String>,
    /// Where a CPU's user and system times are from; `None` where the configuration is not known.
    pub method: Option<Method>,
    /// From one tick to the next, by the configured HZ; `None` where that is not known.
    #[serde(rename = "tick_ns")]
    pub tick: Option<Nanos>,
    /// Whether interrupts and softirqs are measured (`IRQ_TIME_ACCOUNTING`), and not taken for
    /// the time of whatever they interrupt.
    pub interrupts_measured: Option<bool>,
}

/// How a CPU's user and system times come about (`init/Kconfig`, "Cputime accounting").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// `TICK_CPU_ACCOUNTING`: what runs when the tick comes is charged a whole tick.
    Sampled,
    /// `VIRT_CPU_ACCOUNTING_GEN`: measured at each crossing on `nohz_full` CPUs, sampled on all
    /// others.
    MeasuredWithoutTick,
    /// `VIRT_CPU_ACCOUNTING_NATIVE`: measured at each crossing into and out of the kernel.
    Measured,
}

/// One CPU: what `/proc/stat` said, and what was traced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuCheck {
    /// Which CPU.
    pub cpu: Cpu,
    /// The time between the two readings of `/proc/stat`.
    #[serde(rename = "between_ns")]
    pub between: Nanos,
    /// What the columns grew by.
    pub columns: CpuTimes,
    /// What they say was busy: user, nice, system, irq and softirq, without what they hold of a
    /// spinning probe or a soaker.
    #[serde(rename = "shown_busy_ns")]
    pub shown_busy: Nanos,
    /// Busy as `top` shows it, a share of all columns together, 0 to 1.
    pub shown_share: f64,
    /// The part of [`CpuCheck::between`] that no column counts; below 0 where columns count it twice.
    #[serde(rename = "uncounted_ns")]
    pub uncounted: Nanos,
    /// The time that the books were open.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// What was busy by the books: programs, kernel threads, interrupts with their entry and exit,
    /// ticktax's own work. At level `proc` what the witness did not get. `None` where it is not known.
    #[serde(rename = "busy_ns")]
    pub busy: Option<Nanos>,
    /// That as a share of [`CpuCheck::elapsed`], 0 to 1.
    pub busy_share: Option<f64>,
    /// What no source explains: threads whose switches the kernel did not report, and gaps. It is not in
    /// [`CpuCheck::busy`], and may have been busy.
    #[serde(default, rename = "unexplained_ns")]
    pub unexplained: Nanos,
    /// Interrupts, softirqs and NMIs by the books, their entry and exit included.
    #[serde(rename = "interrupts_ns")]
    pub interrupts: Option<Nanos>,
    /// Time that neither the kernel nor a program had: the hypervisor's or the firmware's.
    #[serde(rename = "outside_ns")]
    pub outside: Option<Nanos>,
    /// What was left for others by a witness that used it up.
    pub left: Option<Left>,
    /// Ticks that came.
    pub ticks: Option<u64>,
    /// Why the two differ, and who is shown too much or too little, the weightiest first.
    pub causes: Vec<Bias>,
}

impl CpuCheck {
    /// By how much `top` is off, as a share of 1: above 0 where it shows more than was traced.
    pub fn off(&self) -> Option<f64> {
        Some(self.shown_share - self.busy_share?)
    }

    /// The same as far as it is certain: 0 where what is unexplained, being busy, would make up for it.
    pub fn surely_off(&self) -> Option<f64> {
        let off = self.off()?;
        let unexplained = self.unexplained.share_of(self.elapsed);
        Some(if off > 0.0 {
            (off - unexplained).max(0.0)
        } else {
            off
        })
    }
}

/// Time that was there to be used, as a thread of the lowest priority found it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Left {
    /// Who found it.
    pub witness: Witness,
    /// How long it looked.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// How much it got.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// Who uses up what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Witness {
    /// The spinning probe: its loop's time between gaps.
    Spin,
    /// The soaker: the work that it got done, times what a block of it takes.
    Soaker,
}

/// One thing that makes a CPU's columns differ from what was traced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bias {
    /// What happened.
    pub kind: BiasKind,
    /// By how much columns hold too much, or below 0 too little, because of it: of the CPU's busy
    /// time or, for [`BiasKind::TickPhase`], of that program's, whose samples another may have got.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// The program, where it is one's.
    pub program: Option<String>,
    /// Its process id.
    pub pid: Option<i32>,
    /// How long what it is about was on the CPU.
    #[serde(rename = "ran_ns")]
    pub ran: Nanos,
    /// What the columns hold of that.
    #[serde(rename = "sampled_ns")]
    pub sampled: Nanos,
}

/// Why a CPU's columns and its books differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BiasKind {
    /// The samples of all threads but a probe's, together: the CPU's net of what follows the tick
    /// and of chance.
    Sampling,
    /// A program's bursts keep to a phase of the tick, so that samples find it too rarely or too
    /// often; more than chance does at five standard deviations.
    TickPhase,
    /// Ticks that were due while a task ran did not come, so that no task was charged: as far as the columns are
    /// short of their time.
    TicksLost,
    /// Threads ran whose switches the kernel did not report: columns have their time, and no account of a
    /// program or of the kernel has it.
    NotReported,
    /// Interrupts are not measured: their time is in the columns of what they interrupted, or
    /// nowhere where that was idling or a probe.
    InterruptsNotMeasured,
    /// The hypervisor had the CPU, and its clock did not say so.
    StolenSilently,
    /// The hypervisor's clock says that it had the CPU for longer than was seen: the rest is in the time
    /// of whoever had the CPU by the books.
    StolenUnseen,
}

/// One program: what `/proc/PID/stat` said, and what was traced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramCheck {
    /// Its name.
    pub name: String,
    /// Its process id.
    pub pid: i32,
    /// How long it ran by the books, interrupts left out; `None` at level `proc`.
    #[serde(rename = "ran_ns")]
    pub ran: Option<Nanos>,
    /// How long it was on a CPU, interrupts that came meanwhile included.
    #[serde(rename = "on_cpu_ns")]
    pub on_cpu: Option<Nanos>,
    /// What `/proc/PID/stat` said, which `top` shows; `None` where it was not there to be read at
    /// both ends.
    #[serde(rename = "shown_ns")]
    pub shown: Option<Nanos>,
    /// What a sample at each tick makes of it: how a CPU's columns, and on kernels that do not
    /// scale them its own times, count it. Where a CPU's columns are measured, what it was on
    /// that CPU. `None` where the ticks' times are not known, or no CPU is sampled.
    #[serde(rename = "sampled_ns")]
    pub sampled: Option<Nanos>,
    /// How many standard deviations that is, at least, from what chance would make of it, with the
    /// ticks that did not come counted as if they had.
    pub deviations: Option<f64>,
}
