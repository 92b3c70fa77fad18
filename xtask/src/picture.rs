//! `cargo xtask picture`: redraws `docs/picture.svg`.

use std::process::Command;

/// Runs the test that compares the picture, in update mode.
pub(crate) fn draw() -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["test", "-q", "-p", "ticktax", "--test", "picture"])
        .env("TICKTAX_PICTURE", "draw")
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() {
        Ok("docs/picture.svg is what the page looks like.".to_owned())
    } else {
        Err("the picture was not drawn".to_owned())
    }
}
