//! A guest's configuration: kernel, size and clock.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ticktax_host::helper;
use ticktax_model::kernels::GuestClock;
use ticktax_model::machine::LAB_PARAMETER;

use crate::arch::Arch;
use crate::error::LabError;
use crate::guest;
use crate::monitor;

/// Time base of a guest's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The clock counts executed instructions. Each instruction takes 2^`shift` ns, and nothing
    /// else takes time, so results are reproducible.
    Icount {
        /// Binary logarithm of the nanoseconds per instruction, from 0 to 10.
        shift: u8,
    },
    /// The clock is the host's, and QEMU emulates the CPU. Such a guest is slow, and its timing is
    /// as noisy as the host's.
    Tcg,
    /// The clock and the CPU are the host's (KVM).
    Kvm,
}

impl Clock {
    /// Returns the word for the clock on the guest's kernel command line.
    pub fn word(self) -> String {
        match self {
            Self::Icount { shift } => GuestClock::counted_word(shift),
            Self::Tcg => "tcg".to_owned(),
            Self::Kvm => "kvm".to_owned(),
        }
    }

    /// Returns a description of the clock for people who read the results.
    pub fn facts(self) -> GuestClock {
        match self {
            Self::Icount { shift } => GuestClock::counted(shift),
            Self::Tcg | Self::Kvm => GuestClock::Host,
        }
    }

    /// Returns QEMU's arguments for this clock. Under icount, a guest is reproducible only if it
    /// gets no input from outside, so the CPU provides no random numbers and the time of day is
    /// fixed.
    fn arguments(self, arch: Arch, pages_of_16k: bool) -> Vec<String> {
        let fixed = |accelerator: &str, cpu: &str| {
            vec![
                "-accel".into(),
                accelerator.into(),
                "-cpu".into(),
                cpu.into(),
            ]
        };
        match self {
            Self::Icount { shift } => {
                let mut all = fixed("tcg,thread=single", arch.qemu_cpu(true, pages_of_16k));
                all.extend(["-icount".into(), format!("shift={shift},sleep=off")]);
                all.extend(["-rtc".into(), "base=2020-01-01,clock=vm".into()]);
                all
            }
            Self::Tcg => fixed("tcg", arch.qemu_cpu(false, pages_of_16k)),
            Self::Kvm => fixed("kvm", "host"),
        }
    }
}

/// Description of a guest to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine<'a> {
    /// Architecture of the guest's CPUs.
    pub arch: Arch,
    /// Path of the kernel image.
    pub kernel: &'a Path,
    /// Whether the kernel uses 16 KiB pages.
    pub pages_of_16k: bool,
    /// Path of the initramfs.
    pub initramfs: &'a Path,
    /// Size, clock and limits of the guest.
    pub settings: GuestSettings<'a>,
}

/// The settings of a guest that depend neither on its kernel nor on its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestSettings<'a> {
    /// Additional kernel parameters.
    pub cmdline: &'a str,
    /// Number of virtual CPUs, from 1 to 64.
    pub cpus: u32,
    /// Memory in MiB, from 64 to 65536.
    pub memory: u32,
    /// The guest's clock.
    pub clock: Clock,
    /// Time after which the guest is stopped, on the host's clock.
    pub limit: Duration,
    /// Whether to count the instructions that the guest executes. Requires [`Clock::Icount`].
    pub count: bool,
    /// Path of a Unix socket on which QEMU serves a debugger (GDB's remote protocol). The guest
    /// does not wait for the debugger.
    pub debugger: Option<&'a Path>,
    /// The guest's disk.
    pub disk: Option<Disk<'a>>,
}

/// A guest's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk<'a> {
    /// It has 64 MiB, which contain only zeros, and forgets writes.
    Zeros,
    /// A file contains its data.
    File {
        /// Path of the file.
        path: &'a Path,
        /// Maximum number of bytes that the disk writes per second.
        write_bytes_hz: Option<u64>,
    },
}

impl Disk<'_> {
    /// Returns QEMU's arguments for the disk.
    fn arguments(self) -> Vec<OsString> {
        let mut all: Vec<OsString> = Vec::new();
        match self {
            Self::Zeros => {
                let zeros = "driver=null-co,node-name=disk,size=67108864,read-zeroes=on";
                all.extend(["-blockdev", zeros].map(OsString::from));
            }
            Self::File {
                path,
                write_bytes_hz,
            } => {
                let name = if write_bytes_hz.is_some() {
                    "fast"
                } else {
                    "disk"
                };
                let mut file = OsString::from(format!(
                    "driver=raw,node-name={name},file.driver=file,file.filename="
                ));
                file.push(path);
                all.extend([OsString::from("-blockdev"), file]);
                if let Some(rate) = write_bytes_hz {
                    let group = format!("throttle-group,id=slow,x-bps-write={rate}");
                    let disk = "driver=throttle,node-name=disk,throttle-group=slow,file=fast";
                    all.extend(["-object", &group, "-blockdev", disk].map(OsString::from));
                }
            }
        }
        let device = "nvme,drive=disk,serial=disk";
        all.extend(["-device", device].map(OsString::from));
        all
    }
}

impl GuestSettings<'_> {
    pub(crate) fn check(&self, arch: Arch) -> Result<(), LabError> {
        let wrong = |why: &str| Err(LabError::Senseless(why.to_owned()));
        if !(1..=64).contains(&self.cpus) {
            return wrong("invalid number of CPUs: choose 1 to 64");
        }
        if !(64..=65_536).contains(&self.memory) {
            return wrong("invalid amount of memory: choose 64 to 65536 MiB");
        }
        match self.clock {
            Clock::Icount { shift: 11.. } => {
                return wrong("invalid time per instruction: choose 2^0 to 2^10 ns");
            }
            Clock::Icount { .. } if self.cpus > 1 => {
                return wrong(
                    "--icount supports only one CPU, because kernels fail to start a second one at \
                     that speed; use --tcg for more",
                );
            }
            Clock::Kvm if arch != Arch::HOST => {
                return wrong(
                    "--kvm cannot run a guest with a different architecture from this \
                    machine's; use --tcg",
                );
            }
            Clock::Tcg | Clock::Kvm if self.count => {
                return wrong("counting instructions requires --icount");
            }
            _ => {}
        }
        if self
            .cmdline
            .split_ascii_whitespace()
            .any(|word| word == "--")
        {
            return wrong(
                "kernel parameters must not contain `--`: words after it are passed to \
                init",
            );
        }
        Ok(())
    }

    /// Returns the complete kernel command line.
    pub fn whole_cmdline(&self, arch: Arch) -> String {
        // Self-tests of the kernel's cryptography would take two seconds of the guest's time.
        let ours = format!(
            "console={} quiet panic=-1 nokaslr cryptomgr.notests rdinit=/init{}",
            arch.console(),
            arch.parameters()
        );
        let clock = format!("{}={}", LAB_PARAMETER, self.clock.word());
        let theirs = self.cmdline.trim();
        let all = [&ours, &clock, theirs, "--", guest::WORD];
        let words: Vec<&str> = all.into_iter().filter(|part| !part.is_empty()).collect();
        words.join(" ")
    }
}

impl Machine<'_> {
    pub(crate) fn command(&self, console: &Path, line: &Path) -> Command {
        let settings = &self.settings;
        let mut command = helper(self.arch.qemu());
        command
            .args([
                "-machine",
                self.arch.qemu_machine(),
                "-nodefaults",
                "-display",
                "none",
                "-no-reboot",
            ])
            // Give each CPU package one CPU. Without ACPI, the kernel finds CPUs through a table
            // that lists only packages.
            .args(["-smp", &format!("{0},sockets={0}", settings.cpus)])
            .args(["-m", &settings.memory.to_string()])
            .args(settings.clock.arguments(self.arch, self.pages_of_16k))
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initramfs)
            .args(["-append", &settings.whole_cmdline(self.arch)]);
        let to = |prefix: &str, file: &Path| {
            let mut words = OsString::from(prefix);
            words.push(file);
            words
        };
        command.arg("-serial").arg(to("file:", console));
        match self.arch {
            Arch::X86 => command.arg("-serial").arg(to("file:", line)),
            // This machine type has only one serial port, so add another on a PCI device. The lab's
            // arm64 kernels have a driver for it.
            Arch::Arm => command
                .arg("-chardev")
                .arg(to("file,id=line,path=", line))
                .args(["-device", "pci-serial,chardev=line"]),
        };
        if settings.count {
            command.args(monitor::ARGUMENTS);
        }
        if let Some(socket) = settings.debugger {
            let mut served = to("unix:", socket);
            served.push(",server=on,wait=off");
            command.arg("-gdb").arg(served);
        }
        if let Some(disk) = settings.disk {
            command.args(disk.arguments());
        }
        command
    }
}
