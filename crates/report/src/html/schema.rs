//! What a JSON Schema says of a field.

use serde_json::Value;

/// A place in a schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schema<'a> {
    root: &'a Value,
    /// `None` of what the schema says nothing of.
    here: Option<&'a Value>,
}

impl<'a> Schema<'a> {
    /// References that are followed: none of ours leads in a circle.
    const STEPS: usize = 16;

    pub(super) fn new(root: &'a Value) -> Self {
        Self {
            root,
            here: Some(root),
        }
    }

    /// What it says of the field of this name.
    pub(super) fn field(self, name: &str) -> Self {
        let here = self.choices().into_iter();
        let mut found = here.filter_map(|choice| choice["properties"].get(name));
        Self {
            here: found.next(),
            ..self
        }
    }

    /// What it says of the field that is reached by these names, a dot between each two.
    pub(super) fn path(self, names: &str) -> Self {
        names.split('.').fold(self, Self::field)
    }

    /// What it says of each thing in a list.
    pub(super) fn items(self) -> Self {
        let here = self.choices().into_iter();
        let mut found = here.filter_map(|choice| choice.get("items"));
        Self {
            here: found.next(),
            ..self
        }
    }

    /// What a field is, in a sentence; empty where nothing is said.
    pub(super) fn about(self) -> &'a str {
        let own = self.here.and_then(|here| here["description"].as_str());
        let inner = || {
            let mut choices = self.choices().into_iter();
            choices.find_map(|choice| choice["description"].as_str())
        };
        own.or_else(inner).unwrap_or_default()
    }

    /// What may stand here, with references followed.
    fn choices(self) -> Vec<&'a Value> {
        let mut found = Vec::new();
        let mut open: Vec<(&Value, usize)> = self.here.into_iter().map(|it| (it, 0)).collect();
        while let Some((here, steps)) = open.pop() {
            if steps > Self::STEPS {
                continue;
            }
            let name = here["$ref"].as_str().and_then(|it| it.rsplit('/').next());
            if let Some(name) = name {
                open.extend(self.root["$defs"].get(name).map(|it| (it, steps + 1)));
                continue;
            }
            let each = ["anyOf", "oneOf", "allOf"].into_iter();
            let each = each.filter_map(|word| here[word].as_array()).flatten();
            open.extend(each.map(|it| (it, steps + 1)));
            found.push(here);
        }
        found
    }
}
