//! Whether this is a guest of the lab.

use ticktax_model::machine::{LAB_PARAMETER, Machine};
use ticktax_model::recording::{Limitation, World};

/// Which world this machine is of, and what nobody can see in it.
pub fn world(machine: &Machine) -> (World, Option<Limitation>) {
    let Some(word) = machine.parameter(LAB_PARAMETER) else {
        return (World::Live, None);
    };
    let (what, why) = match word.strip_prefix("icount:") {
        Some(shift) => (
            "what caches, pipelines and a hypervisor cost",
            format!(
                "time in this guest is its number of instructions, {} ns each; nothing else takes \
                 any",
                shift.parse().map_or(0, |shift: u32| 1_u64 << shift.min(10))
            ),
        ),
        None => (
            "what is the guest's and what QEMU's",
            "time in this guest is the host's".to_owned(),
        ),
    };
    let limitations = Limitation {
        what: what.to_owned(),
        why,
    };
    (World::Lab, Some(limitations))
}

#[cfg(test)]
mod tests {
    use ticktax_model::machine::Machine;
    use ticktax_model::recording::World;

    use super::world;

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
        let (world, limitations) = of("quiet ticktax.lab=icount:3 -- lab-guest");
        assert_eq!(world, World::Lab);
        assert!(limitations.unwrap().why.contains("8 ns"));
        assert_eq!(of("ticktax.lab=tcg").0, World::Lab);
    }
}
