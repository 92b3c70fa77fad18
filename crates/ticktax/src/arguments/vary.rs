//! Values of `--vary` other than the model's settings.

use ticktax_experiment::vary::{Vary, VaryError};
use ticktax_lab::kernel::Wanted;

use crate::failure::Failure;

/// Passes every list to `take`, which returns `false` for an unknown list. The error about such a
/// list names `known`.
pub(super) fn all_taken(
    typed: &[Vary],
    (verb, known): (&str, &str),
    take: &mut dyn FnMut(&Vary) -> Result<bool, VaryError>,
) -> Result<(), Failure> {
    for vary in typed {
        let taken = take(vary);
        if !taken.map_err(|error| Failure::Arguments(error.to_string()))? {
            let name = vary.name();
            let why = format!("{verb} cannot vary `{name}`: choose {known}");
            return Err(Failure::Arguments(why));
        }
    }
    Ok(())
}

/// Kernels to compare, and their boot parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelVariants {
    /// Tick rates of kernels from `lab build`.
    pub(crate) rates: Vec<u32>,
    pub(crate) kernels: Vec<Wanted>,
    /// Sets of boot parameters. A set can be empty.
    pub(crate) cmdlines: Vec<String>,
}

impl KernelVariants {
    /// Takes a list, or returns `false` if it is not about kernels.
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
