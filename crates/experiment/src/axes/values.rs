//! Parses an axis's values: single values and ranges.

use ticktax_model::Nanos;
use ticktax_sim::settings::{Kind, Value};

/// A single value or a range. Ranges can be long, so they are never expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    One(Value),
    /// First value, step, number of values, and whether the values are times.
    Range {
        first: i64,
        step: i64,
        len: u128,
        time: bool,
    },
}

impl Item {
    pub(super) fn len(&self) -> u128 {
        match self {
            Self::One(_) => 1,
            Self::Range { len, .. } => *len,
        }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = Value> + use<> {
        let (one, first, step, len, time) = match *self {
            Self::One(value) => (Some(value), 0, 0, 0, false),
            Self::Range {
                first,
                step,
                len,
                time,
            } => (None, first, step, len, time),
        };
        let mut next = first;
        let range = (0..len).map(move |_| {
            let value = next;
            next = next.saturating_add(step);
            if time {
                Value::Duration(Nanos(value))
            } else {
                Value::Integer(value)
            }
        });
        one.into_iter().chain(range)
    }
}

/// Parses a comma-separated list of values and ranges.
pub(super) fn items(text: &str, kind: Kind) -> Result<Vec<Item>, String> {
    if text.is_empty() {
        return Err("no values given".to_owned());
    }
    text.split(',')
        .map(|part| item(part.trim(), kind))
        .collect()
}

fn item(text: &str, kind: Kind) -> Result<Item, String> {
    if matches!(kind, Kind::Word(_)) {
        return one(text, kind).map(Item::One);
    }
    let Some((first, rest)) = text.split_once("..") else {
        return one(text, kind).map(Item::One);
    };
    let Some((last, step)) = rest.split_once('/') else {
        return Err(format!(
            "the range `{text}` has no step: use, for example, {}",
            example(kind)
        ));
    };
    let read = |text: &str, kind: Kind| {
        one(text.trim(), kind).map(|value| match value {
            Value::Duration(time) => time.0,
            Value::Integer(number) => number,
            Value::Word(_) => 0,
        })
    };
    let any = match kind {
        Kind::Integer(..) => Kind::Integer(i64::MIN, i64::MAX),
        other => other,
    };
    let (first, last, step) = (read(first, kind)?, read(last, kind)?, read(step, any)?);
    if step <= 0 {
        return Err(format!("the step of the range `{text}` must be above 0"));
    }
    if last < first {
        return Err(format!("the range `{text}` ends before it starts"));
    }
    Ok(Item::Range {
        first,
        step,
        len: u128::from(last.abs_diff(first) / step.unsigned_abs()) + 1,
        time: kind == Kind::Duration,
    })
}

fn one(text: &str, kind: Kind) -> Result<Value, String> {
    kind.parse(text).map_err(|why| why.to_string())
}

fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Duration => "1ms..5ms/1ms",
        _ => "1..8/1",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ticktax_model::Nanos;

    use super::{Kind, Value, items};

    const HZ: Kind = Kind::Integer(1, 1_000_000);

    fn read(text: &str, kind: Kind) -> Result<Vec<String>, String> {
        let items = items(text, kind)?;
        let values = items.iter().flat_map(super::Item::values);
        Ok(values.map(|value| value.to_string()).collect())
    }

    #[test]
    fn values_and_ranges_keep_their_written_order() {
        let read = |text, kind| read(text, kind).unwrap().join(" ");
        assert_eq!(read("1000,100", HZ), "1000 100");
        assert_eq!(read("100..1000/300", HZ), "100 400 700 1000");
        assert_eq!(read("100..1000/400, 7", HZ), "100 500 900 7");
        assert_eq!(read("5..5/1", HZ), "5");
        assert_eq!(
            read("1ms..2ms/500us,0s", Kind::Duration),
            "1ms 1.5ms 2ms 0s"
        );
        assert_eq!(read("-2..2/2", Kind::Integer(-20, 19)), "-2 0 2");
        assert_eq!(read("b,a", Kind::Word(&["a", "b"])), "b a");
    }

    #[test]
    fn errors_name_the_invalid_value() {
        for (text, kind, why) in [
            ("", HZ, "no values given"),
            ("100,", HZ, "`` is not an integer"),
            ("9x", HZ, "`9x` is not an integer"),
            ("0", HZ, "0 is out of range: choose 1 to 1000000"),
            ("1..9", HZ, "no step: use, for example, 1..8/1"),
            ("1ms..9ms", Kind::Duration, "1ms..5ms/1ms"),
            ("9..1/1", HZ, "`9..1/1` ends before it starts"),
            ("1..9/0", HZ, "must be above 0"),
            ("1ms..2ms/0s", Kind::Duration, "must be above 0"),
            ("3", Kind::Duration, "invalid duration `3`"),
            ("-3ms", Kind::Duration, "invalid duration `-3ms`"),
            (
                "c",
                Kind::Word(&["a", "b"]),
                "unknown word `c`: choose from a, b",
            ),
        ] {
            let error = read(text, kind).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_long_range_is_counted_without_expanding_it() {
        let any = Kind::Integer(0, i64::MAX);
        let count = |text| super::Item::len(&items(text, any).unwrap()[0]);
        assert_eq!(count("1..1000000000/1"), 1_000_000_000);
        assert_eq!(count("0..9223372036854775807/1"), 1 << 63);
    }

    proptest! {
        #[test]
        fn a_printed_time_parses_to_the_same_value(ns in 0_i64..=i64::MAX) {
            let time = Value::Duration(Nanos(ns));
            prop_assert_eq!(Kind::Duration.parse(&time.to_string()), Ok(time));
        }
    }
}
