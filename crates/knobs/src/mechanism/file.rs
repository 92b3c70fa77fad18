//! A file that holds the value and takes it.

use crate::error::Trouble;
use crate::system::System;

pub(super) fn read(system: &System, path: &str) -> Result<String, Trouble> {
    let text = system.text(path);
    text.map_err(|error| Trouble::of_file(path, &error))
}

pub(super) fn write(system: &System, path: &str, value: &str) -> Result<(), Trouble> {
    let written = system.put(path, value);
    written.map_err(|error| Trouble::of_file(path, &error))
}
