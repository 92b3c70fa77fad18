//! Counts how often two CPU hogs alternate under Linux 2.4, without the simulator. The model
//! consists only of the two hogs' counters, ticks, and the times at which another task has run.

use ticktax_casebook::file::Values;

use crate::judged;

/// How the scheduler treats the running task when it refills all counters.
#[derive(Clone, Copy, PartialEq)]
enum Refilled {
    /// The running task keeps the CPU unless another task is better, as with `still_running` in
    /// `schedule()`.
    Stays,
    /// The running task competes like any other runnable task.
    Competes,
}

/// Random intervals between wake-ups, distributed as in the case.
struct Wakeups {
    state: u64,
    /// Fixed part of an interval, in seconds.
    fixed: f64,
    mean: f64,
}

impl Wakeups {
    fn next(&mut self) -> f64 {
        // These are Knuth's multiplier and increment for 64 bits.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((self.state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        self.fixed - self.mean * uniform.ln()
    }
}

struct Hogs {
    slice: u32,
    counters: [u32; 2],
    /// Number of ticks that the running hog has used of its slice, counted only with `timer_ticks`.
    collected: u32,
    running: usize,
    changes: u32,
}

impl Hogs {
    /// Chooses the hog with the larger counter or, if they are equal, the first hog. If both
    /// counters are 0, refills them first. If this happens at the end of a slice and `refilled` is
    /// [`Refilled::Stays`], the running hog continues.
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

/// Returns the number of switches per second in a simulation of ten minutes.
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
            // The scheduler runs the woken task immediately, because it has slept for so long.
            // After that, the hog with the larger counter runs.
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
fn two_counters_reproduce_the_simulated_rates() {
    let (_, file, judgement) = judged("slice-vs-cache");
    let mut compared = 0;
    for line in &judgement.lines {
        let collects = match line.series.as_str() {
            "switches, stock" => false,
            "switches, patched" => true,
            _ => continue,
        };
        let Some(at) = place(&line.label) else {
            panic!("{line:?}")
        };
        let counted = changes(&file.values(), at, collects, Refilled::Stays);
        let off = line.modelled.unwrap() / counted - 1.0;
        assert!(off.abs() < 0.08, "{line:?}: counted {counted}");
        compared += 1;
    }
    assert_eq!(compared, 12);
}

/// The model misses one row. A scheduler that forgets the running task when it refills the counters
/// switches more often than was published.
#[test]
fn forgetting_the_running_task_exceeds_the_published_rate() {
    let (_, file, _) = judged("slice-vs-cache");
    let rate = |refilled| changes(&file.values(), (1024, 20.0), false, refilled);
    let (stays, competes) = (rate(Refilled::Stays), rate(Refilled::Competes));
    assert!(stays < 0.9 * 28.0 && competes > 28.0, "{stays}, {competes}");
}
