//! Tests of the lab, which boot real kernels in QEMU.
//!
//! Tests named `vm::…` boot a guest. They are reported as ignored, after the reason is printed, if
//! QEMU is missing or if a kernel is neither in the cache nor available from apt.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot set itself up fails with a reason"
)]

mod arm;
mod boot;
mod builds;
#[path = "../checks/mod.rs"]
mod checks;
mod clock;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod fixture;
mod guests;
#[cfg(target_arch = "x86_64")]
mod hosts;
mod inside;
mod kernels;
mod pressure;
mod programs;
mod recorder;
mod scenario;
mod stolen;
mod storage;
mod trials;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use libtest_mimic::{Arguments, Failed, Trial};
use ticktax_lab::Arch;
use ticktax_lab::kernel::Wanted;
use ticktax_model::machine::LAB_PARAMETER;

use fixture::{CLOUD, why_not};

type Test = fn();

/// Tests that do not boot a guest.
const ANYWHERE: &[(&str, Test)] = &[
    (
        "a_missing_qemu_is_a_one_line_error",
        faults::a_missing_qemu_is_a_one_line_error,
    ),
    (
        "verbs_that_no_guest_can_run_are_refused",
        faults::verbs_that_no_guest_can_run_are_refused,
    ),
    (
        "a_missing_kernel_is_named",
        faults::a_missing_kernel_is_named,
    ),
    (
        "hidden_verbs_only_run_in_guests",
        faults::hidden_verbs_only_run_in_guests,
    ),
];

/// Tests that need the tools for building kernels.
const BUILDS: &[(&str, Test)] = &[
    ("a_killed_build_resumes", builds::a_killed_build_resumes),
    (
        "another_source_or_configuration_is_another_build",
        builds::another_source_or_configuration_is_another_build,
    ),
];

const ON_CLOUD: &[(&str, Test)] = &[
    (
        "the_same_run_gives_the_same_bytes",
        guests::the_same_run_gives_the_same_bytes,
    ),
    (
        "two_labs_at_once_do_not_interfere",
        guests::two_labs_at_once_do_not_interfere,
    ),
    (
        "boot_parameters_change_the_kernel",
        guests::boot_parameters_change_the_kernel,
    ),
    (
        "the_error_of_a_verb_is_printed",
        guests::the_error_of_a_verb_is_printed,
    ),
    (
        "a_kernel_confirms_the_model_of_a_case",
        guests::a_kernel_confirms_the_model_of_a_case,
    ),
    (
        "a_kernel_panic_is_a_one_line_error",
        faults::a_kernel_panic_is_a_one_line_error,
    ),
    (
        "a_comparison_does_not_depend_on_the_number_of_jobs",
        guests::a_comparison_does_not_depend_on_the_number_of_jobs,
    ),
];

/// Tests that must run alone, because they look for leftover processes or use the host's clock.
const ALONE_ON_CLOUD: &[(&str, Test)] = &[
    (
        "a_recorder_survives_changes_of_its_machine",
        recorder::a_recorder_survives_changes_of_its_machine,
    ),
    (
        "a_hanging_guest_is_stopped",
        faults::a_hanging_guest_is_stopped,
    ),
    (
        "ctrl_c_leaves_nothing_behind",
        faults::ctrl_c_leaves_nothing_behind,
    ),
    (
        "a_killed_qemu_is_a_one_line_error",
        faults::a_killed_qemu_is_a_one_line_error,
    ),
    (
        "a_killed_lab_leaves_no_qemu_behind",
        faults::a_killed_lab_leaves_no_qemu_behind,
    ),
    (
        "the_first_failing_guest_stops_the_others",
        faults::the_first_failing_guest_stops_the_others,
    ),
];

const ON_ARM: [(&str, Test); 3] = [
    (
        "the_same_run_gives_the_same_bytes",
        arm::the_same_run_gives_the_same_bytes,
    ),
    (
        "everything_on_this_architecture_is_recorded",
        arm::everything_on_this_architecture_is_recorded,
    ),
    (
        "interrupts_of_performance_counters_are_named",
        arm::interrupts_of_performance_counters_are_named,
    ),
];

/// Tests in arm64 guests that run on the host's clock.
const ON_ARM_IN_HOSTS_TIME: [(&str, Test); 2] = [
    (
        "time_taken_by_the_host_is_outside",
        arm::time_taken_by_the_host_is_outside,
    ),
    (
        "interrupts_between_cpus_are_named",
        arm::interrupts_between_cpus_are_named,
    ),
];

/// Lock that most tests share. A test that must run alone takes it exclusively.
static EXCLUSION: RwLock<()> = RwLock::new(());

/// Creates a test that fails if `test` panics.
fn trial(name: &str, test: impl FnOnce() + Send + 'static) -> Trial {
    shared(name, move || {
        test();
        Ok(())
    })
}

fn shared(name: &str, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let _guard = EXCLUSION.read().unwrap_or_else(PoisonError::into_inner);
        test()
    })
}

fn alone(name: &str, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let _guard = EXCLUSION.write().unwrap_or_else(PoisonError::into_inner);
        test();
        Ok(())
    })
}

/// If this binary runs in a guest, as PID 1 or as a program started by PID 1, does the work of that
/// guest or program. Otherwise returns `None`.
fn in_a_guest() -> Option<ExitCode> {
    if ticktax_lab::guest::is_init() {
        eprintln!("{}", ticktax_lab::guest::run());
        return Some(ExitCode::FAILURE);
    }
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next()?;
    let run: &dyn Fn() -> Result<(), Failed> = match &*verb {
        recorder::guest::VERB => &|| Ok(recorder::guest::run()?),
        scenario::guest::VERB => &scenario::guest::run,
        trials::guest::VERB => &trials::guest::run,
        trials::groups::guest::VERB => &trials::groups::guest::run,
        kernels::VERB => &kernels::run,
        stolen::VERB => &stolen::run,
        clock::VERB => &clock::run,
        storage::VERB => &storage::run,
        pressure::VERB => &pressure::run,
        #[cfg(target_arch = "x86_64")]
        hosts::VERB => &hosts::run,
        programs::PROGRAM => &|| {
            let arguments: Vec<String> = std::env::args().skip(2).collect();
            programs::program(&arguments)
        },
        _ => return None,
    };
    // Run this only in a guest, because it changes the machine's clock, CPUs and power state.
    // Guests start many programs, so this check reads just one file.
    let parameters = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if !parameters.contains(&format!("{LAB_PARAMETER}=")) {
        eprintln!("{verb} only runs in lab guests");
        return Some(ExitCode::FAILURE);
    }
    Some(match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("{}", failed.message().unwrap_or("no reason"));
            ExitCode::FAILURE
        }
    })
}

/// Creates the tests that need a static binary for each architecture.
fn architecture_trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let why = arm::why_not(Arch::Arm, arm::KERNEL);
    if let Some(why) = &why {
        eprintln!("vm::arm64 tests are ignored: {why}");
    }
    let named = |(name, test): (&str, Test)| trial(&format!("vm::arm64::{name}"), test);
    for test in ON_ARM {
        trials.push(named(test).with_ignored_flag(why.is_some()));
    }
    let slow = why.clone().or_else(arm::why_too_slow);
    if let (None, Some(slow)) = (&why, &slow) {
        eprintln!("vm::arm64 tests in the host's time are ignored: {slow}");
    }
    for (name, test) in ON_ARM_IN_HOSTS_TIME {
        let trial = alone(&format!("vm::arm64::{name}"), test);
        trials.push(trial.with_ignored_flag(slow.is_some()));
    }
    let no_kernel = why.clone().or_else(|| {
        let none = || {
            format!(
                "no kernel {}: cargo xtask kernels pseudo-nmi builds it",
                arm::PSEUDO_NMI
            )
        };
        arm::why_not(Arch::Arm, arm::PSEUDO_NMI).map(|_| none())
    });
    if let Some(why) = &no_kernel {
        eprintln!("vm::arm64 tests of pseudo-NMIs are ignored: {why}");
    }
    let pseudo_nmis = (
        "pseudo_nmis_arrive_while_interrupts_are_disabled",
        arm::pseudo_nmis_arrive_while_interrupts_are_disabled as Test,
    );
    trials.push(named(pseudo_nmis).with_ignored_flag(no_kernel.is_some()));
    let why = why.or_else(arm::missing_package);
    if let Some(why) = &why {
        eprintln!("vm::arm64::the_package_runs is ignored: {why}");
    }
    let package = trial("vm::arm64::the_package_runs", arm::the_package_runs);
    trials.push(package.with_ignored_flag(why.is_some()));
    for kernel in arm::NEWEST {
        let arch = kernel
            .parse::<Wanted>()
            .ok()
            .and_then(|wanted| wanted.arch());
        let why = ticktax_fixture::left_out(kernels::TIER);
        let why = why.or_else(|| arm::why_not(arch.unwrap_or(Arch::HOST), kernel));
        if let Some(why) = &why {
            eprintln!("vm:: tests on {kernel} are ignored: {why}");
        }
        let name = format!("vm::everything_is_named_on::{kernel}");
        let test = move || arm::everything_is_named_on(kernel);
        trials.push(trial(&name, test).with_ignored_flag(why.is_some()));
    }
    trials
}

/// Returns the tests of `ticktax storage`, which write to disks of guests.
fn disk_trials(cloud: Option<&String>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for tested in storage::FILE_SYSTEMS {
        let why = cloud.cloned().or_else(|| tested.why_not());
        if let Some(why) = &why {
            eprintln!("vm::{} is ignored: {why}", tested.test);
        }
        let test = shared(&format!("vm::{}", tested.test), || storage::test(tested));
        trials.push(test.with_ignored_flag(why.is_some()));
    }
    for (test, kernel) in pressure::KERNELS {
        let tier = (kernel != CLOUD).then(|| ticktax_fixture::left_out(kernels::TIER));
        let why = tier
            .flatten()
            .or_else(|| why_not(kernel))
            .or_else(pressure::why_not);
        if let Some(why) = &why {
            eprintln!("vm::{test} is ignored: {why}");
        }
        let test = shared(&format!("vm::{test}"), || pressure::test(kernel));
        trials.push(test.with_ignored_flag(why.is_some()));
    }
    trials
}

fn main() -> ExitCode {
    if let Some(code) = in_a_guest() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    // Each guest occupies a CPU. Guests whose clocks count instructions do not affect each other's
    // results.
    arguments.test_threads.get_or_insert(2);
    let cloud = why_not(CLOUD);
    if let Some(why) = &cloud {
        eprintln!("vm:: tests are ignored: {why}");
    }
    let scenario = scenario::trials();
    let scenario = scenario.map(|trial| trial.with_ignored_flag(cloud.is_some()));
    // Put one scenario test first. It boots the guest that all scenario tests share, while other
    // tests run.
    let mut scenario: VecDeque<Trial> = scenario.collect();
    let mut trials: Vec<Trial> = scenario.pop_front().into_iter().collect();
    trials.extend(ANYWHERE.iter().map(|&(name, test)| trial(name, test)));
    let planted = trial(
        "root::root_starts_no_qemu_from_the_inherited_path",
        faults::root_starts_no_qemu_from_the_inherited_path,
    );
    trials.push(planted.with_ignored_flag(!ticktax_host::is_root()));
    let tools = builds::why_not();
    if let Some(why) = &tools {
        eprintln!("build:: tests are ignored: {why}");
    }
    for &(name, test) in BUILDS {
        trials.push(trial(&format!("build::{name}"), test).with_ignored_flag(tools.is_some()));
    }
    let on_cloud = |name: &str| format!("vm::{name}");
    for &(name, test) in ON_CLOUD {
        trials.push(trial(&on_cloud(name), test).with_ignored_flag(cloud.is_some()));
    }
    let audit = shared(
        &on_cloud("a_guest_returns_a_complete_audit"),
        guests::a_guest_returns_a_complete_audit,
    );
    trials.push(audit.with_ignored_flag(cloud.is_some()));
    let stolen = shared(
        &on_cloud("stolen_time_is_found_without_a_probe"),
        stolen::test,
    );
    trials.push(stolen.with_ignored_flag(cloud.is_some()));
    let clock = shared(&on_cloud("changes_of_the_clocks_are_seen"), clock::test);
    trials.push(clock.with_ignored_flag(cloud.is_some()));
    trials.extend(disk_trials(cloud.as_ref()));
    #[cfg(target_arch = "x86_64")]
    {
        let host = shared(
            &on_cloud("a_host_knows_the_exits_of_its_guests"),
            hosts::test,
        );
        trials.push(host.with_ignored_flag(cloud.is_some()));
    }
    let idle = trial(
        &on_cloud("an_idle_guests_instructions_are_counted"),
        guests::an_idle_guests_instructions_are_counted,
    );
    let why_no_idle = ticktax_fixture::left_out(kernels::TIER).or(cloud.clone());
    trials.push(idle.with_ignored_flag(why_no_idle.is_some()));
    trials.extend(kernels::trials());
    trials.extend(architecture_trials());
    trials.extend(scenario);
    let situations = trials::trials();
    let why = ticktax_fixture::left_out(kernels::TIER).or(cloud.clone());
    trials.extend(situations.map(|trial| trial.with_ignored_flag(why.is_some())));
    for &(name, test) in ALONE_ON_CLOUD {
        trials.push(alone(&on_cloud(name), test).with_ignored_flag(cloud.is_some()));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
