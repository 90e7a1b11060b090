use crate::{Isa, IsaError};

#[test]
fn the_best_comes_first_and_every_cpu_has_the_portable_one() {
    let available = Isa::available();
    assert_eq!(available.first(), Some(&Isa::best()));
    assert_eq!(available.last().map(|isa| isa.name()), Some("portable"));
}

#[test]
fn names_lead_back() {
    for isa in Isa::available() {
        assert_eq!(Isa::from_name(isa.name()), Ok(isa));
    }
}

#[test]
fn a_name_that_is_no_name_is_refused_with_the_valid_ones() {
    let error = Isa::from_name("sse9").expect_err("there is no SSE9");
    assert_eq!(error, IsaError::Unknown { name: "sse9".to_owned() });
    assert_eq!(error.to_string(), r#"unknown instruction set "sse9": expected one of avx512, avx2, portable"#);
}

#[test]
fn an_instruction_set_that_the_cpu_lacks_is_refused_with_what_it_has() {
    for name in ["avx512", "avx2", "portable"] {
        if Isa::available().iter().all(|isa| isa.name() != name) {
            let error = Isa::from_name(name).expect_err("this CPU does not have it");
            assert_eq!(error, IsaError::Unavailable { name: name.to_owned() });
            assert!(error.to_string().ends_with("portable"), "{error}");
        }
    }
    let error = IsaError::Unavailable { name: "avx512".to_owned() };
    assert!(error.to_string().contains(Isa::best().name()), "{error}");
}

#[test]
fn panels_are_two_vectors_wide() {
    for isa in Isa::available() {
        let expected = match isa.name() {
            "avx512" => (32, 12),
            "avx2" => (16, 6),
            _ if cfg!(target_arch = "aarch64") => (16, 6),
            _ => (8, 6),
        };
        assert_eq!((isa.panel_width(), isa.tile_rows()), expected, "{}", isa.name());
    }
}

#[test]
fn an_absent_or_blank_setting_means_the_best() {
    for value in [None, Some(""), Some("  ")] {
        assert_eq!(Isa::from_setting(value), Ok(Isa::best()), "{value:?}");
    }
    for isa in Isa::available() {
        assert_eq!(Isa::from_setting(Some(&format!(" {} ", isa.name()))), Ok(isa));
    }
    // A misspelt setting must not silently compute with something else.
    assert_eq!(Isa::from_setting(Some("AVX2")), Err(IsaError::Unknown { name: "AVX2".to_owned() }));
}
