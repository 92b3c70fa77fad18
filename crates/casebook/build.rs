//! Generates the list of cases that `cases.rs` includes. The list has one entry per file in
//! `src/cases`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src/cases");
    let mut modules = Vec::new();
    for entry in fs::read_dir("src/cases")? {
        let path = entry?.path();
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        modules.extend(stem.filter(|_| is_rust).map(str::to_owned));
    }
    modules.sort();
    // Generate a macro rather than code to include. That makes the paths in the `mod` declarations
    // relative to the file that calls the macro.
    let mut code = "macro_rules! list_cases {\n    () => {\n".to_owned();
    let mut list = String::new();
    for module in modules {
        let _ = writeln!(code, "        mod {module};");
        let _ = writeln!(list, "            &{module}::CASE,");
    }
    let _ = write!(
        code,
        "        /// Every case, by name.\n        const CASES: &[&dyn Case] = &[\n{list}        ];\n    }};\n}}\n"
    );
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&out).join("cases.rs"), code)
}
