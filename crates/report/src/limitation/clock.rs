//! Describes limitations caused by the recording's clock and length.

use ticktax_model::Nanos;
use ticktax_model::limitation::Limitation;

use crate::text::page::tied;

use super::{Words, sentences};

/// Describes limitations caused by the length of the recording.
fn length(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::EndedAtMemoryLimit { limit_bytes } => sentences(
            format!(
                "The recording ended early, because ticktax's control group allows only {} of \
                 memory.",
                tied(format!("{} MiB", limit_bytes >> 20))
            ),
            "Use --keep sums, or raise the limit.",
        ),
        Limitation::LengthDiffers { requested, watched } => sentences(
            format!(
                "The recording is {} than the requested {}, because busy CPUs delayed the start of \
                 an account, a loop's last frame, or the reading of counters.",
                if watched > requested {
                    format!("{} longer", tied(*watched - *requested))
                } else {
                    format!("{} shorter", tied(*requested - *watched))
                },
                tied(requested)
            ),
            "",
        ),
        Limitation::RingTooShort { requested, reached } => sentences(
            format!(
                "The recording lacks the first {} of the {} before the trigger, because the buffer \
                 of at least one CPU was full.",
                tied(*requested - *reached),
                tied(requested)
            ),
            "Watch fewer CPUs (--cpus) to have more room for each.",
        ),
        Limitation::WindowCutShort { requested, kept } => sentences(
            format!(
                "The recording lacks the last {} of its window of {}, because the memory for one \
                 window was full.",
                tied(*requested - *kept),
                tied(requested)
            ),
            "Later triggers have separate recordings.",
        ),
        _ => None,
    }
}

/// Describes limitations caused by this machine's clock, or by the recording's length.
pub(super) fn clock(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::Suspended { time } => sentences(
            format!(
                "The machine was suspended for {} during the recording.",
                tied(time)
            ),
            "No CPU ran in this time, and the figures do not include it.",
        ),
        Limitation::ClockSet { step } => {
            let (step, way) = if *step > Nanos::ZERO {
                (*step, "forward")
            } else {
                (-*step, "back")
            };
            sentences(
                format!(
                    "The clock was set {way} by {} during the recording.",
                    tied(step)
                ),
                "Times in this report come from a different clock, so they may not match the start \
                 times of jobs scheduled by time of day.",
            )
        }
        Limitation::InstructionTime { instruction } => sentences(
            format!(
                "This guest's clock counts instructions, {} each, so nothing else takes time.",
                tied(format!("{} ns", instruction.0))
            ),
            "The cost of caches, pipelines and a hypervisor is missing.",
        ),
        Limitation::HostTime => sentences(
            "This guest uses the host's clock.",
            "Its times include delays caused by the host and QEMU.",
        ),
        _ => length(limitation),
    }
}
