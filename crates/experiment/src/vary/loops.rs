//! Variants of a paced loop: one for each combination of parameter values.

use ticktax_model::Nanos;
use ticktax_model::pace::{FrameRate, LoopSpec, PaceRule, SleepMethod};

use super::{Vary, VaryError};

/// Values for each parameter of a loop. A parameter with an empty list is not varied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopVariants {
    /// Sleep methods.
    pub sleeps: Vec<SleepMethod>,
    /// Rules for when frames are due.
    pub rules: Vec<PaceRule>,
    /// Frame rates.
    pub rates: Vec<FrameRate>,
    /// CPU time per frame.
    pub works: Vec<Nanos>,
}

impl LoopVariants {
    /// Stores the values of `vary`. Returns `false` if it does not name a loop parameter.
    ///
    /// # Errors
    /// Returns an error if a value is invalid, or if the parameter already has values.
    pub fn take(&mut self, vary: &Vary) -> Result<bool, VaryError> {
        match vary.name() {
            "sleep" => vary.fill(&mut self.sleeps),
            "rule" => vary.fill(&mut self.rules),
            "rate" => vary.fill(&mut self.rates),
            "work" => vary.fill(&mut self.works),
            _ => return Ok(false),
        }?;
        Ok(true)
    }

    /// Whether no parameter is varied.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Every combination of the values. Parameters that are not varied have the value in `base`.
    pub fn combinations(&self, base: &LoopSpec) -> Vec<LoopSpec> {
        fn each<T: Copy>(
            specs: Vec<LoopSpec>,
            list: &[T],
            set: impl Fn(&mut LoopSpec, T),
        ) -> Vec<LoopSpec> {
            if list.is_empty() {
                return specs;
            }
            let with = |spec: LoopSpec| {
                let set = &set;
                list.iter().map(move |&value| {
                    let mut spec = spec;
                    set(&mut spec, value);
                    spec
                })
            };
            specs.into_iter().flat_map(with).collect()
        }
        let specs = each(vec![*base], &self.rates, |spec, rate: FrameRate| {
            spec.rate = rate.get();
            spec.period = rate.period();
        });
        let specs = each(specs, &self.works, |spec, work| spec.work = work);
        let specs = each(specs, &self.sleeps, |spec, sleep| spec.sleep = sleep);
        each(specs, &self.rules, |spec, rule| spec.rule = rule)
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::{LoopSpec, PaceRule, SleepMethod};

    use super::LoopVariants;

    fn read(all: &[&str]) -> Result<LoopVariants, String> {
        let mut variants = LoopVariants::default();
        for text in all {
            let vary = text.parse().map_err(|error| format!("{error}"))?;
            let taken = variants.take(&vary).map_err(|error| error.to_string())?;
            if !taken {
                return Err(format!("{text} is not taken"));
            }
        }
        Ok(variants)
    }

    #[test]
    fn lists_are_assigned_by_name() {
        let variants = read(&["sleep=nanosleep,timerfd", "rate=35,60"]).unwrap();
        assert_eq!(
            variants.sleeps,
            [SleepMethod::Nanosleep, SleepMethod::Timerfd]
        );
        let rates: Vec<Nanos> = variants.rates.iter().map(|rate| rate.period()).collect();
        assert_eq!(rates, [Nanos(28_571_429), Nanos(16_666_667)]);
        assert!(variants.rules.is_empty() && variants.works.is_empty() && !variants.is_empty());
        for (wrong, why) in [
            ("nanosleep", "NAME=LIST"),
            ("sleep=", "sleep: "),
            ("sleep=nap", "sleep: unknown word `nap`: choose nanosleep"),
            ("rate=0", "rate: "),
            ("rate=35,60,35", "rate: duplicate value `35`"),
            ("work=3", "work: invalid duration `3`"),
            ("speed=3", "not taken"),
            ("rate=35,,60", "rate: "),
        ] {
            let error = read(&[wrong]).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        let error = read(&["rate=35", "rate=60"]).unwrap_err();
        assert_eq!(error, "rate: it is already varied");
    }

    #[test]
    fn every_combination_is_listed() {
        let base = LoopSpec {
            rate: 35.0,
            period: Nanos(28_571_429),
            work: Nanos::from_millis(3),
            sleep: SleepMethod::Nanosleep,
            rule: PaceRule::Deadline,
        };
        let variants = read(&["sleep=nanosleep,timerfd", "rate=35,60", "work=0ms"]).unwrap();
        let names: Vec<String> = variants
            .combinations(&base)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            names,
            [
                "35/s 0 ns nanosleep deadline",
                "35/s 0 ns timerfd deadline",
                "60/s 0 ns nanosleep deadline",
                "60/s 0 ns timerfd deadline",
            ]
        );
    }
}
