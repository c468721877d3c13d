//! YAML as a small tree: every entry with its line, every scalar with its text as written.
//!
//! Built from the parser's events and not through serde, for three reasons: duplicated names must
//! all be seen and not only the first; `speaker: 007` must keep its zeros; and one wrong value must
//! not end the reading of the others.

use std::collections::HashMap;
use std::rc::Rc;

use serde_saphyr::granit_parser::{self, Event, Parser, ScalarStyle};

use super::error::Problem;

/// A configuration is a page or two; what is larger is another file given by mistake.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Settings, sections and list items in one file.
const MAX_NODES: usize = 10_000;
/// Two levels are used. The tree is dropped by recursion, so its depth is bounded.
const MAX_DEPTH: usize = 16;

/// A node of the tree.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// A text; shared, so that an alias costs nothing.
    Scalar {
        /// After escapes.
        text: Rc<str>,
        /// Without quotes: may be read as a number, a switch or null.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// Names and values in the order of the file, duplicates included.
    Mapping(Vec<Entry>),
}

/// One `name: value`.
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

    /// Nothing is written here.
    pub fn is_empty(&self) -> bool {
        matches!(self.plain(), Some("" | "~" | "null"))
    }

    /// The text, quoted or not.
    pub fn scalar(&self) -> Option<&str> {
        if let Node::Scalar { text, .. } = self { Some(text) } else { None }
    }

    /// The text, where it stands without quotes.
    pub fn plain(&self) -> Option<&str> {
        if let Node::Scalar { text, plain: true } = self { Some(text) } else { None }
    }

    /// What is here, for a message: short, on one line, and telling text from number.
    pub fn described(&self) -> String {
        match self {
            Node::Scalar { text, plain: true } if matches!(&**text, "" | "~") => "nothing".to_owned(),
            Node::Scalar { text, plain: true } => clipped(text),
            Node::Scalar { text, plain: false } => format!("the text \"{}\"", clipped(text)),
            Node::List(_) => "a list".to_owned(),
            Node::Mapping(_) => "further `name: value` lines".to_owned(),
        }
    }
}

/// At most 60 characters and no control characters: what comes from a file must not play with the
/// terminal.
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

/// The tree of a file, or the first thing that ends its reading, with the line.
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

/// A list or mapping whose end has not come yet.
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
                "a second document begins here; keep one file for one run".to_owned(),
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
                // Only single values are repeated: a few anchored lists of lists would grow to
                // gigabytes, and no setting needs them.
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
            return Err(Problem::TooMuch(format!(
                "nested more than {MAX_DEPTH} levels deep; settings stand two levels deep: section, name"
            )));
        }
        if let Some(Open::Mapping { name: None, .. }) = self.open.last() {
            return Err(Problem::Unsupported(
                "a list or further lines stand where a name is expected".to_owned(),
            ));
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

    /// A node is complete: it goes into what is open around it.
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
            return Err(Problem::TooMuch(format!("more than {MAX_NODES} values; this is no configuration")));
        }
        Ok(())
    }
}

fn no_tag(tagged: bool) -> Result<(), Problem> {
    if tagged {
        return Err(Problem::Unsupported(
            "YAML tags (!…) are not used here; write the plain value".to_owned(),
        ));
    }
    Ok(())
}
