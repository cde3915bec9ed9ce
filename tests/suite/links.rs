//! Each link of a page leads to a file of the repository, and to a heading or an anchor of it, and the files exist that
//! ARCHITECTURE.md lists. The pages have a bounded length, and the words that readers search for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use suite_tests::workspace;

/// The lines outside of code blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchor that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The text of a heading, of any level.
fn heading(line: &str) -> Option<&str> {
    line.starts_with('#').then(|| line.trim_start_matches('#').strip_prefix(' '))?
}

/// The sections of a page by their anchors, each without the sections below it.
pub(crate) fn page_sections(page: &str) -> BTreeMap<String, &str> {
    let headings: BTreeSet<_> = prose(page).filter(|line| heading(line).is_some()).map(str::as_ptr).collect();
    let begins: Vec<_> = page.lines().filter(|line| headings.contains(&line.as_ptr())).collect();
    let at = |line: &str| line.as_ptr() as usize - page.as_ptr() as usize;
    let ends = begins.iter().skip(1).map(|line| at(line)).chain([page.len()]);
    begins.iter().zip(ends).map(|(line, end)| (anchor(heading(line).unwrap()), &page[at(line)..end])).collect()
}

/// The headings and the anchors of a page.
fn anchors(page: &str) -> BTreeSet<String> {
    let own = page.split("<a id=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
    page_sections(page).into_keys().chain(own).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pages of `docs/`.
fn docs() -> impl Iterator<Item = PathBuf> {
    let docs = std::fs::read_dir(workspace().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"))
}

#[test]
fn pages_have_at_most_5000_lines_together() {
    let lines: usize = docs().map(|path| read(&path).lines().count()).sum();
    assert!((1000..=5000).contains(&lines), "docs/*.md has {lines} lines: cut one that says something twice");
}

#[test]
fn pages_contain_the_words_that_readers_search_for() {
    let pages = docs().map(|path| read(&path)).collect::<String>().to_lowercase();
    let words = "audit, backup, compensation, cors, cron, encryption, erasure, exactly once, full-text, gdpr, hard delete, \
                 idempotency, latency, migration, multi-tenant, outbox, pagination, process, projection, rate limit, reminder, \
                 replay, retry, right to be forgotten, rollback, saga, scheduler, snapshot, soft delete, tenant, timer, \
                 tracing, unique, webhook, websocket";
    let missing: Vec<_> = words.split(", ").filter(|word| !pages.contains(word)).collect();
    assert!(missing.is_empty(), "no page contains {missing:?}: write them beside the words of Daybook");
}

#[test]
fn each_link_of_a_page_leads_somewhere() {
    let others = ["README.md", "ARCHITECTURE.md", "events/README.md", "tests/src/scale/tables.md"];
    let (mut count, mut dead) = (0, Vec::new());
    for path in docs().chain(others.map(|page| workspace().join(page))) {
        let page = read(&path);
        let text = prose(&page).collect::<Vec<_>>().join("\n");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("https://") || link.starts_with("http://") {
                continue;
            }
            count += 1;
            let (file, fragment) = link.split_once('#').map_or((link, None), |(file, fragment)| (file, Some(fragment)));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let leads = target.exists() && fragment.is_none_or(|fragment| anchors(&read(&target)).contains(fragment));
            if !leads {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(count > 200, "only {count} links were found");
    assert!(dead.is_empty(), "these links lead nowhere:\n{}", dead.join("\n"));
}

#[test]
fn files_of_a_warm_command_exist_and_are_as_many_as_the_page_says() {
    let page = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    assert!(page.lines().count() <= 350, "the page has {} lines, expected 350 at most", page.lines().count());
    let (before, list) = page.split_once("files of a warm command").unwrap();
    let (mut folder, mut count) = (workspace().to_owned(), 0);
    for word in list.split("```").nth(1).unwrap().split_whitespace().skip(1) {
        if let Some(name) = word.strip_suffix(':') {
            folder = workspace().join("crates").join(name).join("src");
        } else {
            count += 1;
            assert!(folder.join(format!("{word}.rs")).exists(), "{} has no {word}.rs", folder.display());
        }
    }
    assert!(before.ends_with(&format!("The {count} ")), "{count} files are listed");
}
