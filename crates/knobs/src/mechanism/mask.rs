//! Files that contain a set of CPUs as a bit mask: 32-bit hexadecimal words, with the highest CPUs
//! in the first.

use ticktax_model::{Cpu, CpuList};

use crate::error::Trouble;
use crate::system::System;

const BITS: u32 = 32;

pub(super) fn read(system: &System, path: &str) -> Result<String, Trouble> {
    let text = super::file::read(system, path)?;
    let cpus = cpus(&text).ok_or_else(|| {
        Trouble::new(format!(
            "/{path} does not contain a CPU \
        mask: `{text}`"
        ))
    })?;
    Ok(cpus.to_string())
}

pub(super) fn write(system: &System, path: &str, value: &str) -> Result<(), Trouble> {
    let cpus: CpuList = value
        .parse()
        .map_err(|_| Trouble::new(format!("`{value}` is not a list of CPUs")))?;
    super::file::write(system, path, &mask(&cpus))
}

fn cpus(text: &str) -> Option<CpuList> {
    let words: Option<Vec<u32>> = text
        .split(',')
        .rev()
        .map(|word| u32::from_str_radix(word, 16).ok())
        .collect();
    let cpus = (0..).zip(words?).flat_map(|(place, word)| {
        let bits = (0..BITS).filter(move |bit| word & (1 << bit) != 0);
        bits.map(move |bit| Cpu(place * BITS + bit))
    });
    Some(cpus.collect())
}

fn mask(cpus: &CpuList) -> String {
    let last = cpus.iter().last().map_or(0, |cpu| cpu.0 / BITS);
    let word = |place: u32| {
        let bits = cpus.iter().filter(|cpu| cpu.0 / BITS == place);
        bits.fold(0_u32, |word, cpu| word | 1 << (cpu.0 % BITS))
    };
    let words = (0..=last).rev().map(|place| format!("{:08x}", word(place)));
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::{cpus, mask};

    #[test]
    fn masks_and_lists_convert_both_ways() {
        for (text, list) in [
            ("3", "0-1"),
            ("00000000,00000005", "0,2"),
            ("80000001,00000000", "32,63"),
            ("0", ""),
        ] {
            let read = cpus(text).unwrap();
            assert_eq!(read.to_string(), list, "{text}");
            assert_eq!(cpus(&mask(&read)), Some(read), "{text}");
        }
        assert_eq!(mask(&"0,32".parse().unwrap()), "00000001,00000001");
        assert_eq!(cpus("x"), None);
    }
}
