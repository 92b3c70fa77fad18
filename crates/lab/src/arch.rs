//! Architectures of guests: what each is called by whom, and what QEMU makes such a machine of.

use std::fmt;
use std::str::FromStr;

/// An architecture that guests can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86: Debian's `amd64`.
    X86,
    /// 64-bit Arm: Debian's `arm64`.
    Arm,
}

impl Arch {
    /// Every architecture.
    pub const ALL: [Self; 2] = [Self::X86, Self::Arm];

    /// That of this program, and of the machine that it runs on.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") {
        Self::Arm
    } else {
        Self::X86
    };

    /// As Debian calls it, and this project's pages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    /// As the kernel calls it (`uname -m`), QEMU and Rust.
    pub const fn machine(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// The Rust target of a program that needs no library of its guest.
    pub const fn target(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-musl",
            Self::Arm => "aarch64-unknown-linux-musl",
        }
    }

    /// The program that makes guests.
    pub const fn qemu(self) -> &'static str {
        match self {
            Self::X86 => "qemu-system-x86_64",
            Self::Arm => "qemu-system-aarch64",
        }
    }

    /// The Debian package that it comes in.
    pub const fn qemu_package(self) -> &'static str {
        match self {
            Self::X86 => "qemu-system-x86",
            Self::Arm => "qemu-system-arm",
        }
    }

    /// `e_machine` of its programs (`elf.h`).
    pub(crate) const fn elf(self) -> u16 {
        match self {
            Self::X86 => 62,
            Self::Arm => 183,
        }
    }

    /// The machine. q35 rather than microvm, whose guests lose the TSC; and no seeds in the device
    /// tree, which differ from one start to the next.
    pub(crate) const fn qemu_machine(self) -> &'static str {
        match self {
            Self::X86 => "q35",
            Self::Arm => "virt,gic-version=3,dtb-randomness=off",
        }
    }

    /// What `make` makes of a kernel's source, and where that lies then.
    pub(crate) const fn image(self) -> (&'static str, &'static str) {
        match self {
            Self::X86 => ("bzImage", "arch/x86/boot/bzImage"),
            Self::Arm => ("Image", "arch/arm64/boot/Image"),
        }
    }

    /// As the kernel's source calls it (`ARCH=`).
    pub(crate) const fn source(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "arm64",
        }
    }

    /// What Debian's compilers for it have before their names, on a machine of another architecture.
    pub(crate) const fn compilers(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-linux-gnu-",
            Self::Arm => "aarch64-linux-gnu-",
        }
    }

    /// A CPU that QEMU translates, with nothing random in it where its time is to be the same every
    /// time. There, each repetition of a string instruction counts as an instruction, and takes
    /// QEMU as long: a kernel on a CPU with fast byte strings clears a page by 4096 of them,
    /// without by 512. A cortex-a72 has no pages of 16 KiB.
    pub(crate) const fn qemu_cpu(self, fixed: bool, pages_of_16k: bool) -> &'static str {
        match (self, fixed, pages_of_16k) {
            (Self::X86, true, _) => "max,-rdrand,-rdseed,-erms,-fsrm",
            (Self::X86, false, _) => "max",
            (Self::Arm, _, false) => "cortex-a72",
            (Self::Arm, _, true) => "neoverse-n1",
        }
    }

    /// The serial line of the kernel's console.
    pub(crate) const fn console(self) -> &'static str {
        match self {
            Self::X86 => "ttyS0",
            Self::Arm => "ttyAMA0",
        }
    }

    /// Boot parameters of its own, with spaces before. On arm64 each system call takes a random number for its
    /// stack, which a kernel that nobody gave a seed makes anew each time, by thousands of instructions.
    pub(crate) const fn parameters(self) -> &'static str {
        match self {
            Self::X86 => "",
            Self::Arm => " randomize_kstack_offset=off",
        }
    }

    /// The serial line that results go over, for a program of this architecture in a guest.
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
        let is_it = |arch: &Self| [arch.name(), arch.machine()].contains(&text);
        Self::ALL
            .into_iter()
            .find(is_it)
            .ok_or_else(|| format!("{text} is no architecture of guests: amd64 or arm64 is"))
    }
}

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn an_architecture_is_told_by_both_of_its_names() {
        for arch in Arch::ALL {
            assert_eq!(arch.name().parse(), Ok(arch));
            assert_eq!(arch.machine().parse(), Ok(arch));
        }
        assert!("riscv64".parse::<Arch>().is_err());
    }
}
