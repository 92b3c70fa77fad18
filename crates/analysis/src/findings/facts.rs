//! The facts that rules base findings on.

use ticktax_model::accounting::AccountingStatement;
use ticktax_model::configured::{Configured, FrequencyPolicy, FstabLine, Mounted};
use ticktax_model::machine::kernel_words;
use ticktax_model::packet_path::PacketPaths;
use ticktax_model::recording::Header;
use ticktax_model::statement::{Account, Class};
use ticktax_model::tick::TickBill;
use ticktax_model::victim::ThreadTimes;
use ticktax_model::{Cpu, CpuList};

/// The facts known from one recording.
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

/// A mounted file system, with its line in `/etc/fstab` if it has one.
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

    /// The first of `options` that the file system is mounted with.
    pub(super) fn first_of(&self, options: &[&'a str]) -> Option<&'a str> {
        options.iter().copied().find(|option| self.has(option))
    }

    pub(super) fn is_nfs(&self) -> bool {
        matches!(&*self.mounted.kind, "nfs" | "nfs4")
    }

    /// Describes the mount's configuration for a finding's text.
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

/// Measurements that rules compare with the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured<'a> {
    /// The tick bill.
    pub tick: Option<&'a TickBill>,
    /// The accounting check.
    pub accounting: Option<&'a AccountingStatement>,
    /// Packet delays with their causes.
    pub packets: Option<&'a PacketPaths>,
    /// The watched program's time, by thread state.
    pub threads: Option<&'a ThreadTimes>,
    /// Accounts of CPU time.
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

    /// The words on the kernel command line that are meant for the kernel, not for init.
    pub(super) fn words(&self) -> impl Iterator<Item = &'a str> {
        kernel_words(self.header.machine.cmdline.as_deref().unwrap_or_default())
    }

    /// The value of a boot parameter. If it is given more than once, the last value counts.
    pub(super) fn parameter(&self, name: &str) -> Option<&'a str> {
        self.header.machine.parameter(name)
    }

    /// The clocksource requested on the command line, under the kernel's name for it.
    pub(super) fn clocksource_asked(&self) -> Option<&'a str> {
        self.parameter("clocksource").map(|asked| match asked {
            // An old name that the kernel still accepts.
            "pmtmr" => "acpi_pm",
            asked => asked,
        })
    }

    /// The available clocksources, in the kernel's format.
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

    /// The CPU list in `file`; `None` if the file was not read or lists no CPU.
    pub(super) fn cpus_in(&self, file: &str) -> Option<CpuList> {
        let list: CpuList = self.configured.file(file)?.parse().ok()?;
        (!list.is_empty()).then_some(list)
    }

    /// CPUs that are kept free of other work or that stop their tick while busy.
    pub(super) fn set_apart(&self) -> CpuList {
        self.configured.set_apart()
    }

    /// Lists the CPUs of frequency policies, in words.
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

    /// A kernel thread's account, if it used any time.
    pub(super) fn kernel_thread(&self, name: &str) -> Option<&'a Account> {
        self.account(Class::KernelThread, name)
    }

    /// The account of a device's interrupt, if it used any time. `description` is the end of the
    /// device's line in `/proc/interrupts`. It contains the controller too, but ends with the
    /// devices' names, which are the account's name.
    pub(super) fn interrupt(&self, description: &str) -> Option<&'a Account> {
        let mut all = self.accounts.iter();
        all.find(|account| account.class == Class::Irq && description.ends_with(&account.name))
    }

    /// The account with this class and name, if it used any time.
    pub(super) fn account(&self, class: Class, name: &str) -> Option<&'a Account> {
        let mut all = self.accounts.iter();
        all.find(|account| account.class == class && account.name == name)
    }
}
