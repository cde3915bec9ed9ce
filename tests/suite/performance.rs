//! The workspace `bench/` builds what is deployed, and docs/performance.md and bench/README.md have its figures. Nothing here
//! builds or runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use suite_tests::{release_profile, workspace};

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

#[test]
fn bare_functions_are_built_like_the_deployed_ones() {
    let manifest = read("Cargo.toml");
    // `cargo lambda build` adds these to the profile of the deployed functions.
    let added = manifest.lines().filter_map(|line| line.trim().strip_prefix("'profile.release.")?.strip_suffix("',"));
    let mut own = release_profile("Cargo.toml");
    own.extend(added.map(str::to_owned));
    assert_eq!(own, release_profile("bench/Cargo.toml"));
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
fn goals_have_every_bar_and_a_reason_for_each_that_is_missed() {
    let page = read("bench/README.md");
    let bars: Vec<Value> = serde_json::from_str(&read("bench/bars.json")).unwrap();
    let rows: Vec<Vec<&str>> = page.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    for bar in &bars {
        let name = bar["name"].as_str().unwrap();
        let row = rows.iter().find(|row| row.get(1) == Some(&name));
        let row = row.unwrap_or_else(|| panic!("bench/README.md has no row {name:?}: run bench/run"));
        let number = |text: &str| text.replace(',', "").parse::<f64>().unwrap();
        let (measured, limit) = (number(row[3]), number(row[4].trim_start_matches(['≤', '≥', ' '])));
        let met = if row[4].starts_with('≤') { measured <= limit } else { measured >= limit };
        assert_eq!(row[5] == "yes", met, "{name}");
        let of_bar = bar.get("most").or(bar.get("least")).unwrap();
        assert_eq!(bar.get("least").is_some(), row[4].starts_with('≥'), "{name}");
        if let Some(of_bar) = of_bar.as_f64() {
            assert!((of_bar - limit).abs() < 1e-9, "{name}: {of_bar}");
        }
        let reason = bar["reason"].as_str().unwrap();
        assert!(row[5] == "yes" || (!reason.is_empty() && page.contains(reason)), "{name} has no reason on the page");
    }
    let of_bars = rows.iter().filter(|row| row.len() > 5 && ["yes", "**no**"].contains(&row[5])).count();
    assert_eq!(of_bars, bars.len(), "bench/README.md has a bar that bench/bars.json lacks");
}

#[test]
fn performance_page_is_written_from_the_stored_figures_and_names_their_commits() {
    for (file, text) in [("docs/performance.md", "report.page()"), ("bench/README.md", "report.readme()")] {
        let command = format!("import report; print({text}, end='')");
        let mut python = Command::new("python3");
        python.args(["-B", "-c", &command]).current_dir(workspace().join("bench"));
        let output = python.output().expect("python3 can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(read(file).as_bytes() == output.stdout, "{file} is not up to date: run `python3 bench/report.py`");
    }

    let pages = ["docs/performance.md", "bench/README.md"].map(read).concat();
    let measured: BTreeMap<String, Value> = serde_json::from_str(&read("bench/measured.json")).unwrap();
    let sections: Vec<_> = pages.split("\n## ").filter(|section| section.contains("Measured on commit")).collect();
    assert!(sections.len() >= measured.len(), "{}", sections.len());
    for (part, figures) in &measured {
        let commit = figures["commit"].as_str().unwrap();
        let named = sections.iter().any(|section| section.contains(&format!("Measured on commit {commit},")));
        assert!(named, "{part} was measured on {commit}, which the pages do not name");
    }
}
