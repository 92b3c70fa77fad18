//! Runs the probes and converts their gaps into rows.

use std::collections::BTreeMap;

use ticktax_model::recording::{ClockReport, Loss, ProbeKind, ProbeReport, Row, SoakReport};
use ticktax_model::witness::ProbeWitness;
use ticktax_model::{Cpu, CpuList, Kind, Nanos, Source, SourceId, SourceTable, Span};
use ticktax_probes::clock::{Alignment, Clock, CounterCheck, now};
use ticktax_probes::sleep::{SleepProbe, SleepReport, SleepSettings};
use ticktax_probes::soak::{self, SoakProbe};
use ticktax_probes::spin::{Gap, SpinProbe, SpinReport, SpinSettings};
use ticktax_probes::{PolicyGrant, ProbeError, SchedulingPolicy};

use crate::plan::ProbeChoice;

/// Shortest gap that the spin probe records. The loop can detect slightly shorter gaps, but how
/// short depends on its calibration, and recordings must be comparable.
const SHORTEST_GAP: Nanos = Nanos(100);

/// The running probes.
pub(crate) enum Probe {
    Spin {
        probe: SpinProbe,
        gaps: Box<AlignedGaps>,
    },
    Sleep {
        probe: SleepProbe,
        interval: Nanos,
    },
    Soak(SoakProbe),
    None,
}

/// Gaps from a spin probe, and the relation between its counter and the tracer's clock.
pub(crate) struct AlignedGaps {
    clock: Clock,
    alignment: Alignment,
    waiting: Vec<(Cpu, Gap)>,
    /// When watching ends. A gap that extends past this time is cut off there.
    end: Nanos,
    /// Whether the probe has already been given a corrected end time.
    near_end: bool,
}

/// Time before the end at which the probe is given a corrected end time. Over such a short time,
/// the error in the counter's frequency is negligible.
const NEAR: Nanos = Nanos::from_secs(1);

/// Results of the probes at the end of a session.
#[derive(Default)]
pub(crate) struct ProbeResults {
    pub(crate) reports: Vec<ProbeReport>,
    pub(crate) clock: Option<ClockReport>,
    pub(crate) soakers: Vec<SoakReport>,
    pub(crate) lost: Vec<Loss>,
    /// Counts that the kernel kept for the spin probes, by CPU.
    pub(crate) witnesses: BTreeMap<u32, ProbeWitness>,
    /// Scheduling policies that the kernel refused to grant to probes, by CPU.
    pub(crate) refused: Vec<(Cpu, PolicyGrant)>,
}

impl Probe {
    /// Prepares the chosen probe on `cpus`. Measuring starts with [`Probe::begin`].
    pub(crate) fn prepare(
        choice: ProbeChoice,
        policy: Option<SchedulingPolicy>,
        cpus: &CpuList,
    ) -> Result<Self, ProbeError> {
        match choice {
            ProbeChoice::None => Ok(Self::None),
            ProbeChoice::Soak => Ok(Self::Soak(SoakProbe::prepare(cpus)?)),
            ProbeChoice::Sleep => {
                let default = SleepSettings::default();
                let settings = SleepSettings {
                    policy: policy.unwrap_or(default.policy),
                    ..default
                };
                let probe = SleepProbe::prepare(cpus, settings)?;
                Ok(Self::Sleep {
                    probe,
                    interval: settings.interval,
                })
            }
            ProbeChoice::Spin => {
                let clock = Clock::calibrate();
                let default = SpinSettings::default();
                let settings = SpinSettings {
                    policy: policy.unwrap_or(default.policy),
                    threshold: Some(SHORTEST_GAP),
                    ..default
                };
                let alignment = clock.alignment();
                let probe = SpinProbe::prepare(&clock, cpus, settings)?;
                let gaps = Box::new(AlignedGaps {
                    clock,
                    alignment,
                    waiting: Vec::new(),
                    end: Nanos::MAX,
                    near_end: false,
                });
                Ok(Self::Spin { probe, gaps })
            }
        }
    }

    /// Starts to measure. The probe runs until `end`, or until it is stopped. A soak probe doesn't
    /// read any clock, so it always runs until it is stopped.
    pub(crate) fn begin(&mut self, end: Option<Nanos>) {
        match self {
            Self::None => {}
            Self::Soak(probe) => probe.begin(),
            Self::Sleep { probe, .. } => {
                if let Some(end) = end {
                    probe.end_at(end);
                }
                probe.begin();
            }
            Self::Spin { probe, gaps } => {
                if let Some(end) = end {
                    gaps.end = end;
                    probe.end_at(end);
                }
                probe.begin();
            }
        }
    }

    /// Appends to `rows` the gaps that were recorded since the last call.
    pub(crate) fn drain(&mut self, sources: &mut SourceTable, rows: &mut Vec<Row>) {
        match self {
            Self::None | Self::Soak(_) => {}
            Self::Sleep { probe, .. } => {
                let source = gap_source(sources, ProbeKind::Sleep);
                probe.drain(|cpu, wakeup| {
                    rows.push(gap_row(cpu, source, wakeup.due, wakeup.woke));
                });
            }
            Self::Spin { probe, gaps } => {
                probe.drain(|cpu, gap| gaps.waiting.push((cpu, gap)));
                gaps.emit(sources, rows);
                if !gaps.near_end && gaps.end - now() < NEAR {
                    gaps.near_end = true;
                    probe.end_at(gaps.end);
                }
            }
        }
    }

    /// Stops the probes and appends their last gaps to `rows`.
    pub(crate) fn stop(self, sources: &mut SourceTable, rows: &mut Vec<Row>) -> ProbeResults {
        match self {
            Self::None => ProbeResults::default(),
            Self::Soak(probe) => {
                let mut results = ProbeResults::default();
                for report in probe.stop() {
                    results.note_policy(report.cpu, &report.policy);
                    results.soakers.push(soak_report(&report));
                }
                results
            }
            Self::Sleep { probe, interval } => {
                let source = gap_source(sources, ProbeKind::Sleep);
                let reports = probe.stop(|cpu, wakeup| {
                    rows.push(gap_row(cpu, source, wakeup.due, wakeup.woke));
                });
                let mut results = ProbeResults::default();
                for report in &reports {
                    results.note_policy(report.cpu, &report.policy);
                    results.note_loss(report.cpu, report.wakeups_dropped);
                    results.reports.push(sleep_report(report, interval));
                }
                results
            }
            Self::Spin { probe, mut gaps } => {
                let reports = probe.stop(|cpu, gap| gaps.waiting.push((cpu, gap)));
                gaps.emit(sources, rows);
                let mut results = ProbeResults {
                    clock: Some(clock_report(gaps.clock.check(), &gaps.alignment)),
                    ..ProbeResults::default()
                };
                for report in &reports {
                    results.note_policy(report.cpu, &report.policy);
                    results.note_loss(report.cpu, report.gaps_dropped);
                    results.note_witness(report);
                    results.reports.push(spin_report(report, &gaps));
                }
                results
            }
        }
    }
}

impl AlignedGaps {
    /// Converts pending gaps into rows. First compares the clocks, so that each gap lies between
    /// two comparisons.
    fn emit(&mut self, sources: &mut SourceTable, rows: &mut Vec<Row>) {
        self.alignment.push(self.clock.anchor());
        let source = gap_source(sources, ProbeKind::Spin);
        for (cpu, gap) in self.waiting.drain(..) {
            let begin = self.alignment.to_monotonic(gap.start_counter);
            let end = self.alignment.to_monotonic(gap.end_counter);
            rows.extend(
                gap_until(self.end, begin, end).map(|end| gap_row(cpu, source, begin, end)),
            );
        }
    }

    /// Returns the time at which the probe's counter had the value `counter`, but no later than the
    /// end of watching.
    fn time_of(&self, counter: u64) -> Nanos {
        self.alignment.to_monotonic(counter).min(self.end)
    }
}

/// Cuts the gap from `begin` to `end` off at `last`, when watching ends. Returns the gap's new end,
/// or `None` if the gap does not start before `last`.
fn gap_until(last: Nanos, begin: Nanos, end: Nanos) -> Option<Nanos> {
    (begin < last).then_some(end.min(last))
}

impl ProbeResults {
    fn note_policy(&mut self, cpu: Cpu, grant: &PolicyGrant) {
        if grant.refusal.is_some() {
            self.refused.push((cpu, grant.clone()));
        }
    }

    /// Stores the counts that the kernel kept for the probe. A probe that ended early either did
    /// not read them or had left its CPU, so they are not stored then.
    fn note_witness(&mut self, report: &SpinReport) {
        if report.error.is_none() {
            let witness = ProbeWitness {
                switches: report.switches,
                switches_at_ends: report.switches_at_ends,
                faults: report.faults,
            };
            self.witnesses.insert(report.cpu.0, witness);
        }
    }

    fn note_loss(&mut self, cpu: Cpu, gaps: u64) {
        if gaps > 0 {
            self.lost.push(Loss {
                gaps,
                ..Loss::none(cpu)
            });
        }
    }
}

fn gap_source(sources: &mut SourceTable, probe: ProbeKind) -> SourceId {
    sources.intern(Source::kernel(Kind::Gap, probe.name(), ""))
}

fn gap_row(cpu: Cpu, source: SourceId, begin: Nanos, end: Nanos) -> Row {
    let dur = end - begin;
    Row::Span(Span {
        cpu,
        start: begin,
        dur,
        self_time: dur,
        source,
    })
}

fn clock_report(check: &CounterCheck, alignment: &Alignment) -> ClockReport {
    let anchors = alignment.anchors();
    let bracket = anchors
        .iter()
        .map(|anchor| anchor.bracket)
        .min()
        .unwrap_or_default();
    ClockReport {
        counter: check.source,
        frequency_hz: check.frequency_hz as f64,
        drift_ppm: check.drift_ppm,
        backwards_steps: check.backwards_steps.into(),
        verdict: check.verdict.clone(),
        bracket,
        uncertainty: alignment.uncertainty(),
        anchors: anchors.len() as u64,
    }
}

fn spin_report(report: &SpinReport, gaps: &AlignedGaps) -> ProbeReport {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a loop iteration takes tens of ns"
    )]
    let period = Nanos(report.loop_median_ns.round() as i64);
    ProbeReport {
        probe: ProbeKind::Spin,
        cpu: report.cpu,
        tid: report.tid,
        policy: report.policy.clone(),
        period,
        threshold: report.threshold,
        iterations: report.loops,
        begin: gaps.time_of(report.started_counter),
        end: gaps.time_of(report.ended_counter),
        ended_early: report.error.as_ref().map(ProbeError::failure),
    }
}

fn soak_report(report: &soak::SoakReport) -> SoakReport {
    SoakReport {
        cpu: report.cpu,
        tid: report.tid,
        policy: report.policy.clone(),
        block: report.block,
        blocks: report.blocks,
        progress: report.progress.clone(),
        begin: report.started,
        end: report.ended,
        ended_early: report.error.as_ref().map(ProbeError::failure),
    }
}

fn sleep_report(report: &SleepReport, interval: Nanos) -> ProbeReport {
    ProbeReport {
        probe: ProbeKind::Sleep,
        cpu: report.cpu,
        tid: report.tid,
        policy: report.policy.clone(),
        period: interval,
        threshold: report.timer_slack.unwrap_or_default(),
        iterations: report.wakeups,
        begin: report.started,
        end: report.ended,
        ended_early: report.error.as_ref().map(ProbeError::failure),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::gap_until;

    #[test]
    fn a_gap_is_cut_at_the_end_of_watching() {
        let cut = |begin, end| gap_until(Nanos(1_000), Nanos(begin), Nanos(end));
        assert_eq!(cut(200, 900), Some(Nanos(900)));
        assert_eq!(cut(900, 4_000), Some(Nanos(1_000)));
        assert_eq!(cut(1_000, 4_000), None);
        let open = gap_until(Nanos::MAX, Nanos(900), Nanos(4_000));
        assert_eq!(open, Some(Nanos(4_000)));
    }
}
