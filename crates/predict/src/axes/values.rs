//! Parses the items in a scenario parameter's list. An item is a single value or a range.

use ticktax_model::Nanos;
use ticktax_sim::settings::{Kind, Value};

use ticktax_experiment::vary::MOST_ARMS;

/// Parses a value or a range.
pub(super) fn parse(text: &str, kind: Kind) -> Result<Vec<Value>, String> {
    if text.is_empty() {
        return Err("a value is missing".to_owned());
    }
    let range = match kind {
        Kind::Word(_) => None,
        Kind::Integer(..) | Kind::Duration => text.split_once(".."),
    };
    let Some((first, rest)) = range else {
        return Ok(vec![one(text, kind)?]);
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
    // Check the number of values before listing them, because a long range might not fit in memory.
    let steps = last.abs_diff(first) / step.unsigned_abs();
    if steps >= MOST_ARMS as u64 {
        return Err(format!(
            "the range `{text}` has more than {MOST_ARMS} values: use a larger step"
        ));
    }
    let value = |number| match kind {
        Kind::Duration => Value::Duration(Nanos(number)),
        _ => Value::Integer(number),
    };
    let values = std::iter::successors(Some(first), |number| number.checked_add(step));
    Ok(values
        .take_while(|number| *number <= last)
        .map(value)
        .collect())
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

    use super::{Kind, Value, parse};

    const HZ: Kind = Kind::Integer(1, 1_000_000);

    fn read(text: &str, kind: Kind) -> Result<Vec<String>, String> {
        let values = parse(text, kind)?;
        Ok(values.iter().map(Value::to_string).collect())
    }

    #[test]
    fn ranges_include_their_end_if_a_step_lands_on_it() {
        let read = |text, kind| read(text, kind).unwrap().join(" ");
        assert_eq!(read("1000", HZ), "1000");
        assert_eq!(read("100..1000/300", HZ), "100 400 700 1000");
        assert_eq!(read("100..1000/400", HZ), "100 500 900");
        assert_eq!(read("5..5/1", HZ), "5");
        assert_eq!(read("1ms..2ms/500us", Kind::Duration), "1ms 1.5ms 2ms");
        assert_eq!(read("0s", Kind::Duration), "0s");
        assert_eq!(read("-2..2/2", Kind::Integer(-20, 19)), "-2 0 2");
        assert_eq!(read("b", Kind::Word(&["a", "b"])), "b");
    }

    #[test]
    fn errors_name_the_invalid_value() {
        for (text, kind, why) in [
            ("", HZ, "a value is missing"),
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
                "unknown value `c`: choose from a, b",
            ),
        ] {
            let error = read(text, kind).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_long_range_is_refused_without_listing_its_values() {
        let any = Kind::Integer(0, i64::MAX);
        assert_eq!(parse("1..1000000/1", any).unwrap().len(), 1_000_000);
        for text in ["0..1000000/1", "0..9223372036854775807/1"] {
            let error = parse(text, any).unwrap_err();
            assert!(error.contains("more than 1000000 values"), "{error}");
        }
        let last = parse("9223372036854775806..9223372036854775807/1", any);
        assert_eq!(last.unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn a_printed_time_parses_to_the_same_value(ns in 0_i64..=i64::MAX) {
            let time = Value::Duration(Nanos(ns));
            prop_assert_eq!(Kind::Duration.parse(&time.to_string()), Ok(time));
        }
    }
}
