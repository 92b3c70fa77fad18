//! Converts triggers into rules for the kernel and limits for the probes.

use std::path::{Path, PathBuf};

use ticktax_host::Proc;
use ticktax_model::incident::{AbovePercentile, Percentile, TriggerKind, TriggerLimit};
use ticktax_model::incident::{TriggerSpec, TriggerTarget};
use ticktax_model::{Cpu, CpuList, Histogram, Nanos};
use ticktax_probes::gaps::{GapProbe, GapWatch, LongGap};
use ticktax_trace::{Delay, Noticed, Rule, TraceError, Tracer, Whose};

use super::PercentileStatus;
use super::frames::Programs;
use super::learner::Learner;
use crate::error::ObserveError;

/// Mount point of the cgroup file system.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Rules for all triggers that compare the length of a delay with a threshold.
pub(super) struct Rules {
    /// Rules for triggers that the kernel evaluates, in the order in which they are passed to the
    /// kernel.
    kernel: Vec<KernelRule>,
    /// Rules for triggers that probes evaluate.
    gaps: Vec<GapRule>,
}

struct KernelRule {
    spec: TriggerSpec,
    rule: Rule,
    learner: Option<Learner>,
}

struct GapRule {
    spec: TriggerSpec,
    /// CPUs with probes that the rule applies to.
    cpus: CpuList,
    over: Nanos,
    learner: Option<Learner>,
}

/// Kind of the trigger that fired, and the threshold that the delay exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fired {
    pub(super) kind: TriggerKind,
    /// The percentile that the delay exceeded, or `None` if the threshold is a fixed time.
    pub(super) above: Option<AbovePercentile>,
}

/// A limit that no delay can reach.
const NEVER: Nanos = Nanos::MAX;

/// Returns the limit that applies at the start and, if the limit is a percentile, the percentile to
/// learn.
fn first_limit(limit: TriggerLimit) -> (Nanos, Option<Percentile>) {
    match limit {
        TriggerLimit::Time(over) => (over, None),
        TriggerLimit::Percentile(percentile) => (NEVER, Some(percentile)),
        TriggerLimit::None => (NEVER, None),
    }
}

impl Rules {
    /// Creates the rules for `specs`. A gap trigger that names no CPUs applies to `watched`.
    pub(super) fn from_triggers(
        specs: &[TriggerSpec],
        watched: &CpuList,
        online: &CpuList,
        proc: &Proc,
    ) -> Result<Self, ObserveError> {
        let mut rules = Self {
            kernel: Vec::new(),
            gaps: Vec::new(),
        };
        for spec in specs {
            let (over, percentile) = first_limit(spec.over);
            let learner =
                percentile.map(|percentile| Learner::new(percentile, Histogram::default()));
            let delay = match spec.kind {
                TriggerKind::Wait => Delay::Waiting,
                TriggerKind::Late => Delay::Woken,
                TriggerKind::Blocked => Delay::Blocked,
                TriggerKind::Throttled => Delay::Throttled,
                TriggerKind::Stretch => Delay::Stretch,
                TriggerKind::Frame => Delay::Frame,
                TriggerKind::Gap => {
                    rules.gaps.push(GapRule {
                        spec: spec.clone(),
                        cpus: probed(&spec.target, watched, online)?,
                        over,
                        learner,
                    });
                    continue;
                }
                TriggerKind::Signal | TriggerKind::Mark => continue,
            };
            rules.kernel.push(KernelRule {
                spec: spec.clone(),
                rule: Rule {
                    delay,
                    whose: match delay {
                        // `Programs` finds the process, and keeps checking which process it is.
                        Delay::Frame => Whose::Any,
                        _ => whose(&spec.target, proc)?,
                    },
                    over,
                    counted: learner.is_some(),
                    paced: None,
                },
                learner,
            });
        }
        if rules.kernel.len() > Rule::MAX {
            return Err(ObserveError::TooManyTriggers {
                count: rules.kernel.len(),
                max: Rule::MAX,
            });
        }
        Ok(rules)
    }

    /// Loads the rules into the kernel. Delays are counted from zero again.
    pub(super) fn begin(&mut self, tracer: &mut Tracer) -> Result<(), TraceError> {
        for (number, rule) in self.kernel.iter_mut().enumerate() {
            let percentile = rule.learner.as_ref().map(Learner::percentile);
            rule.learner =
                percentile.map(|percentile| Learner::new(percentile, tracer.lengths(number)));
        }
        self.apply(tracer)
    }

    /// Loads the rules into another tracer, which has not counted any delays yet.
    pub(super) fn move_to(&mut self, tracer: &mut Tracer) -> Result<(), TraceError> {
        self.apply(tracer)?;
        for (number, rule) in self.kernel.iter_mut().enumerate() {
            if let Some(learner) = &mut rule.learner {
                learner.switch_counter(tracer.lengths(number));
            }
        }
        Ok(())
    }

    /// Updates the frame rules to the current rhythms of their programs. A frame trigger without a
    /// threshold fires if a frame is one period late. Call [`Rules::apply`] afterwards.
    pub(super) fn pace(&mut self, programs: &Programs) {
        let is_frame = |rule: &&mut KernelRule| rule.spec.kind == TriggerKind::Frame;
        for rule in self.kernel.iter_mut().filter(is_frame) {
            rule.rule.paced = programs.paced(&rule.spec.target);
            if let (TriggerLimit::None, Some(paced)) = (rule.spec.over, rule.rule.paced) {
                rule.rule.over = paced.period;
            }
        }
    }

    /// Returns the program that a noticed delay belongs to if a frame trigger noticed it, or `None`
    /// if a different trigger did.
    pub(super) fn framed(&self, noticed: &Noticed) -> Option<&TriggerTarget> {
        let rule = self.kernel.get(noticed.rule)?;
        (rule.spec.kind == TriggerKind::Frame).then_some(&rule.spec.target)
    }

    pub(super) fn apply(&self, tracer: &mut Tracer) -> Result<(), TraceError> {
        let rules: Vec<Rule> = self.kernel.iter().map(|rule| rule.rule.clone()).collect();
        tracer.set_rules(&rules)
    }

    /// Looks up the trigger that fired by the number of its rule. Returns `None` if the rules have
    /// since been replaced with a shorter list.
    pub(super) fn fired(&self, noticed: &Noticed) -> Option<Fired> {
        let rule = self.kernel.get(noticed.rule)?;
        let above = rule.learner.as_ref().map(|learner| AbovePercentile {
            percentile: learner.percentile(),
            limit: noticed.over,
        });
        Some(Fired {
            kind: rule.spec.kind,
            above,
        })
    }

    /// Returns the CPUs that need a gap probe.
    pub(super) fn probed(&self) -> CpuList {
        self.gaps.iter().flat_map(|rule| rule.cpus.iter()).collect()
    }

    /// Prepares a probe on each CPU that needs one. Returns `None` if no CPU does.
    pub(super) fn probe(
        &self,
        probe: GapProbe,
        bell: impl Fn() + Clone + Send + 'static,
    ) -> Result<Option<GapWatch>, ObserveError> {
        let cpus = self.probed();
        if cpus.is_empty() {
            return Ok(None);
        }
        let watch = GapWatch::prepare(probe, &cpus, bell)?;
        self.set_limits(&watch);
        Ok(Some(watch))
    }

    /// Makes the probes report every gap that is long enough for any of the rules.
    fn set_limits(&self, watch: &GapWatch) {
        for cpu in watch.cpus() {
            let matching = self.gaps.iter().filter(|rule| rule.cpus.contains(cpu));
            let least = matching.map(|rule| rule.over).min();
            watch.set_limit(cpu, least.unwrap_or(NEVER));
        }
    }

    /// Returns the first rule that the gap matches, or `None` if it matches no rule.
    pub(super) fn gap_fired(&self, gap: &LongGap) -> Option<Fired> {
        let lasted = gap.end - gap.begin;
        let fits = |rule: &&GapRule| rule.cpus.contains(gap.cpu) && lasted >= rule.over;
        let rule = self.gaps.iter().find(fits)?;
        let above = rule.learner.as_ref().map(|learner| AbovePercentile {
            percentile: learner.percentile(),
            limit: rule.over,
        });
        Some(Fired {
            kind: TriggerKind::Gap,
            above,
        })
    }

    /// Ends a minute: updates the percentile thresholds from the delays counted in it.
    pub(super) fn turn(
        &mut self,
        tracer: &mut Tracer,
        watch: Option<&GapWatch>,
    ) -> Result<(), TraceError> {
        for (number, rule) in self.kernel.iter_mut().enumerate() {
            if let Some(learner) = &mut rule.learner {
                learner.turn(tracer.lengths(number));
                rule.rule.over = learner.limit().unwrap_or(NEVER);
            }
        }
        if let Some(watch) = watch {
            for rule in &mut self.gaps {
                if let Some(learner) = &mut rule.learner {
                    learner.turn(counted(watch, rule.cpus.iter()));
                    rule.over = learner.limit().unwrap_or(NEVER);
                }
            }
            self.set_limits(watch);
        }
        if self.kernel.iter().any(|rule| rule.learner.is_some()) {
            self.apply(tracer)?;
        }
        Ok(())
    }

    /// Returns whether any threshold is a percentile.
    pub(super) fn learns(&self) -> bool {
        self.percentiles().next().is_some()
    }

    /// Returns the status of the triggers whose thresholds are percentiles.
    pub(super) fn percentiles(&self) -> impl Iterator<Item = PercentileStatus> + '_ {
        let kernel = self.kernel.iter().map(|rule| (&rule.spec, &rule.learner));
        let gaps = self.gaps.iter().map(|rule| (&rule.spec, &rule.learner));
        kernel.chain(gaps).filter_map(|(spec, learner)| {
            let learner = learner.as_ref()?;
            Some(PercentileStatus {
                trigger: spec.clone(),
                seen: learner.seen(),
                enough: learner.percentile().enough(),
                limit: learner.limit(),
            })
        })
    }
}

/// Returns a histogram of all gaps that the probes on `cpus` have seen.
fn counted(watch: &GapWatch, cpus: impl Iterator<Item = Cpu>) -> Histogram {
    let mut all = Histogram::default();
    for histogram in cpus.filter_map(|cpu| watch.counted(cpu)) {
        all.merge(&histogram);
    }
    all
}

/// Returns the CPUs that a gap trigger applies to.
fn probed(
    target: &TriggerTarget,
    watched: &CpuList,
    online: &CpuList,
) -> Result<CpuList, ObserveError> {
    let TriggerTarget::Cpus(cpus) = target else {
        return Ok(watched.clone());
    };
    let missing: CpuList = cpus.iter().filter(|&cpu| !online.contains(cpu)).collect();
    if missing.is_empty() {
        return Ok(cpus.clone());
    }
    Err(ObserveError::Offline {
        missing,
        online: online.clone(),
    })
}

fn whose(target: &TriggerTarget, proc: &Proc) -> Result<Whose, ObserveError> {
    Ok(match target {
        // The parser doesn't accept CPUs as the target of a trigger about threads.
        TriggerTarget::Any | TriggerTarget::Cpus(_) => Whose::Any,
        TriggerTarget::Named(name) => Whose::Named(name.clone()),
        &TriggerTarget::Process(pid) => {
            let found = proc.process_of(pid).filter(|&pid| proc.is_alive(pid));
            let found = found.and_then(|pid| u32::try_from(pid).ok());
            Whose::Process(found.ok_or(ObserveError::NoProcess { pid })?)
        }
        TriggerTarget::Cgroup(folder) => {
            let folder: PathBuf = if folder.is_absolute() {
                folder.clone()
            } else {
                Path::new(CGROUPS).join(folder)
            };
            match Tracer::cgroup_number(&folder) {
                Ok(number) if Proc::processes_in(&folder).is_some() => Whose::Cgroup(number),
                _ => return Err(ObserveError::NoCgroup { folder }),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use ticktax_host::Proc;
    use ticktax_model::incident::{TriggerKind, TriggerSpec};
    use ticktax_model::{Cpu, CpuList, Nanos};
    use ticktax_probes::gaps::LongGap;

    use super::{Fired, NEVER, Rules};

    fn rules(texts: &[&str]) -> Result<Rules, String> {
        let specs: Vec<TriggerSpec> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let (watched, online) = (CpuList::first(2), CpuList::first(4));
        let rules = Rules::from_triggers(&specs, &watched, &online, &Proc::default());
        rules.map_err(|error| error.to_string())
    }

    /// Returns how many of these triggers the kernel evaluates.
    fn kernel_rules(texts: &[&str]) -> Result<usize, String> {
        rules(texts).map(|rules| rules.kernel.len())
    }

    #[test]
    fn the_kernel_evaluates_triggers_with_a_duration() {
        assert_eq!(kernel_rules(&["wait>5ms", "signal", "stretch>1ms"]), Ok(2));
        assert_eq!(kernel_rules(&["wait>5ms"; 8]), Ok(8));
        assert_eq!(kernel_rules(&["gap>5ms"; 9]), Ok(0));
        let error = kernel_rules(&["late>5ms"; 9]).unwrap_err();
        assert!(error.contains('9') && error.contains('8'), "{error}");
    }

    #[test]
    fn a_target_must_exist() {
        let own = format!("wait:pid={}>5ms", std::process::id());
        assert_eq!(kernel_rules(&[&own]), Ok(1));
        let error = kernel_rules(&["wait:pid=2147483647>5ms"]).unwrap_err();
        assert!(error.contains("no process 2147483647"), "{error}");
        let error = kernel_rules(&["wait:cgroup=/tmp>5ms"]).unwrap_err();
        assert!(error.contains("/tmp is not a cgroup"), "{error}");
    }

    #[test]
    fn gap_triggers_apply_to_watched_or_named_cpus() {
        let probed = |texts: &[&str]| rules(texts).map(|rules| rules.probed().to_string());
        assert_eq!(probed(&["wait>5ms"]), Ok(String::new()));
        assert_eq!(
            probed(&["gap>5ms", "gap:cpu=3>1ms"]),
            Ok("0-1,3".to_owned())
        );
        let error = probed(&["gap:cpu=2,7>5ms"]).unwrap_err();
        assert!(error.contains("CPU 7 is not online"), "{error}");
    }

    #[test]
    fn the_first_matching_gap_rule_counts() {
        let rules = rules(&["gap:cpu=1>p99", "gap:cpu=1>5ms", "gap:cpu=0>1ms"]).unwrap();
        let gap = |cpu, millis| LongGap {
            cpu: Cpu(cpu),
            begin: Nanos::ZERO,
            end: Nanos::from_millis(millis),
        };
        let by_time = Some(Fired {
            kind: TriggerKind::Gap,
            above: None,
        });
        assert_eq!(rules.gap_fired(&gap(1, 5)), by_time);
        assert_eq!(rules.gap_fired(&gap(1, 4)), None);
        assert_eq!(rules.gap_fired(&gap(0, 4)), by_time);
        assert_eq!(rules.gap_fired(&gap(2, 60_000)), None);
    }

    #[test]
    fn an_unknown_percentile_does_not_fire() {
        let rules = rules(&["wait>p99.9", "wait>5ms", "gap>p99"]).unwrap();
        let over: Vec<Nanos> = rules.kernel.iter().map(|rule| rule.rule.over).collect();
        assert_eq!(over, [NEVER, Nanos::from_millis(5)]);
        let counted: Vec<bool> = rules.kernel.iter().map(|rule| rule.rule.counted).collect();
        assert_eq!(counted, [true, false]);
        let status: Vec<String> = rules
            .percentiles()
            .map(|status| format!("{} {} {:?}", status.trigger, status.enough, status.limit))
            .collect();
        assert_eq!(status, ["wait>p99.9 10000 None", "gap>p99 1000 None"]);
    }
}
