//! `cargo xtask test TIER [N]`: runs tests that `cargo test --workspace` leaves out, N times.
//!
//! `cargo test` runs the tests that give the same result on any machine, and a few live tests. Each
//! tier here needs something else: an otherwise idle machine, kernels from apt, a cross build, or a
//! browser.

use std::process::Command;

use crate::{cross, root};

/// Environment variable that lists the tiers to run. The test programs skip the tests in other
/// tiers.
const VARIABLE: &str = "TICKTAX_TESTS";

/// A set of tests that one command runs.
struct Tier {
    name: &'static str,
    /// The test programs, each with its package.
    programs: &'static [(&'static str, &'static str)],
    /// Prefix of the tests' names.
    filter: &'static str,
    /// Builds or installs what the tests require.
    prepare: fn() -> Result<(), String>,
}

const TIERS: [Tier; 4] = [
    Tier {
        name: "live",
        programs: &[
            ("ticktax", "live"),
            ("ticktax", "trial"),
            ("ticktax", "tutorial"),
            ("ticktax-observe", "root"),
            ("ticktax-trace", "root"),
        ],
        filter: "",
        prepare: || Ok(()),
    },
    Tier {
        name: "kernels",
        programs: &[("ticktax", "lab"), ("ticktax-bench", "peers")],
        filter: "vm::",
        prepare: || Ok(()),
    },
    Tier {
        name: "arm64",
        programs: &[("ticktax", "lab")],
        filter: "vm::arm64::",
        prepare: || cross::build(&["arm64"]).map(drop),
    },
    Tier {
        name: "browser",
        programs: &[("ticktax", "html")],
        filter: "browser::",
        prepare: || {
            let packages = root().join("crates/ticktax/tests/browser");
            run(Command::new("npm")
                .args(["ci", "--no-audit", "--no-fund", "--prefix"])
                .arg(packages))
        },
    },
];

/// Runs a tier once, or as often as the second word asks. Carries on after a failed run, in order
/// to count the failures.
///
/// # Errors
/// Returns an error if the tier is unknown, if its requirements cannot be met, or if a run failed.
pub(crate) fn test(words: &[&str]) -> Result<String, String> {
    let names = || TIERS.map(|tier| tier.name).join(", ");
    let [name, rest @ ..] = words else {
        return Err(format!("name a tier: {}", names()));
    };
    let tier = TIERS.iter().find(|tier| tier.name == *name);
    let tier = tier.ok_or_else(|| format!("unknown tier {name}: choose one of {}", names()))?;
    let runs = match rest {
        [] => 1,
        [runs] => runs
            .parse::<u32>()
            .ok()
            .filter(|&runs| runs > 0)
            .ok_or_else(|| format!("invalid number of runs {runs}: choose 1 or more"))?,
        _ => return Err("too many words: name a tier, and how often to run it".to_owned()),
    };
    (tier.prepare)()?;
    let mut failed = 0;
    for _ in 0..runs {
        // Run each program, even if an earlier one failed.
        let programs = tier.programs.iter();
        let results = programs.map(|(package, program)| run(&mut command(tier, package, program)));
        failed += u32::from(results.filter(Result::is_err).count() > 0);
    }
    let outcome = format!("{name}: {failed} of {runs} runs failed");
    if failed == 0 {
        Ok(outcome)
    } else {
        Err(outcome)
    }
}

fn command(tier: &Tier, package: &str, program: &str) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(["test", "--package", package, "--test", program, "--"])
        .arg(tier.filter)
        .current_dir(root())
        .env(VARIABLE, tier.name);
    command
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} failed: {status}")),
        Err(error) => Err(format!("cannot run {program}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::test;

    #[test]
    fn an_unknown_tier_or_number_is_named() {
        for (words, expected) in [
            (&[][..], "name a tier: live, kernels, arm64, browser"),
            (&["fast"], "unknown tier fast"),
            (&["live", "0"], "invalid number of runs 0"),
            (&["live", "1", "2"], "too many words"),
        ] {
            let why = test(words).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }
}
