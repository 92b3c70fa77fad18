//! Advice on the CPU weights of cgroups.

use ticktax_model::advice::{CompetingProgram, Contender, ContenderKind, GroupContest};
use ticktax_model::group::{Group, GroupKind};
use ticktax_model::knob::KnobProposal;

use super::super::Screen;
use super::commands::{Lowered, and_audit, quoted};
use super::name;
use crate::text::page::tied;

/// Factor by which to change a weight if equal weights are not enough.
const FACTOR: u64 = 10;

/// A change to a cgroup's weight that lets another program run sooner.
#[derive(Debug)]
pub(super) struct WeightChange<'a> {
    contest: &'a GroupContest,
    side: Side,
    /// New weight.
    weight: u64,
}

/// The side of a contest whose weight changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Own,
    Other,
}

impl<'a> WeightChange<'a> {
    /// Returns the change that favours the program that waited behind `program`. If possible, this
    /// changes the waiting program's own cgroup. Returns `None` if neither contender is a cgroup.
    pub(super) fn raising(program: &'a CompetingProgram) -> Option<Self> {
        let contest = program.contest.as_deref()?;
        Self::new(contest, Side::Own).or_else(|| Self::new(contest, Side::Other))
    }

    /// Same as [`Self::raising`], but changes the cgroup of `program` if possible.
    pub(super) fn lowering(program: &'a CompetingProgram) -> Option<Self> {
        let contest = program.contest.as_deref()?;
        Self::new(contest, Side::Other).or_else(|| Self::new(contest, Side::Own))
    }

    fn new(contest: &'a GroupContest, side: Side) -> Option<Self> {
        let (own, other) = (contest.own.weight, contest.other.weight);
        let (min, max) = if contest.is_version_1() {
            GroupContest::SHARES
        } else {
            GroupContest::WEIGHTS
        };
        let weight = match side {
            Side::Own if contest.own.idle => own,
            Side::Own if other > own => other,
            Side::Own => own.saturating_mul(FACTOR),
            Side::Other => own.min(other) / FACTOR,
        };
        let change = Self {
            contest,
            side,
            weight: weight.clamp(min, max),
        };
        let changed = change.changed();
        let is_change = changed.idle || change.weight != changed.weight;
        (is_change && changed.cgroup().is_some()).then_some(change)
    }

    fn changed(&self) -> &'a Contender {
        match self.side {
            Side::Own => &self.contest.own,
            Side::Other => &self.contest.other,
        }
    }

    fn cgroup(&self) -> Option<&'a Group> {
        self.changed().cgroup()
    }

    /// Returns whether the change lets the cgroup run even though it has idle scheduling.
    fn ends_idle(&self) -> bool {
        self.side == Side::Own && self.contest.own.idle
    }

    /// Describes the change, as the start of a sentence.
    pub(super) fn remedy(&self) -> String {
        let group = self.cgroup().map(ToString::to_string).unwrap_or_default();
        if self.ends_idle() {
            return format!("Turn off idle scheduling (cpu.idle) for {group}");
        }
        let verb = match self.side {
            Side::Own => "Raise",
            Side::Other => "Lower",
        };
        let from_to = tied(format!("from {} to {}", self.changed().weight, self.weight));
        let file = if self.contest.is_version_1() {
            "cpu.shares"
        } else {
            "cpu.weight"
        };
        format!("{verb} the CPU weight of {group} ({file}) {from_to}")
    }

    /// Explains why the change is needed, as a clause. `program` is the program that others wait
    /// behind.
    pub(super) fn reason(&self, program: &CompetingProgram) -> String {
        if self.ends_idle() {
            return "its threads run only if nothing else wants the CPU".to_owned();
        }
        let (unchanged, subject) = match self.side {
            Side::Own => (&self.contest.other, name(&program.program, &program.pids)),
            Side::Other => (&self.contest.own, "the waiting program".to_owned()),
        };
        let weight = unchanged.weight;
        match &unchanged.kind {
            ContenderKind::Cgroup { cgroup, .. } => format!("{cgroup} has {weight}"),
            ContenderKind::Autogroup { .. } => format!("the session of {subject} has {weight}"),
            ContenderKind::Thread { .. } => {
                format!("{subject}, outside this group, has {weight}")
            }
        }
    }

    /// Returns the setting for a trial of this change, if the watched program is in the changed
    /// cgroup itself.
    pub(super) fn proposal(&self, screen: &Screen<'_>) -> Option<KnobProposal> {
        let ContenderKind::Cgroup {
            innermost: true, ..
        } = self.changed().kind
        else {
            return None;
        };
        screen.watched().filter(|_| self.side == Side::Own)?;
        if self.ends_idle() {
            return KnobProposal::new("cgroup.cpu_idle", 0);
        }
        let knob = if self.contest.is_version_1() {
            "cgroup.cpu_shares"
        } else {
            "cgroup.cpu_weight"
        };
        KnobProposal::new(knob, self.weight)
    }

    /// Returns the command that makes this change, or `None` if the cgroup might not exist here or
    /// its name cannot be part of a command.
    pub(super) fn command(&self, screen: &Screen<'_>) -> Option<String> {
        if !screen.names_processes() {
            return None;
        }
        let change = self.change()?;
        Some(match self.proposal(screen) {
            // A trial that shows the effect follows, so do not append an audit.
            Some(_) => change,
            None => and_audit(change, screen),
        })
    }

    fn change(&self) -> Option<String> {
        let group = self.cgroup()?;
        if let Some(unit) = group.unit() {
            return systemd(group, &unit, self.in_version_2());
        }
        if let (GroupKind::Container(container), true) = (
            &group.kind,
            self.contest.is_version_1() && !self.ends_idle(),
        ) && let Some(manager) = manager(&group.path)
        {
            let container = quoted(container.name.as_ref().unwrap_or(&container.id))?;
            return Some(format!(
                "{manager} update --cpu-shares {} {container}",
                self.weight
            ));
        }
        let file = self.changed().file()?;
        if self.ends_idle() {
            let (folder, _) = file.rsplit_once('/')?;
            return Some(format!(
                "echo 0 > {}",
                quoted(&format!("{folder}/cpu.idle"))?
            ));
        }
        Some(format!("echo {} > {}", self.weight, quoted(file)?))
    }

    /// Returns the weight in the unit of cgroup v2, which systemd uses for both versions.
    fn in_version_2(&self) -> u64 {
        if self.ends_idle() {
            return GroupContest::DEFAULT_WEIGHT;
        }
        if !self.contest.is_version_1() {
            return self.weight;
        }
        let (min, max) = GroupContest::WEIGHTS;
        let weight = self.weight * GroupContest::DEFAULT_WEIGHT;
        (weight / GroupContest::DEFAULT_SHARES).clamp(min, max)
    }
}

/// Returns the command that sets the weight of a systemd unit.
fn systemd(group: &Group, unit: &str, weight: u64) -> Option<String> {
    let user = match &group.kind {
        GroupKind::Service(unit) | GroupKind::Scope(unit) | GroupKind::Slice(unit) => {
            unit.user.as_deref()
        }
        _ => None,
    };
    let manager = match user {
        Some(user) => format!("systemctl --user -M {}", quoted(&format!("{user}@"))?),
        None => "systemctl".to_owned(),
    };
    let unit = quoted(unit)?;
    Some(format!("{manager} set-property {unit} CPUWeight={weight}"))
}

/// Returns the program that can change the settings of a container with this cgroup.
fn manager(path: &str) -> Option<&'static str> {
    let (parent, folder) = path.rsplit_once('/')?;
    if folder.starts_with("libpod-") || parent.ends_with("/libpod_parent") {
        return Some("podman");
    }
    (folder.starts_with("docker-") || parent.ends_with("/docker")).then_some("docker")
}

/// Returns the advice for a machine whose CPUs are all fully used, where moving the program `most`
/// to a different CPU would not help.
pub(super) fn run_fewer(most: &CompetingProgram) -> String {
    if let Some(change) = WeightChange::lowering(most) {
        return format!(
            "Run fewer programs at once, or {}",
            lower_case(&change.remedy())
        );
    }
    let who = name(&most.program, &most.pids);
    format!("Run fewer programs at once, or lower the priority of {who}")
}

/// Returns the command that lowers the priority of `program`, or the weight of its cgroup.
pub(super) fn lower(program: &CompetingProgram, screen: &Screen<'_>) -> Option<String> {
    match WeightChange::lowering(program) {
        Some(change) => change.command(screen),
        None => Lowered::from_program(program).command(screen),
    }
}

/// Makes the first letter of a sentence lower case.
fn lower_case(sentence: &str) -> String {
    let mut chars = sentence.chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}
