//! Guest architectures: what various tools call them, and the QEMU settings that depend on them.

use std::fmt;
use std::str::FromStr;

use crate::error::NameError;

/// A guest architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86, which Debian calls `amd64`.
    X86,
    /// 64-bit Arm, which Debian calls `arm64`.
    Arm,
}

impl Arch {
    /// All architectures.
    pub const ALL: [Self; 2] = [Self::X86, Self::Arm];

    /// The architecture that this binary was built for.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") {
        Self::Arm
    } else {
        Self::X86
    };

    /// Returns Debian's name for the architecture. ticktax uses the same name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    /// Returns the architecture's name in the kernel (`uname -m`), QEMU and Rust.
    pub const fn machine(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// Returns the Rust target triple for statically linked programs.
    pub const fn target(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-musl",
            Self::Arm => "aarch64-unknown-linux-musl",
        }
    }

    /// Returns the name of the QEMU binary that emulates the architecture.
    pub const fn qemu(self) -> &'static str {
        match self {
            Self::X86 => "qemu-system-x86_64",
            Self::Arm => "qemu-system-aarch64",
        }
    }

    /// Returns the name of the Debian package that contains the QEMU binary.
    pub const fn qemu_package(self) -> &'static str {
        match self {
            Self::X86 => "qemu-system-x86",
            Self::Arm => "qemu-system-arm",
        }
    }

    /// Returns the value of `e_machine` in the ELF header of programs for this architecture
    /// (`elf.h`).
    pub(crate) const fn elf(self) -> u16 {
        match self {
            Self::X86 => 62,
            Self::Arm => 183,
        }
    }

    /// Returns the QEMU machine type and its options. On x86, the type is q35, because guests on
    /// microvm lose the TSC. On arm64, the options turn off the seeds in the device tree, which are
    /// random and differ from boot to boot.
    pub(crate) const fn qemu_machine(self) -> &'static str {
        match self {
            Self::X86 => "q35",
            Self::Arm => "virt,gic-version=3,dtb-randomness=off",
        }
    }

    /// Returns the `make` target that builds the kernel image, and the image's path in the build
    /// directory.
    pub(crate) const fn image(self) -> (&'static str, &'static str) {
        match self {
            Self::X86 => ("bzImage", "arch/x86/boot/bzImage"),
            Self::Arm => ("Image", "arch/arm64/boot/Image"),
        }
    }

    /// Returns the architecture's name in the kernel source tree (`ARCH=`).
    pub(crate) const fn source(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "arm64",
        }
    }

    /// Returns the prefix in the names of Debian's cross compilers for this architecture.
    pub(crate) const fn compilers(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-linux-gnu-",
            Self::Arm => "aarch64-linux-gnu-",
        }
    }

    /// Returns the CPU model to emulate. If `fixed`, the model lacks instructions that produce
    /// random numbers, so that guests are reproducible.
    ///
    /// The fixed x86 model also lacks fast byte strings (`erms`, `fsrm`). Under icount, each
    /// iteration of a string instruction counts as one instruction. With fast byte strings,
    /// clearing a page would therefore take 4096 instructions. Without them, it takes only 512.
    ///
    /// On arm64, guests with 16 KiB pages get a neoverse-n1, because a cortex-a72 does not support
    /// that page size.
    pub(crate) const fn qemu_cpu(self, fixed: bool, pages_of_16k: bool) -> &'static str {
        match (self, fixed, pages_of_16k) {
            (Self::X86, true, _) => "max,-rdrand,-rdseed,-erms,-fsrm",
            (Self::X86, false, _) => "max",
            (Self::Arm, _, false) => "cortex-a72",
            (Self::Arm, _, true) => "neoverse-n1",
        }
    }

    /// Returns the name of the serial device that carries the kernel's console.
    pub(crate) const fn console(self) -> &'static str {
        match self {
            Self::X86 => "ttyS0",
            Self::Arm => "ttyAMA0",
        }
    }

    /// Returns additional kernel parameters, with a leading space. On arm64, the parameter turns
    /// off the random stack offset in system calls. The guest gets no random seed, and without one
    /// the kernel would need thousands of instructions in every system call to produce the random
    /// number.
    pub(crate) const fn parameters(self) -> &'static str {
        match self {
            Self::X86 => "",
            Self::Arm => " randomize_kstack_offset=off",
        }
    }

    /// Returns the path of the serial device over which the guest sends its results.
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
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let matches = |arch: &Self| [arch.name(), arch.machine()].contains(&text);
        Self::ALL
            .into_iter()
            .find(matches)
            .ok_or_else(|| NameError::Arch(text.to_owned()))
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
