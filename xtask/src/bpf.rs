//! `cargo xtask bpf`: the BPF object that is committed, so that users need no clang.

use std::fs;
use std::path::PathBuf;

use crate::clang::Clang;

const SOURCE: &str = "crates/trace/bpf/ticktax.bpf.c";
const OBJECT: &str = "crates/trace/bpf/ticktax.bpf.o";

/// Compiles the source into the object that is to be committed.
pub(crate) fn build() -> Result<String, String> {
    let fresh = compile()?;
    let path = root().join(OBJECT);
    if fs::read(&path).is_ok_and(|committed| committed == fresh) {
        return Ok(format!("{OBJECT} is as it was"));
    }
    fs::write(&path, &fresh).map_err(|error| format!("cannot write {OBJECT}: {error}"))?;
    Ok(format!("{OBJECT} is new: {} bytes", fresh.len()))
}

/// Compares the committed object with what the source compiles to.
pub(crate) fn check() -> Result<String, String> {
    let fresh = compile()?;
    let committed =
        fs::read(root().join(OBJECT)).map_err(|error| format!("cannot read {OBJECT}: {error}"))?;
    if committed == fresh {
        Ok(format!("{OBJECT} is what its source compiles to"))
    } else {
        Err(format!(
            "{OBJECT} is not what its source compiles to: run `cargo xtask bpf` and commit it"
        ))
    }
}

/// The bytes that the source compiles to.
fn compile() -> Result<Vec<u8>, String> {
    let scratch = Scratch::create()?;
    let object = scratch.0.join("ticktax.bpf.o");
    Clang::find()?.compile(&root(), SOURCE, &object)?;
    fs::read(&object).map_err(|error| format!("cannot read {}: {error}", object.display()))
}

/// The folder of the workspace. Cargo says where it runs this from; what the build knew would be
/// another checkout's where two share a target folder.
fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.join("..")
}

/// A folder of this process, removed at the end: a compilation that fails leaves nothing behind,
/// and least of all half an object in the place of the committed one.
struct Scratch(PathBuf);

impl Scratch {
    fn create() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("ticktax-xtask-{}", std::process::id()));
        fs::create_dir(&folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed from a temporary folder is no reason to fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}
