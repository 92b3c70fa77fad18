//! Whether this is a guest of the lab.

use ticktax_lab::guest::PARAMETER;
use ticktax_model::machine::parameter;
use ticktax_model::recording::{Limitation, World};

/// Which world a machine with this command line is, and what nobody can see in it.
pub(crate) fn of(cmdline: Option<&str>) -> (World, Option<Limitation>) {
    let Some(word) = parameter(cmdline.unwrap_or_default(), PARAMETER) else {
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
    use ticktax_model::recording::World;

    use super::of;

    #[test]
    fn a_guest_is_told_by_its_command_line() {
        assert_eq!(of(Some("quiet nohz=off")).0, World::Live);
        assert_eq!(of(None).0, World::Live);
        let (world, limitations) = of(Some("quiet ticktax.lab=icount:3 -- lab-guest"));
        assert_eq!(world, World::Lab);
        assert!(limitations.unwrap().why.contains("8 ns"));
        assert_eq!(of(Some("ticktax.lab=tcg")).0, World::Lab);
    }
}
