//! Cases about `sysctl` and `fstab`, and about power and memory policies.

use super::tree::Expected::{Found, Silence};
use super::tree::{Case, case};

const SYSCTL: &str = "sysctl-not-in-effect";
const CONF: &str = "etc/sysctl.conf";
const FSTAB: &str = "etc/fstab";
const MOUNTS: &str = "proc/mounts";
const OPTIONS: &str = "fstab-options-not-in-effect";
const KIND: &str = "fstab-type-not-in-effect";

pub(crate) fn cases() -> Vec<Case> {
    let lists = [
        sysctl_found(),
        sysctl_silent(),
        fstab_kinds(),
        fstab_options(),
        frequencies(),
        wake_latency(),
        memory(),
    ];
    lists.into_iter().flatten().collect()
}

fn sysctl_found() -> Vec<Case> {
    vec![
        case(
            SYSCTL,
            "another value",
            &[
                (CONF, "kernel.timer_migration = 0\n"),
                ("proc/sys/kernel/timer_migration", "1\n"),
            ],
            Found("/etc/sysctl.conf:1"),
        ),
        case(
            SYSCTL,
            "the folder of precedence hides a file, and the last file wins",
            &[
                ("etc/sysctl.d/50-a.conf", "vm.stat_interval = 10\n"),
                ("usr/lib/sysctl.d/50-a.conf", "vm.stat_interval = 1\n"),
                ("usr/lib/sysctl.d/10-b.conf", "vm.stat_interval = 1\n"),
                ("proc/sys/vm/stat_interval", "1\n"),
            ],
            Found("10 in /etc/sysctl.d/50-a.conf:1"),
        ),
        case(
            SYSCTL,
            "a pattern, and a key with a dash",
            &[
                (CONF, "-net.ipv4.conf.*.rp_filter = 2\n"),
                ("proc/sys/net/ipv4/conf/all/rp_filter", "0\n"),
            ],
            Found("net.ipv4.conf.all.rp_filter"),
        ),
        case(
            SYSCTL,
            "a list of another length",
            &[
                (CONF, "kernel/sched_x = 1 2 3\n"),
                ("proc/sys/kernel/sched_x", "1 2\n"),
            ],
            Found("kernel.sched_x"),
        ),
    ]
}

fn sysctl_silent() -> Vec<Case> {
    vec![
        case(
            SYSCTL,
            "values that differ in their spelling alone",
            &[
                (
                    CONF,
                    "net.ipv4.tcp_rmem =  4096 131072\t6291456\nkernel.x = 0x10\n",
                ),
                ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
                ("proc/sys/kernel/x", "16\n"),
            ],
            Silence,
        ),
        case(
            SYSCTL,
            "a key that this kernel lacks, and comments",
            &[
                (
                    CONF,
                    "# vm.swappiness = 1\n;vm.swappiness=1\nkernel.sched_latency_ns = 5\nnonsense\n",
                ),
                ("proc/sys/vm/swappiness", "60\n"),
            ],
            Silence,
        ),
        case(
            SYSCTL,
            "commands, counters, and settings that are unreadable or read-only",
            &[
                (
                    CONF,
                    "vm.drop_caches = 3\nkernel.ns_last_pid = 7\nkernel.ro = 1\nkernel.wo = 1\n",
                ),
                ("proc/sys/vm/drop_caches", "0\n"),
                ("proc/sys/kernel/ns_last_pid", "9\n"),
                ("proc/sys/kernel/ro mode 444", "0\n"),
                ("proc/sys/kernel/wo mode 200", "0\n"),
            ],
            Silence,
        ),
        case(
            SYSCTL,
            "an interface of a container, and a key that is left out of a pattern",
            &[
                (
                    CONF,
                    "net.ipv4.conf.*.rp_filter = 2\n-net.ipv4.conf.all.rp_filter\n",
                ),
                ("proc/sys/net/ipv4/conf/veth7/rp_filter", "0\n"),
                ("proc/sys/net/ipv4/conf/all/rp_filter", "0\n"),
            ],
            Silence,
        ),
        case(
            SYSCTL,
            "an exact key that wins over a later pattern",
            &[
                ("etc/sysctl.d/1.conf", "net.ipv4.conf.all.rp_filter = 1\n"),
                ("etc/sysctl.d/2.conf", "net.ipv4.conf.*.rp_filter = 2\n"),
                ("proc/sys/net/ipv4/conf/all/rp_filter", "1\n"),
            ],
            Silence,
        ),
        case(
            SYSCTL,
            "a loader that does not read sysctl.conf",
            &[
                ("usr/lib/sysctl.d/1.conf", "vm.swappiness = 10\n"),
                (CONF, "vm.swappiness = 20\n"),
                ("proc/sys/vm/swappiness", "10\n"),
            ],
            Silence,
        ),
    ]
}

fn fstab_kinds() -> Vec<Case> {
    vec![
        case(
            KIND,
            "ext3 that runs as ext2",
            &[
                (FSTAB, "UUID=7-7 / ext3 defaults 0 1\n"),
                (MOUNTS, "/dev/root / ext2 rw,relatime 0 0\n"),
            ],
            Found("no journal"),
        ),
        case(
            KIND,
            "of two mounts at one place the upper one counts",
            &[
                (FSTAB, "/dev/sdb1 /srv xfs defaults 0 0\n"),
                (
                    MOUNTS,
                    "/dev/sdb1 /srv xfs rw 0 0\ntmpfs /srv tmpfs rw 0 0\n",
                ),
            ],
            Found("mounted as tmpfs"),
        ),
        case(
            KIND,
            "names of one thing, automatic ones, views and programs",
            &[
                (
                    FSTAB,
                    "host:/a /a nfs4 defaults\nLABEL=x /b auto defaults\n/b /c none bind\n\
                     /dev/sdc1 /d ntfs-3g defaults\nswap none swap sw\n/dev/sdd1 /e vfat,ntfs ro\n",
                ),
                (
                    MOUNTS,
                    "host:/a /a nfs rw 0 0\n/dev/sdb1 /b ext4 rw 0 0\n/dev/sdb1 /c ext4 rw 0 0\n\
                     /dev/sdc1 /d fuseblk rw 0 0\n/dev/sdd1 /e vfat ro 0 0\n",
                ),
            ],
            Silence,
        ),
        case(
            "fstab-not-mounted",
            "a disk that is not there",
            &[
                (FSTAB, "/dev/sdb1 /srv\\040data xfs defaults\n"),
                (MOUNTS, "/dev/sda1 / ext4 rw 0 0\n"),
            ],
            Found("/srv data is not mounted"),
        ),
        case(
            "fstab-not-mounted",
            "lines that need no mount, and one with a slash at its end",
            &[
                (
                    FSTAB,
                    "/dev/a /a xfs noauto\n/dev/b /b xfs nofail\n/dev/c none swap sw\n\
                     /dev/d /d xfs x-systemd.automount\n/dev/e /e/ xfs defaults\n# /dev/f /f xfs x\n",
                ),
                (MOUNTS, "/dev/e /e xfs rw 0 0\n"),
            ],
            Silence,
        ),
        case(
            "fstab-not-mounted",
            "no list of mounts",
            &[(FSTAB, "/dev/a /a xfs defaults\n")],
            Silence,
        ),
    ]
}

fn fstab_options() -> Vec<Case> {
    vec![
        case(
            OPTIONS,
            "another way of journalling, listed in /proc/fs",
            &[
                (FSTAB, "/dev/sda1 /srv ext4 data=journal 0 0\n"),
                (MOUNTS, "/dev/sda1 /srv ext4 rw,relatime 0 0\n"),
                ("proc/fs/ext4/sda1/options", "rw\ndata=ordered\n"),
            ],
            Found("data=ordered"),
        ),
        case(
            OPTIONS,
            "read-only after an error",
            &[
                (FSTAB, "/dev/sda1 / ext4 errors=remount-ro 0 1\n"),
                (MOUNTS, "/dev/sda1 / ext4 ro,relatime 0 0\n"),
            ],
            Found("mounted read-only"),
        ),
        case(
            OPTIONS,
            "times of access are written",
            &[
                (FSTAB, "/dev/sda1 / ext4 noatime,nodev 0 1\n"),
                (MOUNTS, "/dev/sda1 / ext4 rw,relatime,nodev 0 0\n"),
            ],
            Found("with noatime"),
        ),
        case(
            OPTIONS,
            "the last of two opposite options counts",
            &[
                (FSTAB, "/dev/a /a ext4 exec,noexec 0 0\n"),
                (MOUNTS, "/dev/a /a ext4 rw,relatime 0 0\n"),
            ],
            Found("with noexec"),
        ),
        case(
            OPTIONS,
            "options that are others' business, defaults, and one taken back",
            &[
                (
                    FSTAB,
                    "/dev/a /a ext4 defaults,user,_netdev,comment=x,x-gvfs-show,commit=5\n\
                     /dev/b /b ext4 noexec,exec\n/a /c none bind,ro\n/dev/d /d iso9660 defaults\n\
                     /dev/e /e ext4 data=ordered\n",
                ),
                (
                    MOUNTS,
                    "/dev/a /a ext4 rw 0 0\n/dev/b /b ext4 rw 0 0\n/dev/a /c ext4 rw 0 0\n\
                     /dev/d /d iso9660 ro 0 0\n/dev/e /e ext4 rw 0 0\n",
                ),
            ],
            Silence,
        ),
    ]
}

fn memory() -> Vec<Case> {
    let merging = |shared| {
        [
            ("sys/kernel/mm/ksm/run", "1\n"),
            ("sys/kernel/mm/ksm/pages_sharing", shared),
        ]
    };
    vec![
        case(
            "same-pages-never-merged",
            "none",
            &merging("0\n"),
            Found("none shared"),
        ),
        case(
            "same-pages-never-merged",
            "some",
            &merging("800\n"),
            Silence,
        ),
    ]
}

fn frequencies() -> Vec<Case> {
    const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0/affected_cpus";
    const DRIVER: &str = "sys/devices/system/cpu/cpufreq/policy0/scaling_driver";
    const GOVERNOR: &str = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
    const MAX: &str = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
    const HARDWARE: &str = "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq";
    let capped = |max| {
        [
            (POLICY, "0 1\n"),
            (GOVERNOR, "performance\n"),
            (MAX, max),
            (HARDWARE, "3000000\n"),
        ]
    };
    let efficient = [
        (
            "sys/devices/system/cpu/cpufreq/policy2/affected_cpus",
            "2\n",
        ),
        (
            "sys/devices/system/cpu/cpufreq/policy2/scaling_governor",
            "performance\n",
        ),
        (
            "sys/devices/system/cpu/cpufreq/policy2/scaling_max_freq",
            "1000000\n",
        ),
        (
            "sys/devices/system/cpu/cpufreq/policy2/cpuinfo_max_freq",
            "2000000\n",
        ),
    ];
    let governed = |driver| {
        [
            (POLICY, "0 1\n"),
            (GOVERNOR, "powersave\n"),
            (DRIVER, driver),
        ]
    };
    vec![
        case(
            "cpu-frequency-capped",
            "a cap",
            &capped("1500000\n"),
            Found("up to 50 % of the speed"),
        ),
        case(
            "cpu-frequency-capped",
            "CPUs that differ, all of them capped",
            &[&capped("1500000\n")[..], &efficient].concat(),
            Found("at most 1500 of 3000 MHz on CPUs 0-1\""),
        ),
        case(
            "cpu-frequency-capped",
            "the others of these",
            &[&capped("1500000\n")[..], &efficient].concat(),
            Found("at most 1000 of 2000 MHz on CPU 2\""),
        ),
        case(
            "cpu-frequency-capped",
            "no cap",
            &capped("3000000\n"),
            Silence,
        ),
        case("cpu-frequency-capped", "junk", &capped("fast\n"), Silence),
        case(
            "cpu-frequency-lowest",
            "no choice",
            &governed("acpi-cpufreq\n"),
            Found("the lowest frequency at any load, on CPUs 0-1"),
        ),
        case(
            "cpu-frequency-lowest",
            "the hardware chooses",
            &governed("intel_pstate\n"),
            Silence,
        ),
    ]
}

fn wake_latency() -> Vec<Case> {
    vec![
        case(
            "cpu-wake-latency-held",
            "a limit",
            &[("dev/cpu_dma_latency", "\u{5}\0\0\0")],
            Found("5 µs"),
        ),
        case(
            "cpu-wake-latency-held",
            "a limit of some ms, which keeps no CPU from sleeping",
            &[("dev/cpu_dma_latency", "\0\u{f}\0\0")],
            Silence,
        ),
        case(
            "cpu-wake-latency-held",
            "less than a reading",
            &[("dev/cpu_dma_latency", "\0\0")],
            Silence,
        ),
    ]
}
