//! A Rust file, parsed: its items, its tokens and which of its lines are tests.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// One Rust file.
pub struct Source {
    /// Path relative to the repository.
    pub path: String,
    /// The source text.
    pub text: String,
    /// The parsed items.
    pub file: syn::File,
    /// Tokens in order, without comments; each literal is a single token.
    pub tokens: Vec<Token>,
    /// Whether all of it is tests: it is below a `tests` or `fuzz` folder, or its module is for tests only.
    pub is_test: bool,
    /// Line ranges of items for tests only.
    tests: Vec<RangeInclusive<usize>>,
    /// Possible files of test-only modules that this file declares.
    test_modules: Vec<String>,
}

/// A token and its line.
#[derive(Debug)]
pub struct Token {
    /// The token as written.
    pub text: String,
    /// Line number, from 1.
    pub line: usize,
}

/// A path of names joined by `::`, and its line.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// Line number, from 1.
    pub line: usize,
    /// The path, such as `std::fs::read`.
    pub path: String,
}

impl Source {
    /// Parses a file.
    ///
    /// # Errors
    /// The text is not Rust.
    pub fn parse(path: &str, text: &str) -> Result<Source> {
        let wrong = |e: &dyn std::fmt::Display| anyhow!("{path}: {e}");
        let stream: TokenStream = text.parse().map_err(|e: proc_macro2::LexError| wrong(&e))?;
        let file = syn::parse_file(text).map_err(|e| wrong(&e))?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let mut finder = TestFinder { ranges: Vec::new(), modules: Vec::new(), path };
        finder.visit_file(&file);
        let TestFinder { ranges, modules, .. } = finder;
        let below_tests = path.split('/').any(|part| matches!(part, "tests" | "fuzz"));
        Ok(Source {
            path: path.to_owned(),
            text: text.to_owned(),
            file,
            tokens,
            is_test: below_tests,
            tests: ranges,
            test_modules: modules,
        })
    }

    /// Whether a line belongs to a test.
    pub fn in_test(&self, line: usize) -> bool {
        self.is_test || self.tests.iter().any(|range| range.contains(&line))
    }

    /// Every path of names that is used or imported, tests included. Imports are expanded: `use std::{fs, io::{self,
    /// Read}}` gives `std::fs`, `std::io` and `std::io::Read`.
    pub fn named(&self) -> Vec<Named> {
        let mut found = Vec::new();
        let mut imports = Imports { found: &mut found };
        imports.visit_file(&self.file);
        self.written_paths(&mut found);
        // An import of one name is among the tokens as well.
        found.sort();
        found.dedup();
        found
    }

    /// Paths that this file exports (`pub use`), each in full.
    pub fn exported(&self) -> Vec<String> {
        let mut found = Vec::new();
        for item in &self.file.items {
            if let syn::Item::Use(import) = item
                && !matches!(import.vis, syn::Visibility::Inherited)
            {
                Imports { found: &mut found }.visit_item_use(import);
            }
        }
        found.into_iter().map(|named| named.path).collect()
    }

    /// Finds names joined by `::` among the tokens, and so inside macros as well.
    fn written_paths(&self, found: &mut Vec<Named>) {
        let is_name = |t: &Token| t.text.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let joined = |i: usize| {
            let text = |i: usize| self.tokens.get(i).map(|t| t.text.as_str());
            text(i) == Some(":") && text(i + 1) == Some(":")
        };
        let mut i = 0;
        while i < self.tokens.len() {
            let start = i;
            i += 1;
            if !is_name(&self.tokens[start]) {
                continue;
            }
            let mut path = self.tokens[start].text.clone();
            while joined(i) && self.tokens.get(i + 2).is_some_and(is_name) {
                path.push_str("::");
                path.push_str(&self.tokens[i + 2].text);
                i += 3;
            }
            if i > start + 1 {
                found.push(Named { path, line: self.tokens[start].line });
            }
        }
    }
}

/// Marks files whose modules are declared for tests only.
pub fn mark_test_files(sources: &mut [Source]) {
    let named: Vec<String> = sources.iter().flat_map(|s| s.test_modules.clone()).collect();
    for source in sources {
        source.is_test |= named.contains(&source.path);
    }
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                into.push(Token { text: open.to_owned(), line });
                flatten(group.stream(), into);
                into.push(Token { text: close.to_owned(), line: group.span_close().start().line });
            }
            other => into.push(Token { text: other.to_string(), line }),
        }
    }
}

/// Whether an item is for tests only: `#[test]`, or `#[cfg(test)]` and the like, but not `cfg(not(test))`.
fn for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let mut tokens = Vec::new();
        if let syn::Meta::List(list) = &attribute.meta {
            flatten(list.tokens.clone(), &mut tokens);
        }
        let has = |word: &str| tokens.iter().any(|t| t.text == word);
        let name = attribute.path().segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        name == "test" || name == "cfg" && has("test") && !has("not")
    })
}

struct TestFinder<'p> {
    ranges: Vec<RangeInclusive<usize>>,
    modules: Vec<String>,
    path: &'p str,
}

impl TestFinder<'_> {
    /// Possible files of a module declared here.
    fn files_of(&self, module: &str) -> [String; 2] {
        let path = Path::new(self.path);
        let stem = path.file_stem().unwrap_or_default();
        let parent = path.parent().unwrap_or(Path::new(""));
        let own = ["mod", "lib", "main"].iter().any(|n| stem == *n);
        let dir = if own { parent.to_path_buf() } else { parent.join(stem) };
        [dir.join(format!("{module}.rs")), dir.join(module).join("mod.rs")].map(|p| p.display().to_string())
    }
}

impl<'ast> Visit<'ast> for TestFinder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Const(i) => &i.attrs,
            syn::Item::Enum(i) => &i.attrs,
            syn::Item::Fn(i) => &i.attrs,
            syn::Item::Impl(i) => &i.attrs,
            syn::Item::Macro(i) => &i.attrs,
            syn::Item::Mod(i) => &i.attrs,
            syn::Item::Static(i) => &i.attrs,
            syn::Item::Struct(i) => &i.attrs,
            syn::Item::Trait(i) => &i.attrs,
            syn::Item::Type(i) => &i.attrs,
            syn::Item::Use(i) => &i.attrs,
            _ => return syn::visit::visit_item(self, item),
        };
        if for_tests(attributes) {
            let span = item.span();
            self.ranges.push(span.start().line..=span.end().line);
            if let syn::Item::Mod(module) = item
                && module.content.is_none()
            {
                self.modules.extend(self.files_of(&module.ident.to_string()));
            }
        } else {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if for_tests(&item.attrs) {
            let span = item.span();
            self.ranges.push(span.start().line..=span.end().line);
        }
    }
}

struct Imports<'f> {
    found: &'f mut Vec<Named>,
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(String::new(), &item.tree);
    }
}

impl Imports<'_> {
    fn tree(&mut self, before: String, tree: &syn::UseTree) {
        let join = |name: String| if before.is_empty() { name } else { format!("{before}::{name}") };
        let line = tree.span().start().line;
        match tree {
            syn::UseTree::Path(path) => self.tree(join(path.ident.to_string()), &path.tree),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.tree(before.clone(), tree));
            }
            syn::UseTree::Glob(_) => self.found.push(Named { path: join("*".to_owned()), line }),
            syn::UseTree::Name(name) if name.ident == "self" => self.found.push(Named { path: before, line }),
            syn::UseTree::Name(name) => self.found.push(Named { path: join(name.ident.to_string()), line }),
            syn::UseTree::Rename(name) if name.ident == "self" => {
                self.found.push(Named { path: before, line })
            }
            syn::UseTree::Rename(name) => self.found.push(Named { path: join(name.ident.to_string()), line }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
//! A file.
use std::{fs, io::{self, Read}};

/// A function.
#[inline]
fn long(a: u8,
        b: u8) -> u8 {
    println!(\"{}\", std::env::var(\"A\"));
    a + b
}

#[cfg(not(test))]
static HERE: u8 = 1;

#[cfg(test)]
mod helpers;

#[cfg(test)]
mod tests {
    fn in_tests() { std::thread::sleep(x) }
}
";

    fn source() -> Source {
        Source::parse("crates/a/src/b.rs", FILE).unwrap()
    }

    #[test]
    fn test_code_is_distinguished_from_other_code() {
        let source = source();
        let tests: Vec<_> = (1..=FILE.lines().count()).filter(|line| source.in_test(*line)).collect();
        assert_eq!(tests, [15, 16, 18, 19, 20, 21]);
        assert_eq!(source.test_modules, ["crates/a/src/b/helpers.rs", "crates/a/src/b/helpers/mod.rs"]);
        let mut both = [source, Source::parse("crates/a/src/b/helpers.rs", "//! Helpers.\n").unwrap()];
        mark_test_files(&mut both);
        assert_eq!(both.map(|s| s.is_test), [false, true]);
    }

    #[test]
    fn paths_are_found_in_imports_bodies_and_macros() {
        let found: Vec<_> = source().named().into_iter().map(|n| (n.path, n.line)).collect();
        let expect = [
            ("std::fs", 2),
            ("std::io", 2),
            ("std::io::Read", 2),
            ("std::env::var", 8),
            ("std::thread::sleep", 20),
        ];
        assert_eq!(found, expect.map(|(p, l)| (p.to_owned(), l)));
    }
}
