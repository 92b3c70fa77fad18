//! Dates and times in the Gregorian calendar, in UTC.

use std::fmt;
use std::str::FromStr;

/// A date and a time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utc {
    /// Year of the Gregorian calendar.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: i64,
    /// Day of the month, 1 to 31.
    pub day: i64,
    /// Hour, 0 to 23.
    pub hour: i64,
    /// Minute, 0 to 59.
    pub minute: i64,
    /// Second, 0 to 59.
    pub second: i64,
    /// Millisecond, 0 to 999.
    pub millis: i64,
}

/// Number of days from 1 March of year 0 to 1 January 1970. The algorithm starts years in March so
/// that a leap day is the last day of a year.
const EPOCH: i64 = 719_468;
/// Number of days in 400 years, after which the calendar repeats.
const ERA: i64 = 146_097;

impl Utc {
    /// Returns the date and time that is `at` ms after the start of 1970.
    pub fn from_unix_ms(at: i64) -> Self {
        let (second, millis) = (at.div_euclid(1_000), at.rem_euclid(1_000));
        let (days, second) = (second.div_euclid(86_400), second.rem_euclid(86_400));
        let days = days + EPOCH;
        let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, late) = if month < 10 {
            (month + 3, 0)
        } else {
            (month - 9, 1)
        };
        Self {
            year: year + era * 400 + late,
            month,
            day,
            hour: second / 3_600,
            minute: second / 60 % 60,
            second: second % 60,
            millis,
        }
    }

    /// Returns the number of milliseconds since the start of 1970.
    pub fn unix_ms(self) -> i64 {
        let (year, month) = if self.month > 2 {
            (self.year, self.month - 3)
        } else {
            (self.year - 1, self.month + 9)
        };
        let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
        let day = (153 * month + 2) / 5 + self.day - 1;
        let days = era * ERA + 365 * year + year / 4 - year / 100 + day - EPOCH;
        let second = self.hour * 3_600 + self.minute * 60 + self.second;
        (days * 86_400 + second) * 1_000 + self.millis
    }

    /// Formats the date and time for file names, in the basic format of ISO 8601:
    /// `20261122T021031.123Z`.
    pub fn basic(self) -> String {
        format!(
            "{:04}{:02}{:02}T{:02}{:02}{:02}.{:03}Z",
            self.year, self.month, self.day, self.hour, self.minute, self.second, self.millis
        )
    }

    /// Parses the format that [`Utc::basic`] writes; `None` for any other text.
    pub fn from_basic(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let (clock, millis) = time.split_once('.')?;
        if (date.len(), clock.len(), millis.len()) != (8, 6, 3) {
            return None;
        }
        Self {
            year: number(date.get(..4)?)?,
            month: number(date.get(4..6)?)?,
            day: number(date.get(6..)?)?,
            hour: number(clock.get(..2)?)?,
            minute: number(clock.get(2..4)?)?,
            second: number(clock.get(4..)?)?,
            millis: number(millis)?,
        }
        .checked()
    }

    /// Returns the date and time, or `None` if they do not exist in the calendar.
    fn checked(self) -> Option<Self> {
        (Self::from_unix_ms(self.unix_ms()) == self).then_some(self)
    }
}

/// Parses a number that consists of one to four digits.
fn number(text: &str) -> Option<i64> {
    let digits = text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Formats the date and time for display, to the millisecond: `2026-11-22 02:10:31.123 UTC`.
impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03} UTC",
            self.year, self.month, self.day, self.hour, self.minute, self.second, self.millis
        )
    }
}

/// Error for text that is not a valid date.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid date `{0}`: use UTC, for example 2026-11-22 or 2026-11-22T02:10")]
pub struct UtcError(String);

/// Parses a date, with or without a time of day, in UTC: `2026-11-22`, `2026-11-22T02:10` or
/// `2026-11-22 02:10:31`.
impl FromStr for Utc {
    type Err = UtcError;

    fn from_str(text: &str) -> Result<Self, UtcError> {
        let read = || {
            let text = text.trim().trim_end_matches(" UTC").trim_end_matches('Z');
            let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
            let mut date = date.splitn(3, '-').map(number);
            let mut time = time.splitn(3, ':').map(number);
            Self {
                year: date.next()??,
                month: date.next()??,
                day: date.next()??,
                hour: time.next()??,
                minute: time.next()??,
                second: time.next().unwrap_or(Some(0))?,
                millis: 0,
            }
            .checked()
        };
        read().ok_or_else(|| UtcError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::Utc;

    #[test]
    fn known_dates_convert_both_ways() {
        for (unix, text) in [
            (0, "1970-01-01 00:00:00.000 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00.000 UTC"),
            (1_700_000_000_123, "2023-11-14 22:13:20.123 UTC"),
            (4_107_542_399_999, "2100-02-28 23:59:59.999 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00.000 UTC"),
            (-1, "1969-12-31 23:59:59.999 UTC"),
        ] {
            let utc = Utc::from_unix_ms(unix);
            assert_eq!(utc.to_string(), text);
            assert_eq!(utc.unix_ms(), unix, "{text}");
            assert_eq!(Utc::from_basic(&utc.basic()), Some(utc), "{text}");
        }
    }

    #[test]
    fn every_day_of_800_years_round_trips() {
        for day in -146_097..146_097 {
            let at = day * 86_400_000;
            assert_eq!(Utc::from_unix_ms(at).unix_ms(), at);
        }
    }

    #[test]
    fn dates_are_parsed_and_malformed_ones_rejected() {
        let read = |text: &str| text.parse::<Utc>().map(|utc| utc.to_string());
        for (text, date) in [
            ("2026-11-22", "2026-11-22 00:00:00.000 UTC"),
            ("2026-11-22T02:10", "2026-11-22 02:10:00.000 UTC"),
            ("2026-11-22 02:10:31", "2026-11-22 02:10:31.000 UTC"),
            ("2026-11-22T02:10Z", "2026-11-22 02:10:00.000 UTC"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(date), "{text}");
        }
        for text in [
            "",
            "22",
            "2026-11",
            "2026-13-01",
            "2026-02-29",
            "2026-11-22T25:00",
            "2026-11-22T",
            "+2026-11-22",
            "2026-11-22T02:10:61",
            "99999-01-01",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        for text in [
            "20261122T021031.123",
            "20261122T0210311.23Z",
            "20261322T021031.123Z",
        ] {
            assert_eq!(Utc::from_basic(text), None, "{text}");
        }
    }
}
