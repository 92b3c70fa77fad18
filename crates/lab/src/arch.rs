//! Guest architectures: their names in various tools, and the matching QEMU settings.

use std::fmt;
use std::str::FromStr;

/// An architecture of guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86: Debian's `amd64`.
    X86,
    /// 64-bit Arm: Debian's `arm64`.
    Arm,
}

impl Arch {
    /// All architectures.
    pub const ALL: [Self; 2] = [Self::X86, Self::Arm];

    /// Architecture of this program, and of the machine that it runs on.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") {
        Self::Arm
    } else {
        Self::X86
    };

    /// Debian's name, which ticktax also uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    /// Name in the kernel (`uname -m`), QEMU and Rust.
    pub const fn machine(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// Rust target for programs that need no library of the guest.
    pub const fn target(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-musl",
            Self::Arm => "aarch64-unknown-linux-musl",
        }
    }

    /// Name of the QEMU program.
    pub const fn qemu(self) -> &'static str {
        match self {
            Self::X86 => "qemu-system-x86_64",
            Self::Arm => "qemu-system-aarch64",
        }
    }

    /// Debian package of the QEMU program.
    pub const fn qemu_package(self) -> &'static str {
        match self {
            Self::X86 => "qemu-system-x86",
            Self::Arm => "qemu-system-arm",
        }
    }

    /// `e_machine` in the header of its programs (`elf.h`).
    pub(crate) const fn elf(self) -> u16 {
        match self {
            Self::X86 => 62,
            Self::Arm => 183,
        }
    }

    /// QEMU machine type. It is q35 because guests on microvm lose the TSC. Random seeds in the
    /// device tree are off, because they differ from one start to the next.
    pub(crate) const fn qemu_machine(self) -> &'static str {
        match self {
            Self::X86 => "q35",
            Self::Arm => "virt,gic-version=3,dtb-randomness=off",
        }
    }

    /// The `make` target of a kernel image, and the image's path below the build folder.
    pub(crate) const fn image(self) -> (&'static str, &'static str) {
        match self {
            Self::X86 => ("bzImage", "arch/x86/boot/bzImage"),
            Self::Arm => ("Image", "arch/arm64/boot/Image"),
        }
    }

    /// Name in the kernel's source (`ARCH=`).
    pub(crate) const fn source(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "arm64",
        }
    }

    /// Prefix of Debian's cross compilers for it.
    pub(crate) const fn compilers(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-linux-gnu-",
            Self::Arm => "aarch64-linux-gnu-",
        }
    }

    /// Model of an emulated CPU; if `fixed`, one without randomness, so that runs are reproducible.
    ///
    /// Under icount, each repetition of a string instruction counts as an instruction, and QEMU
    /// takes as long for it. On a CPU with fast byte strings, a kernel clears a page with 4096
    /// repetitions, otherwise with 512. A cortex-a72 does not support 16 KiB pages.
    pub(crate) const fn qemu_cpu(self, fixed: bool, pages_of_16k: bool) -> &'static str {
        match (self, fixed, pages_of_16k) {
            (Self::X86, true, _) => "max,-rdrand,-rdseed,-erms,-fsrm",
            (Self::X86, false, _) => "max",
            (Self::Arm, _, false) => "cortex-a72",
            (Self::Arm, _, true) => "neoverse-n1",
        }
    }

    /// Serial line of the kernel's console.
    pub(crate) const fn console(self) -> &'static str {
        match self {
            Self::X86 => "ttyS0",
            Self::Arm => "ttyAMA0",
        }
    }

    /// Additional boot parameters, with a leading space. On arm64, each system call takes a random
    /// number for its stack. A kernel without a seed generates each one with thousands of
    /// instructions.
    pub(crate) const fn parameters(self) -> &'static str {
        match self {
            Self::X86 => "",
            Self::Arm => " randomize_kstack_offset=off",
        }
    }

    /// Serial line for results, as seen by a program inside the guest.
    pub(crate) const fn line(self) -> &'static str {
        match self {
            Self::X86 => "/dev/ttyS1",
            Self::Arm => "/dev/ttyS0",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let matches = |arch: &Self| [arch.name(), arch.machine()].contains(&text);
        Self::ALL
            .into_iter()
            .find(matches)
            .ok_or_else(|| format!("invalid guest architecture `{text}`: choose amd64 or arm64"))
    }
}

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn an_architecture_is_recognized_by_both_of_its_names() {
        for arch in Arch::ALL {
            assert_eq!(arch.name().parse(), Ok(arch));
            assert_eq!(arch.machine().parse(), Ok(arch));
        }
        assert!("riscv64".parse::<Arch>().is_err());
    }
}
