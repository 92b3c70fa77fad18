//! Detects whether this machine is a lab guest.

use ticktax_model::kernels::GuestClock;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::{LAB_PARAMETER, Machine};
use ticktax_model::recording::World;

/// Returns whether this machine is real or a lab guest. For a lab guest, also returns the
/// limitation that follows from its clock.
pub fn world(machine: &Machine) -> (World, Option<Limitation>) {
    let Some(word) = machine.parameter(LAB_PARAMETER) else {
        return (World::Live, None);
    };
    let limitation = match GuestClock::of_word(word) {
        GuestClock::Instructions { each } => Limitation::InstructionTime { instruction: each },
        GuestClock::Host => Limitation::HostTime,
    };
    (World::Lab, Some(limitation))
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::machine::Machine;

    use super::{Limitation, World, world};

    #[test]
    fn a_guest_is_recognized_by_its_command_line() {
        let world_of = |cmdline: &str| {
            world(&Machine {
                cmdline: Some(cmdline.to_owned()),
                ..Machine::default()
            })
        };
        assert_eq!(world_of("quiet nohz=off").0, World::Live);
        assert_eq!(world(&Machine::default()).0, World::Live);
        let counted = world_of("quiet ticktax.lab=icount:3 -- lab-guest");
        let instruction = Nanos(8);
        let limitation = Limitation::InstructionTime { instruction };
        assert_eq!(counted, (World::Lab, Some(limitation)));
        let timed = world_of("ticktax.lab=tcg");
        assert_eq!(timed, (World::Lab, Some(Limitation::HostTime)));
    }
}
