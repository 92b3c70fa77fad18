//! The set of idle states that are disabled for a CPU. Each idle state has its own file.

use ticktax_model::{Cpu, CpuList};

use crate::error::Trouble;
use crate::system::System;
use crate::target::Target;
use crate::values::Form;

pub(super) const FOLDER: &str = "sys/devices/system/cpu/cpu{}/cpuidle";
/// Value for the empty set.
const NONE: &str = "none";

pub(crate) const FORM: Form = Form {
    about: "none, or numbers of idle states, for example 2-3",
    parse,
};

fn parse(text: &str) -> Option<String> {
    if text == NONE {
        return Some(NONE.to_owned());
    }
    let states = text.parse::<CpuList>().ok()?;
    (!states.is_empty()).then(|| states.to_string())
}

/// Returns the numbers of a CPU's idle states in ascending order.
fn states(system: &System, folder: &str) -> Result<Vec<u32>, Trouble> {
    let names = system.names(folder).into_iter();
    let numbers = names.filter_map(|name| name.strip_prefix("state")?.parse().ok());
    let mut states: Vec<u32> = numbers.collect();
    states.sort_unstable();
    if states.is_empty() {
        return Err(Trouble::new(format!(
            "/{folder} has no states: this CPU has no cpuidle driver, or the hypervisor handles \
             its idling"
        )));
    }
    Ok(states)
}

pub(super) fn read(system: &System, target: &Target) -> Result<String, Trouble> {
    let folder = super::expanded(FOLDER, target);
    let mut off = Vec::new();
    for state in states(system, &folder)? {
        if super::file::read(system, &format!("{folder}/state{state}/disable"))? != "0" {
            off.push(Cpu(state));
        }
    }
    let off: CpuList = off.into_iter().collect();
    Ok(if off.is_empty() {
        NONE.to_owned()
    } else {
        off.to_string()
    })
}

pub(super) fn write(system: &System, target: &Target, value: &str) -> Result<(), Trouble> {
    let folder = super::expanded(FOLDER, target);
    let states = states(system, &folder)?;
    let off: CpuList = match value {
        NONE => CpuList::default(),
        list => list.parse().map_err(|_| Trouble::new(FORM.about))?,
    };
    if let Some(unknown) = off.iter().find(|state| !states.contains(&state.0)) {
        let last = states.last().copied().unwrap_or_default();
        let why = format!("no idle state {unknown}: choose at most {last}");
        return Err(Trouble::new(why));
    }
    for state in states {
        let path = format!("{folder}/state{state}/disable");
        let wanted = if off.contains(Cpu(state)) { "1" } else { "0" };
        if super::file::read(system, &path)? != wanted {
            super::file::write(system, &path, wanted)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{parse, read, write};
    use crate::fixture::Machine;
    use crate::target::Target;

    #[test]
    fn idle_states_are_disabled_by_number() {
        let machine = Machine::new();
        let file = |state: u32| format!("sys/devices/system/cpu/cpu1/cpuidle/state{state}/disable");
        let cpu = Target::Cpu(1);
        assert!(read(&machine.system(), &cpu).is_err());
        for state in 0..4 {
            machine.put(&file(state), "0\n");
        }
        assert_eq!(read(&machine.system(), &cpu).unwrap(), "none");
        write(&machine.system(), &cpu, "2-3").unwrap();
        assert_eq!(machine.text(&file(3)), "1\n");
        assert_eq!(read(&machine.system(), &cpu).unwrap(), "2-3");
        let error = write(&machine.system(), &cpu, "4").unwrap_err();
        assert!(error.to_string().contains("no idle state 4"), "{error}");
        write(&machine.system(), &cpu, "none").unwrap();
        assert_eq!(read(&machine.system(), &cpu).unwrap(), "none");
        assert_eq!(parse("3,2").unwrap(), "2-3");
        assert_eq!(parse(""), None);
    }
}
