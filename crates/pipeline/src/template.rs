//! Prompts: what stands around a text before it is tokenised.
//!
//! A template is a pattern with `{text}` exactly once and `{instruction}` any number of times. It is split once, when
//! the model is loaded; rendering joins the pieces in one pass, so placeholders inside a text or an instruction are left
//! alone. Other braces are plain text, and so is a placeholder after a backslash: `\{text}` in a pattern is `{text}` in
//! the prompt. (Backslashes right before a placeholder count in pairs; anywhere else a backslash is a backslash.)

use std::borrow::Cow;
use std::fmt;
use std::mem;
use std::ops::Range;

use serde::Serialize;

use crate::PipelineError;

/// Which side of a search a text is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Neither: no template is ever applied.
    #[default]
    Generic,
    /// A query: the query template is applied.
    Query,
    /// A document: the passage template is applied.
    Passage,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Generic => "generic",
            Role::Query => "query",
            Role::Passage => "passage",
        })
    }
}

const TEXT: &str = "{text}";
const INSTRUCTION: &str = "{instruction}";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Piece {
    Literal(String),
    Instruction,
}

/// A split pattern: what comes before the text and what comes after it. Serialised as these pieces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Template {
    #[serde(skip)]
    pattern: String,
    before: Vec<Piece>,
    after: Vec<Piece>,
}

/// A text inside its template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered<'a> {
    /// Everything.
    pub whole: Cow<'a, str>,
    /// The bytes of it that are the text.
    pub text: Range<usize>,
}

impl<'a> Rendered<'a> {
    /// A text without a template.
    pub fn plain(text: &'a str) -> Self {
        Rendered { whole: Cow::Borrowed(text), text: 0..text.len() }
    }

    /// Whether there is anything but the text.
    pub fn is_plain(&self) -> bool {
        self.text.len() == self.whole.len()
    }
}

impl Template {
    /// Splits a pattern; `None` when it does not hold `{text}` exactly once.
    pub fn parse(pattern: &str) -> Option<Template> {
        let (mut before, mut pieces, mut literal, mut rest) = (None, Vec::new(), String::new(), pattern);
        while let Some((at, placeholder)) = next_placeholder(rest) {
            let slashes = trailing_slashes(&rest[..at]);
            literal.push_str(&rest[..at - slashes.div_ceil(2)]);
            rest = &rest[at + placeholder.len()..];
            if slashes % 2 == 1 {
                literal.push_str(placeholder);
                continue;
            }
            push_literal(&mut pieces, &mut literal);
            if placeholder == INSTRUCTION {
                pieces.push(Piece::Instruction);
            } else if before.replace(mem::take(&mut pieces)).is_some() {
                return None;
            }
        }
        literal.push_str(rest);
        push_literal(&mut pieces, &mut literal);
        Some(Template { pattern: pattern.to_owned(), before: before?, after: pieces })
    }

    /// A prompt in front of the text, taken literally, as sentence-transformers takes its `prompts`.
    pub fn prefix(prompt: &str) -> Template {
        let mut before = Vec::new();
        push_literal(&mut before, &mut prompt.to_owned());
        Template { pattern: format!("{}{TEXT}", escape(prompt)), before, after: Vec::new() }
    }

    /// The pattern: [`Template::parse`] makes the same template of it.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether there is a place for an instruction.
    pub fn takes_instruction(&self) -> bool {
        self.before.iter().chain(&self.after).any(|piece| *piece == Piece::Instruction)
    }

    /// Puts `text` and `instruction` in their places.
    pub fn render(&self, text: &str, instruction: &str) -> Rendered<'static> {
        let length = |pieces: &[Piece]| pieces.iter().map(|piece| piece.resolve(instruction).len()).sum::<usize>();
        let start = length(&self.before);
        let mut whole = String::with_capacity(start + text.len() + length(&self.after));
        self.before.iter().for_each(|piece| whole.push_str(piece.resolve(instruction)));
        whole.push_str(text);
        self.after.iter().for_each(|piece| whole.push_str(piece.resolve(instruction)));
        Rendered { whole: Cow::Owned(whole), text: start..start + text.len() }
    }
}

impl Piece {
    fn resolve<'a>(&'a self, instruction: &'a str) -> &'a str {
        match self {
            Piece::Literal(text) => text,
            Piece::Instruction => instruction,
        }
    }
}

/// The first placeholder and the byte where it begins.
fn next_placeholder(text: &str) -> Option<(usize, &'static str)> {
    [TEXT, INSTRUCTION].into_iter().filter_map(|placeholder| Some((text.find(placeholder)?, placeholder))).min()
}

fn trailing_slashes(text: &str) -> usize {
    text.len() - text.trim_end_matches('\\').len()
}

/// Moves a literal to the pieces, unless it is empty.
fn push_literal(pieces: &mut Vec<Piece>, literal: &mut String) {
    if !literal.is_empty() {
        pieces.push(Piece::Literal(mem::take(literal)));
    }
}

/// The pattern of a literal that a placeholder follows.
fn escape(literal: &str) -> String {
    let (mut pattern, mut rest) = (String::with_capacity(literal.len()), literal);
    while let Some((at, placeholder)) = next_placeholder(rest) {
        let slashes = trailing_slashes(&rest[..at]);
        pattern.push_str(&rest[..at]);
        pattern.push_str(&"\\".repeat(slashes + 1));
        pattern.push_str(placeholder);
        rest = &rest[at + placeholder.len()..];
    }
    pattern.push_str(rest);
    pattern.push_str(&"\\".repeat(trailing_slashes(rest)));
    pattern
}

/// The templates of a model, one for each side, and what `{instruction}` stands for when a call gives none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Templates {
    /// Applied to queries.
    pub query: Option<Template>,
    /// Applied to passages.
    pub passage: Option<Template>,
    /// The model's own instruction.
    pub default_instruction: Option<String>,
}

impl Templates {
    /// The template of a role; [`Role::Generic`] has none.
    pub fn of(&self, role: Role) -> Option<&Template> {
        match role {
            Role::Generic => None,
            Role::Query => self.query.as_ref(),
            Role::Passage => self.passage.as_ref(),
        }
    }

    /// Applies the template of `role`.
    ///
    /// # Errors
    /// As [`Templates::choose`].
    pub fn apply<'a>(
        &self,
        role: Role,
        instruction: Option<&str>,
        text: &'a str,
    ) -> Result<Rendered<'a>, PipelineError> {
        Ok(match self.choose(role, instruction)? {
            Some((template, instruction)) => template.render(text, instruction),
            None => Rendered::plain(text),
        })
    }

    /// The template of `role` and the instruction that goes into it, if it takes one; `None` for a role without template.
    ///
    /// # Errors
    /// [`PipelineError::InstructionNotSupported`] when an instruction has no place,
    /// [`PipelineError::InstructionMissing`] when one is needed.
    pub fn choose<'a>(
        &'a self,
        role: Role,
        instruction: Option<&'a str>,
    ) -> Result<Option<(&'a Template, &'a str)>, PipelineError> {
        let template = self.of(role);
        if instruction.is_some() && !template.is_some_and(Template::takes_instruction) {
            let pattern = template.map(|template| template.pattern().to_owned());
            return Err(PipelineError::InstructionNotSupported { role, pattern });
        }
        let Some(template) = template else {
            return Ok(None);
        };
        match instruction.or(self.default_instruction.as_deref()) {
            Some(instruction) => Ok(Some((template, instruction))),
            None if template.takes_instruction() => {
                Err(PipelineError::InstructionMissing { role, pattern: template.pattern().to_owned() })
            }
            None => Ok(Some((template, ""))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substitution_runs_once() {
        let template = Template::parse("{a} {instruction}: {text} {{}} {instruction}").unwrap();
        let rendered = template.render("about {text} and {instruction}", "find {text}");
        assert_eq!(rendered.whole, "{a} find {text}: about {text} and {instruction} {{}} find {text}");
        assert_eq!(&rendered.whole[rendered.text.clone()], "about {text} and {instruction}");
        assert!(!rendered.is_plain());
    }

    #[test]
    fn a_pattern_holds_its_text_once() {
        for (pattern, good) in [
            ("{text}", true),
            ("q: {text}", true),
            ("", false),
            ("q: ", false),
            ("{text}{text}", false),
            ("{ text }", false),
        ] {
            assert_eq!(Template::parse(pattern).is_some(), good, "{pattern:?}");
        }
        // A backslash takes a placeholder's meaning away, and only there has one itself.
        for (pattern, rendered) in [
            (r"\{text} {text}", Some("{text} x")),
            (r"\\{text} \n\{instruction}", Some(r"\x \n{instruction}")),
            (r"\\\{instruction}\\{instruction}{text}\\", Some(r"\{instruction}\?x\\")),
            (r"{{text}}", Some("{x}")),
            (r"\{text}", None),
            (r"{text}\\{text}", None),
        ] {
            let template = Template::parse(pattern);
            assert_eq!(template.map(|template| template.render("x", "?").whole).as_deref(), rendered, "{pattern}");
        }
    }

    #[test]
    fn a_prompt_is_no_pattern_but_its_pattern_reads_back_as_the_same() {
        for prompt in
            ["query: ", "", "say {instruction}: ", "{text}{text}", r"a\{text}\\{instruction}\", r"\\", "{", r"{\{text"]
        {
            let literal = Template::prefix(prompt);
            assert!(!literal.takes_instruction());
            assert_eq!(literal.render("x", "?").whole, format!("{prompt}x"));
            assert_eq!(Template::parse(literal.pattern()), Some(literal), "{prompt}");
        }
    }

    #[test]
    fn roles_and_instructions() {
        let templates = Templates {
            query: Template::parse("task: {instruction} | query: {text}"),
            passage: Template::parse("passage: {text}"),
            default_instruction: Some("search result".to_owned()),
        };
        let apply =
            |role, instruction| templates.apply(role, instruction, "t").map(|rendered| rendered.whole.into_owned());
        assert_eq!(apply(Role::Generic, None).unwrap(), "t");
        assert_eq!(apply(Role::Query, None).unwrap(), "task: search result | query: t");
        assert_eq!(apply(Role::Query, Some("")).unwrap(), "task:  | query: t");
        assert_eq!(apply(Role::Query, Some("x")).unwrap(), "task: x | query: t");
        assert_eq!(apply(Role::Passage, None).unwrap(), "passage: t");
        for role in [Role::Generic, Role::Passage] {
            assert!(matches!(apply(role, Some("x")), Err(PipelineError::InstructionNotSupported { .. })), "{role}");
        }
        let bare = Templates { default_instruction: None, ..templates };
        assert!(matches!(bare.apply(Role::Query, None, "t"), Err(PipelineError::InstructionMissing { .. })));
        assert_eq!(bare.apply(Role::Passage, None, "t").unwrap().whole, "passage: t");
    }
}
