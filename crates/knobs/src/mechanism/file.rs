//! Files that contain nothing but a setting's value.

use std::path::Path;

use crate::cgroup::Cgroup;
use crate::error::Trouble;
use crate::system::System;
use crate::target::Target;

/// Reads the file at `path` for `target`. A cgroup's file (`{}/NAME`) is opened through a handle to
/// the cgroup's directory.
pub(super) fn read_of(system: &System, target: &Target, path: &str) -> Result<String, Trouble> {
    match in_cgroup(target, path) {
        Some(file) => file.read(system),
        None => read(system, &super::expanded(path, target)),
    }
}

pub(super) fn write_of(
    system: &System,
    target: &Target,
    path: &str,
    value: &str,
) -> Result<(), Trouble> {
    match in_cgroup(target, path) {
        Some(file) => file.write(system, value),
        None => write(system, &super::expanded(path, target), value),
    }
}

pub(super) fn is_there(system: &System, target: &Target, path: &str) -> bool {
    match in_cgroup(target, path) {
        Some(file) => Cgroup::open(system, file.folder).is_ok_and(|group| group.has(file.name)),
        None => system.path(super::expanded(path, target)).is_file(),
    }
}

/// Returns `path` if it exists for `target`, otherwise `fallback`.
pub(super) fn existing<'p>(
    system: &System,
    target: &Target,
    path: &'p str,
    fallback: &'p str,
) -> &'p str {
    if is_there(system, target, path) {
        path
    } else {
        fallback
    }
}

pub(super) fn read(system: &System, path: &str) -> Result<String, Trouble> {
    let text = system.text(path);
    text.map_err(|error| Trouble::of_file(path, &error))
}

pub(super) fn write(system: &System, path: &str, value: &str) -> Result<(), Trouble> {
    let written = system.put(path, value);
    written.map_err(|error| Trouble::of_file(path, &error))
}

struct CgroupFile<'a> {
    folder: &'a Path,
    name: &'a str,
}

fn in_cgroup<'a>(target: &'a Target, path: &'a str) -> Option<CgroupFile<'a>> {
    match (target, path.strip_prefix("{}/")) {
        (Target::Cgroup(folder), Some(name)) => Some(CgroupFile { folder, name }),
        _ => None,
    }
}

impl CgroupFile<'_> {
    fn read(&self, system: &System) -> Result<String, Trouble> {
        let text = Cgroup::open(system, self.folder).and_then(|group| group.text(self.name));
        text.map_err(|error| Trouble::of_file(&self.path(), &error))
    }

    fn write(&self, system: &System, value: &str) -> Result<(), Trouble> {
        let group = Cgroup::open(system, self.folder);
        let written = group.and_then(|group| group.put(self.name, value));
        written.map_err(|error| Trouble::of_file(&self.path(), &error))
    }

    /// Returns the path without its leading slash, which error messages add.
    fn path(&self) -> String {
        let path = self.folder.join(self.name).display().to_string();
        path.trim_start_matches('/').to_owned()
    }
}
