//! Facts that rules base their findings on.

use ticktax_model::accounting::AccountingStatement;
use ticktax_model::configured::{Configured, FrequencyPolicy, FstabLine, Mounted};
use ticktax_model::group::GroupSettings;
use ticktax_model::guests::GuestStatement;
use ticktax_model::machine::kernel_words;
use ticktax_model::packet_path::PacketPaths;
use ticktax_model::recording::Header;
use ticktax_model::statement::{Account, Class, GroupAccount};
use ticktax_model::tick::TickBill;
use ticktax_model::victim::{ThreadState, ThreadTimes, VictimStatement};
use ticktax_model::waits::WaitStatement;
use ticktax_model::{Cpu, CpuList, Nanos};

/// Facts known from one recording.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub(super) header: &'a Header,
    pub(super) configured: &'a Configured,
    pub(super) tick: Option<&'a TickBill>,
    pub(super) accounting: Option<&'a AccountingStatement>,
    pub(super) packets: Option<&'a PacketPaths>,
    pub(super) threads: Option<&'a ThreadTimes>,
    pub(super) victim: Option<&'a VictimStatement>,
    pub(super) waits: Option<&'a WaitStatement>,
    pub(super) guests: Option<&'a GuestStatement>,
    pub(super) accounts: &'a [Account],
    pub(super) groups: &'a [GroupAccount],
}

/// A mounted file system, with its line in `/etc/fstab` if there is one.
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

    pub(super) fn first_of(&self, options: &[&'a str]) -> Option<&'a str> {
        options.iter().copied().find(|option| self.has(option))
    }

    pub(super) fn is_nfs(&self) -> bool {
        matches!(&*self.mounted.kind, "nfs" | "nfs4")
    }

    /// Describes how the mount is configured, for the text of a finding.
    pub(super) fn configured(&self) -> String {
        match self.line {
            Some(line) => format!(
                "/etc/fstab: {} with {}",
                line.mount_point,
                line.options.join(",")
            ),
            None => format!(
                "{}: not in /etc/fstab; mounted by a program or by hand",
                self.place
            ),
        }
    }
}

/// Measurements that the rules compare with the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured<'a> {
    /// The tick bill.
    pub tick: Option<&'a TickBill>,
    /// The check of the kernel's CPU accounting.
    pub accounting: Option<&'a AccountingStatement>,
    /// Packet delays and their causes.
    pub packets: Option<&'a PacketPaths>,
    /// The watched program's time in each thread state.
    pub threads: Option<&'a ThreadTimes>,
    /// The watched program.
    pub victim: Option<&'a VictimStatement>,
    /// Run-queue waits of all threads.
    pub waits: Option<&'a WaitStatement>,
    /// Virtual machines.
    pub guests: Option<&'a GuestStatement>,
    /// Accounts of CPU time.
    pub accounts: &'a [Account],
    /// Accounts of groups.
    pub groups: &'a [GroupAccount],
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
            victim: measured.victim,
            waits: measured.waits,
            guests: measured.guests,
            accounts: measured.accounts,
            groups: measured.groups,
        }
    }

    /// Returns the words on the kernel command line that are meant for the kernel rather than init.
    pub(super) fn words(&self) -> impl Iterator<Item = &'a str> {
        kernel_words(self.header.machine.cmdline.as_deref().unwrap_or_default())
    }

    /// Returns the value of a boot parameter. If it is given more than once, the last one counts.
    pub(super) fn parameter(&self, name: &str) -> Option<&'a str> {
        self.header.machine.parameter(name)
    }

    /// Returns the clocksource requested on the command line, under the name that the kernel uses
    /// for it.
    pub(super) fn clocksource_asked(&self) -> Option<&'a str> {
        self.parameter("clocksource").map(|asked| match asked {
            // An old name that the kernel still accepts.
            "pmtmr" => "acpi_pm",
            asked => asked,
        })
    }

    pub(super) fn clocksources(&self) -> Option<&'a str> {
        self.configured
            .file("sys/devices/system/clocksource/clocksource0/available_clocksource")
    }

    /// Returns all mounts, whether or not they have a line in `/etc/fstab`.
    pub(super) fn mounts(&self) -> impl Iterator<Item = Mount<'a>> {
        let configured: &'a Configured = self.configured;
        let listed = configured.fstab.iter().filter_map(|line| {
            Some(Mount {
                place: &line.mount_point,
                mounted: line.mounted.as_ref()?,
                line: Some(line),
            })
        });
        let others = configured.other_mounts.iter().map(|other| Mount {
            place: &other.mount_point,
            mounted: &other.mounted,
            line: None,
        });
        listed.chain(others)
    }

    pub(super) fn cpus_in(&self, file: &str) -> Option<CpuList> {
        let list: CpuList = self.configured.file(file)?.parse().ok()?;
        (!list.is_empty()).then_some(list)
    }

    /// Returns the CPUs that are reserved for particular work or stop their tick while busy.
    pub(super) fn set_apart(&self) -> CpuList {
        self.configured.set_apart()
    }

    /// Describes in words which CPUs the frequency policies apply to.
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

    /// Returns the settings of the watched program's cgroups.
    pub(super) fn group_settings(&self) -> Option<&'a GroupSettings> {
        self.header.victim.as_ref()?.group_settings.as_deref()
    }

    /// Returns the time that the watched program spent waiting for a CPU, if it is at least a
    /// fraction `much` of the time that the program needed one.
    pub(super) fn waited(&self, much: f64) -> Option<Nanos> {
        let accounts = &self.threads?.accounts;
        let wanted = accounts.iter().filter(|account| account.state.is_wanted());
        let wanted: Nanos = wanted.map(|account| account.time).sum();
        let waiting = accounts
            .iter()
            .find(|account| account.state == ThreadState::Waiting)?;
        (waiting.time.share_of(wanted) >= much).then_some(waiting.time)
    }

    pub(super) fn kernel_thread(&self, name: &str) -> Option<&'a Account> {
        self.account(Class::KernelThread, name)
    }

    /// Returns the account of a device's interrupt, if it used any time. `description` is the end
    /// of the device's line in `/proc/interrupts`: the controller, then the names of the devices.
    /// These names are also the name of the account.
    pub(super) fn interrupt(&self, description: &str) -> Option<&'a Account> {
        let mut all = self.accounts.iter();
        all.find(|account| account.class == Class::Irq && description.ends_with(&account.name))
    }

    pub(super) fn account(&self, class: Class, name: &str) -> Option<&'a Account> {
        let mut all = self.accounts.iter();
        all.find(|account| account.class == class && account.name == name)
    }
}
