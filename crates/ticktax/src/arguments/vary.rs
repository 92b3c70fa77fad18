//! What was typed after `--vary` that is not a setting of the model.

use ticktax_experiment::vary::{Vary, VaryError};
use ticktax_lab::kernel::Wanted;

use crate::failure::Failure;

/// Has `take` take every list in; refuses what it does not know, and says what `verb` can vary.
pub(super) fn all_taken(
    typed: &[Vary],
    (verb, known): (&str, &str),
    take: &mut dyn FnMut(&Vary) -> Result<bool, VaryError>,
) -> Result<(), Failure> {
    for vary in typed {
        let taken = take(vary);
        if !taken.map_err(|error| Failure::Arguments(error.to_string()))? {
            let name = vary.name();
            let why = format!("{verb} cannot vary `{name}`: there are {known}");
            return Err(Failure::Arguments(why));
        }
    }
    Ok(())
}

/// Kernels to compare, and what they are booted with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelVariants {
    /// The tick rates of kernels that `lab build` made.
    pub(crate) rates: Vec<u32>,
    pub(crate) kernels: Vec<Wanted>,
    /// Sets of boot parameters; a set can be nothing.
    pub(crate) cmdlines: Vec<String>,
}

impl KernelVariants {
    /// Takes a list in; `false` where it is of something else.
    pub(crate) fn take(&mut self, vary: &Vary) -> Result<bool, VaryError> {
        match vary.name() {
            "hz" => vary.fill(&mut self.rates),
            "kernel" => vary.fill(&mut self.kernels),
            "cmdline" => vary.fill(&mut self.cmdlines),
            _ => return Ok(false),
        }?;
        Ok(true)
    }
}
