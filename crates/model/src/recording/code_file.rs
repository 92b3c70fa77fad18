//! Names of the functions at sampled places in files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A file whose code was sampled in user mode.
///
/// Sampled stacks contain the offset in the file, because the names become known only at the end of
/// a recording: reading the symbols of a large program takes milliseconds, in which events could be
/// lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeFile {
    /// Name of the file in sampled stacks. If several files have the same name, those after the
    /// first have a number. Code that a process generated counts as a file, and the offsets in it
    /// are addresses.
    pub name: String,
    /// Build ID, in hexadecimal digits. With it, names can be found on another machine. `None` if
    /// the file has no build ID or could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Functions at the sampled offsets, by offset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<CodeFunction>,
}

/// A function at consecutive sampled offsets. Nothing is known about offsets that were not sampled,
/// because functions can overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeFunction {
    /// Demangled name of the function.
    pub name: String,
    /// First sampled offset in the function.
    pub first_offset: u64,
    /// Last sampled offset in the function.
    pub last_offset: u64,
}

impl CodeFile {
    /// Returns the name of the function at a sampled offset, or `None` if it is unknown.
    pub fn function(&self, offset: u64) -> Option<&str> {
        let after = self
            .functions
            .partition_point(|function| function.first_offset <= offset);
        let function = self.functions[..after].last()?;
        (offset <= function.last_offset).then_some(&*function.name)
    }
}

#[cfg(test)]
mod tests {
    use super::{CodeFile, CodeFunction};

    #[test]
    fn a_function_has_the_offsets_from_its_first_to_its_last() {
        let function = |name: &str, first_offset, last_offset| CodeFunction {
            name: name.to_owned(),
            first_offset,
            last_offset,
        };
        let file = CodeFile {
            functions: vec![function("f", 10, 20), function("g", 30, 30)],
            ..CodeFile::default()
        };
        let named = [9, 10, 20, 21, 30, 31].map(|offset| file.function(offset));
        assert_eq!(named, [None, Some("f"), Some("f"), None, Some("g"), None]);
        assert_eq!(CodeFile::default().function(0), None);
    }
}
