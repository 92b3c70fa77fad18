//! Kernels that no distribution provides, which the lab builds from source. Each one differs in one
//! option for preemption or timekeeping.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cross::{TARGETS, Target};
use crate::root;

/// Kernel options that the tracer needs.
const TRACER: &str = "crates/lab/kernel/tracer.config";
/// Additional options on x86. ACPI announces machine checks, which are interrupts that must also be
/// traced.
const ON_AMD64: [&str; 3] = ["ACPI=y", "X86_MCE=y", "X86_MCE_INTEL=y"];
/// Tick rate, in Hz.
const HZ: &str = "250";

/// Sources of the kernels. The older one has every preemption model except the lazy one. The newer
/// one is the newest in trixie, and has the lazy model. Since 7.0, architectures with lazy
/// preemption offer only lazy and full preemption (`kernel/Kconfig.preempt`).
const OLDER: &str = "bookworm-backports:linux-source-6.12";
const NEWER: &str = "trixie-backports:linux-source-7.3";

/// Target architectures.
const AMD64: Target = TARGETS[0];
const ARM64: Target = TARGETS[1];

/// A kernel to build.
pub(super) struct Build {
    pub(super) target: Target,
    /// Name of the kernel, and of its configuration file.
    variant: &'static str,
    source: &'static str,
    /// Options that differ from the lab's configuration fragment.
    config: &'static [&'static str],
    /// Boot parameters.
    pub(super) parameters: &'static str,
}

impl Build {
    /// Creates the entry for an x86 kernel that needs no boot parameters.
    const fn amd64(
        variant: &'static str,
        source: &'static str,
        config: &'static [&'static str],
    ) -> Self {
        Self {
            target: AMD64,
            variant,
            source,
            config,
            parameters: "",
        }
    }
}

/// All kernels to build.
pub(super) const BUILDS: [Build; 10] = [
    Build::amd64(
        "preempt-none",
        OLDER,
        &["PREEMPT_VOLUNTARY=n", "PREEMPT_NONE=y"],
    ),
    Build::amd64("preempt-voluntary", OLDER, &["PREEMPT_VOLUNTARY=y"]),
    Build::amd64("preempt-full", OLDER, &["PREEMPT_VOLUNTARY=n", "PREEMPT=y"]),
    Build::amd64(
        "preempt-rt",
        OLDER,
        &["PREEMPT_VOLUNTARY=n", "EXPERT=y", "PREEMPT_RT=y"],
    ),
    // In 7.x, the option that enables /proc/sys has a different name.
    Build::amd64(
        "preempt-lazy",
        NEWER,
        &[
            "PROC_SYSCTL=n",
            "SYSCTL=y",
            "PREEMPT_VOLUNTARY=n",
            "PREEMPT_LAZY=y",
        ],
    ),
    Build::amd64("irq-time", OLDER, &["IRQ_TIME_ACCOUNTING=y"]),
    // The last option turns on context tracking on every CPU, even without `nohz_full=`.
    Build::amd64(
        "nohz-full",
        OLDER,
        &[
            "TICK_CPU_ACCOUNTING=n",
            "NO_HZ_IDLE=n",
            "NO_HZ_FULL=y",
            "VIRT_CPU_ACCOUNTING_GEN=y",
            "CONTEXT_TRACKING_USER_FORCE=y",
        ],
    ),
    Build::amd64(
        "debug-locks",
        OLDER,
        &[
            "PREEMPT_VOLUNTARY=n",
            "PREEMPT=y",
            "PROVE_LOCKING=y",
            "DEBUG_ATOMIC_SLEEP=y",
        ],
    ),
    // On this kernel, interrupts for performance counters and CPU stops arrive even while other
    // interrupts are disabled.
    Build {
        target: ARM64,
        variant: "pseudo-nmi",
        source: OLDER,
        config: &["ARM_PMU=y", "ARM_PMUV3=y", "ARM64_PSEUDO_NMI=y"],
        parameters: "irqchip.gicv3_pseudo_nmi=1",
    },
    Build {
        target: ARM64,
        variant: "pages-64k",
        source: OLDER,
        config: &["ARM64_64K_PAGES=y"],
        parameters: "",
    },
];

impl Build {
    /// Returns the lab's name for the kernel.
    pub(super) fn kernel(&self) -> String {
        let name = format!("hz{HZ}+{}", self.variant);
        if self.target.machine == std::env::consts::ARCH {
            name
        } else {
            format!("{name}+{}", self.target.debian)
        }
    }

    /// Has the lab build the kernel if it is not built yet. Writes the kernel's configuration to
    /// `folder`.
    pub(super) fn build(&self, command: &Path, folder: &Path) -> Result<(), String> {
        let file = folder.join(format!("{}.config", self.variant));
        fs::write(&file, self.fragment()?).map_err(|error| format!("cannot write: {error}"))?;
        let mut build = Command::new(command);
        build
            .args(["lab", "build", "--hz", HZ, "--source", self.source])
            .args(["--arch", self.target.debian])
            .arg("--config")
            .arg(&file);
        let output = build.output();
        let output = output.map_err(|error| format!("cannot run ticktax: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(super::last_words(&output.stderr))
    }

    /// Returns text that identifies the kernel's source and configuration.
    pub(super) fn identity(&self) -> Result<String, String> {
        Ok(format!(
            "{} {} {}",
            self.source,
            self.fragment()?,
            self.parameters
        ))
    }

    fn fragment(&self) -> Result<String, String> {
        let tracer = root().join(TRACER);
        let tracer = fs::read_to_string(&tracer)
            .map_err(|error| format!("cannot read {}: {error}", tracer.display()))?;
        let of_target: &[&str] = if self.target == AMD64 { &ON_AMD64 } else { &[] };
        let own = of_target.iter().chain(self.config);
        let own = own.map(|option| format!("CONFIG_{option}\n"));
        Ok(own.fold(tracer, |all, line| all + &line))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{BUILDS, Build};

    #[test]
    fn builds_have_unique_names_and_options() {
        let names: BTreeSet<String> = BUILDS.iter().map(Build::kernel).collect();
        assert_eq!(names.len(), BUILDS.len());
        let made: BTreeSet<String> = BUILDS
            .iter()
            .map(|build| build.identity().unwrap())
            .collect();
        assert_eq!(made.len(), BUILDS.len());
        for build in &BUILDS {
            for line in build.fragment().unwrap().lines() {
                let is_option = |(name, value): (&str, &str)| {
                    name.starts_with("CONFIG_") && ["y", "n"].contains(&value)
                };
                let fits = line.starts_with('#') || line.split_once('=').is_some_and(is_option);
                assert!(fits, "{line}");
            }
        }
    }
}
