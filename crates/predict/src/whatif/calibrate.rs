//! Calibrates how long a hybrid loop spins on a modelled machine. Real hybrid loops calibrate
//! themselves in the same way.

use ticktax_model::Nanos;
use ticktax_model::pace::Calibration;
use ticktax_sim::{Call, Law, Setup, SetupError, Step, TaskId, frames};

/// Length of the simulation in which a loop is calibrated. A trial sleep usually takes one tick. If
/// other tasks delay the loop, fewer trial sleeps fit into this time, and the calibration makes do
/// with those.
const LENGTH: Nanos = Nanos::from_secs(4);

/// Sets how long the paced `task` spins, so that its spin covers late ends of its sleeps. To
/// measure how late sleeps end, simulates trial sleeps on this machine while the other tasks run.
/// Each trial sleep is also delayed as much as one of the task's recorded wake-ups.
pub(super) fn calibrate(setup: &mut Setup, task: TaskId) -> Result<(), SetupError> {
    let mut trial = setup.clone();
    trial.length = LENGTH;
    let program = &mut trial.tasks[task.index()].program;
    let lates = program.iter().filter_map(|step| match step {
        Step::Late(law) => Some(*law),
        _ => None,
    });
    let mut lates: Vec<Law> = lates.take(Calibration::TRIALS).collect();
    if lates.is_empty() {
        lates.push(Law::Fixed(Nanos::ZERO));
    }
    let sleep = Step::Sleep(Call::Nanosleep, Law::Fixed(Calibration::TRIAL));
    let steps = lates.into_iter();
    *program = steps
        .flat_map(|late| [Step::Late(late), sleep, Step::Frame])
        .collect();
    let (_, frames) = frames(&trial, task)?;
    let mut late = [Nanos::ZERO; Calibration::TRIALS];
    for (late, frame) in late.iter_mut().zip(frames.iter().cycle()) {
        *late = frame.began - frame.due;
    }
    for step in &mut setup.tasks[task.index()].program {
        if let Step::Pace { period, spin, .. } = step {
            *spin = Calibration::margin(late, *period);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::PaceRule;
    use ticktax_sim::{Law, Machine, Policy, Setup, Step, TaskId, TaskSpec, TimerRule};

    use super::calibrate;

    /// Returns how long a loop spins if every tenth of its wake-ups is 300 µs late and all others
    /// are 100 µs late.
    fn margin(timers: TimerRule, period: Nanos) -> Nanos {
        let mut machine = Machine::new(1, 100, Policy::Fair);
        machine.timers = timers;
        machine.slack = Nanos::from_micros(50);
        let pace = Step::Pace {
            rule: PaceRule::Deadline,
            period,
            unit: Nanos(1),
            spin: Nanos::ZERO,
        };
        let late = |k| Nanos::from_micros(if k % 10 == 0 { 300 } else { 100 });
        let program = (0..100).flat_map(|k| [Step::Late(Law::Fixed(late(k))), pace, Step::Frame]);
        let mut setup = Setup::new(machine, Nanos::from_secs(1));
        setup.tasks.push(TaskSpec::new("loop", program.collect()));
        calibrate(&mut setup, TaskId(0)).unwrap();
        let spins = setup.tasks[0].program.iter().filter_map(|step| match step {
            Step::Pace { spin, .. } => Some(*spin),
            _ => None,
        });
        let spins: Vec<Nanos> = spins.collect();
        assert!(spins.iter().all(|spin| *spin == spins[0]) && spins.len() == 100);
        spins[0]
    }

    #[test]
    fn the_margin_covers_the_lateness_of_sleeps() {
        let period = Nanos::from_millis(30);
        // Seven of the 64 sleeps end later than all others. The spin must cover at least 62 of the
        // 64, so it must be long enough for these seven.
        let fine = margin(TimerRule::HighResolution, period);
        assert_eq!(fine, Nanos::from_micros(350));
        // A sleep of 0.5 ms that starts 100 µs after a tick ends at the next tick, which is 9.4 ms
        // late. The wake-up adds 0.3 ms.
        let coarse = margin(TimerRule::FirstTick, period);
        assert_eq!(coarse, Nanos::from_micros(9_700));
        let short = margin(TimerRule::FirstTick, Nanos::from_millis(10));
        assert_eq!(short, Nanos::from_millis(5));
    }
}
