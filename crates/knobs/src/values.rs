//! The valid values for settings.

use std::fmt;

use ticktax_model::CpuList;

use crate::mechanism::parse_features;

/// The set of valid values for a setting.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values {
    /// An integer from the first to the second number, inclusive.
    Integer(i64, i64),
    /// An integer from the first to the second number, inclusive, or this word.
    IntegerOr(i64, i64, &'static str),
    /// One of the words that the setting's file lists.
    Offered,
    /// One of the words listed in the file with this path.
    OfferedIn(&'static str),
    /// Features to turn on or off, from those listed in the setting's file.
    Toggles,
    /// A non-empty list of CPUs.
    Cpus,
    /// A value that only the setting's mechanism can parse.
    Form(Form),
    /// None, because the kernel reads the setting only at boot.
    AtBoot,
}

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("{0}")]
    Expected(Values),
    #[error("choose from {}", offered.join(", "))]
    NotOffered { offered: Vec<String> },
    #[error("this kernel offers no values")]
    NoneOffered,
    #[error("the kernel reads it only at boot; try it with `ticktax lab run --cmdline`")]
    AtBoot,
}

/// A special format for values: its description and its parser.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    /// Description for users.
    pub(crate) about: &'static str,
    /// Validates a value and converts it to the form in which reading returns it. Returns `None` if
    /// the value doesn't match the description in `about`.
    pub(crate) parse: fn(&str) -> Option<String>,
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.about)
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(0, 1) => f.write_str("0 or 1"),
            Self::Integer(min, max) => write!(f, "{min} to {max}"),
            Self::IntegerOr(min, max, word) => write!(f, "{min} to {max}, or {word}"),
            Self::Offered | Self::OfferedIn(_) => f.write_str("any that the kernel offers"),
            Self::Toggles => f.write_str(
                "features to turn on (or, with the prefix NO_, to turn off), joined by +, for \
                 example NO_RUN_TO_PARITY; or off: followed by every feature to turn off",
            ),
            Self::Cpus => f.write_str("a list of CPUs, for example 0-3,8"),
            Self::Form(form) => f.write_str(form.about),
            Self::AtBoot => f.write_str("set at boot"),
        }
    }
}

impl Values {
    /// Validates a value and converts it to the form in which reading returns it. `offered`
    /// contains the words that the kernel offers.
    pub(crate) fn parse(&self, text: &str, offered: &[String]) -> Result<String, ValueError> {
        let text = text.trim();
        let parsed = match self {
            Self::Integer(min, max) => integer(text, *min, *max),
            Self::IntegerOr(min, max, word) => {
                integer(text, *min, *max).or_else(|| (text == *word).then(|| text.to_owned()))
            }
            Self::Offered | Self::OfferedIn(_) => {
                let found = offered.iter().find(|word| *word == text).cloned();
                return found.ok_or_else(|| match offered {
                    [] => ValueError::NoneOffered,
                    offered => ValueError::NotOffered {
                        offered: offered.to_owned(),
                    },
                });
            }
            Self::Toggles => {
                if offered.is_empty() {
                    return Err(ValueError::NoneOffered);
                }
                parse_features(text, offered)
            }
            Self::Cpus => {
                let cpus = text.parse::<CpuList>().ok();
                cpus.filter(|cpus| !cpus.is_empty())
                    .map(|cpus| cpus.to_string())
            }
            Self::Form(form) => (form.parse)(text),
            Self::AtBoot => return Err(ValueError::AtBoot),
        };
        parsed.ok_or(ValueError::Expected(*self))
    }

    /// Normalizes a value read from the kernel, which can contain extra whitespace or leading
    /// zeros.
    pub(crate) fn read(&self, text: &str) -> String {
        let words = match self {
            Self::Integer(..) | Self::IntegerOr(..) => integer(text, i64::MIN, i64::MAX),
            Self::Cpus => text.parse().ok().map(|cpus: CpuList| cpus.to_string()),
            _ => None,
        };
        words.unwrap_or_else(|| text.to_owned())
    }
}

fn integer(text: &str, min: i64, max: i64) -> Option<String> {
    let value: i64 = text.parse().ok()?;
    (min..=max).contains(&value).then(|| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::Values;

    #[test]
    fn values_are_normalized_or_refused() {
        let offered = ["none".to_owned(), "bfq".to_owned()];
        for (values, text, read) in [
            (Values::Integer(0, 200), " 060 ", Some("60")),
            (Values::Integer(0, 200), "201", None),
            (Values::Integer(-1, 5), "-1", Some("-1")),
            (Values::Integer(0, 5), "99999999999999999999", None),
            (Values::Integer(0, 5), "0x1", None),
            (Values::Integer(0, 5), "", None),
            (Values::IntegerOr(0, 5, "n/a"), "n/a", Some("n/a")),
            (Values::IntegerOr(0, 5, "n/a"), "na", None),
            (Values::Offered, "bfq", Some("bfq")),
            (Values::Offered, "cfq", None),
            (Values::Cpus, "1,0,8", Some("0-1,8")),
            (Values::Cpus, "", None),
            (Values::Cpus, "1-", None),
        ] {
            let parsed = values.parse(text, &offered);
            assert_eq!(parsed.ok().as_deref(), read, "{values} {text}");
        }
        let why = Values::Integer(0, 200).parse("300", &[]).unwrap_err();
        assert_eq!(why.to_string(), "0 to 200");
    }
}
