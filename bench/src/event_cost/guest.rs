//! Counts instructions instead of time, in a lab guest whose clock advances with each instruction
//! executed. Nothing else runs in the guest, so the results are reproducible, and even a single
//! additional instruction shows. They do not show how long an instruction takes: a locked
//! instruction or a cache miss counts the same as any other instruction.

use std::fs;

use clap::Args;
use ticktax_bench::guest::{GuestArguments, Job, run as run_in_guest};
use ticktax_host::Proc;
use ticktax_lab::kernel::Wanted;
use ticktax_lab::qemu::Clock;
use ticktax_model::recording::World;

use super::{Unit, measure, print};
use crate::{Bench, Outcome, machine};

/// The subcommand of this program that runs in the guest.
pub(crate) const VERB: &str = "event-instructions-guest";

/// Options of `event-instructions`.
#[derive(Debug, Args)]
pub(crate) struct InstructionsArguments {
    /// Kernel: a path that contains a /, a Debian package, or hz250 for one made by `ticktax lab
    /// build`
    #[arg(
        long,
        visible_alias = "package",
        value_name = "KERNEL",
        default_value = "linux-image-cloud-amd64"
    )]
    kernel: Wanted,

    /// Options for the guest.
    #[command(flatten)]
    guest: GuestArguments,
}

/// The guest's clock advances by 2^SHIFT ns per instruction, which is 2 ns.
const SHIFT: u8 = 1;

/// File that shows whether the kernel compiles BPF programs to machine code.
const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";

/// Boots the guest, measures in it, and prints the results.
pub(crate) fn run(typed: &InstructionsArguments, stop: &dyn Fn() -> bool) -> Outcome {
    let job = Job {
        kernel: &typed.kernel,
        typed: &typed.guest,
        arguments: &[VERB.to_owned()],
        programs: &[],
        clock: Clock::Icount { shift: SHIFT },
    };
    let outcome = run_in_guest(&job, stop, &mut |words| eprintln!("{words}"))?;
    let said = outcome.file(ticktax_lab::guest::STANDARD_OUTPUT);
    print!("{}", String::from_utf8_lossy(said.unwrap_or_default()));
    Ok(())
}

/// Measures the cost of events in instructions. Must run in the guest.
pub(crate) fn in_guest(bench: &Bench) -> Outcome {
    if ticktax_host::world(&Proc::default().machine()).0 != World::Lab {
        return Err(format!(
            "{VERB} is for a lab's guest alone: run `ticktax-bench event-instructions`"
        )
        .into());
    }
    println!("{}", machine::line());
    let jit = fs::read_to_string(JIT).unwrap_or_default();
    if jit.trim() == "0" {
        return Err(format!("{JIT} is 0: this kernel would interpret the programs").into());
    }
    println!("\n## event-instructions");
    let (contenders, base) = measure(bench, 1)?;
    print(
        &contenders,
        &base,
        &Unit {
            name: "instructions",
            ns: f64::from(1_u32 << SHIFT),
        },
    );
    Ok(())
}
