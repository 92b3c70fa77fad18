//! A fake machine made of files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ticktax_analysis::findings::{Measured, judge};
use ticktax_host::Proc;
use ticktax_model::accounting::AccountingStatement;
use ticktax_model::finding::Finding;
use ticktax_model::guests::GuestStatement;
use ticktax_model::machine::Machine;
use ticktax_model::packet_path::PacketPaths;
use ticktax_model::recording::{Header, Level, World};
use ticktax_model::statement::{Account, GroupAccount};
use ticktax_model::tick::TickBill;
use ticktax_model::victim::{Target, ThreadTimes, VictimStatement};
use ticktax_model::waits::WaitStatement;

/// The result expected from a rule.
#[derive(Clone, Copy)]
pub(crate) enum Expected {
    /// The rule has a finding, and its text contains these words.
    Found(&'static str),
    Silence,
}

/// A machine, and the result expected from one rule.
pub(crate) struct Case {
    pub(crate) rule: &'static str,
    pub(crate) name: &'static str,
    pub(crate) files: Vec<(&'static str, String)>,
    /// Sets measured values in the header, and returns the case's tick costs, if any.
    pub(crate) measured: fn(&mut Header) -> Option<TickBill>,
    pub(crate) accounting: fn() -> Option<AccountingStatement>,
    pub(crate) packets: fn() -> Option<PacketPaths>,
    pub(crate) threads: fn() -> Option<ThreadTimes>,
    pub(crate) victim: fn() -> Option<VictimStatement>,
    pub(crate) waits: fn() -> Option<WaitStatement>,
    pub(crate) guests: fn() -> Option<GuestStatement>,
    pub(crate) accounts: fn() -> Vec<Account>,
    pub(crate) groups: fn() -> Vec<GroupAccount>,
    pub(crate) expected: Expected,
}

/// Returns a case made of files, without measured values.
pub(crate) fn case(
    rule: &'static str,
    name: &'static str,
    files: &[(&'static str, &str)],
    expected: Expected,
) -> Case {
    Case {
        rule,
        name,
        files: files
            .iter()
            .map(|&(path, text)| (path, text.to_owned()))
            .collect(),
        measured: |_| None,
        accounting: || None,
        packets: || None,
        threads: || None,
        victim: || None,
        waits: || None,
        guests: || None,
        accounts: Vec::new,
        groups: Vec::new,
        expected,
    }
}

/// Returns a program known only by its name.
pub(crate) fn program(name: &str) -> VictimStatement {
    VictimStatement {
        target: Target::Process,
        name: name.to_owned(),
        pid: Some(7),
        exited: false,
        threads: None,
        usage: None,
        throttling: None,
        needed_burst: None,
        stolen: None,
        frames: None,
        freezer: None,
        memory_limit: None,
    }
}

/// The build configuration of a current kernel.
pub(crate) const CONFIG: (&str, &str) = (
    "boot/config-6.1.0",
    "CONFIG_HZ=250\nCONFIG_NO_HZ_COMMON=y\nCONFIG_NO_HZ_IDLE=y\nCONFIG_HIGH_RES_TIMERS=y\n\
     CONFIG_CPU_ISOLATION=y\n# CONFIG_NO_HZ_FULL is not set\n",
);

pub(crate) fn put(root: &Path, path: &str, bytes: &[u8]) {
    let full = root.join(path);
    fs::create_dir_all(full.parent().unwrap()).unwrap();
    fs::write(&full, bytes).unwrap();
}

/// Sets a file's permissions, for example to make a parameter read-only or write-only.
pub(crate) fn allow(root: &Path, path: &str, mode: u32) {
    fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn header(machine: Machine) -> Header {
    Header {
        machine,
        ..Header::new(World::Live, Level::Kernel, "")
    }
}

impl Case {
    /// Returns all findings on the machine. Sets a kernel release, so that the kernel's build
    /// configuration is found.
    pub(crate) fn found(&self) -> Vec<Finding> {
        let root = ticktax_fixture::scratch();
        put(root.path(), "proc/sys/kernel/osrelease", b"6.1.0\n");
        for (path, text) in &self.files {
            match path.split_once(" mode ") {
                // Create a file with these permissions.
                Some((path, mode)) => {
                    put(root.path(), path, text.as_bytes());
                    allow(root.path(), path, u32::from_str_radix(mode, 8).unwrap());
                }
                None => put(root.path(), path, text.as_bytes()),
            }
        }
        let mut header = header(Proc::at(root.path()).machine());
        let tick = (self.measured)(&mut header);
        let accounting = (self.accounting)();
        let packets = (self.packets)();
        let threads = (self.threads)();
        let (victim, waits) = ((self.victim)(), (self.waits)());
        let guests = (self.guests)();
        let (accounts, groups) = ((self.accounts)(), (self.groups)());
        let measured = Measured {
            tick: tick.as_ref(),
            accounting: accounting.as_ref(),
            packets: packets.as_ref(),
            threads: threads.as_ref(),
            victim: victim.as_ref(),
            waits: waits.as_ref(),
            guests: guests.as_ref(),
            accounts: &accounts,
            groups: &groups,
        };
        judge(&header, measured)
    }
}
