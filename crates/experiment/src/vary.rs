//! Parses `--vary NAME=LIST` and lists the arms of a comparison. Each combination of the values is
//! an arm.
//!
//! A [`Parameter`] is something that a verb can vary. Its implementation finds a parameter by name,
//! parses its values and applies them. [`Grid`] does the rest for every verb: it splits the lists,
//! rejects duplicates and grids that are too large, and numbers the arms.
//!
//! ```
//! use ticktax_experiment::vary::{Vary, loops};
//!
//! let varied: [Vary; 2] = ["rate=35, 60".parse()?, "sleep=nanosleep,spin".parse()?];
//! let grid = loops(&varied, &["rate", "sleep"])?;
//! assert_eq!(grid.len(), 4);
//! // The last parameter changes fastest.
//! assert_eq!(grid.settings(1)[1].to_string(), "sleep=spin");
//! let error = "rate".parse::<Vary>().unwrap_err();
//! assert_eq!(error.to_string(), "`rate` has no values: use NAME=LIST, for example hz=100,250");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod loops;

use std::collections::BTreeSet;
use std::fmt::{self, Debug, Display};
use std::str::FromStr;

use ticktax_model::comparison::Setting;

pub use loops::{Loops, Pacing, loops};

/// Maximum number of arms, unless a verb has a lower limit.
pub const MOST_ARMS: usize = 1_000_000;

/// The argument of a `--vary` option: a parameter's name and its list of values, as typed by the
/// user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    name: String,
    list: String,
}

/// Error in a parameter or its values. The message is one line that starts with the parameter's
/// name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VaryError(String);

/// Error in an arm with an invalid combination of values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArmError(String);

/// Something that `--vary` can set.
pub trait Parameter: Clone + Debug {
    /// The settings of an arm.
    type Arm: Clone + Debug;
    /// A value of the parameter. Different values have different texts, and parsing a value's text
    /// returns that value.
    type Value: Clone + Debug + Display;

    /// Finds the parameter called `name`. The arms are modifications of `base`.
    ///
    /// # Errors
    /// Returns an error that lists the parameters if none of them is called `name`.
    fn find(name: &str, base: &Self::Arm) -> Result<Self, String>;

    /// Parses one item of a list: a value or a range of values.
    ///
    /// # Errors
    /// Returns a description of the problem if the item is invalid.
    fn parse(&self, item: &str, base: &Self::Arm) -> Result<Vec<Self::Value>, String>;

    /// Returns the name of the property that the parameter sets. A grid cannot vary the same
    /// property twice.
    fn target(&self) -> String;

    /// Sets the parameter to `value`.
    ///
    /// # Errors
    /// Returns the reason if the arm cannot have this value.
    fn set(&self, arm: &mut Self::Arm, value: &Self::Value) -> Result<(), String>;

    /// Returns a key for the order in which parameters are set, lowest first.
    fn rank(&self) -> usize {
        0
    }

    /// Checks an arm after all its parameters have been set.
    ///
    /// # Errors
    /// Returns the reason if the combination of values is invalid.
    fn check(_arm: &Self::Arm) -> Result<(), String> {
        Ok(())
    }
}

/// The settings of an arm, with a table of the parameters that change them.
pub trait Table: Clone + Debug + Sized + 'static {
    /// All parameters.
    const ROWS: &'static [Row<Self>];
}

/// A parameter in the [`Table`] of `T`. Its values are kept as the user typed them.
#[derive(Debug)]
pub struct Row<T> {
    name: &'static str,
    sets: &'static str,
    set: fn(&mut T, &str) -> Result<(), String>,
}

impl<T> Row<T> {
    /// Returns a parameter. `set` parses a value and sets it.
    pub const fn new(name: &'static str, set: fn(&mut T, &str) -> Result<(), String>) -> Self {
        Self::alias(name, name, set)
    }

    /// Returns a parameter that sets the same property as the parameter called `sets`.
    pub const fn alias(
        name: &'static str,
        sets: &'static str,
        set: fn(&mut T, &str) -> Result<(), String>,
    ) -> Self {
        Self { name, sets, set }
    }
}

/// Parses a value into `field`.
///
/// # Errors
/// Returns the parser's error.
pub fn set<T: FromStr<Err: Display>>(field: &mut Option<T>, text: &str) -> Result<(), String> {
    *field = Some(text.parse().map_err(|why: T::Err| why.to_string())?);
    Ok(())
}

impl<T: Table> Parameter for &'static Row<T> {
    type Arm = T;
    type Value = String;

    fn find(name: &str, _: &T) -> Result<Self, String> {
        T::ROWS.iter().find(|row| row.name == name).ok_or_else(|| {
            let known: Vec<&str> = T::ROWS.iter().map(|row| row.name).collect();
            format!("unknown parameter: choose from {}", known.join(", "))
        })
    }

    fn parse(&self, item: &str, base: &T) -> Result<Vec<String>, String> {
        (self.set)(&mut base.clone(), item)?;
        Ok(vec![item.to_owned()])
    }

    fn target(&self) -> String {
        self.sets.to_owned()
    }

    fn set(&self, arm: &mut T, value: &String) -> Result<(), String> {
        (self.set)(arm, value)
    }
}

impl Vary {
    /// Returns the parameter's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates an error about the values, prefixed with the parameter's name.
    pub fn error(&self, why: &dyn Display) -> VaryError {
        VaryError(format!("{}: {why}", self.name))
    }
}

impl FromStr for Vary {
    type Err = VaryError;

    fn from_str(text: &str) -> Result<Self, VaryError> {
        let (name, list) = text
            .split_once('=')
            .map(|(name, list)| (name.trim(), list.trim()))
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| {
                VaryError(format!(
                    "`{text}` has no values: use NAME=LIST, for example hz=100,250"
                ))
            })?;
        Ok(Self {
            name: name.to_owned(),
            list: list.to_owned(),
        })
    }
}

impl Display for Vary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.list)
    }
}

/// A parameter with the values it takes.
#[derive(Clone, Debug)]
pub struct Axis<P: Parameter> {
    typed: Vary,
    parameter: P,
    values: Vec<P::Value>,
}

impl<P: Parameter> Axis<P> {
    /// Finds the parameter that `typed` names, and parses its values.
    ///
    /// # Errors
    /// Returns an error if the parameter is unknown, or if a value is invalid or repeated.
    pub fn new(typed: &Vary, base: &P::Arm) -> Result<Self, VaryError> {
        let error = |why: String| typed.error(&why);
        let parameter = P::find(typed.name(), base).map_err(error)?;
        let mut values = Vec::new();
        for item in typed.list.split(',').map(str::trim) {
            values.append(&mut parameter.parse(item, base).map_err(error)?);
        }
        let mut seen = BTreeSet::new();
        for value in &values {
            if !seen.insert(value.to_string()) {
                return Err(typed.error(&format_args!("duplicate value `{value}`")));
            }
        }
        Ok(Self {
            typed: typed.clone(),
            parameter,
            values,
        })
    }

    /// Returns the parameter's name, as typed by the user.
    pub fn name(&self) -> &str {
        self.typed.name()
    }

    /// Returns the name and the list of values, as typed by the user.
    pub fn typed(&self) -> &Vary {
        &self.typed
    }

    /// Returns the parameter.
    pub fn parameter(&self) -> &P {
        &self.parameter
    }

    /// Returns the values, in the order typed by the user.
    pub fn values(&self) -> &[P::Value] {
        &self.values
    }
}

/// Every combination of the values of several parameters. Each combination is an arm.
///
/// Arms are numbered from 0, and the last parameter changes fastest. The number of an arm depends
/// only on the lists and their order.
#[derive(Clone, Debug)]
pub struct Grid<P: Parameter> {
    base: P::Arm,
    axes: Vec<Axis<P>>,
    len: usize,
}

impl<P: Parameter> Grid<P> {
    /// Parses the options. Without any, the only arm is `base`. `most` is the maximum number of
    /// arms.
    ///
    /// # Errors
    /// Returns an error if an option is invalid, if two options set the same property, or if there
    /// are too many arms.
    pub fn new(typed: &[Vary], base: P::Arm, most: usize) -> Result<Self, VaryError> {
        let axes = typed.iter().map(|typed| Axis::new(typed, &base));
        Self::with_axes(axes.collect::<Result<_, _>>()?, base, most)
    }

    /// Combines options that have been parsed.
    ///
    /// # Errors
    /// Returns an error if two options set the same property, or if there are too many arms.
    pub fn with_axes(axes: Vec<Axis<P>>, base: P::Arm, most: usize) -> Result<Self, VaryError> {
        for (place, axis) in axes.iter().enumerate() {
            let target = axis.parameter.target();
            let mut before = axes[..place].iter();
            if let Some(other) = before.find(|other| other.parameter.target() == target) {
                let error = |why: &dyn Display| Err(axis.typed.error(why));
                return match other.name() {
                    name if name == axis.name() => error(&"it is already varied"),
                    name => error(&format_args!("it is already varied, as {name}")),
                };
            }
        }
        let lengths = axes.iter().map(|axis| axis.values.len());
        let len = lengths.fold(1, usize::saturating_mul);
        if len > most {
            let names: Vec<&str> = axes.iter().map(Axis::name).collect();
            return Err(VaryError(format!(
                "{}: {len} arms are too many (at most {most}): give fewer values",
                names.join(" × ")
            )));
        }
        Ok(Self { base, axes, len })
    }

    /// Returns the number of arms, which is at least one.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no parameter is varied.
    pub fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }

    /// Returns the settings that every arm is based on.
    pub fn base(&self) -> &P::Arm {
        &self.base
    }

    /// Returns the parameters that are varied, in the order typed by the user.
    pub fn axes(&self) -> &[Axis<P>] {
        &self.axes
    }

    /// Returns the number of values of each parameter.
    pub fn levels(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.values.len()).collect()
    }

    /// Returns the value of each parameter in arm `number`, which must be less than
    /// [`len`](Self::len).
    pub fn values(&self, number: usize) -> impl Iterator<Item = &P::Value> {
        let places = nth(&self.levels(), number);
        self.axes
            .iter()
            .zip(places)
            .map(|(axis, place)| &axis.values[place])
    }

    /// Returns the name and value of each parameter in arm `number`.
    pub fn settings(&self, number: usize) -> Vec<Setting> {
        let values = self.axes.iter().zip(self.values(number));
        values
            .map(|(axis, value)| Setting::new(axis.name(), value))
            .collect()
    }

    /// Returns the settings of arm `number`.
    ///
    /// # Errors
    /// Returns an error if the combination of values is invalid.
    pub fn arm(&self, number: usize) -> Result<P::Arm, ArmError> {
        self.arm_over(self.base.clone(), number)
    }

    /// Returns the settings that arm `number` would have if the grid were based on `base`. The
    /// order of the options does not matter.
    ///
    /// # Errors
    /// Returns an error if the combination of values is invalid.
    pub fn arm_over(&self, base: P::Arm, number: usize) -> Result<P::Arm, ArmError> {
        let mut arm = base;
        let mut settings: Vec<_> = self.axes.iter().zip(self.values(number)).collect();
        settings.sort_by_key(|(axis, _)| axis.parameter.rank());
        for (axis, value) in settings {
            let set = axis.parameter.set(&mut arm, value);
            set.map_err(|why| ArmError(format!("{}={value}: {why}", axis.name())))?;
        }
        P::check(&arm).map_err(ArmError)?;
        Ok(arm)
    }

    /// Returns the settings of every arm.
    ///
    /// # Errors
    /// Returns an error if a combination of values is invalid.
    pub fn arms(&self) -> Result<Vec<P::Arm>, ArmError> {
        (0..self.len).map(|number| self.arm(number)).collect()
    }
}

/// Returns the index into each list in combination `number` of lists with these lengths. The last
/// list changes fastest.
pub(crate) fn nth(levels: &[usize], number: usize) -> Vec<usize> {
    let mut span: usize = levels.iter().product();
    let place = |&level: &usize| {
        span /= level;
        number / span % level
    };
    levels.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::{Vary, nth};

    #[test]
    fn options_need_a_name_and_a_list() {
        for text in ["", "hz", "=1,2"] {
            let error = text.parse::<Vary>().unwrap_err().to_string();
            assert!(error.contains("use NAME=LIST"), "{text}: {error}");
        }
        let vary: Vary = " cmdline =,nohz=off highres=off".parse().unwrap();
        assert_eq!(vary.to_string(), "cmdline=,nohz=off highres=off");
    }

    #[test]
    fn the_last_list_changes_fastest() {
        let all: Vec<Vec<usize>> = (0..6).map(|number| nth(&[2, 3], number)).collect();
        assert_eq!(all, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
        assert_eq!(nth(&[], 0), [0; 0]);
    }
}
