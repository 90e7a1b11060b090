//! Prompts: what stands around a text before it is tokenised.
//!
//! A template is a pattern with `{text}` exactly once and `{instruction}` any number of times. It is split once, when
//! the model is loaded; rendering joins the pieces in one pass, so placeholders inside a text or an instruction are left
//! alone. Other braces are plain text.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

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

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Instruction,
}

/// A split pattern: what comes before the text and what comes after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
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
        let (before, after) = pattern.split_once(TEXT)?;
        if after.contains(TEXT) {
            return None;
        }
        Some(Template { pattern: pattern.to_owned(), before: split(before), after: split(after) })
    }

    /// A prompt in front of the text, taken literally, as sentence-transformers takes its `prompts`.
    pub fn prefix(prompt: &str) -> Template {
        Template {
            pattern: format!("{prompt}{TEXT}"),
            before: vec![Piece::Literal(prompt.to_owned())],
            after: Vec::new(),
        }
    }

    /// The pattern, to be read by people and to be part of a contract.
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

fn split(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (i, literal) in pattern.split(INSTRUCTION).enumerate() {
        if i > 0 {
            pieces.push(Piece::Instruction);
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.to_owned()));
        }
    }
    pieces
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
    /// [`PipelineError::InstructionNotSupported`] when an instruction has no place,
    /// [`PipelineError::InstructionMissing`] when one is needed.
    pub fn apply<'a>(
        &self,
        role: Role,
        instruction: Option<&str>,
        text: &'a str,
    ) -> Result<Rendered<'a>, PipelineError> {
        let template = self.of(role);
        if instruction.is_some() && !template.is_some_and(Template::takes_instruction) {
            let pattern = template.map(|template| template.pattern().to_owned());
            return Err(PipelineError::InstructionNotSupported { role, pattern });
        }
        let Some(template) = template else {
            return Ok(Rendered::plain(text));
        };
        match instruction.or(self.default_instruction.as_deref()) {
            Some(instruction) => Ok(template.render(text, instruction)),
            None if template.takes_instruction() => {
                Err(PipelineError::InstructionMissing { role, pattern: template.pattern().to_owned() })
            }
            None => Ok(template.render(text, "")),
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
        // A prompt of sentence-transformers is no pattern.
        let literal = Template::prefix("say {instruction}: ");
        assert!(!literal.takes_instruction());
        assert_eq!(literal.render("x", "?").whole, "say {instruction}: x");
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
