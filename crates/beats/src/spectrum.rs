//! Finds candidate periods in the averaged power spectrum of binned events.
//!
//! The events are binned and Fourier-transformed in segments, and the power of the segments is
//! averaged (Bartlett 1948). This is repeated at several scales, and each scale covers a factor of
//! four in period. A segment is 128 to 512 periods long, so that a drifting clock or a restarted
//! timer spoils only a single segment rather than the sum.
//!
//! A window that is too short for several segments is treated as one, padded with zeros so that no
//! period falls between two frequencies. For the power of unevenly spaced samples at any frequency,
//! see Lomb 1976 and Scargle 1982. For events instead of samples, this is the Rayleigh power, Z²₁
//! of Buccheri et al. 1983.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustfft::algorithm::Radix4;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, Length};

use super::number::index;

/// Number of bins per period, for the shortest period of a scale. This is enough for the fourth
/// harmonic.
const BINS: f64 = 8.0;
/// Ratio between the longest and the shortest period of a scale.
const SCALE: f64 = 4.0;
/// Number of bins per segment if the window is long.
const SEGMENT: usize = 4096;
/// Maximum number of peaks kept per scale.
const KEPT: usize = 6;
/// Minimum strength of a peak that is kept, in nats. By chance, about one frequency in twenty
/// exceeds it.
const MIN: f64 = 1.2;

/// A period worth testing.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The period, ns.
    pub period: f64,
    /// Significance of the candidate, in nats. It can only be compared with that of candidates
    /// found by the same method.
    pub strength: f64,
}

/// Finds the spectral peaks between two periods, strongest first. `times`, in ns from the start of
/// the window, must be sorted. `span` is the length of the window, in ns.
pub(super) fn peaks(times: &[f64], span: f64, shortest: f64, longest: f64) -> Vec<Candidate> {
    let mut found = Vec::new();
    each_scale(times, span, shortest, longest, |mut local| {
        local.sort_by(|a, b| b.strength.total_cmp(&a.strength));
        local.truncate(KEPT);
        found.append(&mut local);
    });
    found.sort_by(|a, b| b.strength.total_cmp(&a.strength));
    found
}

/// Finds all spectral peaks between two periods, not just the strongest ones of each scale, in no
/// particular order.
pub fn all_peaks(times: &[f64], span: f64, shortest: f64, longest: f64) -> Vec<Candidate> {
    let mut found = Vec::new();
    each_scale(times, span, shortest, longest, |mut local| {
        found.append(&mut local);
    });
    found
}

fn each_scale(
    times: &[f64],
    span: f64,
    shortest: f64,
    longest: f64,
    mut take: impl FnMut(Vec<Candidate>),
) {
    let mut low = shortest;
    while low < longest {
        let bin = low / BINS;
        let scale = Scale::measure(times, span, bin);
        take(scale.peaks(low * 0.97, (low * SCALE).min(longest) * 1.03));
        low *= SCALE;
    }
}

/// FFT plans, by length of the transform. There are only a few lengths, and making a plan takes
/// longer than using it.
static TRANSFORMS: LazyLock<Mutex<HashMap<usize, Arc<Radix4<f32>>>>> =
    LazyLock::new(Mutex::default);

fn transform(length: usize) -> Arc<Radix4<f32>> {
    let mut known = TRANSFORMS.lock().unwrap_or_else(PoisonError::into_inner);
    let new = || Arc::new(Radix4::new(length, FftDirection::Forward));
    Arc::clone(known.entry(length).or_insert_with(new))
}

/// Sums the power of segments. Two real segments a and b are transformed together as a complex
/// segment z = a + ib. Then |A(k)|² + |B(k)|² = (|Z(k)|² + |Z(-k)|²) / 2.
struct Pair<'a> {
    transform: &'a Radix4<f32>,
    /// Segments that have not been transformed yet: the first in the real parts, the second in the
    /// imaginary parts.
    waiting: Vec<Complex<f32>>,
    is_half: bool,
    scratch: Vec<Complex<f32>>,
    /// For each frequency, twice the power summed over all segments. The frequencies go up to half
    /// the length of the transform.
    sum: Vec<f64>,
}

impl<'a> Pair<'a> {
    fn new(transform: &'a Radix4<f32>) -> Self {
        let zeros = |length| vec![Complex::default(); length];
        Self {
            transform,
            waiting: zeros(transform.len()),
            is_half: false,
            scratch: zeros(transform.get_inplace_scratch_len()),
            sum: vec![0.0; transform.len() / 2 + 1],
        }
    }

    /// Adds a segment, padded with zeros to the length of the transform.
    fn push(&mut self, segment: &[f32]) {
        let waiting = self.waiting.iter_mut().zip(segment);
        if self.is_half {
            waiting.for_each(|(z, x)| z.im = *x);
            self.transform();
        } else {
            waiting.for_each(|(z, x)| z.re = *x);
        }
        self.is_half = !self.is_half;
    }

    fn transform(&mut self) {
        let z = &mut self.waiting;
        self.transform.process_with_scratch(z, &mut self.scratch);
        let mirrored = z[1..].iter().rev();
        let mirrored = std::iter::once(&z[0]).chain(mirrored);
        for ((sum, z), mirrored) in self.sum.iter_mut().zip(&*z).zip(mirrored) {
            *sum += f64::from(z.norm_sqr() + mirrored.norm_sqr());
        }
        z.fill(Complex::default());
    }

    /// Returns, for each frequency, the power summed over all segments.
    fn finish(mut self) -> Vec<f64> {
        if self.is_half {
            self.transform();
        }
        self.sum.iter_mut().for_each(|power| *power /= 2.0);
        self.sum
    }
}

/// The averaged spectrum at one bin width.
struct Scale {
    /// Power at each frequency, normalised so that white noise has a power of 1.
    power: Vec<f64>,
    /// Number of segments over which the power is averaged.
    segments: f64,
    /// Distance between two frequencies, in 1/ns.
    step: f64,
}

impl Scale {
    fn measure(times: &[f64], span: f64, bin: f64) -> Self {
        let bins = index(span / bin).max(1);
        // Treat a window of up to two segments as one, because averaging two would only lose
        // resolution.
        let (segment, length) = if bins <= 2 * SEGMENT {
            (bins + 1, (bins * 4).next_power_of_two())
        } else {
            (SEGMENT, SEGMENT)
        };
        let transform = transform(length);
        let mut pair = Pair::new(&transform);
        let (mut variance, mut segments, mut first) = (0.0, 0.0, 0);
        let mut input = vec![0.0; segment];
        while first < times.len() {
            let number = index(times[first] / bin) / segment;
            input.fill(0.0);
            let mut next = first;
            while next < times.len() {
                let at = index(times[next] / bin);
                if at / segment != number {
                    break;
                }
                // A bin counts once, no matter how many events it contains, so a cluster has the
                // weight of a single event.
                input[at % segment] = 1.0;
                next += 1;
            }
            let used = segment.min(bins + 1 - (number * segment).min(bins));
            let hits = input[..used].iter().sum::<f32>();
            let mean = hits / used as f32;
            input[..used].iter_mut().for_each(|x| *x -= mean);
            first = next;
            // The spectrum of fewer than three events is meaningless.
            if hits < 3.0 {
                continue;
            }
            variance += f64::from(hits * (1.0 - mean));
            segments += 1.0;
            pair.push(&input);
        }
        let mut sum = pair.finish();
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
            // This is Chernoff's bound for a mean of exponential variables that is above its
            // expectation.
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

    /// Returns the noise level at frequency number `i`: the median power of the surrounding
    /// half-octave, because clustered events raise the power at low frequencies. If the half-octave
    /// contains too few frequencies, it is the level of white noise.
    fn level(&self, i: usize) -> f64 {
        let (low, high) = (i * 4 / 5, (i * 5 / 4).min(self.power.len() - 1));
        if high - low < 24 {
            return 1.0;
        }
        // With sixty-four frequencies, the median is accurate to about 20 %.
        let stride = (high - low) / 64 + 1;
        let mut around: Vec<f64> = self.power[low..=high]
            .iter()
            .step_by(stride)
            .copied()
            .collect();
        let middle = around.len() / 2;
        let median = *around.select_nth_unstable_by(middle, f64::total_cmp).1;
        // The median of an exponential variable is ln 2 times its mean. For an average of many such
        // variables, the median is close to the mean.
        (median / (1.0 - 0.307 / self.segments.max(1.0))).max(0.5)
    }
}
