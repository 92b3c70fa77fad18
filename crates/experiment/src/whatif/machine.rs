//! The modelled machine that is most like a recorded one.

use ticktax_model::machine::{Machine as Facts, TickMode};
use ticktax_model::workload::Workload;
use ticktax_model::{Cpu, Nanos};
use ticktax_sim::{Costs, Machine, Policy, TimerRule, base_slice, settings};

/// The tick that is assumed where none is known.
const COMMON_HZ: u32 = 250;

/// The machine, and what had to be assumed of it.
pub fn machine(facts: &Facts, work: &Workload) -> (Machine, Vec<String>) {
    let mut assumed = Vec::new();
    let cpus = work.cpus.len().max(1);
    let hz = facts.hz_configured.filter(|&hz| hz > 0);
    if hz.is_none() {
        assumed.push(format!(
            "a tick of {COMMON_HZ} Hz: the recording does not say which"
        ));
    }
    let policy = policy(facts, cpus, &mut assumed);
    let mut machine = Machine::new(cpus, u64::from(hz.unwrap_or(COMMON_HZ)), policy);
    machine.tick = match &facts.tick_mode {
        Some(TickMode::NohzFull { cpus: full }) => TickMode::NohzFull {
            // The model counts the recorded CPUs from 0.
            cpus: (0_u32..)
                .zip(&work.cpus)
                .filter(|(_, cpu)| full.contains(**cpu))
                .map(|(place, _)| Cpu(place))
                .collect(),
        },
        Some(mode) => mode.clone(),
        None => {
            assumed.push("a tick that stops while a CPU idles".to_owned());
            TickMode::NohzIdle
        }
    };
    machine.timers = if facts.high_resolution == Some(false) {
        TimerRule::FirstTick
    } else {
        TimerRule::HighResolution
    };
    let half = 1_000_000_000 / i64::try_from(machine.hz).unwrap_or(i64::MAX) / 2;
    machine.costs = Costs {
        tick: (work.tick.interrupt + work.tick.softirqs).min(Nanos(half - 1)),
        timer: work.timer,
        // Switching is in the work of whoever was switched to.
        switch: Nanos::ZERO,
    };
    (machine, assumed)
}

/// What a modelled machine is set to, in the words of `--vary`.
pub fn in_words(machine: &Machine) -> String {
    format!("a machine with {}", settings::told(machine).join(" "))
}

/// The scheduler of a kernel, by its release.
fn policy(facts: &Facts, cpus: usize, assumed: &mut Vec<String>) -> Policy {
    let mut numbers = facts.kernel.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    let release = (next(), next(), next());
    let eevdf = Policy::Eevdf {
        slice: base_slice(release.0.zip(release.1), cpus),
        hrtick: false,
    };
    if let Some(policy) = simulated(&facts.kernel, eevdf) {
        return policy;
    }
    match release {
        (Some(2), Some(4), _) => Policy::Goodness,
        (Some(2), Some(6), Some(patch)) if patch < 23 => Policy::O1,
        (Some(major), Some(minor), _) if (major, minor) < (6, 6) => Policy::Fair,
        (Some(_), Some(_), _) => {
            let Policy::Eevdf { slice, .. } = eevdf else {
                return eevdf;
            };
            assumed.push(format!(
                "a slice of {slice}, the kernel's own for so many CPUs, and the scheduler of \
                 mainline"
            ));
            eevdf
        }
        _ => {
            assumed.push("the scheduler of Linux 6.6 and later: the release is not known".into());
            eevdf
        }
    }
}

/// The policy that the model itself says it had.
fn simulated(kernel: &str, eevdf: Policy) -> Option<Policy> {
    let name = kernel.split_once(" timers").map(|(name, _)| name)?;
    [
        ("GoodnessSlices", Policy::GoodnessSlices),
        ("GoodnessPerCpu", Policy::GoodnessPerCpu),
        ("Goodness", Policy::Goodness),
        ("O1", Policy::O1),
        ("Fair", Policy::Fair),
        ("Eevdf", eevdf),
    ]
    .into_iter()
    .find_map(|(word, policy)| name.starts_with(word).then_some(policy))
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::machine::Machine as Facts;
    use ticktax_sim::Policy;

    use super::policy;

    #[test]
    fn the_scheduler_is_the_releases() {
        let of = |kernel: &str, cpus| {
            let facts = Facts {
                kernel: kernel.to_owned(),
                ..Facts::default()
            };
            policy(&facts, cpus, &mut Vec::new())
        };
        let eevdf = |us| Policy::Eevdf {
            slice: Nanos::from_micros(us),
            hrtick: false,
        };
        for (kernel, cpus, policy) in [
            ("Linux 2.4.20", 1, None),
            ("2.4.20", 1, Some(Policy::Goodness)),
            ("2.6.22-14", 1, Some(Policy::O1)),
            ("2.6.32-754.el6", 1, Some(Policy::Fair)),
            ("6.1.0-18-amd64", 4, Some(Policy::Fair)),
            ("6.6.0", 1, Some(eevdf(750))),
            ("6.12.9-generic", 4, Some(eevdf(2_250))),
            ("6.15.0", 1, Some(eevdf(700))),
            ("6.18.44-fc", 2, Some(eevdf(1_400))),
            ("7.0.1", 64, Some(eevdf(2_800))),
            ("Fair, FirstTick timers", 2, Some(Policy::Fair)),
            (
                "GoodnessPerCpu, Jiffies timers",
                2,
                Some(Policy::GoodnessPerCpu),
            ),
        ] {
            assert_eq!(of(kernel, cpus), policy.unwrap_or(eevdf(700)), "{kernel}");
        }
    }
}
