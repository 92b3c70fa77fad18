//! `cargo xtask screens`: runs the examples in the README, the tutorial and three other pages, and
//! inserts the screens that they print. Requires root and two CPUs, and takes a minute and a half.
//!
//! A screen replaces the first text block after its marker, `<!-- screen NAME -->`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::root;

/// Shell script that stands in for the tutorial's backup job.
pub(crate) const BACKUP: &str =
    "while :; do sleep 3; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; done";
/// Shell script that stands in for a load test with a constant load.
const LOAD: &str = "while :; do :; done";

/// Runs the examples, and writes the screens into the pages.
pub(crate) fn write(binary: Option<&str>) -> Result<String, String> {
    let binary = match binary {
        Some(path) => PathBuf::from(path),
        None => built()?,
    };
    let folder = std::env::temp_dir().join(format!("ticktax-screens-{}", std::process::id()));
    fs::create_dir(&folder).map_err(|error| format!("cannot make a folder: {error}"))?;
    let pages = measure(&binary, &folder);
    // Ignore errors: cleanup is best effort.
    let _ = fs::remove_dir_all(&folder);
    let pages = pages?;
    let (program, machine) = (("program", &*pages.program), ("machine", &*pages.machine));
    put("README.md", &[program])?;
    put("docs/how-to/game-server-lags.md", &[program])?;
    put("docs/how-to/which-neighbour.md", &[machine])?;
    put("docs/reference/audit.md", &[program, machine])?;
    let waits = table(&pages.tutorial)?;
    put("docs/tutorial.md", &[("tutorial", &waits)])?;
    Ok("README.md and four pages of docs show what was just printed: read them.".to_owned())
}

/// Builds the command and the injector in one directory. Returns the command's path.
pub(crate) fn built() -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "build",
            "--release",
            "-p",
            "ticktax",
            "-p",
            "ticktax-inject",
        ])
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() {
        Ok(root().join("target/release/ticktax"))
    } else {
        Err("ticktax was not built".to_owned())
    }
}

struct Pages {
    tutorial: String,
    program: String,
    machine: String,
}

/// A running program, which is killed when this is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Copies `program` to the file `name` and runs the copy on CPU 1.
    pub(crate) fn start(
        folder: &Path,
        program: &Path,
        name: &str,
        priority: &[&str],
        arguments: &[&str],
    ) -> Result<Self, String> {
        let named = folder.join(name);
        if !named.exists() {
            fs::copy(program, &named).map_err(|error| format!("cannot copy {name}: {error}"))?;
        }
        let mut command = Command::new("taskset");
        command.args(["-c", "1"]).args(priority).arg(named);
        let child = command
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot run {name}: {error}"))?;
        Ok(Self(child))
    }

    pub(crate) fn id(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ignore errors: the program may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(binary: &Path, folder: &Path) -> Result<Pages, String> {
    let server = [
        "pace", "--rate", "60", "--work", "5ms", "--cpu", "1", "--for", "900s",
    ];
    let server = Running::start(folder, binary, "gamesrv", &[], &server)?;
    let shell = Path::new("/bin/sh");
    let real_time = ["chrt", "-f", "10"];
    let _backup = Running::start(folder, shell, "backupd", &real_time, &["-c", BACKUP])?;
    thread::sleep(Duration::from_secs(1));
    let pid = server.id();
    let of_server = ["audit", "--pid", &pid, "--for", "20"];
    let tutorial = page(binary, &of_server)?;
    let load = || Running::start(folder, shell, "loadtest", &[], &["-c", LOAD]);
    let _load = (load()?, load()?);
    Ok(Pages {
        tutorial,
        program: page(binary, &of_server)?,
        machine: page(binary, &["audit", "--for", "20"])?,
    })
}

/// Runs a verb as if its terminal had 80 columns, and returns its output.
fn page(binary: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(binary)
        .args(arguments)
        .env("COLUMNS", "80")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run {}: {error}", binary.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!(
            "ticktax {}: {}",
            arguments.join(" "),
            output.status
        ))
    }
}

/// Returns the first rows of the table of culprits.
fn table(page: &str) -> Result<String, String> {
    let mut lines = page.lines();
    let heading = lines
        .by_ref()
        .find(|line| line.starts_with("WAITED BEHIND"));
    let heading = heading.ok_or_else(|| format!("it waited behind nothing:\n{page}"))?;
    let rows = lines.take_while(|line| line.starts_with("  ")).take(2);
    let all: Vec<&str> = std::iter::once(heading).chain(rows).collect();
    Ok(all.join("\n"))
}

/// Replaces the screens with these names in a file.
fn put(file: &str, pages: &[(&str, &str)]) -> Result<(), String> {
    let path = root().join(file);
    let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {file}: {error}"))?;
    let mut text = text;
    for (name, page) in pages {
        text = replaced(&text, name, page).ok_or_else(|| format!("{file} has no screen {name}"))?;
    }
    fs::write(&path, text).map_err(|error| format!("cannot write {file}: {error}"))
}

fn replaced(text: &str, name: &str, page: &str) -> Option<String> {
    let marker = format!("<!-- screen {name} -->");
    let begin = text.find(&marker)? + marker.len();
    let begin = begin + text[begin..].find("```text\n")? + "```text\n".len();
    let end = begin + text[begin..].find("```")?;
    Some(format!(
        "{}{}\n{}",
        &text[..begin],
        page.trim_end(),
        &text[end..]
    ))
}

#[cfg(test)]
mod tests {
    use super::{replaced, table};

    #[test]
    fn a_page_replaces_the_one_below_its_marker() {
        let text = "a\n```text\nfirst\n```\n<!-- screen b -->\n\n```text\nold\n```\nrest\n";
        let new = replaced(text, "b", "new\npage\n").unwrap_or_default();
        let wanted = text.replace("old", "new\npage");
        assert_eq!(new, wanted);
        assert_eq!(replaced(text, "c", "new"), None);
    }

    #[test]
    fn the_tutorial_shows_the_head_of_a_table() {
        let page = "x\nWAITED BEHIND  time\n  a  1\n  b  2\n  c  3\nLONGEST DELAYS\n";
        let head = table(page).unwrap_or_default();
        assert_eq!(head, "WAITED BEHIND  time\n  a  1\n  b  2");
        assert!(table("nothing").is_err());
    }
}
