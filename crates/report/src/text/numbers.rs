//! Number formats and names shared by several pages. Every number has a unit.

use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::pace::Distribution;
use ticktax_model::utc::Utc;
use ticktax_model::{Cpu, CpuList, Nanos};

use super::page::tied;

/// Name for the time a CPU was idle even though a thread was waiting for it.
pub(super) const WAKE_UP: &str = "wake-up latency";
/// Name for the time a CPU was idle even though a thread was waiting for it, if that thread then
/// ran on a different CPU.
pub(super) const MIGRATION: &str = "migration";

/// Name for time during which the kernel provably ran nothing.
pub(super) const OUTSIDE: &str = "hypervisor or firmware";

/// Returns the display name of a thread.
pub(crate) fn displayed(name: &str) -> &str {
    if name == UNREPORTED {
        return "unknown thread (switch not reported)";
    }
    name
}

/// Formats a time. `None` becomes an empty string.
pub(super) fn time_or_blank(time: Option<Nanos>) -> String {
    time.map_or_else(String::new, |time| time.to_string())
}

/// Formats a quantile with the precision of a histogram bucket. `None` becomes an empty string.
pub(super) fn rough_or_blank(time: Option<Nanos>) -> String {
    time.map_or_else(String::new, Nanos::rough)
}

/// Formats the median of a histogram and, if the histogram has enough values, its 99th percentile.
pub(super) fn quantiles(median: Nanos, p99: Option<Nanos>) -> String {
    let median = tied(format!("median {}", median.rough()));
    let p99 = p99.map(|p99| tied(format!("p99 {}", p99.rough())));
    p99.map_or(median.clone(), |p99| format!("{median}, {p99}"))
}

/// Formats a quantile with the precision of the distribution. An unknown quantile becomes an empty
/// string.
pub(super) fn quantile_or_blank(distribution: &Distribution, q: f64) -> String {
    let value = distribution.quantile(q);
    if distribution.exact {
        time_or_blank(value)
    } else {
        rough_or_blank(value)
    }
}

/// Formats a share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        size if size < 0.005 && share > 0.0 => "<0.01 %".to_owned(),
        size if size < 0.0995 => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// Formats a success rate as a percentage. Only complete success is shown as 100 %.
pub(super) fn percent_of_success(share: f64) -> String {
    let percent = share * 100.0;
    if share < 1.0 && percent >= 99.995 {
        return ">99.99 %".to_owned();
    }
    let digits = if percent >= 99.0 && share < 1.0 { 2 } else { 1 };
    format!("{percent:.digits$} %")
}

/// Formats a count as a rate per second of `wall`. A count of 0 becomes an empty string.
pub(super) fn rate(count: u64, wall: Nanos) -> String {
    if count == 0 || wall <= Nanos::ZERO {
        return String::new();
    }
    let rate = count as f64 / wall.as_secs_f64();
    match rate {
        r if r < 0.01 => "<0.01".to_owned(),
        r if r < 9.995 => format!("{r:.2}"),
        r if r < 99.95 => format!("{r:.1}"),
        r if r < 9_999.5 => format!("{r:.0}"),
        r if r < 999_950.0 => format!("{:.1}k", r / 1e3),
        r => format!("{:.1}M", r / 1e6),
    }
}

/// Formats an integer with its digits in groups of three: `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let (head, rest) = digits.split_at(first);
    let mut groups: Vec<&str> = if head.is_empty() {
        Vec::new()
    } else {
        vec![head]
    };
    groups.extend(
        rest.as_bytes()
            .chunks(3)
            .filter_map(|group| std::str::from_utf8(group).ok()),
    );
    tied(groups.join(" "))
}

/// Formats a time with nanosecond precision: `40.000000017 s`.
pub(super) fn exact(time: Nanos) -> String {
    let sign = if time < Nanos::ZERO { "-" } else { "" };
    let ns = time.0.unsigned_abs();
    let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    tied(format!("{sign}{}.{rest:09} s", grouped(seconds)))
}

/// Formats a count with its noun: `1 CPU`, `2 CPUs`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    tied(format!("{} {one}{plural}", grouped(count)))
}

/// Formats a list of CPUs: `CPU 3`, `CPUs 0-2,7`.
pub(super) fn cpu_names(cpus: impl Iterator<Item = Cpu>) -> String {
    tied(cpus.collect::<CpuList>().named())
}

/// Formats a memory size.
pub(super) fn bytes(size: u64) -> String {
    tied(format!("{:.1} MiB", size as f64 / f64::from(1 << 20)))
}

/// Formats a Unix time in seconds as a date and time in UTC.
pub(super) fn date(unix: i64) -> String {
    let Utc {
        year,
        month,
        day,
        hour,
        minute,
        ..
    } = Utc::from_unix_ms(unix.saturating_mul(1_000));
    tied(format!(
        "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC"
    ))
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{counted, date, exact, grouped, percent, percent_of_success, rate};

    #[test]
    fn dates_follow_the_gregorian_calendar() {
        for (unix, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13 UTC"),
            (4_107_542_399, "2100-02-28 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
            (-1, "1969-12-31 23:59 UTC"),
        ] {
            assert_eq!(date(unix).replace('\u{a0}', " "), text);
        }
    }

    #[test]
    fn numbers_keep_their_significant_digits() {
        let plain = |text: String| text.replace('\u{a0}', " ");
        assert_eq!(plain(grouped(1_234_567)), "1 234 567");
        assert_eq!(plain(grouped(12)), "12");
        assert_eq!(plain(exact(Nanos(40_000_000_017))), "40.000000017 s");
        assert_eq!(plain(exact(Nanos(-17))), "-0.000000017 s");
        assert_eq!(plain(counted(1, "CPU")), "1 CPU");
        assert_eq!(percent(0.000_01), "<0.01 %");
        assert_eq!(percent(0.000_99), "0.10 %");
        assert_eq!(percent(0.123_4), "12.3 %");
        assert_eq!(percent(-0.02), "-2.0 %");
        assert_eq!(percent_of_success(0.999_999), ">99.99 %");
        assert_eq!(percent_of_success(1.0), "100.0 %");
        assert_eq!(rate(250, Nanos::from_secs(1)), "250");
        assert_eq!(rate(6_012, Nanos::from_millis(100)), "60.1k");
        assert_eq!(rate(3, Nanos::ZERO), "");
    }
}
