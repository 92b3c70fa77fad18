//! A group with a quota appears in the metrics with its waits.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use libtest_mimic::Failed;
use ticktax_host::Proc;

use super::super::fixture::check;
use super::running::{AS_NOBODY, Agent, sum_of};

/// A cgroup that may run for 10 ms of every 100 ms, with two busy processes. It is removed when
/// this is dropped.
struct Throttled {
    name: String,
    folder: PathBuf,
    busy: Vec<Child>,
}

impl Throttled {
    fn start() -> Result<Self, Failed> {
        let hierarchy = Proc::default().cpu_hierarchy().ok_or("no cgroups")?;
        let root = hierarchy.folder().ok_or("no mounted cgroups")?;
        let name = format!("ticktax-test-{}.service", std::process::id());
        let folder = root.join(&name);
        fs::create_dir(&folder)?;
        let mut group = Self {
            name,
            folder,
            busy: Vec::new(),
        };
        let quota = group.folder.join("cpu.cfs_quota_us");
        if quota.exists() {
            fs::write(quota, "10000")?;
        } else {
            fs::write(group.folder.join("cpu.max"), "10000 100000")?;
        }
        for _ in 0..2 {
            let script = r#"echo $$ > "$0/cgroup.procs"; while :; do :; done"#;
            let mut busy = Command::new("sh");
            group
                .busy
                .push(busy.args(["-c", script]).arg(&group.folder).spawn()?);
        }
        Ok(group)
    }
}

impl Drop for Throttled {
    fn drop(&mut self) {
        for busy in &mut self.busy {
            let _ = busy.kill();
            let _ = busy.wait();
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Returns the reason why the test cannot run here. Returns `None` if it can.
pub(crate) fn no_quotas() -> Option<&'static str> {
    let hierarchy = Proc::default().cpu_hierarchy();
    let folder = hierarchy.as_ref().and_then(|hierarchy| hierarchy.folder());
    let has_quotas = folder.is_some_and(|folder| {
        let control = fs::read_to_string(folder.join("cgroup.subtree_control"));
        let is_enabled = control.is_ok_and(|control| control.split(' ').any(|name| name == "cpu"));
        is_enabled || folder.join("cpu.shares").exists()
    });
    (!has_quotas).then_some("needs cgroups with CPU quotas")
}

pub(crate) fn a_throttled_group_has_waits_and_a_quota() -> Result<(), Failed> {
    let group = Throttled::start()?;
    let mut agent = Agent::start(&AS_NOBODY)?;
    let throttled = format!(
        "ticktax_group_throttled_periods_total{{group=\"{}\"}}",
        group.name
    );
    let page = agent.page_that(|page| sum_of(page, &throttled) > 0.0)?;
    let labels = format!("{{group=\"{0}\",path=\"/{0}\"}}", group.name);
    for (gauge, value) in [("quota", 0.01), ("quota_period", 0.1)] {
        let found = sum_of(&page, &format!("ticktax_group_{gauge}_seconds{labels}"));
        check((found - value).abs() < 1e-9, || {
            format!("{gauge} of {found} s in\n{page}")
        })?;
    }
    let own = format!("{{group=\"{}\"}}", group.name);
    for family in [
        format!("ticktax_group_run_queue_wait_seconds_total{own}"),
        format!("ticktax_group_quota_periods_total{own}"),
        format!("ticktax_group_throttled_seconds_total{own}"),
        "ticktax_run_queue_wait_seconds_total{name=\"sh\"}".to_owned(),
    ] {
        check(sum_of(&page, &family) > 0.0, || {
            format!("no {family} in\n{page}")
        })?;
    }
    agent.stops_with_balanced_accounts()
}
