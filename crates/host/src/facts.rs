//! Reads facts about the machine and its kernel.

use std::collections::BTreeMap;
use std::io::Read;

use sha2::{Digest, Sha256};
use ticktax_model::CpuList;
use ticktax_model::machine::{Evidence, Machine, MachineFact, Preemption, TickMode, parameter};

use super::{Proc, running, self_test};

impl Proc {
    /// Returns everything about the machine that can be found out without privileges.
    pub fn machine(&self) -> Machine {
        let cmdline = self.text("proc/cmdline");
        let config = self.kernel_config();
        let option = |name: &str| config.as_deref().and_then(|text| config_value(text, name));
        let mut machine = Machine {
            host: self.text("proc/sys/kernel/hostname").unwrap_or_default(),
            kernel: self.text("proc/sys/kernel/osrelease").unwrap_or_default(),
            arch: self
                .text("proc/sys/kernel/arch")
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            hz_configured: option("CONFIG_HZ").and_then(|hz| hz.parse().ok()),
            tick_mode: tick_mode(
                config.as_deref(),
                cmdline.as_deref(),
                self.text("sys/devices/system/cpu/nohz_full").as_deref(),
            ),
            high_resolution: config.as_deref().map(|text| {
                config_value(text, "CONFIG_HIGH_RES_TIMERS").as_deref() == Some("y")
                    && !has_parameter(cmdline.as_deref(), "highres", "off")
            }),
            clocksource: self
                .text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            online: self.online().unwrap_or_default(),
            hypervisor: self.hypervisor(),
            accounting: accounting(config.as_deref()),
            preemption: self.preemption(config.as_deref()),
            configured: self.configured(config.as_deref()),
            // Only simulated machines have settings here. A real machine's settings are in
            // `configured`.
            settings: BTreeMap::new(),
            evidence: BTreeMap::new(),
            cmdline,
        };
        self.ask_the_kernel(&mut machine);
        machine
    }

    /// Adds facts that are missing from the kernel's build configuration but can be found out from
    /// the running kernel. Records how each was found.
    fn ask_the_kernel(&self, machine: &mut Machine) {
        if self.is_here() {
            if machine.hz_configured.is_none() {
                machine.hz_configured = running::tick_rate();
                note(machine, MachineFact::TickRate, Evidence::RunningKernel);
            }
            // High-resolution timers can be built in and enabled in the kernel, and still not work
            // on this hardware.
            if let Some(on) = running::high_resolution()
                && machine.high_resolution != Some(on)
            {
                machine.high_resolution = Some(on);
                note(
                    machine,
                    MachineFact::HighResolution,
                    Evidence::RunningKernel,
                );
            }
        }
        if machine.preemption.is_none() {
            let version = self.text("proc/sys/kernel/version").unwrap_or_default();
            machine.preemption = running::preemption(&version);
            if machine.preemption.is_some() {
                note(machine, MachineFact::Preemption, Evidence::RunningKernel);
            }
        }
        if machine.tick_mode.is_some() && !machine.accounting.is_empty() {
            return;
        }
        let functions = self.functions();
        if let Some(functions) = &functions {
            if machine.tick_mode.is_none() {
                let full = self.nohz_full(machine.cmdline.as_deref());
                let mode = full.map(|cpus| TickMode::NohzFull { cpus });
                machine.tick_mode = Some(mode.unwrap_or_else(|| functions.tick_mode()));
                note(machine, MachineFact::TickMode, Evidence::Btf);
            }
            if machine.accounting.is_empty() {
                machine.accounting = functions.accounting();
                note(machine, MachineFact::Accounting, Evidence::Btf);
            }
        } else if self.is_here()
            && machine.accounting.is_empty()
            && let Some(verdict) = self_test::run()
        {
            let method = if verdict.sampled {
                "TICK_CPU_ACCOUNTING"
            } else {
                "VIRT_CPU_ACCOUNTING_NATIVE"
            };
            machine.accounting = vec![method.to_owned()];
            // A kernel that samples CPU time at the tick never charges any to interrupts, because
            // the tick cannot arrive during another interrupt. If some time has been charged to
            // interrupts, the kernel measures it separately.
            if self.interrupts_are_measured() {
                machine.accounting.push("IRQ_TIME_ACCOUNTING".to_owned());
            }
            let ticks = verdict.ticks;
            note(
                machine,
                MachineFact::Accounting,
                Evidence::SelfTest { ticks },
            );
        }
    }

    fn interrupts_are_measured(&self) -> bool {
        let stat = self.text("proc/stat").unwrap_or_default();
        let first = stat.lines().next().unwrap_or_default();
        // Columns: `cpu user nice system idle iowait irq`.
        first
            .split_ascii_whitespace()
            .nth(6)
            .is_some_and(|irq| irq != "0")
    }

    /// Returns the CPUs that stop their tick even while busy. Returns `None` if the machine has no
    /// such CPUs.
    fn nohz_full(&self, cmdline: Option<&str>) -> Option<CpuList> {
        let in_effect = self.text("sys/devices/system/cpu/nohz_full")?;
        // The file exists only if the kernel supports `nohz_full`.
        let listed = in_effect.parse().ok();
        let asked = || parameter(cmdline?, "nohz_full")?.parse().ok();
        listed
            .or_else(asked)
            .filter(|cpus: &CpuList| !cpus.is_empty())
    }

    /// Returns whether this machine is called `host` and has been running since `unix`, in seconds
    /// since 1970. If so, process IDs from that time may still be valid.
    pub fn runs_since(&self, host: &str, unix: i64) -> bool {
        let stat = self.text("proc/stat").unwrap_or_default();
        let started = stat.lines().find_map(|line| line.strip_prefix("btime "));
        let started = started.and_then(|text| text.trim().parse::<i64>().ok());
        let same_host = self.text("proc/sys/kernel/hostname").as_deref() == Some(host);
        same_host && started.is_some_and(|started| started <= unix)
    }

    /// Returns `machine` with up-to-date values for facts that can change while it runs: the
    /// clocksource and the online CPUs.
    pub fn refreshed(&self, machine: &Machine) -> Machine {
        let clocksource =
            self.text("sys/devices/system/clocksource/clocksource0/current_clocksource");
        Machine {
            clocksource: clocksource.or_else(|| machine.clocksource.clone()),
            online: self.online().unwrap_or_else(|| machine.online.clone()),
            ..machine.clone()
        }
    }

    /// Returns the kernel's mitigations for CPU vulnerabilities as `VULNERABILITY: MITIGATION`,
    /// sorted by vulnerability.
    pub fn mitigations(&self) -> Vec<String> {
        let folder = "sys/devices/system/cpu/vulnerabilities";
        let line = |name: &String| {
            let mitigation = self.text(&format!("{folder}/{name}"))?;
            Some(format!("{name}: {mitigation}"))
        };
        self.names(folder).iter().filter_map(line).collect()
    }

    pub(super) fn kernel_config(&self) -> Option<String> {
        if let Ok(packed) = std::fs::File::open(self.root.join("proc/config.gz")) {
            let mut text = String::new();
            if flate2::read::GzDecoder::new(packed)
                .read_to_string(&mut text)
                .is_ok()
            {
                return Some(text);
            }
        }
        let release = self.text("proc/sys/kernel/osrelease")?;
        self.text(&format!("boot/config-{release}"))
            .or_else(|| self.text(&format!("lib/modules/{release}/config")))
    }

    /// Returns the machine's product name according to its firmware, for example `m7i.large` on EC2
    /// or `PowerEdge R650`.
    pub fn machine_type(&self) -> Option<String> {
        let name = self
            .text("sys/class/dmi/id/product_name")
            .or_else(|| self.text("proc/device-tree/model"))?;
        let name = name.trim_end_matches('\0').trim();
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// Returns a number that identifies this installation, in hexadecimal. It is derived from
    /// `/etc/machine-id`, which itself must stay confidential (`machine-id(5)`).
    pub fn machine_id(&self) -> Option<String> {
        let id = self.text("etc/machine-id")?;
        let id = id.trim();
        if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let hash = Sha256::digest(format!("ticktax facts {id}"));
        let (number, _) = hash.split_first_chunk()?;
        Some(format!("{:016x}", u64::from_be_bytes(*number)))
    }

    fn hypervisor(&self) -> Option<String> {
        let cpus = self.text("proc/cpuinfo")?;
        let Some(flags) = cpus.lines().find(|line| line.starts_with("flags")) else {
            return self.hypervisor_by_firmware();
        };
        if !flags
            .split_ascii_whitespace()
            .any(|flag| flag == "hypervisor")
        {
            return None;
        }
        // Prefer the name in the hypervisor's clock, if the kernel has such a clock, over the one
        // in the firmware.
        let clocks = self.text("sys/devices/system/clocksource/clocksource0/available_clocksource");
        let clocks = clocks.unwrap_or_default();
        let known = [("kvm-clock", "KVM"), ("hyperv", "Hyper-V"), ("xen", "Xen")];
        let by_clock = known.iter().find(|(clock, _)| clocks.contains(clock));
        let vendor = self
            .text("sys/class/dmi/id/sys_vendor")
            .filter(|name| !name.is_empty());
        let name = by_clock.map(|(_, name)| (*name).to_owned()).or(vendor);
        Some(name.unwrap_or_else(|| "an unidentified hypervisor".to_owned()))
    }

    /// Returns the hypervisor's name according to the firmware (`/sys/class/dmi` or the device
    /// tree). Returns `None` if the firmware looks like that of a physical machine. Needed for CPUs
    /// that have no hypervisor flag, as on arm64.
    fn hypervisor_by_firmware(&self) -> Option<String> {
        let vendor = self.text("sys/class/dmi/id/sys_vendor").unwrap_or_default();
        let product = self
            .text("sys/class/dmi/id/product_name")
            .unwrap_or_default();
        let known = ["QEMU", "KVM", "VMware", "Parallels"];
        let named = known
            .iter()
            .find(|name| vendor.contains(*name) || product.contains(*name));
        if let Some(name) = named {
            return Some((*name).to_owned());
        }
        let tree = |file: &str| self.text(&format!("proc/device-tree/{file}"));
        if let Some(name) = tree("hypervisor/compatible") {
            let name = name
                .split([',', '\0'])
                .next()
                .unwrap_or_default()
                .to_owned();
            return Some(name).filter(|name| !name.is_empty());
        }
        // QEMU's `virt` machine does not exist in hardware.
        tree("compatible")?
            .starts_with("linux,dummy-virt")
            .then(|| "QEMU".to_owned())
    }

    /// Returns the preemption model selected with `preempt=`, or else the one built into the
    /// kernel.
    fn preemption(&self, config: Option<&str>) -> Option<Preemption> {
        let has = |name: &str| {
            config
                .and_then(|text| config_value(text, name))
                .is_some_and(|value| value == "y")
        };
        let version = self.text("proc/sys/kernel/version").unwrap_or_default();
        if version.contains("PREEMPT_RT") || has("CONFIG_PREEMPT_RT") {
            return Some(Preemption::Rt);
        }
        if let Some(mode) = self.text("sys/kernel/debug/sched/preempt") {
            // The active model is in parentheses: `none voluntary (full)`.
            let inside = mode
                .split('(')
                .nth(1)
                .and_then(|rest| rest.split(')').next());
            if let Some(mode) = inside.and_then(|mode| mode.parse().ok()) {
                return Some(mode);
            }
        }
        let cmdline = self.text("proc/cmdline").unwrap_or_default();
        let chosen = cmdline
            .split_ascii_whitespace()
            .find_map(|word| word.strip_prefix("preempt=")?.parse().ok());
        let built = [
            ("CONFIG_PREEMPT_NONE", Preemption::None),
            ("CONFIG_PREEMPT_VOLUNTARY", Preemption::Voluntary),
            ("CONFIG_PREEMPT_LAZY", Preemption::Lazy),
            ("CONFIG_PREEMPT", Preemption::Full),
        ];
        chosen.or_else(|| {
            let found = built.iter().find(|(name, _)| has(name));
            found.map(|(_, mode)| *mode)
        })
    }
}

fn note(machine: &mut Machine, fact: MachineFact, known: Evidence) {
    machine.evidence.insert(fact, known);
}

pub(super) fn config_value(config: &str, name: &str) -> Option<String> {
    let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    config.lines().find_map(value)
}

fn has_parameter(cmdline: Option<&str>, name: &str, value: &str) -> bool {
    parameter(cmdline.unwrap_or_default(), name) == Some(value)
}

/// Returns the situations in which the tick stops. Ignores `nohz_full=` if the kernel was built
/// without support for it. A finding reports that case.
fn tick_mode(
    config: Option<&str>,
    cmdline: Option<&str>,
    in_effect: Option<&str>,
) -> Option<TickMode> {
    let set = |name: &str| config_value(config?, name).filter(|value| value == "y");
    if has_parameter(cmdline, "nohz", "off") || set("CONFIG_HZ_PERIODIC").is_some() {
        return Some(TickMode::Periodic);
    }
    // Prefer the list as parsed by the kernel, because the parameter itself can contain `all` or
    // strides.
    let full = in_effect.or_else(|| parameter(cmdline.unwrap_or_default(), "nohz_full"));
    let full = full.and_then(|list| list.parse::<CpuList>().ok());
    match full.filter(|cpus| !cpus.is_empty() && set("CONFIG_NO_HZ_FULL").is_some()) {
        Some(cpus) => Some(TickMode::NohzFull { cpus }),
        None => set("CONFIG_NO_HZ_COMMON").map(|_| TickMode::NohzIdle),
    }
}

fn accounting(config: Option<&str>) -> Vec<String> {
    const OPTIONS: [&str; 4] = [
        "TICK_CPU_ACCOUNTING",
        "VIRT_CPU_ACCOUNTING_GEN",
        "VIRT_CPU_ACCOUNTING_NATIVE",
        "IRQ_TIME_ACCOUNTING",
    ];
    let set = |option: &&str| {
        let name = format!("CONFIG_{option}");
        config
            .and_then(|text| config_value(text, &name))
            .is_some_and(|value| value == "y")
    };
    OPTIONS
        .iter()
        .filter(|option| set(option))
        .map(|&option| option.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::Proc;
    use super::tick_mode;
    use ticktax_model::machine::{Preemption, TickMode};

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn process_ids_stay_valid_until_the_machine_reboots() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/sys/kernel");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hostname"), "audio-7\n").unwrap();
        std::fs::write(root.path().join("proc/stat"), "cpu 1\nbtime 1700\nintr 4\n").unwrap();
        let proc = super::Proc::at(root.path());
        assert!(proc.runs_since("audio-7", 1_700));
        assert!(!proc.runs_since("audio-7", 1_699), "rebooted since");
        assert!(!proc.runs_since("audio-8", 1_700), "another machine");
    }

    #[test]
    fn an_empty_machine_has_no_facts_but_no_error() {
        let root = tempfile::tempdir().unwrap();
        let machine = Proc::at(root.path()).machine();
        assert_eq!(machine.hz_configured, None);
        assert_eq!(machine.tick_mode, None);
        assert!(machine.online.is_empty());
    }

    #[test]
    fn only_facts_that_can_change_are_refreshed() {
        let root = tempfile::tempdir().unwrap();
        let clocksource = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        put(root.path(), clocksource, "tsc\n");
        put(root.path(), "sys/devices/system/cpu/online", "0-3\n");
        put(root.path(), "proc/cmdline", "quiet\n");
        let proc = Proc::at(root.path());
        let before = proc.machine();
        assert_eq!(proc.refreshed(&before), before);
        put(root.path(), clocksource, "hpet\n");
        put(root.path(), "sys/devices/system/cpu/online", "0-1\n");
        fs::remove_file(root.path().join("proc/cmdline")).unwrap();
        let after = proc.refreshed(&before);
        assert_eq!(after.clocksource.as_deref(), Some("hpet"));
        assert_eq!(after.online.len(), 2);
        assert_eq!(after.cmdline, before.cmdline);
    }

    #[test]
    fn mitigations_are_sorted_by_name() {
        let root = tempfile::tempdir().unwrap();
        assert!(Proc::at(root.path()).mitigations().is_empty());
        let folder = "sys/devices/system/cpu/vulnerabilities";
        for (name, what) in [("meltdown", "Mitigation: PTI"), ("l1tf", "Not affected")] {
            put(
                root.path(),
                &format!("{folder}/{name}"),
                &format!("{what}\n"),
            );
        }
        assert_eq!(
            Proc::at(root.path()).mitigations(),
            ["l1tf: Not affected", "meltdown: Mitigation: PTI"]
        );
    }

    #[test]
    fn an_arm64_hypervisor_is_recognized_by_its_firmware() {
        let root = tempfile::tempdir().unwrap();
        let hypervisor = || Proc::at(root.path()).machine().hypervisor;
        put(
            root.path(),
            "proc/cpuinfo",
            "processor : 0\nFeatures : fp asimd\n",
        );
        assert_eq!(hypervisor(), None);
        put(
            root.path(),
            "proc/device-tree/compatible",
            "raspberrypi,4-model-b\0brcm,bcm2711\0",
        );
        assert_eq!(hypervisor(), None);
        put(
            root.path(),
            "proc/device-tree/compatible",
            "linux,dummy-virt\0",
        );
        assert_eq!(hypervisor().as_deref(), Some("QEMU"));
        put(
            root.path(),
            "proc/device-tree/hypervisor/compatible",
            "xen,xen-4.17\0xen,xen\0",
        );
        assert_eq!(hypervisor().as_deref(), Some("xen"));
        put(root.path(), "sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
        put(
            root.path(),
            "sys/class/dmi/id/product_name",
            "KVM Virtual Machine\n",
        );
        assert_eq!(hypervisor().as_deref(), Some("KVM"));
    }

    #[test]
    fn a_machine_has_a_type_and_an_id() {
        let root = tempfile::tempdir().unwrap();
        let proc = || Proc::at(root.path());
        assert_eq!(proc().machine_type(), None);
        assert_eq!(proc().machine_id(), None);
        put(root.path(), "proc/device-tree/model", "A Board\0");
        assert_eq!(proc().machine_type().as_deref(), Some("A Board"));
        put(root.path(), "sys/class/dmi/id/product_name", "m7i.large\n");
        assert_eq!(proc().machine_type().as_deref(), Some("m7i.large"));
        for damaged in ["", "uninitialized\n", "0123456789abcdef0123456789abcdeg\n"] {
            put(root.path(), "etc/machine-id", damaged);
            assert_eq!(proc().machine_id(), None, "{damaged}");
        }
        let id = "0123456789abcdef0123456789abcdef\n";
        put(root.path(), "etc/machine-id", id);
        // The first digits of `printf 'ticktax facts ID' | sha256sum`.
        assert_eq!(proc().machine_id().as_deref(), Some("961fb6b18dc171ba"));
    }

    #[test]
    fn facts_come_from_the_configuration_and_the_command_line() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/sys/kernel/osrelease", "6.1.0-test\n");
        put(
            root.path(),
            "boot/config-6.1.0-test",
            "CONFIG_HZ=250\nCONFIG_NO_HZ_COMMON=y\nCONFIG_HIGH_RES_TIMERS=y\n\
             CONFIG_TICK_CPU_ACCOUNTING=y\n# CONFIG_PREEMPT is not set\n\
             CONFIG_PREEMPT_VOLUNTARY=y\n",
        );
        put(root.path(), "proc/cmdline", "quiet highres=off nohz=off\n");
        put(root.path(), "sys/devices/system/cpu/online", "0-3\n");
        let machine = Proc::at(root.path()).machine();
        assert_eq!(machine.hz_configured, Some(250));
        assert_eq!(machine.tick_mode, Some(TickMode::Periodic));
        assert_eq!(machine.high_resolution, Some(false));
        assert_eq!(machine.accounting, ["TICK_CPU_ACCOUNTING"]);
        assert_eq!(machine.preemption, Some(Preemption::Voluntary));
        assert_eq!(machine.online.len(), 4);
    }

    #[test]
    fn without_a_configuration_facts_come_from_the_running_kernel() {
        use ticktax_model::machine::{Evidence, MachineFact};
        let root = tempfile::tempdir().unwrap();
        put(
            root.path(),
            "proc/sys/kernel/version",
            "#1 SMP PREEMPT_RT Debian\n",
        );
        let types = "\0tick_nohz_idle_stop_tick\0vtime_user_enter\0";
        put(root.path(), "sys/kernel/btf/vmlinux", types);
        let machine = Proc::at(root.path()).machine();
        assert_eq!(machine.tick_mode, Some(TickMode::NohzIdle));
        assert_eq!(machine.accounting, ["VIRT_CPU_ACCOUNTING_GEN"]);
        assert_eq!(machine.preemption, Some(Preemption::Rt));
        assert_eq!(machine.evidence[&MachineFact::TickMode], Evidence::Btf);
        assert_eq!(machine.evidence[&MachineFact::Accounting], Evidence::Btf);
        // The test's directory stands for a different machine, so the real machine's clocks must
        // not be used.
        assert_eq!(machine.hz_configured, None);
        let configured = "CONFIG_HZ=250\nCONFIG_NO_HZ_COMMON=y\nCONFIG_TICK_CPU_ACCOUNTING=y\n";
        put(root.path(), "proc/sys/kernel/osrelease", "6.1.0-test\n");
        put(root.path(), "boot/config-6.1.0-test", configured);
        let machine = Proc::at(root.path()).machine();
        assert_eq!(machine.accounting, ["TICK_CPU_ACCOUNTING"]);
        assert!(machine.evidence.is_empty(), "{:?}", machine.evidence);
    }

    #[test]
    fn a_parameter_without_its_option_has_no_effect() {
        let built = "CONFIG_NO_HZ_COMMON=y\nCONFIG_NO_HZ_FULL=y";
        let mode = |config, cmdline| tick_mode(Some(config), Some(cmdline), None).unwrap();
        let full = TickMode::NohzFull {
            cpus: "2-7".parse().unwrap(),
        };
        assert_eq!(mode(built, "nohz_full=2-7"), full);
        let listed = |list| tick_mode(Some(built), Some("nohz_full=2-N"), Some(list));
        assert_eq!(listed("2-7"), Some(full));
        assert_eq!(listed("(null)"), Some(TickMode::NohzIdle));
        assert_eq!(
            mode("CONFIG_NO_HZ_COMMON=y", "nohz_full=2-7"),
            TickMode::NohzIdle
        );
        assert_eq!(mode(built, ""), TickMode::NohzIdle);
    }
}
