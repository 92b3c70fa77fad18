//! What was typed after `--vary` that is not a setting of the model.

use ticktax_experiment::vary::{Vary, VaryError};
use ticktax_lab::kernel::Wanted;
use ticktax_model::pace::{PaceRule, SleepMethod};

use super::{Rate, Work};

/// Variants of a paced loop; what is empty is not varied.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LoopVariants {
    pub(crate) sleeps: Vec<SleepMethod>,
    pub(crate) rules: Vec<PaceRule>,
    pub(crate) rates: Vec<Rate>,
    pub(crate) works: Vec<Work>,
}

impl LoopVariants {
    /// Takes a list in; `false` where it is of something else.
    pub(crate) fn take(&mut self, vary: &Vary) -> Result<bool, VaryError> {
        match vary.name() {
            "sleep" => fill(&mut self.sleeps, vary),
            "rule" => fill(&mut self.rules, vary),
            "rate" => fill(&mut self.rates, vary),
            "work" => fill(&mut self.works, vary),
            _ => Ok(false),
        }
    }

    /// Whether nothing is varied.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Kernels to compare, and what they are booted with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelVariants {
    /// The tick rates of kernels that `lab build` made.
    pub(crate) rates: Vec<u32>,
    pub(crate) kernels: Vec<Wanted>,
    /// Sets of boot parameters; a set can be nothing.
    pub(crate) cmdlines: Vec<String>,
}

impl KernelVariants {
    /// Takes a list in; `false` where it is of something else.
    pub(crate) fn take(&mut self, vary: &Vary) -> Result<bool, VaryError> {
        match vary.name() {
            "hz" => fill(&mut self.rates, vary),
            "kernel" => fill(&mut self.kernels, vary),
            "cmdline" => fill(&mut self.cmdlines, vary),
            _ => Ok(false),
        }
    }
}

fn fill<T>(list: &mut Vec<T>, vary: &Vary) -> Result<bool, VaryError>
where
    T: std::str::FromStr + PartialEq,
    T::Err: std::fmt::Display,
{
    if !list.is_empty() {
        return Err(vary.error(&"it is varied twice"));
    }
    *list = vary.values()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use ticktax_model::pace::SleepMethod;

    use super::{LoopVariants, Rate};

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
    fn lists_go_where_their_name_says() {
        let variants = read(&["sleep=nanosleep,timerfd", "rate=35,60"]).unwrap();
        assert_eq!(
            variants.sleeps,
            [SleepMethod::Nanosleep, SleepMethod::Timerfd]
        );
        assert_eq!(variants.rates, [Rate(35.0), Rate(60.0)]);
        assert!(variants.rules.is_empty() && variants.works.is_empty() && !variants.is_empty());
        for (wrong, why) in [
            ("nanosleep", "NAME=LIST"),
            ("sleep=", "sleep: "),
            ("sleep=nap", "sleep: `nap` is none of nanosleep"),
            ("rate=0", "rate: "),
            ("rate=35,60,35", "rate: `35` is there twice"),
            ("work=3", "work: invalid duration `3`"),
            ("speed=3", "not taken"),
            ("rate=35,,60", "rate: "),
        ] {
            let error = read(&[wrong]).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        let error = read(&["rate=35", "rate=60"]).unwrap_err();
        assert_eq!(error, "rate: it is varied twice");
    }
}
