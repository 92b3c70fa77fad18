//! Looks up fields in a JSON Schema.

use serde_json::Value;

/// A position in a JSON Schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schema<'a> {
    root: &'a Value,
    /// Part of the schema that describes this position, or `None` if the schema does not describe
    /// it.
    here: Option<&'a Value>,
}

impl<'a> Schema<'a> {
    /// Maximum number of references to follow. None of ticktax's schemas is recursive.
    const STEPS: usize = 16;

    pub(super) fn new(root: &'a Value) -> Self {
        Self {
            root,
            here: Some(root),
        }
    }

    /// Returns the position of a field of this object.
    pub(super) fn field(self, name: &str) -> Self {
        let here = self.choices().into_iter();
        let mut found = here.filter_map(|choice| choice["properties"].get(name));
        Self {
            here: found.next(),
            ..self
        }
    }

    /// Returns the position of a nested field, given the names that lead to it, joined with dots.
    pub(super) fn path(self, names: &str) -> Self {
        names.split('.').fold(self, Self::field)
    }

    /// Returns the position of the items of this list.
    pub(super) fn items(self) -> Self {
        let here = self.choices().into_iter();
        let mut found = here.filter_map(|choice| choice.get("items"));
        Self {
            here: found.next(),
            ..self
        }
    }

    /// Returns the description of a field on one line, or an empty string if it has none.
    pub(super) fn about(self) -> String {
        let own = self.here.and_then(|here| here["description"].as_str());
        let inner = || {
            let mut choices = self.choices().into_iter();
            choices.find_map(|choice| choice["description"].as_str())
        };
        let about = own.or_else(inner).unwrap_or_default();
        about.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the alternatives that the schema allows at this position. References are replaced
    /// with their targets.
    fn choices(self) -> Vec<&'a Value> {
        let mut found = Vec::new();
        let mut open: Vec<(&Value, usize)> = self.here.into_iter().map(|here| (here, 0)).collect();
        while let Some((here, steps)) = open.pop() {
            if steps > Self::STEPS {
                continue;
            }
            let name = here["$ref"]
                .as_str()
                .and_then(|reference| reference.rsplit('/').next());
            if let Some(name) = name {
                open.extend(
                    self.root["$defs"]
                        .get(name)
                        .map(|definition| (definition, steps + 1)),
                );
                continue;
            }
            let choices = ["anyOf", "oneOf", "allOf"].into_iter();
            let choices = choices.filter_map(|word| here[word].as_array()).flatten();
            open.extend(choices.map(|choice| (choice, steps + 1)));
            found.push(here);
        }
        found
    }
}
