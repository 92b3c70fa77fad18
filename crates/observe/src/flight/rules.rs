//! From triggers as they are asked for to the kernel's rules.

use std::path::{Path, PathBuf};

use ticktax_host::Proc;
use ticktax_model::incident::{TriggerKind, TriggerSpec, TriggerTarget};
use ticktax_trace::{Delay, Rule, Tracer, Whose};

use crate::error::ObserveError;

/// Where cgroups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The rules of those that the kernel decides, in their order.
pub(super) fn rules(specs: &[TriggerSpec], proc: &Proc) -> Result<Vec<Rule>, ObserveError> {
    let mut rules = Vec::new();
    for spec in specs {
        let delay = match spec.kind {
            TriggerKind::Wait => Delay::Waiting,
            TriggerKind::Late => Delay::Woken,
            TriggerKind::Blocked => Delay::Blocked,
            TriggerKind::Throttled => Delay::Throttled,
            TriggerKind::Stretch => Delay::Stretch,
            TriggerKind::Signal | TriggerKind::Mark => continue,
        };
        rules.push(Rule {
            delay,
            whose: whose(&spec.target, proc)?,
            over: spec.over,
        });
    }
    if rules.len() > Rule::MAX {
        return Err(ObserveError::TooManyTriggers {
            count: rules.len(),
            max: Rule::MAX,
        });
    }
    Ok(rules)
}

fn whose(target: &TriggerTarget, proc: &Proc) -> Result<Whose, ObserveError> {
    Ok(match target {
        TriggerTarget::Any => Whose::Any,
        TriggerTarget::Named(name) => Whose::Named(name.clone()),
        &TriggerTarget::Process(pid) => {
            let found = proc.process_of(pid).filter(|&pid| proc.is_alive(pid));
            let found = found.and_then(|pid| u32::try_from(pid).ok());
            Whose::Process(found.ok_or(ObserveError::NoProcess { pid })?)
        }
        TriggerTarget::Cgroup(folder) => {
            let folder: PathBuf = if folder.is_absolute() {
                folder.clone()
            } else {
                Path::new(CGROUPS).join(folder)
            };
            match Tracer::cgroup_number(&folder) {
                Ok(number) if Proc::processes_in(&folder).is_some() => Whose::Cgroup(number),
                _ => return Err(ObserveError::NoCgroup { folder }),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use ticktax_host::Proc;
    use ticktax_model::incident::TriggerSpec;

    use super::rules;

    fn told(texts: &[&str]) -> Result<usize, String> {
        let specs: Vec<TriggerSpec> = texts.iter().map(|text| text.parse().unwrap()).collect();
        rules(&specs, &Proc::default())
            .map(|rules| rules.len())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_kernel_decides_what_has_a_length() {
        assert_eq!(told(&["wait>5ms", "signal", "stretch>1ms"]), Ok(2));
        assert_eq!(told(&["wait>5ms"; 8]), Ok(8));
        let error = told(&["late>5ms"; 9]).unwrap_err();
        assert!(error.contains('9') && error.contains('8'), "{error}");
    }

    #[test]
    fn a_target_has_to_be_there() {
        let own = format!("wait:pid={}>5ms", std::process::id());
        assert_eq!(told(&[&own]), Ok(1));
        let error = told(&["wait:pid=2147483647>5ms"]).unwrap_err();
        assert!(error.contains("no process 2147483647"), "{error}");
        let error = told(&["wait:cgroup=/tmp>5ms"]).unwrap_err();
        assert!(error.contains("/tmp is not a cgroup"), "{error}");
    }
}
