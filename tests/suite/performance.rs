//! The workspace `bench/` builds what is deployed, and docs/performance.md has its rows. Nothing here builds or runs it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use suite_tests::workspace;

fn read(file: &str) -> String {
    std::fs::read_to_string(workspace().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The versions of each package in a lock file.
fn versions(lock: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut versions = BTreeMap::<_, BTreeSet<_>>::new();
    for package in read(lock).split("[[package]]").skip(1) {
        let value =
            |name: &str| package.split(&format!("{name} = \"")).nth(1).unwrap().split('"').next().unwrap().to_owned();
        versions.entry(value("\nname")).or_default().insert(value("\nversion"));
    }
    versions
}

fn release_profile(manifest: &str) -> BTreeSet<String> {
    let manifest = read(manifest);
    let profile = manifest.split("[profile.release]\n").nth(1).unwrap();
    let settings = profile.lines().take_while(|line| !line.is_empty());
    settings.filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn bare_functions_are_built_like_the_deployed_ones() {
    // `cargo lambda build` adds settings to the profile.
    let mut deployed = release_profile("Cargo.toml");
    let manifest = read("Cargo.toml");
    let added = manifest.lines().filter_map(|line| line.trim().strip_prefix("'profile.release.")?.strip_suffix("',"));
    deployed.extend(added.map(str::to_owned));
    assert_eq!(release_profile("bench/Cargo.toml"), deployed);
    let (own, bench) = (versions("Cargo.lock"), versions("bench/Cargo.lock"));
    // What a call and an invocation consist of.
    let part =
        |name: &str| ["aws-", "lambda_", "hyper", "tokio", "serde"].iter().any(|prefix| name.starts_with(prefix));
    let shared: Vec<_> = bench.iter().filter(|(name, _)| part(name) && own.contains_key(*name)).collect();
    assert!(shared.len() > 20, "{shared:?}");
    for (name, versions) in shared {
        assert!(
            own[name].is_subset(versions),
            "{name} is {:?} in Cargo.lock and {versions:?} in bench/Cargo.lock",
            own[name]
        );
    }
}

#[test]
fn performance_page_has_every_bar_and_a_reason_for_each_that_is_missed() {
    let page = read("docs/performance.md");
    let bars: Vec<Value> = serde_json::from_str(&read("bench/bars.json")).unwrap();
    let rows: Vec<Vec<&str>> = page.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    for bar in &bars {
        let name = bar["name"].as_str().unwrap();
        let row = rows.iter().find(|row| row.get(1) == Some(&name));
        let row = row.unwrap_or_else(|| panic!("docs/performance.md has no row {name:?}: run bench/run"));
        let measured: f64 = row[3].replace(',', "").parse().unwrap();
        let most: f64 = row[4].parse().unwrap();
        assert_eq!(row[5] == "yes", measured <= most, "{name}");
        if let Some(of_bar) = bar["most"].as_f64() {
            assert!((of_bar - most).abs() < 1e-9, "{name}: {of_bar}");
        }
        let reason = bar["reason"].as_str().unwrap();
        assert!(row[5] == "yes" || (!reason.is_empty() && page.contains(reason)), "{name} has no reason on the page");
    }
    let of_bars = rows.iter().filter(|row| row.len() > 5 && ["yes", "**no**"].contains(&row[5])).count();
    assert_eq!(of_bars, bars.len(), "docs/performance.md has a bar that bench/bars.json lacks");
}
