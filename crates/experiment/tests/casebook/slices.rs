//! How often two hogs change under 2.4, counted without the simulator: two counters, ticks, and the
//! moments at which something else has run.

use ticktax_experiment::file::Values;

use crate::judged;

/// What happens to the task that ran, when all counters are filled up again.
#[derive(Clone, Copy, PartialEq)]
enum Refilled {
    /// It keeps the CPU where no other is better, as `still_running` in `schedule()` has it.
    Stays,
    /// It is one of those that can run, and no more.
    Competes,
}

/// Times between wake-ups, drawn as the case assumes them.
struct Wakeups {
    state: u64,
    /// In s.
    fixed: f64,
    mean: f64,
}

impl Wakeups {
    fn next(&mut self) -> f64 {
        // Knuth's multiplier and increment for 64 bits.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((self.state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        self.fixed - self.mean * uniform.ln()
    }
}

/// The two hogs.
struct Hogs {
    slice: u32,
    counters: [u32; 2],
    /// Ticks of a slice that is not over, with `timer_ticks`.
    collected: u32,
    running: usize,
    changes: u32,
}

impl Hogs {
    /// The next to run: the larger counter; of equals the first on the list, unless the hog that
    /// was interrupted by its own slice's end has it.
    fn choose(&mut self, refilled: Option<Refilled>) {
        if self.counters == [0, 0] {
            self.counters = [self.slice; 2];
            if refilled == Some(Refilled::Stays) {
                return;
            }
        }
        let best = usize::from(self.counters[1] > self.counters[0]);
        self.changes += u32::from(best != self.running);
        self.running = best;
    }

    fn tick(&mut self, collects: bool, refilled: Refilled) {
        let counter = &mut self.counters[self.running];
        if collects {
            self.collected += 1;
            if self.collected >= *counter {
                (*counter, self.collected) = (0, 0);
            }
        } else {
            *counter = counter.saturating_sub(1);
        }
        if *counter == 0 {
            self.choose(Some(refilled));
        }
    }
}

/// Changes a second over ten simulated minutes.
fn changes(values: &Values, at: (u32, f64), collects: bool, refilled: Refilled) -> f64 {
    let (hz, wakeups) = at;
    let slice = if hz == 100 { 6 } else { 41 };
    let mut hogs = Hogs {
        slice,
        counters: [slice; 2],
        collected: 0,
        running: 0,
        changes: 0,
    };
    let regular = values.get("regular");
    let mut distances = Wakeups {
        state: 1,
        fixed: regular / wakeups,
        mean: (1.0 - regular) / wakeups,
    };
    let (length, work) = (600, values.get("x_work") / 1e3);
    let mut wakes = distances.next();
    for tick in 1..=length * hz {
        let now = f64::from(tick) / f64::from(hz);
        let mut charged = true;
        while wakes < now {
            // The task that slept so much is preferred; what it leaves goes to the better hog.
            charged = wakes + work < now;
            hogs.choose(None);
            wakes += distances.next();
        }
        if charged {
            hogs.tick(collects, refilled);
        }
    }
    f64::from(hogs.changes) / f64::from(length)
}

fn place(row: &str) -> Option<(u32, f64)> {
    let (hz, wakeups) = row.split_once(", ")?;
    Some((hz.parse().ok()?, wakeups.parse().ok()?))
}

#[test]
fn two_counters_alone_give_the_simulators_rates() {
    let (_, file, judgement) = judged("slice-vs-cache");
    let mut compared = 0;
    for line in &judgement.lines {
        let collects = match line.series.as_str() {
            "switches, stock" => false,
            "switches, patched" => true,
            _ => continue,
        };
        let Some(at) = place(&line.at) else {
            panic!("{line:?}")
        };
        let counted = changes(&file.values(), at, collects, Refilled::Stays);
        let off = line.modelled.unwrap() / counted - 1.0;
        assert!(off.abs() < 0.08, "{line:?}: counted {counted}");
        compared += 1;
    }
    assert_eq!(compared, 12);
}

/// Why the one row is off: a scheduler that forgets who ran when it fills up the counters.
#[test]
fn forgetting_who_ran_takes_the_rate_past_the_other_models() {
    let (_, file, _) = judged("slice-vs-cache");
    let rate = |refilled| changes(&file.values(), (1024, 20.0), false, refilled);
    let (stays, competes) = (rate(Refilled::Stays), rate(Refilled::Competes));
    assert!(stays < 0.9 * 28.0 && competes > 28.0, "{stays}, {competes}");
}
