// SPDX-License-Identifier: BSD-3-Clause
//! Parses counters as librpma writes them: lines of a name, labels and a value (the exposition format of
//! Prometheus and OpenMetrics).

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: Vec<(String, String)>,
    pub(super) value: f64,
}

impl Sample {
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// All samples of a text, or the first line that is not one.
pub(super) fn parse(text: &str) -> Result<Vec<Sample>, String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| sample(line).ok_or_else(|| line.chars().take(80).collect())).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = line.find(|c| !is_part(c))?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (key, value) = rest.split_once("=\"")?;
            let (value, after) = unquoted(value)?;
            labels.push((key.trim().to_owned(), value));
            rest = after;
        }
    }
    // A timestamp may follow and, in OpenMetrics, an exemplar.
    let value = rest.strip_prefix(' ')?.split_whitespace().next()?;
    let is_named = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
    let value = value.parse().ok().filter(|_| is_named)?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// The value of a label, and the text after its closing quote.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            _ => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Option<Sample> {
        parse(line).ok().and_then(|mut samples| samples.pop())
    }

    #[test]
    fn lines() {
        let sample = |name: &str, labels: &[(&str, &str)], value| {
            let labels = labels.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            Some(Sample { name: name.to_owned(), labels, value })
        };
        for (line, expected) in [
            ("rpma_regions 3", sample("rpma_regions", &[], 3.0)),
            ("a{} 1.5e3 1700000000", sample("a", &[], 1500.0)),
            ("a_total{op=\"write\"} 7", sample("a_total", &[("op", "write")], 7.0)),
            ("a{b=\"1\",c=\"x y, z}\"} 0", sample("a", &[("b", "1"), ("c", "x y, z}")], 0.0)),
            ("a{b=\"\\\"\\\\\\n\"} 1", sample("a", &[("b", "\"\\\n")], 1.0)),
            ("a{le=\"+Inf\",} +Inf", sample("a", &[("le", "+Inf")], f64::INFINITY)),
        ] {
            assert_eq!(one(line), expected, "{line}");
        }
        for line in [
            "a",
            "a ",
            "a x",
            "{b=\"c\"} 1",
            "a{b} 1",
            "a{b=\"c} 1",
            "a{b=\"c\" 1",
            "1a 1",
            "a{b=\"c\"}1",
            "\u{e4} 1",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert_eq!(parse("# HELP a b\n\n# EOF\n"), Ok(vec![]));
        assert_eq!(parse("a 1\nnonsense\n"), Err("nonsense".to_owned()));
    }
}
