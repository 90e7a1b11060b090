//! Reading configuration files: a value of the wrong kind is an error that names file, key and value.

use serde_json::Value;

use crate::error::LoadError;

/// The keys of one JSON object of one file. An absent file has no keys; a key that is `null` is absent.
pub(crate) struct Keys<'a> {
    file: &'a str,
    value: Option<&'a Value>,
}

impl<'a> Keys<'a> {
    /// The keys of a file, `None` for one that is not there.
    ///
    /// # Errors
    /// [`LoadError::Malformed`] when the file holds something else than an object: it would seem to say nothing.
    pub(crate) fn new(file: &'a str, value: Option<&'a Value>) -> Result<Self, LoadError> {
        match value {
            Some(other) if !other.is_object() => Err(LoadError::Malformed {
                file: file.to_owned(),
                key: "the file".to_owned(),
                value: show(value),
                expected: "an object",
            }),
            _ => Ok(Keys { file, value }),
        }
    }

    /// The file's name.
    pub(crate) fn file(&self) -> &'a str {
        self.file
    }

    /// Whether the key is there, be it `null`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.value.is_some_and(|value| value.get(key).is_some())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.value.and_then(|value| value.get(key)).filter(|value| !value.is_null())
    }

    /// All keys.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.value.and_then(Value::as_object).into_iter().flat_map(|object| object.keys().map(String::as_str))
    }

    pub(crate) fn malformed(&self, key: &str, expected: &'static str) -> LoadError {
        LoadError::Malformed { file: self.file.to_owned(), key: key.to_owned(), value: show(self.get(key)), expected }
    }

    pub(crate) fn unsupported(&self, key: &str, supported: &str) -> LoadError {
        let value = show(self.get(key));
        LoadError::UnsupportedValue {
            file: self.file.to_owned(),
            key: key.to_owned(),
            value,
            supported: supported.to_owned(),
        }
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, LoadError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => convert(value).map(Some).ok_or_else(|| self.malformed(key, expected)),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, LoadError> {
        self.read(key, "a text", Value::as_str)
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.read(key, "true or false", Value::as_bool)
    }

    /// A whole number of at least 1.
    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>, LoadError> {
        let whole =
            |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok()).filter(|number| *number > 0);
        self.read(key, "a whole number of at least 1", whole)
    }

    /// A list of whole numbers of at least 1; empty where it is absent.
    pub(crate) fn counts(&self, key: &str) -> Result<Vec<usize>, LoadError> {
        let count = |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|number| *number > 0);
        let list = |value: &'a Value| value.as_array()?.iter().map(count).collect();
        Ok(self.read(key, "a list of whole numbers of at least 1", list)?.unwrap_or_default())
    }

    /// A number of at least 1, however large.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, LoadError> {
        self.read(key, "a number of at least 1", |value| value.as_f64().filter(|number| *number >= 1.0))
    }

    /// An object inside this one.
    pub(crate) fn object(&self, key: &str) -> Result<Keys<'a>, LoadError> {
        let value = self.read(key, "an object", |value| value.is_object().then_some(value))?;
        Ok(Keys { file: self.file, value })
    }

    /// Refuses any value but `supported`; absent is fine.
    pub(crate) fn only(&self, key: &str, supported: &str) -> Result<(), LoadError> {
        match self.text(key)? {
            Some(value) if value != supported => Err(self.unsupported(key, supported)),
            _ => Ok(()),
        }
    }
}

/// A value for a message: its JSON, cut where it is long.
pub(crate) fn show(value: Option<&Value>) -> String {
    const LONGEST: usize = 120;
    let Some(value) = value else {
        return "nothing".to_owned();
    };
    let mut text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}
