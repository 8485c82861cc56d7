// SPDX-License-Identifier: BSD-3-Clause
//! The modules of a crate as the parser gives them: which names each one has, and which paths it contains.
//!
//! What only tests, models and fuzz targets compile is left out.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, ImplItem, Item, ItemConst, ItemEnum, ItemFn, ItemForeignMod, ItemImpl, ItemMacro, ItemMod,
    ItemStatic, ItemStruct, ItemTrait, ItemType, ItemUnion, ItemUse, Macro, Meta, Token, UseTree, Visibility,
};

/// The conditions of `cfg` that no product is built with.
const NOT_IN_A_PRODUCT: [&str; 4] = ["test", "fuzzing", "loom", "miri"];

/// How a file is read; the tests have no files.
pub(crate) type Read<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// What a name of a module stands for.
#[derive(Debug)]
pub(crate) enum Definition {
    /// A child, by its index.
    Module(usize),
    /// An item of this module.
    Item,
    /// What this path leads to, from this module.
    Import(Vec<String>),
}

/// A path in a module.
#[derive(Debug)]
pub(crate) struct Mention {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    /// It is a `use` that others see.
    pub(crate) is_re_export: bool,
}

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) parent: Option<usize>,
    pub(crate) file: PathBuf,
    pub(crate) names: HashMap<String, Vec<Definition>>,
    /// The modules whose names this one has by `use MODULE::*`.
    pub(crate) globs: Vec<Vec<String>>,
    pub(crate) mentions: Vec<Mention>,
}

/// The modules of a crate; the first one is its root.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) modules: Vec<Module>,
}

impl Source {
    /// Reads the crate with this root: `lib.rs`, `main.rs` or a program in `bin`.
    pub(crate) fn load(root: &Path, read: Read<'_>) -> io::Result<Self> {
        let mut source = Self { modules: Vec::new() };
        let directory = root.parent().unwrap_or(Path::new(""));
        source.file(String::new(), None, root, directory, read)?;
        Ok(source)
    }

    /// Adds the module in `file`, whose children are in `directory`.
    fn file(
        &mut self,
        name: String,
        parent: Option<usize>,
        file: &Path,
        directory: &Path,
        read: Read<'_>,
    ) -> io::Result<usize> {
        let error = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", file.display()));
        let text = read(file).map_err(|e| error(&e))?;
        let parsed = syn::parse_file(&text).map_err(|e| error(&e))?;
        self.module(name, parent, file, directory, &parsed.items, read)
    }

    fn module(
        &mut self,
        name: String,
        parent: Option<usize>,
        file: &Path,
        directory: &Path,
        items: &[Item],
        read: Read<'_>,
    ) -> io::Result<usize> {
        let index = self.modules.len();
        self.modules.push(Module {
            name,
            parent,
            file: file.to_owned(),
            names: HashMap::new(),
            globs: Vec::new(),
            mentions: Vec::new(),
        });
        let mut collector = Collector { module: &mut self.modules[index], children: Vec::new() };
        for item in items {
            collector.visit_item(item);
        }
        for child in collector.children {
            let name = child.ident.to_string();
            let below = directory.join(&name);
            let added = match &child.content {
                Some((_, items)) => self.module(name.clone(), Some(index), file, &below, items, read)?,
                None => {
                    let flat = directory.join(format!("{name}.rs"));
                    let file = if read(&flat).is_ok() { flat } else { below.join("mod.rs") };
                    self.file(name.clone(), Some(index), &file, &below, read)?
                }
            };
            self.modules[index].names.entry(name).or_default().push(Definition::Module(added));
        }
        Ok(index)
    }
}

/// Collects the names, imports and paths of one module.
struct Collector<'a, 'ast> {
    module: &'a mut Module,
    children: Vec<&'ast ItemMod>,
}

impl Collector<'_, '_> {
    fn define(&mut self, name: &Ident, definition: Definition) {
        self.module.names.entry(name.to_string()).or_default().push(definition);
    }

    fn mention(&mut self, path: Vec<String>, at: &Ident, is_re_export: bool) {
        self.module.mentions.push(Mention { path, line: at.span().start().line, is_re_export });
    }

    /// Takes what a `use` imports; `prefix` is the path before `tree`.
    fn import(&mut self, tree: &UseTree, prefix: &[String], is_re_export: bool) {
        let with = |name: &Ident| {
            let own = (*name != "self").then(|| name.to_string());
            prefix.iter().cloned().chain(own).collect::<Vec<_>>()
        };
        match tree {
            UseTree::Path(path) => {
                let mut prefix = prefix.to_vec();
                prefix.push(path.ident.to_string());
                self.import(&path.tree, &prefix, is_re_export);
            }
            UseTree::Name(name) => {
                let path = with(&name.ident);
                if let Some(last) = path.last() {
                    let last = Ident::new(last, name.ident.span());
                    self.define(&last, Definition::Import(path.clone()));
                }
                self.mention(path, &name.ident, is_re_export);
            }
            UseTree::Rename(name) => {
                let path = with(&name.ident);
                if name.rename != "_" {
                    self.define(&name.rename, Definition::Import(path.clone()));
                }
                self.mention(path, &name.ident, is_re_export);
            }
            UseTree::Glob(_) => self.module.globs.push(prefix.to_vec()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix, is_re_export);
                }
            }
        }
    }

    /// Takes the paths in the tokens of a macro. The name behind a dot is a field or a method.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<Ident> = Vec::new();
        let mut joins = 0;
        let mut is_member = false;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if joins != 2 {
                        self.end_path(&mut path);
                    }
                    if !is_member {
                        path.push(name);
                    }
                    (joins, is_member) = (0, false);
                }
                TokenTree::Punct(mark) => {
                    joins = if mark.as_char() == ':' { joins + 1 } else { 0 };
                    is_member = mark.as_char() == '.';
                    if joins == 0 {
                        self.end_path(&mut path);
                    }
                }
                TokenTree::Group(group) => {
                    self.end_path(&mut path);
                    (joins, is_member) = (0, false);
                    self.tokens(group.stream());
                }
                TokenTree::Literal(_) => {
                    self.end_path(&mut path);
                    (joins, is_member) = (0, false);
                }
            }
        }
        self.end_path(&mut path);
    }

    fn end_path(&mut self, path: &mut Vec<Ident>) {
        if let Some(first) = path.first().cloned() {
            self.mention(path.drain(..).map(|name| name.to_string()).collect(), &first, false);
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_, 'ast> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_in_a_product(attributes(item)) {
            return;
        }
        match item {
            Item::Const(ItemConst { ident, .. })
            | Item::Enum(ItemEnum { ident, .. })
            | Item::Static(ItemStatic { ident, .. })
            | Item::Struct(ItemStruct { ident, .. })
            | Item::Trait(ItemTrait { ident, .. })
            | Item::Type(ItemType { ident, .. })
            | Item::Union(ItemUnion { ident, .. })
            | Item::Macro(ItemMacro { ident: Some(ident), .. }) => self.define(ident, Definition::Item),
            Item::Fn(function) => self.define(&function.sig.ident, Definition::Item),
            Item::Mod(child) => return self.children.push(child),
            Item::Use(item) if item.leading_colon.is_some() => return,
            Item::Use(item) => {
                return self.import(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            _ => &[],
        };
        if is_in_a_product(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let (None, Some(first)) = (path.leading_colon, path.segments.first()) {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.mention(names, &first.ident, false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    /// The path in `pub(in PATH)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(ItemConst { attrs, .. })
        | Item::Enum(ItemEnum { attrs, .. })
        | Item::Fn(ItemFn { attrs, .. })
        | Item::ForeignMod(ItemForeignMod { attrs, .. })
        | Item::Impl(ItemImpl { attrs, .. })
        | Item::Macro(ItemMacro { attrs, .. })
        | Item::Mod(ItemMod { attrs, .. })
        | Item::Static(ItemStatic { attrs, .. })
        | Item::Struct(ItemStruct { attrs, .. })
        | Item::Trait(ItemTrait { attrs, .. })
        | Item::Type(ItemType { attrs, .. })
        | Item::Union(ItemUnion { attrs, .. })
        | Item::Use(ItemUse { attrs, .. }) => attrs,
        _ => &[],
    }
}

/// Whether some product is built with what has these attributes.
fn is_in_a_product(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .all(|attribute| attribute.parse_args::<Meta>().map_or(true, |condition| can_be(&condition, true)))
}

/// Whether a condition of `cfg` has this value in some product.
fn can_be(condition: &Meta, value: bool) -> bool {
    let Meta::List(list) = condition else {
        return !value || !NOT_IN_A_PRODUCT.iter().any(|name| condition.path().is_ident(name));
    };
    let Ok(parts) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else {
        return true;
    };
    let mut parts = parts.iter();
    if list.path.is_ident("not") {
        parts.all(|part| can_be(part, !value))
    } else if list.path.is_ident("all") == value {
        parts.all(|part| can_be(part, value))
    } else {
        parts.any(|part| can_be(part, value))
    }
}
