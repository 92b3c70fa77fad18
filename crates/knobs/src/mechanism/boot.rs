//! Reads kernel parameters from the boot command line.

use ticktax_model::machine::{kernel_words, parameter};

use crate::error::Trouble;
use crate::system::System;

const CMDLINE: &str = "proc/cmdline";

pub(super) fn read(system: &System, name: &str) -> Result<String, Trouble> {
    let cmdline = super::file::read(system, CMDLINE)?;
    let value = parameter(&cmdline, name);
    let is_word = || kernel_words(&cmdline).any(|word| word == name);
    Ok(match value {
        Some(value) => value.to_owned(),
        None if is_word() => "given".to_owned(),
        None => "not given".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::fixture::Machine;

    #[test]
    fn parameters_are_read_as_value_given_or_not_given() {
        let machine = Machine::new();
        machine.put(
            "proc/cmdline",
            "quiet threadirqs isolcpus=2 isolcpus=3 -- preempt=full\n",
        );
        let read = |name| read(&machine.system(), name).unwrap();
        assert_eq!(read("isolcpus"), "3");
        assert_eq!(read("threadirqs"), "given");
        assert_eq!(read("preempt"), "not given");
    }
}
