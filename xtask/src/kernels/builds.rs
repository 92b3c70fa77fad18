//! Kernels that no distribution has: the kernel's own source, built by the lab with one way to preempt or to keep time
//! each.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cross::{TARGETS, Target};
use crate::root;

/// What the tracer needs of any kernel.
const TRACER: &str = "crates/lab/kernel/tracer.config";
/// The tick rate, in Hz.
const HZ: &str = "250";

/// A source with every model of preemption but the lazy one, and the newest packaged for trixie, which has that
/// (`kernel/Kconfig.preempt`: since 7.0 an architecture that has it offers no other beside full preemption).
const OLDER: &str = "bookworm-backports:linux-source-6.12";
const NEWER: &str = "trixie-backports:linux-source-7.3";

/// What they are built for.
pub(super) const BUILT_FOR: Target = TARGETS[0];

/// A kernel to build.
pub(super) struct Build {
    /// What it is called, and what its configuration's file is.
    variant: &'static str,
    source: &'static str,
    /// What differs from the lab's fragment.
    config: &'static [&'static str],
}

/// All of them.
pub(super) const BUILDS: [Build; 8] = [
    Build {
        variant: "preempt-none",
        source: OLDER,
        config: &["PREEMPT_VOLUNTARY=n", "PREEMPT_NONE=y"],
    },
    Build {
        variant: "preempt-voluntary",
        source: OLDER,
        config: &["PREEMPT_VOLUNTARY=y"],
    },
    Build {
        variant: "preempt-full",
        source: OLDER,
        config: &["PREEMPT_VOLUNTARY=n", "PREEMPT=y"],
    },
    Build {
        variant: "preempt-rt",
        source: OLDER,
        config: &["PREEMPT_VOLUNTARY=n", "EXPERT=y", "PREEMPT_RT=y"],
    },
    Build {
        variant: "preempt-lazy",
        source: NEWER,
        // The option for /proc/sys has another name in 7.x.
        config: &[
            "PROC_SYSCTL=n",
            "SYSCTL=y",
            "PREEMPT_VOLUNTARY=n",
            "PREEMPT_LAZY=y",
        ],
    },
    Build {
        variant: "irq-time",
        source: OLDER,
        config: &["IRQ_TIME_ACCOUNTING=y"],
    },
    Build {
        variant: "nohz-full",
        source: OLDER,
        // The last puts it into use on every CPU, without `nohz_full=`.
        config: &[
            "TICK_CPU_ACCOUNTING=n",
            "NO_HZ_IDLE=n",
            "NO_HZ_FULL=y",
            "VIRT_CPU_ACCOUNTING_GEN=y",
            "CONTEXT_TRACKING_USER_FORCE=y",
        ],
    },
    Build {
        variant: "debug-locks",
        source: OLDER,
        config: &[
            "PREEMPT_VOLUNTARY=n",
            "PREEMPT=y",
            "PROVE_LOCKING=y",
            "DEBUG_ATOMIC_SLEEP=y",
        ],
    },
];

impl Build {
    /// The name that the lab gives it.
    pub(super) fn kernel(&self) -> String {
        format!("hz{HZ}+{}", self.variant)
    }

    /// Has the lab build it, as far as that is not done yet; `folder` is for the file with its configuration.
    pub(super) fn build(&self, command: &Path, folder: &Path) -> Result<(), String> {
        let file = folder.join(format!("{}.config", self.variant));
        fs::write(&file, self.fragment()?).map_err(|error| format!("cannot write: {error}"))?;
        let mut build = Command::new(command);
        build
            .args(["lab", "build", "--hz", HZ, "--source", self.source])
            .arg("--config")
            .arg(&file);
        let output = build.output();
        let output = output.map_err(|error| format!("cannot run ticktax: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(super::last_words(&output.stderr))
    }

    /// What the kernel is made of.
    pub(super) fn identity(&self) -> Result<String, String> {
        Ok(format!("{} {}", self.source, self.fragment()?))
    }

    fn fragment(&self) -> Result<String, String> {
        let tracer = root().join(TRACER);
        let tracer = fs::read_to_string(&tracer)
            .map_err(|error| format!("cannot read {}: {error}", tracer.display()))?;
        let own = self.config.iter().map(|it| format!("CONFIG_{it}\n"));
        Ok(own.fold(tracer, |all, line| all + &line))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{BUILDS, Build};

    #[test]
    fn each_build_has_a_name_and_options_of_its_own() {
        let names: BTreeSet<String> = BUILDS.iter().map(Build::kernel).collect();
        assert_eq!(names.len(), BUILDS.len());
        let made: BTreeSet<String> = BUILDS.iter().map(|it| it.identity().unwrap()).collect();
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
