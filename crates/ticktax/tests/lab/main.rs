//! The lab: real kernels in QEMU.
//!
//! `vm::` tests boot a guest. Where QEMU is not installed, or a test's kernel neither in the user's
//! cache nor to be had by apt, they are reported as ignored, by name, and why is said first.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot set itself up fails, and says why"
)]

mod arm;
mod boot;
mod builds;
#[path = "../checks/mod.rs"]
mod checks;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod fixture;
mod guests;
mod inside;
mod kernels;
mod programs;
mod recorder;
mod scenario;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use libtest_mimic::{Arguments, Failed, Trial};
use ticktax_lab::Arch;
use ticktax_lab::kernel::Wanted;
use ticktax_model::machine::LAB_PARAMETER;

use fixture::{CLOUD, why_not};

type Test = fn();

/// Tests that boot nothing.
const ANYWHERE: &[(&str, Test)] = &[
    (
        "without_qemu_one_line_says_so",
        faults::without_qemu_one_line_says_so,
    ),
    (
        "what_no_guest_can_run_is_refused",
        faults::what_no_guest_can_run_is_refused,
    ),
    (
        "a_kernel_that_is_not_there_is_named",
        faults::a_kernel_that_is_not_there_is_named,
    ),
    (
        "the_guests_verbs_are_nobody_elses",
        faults::the_guests_verbs_are_nobody_elses,
    ),
];

/// Tests that need what kernels are built with.
const BUILDS: &[(&str, Test)] = &[
    (
        "a_killed_build_goes_on_where_it_was",
        builds::a_killed_build_goes_on_where_it_was,
    ),
    (
        "another_source_or_configuration_is_another_build",
        builds::another_source_or_configuration_is_another_build,
    ),
];

/// Tests in a guest with Debian's kernel for clouds.
const ON_CLOUD: &[(&str, Test)] = &[
    (
        "the_same_run_is_the_same_bytes",
        guests::the_same_run_is_the_same_bytes,
    ),
    (
        "two_labs_at_once_do_not_meet",
        guests::two_labs_at_once_do_not_meet,
    ),
    (
        "boot_parameters_change_the_kernel",
        guests::boot_parameters_change_the_kernel,
    ),
    (
        "a_verb_that_fails_is_told",
        guests::a_verb_that_fails_is_told,
    ),
    (
        "a_case_does_on_a_kernel_what_the_model_says",
        guests::a_case_does_on_a_kernel_what_the_model_says,
    ),
    (
        "an_idle_guests_instructions_are_counted",
        guests::an_idle_guests_instructions_are_counted,
    ),
    ("a_panic_is_one_line", faults::a_panic_is_one_line),
    (
        "a_comparison_is_the_same_by_one_and_by_two_at_once",
        guests::a_comparison_is_the_same_by_one_and_by_two_at_once,
    ),
];

/// Tests that run alone: they look at processes left behind, or the guest's time is the host's.
const ALONE_ON_CLOUD: &[(&str, Test)] = &[
    (
        "a_recorder_outlives_what_happens_to_its_machine",
        recorder::a_recorder_outlives_what_happens_to_its_machine,
    ),
    (
        "a_guest_that_hangs_is_ended",
        faults::a_guest_that_hangs_is_ended,
    ),
    (
        "ctrl_c_leaves_nothing_behind",
        faults::ctrl_c_leaves_nothing_behind,
    ),
    (
        "a_qemu_that_dies_is_one_line",
        faults::a_qemu_that_dies_is_one_line,
    ),
    (
        "a_killed_lab_leaves_no_qemu_behind",
        faults::a_killed_lab_leaves_no_qemu_behind,
    ),
    (
        "the_first_guest_that_fails_ends_the_others",
        faults::the_first_guest_that_fails_ends_the_others,
    ),
];

/// Tests in guests of arm64.
const ON_ARM: [(&str, Test); 3] = [
    (
        "the_same_run_is_the_same_bytes",
        arm::the_same_run_is_the_same_bytes,
    ),
    (
        "what_this_architecture_has_is_seen",
        arm::what_this_architecture_has_is_seen,
    ),
    (
        "counters_interrupts_are_a_line_with_a_name",
        arm::counters_interrupts_are_a_line_with_a_name,
    ),
];

/// What is to be tried on arm64 in the host's time.
const ON_ARM_IN_HOSTS_TIME: [(&str, Test); 2] = [
    (
        "time_that_the_host_takes_is_outside",
        arm::time_that_the_host_takes_is_outside,
    ),
    (
        "interrupts_between_cpus_have_their_name",
        arm::interrupts_between_cpus_have_their_name,
    ),
];

/// Tests that may run at the same time share it. A test that runs alone holds it exclusively.
static TURNS: RwLock<()> = RwLock::new(());

/// A test that fails by panicking.
fn trial(name: &str, test: impl FnOnce() + Send + 'static) -> Trial {
    shared(name, move || {
        test();
        Ok(())
    })
}

/// A test that may run at the same time as another one.
fn shared(name: &str, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let _turn = TURNS.read().unwrap_or_else(PoisonError::into_inner);
        test()
    })
}

/// A test that runs alone, and fails by panicking.
fn alone(name: &str, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let _turn = TURNS.write().unwrap_or_else(PoisonError::into_inner);
        test();
        Ok(())
    })
}

/// What this program does in a guest that it is PID 1 of; `None` where it is in none.
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
        kernels::VERB => &kernels::run,
        programs::PROGRAM => &|| {
            let arguments: Vec<String> = std::env::args().skip(2).collect();
            programs::program(&arguments)
        },
        _ => return None,
    };
    // They change the clock, the CPUs and the power of their machine. Guests start many of them, so
    // that the whole machine is not read here.
    let parameters = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if !parameters.contains(&format!("{LAB_PARAMETER}=")) {
        eprintln!("{verb} is for a lab's guest alone");
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

/// Tests that need the static command of an architecture.
fn of_architectures() -> Vec<Trial> {
    let mut trials = Vec::new();
    let why = arm::why_not(Arch::Arm, arm::KERNEL);
    if let Some(why) = &why {
        eprintln!("vm::arm64 tests are ignored: {why}");
    }
    let named = |(name, test): (&str, Test)| trial(&format!("vm::arm64::{name}"), test);
    for it in ON_ARM {
        trials.push(named(it).with_ignored_flag(why.is_some()));
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
        "pseudo_nmis_come_where_interrupts_are_not_let_in",
        arm::pseudo_nmis_come_where_interrupts_are_not_let_in as Test,
    );
    trials.push(named(pseudo_nmis).with_ignored_flag(no_kernel.is_some()));
    let why = why.or_else(arm::why_no_package);
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

fn main() -> ExitCode {
    if let Some(code) = in_a_guest() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    // Each guest takes a CPU. Guests under icount do not change each other's results.
    arguments.test_threads.get_or_insert(2);
    let cloud = why_not(CLOUD);
    if let Some(why) = &cloud {
        eprintln!("vm:: tests are ignored: {why}");
    }
    let scenario = scenario::trials();
    let scenario = scenario.map(|trial| trial.with_ignored_flag(cloud.is_some()));
    // The first boots the guest of all of them, while other tests run.
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
        &on_cloud("an_audit_comes_back_whole"),
        guests::an_audit_comes_back_whole,
    );
    trials.push(audit.with_ignored_flag(cloud.is_some()));
    trials.extend(kernels::trials());
    trials.extend(of_architectures());
    trials.extend(scenario);
    for &(name, test) in ALONE_ON_CLOUD {
        trials.push(alone(&on_cloud(name), test).with_ignored_flag(cloud.is_some()));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
