//! The same in instructions: in a guest of the lab whose clock counts them. Nothing else runs there, so that two runs
//! give one figure, and a change of a program is told to the instruction. What an instruction takes it does not tell:
//! locked ones and missed caches cost as much as any other.

use std::fs;

use clap::Args;
use ticktax_bench::guest::{GuestArguments, Job, run as run_in_guest};
use ticktax_host::Proc;
use ticktax_lab::kernel::Wanted;
use ticktax_lab::qemu::Clock;
use ticktax_model::recording::World;

use super::{Unit, measure, print};
use crate::{Bench, Outcome, machine};

/// The verb that runs in the guest.
pub(crate) const VERB: &str = "event-instructions-guest";

/// What was typed after `event-instructions`.
#[derive(Debug, Args)]
pub(crate) struct InstructionsArguments {
    /// A file with a / in it, a Debian package, or hz250 for one that `ticktax lab build` made
    #[arg(
        long,
        visible_alias = "package",
        value_name = "KERNEL",
        default_value = "linux-image-cloud-amd64"
    )]
    kernel: Wanted,

    /// What else there is to say of the guest.
    #[command(flatten)]
    guest: GuestArguments,
}

/// An instruction takes 2^1 ns on the guest's clock.
const SHIFT: u8 = 1;

/// Whether the kernel turns BPF programs into the machine's own instructions.
const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";

/// Boots the guest, and prints what it found.
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

/// What runs there.
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
