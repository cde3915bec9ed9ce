//! Reads with a parser which file imports from which, and finds cycles of imports.
//!
//! A path is an import from the file that defines the named item: re-exports are followed. A module that declares or
//! re-exports its own children does not import them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Meta, Token, UseTree, Visibility};

/// A module's path below the crate's root; the root is empty.
type Module = Vec<String>;

/// The names of a module that stand for paths elsewhere, because it imports or re-exports them.
type Imports = BTreeMap<String, Vec<String>>;

/// The files of a crate and their imports.
#[derive(Default)]
pub(crate) struct Imported {
    files: BTreeMap<Module, PathBuf>,
    imports: BTreeMap<Module, Imports>,
    paths: BTreeMap<Module, BTreeSet<Vec<String>>>,
}

impl Imported {
    /// Reads the crate with this root file: `lib.rs` or `main.rs`.
    pub(crate) fn read(root: &Path) -> Self {
        let mut imported = Self::default();
        imported.read_file(root, Vec::new(), root.parent().unwrap());
        imported
    }

    /// Groups of files that import from each other, directly or through other files.
    pub(crate) fn cycles(&self) -> Vec<BTreeSet<PathBuf>> {
        let edges = self.edges();
        let reachable: BTreeMap<&Module, BTreeSet<&Module>> =
            edges.keys().map(|module| (module, reachable(&edges, module))).collect();
        let cycles: BTreeSet<BTreeSet<PathBuf>> = reachable
            .iter()
            .filter(|(module, from_it)| from_it.contains(*module))
            .map(|(module, from_it)| {
                let others = from_it.iter().filter(|other| reachable[*other].contains(module));
                others.map(|other| self.files[*other].clone()).collect()
            })
            .collect();
        cycles.into_iter().collect()
    }

    /// The number of imports between files.
    pub(crate) fn count(&self) -> usize {
        self.edges().values().map(BTreeSet::len).sum()
    }

    fn read_file(&mut self, file: &Path, module: Module, children: &Path) {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.files.insert(module.clone(), file.to_owned());
        self.read_items(&parsed.items, &module, children);
    }

    fn read_items(&mut self, items: &[Item], module: &Module, children: &Path) {
        let mut paths = Paths::default();
        for item in items {
            match item {
                Item::Mod(declared) if is_test(&declared.attrs) => {}
                Item::Mod(ItemMod { ident, content: None, .. }) => {
                    let name = ident.to_string();
                    let [flat, nested] =
                        [format!("{name}.rs"), format!("{name}/mod.rs")].map(|file| children.join(file));
                    let file = if flat.exists() { flat } else { nested };
                    self.read_file(&file, child(module, &name), &children.join(&name));
                }
                Item::Use(imported) => self.read_use(imported, module),
                other => paths.visit_item(other),
            }
        }
        self.paths.entry(module.clone()).or_default().extend(paths.0);
    }

    fn read_use(&mut self, imported: &ItemUse, module: &Module) {
        let mut leaves = Vec::new();
        flatten(&imported.tree, &mut Vec::new(), &mut leaves);
        for Leaf { name, path } in leaves {
            let target = absolute(module, &path);
            // A module that re-exports items of its own children does not import them.
            let is_reexport = !matches!(imported.vis, Visibility::Inherited) && target.starts_with(module);
            if !is_reexport {
                self.paths.entry(module.clone()).or_default().insert(path.clone());
            }
            if let Some(name) = name {
                self.imports.entry(module.clone()).or_default().insert(name, target);
            }
        }
    }

    /// The module that defines the item that a path names.
    fn resolve(&self, path: &[String], depth: usize) -> Option<&Module> {
        let known = (0..=path.len()).rev().find(|&length| self.files.contains_key(&path[..length]))?;
        let (module, _) = self.files.get_key_value(&path[..known])?;
        let Some(name) = path.get(known).filter(|_| depth < 8) else { return Some(module) };
        let through = |target: &[String]| {
            let target: Vec<_> = target.iter().chain(&path[known + 1..]).cloned().collect();
            self.resolve(&target, depth + 1)
        };
        match self.imports.get(module).and_then(|imports| imports.get(name)) {
            Some(target) if target.as_slice() != &path[..=known] => through(target),
            _ => Some(module),
        }
    }

    fn edges(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let mut edges: BTreeMap<Module, BTreeSet<Module>> =
            self.files.keys().map(|module| (module.clone(), BTreeSet::new())).collect();
        for (module, paths) in &self.paths {
            for path in paths {
                let is_anchored = ["crate", "self", "super"].contains(&path[0].as_str());
                let is_child = self.files.contains_key(&child(module, &path[0]));
                let imported = self.imports.get(module).and_then(|imports| imports.get(&path[0]));
                let absolute = match imported {
                    Some(target) => target.iter().chain(&path[1..]).cloned().collect(),
                    None if is_anchored || is_child => absolute(module, path),
                    None => continue,
                };
                if let Some(target) = self.resolve(&absolute, 0).filter(|target| *target != module) {
                    edges.get_mut(module).unwrap().insert(target.clone());
                }
            }
        }
        edges
    }
}

/// A path from a module as a path below the crate's root.
fn absolute(module: &Module, path: &[String]) -> Vec<String> {
    let mut base = module.clone();
    let mut rest = path;
    while let Some(first) = rest.first() {
        match first.as_str() {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            "self" => {}
            _ => break,
        }
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    base
}

fn child(module: &Module, name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

fn reachable<'a>(edges: &'a BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Module> = edges[from].iter().collect();
    while let Some(module) = open.pop() {
        if found.insert(module) {
            open.extend(&edges[module]);
        }
    }
    found
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => {
            attribute.path().is_ident("cfg")
                && list
                    .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
                    .is_ok_and(|conditions| conditions.iter().any(|condition| condition.path().is_ident("test")))
        }
        _ => false,
    })
}

/// One imported name; none for a glob.
struct Leaf {
    name: Option<String>,
    path: Vec<String>,
}

fn flatten(tree: &UseTree, prefix: &mut Vec<String>, leaves: &mut Vec<Leaf>) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, leaves);
            prefix.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, prefix, leaves)),
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push(Leaf { name: prefix.last().cloned(), path: prefix.clone() });
        }
        UseTree::Name(name) => leaves.push(leaf(&name.ident.to_string(), &name.ident.to_string(), prefix)),
        UseTree::Rename(renamed) => leaves.push(leaf(&renamed.rename.to_string(), &renamed.ident.to_string(), prefix)),
        UseTree::Glob(_) => leaves.push(Leaf { name: None, path: prefix.clone() }),
    }
}

fn leaf(name: &str, last: &str, prefix: &[String]) -> Leaf {
    let path = prefix.iter().cloned().chain([last.to_owned()]).collect();
    Leaf { name: Some(name.to_owned()), path }
}

/// The paths in some code that have at least two segments. A single name comes from an import or from the file itself.
#[derive(Default)]
struct Paths(BTreeSet<Vec<String>>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.0.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }
}
