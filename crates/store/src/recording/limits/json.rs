//! Limits on the JSON of a header. They are checked before the JSON is deserialized into a
//! [`Header`](crate::recording::Header), because a list of empty objects takes a hundred times its
//! size in memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Maximum length of a string, in bytes. Linux has the same limit for a command-line argument.
const TEXT: usize = 128 * 1024;
/// Limit for numbers that are not times, as a power of 2. The sum of such numbers over 8,192 CPUs
/// still fits into 64 bits.
const NUMBER_BITS: u32 = 50;
/// Limit for times in ns and for numbers in a list, as a power of 2. As a time, this is 146 years.
const TIME_BITS: u32 = 62;
/// Suffix in the names of fields that contain a time.
const TIME_SUFFIX: &str = "_ns";

/// Checks the JSON of a header. Errors come from serde and include the position in the text.
pub(crate) fn check(json: &str) -> serde_json::Result<()> {
    let mut left = Left(16_384 + json.len() / 16);
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let checker = Checker {
        left: &mut left,
        key: "",
        listed: false,
    };
    checker.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Number of texts, lists and objects that the rest of the JSON may contain.
struct Left(usize);

impl Left {
    fn take<E: serde::de::Error>(&mut self) -> Result<(), E> {
        let left = self.0.checked_sub(1);
        self.0 = left.ok_or_else(|| E::custom("the header has too many values"))?;
        Ok(())
    }
}

/// Checker for a single JSON value.
struct Checker<'l, 'k> {
    left: &'l mut Left,
    /// Name of the innermost field that contains the value.
    key: &'k str,
    listed: bool,
}

impl Checker<'_, '_> {
    fn number<E: serde::de::Error>(self, size: u64) -> Result<(), E> {
        let is_time = self.listed || self.key.ends_with(TIME_SUFFIX);
        let bits = if is_time { TIME_BITS } else { NUMBER_BITS };
        if size >> bits == 0 {
            return Ok(());
        }
        let key = self.key;
        Err(E::custom(format!(
            "`{key}` is {size} but must be less than 2^{bits}"
        )))
    }
}

impl<'de> DeserializeSeed<'de> for Checker<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Checker<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<(), E> {
        self.number(number.unsigned_abs())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<(), E> {
        self.number(number)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if text.len() > TEXT {
            let key = self.key;
            return Err(E::custom(format!("`{key}` is longer than {TEXT} bytes")));
        }
        self.left.take()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.left.take()?;
        loop {
            let value = Checker {
                left: &mut *self.left,
                key: self.key,
                listed: true,
            };
            if list.next_element_seed(value)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        self.left.take()?;
        while let Some(key) = object.next_key::<String>()? {
            if key.len() > TEXT {
                return Err(A::Error::custom(format!("a name longer than {TEXT} bytes")));
            }
            object.next_value_seed(Checker {
                left: &mut *self.left,
                key: &key,
                listed: false,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{TEXT, check};

    fn error(json: &str) -> String {
        check(json).unwrap_err().to_string()
    }

    #[test]
    fn numbers_are_limited() {
        assert!(
            check(r#"{"at_ns": 1795717567000000000, "counts": [1152921504606846976]}"#).is_ok()
        );
        assert!(
            error(r#"{"a_ns": 9223372036854775807}"#).contains("`a_ns` is 9223372036854775807")
        );
        assert!(error(r#"{"a_ns": -9223372036854775808}"#).contains("`a_ns`"));
        assert!(error(r#"{"x": {"n": 1152921504606846976}}"#).contains("must be less than 2^50"));
    }

    #[test]
    fn the_number_of_values_is_limited() {
        let many = |of: &str| format!("[{}{of}]", format!("{of},").repeat(100_000));
        for of in ["{}", "[]", "\"\"", "{\"\":{}}"] {
            assert!(error(&many(of)).contains("too many values"), "{of}");
        }
        assert!(check(&many("0")).is_ok());
        assert!(check(&many(r#"{"cpu":0,"begin_ns":0}"#)).is_ok());
    }

    #[test]
    fn texts_are_limited() {
        let text = |length| format!("{{\"x\": \"{}\"}}", "a".repeat(length));
        assert!(check(&text(TEXT)).is_ok());
        assert!(error(&text(TEXT + 1)).contains("`x` is longer than 131072 bytes"));
        assert!(error(&format!("{{\"{}\": 0}}", "a".repeat(TEXT + 1))).contains("a name longer"));
    }
}
