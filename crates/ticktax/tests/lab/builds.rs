//! Tests of kernel builds. They use a fake kernel source with a short makefile that imitates the
//! kernel's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ticktax_model::kernels::KernelBuild;

use crate::common::text;
use crate::fixture::{eventually, ticktax};

const MAKEFILE: &str = r#"
kernelversion:
	@echo 6.9.0
mrproper:
	@true
tinyconfig:
	@echo CONFIG_TINY=y > $(O)/.config
olddefconfig:
	@grep -v CONFIG_NEVER $(O)/.config > $(O)/new; mv $(O)/new $(O)/.config
bzImage: $(O)/a.o $(O)/b.o
	@mkdir -p $(O)/arch/x86/boot && cat $^ > $(O)/arch/x86/boot/bzImage
$(O)/a.o: a.c
	@echo "  CC      a.o"; echo a >> $(O)/compiled; cp $< $@
$(O)/b.o: b.c $(O)/a.o
	@echo "  CC      b.o"; while [ -e "$(HOLD)" ]; do sleep 0.05; done; cp $< $@
"#;
/// Stands in for the kernel's `merge_config.sh`, which is called with the arguments `-m -O OBJECTS
/// CONFIG FRAGMENT`.
const MERGE: &str =
    "#!/bin/sh\ncat \"$4\" \"$5\" > \"$3/merged\" && mv \"$3/merged\" \"$3/.config\"\n";
const RATES: &str = "choice\n\tconfig HZ_1000\n\t\tbool \"1000 HZ\"\n\nendchoice\n\nconfig HZ\n\tint\n\t\
                     default 1000 if HZ_1000\n";

/// Returns why kernels cannot be built here, or `None` if they can.
pub(crate) fn why_not() -> Option<String> {
    let missing = ["make", "gcc", "flex", "bison", "bc"]
        .into_iter()
        .find(|tool| {
            let started = Command::new(tool).arg("--version").output();
            started.is_err()
        });
    missing.map(|tool| format!("{tool} is not installed"))
}

/// A directory with a kernel source and a cache.
struct BuildDir(tempfile::TempDir);

impl BuildDir {
    fn new() -> Self {
        let dir = Self(tempfile::tempdir().unwrap());
        let write = |file: &str, text: &str| {
            let file = dir.source().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            file
        };
        write("Makefile", MAKEFILE);
        write("kernel/Kconfig.hz", RATES);
        write("a.c", "a");
        write("b.c", "b");
        let merge = write("scripts/kconfig/merge_config.sh", MERGE);
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(merge, all).unwrap();
        dir
    }

    fn source(&self) -> PathBuf {
        self.0.path().join("linux")
    }

    /// Returns the path of a file that makes builds wait while it exists.
    fn hold(&self) -> PathBuf {
        self.0.path().join("hold")
    }

    fn build(&self, more: &[&str]) -> Command {
        let mut command = ticktax();
        command
            .env("XDG_CACHE_HOME", self.0.path().join("cache"))
            .env("HOLD", self.hold())
            .args(["lab", "build", "--hz", "250", "--jobs", "1", "--source"])
            .arg(self.source())
            .args(more);
        command
    }

    fn built(&self, more: &[&str]) -> Output {
        self.build(more).output().unwrap()
    }

    /// Returns how often each build compiled its first file.
    fn compiled(&self) -> Vec<usize> {
        let builds = fs::read_dir(self.0.path().join("cache/ticktax/lab/build"));
        let builds = builds.into_iter().flatten().flatten();
        let notes = builds.filter_map(|build| fs::read(build.path().join("compiled")).ok());
        notes.map(|note| note.len() / 2).collect()
    }

    fn image(&self, name: &str) -> Option<Vec<u8>> {
        let kernels = self.0.path().join("cache/ticktax/lab/kernels");
        fs::read(kernels.join(name).join("vmlinuz")).ok()
    }
}

pub(crate) fn a_killed_build_resumes() {
    let dir = BuildDir::new();
    fs::write(dir.hold(), "").unwrap();
    let mut child = dir.build(&[]).spawn().unwrap();
    assert!(eventually(|| dir.compiled() == [1]), "nothing is compiled");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(dir.image("hz250"), None);
    fs::remove_file(dir.hold()).unwrap();
    for compiled in [true, false] {
        let output = dir.built(&["--format", "json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let build: KernelBuild = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(build.source, dir.source().to_str().unwrap());
        let kernel = &build.kernels[0];
        assert_eq!(
            (&*kernel.name, &*kernel.release, kernel.hz, kernel.compiled),
            ("hz250", "6.9.0", 250, compiled)
        );
        assert!(kernel.origin.starts_with("linux-6.9.0-"), "{kernel:?}");
        assert_eq!(fs::read(&kernel.image).unwrap(), b"ab");
        assert!(kernel.took.0 > 0);
        assert_eq!(dir.compiled(), [1], "finished work was repeated");
        assert_eq!(dir.image("hz250").unwrap(), b"ab");
    }
}

pub(crate) fn another_source_or_configuration_is_another_build() {
    let dir = BuildDir::new();
    assert!(dir.built(&[]).status.success());
    fs::write(dir.source().join("a.c"), "other").unwrap();
    assert!(dir.built(&[]).status.success());
    assert_eq!(dir.image("hz250").unwrap(), b"otherb");
    assert_eq!(dir.compiled(), [1, 1]);

    let fragment = dir.0.path().join("rt.config");
    fs::write(&fragment, "CONFIG_MORE=y\n").unwrap();
    let config = ["--config", path(&fragment)];
    let output = dir.built(&config);
    let page = text(&output.stdout);
    assert!(
        page.contains(" with ") && page.contains("rt.config\n"),
        "{page}"
    );
    let row = page.lines().find(|line| line.starts_with("  hz250+rt "));
    assert!(row.is_some_and(|row| row.contains("built in ")), "{page}");
    assert_eq!(dir.compiled(), [1, 1, 1]);
    assert!(dir.image("hz250+rt").is_some() && dir.image("hz250").is_some());

    fs::write(&fragment, "CONFIG_NEVER=y\n").unwrap();
    let refused = dir.built(&config);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("CONFIG_NEVER=y"),
        "{refused:?}"
    );
    assert!(dir.image("hz250+rt").is_some());
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}
