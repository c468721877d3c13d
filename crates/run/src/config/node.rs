//! YAML as a small tree: every entry with its line, every scalar with its text as written.
//!
//! Built from parser events rather than through serde, for three reasons: all duplicated names must be seen, not only
//! the first; `speaker: 007` must keep its zeros; and one wrong value must not stop the parsing of the others.

use std::collections::HashMap;
use std::rc::Rc;

use serde_saphyr::granit_parser::{self, Event, Parser, ScalarStyle};

use super::error::Problem;

/// Maximum file size in bytes; a larger file is not a configuration.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Maximum number of settings, sections and list items in one file.
const MAX_NODES: usize = 10_000;
/// Maximum nesting depth; settings use two levels. The tree is dropped recursively, so its depth must be bounded.
const MAX_DEPTH: usize = 16;

/// A node of the tree.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// A text; reference-counted, so that a YAML alias costs no copy.
    Scalar {
        /// The text with escapes resolved.
        text: Rc<str>,
        /// Not quoted, so it may be a number, a boolean or null.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// Names and values in file order, including duplicates.
    Mapping(Vec<Entry>),
}

/// One `name: value` line.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Line of the name, from 1.
    pub line: u64,
    /// The name.
    pub name: Rc<str>,
    /// The value.
    pub value: Node,
}

impl Node {
    fn null() -> Node {
        Node::Scalar { text: "".into(), plain: true }
    }

    /// Whether the value is empty or null.
    pub fn is_empty(&self) -> bool {
        matches!(self.plain(), Some("" | "~" | "null"))
    }

    /// The text, whether quoted or not; `None` for lists and mappings.
    pub fn scalar(&self) -> Option<&str> {
        if let Node::Scalar { text, .. } = self { Some(text) } else { None }
    }

    /// The text if it is not quoted.
    pub fn plain(&self) -> Option<&str> {
        if let Node::Scalar { text, plain: true } = self { Some(text) } else { None }
    }

    /// Describes the node for a message: short, on one line, and distinguishing text from numbers.
    pub fn described(&self) -> String {
        match self {
            Node::Scalar { text, plain: true } if matches!(&**text, "" | "~") => "nothing".to_owned(),
            Node::Scalar { text, plain: true } => clipped(text),
            Node::Scalar { text, plain: false } => format!("the text \"{}\"", clipped(text)),
            Node::List(_) => "a list".to_owned(),
            Node::Mapping(_) => "nested `name: value` lines".to_owned(),
        }
    }
}

/// Shortens to 60 characters and escapes control characters: text from a file must not control the terminal.
pub(super) fn clipped(text: &str) -> String {
    let mut short = String::new();
    for c in text.chars().take(60) {
        if c.is_control() { short.extend(c.escape_default()) } else { short.push(c) }
    }
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

/// Parses a file into a tree, or returns the first syntax problem with its line.
pub(super) fn tree(text: &str) -> Result<Node, (u64, Problem)> {
    let options = granit_parser::options! {
        flow_nesting_limit: 2 * MAX_DEPTH,
        block_nesting_limit: 2 * MAX_DEPTH,
        emit_comments: false,
    };
    let mut builder = Builder::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) =
            event.map_err(|error| (line_of(error.marker()), Problem::Syntax(error.info())))?;
        let line = line_of(&span.start);
        builder.take(event, line).map_err(|problem| (line, problem))?;
    }
    Ok(builder.root.unwrap_or_else(Node::null))
}

fn line_of(marker: &granit_parser::Marker) -> u64 {
    marker.line().max(1) as u64
}

/// A list or mapping that is still being parsed.
enum Open {
    List(Vec<Node>),
    Mapping { entries: Vec<Entry>, name: Option<(u64, Rc<str>)> },
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, line: u64) -> Result<(), Problem> {
        match event {
            Event::DocumentStart(..) if self.root.is_some() => Err(Problem::Unsupported(
                "a second document begins here; use one document per file".to_owned(),
            )),
            Event::Scalar(text, style, anchor, tag) => {
                no_tag(tag.is_some())?;
                let node = Node::Scalar { text: text.as_ref().into(), plain: style == ScalarStyle::Plain };
                if anchor != 0 {
                    self.anchors.insert(anchor, node.clone());
                }
                self.place(node, line)
            }
            Event::Alias(anchor) => {
                // Only scalars can be repeated: a few anchored lists of lists could grow to gigabytes, and no
                // setting needs them.
                let node = self.anchors.get(&anchor).cloned().ok_or_else(|| {
                    Problem::Unsupported(
                        "an alias can repeat a single value only, not a list or a section; write it out"
                            .to_owned(),
                    )
                })?;
                self.place(node, line)
            }
            Event::SequenceStart(_, _, tag) => {
                no_tag(tag.is_some())?;
                self.begin(Open::List(Vec::new()))
            }
            Event::MappingStart(_, _, tag) => {
                no_tag(tag.is_some())?;
                self.begin(Open::Mapping { entries: Vec::new(), name: None })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                match self.open.pop() {
                    Some(Open::List(items)) => self.close(Node::List(items)),
                    Some(Open::Mapping { entries, .. }) => self.close(Node::Mapping(entries)),
                    None => {}
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, open: Open) -> Result<(), Problem> {
        self.count()?;
        if self.open.len() >= MAX_DEPTH {
            return Err(Problem::TooLarge(format!(
                "nested more than {MAX_DEPTH} levels deep; settings have two levels: section and name"
            )));
        }
        if let Some(Open::Mapping { name: None, .. }) = self.open.last() {
            return Err(Problem::Unsupported("expected a name, found a list or a mapping".to_owned()));
        }
        self.open.push(open);
        Ok(())
    }

    fn place(&mut self, node: Node, line: u64) -> Result<(), Problem> {
        self.count()?;
        match (self.open.last_mut(), node) {
            (Some(Open::Mapping { name: name @ None, .. }), Node::Scalar { text, .. }) => {
                *name = Some((line, text))
            }
            (_, node) => self.close(node),
        }
        Ok(())
    }

    /// Adds a complete node to the enclosing list or mapping.
    fn close(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List(items)) => items.push(node),
            Some(Open::Mapping { entries, name }) => {
                if let Some((line, name)) = name.take() {
                    entries.push(Entry { line, name, value: node });
                }
            }
        }
    }

    fn count(&mut self) -> Result<(), Problem> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Problem::TooLarge(format!(
                "more than {MAX_NODES} values; this is not a configuration file"
            )));
        }
        Ok(())
    }
}

fn no_tag(tagged: bool) -> Result<(), Problem> {
    if tagged {
        return Err(Problem::Unsupported(
            "YAML tags (!…) are not supported; write the plain value".to_owned(),
        ));
    }
    Ok(())
}
