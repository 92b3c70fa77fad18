//! Cases about boot parameters, clocks and the kernel log.

use super::tree::Expected::{Found, Silence};
use super::tree::{CONFIG, Case, case};

const ISOLATED: &str = "sys/devices/system/cpu/isolated";
const NOHZ_FULL: &str = "sys/devices/system/cpu/nohz_full";
const CLOCK: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
const CLOCKS: &str = "sys/devices/system/clocksource/clocksource0/available_clocksource";
const LOG: &str = "dev/kmsg";
const TIMERS: &str = "proc/timer_list";
const CMDLINE: &str = "proc/cmdline";

fn unknown(words: &str) -> String {
    format!(
        "5,0,0,-;Linux version 6.1.0\n5,9,0,-;Unknown kernel command line parameters \"{words}\", \
         will be passed to user space.\n"
    )
}

pub(crate) fn cases() -> Vec<Case> {
    let lists = [
        unknown_parameters(),
        clocks(),
        high_resolution(),
        isolated_cpus(),
        nohz_full(),
        divider(),
        huge_pages(),
        watchdogs(),
    ];
    lists.into_iter().flatten().collect()
}

fn unknown_parameters() -> Vec<Case> {
    vec![
        case(
            "boot-parameter-unknown",
            "a misspelt parameter",
            &[(LOG, &unknown("BOOT_IMAGE=/vmlinuz isolcpu=3 splash"))],
            Found("isolcpu=3 on"),
        ),
        case(
            "boot-parameter-unknown",
            "parameters for programs",
            &[(
                LOG,
                &unknown("BOOT_IMAGE=/vmlinuz splash systemd.unit=x single"),
            )],
            Silence,
        ),
        case(
            "boot-parameter-unknown",
            "a forged message",
            &[(
                LOG,
                "12,0,0,-;Unknown kernel command line parameters \"x\", will be\n",
            )],
            Silence,
        ),
    ]
}

fn clocks() -> Vec<Case> {
    vec![
        case(
            "clocksource-gave-way",
            "a TSC that was given up",
            &[
                (CLOCK, "hpet\n"),
                (CLOCKS, "hpet acpi_pm\n"),
                (
                    LOG,
                    "4,0,0,-;tsc: Marking TSC unstable due to clocksource watchdog\n",
                ),
            ],
            Found("Marking TSC unstable"),
        ),
        case(
            "clocksource-gave-way",
            "a TSC in use",
            &[(CLOCK, "tsc\n"), (CLOCKS, "tsc hpet\n")],
            Silence,
        ),
        case(
            "clocksource-gave-way",
            "a guest's own clock",
            &[(CLOCK, "kvm-clock\n"), (CLOCKS, "kvm-clock tsc\n")],
            Silence,
        ),
        case(
            "clocksource-gave-way",
            "a slow clock that was asked for",
            &[(CLOCK, "hpet\n"), (CMDLINE, "clocksource=hpet\n")],
            Silence,
        ),
        case(
            "clocksource-gave-way",
            "a slow clock that was asked for by its old name",
            &[(CLOCK, "acpi_pm\n"), (CMDLINE, "clocksource=pmtmr\n")],
            Silence,
        ),
        case(
            "clocksource-not-as-requested",
            "another clock",
            &[(CLOCK, "kvm-clock\n"), (CMDLINE, "quiet clocksource=tsc\n")],
            Found("clocksource kvm-clock"),
        ),
        case(
            "clocksource-not-as-requested",
            "that clock, the last one asked for",
            &[
                (CLOCK, "tsc\n"),
                (
                    CMDLINE,
                    "clocksource=hpet clocksource=tsc -- clocksource=x\n",
                ),
            ],
            Silence,
        ),
    ]
}

fn high_resolution() -> Vec<Case> {
    vec![
        case(
            "highres-not-as-requested",
            "high resolution although it was turned off",
            &[
                CONFIG,
                (CMDLINE, "highres=off"),
                (TIMERS, "  .hres_active    : 1\n"),
            ],
            Found("highres=off"),
        ),
        case(
            "highres-not-as-requested",
            "one CPU without",
            &[
                CONFIG,
                (TIMERS, "  .hres_active    : 1\n  .hres_active    : 0\n"),
            ],
            Found("up to one tick late"),
        ),
        case(
            "highres-not-as-requested",
            "all with it",
            &[CONFIG, (TIMERS, "  .hres_active    : 1\n")],
            Silence,
        ),
        case(
            "highres-not-as-requested",
            "off as asked",
            &[
                CONFIG,
                (CMDLINE, "highres=off"),
                (TIMERS, "  .hres_active    : 0\n"),
            ],
            Silence,
        ),
        case(
            "highres-not-as-requested",
            "not readable",
            &[CONFIG, (CMDLINE, "highres=off")],
            Silence,
        ),
    ]
}

fn isolated_cpus() -> Vec<Case> {
    vec![
        case(
            "isolcpus-without-effect",
            "CPUs that are not there",
            &[(CMDLINE, "isolcpus=90-91"), (ISOLATED, "\n")],
            Found("isolcpus=90-91"),
        ),
        case(
            "isolcpus-without-effect",
            "isolated",
            &[(CMDLINE, "isolcpus=2-3"), (ISOLATED, "2-3\n")],
            Silence,
        ),
        case(
            "isolcpus-without-effect",
            "flags that leave the domains alone",
            &[(CMDLINE, "isolcpus=nohz,managed_irq,2-3"), (ISOLATED, "\n")],
            Silence,
        ),
        case(
            "isolcpus-without-effect",
            "no /sys",
            &[(CMDLINE, "isolcpus=2-3")],
            Silence,
        ),
    ]
}

fn nohz_full() -> Vec<Case> {
    let config = CONFIG
        .1
        .replace("# CONFIG_NO_HZ_FULL is not set", "CONFIG_NO_HZ_FULL=y");
    vec![
        case(
            "nohz-full-without-effect",
            "a kernel without the option",
            &[CONFIG, (CMDLINE, "nohz_full=2-3")],
            Found("without CONFIG_NO_HZ_FULL"),
        ),
        case(
            "nohz-full-without-effect",
            "an empty list",
            &[
                ("boot/config-6.1.0", &config),
                (CMDLINE, "nohz_full=90"),
                (NOHZ_FULL, " (null)\n"),
            ],
            Found("its list of CPUs is empty"),
        ),
        case(
            "nohz-full-without-effect",
            "in effect",
            &[
                ("boot/config-6.1.0", &config),
                (CMDLINE, "nohz_full=2-3"),
                (NOHZ_FULL, "2-3\n"),
            ],
            Silence,
        ),
        case(
            "nohz-full-without-effect",
            "nothing known",
            &[(CMDLINE, "nohz_full=2-3")],
            Silence,
        ),
    ]
}

fn divider() -> Vec<Case> {
    vec![
        case(
            "tick-divider-without-effect",
            "a kernel that does not know it",
            &[
                CONFIG,
                (CMDLINE, "divider=10"),
                (LOG, &unknown("divider=10")),
            ],
            Found("does not know the parameter"),
        ),
        case(
            "tick-divider-without-effect",
            "nothing known",
            &[CONFIG, (CMDLINE, "divider=10")],
            Silence,
        ),
        case(
            "tick-divider-without-effect",
            "no divider, and one of nonsense",
            &[
                CONFIG,
                (CMDLINE, "divider=1 divider=x"),
                (LOG, &unknown("divider=x")),
            ],
            Silence,
        ),
    ]
}

fn huge_pages() -> Vec<Case> {
    vec![
        case(
            "huge-pages-not-as-requested",
            "set again after the boot",
            &[
                (CMDLINE, "transparent_hugepage=never"),
                (
                    "sys/kernel/mm/transparent_hugepage/enabled",
                    "[always] madvise never\n",
                ),
            ],
            Found("always"),
        ),
        case(
            "huge-pages-not-as-requested",
            "as asked",
            &[
                (CMDLINE, "transparent_hugepage=never"),
                (
                    "sys/kernel/mm/transparent_hugepage/enabled",
                    "always madvise [never]\n",
                ),
            ],
            Silence,
        ),
    ]
}

fn watchdogs() -> Vec<Case> {
    vec![
        case(
            "watchdog-not-as-requested",
            "on although turned off",
            &[
                (CMDLINE, "nmi_watchdog=0"),
                ("proc/sys/kernel/nmi_watchdog", "1\n"),
            ],
            Found("nmi_watchdog=0"),
        ),
        case(
            "watchdog-not-as-requested",
            "off as asked",
            &[
                (CMDLINE, "nmi_watchdog=0 nowatchdog"),
                ("proc/sys/kernel/nmi_watchdog", "0\n"),
                ("proc/sys/kernel/watchdog", "0\n"),
            ],
            Silence,
        ),
    ]
}
