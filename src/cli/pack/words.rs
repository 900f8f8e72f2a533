//! Numbers, nouns and running text as people read them.

/// Running text, every line after the first indented by two more than the first.
pub(super) fn wrapped(indent: &str, text: &str, width: usize) -> Vec<String> {
    hanging(indent, &format!("{indent}  "), text, width)
}

/// Running text that begins with `first`; every line after that begins with `rest`. Words are never cut.
pub(super) fn hanging(first: &str, rest: &str, text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line, mut empty) = (Vec::new(), first.to_owned(), true);
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
    lines
}

/// `1 GPU`, `3 GPUs`, `2 entries`, `2 kinds of change`.
pub(super) fn plural(count: usize, noun: &str) -> String {
    let many = match noun.split_once(' ') {
        _ if noun == "entry" => "entries".to_owned(),
        Some(("kind", rest)) => format!("kinds {rest}"),
        _ => format!("{noun}s"),
    };
    format!("{} {}", number(count as u64), if count == 1 { noun } else { &many })
}

/// With commas between thousands.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_nouns_read_well() {
        assert_eq!(
            (number(0), number(999), number(1_234_567)),
            ("0".into(), "999".into(), "1,234,567".into())
        );
        assert_eq!((plural(1, "GPU"), plural(2_000, "GPU")), ("1 GPU".into(), "2,000 GPUs".into()));
        assert_eq!(
            (plural(2, "entry"), plural(2, "kind of change")),
            ("2 entries".into(), "2 kinds of change".into())
        );
    }

    #[test]
    fn running_text_is_wrapped() {
        assert_eq!(wrapped("  ", "aa bb cc dd", 9), ["  aa bb", "    cc dd"]);
        assert_eq!(wrapped("", "a-word-too-long b", 4), ["a-word-too-long", "  b"]);
        assert_eq!(hanging("Pods  ", "      ", "aa bb cc", 11), ["Pods  aa bb", "      cc"]);
    }
}
