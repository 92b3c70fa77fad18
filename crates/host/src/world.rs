//! Whether this is a guest of the lab.

use ticktax_model::Nanos;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::{LAB_PARAMETER, Machine};
use ticktax_model::recording::World;

/// Which world this machine is of, and what cannot be seen in it.
pub fn world(machine: &Machine) -> (World, Option<Limitation>) {
    let Some(word) = machine.parameter(LAB_PARAMETER) else {
        return (World::Live, None);
    };
    let limitation = match word.strip_prefix("icount:") {
        Some(shift) => Limitation::InstructionTime {
            instruction: Nanos(shift.parse().map_or(0, |shift: u32| 1 << shift.min(10))),
        },
        None => Limitation::HostTime,
    };
    (World::Lab, Some(limitation))
}

#[cfg(test)]
mod tests {
    use ticktax_model::machine::Machine;

    use super::{Limitation, Nanos, World, world};

    #[test]
    fn a_guest_is_told_by_its_command_line() {
        let of = |cmdline: &str| {
            world(&Machine {
                cmdline: Some(cmdline.to_owned()),
                ..Machine::default()
            })
        };
        assert_eq!(of("quiet nohz=off").0, World::Live);
        assert_eq!(world(&Machine::default()).0, World::Live);
        let counted = of("quiet ticktax.lab=icount:3 -- lab-guest");
        let instruction = Nanos(8);
        let limitation = Limitation::InstructionTime { instruction };
        assert_eq!(counted, (World::Lab, Some(limitation)));
        let timed = of("ticktax.lab=tcg");
        assert_eq!(timed, (World::Lab, Some(Limitation::HostTime)));
    }
}
