//! Sampled stacks.

use std::fmt;

/// Suffix of a kernel function in the folded form.
const KERNEL: &str = "_[k]";

/// Name of the frame that stands for BPF programs that trace the kernel, such as those of ticktax.
const TRACING: &str = "tracing (BPF)";

/// The functions that a sample found, outermost first.
///
/// [`fmt::Display`] writes them in the folded form that flame graphs use: separated by semicolons,
/// with `_[k]` after each kernel function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stack {
    frames: Vec<Frame>,
}

/// A function on a [`Stack`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// Name of the function. In user mode, it can be the name of a file, or of a file with an
    /// offset.
    pub name: String,
    /// Whether it belongs to the kernel.
    pub is_kernel: bool,
}

impl Stack {
    /// Maximum number of bytes in the folded form. Outermost frames beyond it are dropped.
    const MAX_LENGTH: usize = 2_048;

    /// Creates the stack of kernel functions, outermost first.
    pub fn from_kernel<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::from_names(names, true)
    }

    /// Creates the stack of functions or files in user mode, outermost first.
    pub fn from_user<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::from_names(names, false)
    }

    /// Creates the stack of a sample that found a tracing program instead of the thread's own code.
    pub fn tracing() -> Self {
        Self::from_kernel([TRACING])
    }

    /// Creates the stack of a place in a file, or of the file alone if the offset is unknown. The
    /// file has a separate frame, so that samples of the same file have a frame in common. `file`
    /// must come from [`Stack::file_name`].
    pub fn from_offset(file: &str, offset: Option<u64>) -> Self {
        let place = offset.map(|offset| format!("{file}+{offset:#x}"));
        Self::from_user([file].into_iter().chain(place.as_deref()))
    }

    /// Returns the name of a file as it appears in stacks, with room for a number and an offset.
    pub fn file_name(name: &str) -> String {
        cleaned(name).chars().take(96).collect()
    }

    /// Replaces an offset in a file by the name of the function that `function` finds there, given
    /// the file's name and the offset. The file keeps its frame.
    #[must_use]
    pub fn with_function<'a>(
        mut self,
        function: impl FnOnce(&str, u64) -> Option<&'a str>,
    ) -> Self {
        if let [file, place] = &mut *self.frames
            && let Some(offset) = place.offset_in(&file.name)
            && let Some(name) = function(&file.name, offset)
        {
            place.name = cleaned(name);
        }
        self
    }

    fn from_names<'a>(names: impl IntoIterator<Item = &'a str>, is_kernel: bool) -> Self {
        let frame = |name: &str| Frame {
            name: cleaned(name),
            is_kernel,
        };
        let mut frames: Vec<Frame> = names.into_iter().map(frame).collect();
        let mut room = Self::MAX_LENGTH;
        let fitting = frames.iter().rev().take_while(|frame| {
            let length = frame.name.len() + KERNEL.len() + 1;
            let fits = length <= room;
            room = room.saturating_sub(length);
            fits
        });
        let fitting = fitting.count();
        frames.drain(..frames.len() - fitting);
        Self { frames }
    }

    /// Reads the folded form. Accepts any text.
    pub fn from_folded(text: &str) -> Self {
        let frames = text.split(';').filter(|name| !name.is_empty());
        let frames = frames.map(|name| {
            let kernel = name.strip_suffix(KERNEL);
            Frame {
                name: kernel.unwrap_or(name).to_owned(),
                is_kernel: kernel.is_some(),
            }
        });
        Self {
            frames: frames.collect(),
        }
    }

    /// Returns the functions, outermost first.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Returns a number that identifies the stack, on any machine and in any version of ticktax.
    pub fn id(&self) -> i64 {
        // FNV-1a. Two of a million stacks have the same ID with a probability of 3 in 10^8.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = self.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        hash.cast_signed()
    }

    /// Returns whether nothing is known about the stack, or whether it is in user mode if it is the
    /// kernel's part.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

impl Frame {
    /// Returns whether the frame stands for a tracing program.
    pub fn is_tracing(&self) -> bool {
        self.is_kernel && self.name == TRACING
    }

    /// Returns the offset if the frame is a place in `file` whose function is unknown.
    pub fn offset_in(&self, file: &str) -> Option<u64> {
        let offset = self.name.strip_prefix(file)?.strip_prefix("+0x")?;
        u64::from_str_radix(offset, 16)
            .ok()
            .filter(|_| !self.is_kernel)
    }
}

/// Replaces the characters that would break the folded form or a terminal. File names can contain
/// any.
fn cleaned(name: &str) -> String {
    let clean = |c: char| {
        if c == ';' || c.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    name.chars().take(128).map(clean).collect()
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, frame) in self.frames.iter().enumerate() {
            let separator = if place == 0 { "" } else { ";" };
            let suffix = if frame.is_kernel { KERNEL } else { "" };
            write!(f, "{separator}{}{suffix}", frame.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Stack;

    #[test]
    fn the_folded_form_can_be_read_back() {
        for stack in [
            Stack::default(),
            Stack::from_kernel(["munmap", "zap_pte_range"]),
            Stack::tracing(),
            Stack::from_offset("gamesrv", Some(0x1234)),
            Stack::from_offset("gamesrv", None),
        ] {
            assert_eq!(Stack::from_folded(&stack.to_string()), stack);
        }
    }

    #[test]
    fn a_file_name_cannot_break_the_folded_form() {
        let stack = Stack::from_user(["a;b\x1b[31m"]);
        assert_eq!(stack.to_string(), "a\u{fffd}b\u{fffd}[31m");
        assert_eq!(Stack::from_folded(&stack.to_string()).frames().len(), 1);
    }

    #[test]
    fn a_function_replaces_the_offset_in_its_file() {
        let named = |folded: &str| {
            let stack = Stack::from_folded(folded);
            let stack = stack.with_function(|file, offset| {
                (file == "gamesrv" && offset == 0x12).then_some("update;world")
            });
            stack.to_string()
        };
        assert_eq!(named("gamesrv;gamesrv+0x12"), "gamesrv;update\u{fffd}world");
        for unknown in [
            "",
            "gamesrv",
            "gamesrv;gamesrv+0x13",
            "other;other+0x12",
            "other;gamesrv+0x12",
            "gamesrv;gamesrv+0x12;f",
            "gamesrv;gamesrv+0x12_[k]",
            "gamesrv;gamesrv+0xx",
        ] {
            assert_eq!(named(unknown), unknown);
        }
    }

    #[test]
    fn a_long_file_name_leaves_room_for_the_offset() {
        let file = Stack::file_name(&"é;".repeat(200));
        let stack = Stack::from_offset(&file, Some(u64::MAX));
        let read = Stack::from_folded(&stack.to_string());
        assert_eq!(read.frames()[1].offset_in(&file), Some(u64::MAX));
    }

    #[test]
    fn a_long_stack_loses_its_outermost_frames() {
        let names: Vec<String> = (0..300).map(|nth| format!("function_{nth}")).collect();
        let stack = Stack::from_kernel(names.iter().map(String::as_str));
        assert!(stack.to_string().len() <= Stack::MAX_LENGTH);
        assert!(stack.frames().len() > 100);
        assert_eq!(
            stack.frames().last().map(|frame| &*frame.name),
            Some("function_299")
        );
    }
}
