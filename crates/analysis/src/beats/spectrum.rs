//! Candidate periods from the averaged power spectrum of binned events.
//!
//! The events are binned and Fourier-transformed in segments whose powers are averaged (Bartlett
//! 1948), once for every factor of four in period. A segment holds 128 to 512 periods, so a clock
//! that drifts or a timer that was restarted spoils one segment and not the sum. A window too short
//! for that is one segment, padded with zeros so that no period falls between two frequencies
//! (the power of unevenly spaced events at any frequency: Lomb 1976, Scargle 1982; for events
//! instead of samples it is the Rayleigh power, Z²₁ of Buccheri et al. 1983).

use realfft::RealFftPlanner;

use super::number::index;

/// Bins to the shortest period of a scale: enough for its fourth harmonic.
const BINS: f64 = 8.0;
/// Ratio between the longest and the shortest period of a scale.
const SCALE: f64 = 4.0;
/// Bins of a segment in a long window.
const SEGMENT: usize = 4096;
/// Peaks kept of each scale.
const KEPT: usize = 6;
/// The least significance of a kept peak, in nats: about what one frequency in twenty has by chance.
const MIN: f64 = 1.2;

/// A period that may be one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// The period, ns.
    pub(super) period: f64,
    /// How much it stands out, nats; compares candidates of one origin only.
    pub(super) strength: f64,
}

/// Peaks of the spectrum of `times` (ns from the window's begin, sorted), which span `span` ns,
/// between two periods.
pub(super) fn peaks(times: &[f64], span: f64, shortest: f64, longest: f64) -> Vec<Candidate> {
    let mut found = Vec::new();
    each_scale(times, span, (shortest, longest), |mut local| {
        local.sort_by(|a, b| b.strength.total_cmp(&a.strength));
        local.truncate(KEPT);
        found.append(&mut local);
    });
    found.sort_by(|a, b| b.strength.total_cmp(&a.strength));
    found
}

/// All of them, in no order.
pub(super) fn all_peaks(times: &[f64], span: f64, shortest: f64, longest: f64) -> Vec<Candidate> {
    let mut found = Vec::new();
    each_scale(times, span, (shortest, longest), |mut local| {
        found.append(&mut local);
    });
    found
}

/// Calls `take` with the local maxima of every scale between two periods.
fn each_scale(
    times: &[f64],
    span: f64,
    (shortest, longest): (f64, f64),
    mut take: impl FnMut(Vec<Candidate>),
) {
    let mut planner = RealFftPlanner::new();
    let mut low = shortest;
    while low < longest {
        let bin = low / BINS;
        let scale = Scale::measure(times, span, bin, &mut planner);
        take(scale.peaks(low * 0.97, (low * SCALE).min(longest) * 1.03));
        low *= SCALE;
    }
}

/// The averaged spectrum at one bin width.
struct Scale {
    /// Power at each frequency, white noise = 1.
    power: Vec<f64>,
    /// Segments that went into it.
    segments: f64,
    /// Frequency of the first step, 1/ns.
    step: f64,
}

impl Scale {
    fn measure(times: &[f64], span: f64, bin: f64, planner: &mut RealFftPlanner<f32>) -> Self {
        let bins = index(span / bin).max(1);
        // Twice the segment is still one segment: averaging two would only lose resolution.
        let (segment, length) = if bins <= 2 * SEGMENT {
            (bins + 1, (bins * 4).next_power_of_two())
        } else {
            (SEGMENT, SEGMENT)
        };
        let fft = planner.plan_fft_forward(length);
        let (mut input, mut output) = (fft.make_input_vec(), fft.make_output_vec());
        let mut sum = vec![0.0_f64; output.len()];
        let (mut variance, mut segments, mut first) = (0.0, 0.0, 0);
        while first < times.len() {
            let number = index(times[first] / bin) / segment;
            input.fill(0.0);
            let mut next = first;
            while next < times.len() {
                let at = index(times[next] / bin);
                if at / segment != number {
                    break;
                }
                // A bin is hit or not: a cluster of events in it weighs no more than one.
                input[at % segment] = 1.0;
                next += 1;
            }
            let used = segment.min(bins + 1 - (number * segment).min(bins));
            let hits = input[..used].iter().sum::<f32>();
            let mean = hits / used as f32;
            input[..used].iter_mut().for_each(|x| *x -= mean);
            first = next;
            // A segment with two events has no spectrum to speak of.
            if hits < 3.0 || fft.process(&mut input, &mut output).is_err() {
                continue;
            }
            variance += f64::from(hits * (1.0 - mean));
            segments += 1.0;
            sum.iter_mut()
                .zip(&output)
                .for_each(|(s, x)| *s += f64::from(x.norm_sqr()));
        }
        let unit = if variance > 0.0 { 1.0 / variance } else { 0.0 };
        for power in &mut sum {
            *power *= unit;
        }
        Self {
            power: sum,
            segments,
            step: 1.0 / (length as f64 * bin),
        }
    }

    /// The local maxima between two periods.
    fn peaks(&self, shortest: f64, longest: f64) -> Vec<Candidate> {
        let first = index(1.0 / (longest * self.step)).max(2);
        let last = index(1.0 / (shortest * self.step)).min(self.power.len().saturating_sub(2));
        let mut local = Vec::new();
        for i in first..=last.max(first) {
            let Some([before, here, after]) = self
                .power
                .get(i - 1..=i + 1)
                .and_then(|w| <[f64; 3]>::try_from(w).ok())
            else {
                break;
            };
            if here <= before || here < after {
                continue;
            }
            let z = here / self.level(i);
            // Chernoff's bound for a mean of exponential variables above its expectation.
            let strength = if z > 1.0 {
                self.segments * (z - 1.0 - z.ln())
            } else {
                0.0
            };
            if strength > MIN {
                let shift = 0.5 * (before - after) / (before - 2.0 * here + after).min(-1e-12);
                local.push(Candidate {
                    period: 1.0 / ((i as f64 + shift) * self.step),
                    strength,
                });
            }
        }
        local
    }

    /// The noise around frequency `i`: the median power of the half-octave about it, which clusters
    /// raise at low frequencies. Where there are too few frequencies to tell, white noise.
    fn level(&self, i: usize) -> f64 {
        let (low, high) = (i * 4 / 5, (i * 5 / 4).min(self.power.len() - 1));
        if high - low < 24 {
            return 1.0;
        }
        // Sixty-four frequencies give a median within some 20 %.
        let stride = (high - low) / 64 + 1;
        let mut around: Vec<f64> = self.power[low..=high]
            .iter()
            .step_by(stride)
            .copied()
            .collect();
        let middle = around.len() / 2;
        let median = *around.select_nth_unstable_by(middle, f64::total_cmp).1;
        // The median of an exponential variable is ln 2 of its mean, that of a mean of many is 1.
        (median / (1.0 - 0.307 / self.segments.max(1.0))).max(0.5)
    }
}
