//! Builds the SBOM in `CycloneDX` 1.5 (<https://cyclonedx.org/docs/1.5/json>).

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::packages::{Package, Packages};

/// Builds the SBOM for a release. `time` is the time of the release, in seconds since 1970.
pub(super) fn make(packages: &Packages, time: u64) -> String {
    let own = packages
        .all
        .iter()
        .find(|package| package.name == "ticktax");
    let components: Vec<Value> = packages
        .all
        .iter()
        .filter(|package| package.name != "ticktax")
        .map(component)
        .collect();
    let dependencies: Vec<Value> = packages
        .all
        .iter()
        .map(|package| {
            let on: Vec<String> = package
                .depends
                .iter()
                .map(|&at| url(&packages.all[at]))
                .collect();
            json!({ "ref": url(package), "dependsOn": on })
        })
        .collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "timestamp": stamp(time), "component": own.map(component) },
        "components": components,
        "dependencies": dependencies,
    });
    format!("{document:#}\n")
}

fn component(package: &Package) -> Value {
    let kind = if package.name == "ticktax" {
        "application"
    } else {
        "library"
    };
    let digests: Vec<Value> = package
        .digest
        .iter()
        .map(|digest| json!({ "alg": "SHA-256", "content": digest }))
        .collect();
    json!({
        "type": kind,
        "bom-ref": url(package),
        "name": package.name,
        "version": package.version,
        "purl": url(package),
        "licenses": [{ "expression": package.licence.replace('/', " OR ") }],
        "hashes": digests,
    })
}

fn url(package: &Package) -> String {
    format!(
        "pkg:cargo/{}@{}",
        package.name,
        package.version.replace('+', "%2B")
    )
}

/// Formats a time in seconds since 1970 according to RFC 3339. Returns `None` for times after the
/// year 9999.
fn stamp(time: u64) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp(i64::try_from(time).ok()?).ok()?;
    time.format(&Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::super::packages::{Package, Packages};
    use super::{make, stamp};

    #[test]
    fn times_are_formatted_as_rfc_3339() {
        assert_eq!(stamp(0).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(stamp(u64::MAX), None);
        assert_eq!(stamp(951_827_696).as_deref(), Some("2000-02-29T12:34:56Z"));
    }

    #[test]
    fn every_package_is_a_component_with_its_dependencies() {
        let package = |name: &str, depends: Vec<usize>| Package {
            name: name.to_owned(),
            version: "1.0.0+b".to_owned(),
            licence: "MIT/Apache-2.0".to_owned(),
            folder: "/nonexistent".into(),
            foreign: name != "ticktax",
            digest: (name != "ticktax").then(|| "00".to_owned()),
            depends,
        };
        let all = vec![package("ticktax", vec![1]), package("zstd", vec![])];
        let document = make(&Packages { all }, 0);
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["components"].as_array().unwrap().len(), 1);
        let zstd = "pkg:cargo/zstd@1.0.0%2Bb";
        assert_eq!(document["components"][0]["purl"], zstd);
        assert_eq!(
            document["components"][0]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert_eq!(document["dependencies"][0]["dependsOn"][0], zstd);
        assert_eq!(document["metadata"]["component"]["type"], "application");
    }
}
