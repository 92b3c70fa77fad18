//! The facts that rules use.

use ticktax_model::accounting::AccountingStatement;
use ticktax_model::configured::{Configured, FrequencyPolicy, FstabLine, Mounted};
use ticktax_model::machine::kernel_words;
use ticktax_model::packet_path::PacketPaths;
use ticktax_model::recording::Header;
use ticktax_model::statement::{Account, Class};
use ticktax_model::tick::TickBill;
use ticktax_model::victim::ThreadTimes;
use ticktax_model::{Cpu, CpuList};

/// The facts of one recording.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub(super) header: &'a Header,
    pub(super) configured: &'a Configured,
    pub(super) tick: Option<&'a TickBill>,
    pub(super) accounting: Option<&'a AccountingStatement>,
    pub(super) packets: Option<&'a PacketPaths>,
    pub(super) threads: Option<&'a ThreadTimes>,
    pub(super) accounts: &'a [Account],
}

/// A mounted file system, with the line of `/etc/fstab` that configures it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mount<'a> {
    pub(super) place: &'a str,
    pub(super) mounted: &'a Mounted,
    line: Option<&'a FstabLine>,
}

impl<'a> Mount<'a> {
    pub(super) fn has(&self, option: &str) -> bool {
        self.mounted.options.iter().any(|other| other == option)
    }

    /// The first of these options that it is mounted with.
    pub(super) fn first_of(&self, options: &[&'a str]) -> Option<&'a str> {
        options.iter().copied().find(|option| self.has(option))
    }

    pub(super) fn is_nfs(&self) -> bool {
        matches!(&*self.mounted.kind, "nfs" | "nfs4")
    }

    /// The mount's configuration, for a finding's text.
    pub(super) fn configured(&self) -> String {
        match self.line {
            Some(line) => format!("/etc/fstab: {} with {}", line.place, line.options.join(",")),
            None => format!(
                "{}: not in /etc/fstab; mounted by a program or by hand",
                self.place
            ),
        }
    }
}

/// Measurements, for rules that compare them with the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured<'a> {
    /// The cost of the tick.
    pub tick: Option<&'a TickBill>,
    /// The accounting check.
    pub accounting: Option<&'a AccountingStatement>,
    /// Packet delays and their causes.
    pub packets: Option<&'a PacketPaths>,
    /// Thread times of the watched program.
    pub threads: Option<&'a ThreadTimes>,
    /// The accounts of CPU time.
    pub accounts: &'a [Account],
}

impl<'a> Facts<'a> {
    pub(super) fn new(header: &'a Header, measured: Measured<'a>) -> Self {
        Self {
            header,
            configured: &header.machine.configured,
            tick: measured.tick,
            accounting: measured.accounting,
            packets: measured.packets,
            threads: measured.threads,
            accounts: measured.accounts,
        }
    }

    /// The words of the kernel command line that are for the kernel.
    pub(super) fn words(&self) -> impl Iterator<Item = &'a str> {
        kernel_words(self.header.machine.cmdline.as_deref().unwrap_or_default())
    }

    /// The value of a boot parameter; the last one if it is given more than once.
    pub(super) fn parameter(&self, name: &str) -> Option<&'a str> {
        self.header.machine.parameter(name)
    }

    /// The clocksource requested on the command line, by the kernel's name for it.
    pub(super) fn clocksource_asked(&self) -> Option<&'a str> {
        self.parameter("clocksource").map(|asked| match asked {
            // An old name that the kernel still accepts.
            "pmtmr" => "acpi_pm",
            asked => asked,
        })
    }

    /// The available clocksources, as the kernel lists them.
    pub(super) fn clocksources(&self) -> Option<&'a str> {
        self.configured
            .file("sys/devices/system/clocksource/clocksource0/available_clocksource")
    }

    /// All mounts, with or without a line in `/etc/fstab`.
    pub(super) fn mounts(&self) -> impl Iterator<Item = Mount<'a>> {
        let configured: &'a Configured = self.configured;
        let listed = configured.fstab.iter().filter_map(|line| {
            Some(Mount {
                place: &line.place,
                mounted: line.mounted.as_ref()?,
                line: Some(line),
            })
        });
        let others = configured.other_mounts.iter().map(|other| Mount {
            place: &other.place,
            mounted: &other.mounted,
            line: None,
        });
        listed.chain(others)
    }

    /// The CPU list in a file; `None` if the file was not read or lists no CPU.
    pub(super) fn cpus_in(&self, file: &str) -> Option<CpuList> {
        let list: CpuList = self.configured.file(file)?.parse().ok()?;
        (!list.is_empty()).then_some(list)
    }

    /// CPUs kept free of other work, or whose tick stops while they are busy.
    pub(super) fn set_apart(&self) -> CpuList {
        self.configured.set_apart()
    }

    /// The CPUs of these frequency policies, in words.
    pub(super) fn frequency_cpus<'p>(
        policies: impl IntoIterator<Item = &'p FrequencyPolicy>,
    ) -> String {
        let numbers = policies
            .into_iter()
            .flat_map(|policy| policy.cpus.split_ascii_whitespace());
        let cpus = numbers.filter_map(|number| number.parse().ok()).map(Cpu);
        cpus.collect::<CpuList>().named()
    }

    pub(super) fn number_in(&self, file: &str) -> Option<u64> {
        self.configured.file(file)?.parse().ok()
    }

    /// The account of a kernel thread, if it used any time.
    pub(super) fn kernel_thread(&self, name: &str) -> Option<&'a Account> {
        self.account(Class::KernelThread, name)
    }

    /// The account of a device's interrupt, if it used any time. `description` is the text of the
    /// line in `/proc/interrupts`. It ends with the name of the account, which has only the
    /// devices' names and not their controller's.
    pub(super) fn interrupt(&self, description: &str) -> Option<&'a Account> {
        let mut all = self.accounts.iter();
        all.find(|account| account.class == Class::Irq && description.ends_with(&account.name))
    }

    /// An account, if it used any time.
    pub(super) fn account(&self, class: Class, name: &str) -> Option<&'a Account> {
        let mut all = self.accounts.iter();
        all.find(|account| account.class == class && account.name == name)
    }
}
