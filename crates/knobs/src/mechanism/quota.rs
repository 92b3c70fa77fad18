//! A cgroup's CPU quota and its period. They share one file in cgroup v2, and have a file each in
//! v1.

use crate::error::Trouble;
use crate::system::System;
use crate::target::Target;
use crate::values::Form;

const V2: &str = "{}/cpu.max";
const V1_QUOTA: &str = "{}/cpu.cfs_quota_us";
const V1_PERIOD: &str = "{}/cpu.cfs_period_us";
/// Period, in µs, that is used if the user gives only a quota. It is also the kernel's default.
const DEFAULT_PERIOD: u64 = 100_000;
/// Periods that the kernel accepts, in µs.
const PERIODS: std::ops::RangeInclusive<u64> = 1_000..=1_000_000;
const MIN_QUOTA: u64 = 1_000;
/// Largest quota that ticktax accepts, in µs. It is below the kernel's own limit, which depends on
/// the kernel version.
const MAX_QUOTA: u64 = 1 << 40;
const NONE: &str = "max";

pub(crate) const FORM: Form = Form {
    about: "QUOTA/PERIOD in µs, for example 50000/100000, or max/PERIOD for no limit; PERIOD is \
        1000 to \
        1000000",
    parse,
};

fn parse(text: &str) -> Option<String> {
    let (quota, period) = match text.split_once('/') {
        Some((quota, period)) => (quota, period.parse().ok()?),
        None => (text, DEFAULT_PERIOD),
    };
    let is_quota = quota == NONE
        || quota
            .parse()
            .is_ok_and(|quota: u64| (MIN_QUOTA..=MAX_QUOTA).contains(&quota));
    (is_quota && PERIODS.contains(&period)).then(|| format!("{quota}/{period}"))
}

fn is_v2(system: &System, target: &Target) -> bool {
    super::file::is_there(system, target, V2)
}

pub(super) fn read(system: &System, target: &Target) -> Result<String, Trouble> {
    if is_v2(system, target) {
        let text = super::file::read_of(system, target, V2)?;
        return Ok(text.replacen(' ', "/", 1));
    }
    let quota = super::file::read_of(system, target, V1_QUOTA)?;
    let period = super::file::read_of(system, target, V1_PERIOD)?;
    let quota = if quota == "-1" { NONE } else { &quota };
    Ok(format!("{quota}/{period}"))
}

pub(super) fn write(system: &System, target: &Target, value: &str) -> Result<(), Trouble> {
    let (quota, period) = value
        .split_once('/')
        .ok_or_else(|| Trouble::new(FORM.about))?;
    let write = |file: &str, value: &str| super::file::write_of(system, target, file, value);
    if is_v2(system, target) {
        return write(V2, &format!("{quota} {period}"));
    }
    // Remove the limit before changing the period. Otherwise, the old quota with the new period
    // might exceed the parent cgroup's limit.
    write(V1_QUOTA, "-1")?;
    write(V1_PERIOD, period)?;
    if quota == NONE {
        return Ok(());
    }
    write(V1_QUOTA, quota)
}

#[cfg(test)]
mod tests {
    use super::{parse, read, write};
    use crate::fixture::Machine;
    use crate::target::Target;

    #[test]
    fn quotas_have_a_period() {
        for (text, value) in [
            ("50000/100000", Some("50000/100000")),
            ("50000", Some("50000/100000")),
            ("max", Some("max/100000")),
            ("max/20000", Some("max/20000")),
            ("999/100000", None),
            ("50000/999", None),
            ("-1", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(parse(text).as_deref(), value, "{text}");
        }
    }

    #[test]
    fn written_quotas_are_read_back_in_both_versions() {
        let machine = Machine::new();
        machine.put("cg/v2/cpu.max", "max 100000\n");
        machine.put("cg/v1/cpu.cfs_quota_us", "-1\n");
        machine.put("cg/v1/cpu.cfs_period_us", "100000\n");
        for group in ["/cg/v1", "/cg/v2"] {
            let target = Target::Cgroup(group.into());
            let system = machine.system();
            assert_eq!(read(&system, &target).unwrap(), "max/100000", "{group}");
            for value in ["50000/20000", "max/50000"] {
                write(&system, &target, value).unwrap();
                assert_eq!(read(&system, &target).unwrap(), value, "{group}");
            }
        }
        assert_eq!(machine.text("cg/v2/cpu.max"), "max 50000\n");
    }
}
