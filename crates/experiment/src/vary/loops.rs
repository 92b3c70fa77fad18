//! The parameters of a paced loop that can be varied.

use ticktax_model::Nanos;
use ticktax_model::pace::{FrameRate, LoopSpec, PaceRule, SleepMethod};

use super::{Grid, MOST_ARMS, Row, Table, Vary, VaryError, set};

/// Changes to a paced loop. Where a field is `None`, the loop keeps its own value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pacing {
    /// Frames per second.
    pub rate: Option<FrameRate>,
    /// CPU time per frame.
    pub work: Option<Nanos>,
    /// Sleep method. For the model, only its resolution matters, and whether it spins.
    pub sleep: Option<SleepMethod>,
    /// Rule that determines when frames are due.
    pub rule: Option<PaceRule>,
}

impl Pacing {
    /// Returns the loop `spec` with these changes.
    pub fn changed(&self, spec: &LoopSpec) -> LoopSpec {
        LoopSpec {
            rate: self.rate.map_or(spec.rate, FrameRate::get),
            period: self.rate.map_or(spec.period, FrameRate::period),
            work: self.work.unwrap_or(spec.work),
            sleep: self.sleep.unwrap_or(spec.sleep),
            rule: self.rule.unwrap_or(spec.rule),
        }
    }
}

impl Table for Pacing {
    const ROWS: &'static [Row<Self>] = &[
        Row::new("sleep", |arm, text| set(&mut arm.sleep, text)),
        Row::new("rule", |arm, text| set(&mut arm.rule, text)),
        Row::new("rate", |arm, text| set(&mut arm.rate, text)),
        Row::new("work", |arm, text| set(&mut arm.work, text)),
    ];
}

/// Every combination of changes to a paced loop. Each combination is an arm.
pub type Loops = Grid<&'static Row<Pacing>>;

/// Parses the options that change a loop. The order of `names` determines the order of the arms:
/// the first name changes slowest.
///
/// # Errors
/// Returns an error if an option does not name a parameter of a loop, or if it is invalid.
pub fn loops(typed: &[Vary], names: &[&str]) -> Result<Loops, VaryError> {
    let mut typed = typed.to_vec();
    typed.sort_by_key(|vary| names.iter().position(|name| *name == vary.name()));
    Grid::new(&typed, Pacing::default(), MOST_ARMS)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::{LoopSpec, PaceRule, SleepMethod};

    use super::{Loops, Vary, loops};

    fn read(all: &[&str]) -> Result<Loops, String> {
        let typed: Result<Vec<Vary>, _> = all.iter().map(|text| text.parse()).collect();
        let typed = typed.map_err(|error| error.to_string())?;
        loops(&typed, &["rate", "work", "sleep", "rule"]).map_err(|error| error.to_string())
    }

    #[test]
    fn errors_start_with_the_parameters_name() {
        for (wrong, why) in [
            (
                &["nanosleep"][..],
                "`nanosleep` has no values: use NAME=LIST",
            ),
            (&["sleep="], "sleep: "),
            (
                &["sleep=nap"],
                "sleep: unknown value `nap`: choose nanosleep",
            ),
            (&["rate=0"], "rate: "),
            (&["rate=35,60,35"], "rate: duplicate value `35`"),
            (&["work=3"], "work: invalid duration `3`"),
            (
                &["speed=3"],
                "speed: unknown parameter: choose from sleep, rule, rate",
            ),
            (&["rate=35,,60"], "rate: "),
            (&["rate=35", "rate=60"], "rate: it is already varied"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.starts_with(why), "{wrong:?}: {error}");
        }
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
        let names = |all: &[&str]| -> Vec<String> {
            let arms = read(all).unwrap().arms().unwrap();
            arms.iter()
                .map(|arm| arm.changed(&base).to_string())
                .collect()
        };
        assert_eq!(
            names(&["sleep=nanosleep,timerfd", "rate=35,60", "work=0ms"]),
            [
                "35/s 0 ns nanosleep deadline",
                "35/s 0 ns timerfd deadline",
                "60/s 0 ns nanosleep deadline",
                "60/s 0 ns timerfd deadline",
            ]
        );
        assert_eq!(names(&[]), ["35/s 3.00 ms nanosleep deadline"]);
    }
}
