//! CPUs, and lists of CPUs in the kernel's format (`0-3,8`).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// A logical CPU, identified by the kernel's number for it.
///
/// Analyses use CPU numbers as list indices, so deserialization rejects numbers that no kernel can
/// have.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Cpu(#[serde(deserialize_with = "possible")] pub u32);

fn possible<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(deserializer)?;
    if Cpu(number).is_possible() {
        return Ok(number);
    }
    let most = CpuList::MAX_CPU;
    Err(D::Error::custom(format!(
        "invalid CPU number {number}: the range is 0 to {most}"
    )))
}

impl Cpu {
    /// Returns the CPU number as an index into a list.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns whether a kernel can have a CPU with this number.
    pub const fn is_possible(self) -> bool {
        self.0 <= CpuList::MAX_CPU
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A set of CPUs, kept in ascending order. Its text form is the kernel's list format (`0-3,8`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct CpuList(Vec<Cpu>);

/// Error for text that is not a CPU list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{part}` is not a CPU list: use numbers and ranges, for example 0-3,8")]
pub struct CpuListError {
    part: String,
}

impl CpuList {
    /// Largest CPU number accepted. On x86-64, kernels support at most 8192 CPUs (`NR_CPUS`).
    pub const MAX_CPU: u32 = 8191;

    /// Returns the CPUs 0 to `count - 1`.
    pub fn first(count: u32) -> Self {
        (0..count).map(Cpu).collect()
    }

    /// Returns the CPUs, in ascending order and without duplicates.
    pub fn iter(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.0.iter().copied()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether `cpu` is in the list.
    pub fn contains(&self, cpu: Cpu) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// Formats the list with a noun, for use in sentences: `CPU 3`, `CPUs 1-3`.
    pub fn named(&self) -> String {
        let noun = if self.len() == 1 { "CPU" } else { "CPUs" };
        format!("{noun} {self}")
    }
}

impl FromIterator<Cpu> for CpuList {
    fn from_iter<I: IntoIterator<Item = Cpu>>(cpus: I) -> Self {
        let mut cpus: Vec<Cpu> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut cpus = Vec::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let invalid = || CpuListError {
                part: part.to_owned(),
            };
            let number = |digits: &str| match digits.trim().parse() {
                Ok(n) if n <= Self::MAX_CPU => Ok(n),
                _ => Err(invalid()),
            };
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(invalid());
            }
            cpus.extend((first..=last).map(Cpu));
        }
        Ok(cpus.into_iter().collect())
    }
}

impl TryFrom<String> for CpuList {
    type Error = CpuListError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for run in self.0.chunk_by(|a, b| a.0 + 1 == b.0) {
            write!(f, "{separator}{}", run[0])?;
            if run.len() > 1 {
                write!(f, "-{}", run[run.len() - 1])?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Cpu, CpuList};

    #[test]
    fn reads_and_writes_the_kernels_format() {
        for (text, written) in [
            ("0-3,8", "0-3,8"),
            ("1,0", "0-1"),
            ("5", "5"),
            ("", ""),
            ("0-1,1-2\n", "0-2"),
        ] {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), written);
        }
        assert!("0-3".parse::<CpuList>().unwrap().contains(Cpu(2)));
    }

    #[test]
    fn impossible_cpu_numbers_are_rejected() {
        assert_eq!(serde_json::from_str::<Cpu>("8191").unwrap(), Cpu(8_191));
        for number in ["8192", "2147483647", "-1"] {
            assert!(serde_json::from_str::<Cpu>(number).is_err(), "{number}");
        }
    }

    #[test]
    fn a_single_cpu_is_named_in_the_singular() {
        for (list, named) in [("3", "CPU 3"), ("1-3", "CPUs 1-3"), ("0,2", "CPUs 0,2")] {
            assert_eq!(list.parse::<CpuList>().unwrap().named(), named);
        }
    }

    #[test]
    fn malformed_lists_are_rejected() {
        for text in ["x", "3-1", "-1", "1-", "0,zwei", "99999", "0-4000000000"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }
}
