use proptest::prelude::*;

use super::*;

fn find(body: &str, pointer: &str) -> Result<Option<String>, Ambiguous> {
    let document = Node::document(body.as_bytes()).unwrap();
    let found = document.at(&Pointer::parse(pointer).unwrap())?;
    Ok(found.map(|node| String::from_utf8(node.raw().to_vec()).unwrap()))
}

fn text(body: &str) -> Option<Scalar<'_>> {
    Node::document(body.as_bytes()).unwrap().scalar()
}

/// The examples of RFC 6901, section 5.
#[test]
fn a_pointer_finds_what_the_standard_says() {
    let body = r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}"#;
    for (pointer, expected) in [
        ("", Some(body)),
        ("/foo", Some(r#"["bar","baz"]"#)),
        ("/foo/0", Some(r#""bar""#)),
        ("/foo/1", Some(r#""baz""#)),
        ("/", Some("0")),
        ("/a~1b", Some("1")),
        ("/c%d", Some("2")),
        ("/e^f", Some("3")),
        ("/g|h", Some("4")),
        ("/i\\j", Some("5")),
        ("/k\"l", Some("6")),
        ("/ ", Some("7")),
        ("/m~0n", Some("8")),
        ("/foo/2", None),
        ("/foo/00", None),
        ("/foo/-", None),
        ("/foo/+1", None),
        ("/foo/0/0", None),
        ("/none", None),
    ] {
        assert_eq!(
            find(body, pointer).unwrap().as_deref(),
            expected,
            "{pointer}"
        );
    }
    for wrong in ["foo", "/~", "/~2", "#/foo"] {
        assert_eq!(Pointer::parse(wrong), Err(NotPointer), "{wrong}");
    }
}

#[test]
fn a_value_keeps_its_bytes() {
    let body = " {\n\"a\" : [ 1.0 , {\"b\":\"\\u001B\\/\"} , 1E2 ,-0], \"z\":null }\r\n";
    for (pointer, expected) in [
        ("/a", "[ 1.0 , {\"b\":\"\\u001B\\/\"} , 1E2 ,-0]"),
        ("/a/0", "1.0"),
        ("/a/1", "{\"b\":\"\\u001B\\/\"}"),
        ("/a/1/b", "\"\\u001B\\/\""),
        ("/a/2", "1E2"),
        ("/a/3", "-0"),
        ("/z", "null"),
    ] {
        assert_eq!(find(body, pointer).unwrap().as_deref(), Some(expected));
        let document = Node::document(body.as_bytes()).unwrap();
        let node = document
            .at(&Pointer::parse(pointer).unwrap())
            .unwrap()
            .unwrap();
        assert_eq!(&body[node.range()], expected);
    }
}

#[test]
fn a_key_that_is_there_twice_is_ambiguous_and_one_beside_the_way_is_not() {
    for (body, pointer) in [
        (r#"{"id":"a","id":"b"}"#, "/id"),
        (r#"{"id":"a","x":{"id":1},"\u0069d":"b"}"#, "/id"),
        (r#"{"a":{"id":1},"a":{}}"#, "/a/id"),
        (r#"{"a":{"id":1,"id":1}}"#, "/a/id"),
    ] {
        assert_eq!(find(body, pointer), Err(Ambiguous), "{body}");
    }
    let body = r#"{"id":"a","x":1,"x":2,"y":{"id":3,"id":4}}"#;
    assert_eq!(find(body, "/id").unwrap().as_deref(), Some(r#""a""#));
}

#[test]
fn a_scalar_is_read_as_text() {
    let plain = |text: &'static str| Some(Scalar::Text(text.into()));
    for (body, expected) in [
        (r#""a b""#, plain("a b")),
        (r#""\"\\\/\b\f\n\r\t""#, plain("\"\\/\u{8}\u{c}\n\r\t")),
        (r#""\u00e9\ud83d\ude00x""#, plain("é😀x")),
        (r#""é😀""#, plain("é😀")),
        (r#""\u0000""#, plain("\0")),
        (r#""""#, plain("")),
        ("12.50", plain("12.50")),
        ("-1e-7", plain("-1e-7")),
        ("true", plain("true")),
        ("null", None),
        ("[]", None),
        ("{}", None),
        (r#""\ud83d""#, Some(Scalar::NoText)),
        (r#""\ude00\ud83d""#, Some(Scalar::NoText)),
        (r#""\ud83d\u0041""#, Some(Scalar::NoText)),
    ] {
        assert_eq!(text(body), expected, "{body}");
    }
}

#[test]
fn what_is_no_json_is_refused() {
    for (body, expected) in [
        (&b""[..], NotJson::Empty),
        (b" \r\n", NotJson::Empty),
        (b"\xEF\xBB\xBF{}", NotJson::ByteOrderMark),
        (b"\xFF\xFE{\0}\0", NotJson::Encoding(0)),
        (b"{\0}\0", NotJson::Syntax(1)),
        (b"{\"a\":\"\xC3\x28\"}", NotJson::Encoding(6)),
        (b"NaN", NotJson::Syntax(0)),
        (b"[Infinity]", NotJson::Syntax(1)),
        (b"{\"a\":1}{}", NotJson::Syntax(7)),
        (b"{\"a\":1,}", NotJson::Syntax(7)),
        (b"[1 2]", NotJson::Syntax(3)),
        (b"[1,]", NotJson::Syntax(3)),
        (b"{a:1}", NotJson::Syntax(1)),
        (b"{\"a\" 1}", NotJson::Syntax(5)),
        (b"\"\x01\"", NotJson::Syntax(1)),
        (b"\"\\x\"", NotJson::Syntax(1)),
        (b"\"\\u12g4\"", NotJson::Syntax(1)),
        (b"\"open", NotJson::Syntax(5)),
        (b"01", NotJson::Syntax(1)),
        (b"+1", NotJson::Syntax(0)),
        (b"1.", NotJson::Syntax(2)),
        (b".5", NotJson::Syntax(0)),
        (b"1e", NotJson::Syntax(2)),
        (b"-", NotJson::Syntax(1)),
        (b"[", NotJson::Syntax(1)),
        (b"[}", NotJson::Syntax(1)),
        (b"{]", NotJson::Syntax(1)),
        (b"1e401", NotJson::Number(0)),
        (b"[1,1e131071]", NotJson::Number(3)),
        (b"1E-99999999999999999999", NotJson::Number(0)),
    ] {
        assert_eq!(
            Node::document(body),
            Err(expected),
            "{}",
            body.escape_ascii()
        );
    }
}

#[test]
fn depth_and_numbers_end_at_their_limits() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(Node::document(nested(MAX_DEPTH).as_bytes()).is_ok());
    let deeper = Node::document(nested(MAX_DEPTH + 1).as_bytes()).unwrap_err();
    assert_eq!(deeper, NotJson::Depth(MAX_DEPTH));
    assert!(Node::document("[".repeat(1 << 20).as_bytes()).is_err());
    assert!(Node::document("9".repeat(MAX_NUMBER).as_bytes()).is_ok());
    let longer = "9".repeat(MAX_NUMBER + 1);
    assert_eq!(Node::document(longer.as_bytes()), Err(NotJson::Number(0)));
    assert!(Node::document(b"1e400").is_ok());
}

/// JSON, and bytes that are nearly JSON.
fn nearly_json() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\\n\"", "\"", "1", "-0", "0.5", "1e5", "true",
        "false", "null", " ", "\n", "\\", "é",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::hash_map(any::<String>(), inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Every place of a value with the pointer that names it.
fn places(value: &serde_json::Value, pointer: String, into: &mut Vec<String>) {
    match value {
        serde_json::Value::Array(list) => {
            for (index, inner) in list.iter().enumerate() {
                places(inner, format!("{pointer}/{index}"), into);
            }
        }
        serde_json::Value::Object(map) => {
            for (key, inner) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(inner, format!("{pointer}/{key}"), into);
            }
        }
        _ => {}
    }
    into.push(pointer);
}

proptest! {
    #[test]
    fn it_takes_what_another_reader_takes(text in nearly_json()) {
        let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text);
        let ours = Node::document(text.as_bytes());
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{}", text);
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            prop_assert_eq!(ours.raw(), theirs.get().as_bytes());
        }
    }

    #[test]
    fn a_pointer_finds_what_another_reader_finds(value in json(), pretty: bool) {
        let body = if pretty {
            serde_json::to_string_pretty(&value)
        } else {
            serde_json::to_string(&value)
        };
        let body = body.unwrap();
        let mut pointers = Vec::new();
        places(&value, String::new(), &mut pointers);
        let document = Node::document(body.as_bytes()).unwrap();
        for pointer in pointers {
            let found = document.at(&Pointer::parse(&pointer).unwrap()).unwrap().unwrap();
            let found: serde_json::Value = serde_json::from_slice(found.raw()).unwrap();
            prop_assert_eq!(Some(&found), value.pointer(&pointer));
        }
    }

    #[test]
    fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Node::document(&bytes);
    }
}
