//! From triggers as they are asked for to what decides them: rules of the kernel's, and limits of probes.

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

/// Where cgroups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What decides the triggers that have a length.
pub(super) struct Rules {
    /// Those that the kernel decides, in the order of its rules.
    kernel: Vec<KernelRule>,
    /// Those of probes.
    gaps: Vec<GapRule>,
}

struct KernelRule {
    spec: TriggerSpec,
    rule: Rule,
    learner: Option<Learner>,
}

struct GapRule {
    spec: TriggerSpec,
    /// The probes that it is about.
    cpus: CpuList,
    over: Nanos,
    learner: Option<Learner>,
}

/// What made something a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fired {
    pub(super) kind: TriggerKind,
    /// The percentile that it was above, where its threshold is one.
    pub(super) above: Option<AbovePercentile>,
}

/// A time that nothing reaches: what fires from there on does not.
const NEVER: Nanos = Nanos::MAX;

/// From how long on it fires at first, and the percentile that it is to learn.
fn first_limit(limit: TriggerLimit) -> (Nanos, Option<Percentile>) {
    match limit {
        TriggerLimit::Time(over) => (over, None),
        TriggerLimit::Percentile(percentile) => (NEVER, Some(percentile)),
        TriggerLimit::None => (NEVER, None),
    }
}

impl Rules {
    /// Those of `specs`; gaps are those of `watched` where no CPUs are named.
    pub(super) fn of(
        specs: &[TriggerSpec],
        (watched, online): (&CpuList, &CpuList),
        proc: &Proc,
    ) -> Result<Self, ObserveError> {
        let mut rules = Self {
            kernel: Vec::new(),
            gaps: Vec::new(),
        };
        for spec in specs {
            let (over, percentile) = first_limit(spec.over);
            let learner = percentile.map(|it| Learner::new(it, Histogram::default()));
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
                        // Which process has the name, `Programs` finds out again and again.
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

    /// Has the kernel decide by them, and forgets what it had counted by others.
    pub(super) fn begin(&mut self, tracer: &mut Tracer) -> Result<(), TraceError> {
        for (number, it) in self.kernel.iter_mut().enumerate() {
            let percentile = it.learner.as_ref().map(Learner::percentile);
            it.learner = percentile.map(|it| Learner::new(it, tracer.lengths(number)));
        }
        self.apply(tracer)
    }

    /// Has another tracer decide by them, which has counted nothing yet.
    pub(super) fn go_on(&mut self, tracer: &mut Tracer) -> Result<(), TraceError> {
        self.apply(tracer)?;
        for (number, it) in self.kernel.iter_mut().enumerate() {
            if let Some(learner) = &mut it.learner {
                learner.counts_anew(tracer.lengths(number));
            }
        }
        Ok(())
    }

    /// Has those about frames go by what is known of their programs: a frame is lost from a period on. They are to be
    /// told to the kernel then.
    pub(super) fn pace(&mut self, programs: &Programs) {
        let of_frames = |it: &&mut KernelRule| it.spec.kind == TriggerKind::Frame;
        for it in self.kernel.iter_mut().filter(of_frames) {
            it.rule.paced = programs.paced(&it.spec.target);
            if let (TriggerLimit::None, Some(paced)) = (it.spec.over, it.rule.paced) {
                it.rule.over = paced.period;
            }
        }
    }

    /// Whose frames a trigger was about, where it was.
    pub(super) fn framed(&self, it: &Noticed) -> Option<&TriggerTarget> {
        let rule = self.kernel.get(it.rule)?;
        (rule.spec.kind == TriggerKind::Frame).then_some(&rule.spec.target)
    }

    pub(super) fn apply(&self, tracer: &mut Tracer) -> Result<(), TraceError> {
        let rules: Vec<Rule> = self.kernel.iter().map(|it| it.rule.clone()).collect();
        tracer.set_rules(&rules)
    }

    /// What the kernel noticed is about, by the number of its rule: the rules may have been replaced since.
    pub(super) fn fired(&self, it: &Noticed) -> Option<Fired> {
        let rule = self.kernel.get(it.rule)?;
        let above = rule.learner.as_ref().map(|learner| AbovePercentile {
            percentile: learner.percentile(),
            limit: it.over,
        });
        Some(Fired {
            kind: rule.spec.kind,
            above,
        })
    }

    /// The CPUs that need a probe.
    pub(super) fn probed(&self) -> CpuList {
        self.gaps.iter().flat_map(|it| it.cpus.iter()).collect()
    }

    /// A probe on each CPU that needs one; `None` where none does.
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

    /// Has the probes hand over what any of the rules is about.
    fn set_limits(&self, watch: &GapWatch) {
        for cpu in watch.cpus() {
            let of_cpu = self.gaps.iter().filter(|it| it.cpus.contains(cpu));
            let least = of_cpu.map(|it| it.over).min();
            watch.set_limit(cpu, least.unwrap_or(NEVER));
        }
    }

    /// Whether a gap is a trigger, by the first rule that it fits, and which percentile it was above.
    pub(super) fn gap_fired(&self, gap: &LongGap) -> Option<Fired> {
        let lasted = gap.end - gap.begin;
        let fits = |it: &&GapRule| it.cpus.contains(gap.cpu) && lasted >= it.over;
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

    /// A minute is over: thresholds that are percentiles are set by what was counted.
    pub(super) fn turn(
        &mut self,
        tracer: &mut Tracer,
        watch: Option<&GapWatch>,
    ) -> Result<(), TraceError> {
        for (number, it) in self.kernel.iter_mut().enumerate() {
            if let Some(learner) = &mut it.learner {
                learner.turn(tracer.lengths(number));
                it.rule.over = learner.limit().unwrap_or(NEVER);
            }
        }
        if let Some(watch) = watch {
            for it in &mut self.gaps {
                if let Some(learner) = &mut it.learner {
                    learner.turn(counted(watch, it.cpus.iter()));
                    it.over = learner.limit().unwrap_or(NEVER);
                }
            }
            self.set_limits(watch);
        }
        if self.kernel.iter().any(|it| it.learner.is_some()) {
            self.apply(tracer)?;
        }
        Ok(())
    }

    /// Whether any threshold is a percentile.
    pub(super) fn learns(&self) -> bool {
        self.percentiles().next().is_some()
    }

    /// How those stand that are percentiles.
    pub(super) fn percentiles(&self) -> impl Iterator<Item = PercentileStatus> + '_ {
        let kernel = self.kernel.iter().map(|it| (&it.spec, &it.learner));
        let gaps = self.gaps.iter().map(|it| (&it.spec, &it.learner));
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

/// All gaps of these probes, by length.
fn counted(watch: &GapWatch, cpus: impl Iterator<Item = Cpu>) -> Histogram {
    let mut all = Histogram::default();
    for of_cpu in cpus.filter_map(|cpu| watch.counted(cpu)) {
        all.merge(&of_cpu);
    }
    all
}

/// The CPUs of a rule about gaps.
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
        // The parser lets no thread be named by a CPU.
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
        let rules = Rules::of(&specs, (&watched, &online), &Proc::default());
        rules.map_err(|error| error.to_string())
    }

    /// How many of them the kernel decides.
    fn told(texts: &[&str]) -> Result<usize, String> {
        rules(texts).map(|rules| rules.kernel.len())
    }

    #[test]
    fn the_kernel_decides_what_has_a_length() {
        assert_eq!(told(&["wait>5ms", "signal", "stretch>1ms"]), Ok(2));
        assert_eq!(told(&["wait>5ms"; 8]), Ok(8));
        assert_eq!(told(&["gap>5ms"; 9]), Ok(0));
        let error = told(&["late>5ms"; 9]).unwrap_err();
        assert!(error.contains('9') && error.contains('8'), "{error}");
    }

    #[test]
    fn a_target_has_to_be_there() {
        let own = format!("wait:pid={}>5ms", std::process::id());
        assert_eq!(told(&[&own]), Ok(1));
        let error = told(&["wait:pid=2147483647>5ms"]).unwrap_err();
        assert!(error.contains("no process 2147483647"), "{error}");
        let error = told(&["wait:cgroup=/tmp>5ms"]).unwrap_err();
        assert!(error.contains("/tmp is not a cgroup"), "{error}");
    }

    #[test]
    fn gaps_are_of_the_cpus_that_are_watched_or_named() {
        let of = |texts: &[&str]| rules(texts).map(|rules| rules.probed().to_string());
        assert_eq!(of(&["wait>5ms"]), Ok(String::new()));
        assert_eq!(of(&["gap>5ms", "gap:cpu=3>1ms"]), Ok("0-1,3".to_owned()));
        let error = of(&["gap:cpu=2,7>5ms"]).unwrap_err();
        assert!(error.contains("CPU 7 is not online"), "{error}");
    }

    #[test]
    fn the_first_rule_that_a_gap_fits_counts() {
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
    fn a_percentile_does_not_fire_before_it_is_known() {
        let rules = rules(&["wait>p99.9", "wait>5ms", "gap>p99"]).unwrap();
        let over: Vec<Nanos> = rules.kernel.iter().map(|it| it.rule.over).collect();
        assert_eq!(over, [NEVER, Nanos::from_millis(5)]);
        let counted: Vec<bool> = rules.kernel.iter().map(|it| it.rule.counted).collect();
        assert_eq!(counted, [true, false]);
        let status: Vec<String> = rules
            .percentiles()
            .map(|it| format!("{} {} {:?}", it.trigger, it.enough, it.limit))
            .collect();
        assert_eq!(status, ["wait>p99.9 10000 None", "gap>p99 1000 None"]);
    }
}
