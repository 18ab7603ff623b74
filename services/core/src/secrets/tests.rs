use proptest::prelude::*;

use super::*;

const AAD: &[u8] = b"ep_1";

fn config(id: &str, byte: u8) -> MasterKeyConfig {
    MasterKeyConfig {
        id: id.to_owned(),
        key: SecretString::from(STANDARD.encode([byte; 32])),
    }
}

fn keys(entries: &[(&str, u8)]) -> MasterKeys {
    let config: Vec<_> = entries.iter().map(|(id, byte)| config(id, *byte)).collect();
    MasterKeys::new(&config).unwrap()
}

fn open(keys: &MasterKeys, stored: &[u8], aad: &[u8]) -> Result<Vec<u8>, Error> {
    keys.decrypt(stored, aad)
        .map(|secret| secret.expose_secret().to_vec())
}

#[test]
fn a_secret_comes_back_under_its_own_context_only() {
    let keys = keys(&[("k1", 1)]);
    let stored = keys.encrypt(b"secret", AAD).unwrap();
    assert_eq!(open(&keys, &stored, AAD), Ok(b"secret".to_vec()));
    let wrong = Err(Error::WrongKey { id: "k1".into() });
    assert_eq!(open(&keys, &stored, b"ep_2"), wrong);
    assert_eq!(open(&keys, &stored, b""), wrong);
}

#[test]
fn equal_secrets_have_unequal_envelopes() {
    let keys = keys(&[("k1", 1)]);
    assert_ne!(keys.encrypt(b"x", AAD), keys.encrypt(b"x", AAD));
}

#[test]
fn rotation_reads_with_the_old_key_and_writes_with_the_new() {
    let before = keys(&[("k1", 1)]);
    let stored = before.encrypt(b"secret", AAD).unwrap();
    assert_eq!(before.needs_rotation(&stored), Ok(false));

    let during = keys(&[("k2", 2), ("k1", 1)]);
    assert_eq!(during.current_id(), "k2");
    assert_eq!(open(&during, &stored, AAD), Ok(b"secret".to_vec()));
    assert_eq!(during.needs_rotation(&stored), Ok(true));
    let rotated = during.encrypt(b"secret", AAD).unwrap();
    assert_eq!(during.needs_rotation(&rotated), Ok(false));

    let after = keys(&[("k2", 2)]);
    assert_eq!(open(&after, &rotated, AAD), Ok(b"secret".to_vec()));
    assert_eq!(
        open(&after, &stored, AAD),
        Err(Error::UnknownKey { id: "k1".into() })
    );
}

#[test]
fn a_changed_master_key_is_found_by_the_check_value_and_said_clearly() {
    let right = keys(&[("k1", 1)]);
    let check = right.check_value().unwrap();
    assert_eq!(right.verify_check_value(&check), Ok(()));
    assert_eq!(
        keys(&[("k2", 2), ("k1", 1)]).verify_check_value(&check),
        Ok(())
    );

    let changed = keys(&[("k1", 9)]).verify_check_value(&check).unwrap_err();
    assert_eq!(changed, Error::WrongKey { id: "k1".into() });
    let text = changed.to_string();
    assert!(
        text.starts_with("the master key `k1` does not decrypt"),
        "{text}"
    );
    assert!(text.contains("was it changed?"), "{text}");

    let missing = keys(&[("k2", 1)]).verify_check_value(&check).unwrap_err();
    assert!(missing.to_string().contains("`k1` is not in the config"));
    let secret = right.encrypt(b"secret", AAD).unwrap();
    assert!(right.verify_check_value(&secret).is_err());
}

#[test]
fn a_keyring_without_sound_keys_is_refused() {
    let new = |config: &[MasterKeyConfig]| MasterKeys::new(config).map(|_| ()).unwrap_err();
    assert_eq!(new(&[]), InvalidKeyring::Empty);
    for id in ["", "a b", "a.b", "\u{e4}", &"x".repeat(33)] {
        assert_eq!(new(&[config("k", 2), config(id, 1)]), InvalidKeyring::Id(2));
    }
    assert_eq!(
        new(&[config("a", 1), config("a", 2)]),
        InvalidKeyring::Repeated(2)
    );
    for text in ["", "AAAA", "not base64!", &STANDARD.encode([1; 33])] {
        let entry = MasterKeyConfig {
            id: "a".to_owned(),
            key: SecretString::from(text.to_owned()),
        };
        assert_eq!(new(&[entry]), InvalidKeyring::Key(1));
    }
    assert_eq!(new(&[config("a", 0)]), InvalidKeyring::Zeros(1));
}

#[test]
fn a_key_in_the_place_of_an_id_is_refused_and_not_shown() {
    let key = STANDARD.encode([0x5a; 32]);
    let unpadded = key.trim_end_matches('=').to_owned();
    for id in [key, unpadded] {
        let entry = config(&id, 1);
        assert!(!format!("{entry:?}").contains(&id), "{entry:?}");
        let error = MasterKeys::new(&[entry]).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!text.contains(&id) && text.contains("number 1"), "{text}");
    }
}

#[test]
fn keys_are_shown_nowhere() {
    let config: MasterKeyConfig = toml::from_str(&format!(
        "id = \"k1\"\nkey = \"{}\"",
        STANDARD.encode([0x5a; 32])
    ))
    .unwrap();
    let keys = MasterKeys::new(std::slice::from_ref(&config)).unwrap();
    let secret = keys.decrypt(&keys.encrypt(b"WlpaWlpa", AAD).unwrap(), AAD);
    let shown = format!("{config:?} {keys:?} {secret:?}");
    // Base64, hexadecimal and decimal forms of the bytes.
    for form in ["WlpaWlpa", "5a5a", "90, 90"] {
        assert!(!shown.contains(form), "{shown}");
    }
    assert!(shown.contains("k1"));
    let mut bad = config;
    bad.key = SecretString::from("canary".to_owned());
    let error = MasterKeys::new(&[bad]).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("canary"));
}

#[test]
fn malformed_envelopes_are_told_from_wrong_keys() {
    let keys = keys(&[("k1", 1)]);
    let stored = keys.encrypt(b"x", AAD).unwrap();
    for end in 0..stored.len() {
        assert!(open(&keys, &stored[..end], AAD).is_err(), "{end}");
    }
    for bad in [
        &b""[..],
        b"\x01",
        b"\x02\x02k1",
        b"\x01\x00",
        b"\x01\x21",
        b"whsec_AAAA",
    ] {
        assert!(matches!(open(&keys, bad, AAD), Err(Error::Malformed(_))));
        assert!(keys.needs_rotation(bad).is_err());
    }
}

#[test]
fn new_secrets_and_keys_are_sound_and_differ() {
    let one = generate_signing_secret().reveal();
    assert_eq!(Secret::parse(&one).unwrap().reveal(), one);
    assert_eq!(STANDARD.decode(&one["whsec_".len()..]).unwrap().len(), 32);
    assert_ne!(one, generate_signing_secret().reveal());
    let entry = MasterKeyConfig {
        id: "k".to_owned(),
        key: generate_master_key(),
    };
    assert!(MasterKeys::new(&[entry]).is_ok());
}

proptest! {
    #[test]
    fn any_secret_survives_and_any_flipped_bit_is_noticed(
        plaintext in proptest::collection::vec(any::<u8>(), 0..100),
        aad in proptest::collection::vec(any::<u8>(), 0..40),
        flip in any::<proptest::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let keys = keys(&[("k1", 1), ("k0", 7)]);
        let mut stored = keys.encrypt(&plaintext, &aad).unwrap();
        prop_assert_eq!(open(&keys, &stored, &aad), Ok(plaintext));
        let at = flip.index(stored.len());
        stored[at] ^= 1 << bit;
        prop_assert!(open(&keys, &stored, &aad).is_err());
    }

    #[test]
    fn no_bytes_panic(stored in proptest::collection::vec(any::<u8>(), 0..80)) {
        let keys = keys(&[("k1", 1)]);
        prop_assert!(open(&keys, &stored, AAD).is_err());
        let _ = keys.needs_rotation(&stored);
    }
}
