//! Tests the search for periodic sources on synthetic events whose true periods are known. Measures
//! recall, precision, the error of the detected periods, and how often a period's confidence
//! interval contains the true period. Also measures how often the search finds a period in events
//! that have none.
//!
//! `cargo figure beats_benchmark [cases] [seed]`. The same seed always produces the same figures.
#![expect(clippy::print_stdout, reason = "an example that reports")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "synthetic times"
)]

use ticktax_beats::{Beat, Events, detect};
use ticktax_bench::on_all_cpus;
use ticktax_fixture::Draws;
use ticktax_model::Nanos;

/// A periodic source that the synthetic events contain.
#[derive(Clone, Debug)]
struct Truth {
    period: f64,
    slots: f64,
    jitter: f64,
    rearmed: bool,
    missing: f64,
    jump: bool,
    burst: u32,
    /// Number of unrelated events per period.
    noise: f64,
    two: bool,
}

impl Truth {
    /// Returns how many nats of evidence the events contain that they are periodic, for an ideal
    /// observer who knows their distribution.
    fn information(&self) -> f64 {
        let sd: f64 = if self.rearmed {
            2.0 * self.jitter
        } else {
            self.jitter
        };
        let sd = sd.hypot(0.0045);
        let seen = 1.0 - self.missing;
        let rate = seen + self.noise;
        let mut sum = 0.0;
        for i in 0..2000 {
            let x = (f64::from(i) + 0.5) / 2000.0 - 0.5;
            let g = (-0.5 * (x / sd).powi(2)).exp() / (sd * 2.506_628);
            let f = (seen * g + self.noise) / rate;
            sum += if f > 0.0 { f * f.ln() } else { 0.0 };
        }
        self.slots * rate * sum / 2000.0 - if self.jump { 15.0 } else { 0.0 }
    }
    fn plain(&self) -> bool {
        self.slots >= 6.0 && self.noise <= 1.0 && self.jitter <= 0.05
    }
    fn detectable(&self) -> bool {
        self.plain() && self.slots * (1.0 - self.missing) >= 6.0 && self.information() >= 25.0
    }
    /// Returns the half-width of the narrowest 95 % confidence interval that the events support, as
    /// a fraction of the period.
    fn attainable(&self) -> f64 {
        let n = self.slots * (1.0 - self.missing);
        1.96 * if self.rearmed {
            self.jitter / n.sqrt()
        } else {
            12f64.sqrt() * self.jitter / n.powf(0.5) / self.slots
        }
    }
}

fn beat_times(r: &mut Draws, truth: &Truth, window: f64, out: &mut Vec<f64>) {
    let p = truth.period;
    let drift = r.between(-1e-4, 1e-4);
    let spacing = r.between(0.005, 0.03) * p;
    let jump_at = if truth.jump {
        r.between(0.2, 0.8) * window
    } else {
        f64::INFINITY
    };
    let jump = r.between(0.1, 0.9) * p;
    let mut jumped = false;
    let mut t = r.uniform() * p;
    while t < window {
        if !jumped && t > jump_at {
            jumped = true;
            t += jump;
        }
        let mut at = t;
        if truth.rearmed {
            t += p * truth.jitter * r.normal();
        } else {
            at += p * truth.jitter * r.normal();
        }
        if r.uniform() >= truth.missing {
            for i in 0..truth.burst {
                let late = if i == 0 {
                    0.0
                } else {
                    spacing * 0.2 * r.normal()
                };
                out.push(at + f64::from(i) * spacing + late);
            }
        }
        t += p * (1.0 + drift * (t / window - 0.5));
    }
}

fn poisson(r: &mut Draws, rate: f64, window: f64, out: &mut Vec<f64>) {
    let mut t = r.exponential() / rate;
    while t < window {
        out.push(t);
        t += r.exponential() / rate;
    }
}

fn events(mut times: Vec<f64>, window: f64) -> Events {
    times.retain(|t| (0.0..window).contains(t));
    times.sort_by(f64::total_cmp);
    let starts: Vec<Nanos> = times.iter().map(|t| Nanos(t.round() as i64)).collect();
    let durations = vec![Nanos(1000); starts.len()];
    Events::new(Nanos(0), Nanos(window as i64), starts, durations)
}

fn truth(r: &mut Draws) -> Truth {
    let pick = |r: &mut Draws, p: f64| r.uniform() < p;
    let rearmed = pick(r, 0.2);
    Truth {
        period: r.log_between(1e6, 4e10),
        slots: r.log_between(6.0, 20_000.0),
        jitter: if pick(r, 0.3) {
            r.log_between(1e-5, 1e-3)
        } else {
            r.between(0.0, if rearmed { 0.05 } else { 0.1 })
        },
        rearmed,
        missing: if pick(r, 0.5) {
            0.0
        } else {
            r.between(0.0, 0.4)
        },
        jump: pick(r, 0.15),
        burst: if pick(r, 0.6) {
            1
        } else {
            2 + (r.bits() % 4) as u32
        },
        noise: if pick(r, 0.3) {
            0.0
        } else {
            r.between(0.0, 3.0)
        },
        two: pick(r, 0.2),
    }
}

/// Generates a case and searches it for periodic sources. Returns the true sources, the detected
/// sources, and the times of all events.
fn case(seed: u64) -> (Vec<Truth>, Vec<Beat>, Vec<f64>) {
    let mut r = Draws::new(seed.wrapping_mul(0x1234_5678_9abc_def1));
    let first = truth(&mut r);
    let window = first.period * first.slots;
    let mut times = Vec::new();
    beat_times(&mut r, &first, window, &mut times);
    let own = times.len() as f64;
    poisson(
        &mut r,
        (first.noise / first.period).max(1e-30),
        window,
        &mut times,
    );
    let noise = times.len() as f64 - own;
    let mut truths = vec![first];
    if truths[0].two {
        let mut second = truth(&mut r);
        loop {
            second.period = truths[0].period * r.log_between(0.2, 5.0);
            let ratio = (second.period / truths[0].period).max(truths[0].period / second.period);
            let near = |m: f64| ((ratio * m).round() / (ratio * m) - 1.0).abs() < 0.02;
            if !near(1.0) && !near(2.0) && !near(3.0) && window / second.period >= 6.0 {
                break;
            }
            if truths[0].slots < 8.0 {
                second.period = truths[0].period * 0.61;
                break;
            }
        }
        second.slots = window / second.period;
        second.two = true;
        let before = times.len();
        beat_times(&mut r, &second, window, &mut times);
        let more = (times.len() - before) as f64;
        truths[0].noise += more / truths[0].slots;
        second.noise = (own + noise) / second.slots;
        truths.push(second);
    }
    let events = events(times, window);
    let times = events.starts.iter().map(|t| t.0 as f64).collect();
    (truths, detect(&events), times)
}

fn null(kind: usize, seed: u64) -> Events {
    let mut r = Draws::new(seed.wrapping_mul(0xdead_beef_1234_5677) ^ (kind as u64) << 50);
    let mean = r.log_between(1e6, 1e9);
    let count = r.log_between(8.0, 20_000.0);
    let window = mean * count;
    let mut times = Vec::new();
    let shape = r.log_between(2.0, 11.0);
    let gap = r.between(0.1, 0.7);
    let alpha = r.between(1.2, 2.5);
    let members = r.between(3.0, 30.0);
    let spacing = mean * r.log_between(0.001, 0.2);
    let mut t = 0.0;
    while t < window {
        t += mean
            * match kind {
                0 => r.exponential(),
                1 => r.gamma(shape) / shape,
                2 => gap + (1.0 - gap) * r.exponential(),
                3 => r.uniform().powf(-1.0 / alpha) * (alpha - 1.0) / alpha,
                _ => members * r.exponential(),
            };
        if kind == 4 {
            let n = 1 + (2.0 * members * r.uniform()) as u32;
            times.extend((0..n).map(|i| t + f64::from(i) * spacing * (1.0 + 0.01 * r.normal())));
        } else {
            times.push(t);
        }
    }
    events(times, window)
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values
        .get(((values.len() as f64 * q) as usize).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

/// Number of true sources or detected periods that were checked, and number that passed.
#[derive(Default)]
struct Tally {
    found: u64,
    all: u64,
}

impl Tally {
    fn add(&mut self, found: bool) {
        self.found += u64::from(found);
        self.all += 1;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = self.found as f64 / self.all as f64 * 100.0;
        write!(f, "{} of {} = {share:.2} %", self.found, self.all)
    }
}

fn matches(truth: &Truth, beat: &Beat) -> bool {
    let slack = 0.002f64
        .max(0.25 / truth.slots)
        .max(4.0 * truth.attainable());
    (beat.period.value / truth.period - 1.0).abs() < slack
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let cases: u64 = arguments
        .next()
        .and_then(|a| a.parse().ok())
        .unwrap_or(2000);
    let seed: u64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(1);
    let verbose = arguments.next().is_some();
    let seeds: Vec<u64> = (0..cases).map(|i| seed * 1_000_003 + i).collect();
    let results = on_all_cpus(&seeds, |&seed| case(seed));
    let mut sums = Sums {
        verbose,
        ..Sums::default()
    };
    for (i, (truths, beats, _)) in (0..).zip(&results) {
        sums.add(i, truths, beats);
    }
    sums.print();
    let kinds = [
        "Poisson",
        "gamma renewal, shape 2-11",
        "minimum gap 10-70 %",
        "Pareto renewal",
        "regular clusters",
    ];
    for (kind, name) in kinds.iter().enumerate() {
        let found = on_all_cpus(&seeds, |&seed| {
            let events = null(kind, seed);
            let beat = detect(&events).into_iter().next();
            beat.map(|beat| (events.starts.len(), events.span(), beat))
        });
        let wrong: Vec<_> = (0..)
            .zip(found)
            .filter(|(_, beat)| beat.is_some())
            .collect();
        for (i, (count, span, beat)) in wrong
            .iter()
            .filter_map(|(i, beat)| Some((i, beat.as_ref()?)))
        {
            if verbose {
                let periods = beat.period.value * *count as f64 / span.0 as f64;
                println!("  FALSE {name} {i} N={count} P/mean={periods:.3} {beat:?}");
            }
        }
        let wrong = wrong.len();
        println!(
            "null {name:26} {wrong:4} of {cases} = {:.2} %",
            wrong as f64 / cases as f64 * 100.0
        );
    }
}

type Rule = (&'static str, fn(&Truth) -> bool);

/// Rows of the recall table: a label, and a function that selects the sources to count.
const RULES: [Rule; 17] = [
    ("all", |_| true),
    ("DETECTABLE (rule)", Truth::detectable),
    ("  one beat", |t| t.detectable() && !t.two),
    ("  two beats", |t| t.detectable() && t.two),
    ("  < 20 periods", |t| t.detectable() && t.slots < 20.0),
    ("  20-200 periods", |t| {
        t.detectable() && (20.0..200.0).contains(&t.slots)
    }),
    ("  > 200 periods", |t| t.detectable() && t.slots >= 200.0),
    ("  rearmed", |t| t.detectable() && t.rearmed),
    ("  phase jump", |t| t.detectable() && t.jump),
    ("  burst", |t| t.detectable() && t.burst > 1),
    ("  missing > 20 %", |t| t.detectable() && t.missing > 0.2),
    ("plain (>=6 periods, noise <=1, jitter <=5 %)", Truth::plain),
    ("plain, too little information", |t| {
        t.plain() && !t.detectable()
    }),
    ("information >= 25, noise 1-2", |t| {
        t.information() >= 25.0 && (1.0..2.0).contains(&t.noise)
    }),
    ("information >= 25, noise > 2", |t| {
        t.information() >= 25.0 && t.noise >= 2.0
    }),
    ("information >= 25, jitter 5-10 %", |t| {
        t.information() >= 25.0 && t.jitter > 0.05
    }),
    ("information < 25", |t| t.information() < 25.0),
];

/// Totals over all cases.
#[derive(Default)]
struct Sums {
    recall: [Tally; RULES.len()],
    reported: u64,
    right: u64,
    errors: Vec<f64>,
    attainable: Vec<f64>,
    grid: Tally,
    rearmed: Tally,
    verbose: bool,
}

impl Sums {
    fn add(&mut self, case: u64, truths: &[Truth], beats: &[Beat]) {
        let mut free = vec![true; beats.len()];
        for truth in truths {
            let hit = beats
                .iter()
                .enumerate()
                .position(|(i, b)| free[i] && matches(truth, b));
            for (tally, rule) in self.recall.iter_mut().zip(&RULES) {
                if rule.1(truth) {
                    tally.add(hit.is_some());
                }
            }
            match hit {
                Some(i) => {
                    free[i] = false;
                    self.hit(case, truth, &beats[i]);
                }
                None if self.verbose && truth.detectable() => {
                    let got: Vec<f64> = beats
                        .iter()
                        .map(|b| b.period.value / truth.period)
                        .collect();
                    println!(
                        "  MISS {case} I={:.0} {truth:?} got {got:.4?}",
                        truth.information()
                    );
                }
                None => {}
            }
        }
        self.reported += beats.len() as u64;
        self.right += free.iter().filter(|f| !**f).count() as u64;
        for (beat, _) in beats.iter().zip(&free).filter(|(_, f)| **f && self.verbose) {
            println!("  WRONG {case} {beat:?} {truths:?}");
        }
    }

    fn hit(&mut self, case: u64, truth: &Truth, beat: &Beat) {
        let p = beat.period;
        let error = (p.value / truth.period - 1.0).abs();
        if truth.detectable() {
            self.errors.push(error);
            if truth.attainable() < 1e-3 {
                self.attainable.push(error);
            }
        }
        let covered = p.low <= truth.period && truth.period <= p.high;
        let tally = if truth.rearmed {
            &mut self.rearmed
        } else {
            &mut self.grid
        };
        tally.add(covered);
        if self.verbose && !covered {
            let z = (p.value - truth.period) / (p.high - p.value) * 1.96;
            println!("  UNCOV {case} z={z:.1} {beat:?} {truth:?}");
        }
    }

    fn print(mut self) {
        for (tally, rule) in self.recall.iter().zip(&RULES) {
            println!("recall {:46} {tally}", rule.0);
        }
        let precision = Tally {
            found: self.right,
            all: self.reported,
        };
        println!("precision {precision}");
        for (name, errors) in [
            ("detectable", &mut self.errors),
            ("attainable", &mut self.attainable),
        ] {
            let high = errors.iter().filter(|e| **e > 1e-3).count() as u64;
            let high = Tally {
                found: high,
                all: errors.len() as u64,
            };
            println!(
                "period error, {name}: median {:.1e} p95 {:.1e} p99 {:.1e}; above 0.1 %: {high}",
                quantile(errors, 0.5),
                quantile(errors, 0.95),
                quantile(errors, 0.99),
            );
        }
        println!(
            "95 % interval holds the truth: grid {}; rearmed {}",
            self.grid, self.rearmed
        );
    }
}
