//! Builds the modelled machine that most resembles a recorded one.

use ticktax_model::machine::{Machine as Facts, TickMode};
use ticktax_model::workload::Workload;
use ticktax_model::{Cpu, Nanos};
use ticktax_sim::{Costs, Machine, Policy, TimerRule, base_slice, settings};

/// Tick rate to assume if that of the recorded machine is unknown.
const COMMON_HZ: u32 = 250;

/// Builds the modelled machine. Also returns the assumptions that were made. A simulated recording
/// needs none, because its header describes its machine completely.
pub fn machine(facts: &Facts, work: &Workload) -> (Machine, Vec<String>) {
    let mut assumed = Vec::new();
    let mut machine = match settings::machine(&facts.settings) {
        Ok(mut machine) if !facts.settings.is_empty() => {
            // No setting lists the CPUs without a tick (`nohz-full`), so copy them from the tick
            // mode.
            machine.tick = facts.tick_mode.clone().unwrap_or(machine.tick);
            machine
        }
        Ok(_) => like(facts, work, &mut assumed),
        Err(why) => {
            assumed.push(format!(
                "a real machine, because the simulated machine's settings are unreadable ({why})"
            ));
            like(facts, work, &mut assumed)
        }
    };
    let half = 1_000_000_000 / i64::try_from(machine.hz).unwrap_or(i64::MAX) / 2;
    machine.costs = Costs {
        tick: (work.tick.interrupt + work.tick.softirqs).min(Nanos(half - 1)),
        timer: work.timer,
        // A task's recorded work already includes the cost of switching to it.
        switch: Nanos::ZERO,
    };
    (machine, assumed)
}

/// Builds the machine that most resembles a real one, without the costs of ticks and switches.
fn like(facts: &Facts, work: &Workload, assumed: &mut Vec<String>) -> Machine {
    let cpus = work.cpus.len().max(1);
    let hz = facts.hz_configured.filter(|&hz| hz > 0);
    if hz.is_none() {
        assumed.push(format!(
            "a {COMMON_HZ} Hz tick, because the recording does not contain the rate"
        ));
    }
    let policy = policy(facts, cpus, assumed);
    let mut machine = Machine::new(cpus, u64::from(hz.unwrap_or(COMMON_HZ)), policy);
    machine.tick = match &facts.tick_mode {
        Some(TickMode::NohzFull { cpus: full }) => TickMode::NohzFull {
            // The model numbers the recorded CPUs consecutively from 0.
            cpus: (0_u32..)
                .zip(&work.cpus)
                .filter(|(_, cpu)| full.contains(**cpu))
                .map(|(place, _)| Cpu(place))
                .collect(),
        },
        Some(mode) => mode.clone(),
        None => {
            assumed.push("a tick that stops while the CPU is idle".to_owned());
            TickMode::NohzIdle
        }
    };
    machine.timers = if facts.high_resolution == Some(false) {
        TimerRule::FirstTick
    } else {
        TimerRule::HighResolution
    };
    machine
}

/// Returns the scheduling policy of the kernel release in the recording.
fn policy(facts: &Facts, cpus: usize, assumed: &mut Vec<String>) -> Policy {
    let mut numbers = facts.kernel.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    let release = (next(), next(), next());
    let eevdf = Policy::Eevdf {
        slice: base_slice(release.0.zip(release.1), cpus),
        hrtick: false,
    };
    match release {
        (Some(2), Some(4), _) => Policy::Goodness,
        (Some(2), Some(6), Some(patch)) if patch < 23 => Policy::O1,
        (Some(major), Some(minor), _) if (major, minor) < (6, 6) => Policy::Fair,
        (Some(_), Some(_), _) => {
            let Policy::Eevdf { slice, .. } = eevdf else {
                return eevdf;
            };
            assumed.push(format!(
                "a slice of {slice}, the kernel's default for this number of CPUs, and the \
                 mainline scheduler"
            ));
            eevdf
        }
        _ => {
            assumed.push(
                "the scheduler of Linux 6.6 and later, because the release is unknown".into(),
            );
            eevdf
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::machine::{Machine as Facts, TickMode};
    use ticktax_model::workload::Workload;
    use ticktax_sim::{Machine, Policy, Setup, TimerRule};
    use ticktax_store::recording::RecordingReader;

    use super::{machine, policy};

    #[test]
    fn the_scheduler_follows_from_the_release() {
        let policy_of = |kernel: &str, cpus| {
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
        ] {
            assert_eq!(
                policy_of(kernel, cpus),
                policy.unwrap_or(eevdf(700)),
                "{kernel}"
            );
        }
    }

    #[test]
    fn a_simulated_machine_is_restored() {
        let slice = Nanos::from_millis(3);
        let policy = Policy::Eevdf {
            slice,
            hrtick: true,
        };
        let mut was = Machine::new(2, 250, policy);
        was.timers = TimerRule::Jiffies;
        was.tick = TickMode::NohzFull {
            cpus: "1".parse().unwrap(),
        };
        let facts = ticktax_sim::facts(&Setup::new(was.clone(), Nanos::from_secs(1)));
        let work = Workload::default();
        let (again, assumed) = machine(&facts, &work);
        assert_eq!(again, was);
        assert!(assumed.is_empty(), "{assumed:?}");
    }

    #[test]
    fn a_simulated_machine_of_a_saved_recording_is_restored() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../store/tests/fixtures/schema2"
        );
        let file = format!("{folder}/simulated.parquet");
        let recording = RecordingReader::open(file).unwrap();
        let (again, assumed) = machine(&recording.header().machine, &Workload::default());
        assert_eq!(
            (again.policy, again.timers),
            (Policy::O1, TimerRule::Jiffies)
        );
        assert!(assumed.is_empty(), "{assumed:?}");
    }
}
