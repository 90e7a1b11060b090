//! What the safetensors library does not tell about a header: names that occur twice, and how long the file should be.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// Facts about a header that are independent of the file's length.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outline {
    /// The first tensor name that occurs twice. A map of names would keep the last silently.
    pub duplicate: Option<String>,
    /// Largest end offset of any tensor: bytes of data that should follow the header.
    pub data_bytes: u64,
}

impl Outline {
    /// Reads the JSON part of a header.
    pub(super) fn read(json: &str) -> Result<Outline, serde_json::Error> {
        serde_json::from_str(json)
    }
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    data_offsets: Option<(u64, u64)>,
    #[serde(flatten)]
    _rest: IgnoredAny,
}

impl<'de> Deserialize<'de> for Outline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Outline;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a safetensors header: an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outline, A::Error> {
                let mut outline = Outline::default();
                let mut seen = HashSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let entry: Entry = map.next_value()?;
                    let end = entry.data_offsets.map_or(0, |(_, end)| end);
                    outline.data_bytes = outline.data_bytes.max(end);
                    if !seen.insert(name.clone()) {
                        outline.duplicate.get_or_insert(name);
                    }
                }
                Ok(outline)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_that_occur_twice_and_the_end_of_the_data() {
        let json = r#"{"__metadata__":{"format":"pt"},
            "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
            "b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},
            "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        let outline = Outline::read(json).unwrap();
        assert_eq!(outline, Outline { duplicate: Some("a".to_owned()), data_bytes: 12 });
    }

    #[test]
    fn is_an_error_when_it_is_no_object() {
        assert!(Outline::read("[1, 2]").is_err());
    }
}
