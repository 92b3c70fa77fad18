//! `irq-work`: interrupts that a CPU sends to itself, one per period of the schedule.
//!
//! The kernel sends itself such an interrupt when it cannot wake a thread immediately
//! (`irq_work_queue`). To cause one, a thread samples a clock and asks to be woken for each sample
//! (`perf_output_wakeup`). On arm64, the interrupt is sent like an inter-processor interrupt, even
//! on machines with a single CPU.
//!
//! The kernel may send more of these interrupts for other reasons, so the truth includes the
//! kernel's own count.
//!
//! Some kernels take no samples on an idle CPU, and so cause no interrupts there. For example,
//! Linux 6.18 in a virtual machine took all of 200 samples while the CPU was busy, but none while
//! it was idle.

use std::fs;

use ticktax_model::Nanos;

use crate::clock;
use crate::control::{Control, Walk};
use crate::counters::CounterWatch;
use crate::error::InjectError;
use crate::plan::Plan;
use crate::sys::SampledClock;
use crate::truth::{EventLog, Truth};

use super::truth_of;

/// Name of the interrupt in kernel traces.
const ACCOUNT: &str = "irq_work";
/// Description of the interrupt in `/proc/interrupts`.
const ROW: &str = "IRQ work interrupts";

/// Samples the clock until the end. Each sample causes one interrupt.
pub(super) fn run(plan: &Plan, control: &Control) -> Result<Truth, InjectError> {
    let failed = |e| InjectError::system("sample a CPU's clock", e, "run as root");
    let period = plan.schedule.period;
    require_rate(period, most_a_second())?;
    let cpu_before = clock::thread_cpu();
    let start = control.begin();
    control.sleep_until(start + Truth::LEAD)?;
    let counted = CounterWatch::interrupts(ROW, plan.cpu);
    let clock = SampledClock::start(plan.cpu, period).map_err(failed)?;
    let first = clock::now();
    control.sleep_until(start + Truth::LEAD + plan.duration)?;
    let mut log = EventLog::new(0);
    log.happened = clock.samples();
    let due = u64::try_from((clock::now() - first).0 / period.0).unwrap_or(0);
    let counted = counted.end();
    let walk = Walk {
        start,
        end: clock::now(),
        stopped: control.stopped(),
        planned: due.max(log.happened),
        log,
        thread_cpu: (clock::thread_cpu() - cpu_before).max(Nanos::ZERO),
    };
    let mut truth = truth_of(plan, walk, ACCOUNT, &["local_timer"]);
    truth.counts.extend(counted);
    Ok(truth)
}

/// Returns the maximum sample rate per second, or `None` if it is unknown. The kernel lowers it if
/// processing the samples takes too long.
fn most_a_second() -> Option<i64> {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?;
    text.trim().parse().ok()
}

/// Rejects a period so short that the kernel would skip samples. `most` is the maximum sample rate
/// per second.
fn require_rate(period: Nanos, most: Option<i64>) -> Result<(), InjectError> {
    match most {
        Some(most) if 1_000_000_000 / period.0 >= most => Err(InjectError::Refused {
            kind: "irq-work",
            why: format!(
                "would be throttled: the kernel takes {most} samples a second \
                 (kernel.perf_event_max_sample_rate); give a longer period"
            ),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::require_rate;

    #[test]
    fn a_rate_that_the_kernel_throttles_is_refused() {
        let period = Nanos::from_micros(200);
        assert!(require_rate(period, Some(100_000)).is_ok());
        assert!(require_rate(period, None).is_ok());
        let error = require_rate(period, Some(5_000)).unwrap_err().to_string();
        assert!(error.contains("5000 samples a second"), "{error}");
    }
}
