//! A simulated machine for tests, made of files in a temporary directory.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::System;

pub(crate) struct Machine(TempDir);

impl Machine {
    pub(crate) fn new() -> Self {
        let machine = Self(ticktax_fixture::scratch());
        machine.put("proc/sys/kernel/random/boot_id", "boot-1\n");
        machine
    }

    pub(crate) fn system(&self) -> System {
        System::at(self.0.path())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn folder(&self, path: &str) {
        fs::create_dir_all(self.path(path)).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }
}
