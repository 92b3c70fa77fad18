//! Finds kernel parameters whose value differs from the one configured in a file.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::knob::KnobProposal;

use super::super::Facts;

use ticktax_model::configured::SysctlSetting;

/// Keys whose values the kernel or programs change, and keys that trigger an action.
const MOVING: [&str; 14] = [
    "fs.binfmt_misc.status",
    "fs.dentry-state",
    "fs.file-nr",
    "kernel.cap_last_cap",
    "kernel.domainname",
    "kernel.hostname",
    "kernel.ns_last_pid",
    "kernel.printk",
    "kernel.pty.nr",
    "kernel.tainted",
    "net.netfilter.nf_conntrack_count",
    "vm.compact_memory",
    "vm.drop_caches",
    "vm.stat_refresh",
];

/// Returns whether a key belongs to a single network interface. Interfaces come and go along with
/// the programs that set their keys.
fn is_of_an_interface(key: &str) -> bool {
    let parts: Vec<&str> = key.split('.').collect();
    match parts[..] {
        ["net", "ipv4" | "ipv6", "conf" | "neigh", interface, ..] => {
            !matches!(interface, "all" | "default")
        }
        _ => false,
    }
}

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let differs = |setting: &&SysctlSetting| {
        let key = &*setting.key;
        let skipped = MOVING.contains(&key) || key.starts_with("kernel.random.");
        let mut wanted = setting.other_values.iter().chain([&setting.value]);
        !skipped && !is_of_an_interface(key) && !wanted.any(|value| same(value, &setting.effective))
    };
    let settings = facts.configured.sysctl.iter().filter(differs);
    settings
        .map(|setting| Finding {
            rule: "sysctl-not-in-effect".to_owned(),
            title: format!("{} differs from its configured value", setting.key),
            configured: format!("{} in {}", setting.value, setting.location),
            effective: setting
                .effective
                .split_ascii_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
            measured: format!("/proc/sys/{}", path(&setting.key)),
            confidence: Confidence::Certain,
            severity: Severity::Warning,
            cost: cost(&setting.key),
            proposal: KnobProposal::new(&setting.key, &setting.value),
            remedy: "run `sysctl --system`; if that does not help, a program sets it later, the \
                kernel rejects the value, or the loader does not read /etc/sysctl.conf: find out \
                which, or correct the file"
                .to_owned(),
        })
        .collect()
}

fn path(key: &str) -> String {
    let swapped = key.chars().map(|c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    });
    swapped.collect()
}

/// Returns whether two values are equal. Numbers may be in any base, and the amount of white space
/// between words doesn't matter.
fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.split_ascii_whitespace(), b.split_ascii_whitespace());
    let equal =
        |a: &str, b: &str| a == b || number(a).is_some_and(|value| number(b) == Some(value));
    let (a, b): (Vec<&str>, Vec<&str>) = (a.collect(), b.collect());
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| equal(a, b))
}

/// Parses a number as the kernel does: a leading `0x` or `0` sets the base.
fn number(text: &str) -> Option<i128> {
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or((1, text), |digits| (-1, digits));
    let value = if let Some(digits) = digits.strip_prefix("0x") {
        i128::from_str_radix(digits, 16)
    } else if digits.len() > 1 && digits.starts_with('0') {
        i128::from_str_radix(digits, 8)
    } else {
        digits.parse()
    };
    value.ok().map(|value| sign * value)
}

/// Returns the cost of a wrong value if the parameter affects time or CPUs. For all others, the
/// cost is not known in general, so the result is `None`.
fn cost(key: &str) -> Option<Cost> {
    let what = match key {
        "kernel.nmi_watchdog" => "a performance counter and an NMI every few seconds on each CPU",
        "kernel.timer_migration" => {
            "wake-ups of idle CPUs by their timers, or extra timers on \
            busy CPUs"
        }
        "kernel.watchdog_thresh" => "how often the watchdog interrupts each CPU",
        "vm.stat_interval" => "how often each CPU is woken to update statistics",
        key if key.starts_with("kernel.sched_") => "which tasks run when, and for how long",
        key if key.starts_with("vm.dirty_") => "when writers wait for the disk",
        key if key.starts_with("net.core.") => "packets that wait or are lost in a buffer",
        _ => return None,
    };
    Cost::unmeasured(what)
}

#[cfg(test)]
mod tests {
    use super::{is_of_an_interface, same};

    #[test]
    fn values_are_compared_as_the_kernel_reads_them() {
        for (a, b, expected) in [
            ("4096 87380  6291456", "4096\t87380\t6291456", true),
            ("0x10", "16", true),
            ("0644", "420", true),
            ("-1", "-1", true),
            ("1", "0", false),
            ("1 2", "1", false),
            ("cubic", "bbr", false),
            ("", "", true),
        ] {
            assert_eq!(same(a, b), expected, "{a:?} {b:?}");
        }
        assert!(is_of_an_interface("net.ipv4.conf.veth7.rp_filter"));
        assert!(!is_of_an_interface("net.ipv4.conf.all.rp_filter"));
    }
}
