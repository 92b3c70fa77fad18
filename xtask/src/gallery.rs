//! `cargo xtask gallery`: makes the reports and pictures for docs/gallery.md.
//!
//! The reports are written to target/gallery. Headless Chromium captures the pictures
//! (xtask/gallery/shots.mjs). This requires root, two CPUs, Node, Chromium, QEMU, and the tools for
//! building kernels. It takes two minutes, except for the first run, which takes half an hour
//! because it builds six kernels.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::root;
use crate::screens::{BACKUP, Running, built};

/// Scenario with a job every 30.999 s, a frame loop, and a job that starts at random times.
const STALL: &str = "scenarios/every-30.999-seconds.toml";

/// Tick rates that the published investigation used.
const RATES: &str = "1000,800,600,500,400,200";

/// Directories whose Node packages must be installed.
const PACKAGES: [&str; 2] = ["crates/ticktax/tests/browser", "xtask/gallery"];

/// A picture: name, report, selector of the part to capture, window width, and theme.
type Shot = (&'static str, &'static str, &'static str, u32, &'static str);

const SHOTS: &[Shot] = &[
    ("lag-answer", "lag", "#answer", 760, "light"),
    ("lag-waits", "lag", "#curves figure", 760, "light"),
    ("proof", "proof", "#answer", 760, "light"),
    ("hidden", "hidden", "#shown", 900, "light"),
    ("stall-spectrum", "stall", "#spectrum figure", 760, "light"),
    (
        "stall-phases",
        "stall",
        "#phases figure >> nth=2",
        760,
        "dark",
    ),
    ("case", "case", "#published .scroll", 900, "light"),
    (
        "case-on-kernels",
        "case-on-kernels",
        "#kernels .scroll >> nth=1",
        1100,
        "light",
    ),
    ("kernels", "kernels", "#arms .scroll >> nth=1", 900, "light"),
    ("phone", "lag", "", 390, "dark"),
];

/// Makes the reports and pictures with `binary`, or with a new build if it is `None`.
pub(crate) fn make(binary: Option<&str>) -> Result<String, String> {
    let binary = match binary {
        Some(path) => PathBuf::from(path),
        None => built()?,
    };
    let folder = root().join("target/gallery");
    // Remove the results from an earlier binary, if any.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    // Reports name a program after its file, so resolve symbolic links.
    let binary = fs::canonicalize(&binary)
        .map_err(|error| format!("cannot find {}: {error}", binary.display()))?;
    let folder = fs::canonicalize(&folder)
        .map_err(|error| format!("cannot find {}: {error}", folder.display()))?;
    let gallery = Gallery { binary, folder };
    gallery.lag()?;
    gallery.hidden()?;
    gallery.stall()?;
    gallery.case()?;
    gallery.case_on_kernels()?;
    gallery.kernels()?;
    gallery.pictures()?;
    Ok(format!(
        "The reports are in {}, and docs/gallery has pictures of them: look at them, and read docs/gallery.md beside them.",
        gallery.folder.display()
    ))
}

struct Gallery {
    binary: PathBuf,
    folder: PathBuf,
}

impl Gallery {
    /// Runs a verb and discards its output.
    fn run(&self, arguments: &[&str]) -> Result<(), String> {
        match self.status(arguments)? {
            Some(0) => Ok(()),
            _ => Err(format!("ticktax {} failed", arguments.join(" "))),
        }
    }

    /// Runs a verb and returns its exit code, or `None` if a signal ended it.
    fn status(&self, arguments: &[&str]) -> Result<Option<i32>, String> {
        let status = Command::new(&self.binary)
            .args(arguments)
            // Run in the output directory, so that pages show relative file names.
            .current_dir(&self.folder)
            .stdout(Stdio::null())
            .status()
            .map_err(|error| format!("cannot run {}: {error}", self.binary.display()))?;
        Ok(status.code())
    }

    /// Audits the tutorial's game server, which a backup delays, before and after the backup is
    /// moved to another CPU.
    fn lag(&self) -> Result<(), String> {
        let server = [
            "pace", "--rate", "60", "--work", "5ms", "--cpu", "1", "--for", "900s",
        ];
        let server = Running::start(&self.folder, &self.binary, "gamesrv", &[], &server)?;
        let shell = Path::new("/bin/sh");
        let backup = Running::start(
            &self.folder,
            shell,
            "backupd",
            &["chrt", "-f", "10"],
            &["-c", BACKUP],
        )?;
        thread::sleep(Duration::from_secs(1));
        let pid = server.id();
        let (before, after) = ("lag.parquet", "calm.parquet");
        let page = "lag.html";
        self.run(&[
            "audit", "--pid", &pid, "--for", "20", "--save", before, "--html", page,
        ])?;
        let status = Command::new("taskset")
            .args(["-acp", "0", &backup.id()])
            .stdout(Stdio::null())
            .status();
        if !status.is_ok_and(|status| status.success()) {
            return Err("the backup was not moved".to_owned());
        }
        self.run(&["audit", "--pid", &pid, "--for", "20", "--save", after])?;
        self.run(&["compare", before, after, "--html", "proof.html"])
    }

    /// Returns the tick rate of the running kernel, as reported by an audit.
    fn hz(&self) -> Result<u32, String> {
        let output = Command::new(&self.binary)
            .args(["audit", "--for", "100ms", "--format", "json"])
            .output()
            .map_err(|error| format!("cannot run {}: {error}", self.binary.display()))?;
        let document = String::from_utf8_lossy(&output.stdout);
        let (_, rest) = document
            .split_once("\"hz_configured\": ")
            .ok_or("this kernel does not tell its tick rate")?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let hz = digits.parse().ok().filter(|hz| *hz > 0);
        hz.ok_or_else(|| "this kernel does not tell its tick rate".to_owned())
    }

    /// Audits a program that the tick never samples.
    fn hidden(&self) -> Result<(), String> {
        let inject = self.binary.with_file_name("ticktax-inject");
        let tick = format!("{}us", 1_000_000 / self.hz()?);
        let child = Command::new(&inject)
            .args(["dodge", "--cpu", "1", "--period", &tick, "--for", "30s"])
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", inject.display()))?;
        let _dodge = Running(child);
        thread::sleep(Duration::from_secs(2));
        self.run(&[
            "audit",
            "--for",
            "20",
            "--probe",
            "none",
            "--html",
            "hidden.html",
        ])
    }

    /// Simulates a job that runs every 30.999 s, and searches the recording for periods.
    fn stall(&self) -> Result<(), String> {
        let scenario = root().join(STALL);
        let scenario =
            fs::canonicalize(scenario).map_err(|error| format!("cannot find {STALL}: {error}"))?;
        let recording = "stall.parquet";
        self.run(&[
            "sim",
            "--load",
            &scenario.display().to_string(),
            "--resample",
            "1",
            "--save",
            recording,
        ])?;
        self.run(&["beats", recording, "--html", "stall.html"])
    }

    /// Reproduces a published investigation in the simulator.
    fn case(&self) -> Result<(), String> {
        let page = "case.html";
        self.run(&["case", "run", "frame-rate-vs-hz", "--html", page])
    }

    /// Repeats that investigation on real kernels with the same tick rates. The kernels are built
    /// once and kept.
    fn case_on_kernels(&self) -> Result<(), String> {
        self.run(&["lab", "build", "--hz", RATES])?;
        self.run(&[
            "lab",
            "compare",
            "--case",
            "frame-rate-vs-hz",
            "--html",
            "case-on-kernels.html",
        ])
    }

    /// Compares a game server's loop on a real kernel under three sets of boot parameters.
    fn kernels(&self) -> Result<(), String> {
        let page = "kernels.html";
        let compare = [
            "lab",
            "compare",
            "--html",
            page,
            "--vary",
            "kernel=linux-image-cloud-amd64",
        ];
        let vary = ["--vary", "cmdline=,nohz=off,highres=off"];
        let verb = ["--", "pace", "--rate", "35", "--work", "1ms", "--for", "5s"];
        // Accept exit code 1, which means that a kernel differs from its model. The page is about
        // this difference.
        match self.status(&[&compare[..], &vary, &verb].concat())? {
            Some(0 | 1) => Ok(()),
            _ => Err("ticktax lab compare failed".to_owned()),
        }
    }

    fn pictures(&self) -> Result<(), String> {
        for packages in PACKAGES {
            let status = Command::new("npm")
                .args(["ci", "--no-audit", "--no-fund", "--silent"])
                .current_dir(root().join(packages))
                .status()
                .map_err(|error| format!("cannot run npm: {error}"))?;
            if !status.success() {
                return Err(format!(
                    "the packages of {packages} cannot be had: {status}"
                ));
            }
        }
        let browser = root().join("xtask/gallery/shots.mjs");
        let pictures = root().join("docs/gallery");
        fs::create_dir_all(&pictures)
            .map_err(|error| format!("cannot make docs/gallery: {error}"))?;
        for (name, report, what, width, theme) in SHOTS {
            let page = self.folder.join(format!("{report}.html"));
            let picture = pictures.join(format!("{name}.png"));
            let status = Command::new("node")
                .arg(&browser)
                .arg(&page)
                .args([what, &*width.to_string(), theme])
                .arg(&picture)
                .status()
                .map_err(|error| format!("cannot run node: {error}"))?;
            if !status.success() {
                return Err(format!("no picture {name}: {status}"));
            }
        }
        Ok(())
    }
}
