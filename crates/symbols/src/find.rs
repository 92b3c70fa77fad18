//! Chooses the best source of names for a file.

use std::io::{Read, Seek};

use crate::elf::{ElfFile, TableKind};
use crate::layout::BuildId;
use crate::places::NamedPlaces;
use crate::{Pause, SymbolError};

/// Functions that were found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The file's build ID.
    pub build_id: Option<BuildId>,
    /// Functions at the given offsets, by offset. Offsets without a name are missing.
    pub functions: Vec<NamedPlaces>,
    /// Whether all functions of the file have a symbol, here, compressed, or in its file with debug
    /// information.
    pub has_all: bool,
}

/// Finds the functions at `offsets` in `file`. The names come from the file's symbol table. If it
/// was stripped, they come from a file with debug information. `debug` returns the files that could
/// have a given build ID. Without such a file, they come from symbols that are compressed inside
/// the file. Otherwise, only exported functions have names. `pause` is called after each chunk of
/// work.
///
/// # Errors
/// Returns an error if the file is not an ELF file, is damaged, or cannot be read. Errors in a file
/// with debug information are ignored.
pub fn functions_at<R: Read + Seek>(
    file: R,
    debug: &mut dyn FnMut(&BuildId) -> Vec<R>,
    offsets: &[u64],
    pause: Pause<'_>,
) -> Result<Named, SymbolError> {
    let mut file = ElfFile::read(file)?;
    let mut named = Named {
        build_id: file.build_id().cloned(),
        functions: Vec::new(),
        has_all: true,
    };
    if file.has(TableKind::All) {
        named.functions = file.functions(TableKind::All, offsets, pause)?;
        return Ok(named);
    }
    let candidates = named.build_id.as_ref().map(debug).unwrap_or_default();
    for candidate in candidates {
        if let Ok(mut candidate) = ElfFile::read(candidate)
            && candidate.build_id() == named.build_id.as_ref()
            && candidate.has(TableKind::All)
            && let Ok(functions) = file.functions_by(&mut candidate, offsets, pause)
        {
            named.functions = functions;
            return Ok(named);
        }
    }
    // Compressed symbols are only those that are not exported.
    let embedded = file.embedded(pause).unwrap_or_default();
    if let Some(mut embedded) = embedded
        && embedded.has(TableKind::All)
        && let Ok(functions) = file.functions_by(&mut embedded, offsets, pause)
    {
        named.functions = functions;
    } else {
        named.has_all = false;
    }
    let is_named = |offset: u64| {
        let after = named
            .functions
            .partition_point(|places| places.first <= offset);
        after > 0 && offset <= named.functions[after - 1].last
    };
    let others: Vec<u64> = offsets
        .iter()
        .copied()
        .filter(|&at| !is_named(at))
        .collect();
    let exported = file.functions(TableKind::Exported, &others, pause)?;
    named.functions.extend(exported);
    named.functions.sort_by_key(|places| places.first);
    Ok(named)
}
