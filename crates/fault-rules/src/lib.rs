// SPDX-License-Identifier: BSD-3-Clause
//! The rules of fault injection and their syntax: `softverbs` injects the faults, `rpma run --faults` checks
//! the rules before it starts a program.
//!
//! ```text
//! rules   = [item] *( ";" [item] )
//! item    = "seed=" NUMBER  |  event ":" action "@" trigger
//! action  = "reject"  |  "delay=" NUMBER ("us" | "ms" | "s")  |  "RETRY_EXC"  |  ...      depends on the event
//! trigger = "p=" FRACTION  |  "op=" NUMBER  |  "n=" NUMBER  |  "every=" NUMBER
//! ```
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

use winnow::Parser;
use winnow::combinator::{eof, opt, separated};
use winnow::error::{ErrMode, ModalResult, ParserError};
use winnow::token::{literal, take_while};

/// The kinds of event that can fail. Each rule counts the events of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This process requests a connection.
    Connect,
    /// A connection request arrives at a listener of this process.
    Accept,
    /// A write is posted to a send queue.
    Write,
    /// A read is posted to a send queue.
    Read,
    /// A send is posted to a send queue.
    Send,
    /// An atomic operation is posted to a send queue.
    Atomic,
    /// Any work request is posted to a send queue.
    Peer,
    /// A signalled work request is posted to a send queue.
    Wc,
    /// A peer flushes memory of this process to persistence.
    Msync,
}

/// The fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The connection is rejected.
    Reject,
    /// The peer does not respond.
    Timeout,
    /// No route leads to the peer.
    Unreachable,
    /// The operation is delayed by this time.
    Delay(Duration),
    /// The connection is reset.
    Kill,
    /// The work request fails with this value of `enum ibv_wc_status`.
    Status(u32),
    /// The call fails with this error number.
    Errno(i32),
}

/// The events at which a rule fires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trigger {
    /// Each event, with this probability.
    Chance(f64),
    /// The event with this number, counted from 1.
    At(u64),
    /// Each event whose number is a multiple of this.
    Every(u64),
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The kind of event that it counts.
    pub event: Event,
    /// The fault to inject when it fires.
    pub action: Action,
    /// The events at which it fires.
    pub trigger: Trigger,
    /// The text of the rule.
    pub text: String,
}

/// All rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    /// The seed of the random numbers for probabilities.
    pub seed: u64,
    /// The rules in the order of the text.
    pub rules: Vec<Rule>,
}

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The character, counted from 1.
    at: usize,
    /// The word that begins there; empty at the end.
    part: String,
    /// What was expected there.
    expected: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, part, expected } = self;
        if part.is_empty() {
            write!(f, "it ends at character {at}, where {expected} is expected")
        } else {
            write!(f, "{part:?} at character {at} is not {expected}")
        }
    }
}

/// The rest of the text at which a parser stopped, and what it expected there.
#[derive(Debug)]
struct Stop {
    left: usize,
    expected: String,
}

impl ParserError<&str> for Stop {
    type Inner = Self;

    fn from_input(input: &&str) -> Self {
        Self { left: input.len(), expected: String::new() }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

type Parsed<T> = ModalResult<T, Stop>;

const EVENTS: [(&str, Event); 9] = [
    ("connect", Event::Connect),
    ("accept", Event::Accept),
    ("write", Event::Write),
    ("read", Event::Read),
    ("send", Event::Send),
    ("atomic", Event::Atomic),
    ("peer", Event::Peer),
    ("wc", Event::Wc),
    ("msync", Event::Msync),
];

/// The names of `enum ibv_wc_status`, without their prefix, with which a request of a reliable connection can
/// fail.
const STATUSES: [(&str, Action); 12] = [
    ("RETRY_EXC", Action::Status(12)),
    ("RNR_RETRY_EXC", Action::Status(13)),
    ("LOC_LEN", Action::Status(1)),
    ("LOC_QP_OP", Action::Status(2)),
    ("LOC_PROT", Action::Status(4)),
    ("BAD_RESP", Action::Status(7)),
    ("REM_INV_REQ", Action::Status(9)),
    ("REM_ACCESS", Action::Status(10)),
    ("REM_OP", Action::Status(11)),
    ("REM_ABORT", Action::Status(16)),
    ("FATAL", Action::Status(19)),
    ("GENERAL", Action::Status(21)),
];

impl Event {
    /// The actions of this event besides a delay.
    fn actions(self) -> &'static [(&'static str, Action)] {
        match self {
            Self::Connect => &[
                ("reject", Action::Reject),
                ("timeout", Action::Timeout),
                ("unreachable", Action::Unreachable),
            ],
            Self::Accept => &[("reject", Action::Reject)],
            Self::Write | Self::Read | Self::Send | Self::Atomic => &[],
            Self::Peer => &[("kill", Action::Kill)],
            Self::Wc => &STATUSES,
            Self::Msync => &[
                ("EIO", Action::Errno(libc::EIO)),
                ("ENOSPC", Action::Errno(libc::ENOSPC)),
                ("EDQUOT", Action::Errno(libc::EDQUOT)),
            ],
        }
    }

    fn can_be_delayed(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::Send | Self::Atomic | Self::Msync)
    }

    fn name(self) -> &'static str {
        EVENTS.iter().find(|(_, event)| *event == self).map_or("", |(name, _)| name)
    }

    /// The expectation after the colon, for error messages.
    fn expects(self) -> String {
        let delay = self.can_be_delayed().then_some("delay=TIME");
        let mut names: Vec<&str> = self.actions().iter().map(|(name, _)| *name).collect();
        names.extend(delay);
        format!("an action of {} ({})", self.name(), names.join(", "))
    }
}

/// Parses a text into rules.
pub fn parse(text: &str) -> Result<Spec, ParseError> {
    spec.parse(text).map_err(|e| {
        let Stop { left, expected } = e.into_inner();
        let rest = &text[text.len() - left..];
        let is_end = |c: char| matches!(c, ';' | ':' | '@' | '=') || c.is_whitespace();
        // If the text begins with an unexpected delimiter, show that, too.
        let len = rest.char_indices().skip(1).find(|(_, c)| is_end(*c)).map_or(rest.len(), |(at, _)| at);
        let at = 1 + text[..text.len() - left].chars().count();
        ParseError { at, part: rest[..len].to_owned(), expected }
    })
}

/// An error at the beginning of `at`.
fn stop<T>(at: &str, expected: impl Into<String>) -> Parsed<T> {
    Err(ErrMode::Cut(Stop { left: at.len(), expected: expected.into() }))
}

enum Item {
    Nothing,
    Seed(u64),
    Rule(Rule),
}

fn spec(input: &mut &str) -> Parsed<Spec> {
    let items: Vec<Item> = separated(0.., item, ';').parse_next(input)?;
    let _: &str = eof(input).or_else(|_: ErrMode<Stop>| stop(input, "a semicolon"))?;
    let mut spec = Spec::default();
    for item in items {
        match item {
            Item::Nothing => {}
            Item::Seed(seed) => spec.seed = seed,
            Item::Rule(rule) => spec.rules.push(rule),
        }
    }
    Ok(spec)
}

fn spaces(input: &mut &str) -> Parsed<()> {
    take_while(0.., char::is_whitespace).void().parse_next(input)
}

fn item(input: &mut &str) -> Parsed<Item> {
    spaces(input)?;
    let item = match input.chars().next() {
        None | Some(';') => Item::Nothing,
        Some(_) if opt(literal("seed=")).parse_next(input)?.is_some() => {
            Item::Seed(number(input, "a number from 0 to 18446744073709551615")?)
        }
        Some(_) => {
            let before = *input;
            let (event, action, trigger) = rule(input)?;
            let text = before[..before.len() - input.len()].to_owned();
            Item::Rule(Rule { event, action, trigger, text })
        }
    };
    spaces(input)?;
    Ok(item)
}

fn rule(input: &mut &str) -> Parsed<(Event, Action, Trigger)> {
    let event = event(input)?;
    sign(input, ':', format!("a colon and {}", event.expects()))?;
    let action = action(input, event)?;
    sign(input, '@', "@ and a trigger: p=, op=, n= or every=")?;
    Ok((event, action, trigger(input)?))
}

fn sign(input: &mut &str, which: char, expected: impl Into<String>) -> Parsed<()> {
    match opt(which).parse_next(input)? {
        Some(_) => Ok(()),
        None => stop(input, expected),
    }
}

fn word<'a>(input: &mut &'a str) -> Parsed<&'a str> {
    take_while(0.., |c: char| c.is_alphanumeric() || c == '_').parse_next(input)
}

fn event(input: &mut &str) -> Parsed<Event> {
    let before = *input;
    let name = word(input)?;
    if let Some((_, event)) = EVENTS.iter().find(|(known, _)| *known == name) {
        return Ok(*event);
    }
    if name == "flush" {
        return stop(
            before,
            "a separate event: a flush is an RDMA Read (read), and one to persistence a msync at the target",
        );
    }
    let names: Vec<&str> = EVENTS.iter().map(|(name, _)| *name).collect();
    stop(before, format!("one of seed=NUMBER, {}", names.join(", ")))
}

fn action(input: &mut &str, event: Event) -> Parsed<Action> {
    let before = *input;
    let name = word(input)?;
    if name == "delay" && event.can_be_delayed() {
        sign(input, '=', "= and a time, for example 2ms")?;
        return duration(input).map(Action::Delay);
    }
    // The name of enum ibv_wc_status, with or without prefix.
    let short = match event {
        Event::Wc => {
            let name = name.strip_prefix("IBV_WC_").unwrap_or(name);
            name.strip_suffix("_ERR").unwrap_or(name)
        }
        _ => name,
    };
    match event.actions().iter().find(|(known, _)| *known == short) {
        Some((_, action)) => Ok(*action),
        None => stop(before, event.expects()),
    }
}

fn trigger(input: &mut &str) -> Parsed<Trigger> {
    const COUNT: &str = "a number from 1 on";
    let before = *input;
    let name = word(input)?;
    if !matches!(name, "p" | "op" | "n" | "every") {
        return stop(before, "a trigger: p=, op=, n= or every=");
    }
    sign(input, '=', "= and a number")?;
    let from = *input;
    if name == "p" {
        return fraction(input).map(Trigger::Chance);
    }
    match (number(input, COUNT)?, name) {
        (0, _) => stop(from, COUNT),
        (count, "every") => Ok(Trigger::Every(count)),
        (count, _) => Ok(Trigger::At(count)),
    }
}

fn number(input: &mut &str, expected: &str) -> Parsed<u64> {
    let before = *input;
    let digits: &str = take_while(0.., '0'..='9').parse_next(input)?;
    match digits.parse() {
        Ok(number) => Ok(number),
        Err(_) => stop(before, expected),
    }
}

fn fraction(input: &mut &str) -> Parsed<f64> {
    let before = *input;
    let digits: &str = take_while(0.., ('0'..='9', '.')).parse_next(input)?;
    match digits.parse() {
        Ok(fraction) if (0.0..=1.0).contains(&fraction) => Ok(fraction),
        _ => stop(before, "a probability from 0 to 1, for example 0.01"),
    }
}

fn duration(input: &mut &str) -> Parsed<Duration> {
    const TIME: &str = "a time from 1us to 3600s, in us, ms or s";
    let before = *input;
    let number = number(input, TIME)?;
    let unit = match word(input)? {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return stop(before, TIME),
    };
    match number.checked_mul(unit) {
        Some(us @ 1..=3_600_000_000) => Ok(Duration::from_micros(us)),
        _ => stop(before, TIME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<(Event, Action, Trigger)> {
        let rules = parse(text).unwrap().rules;
        rules.into_iter().map(|rule| (rule.event, rule.action, rule.trigger)).collect()
    }

    fn wrong(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_rules_of_the_manual_are_read() {
        let text = "seed=7; connect:reject@p=0.1; write:delay=2ms@p=0.01; peer:kill@op=1000; wc:RETRY_EXC@op=50; msync:EIO@n=3";
        let expected = [
            (Event::Connect, Action::Reject, Trigger::Chance(0.1)),
            (Event::Write, Action::Delay(Duration::from_millis(2)), Trigger::Chance(0.01)),
            (Event::Peer, Action::Kill, Trigger::At(1000)),
            (Event::Wc, Action::Status(12), Trigger::At(50)),
            (Event::Msync, Action::Errno(libc::EIO), Trigger::At(3)),
        ];
        assert_eq!(rules(text), expected);
        let spec = parse(text).unwrap();
        assert_eq!((spec.seed, spec.rules[1].text.as_str()), (7, "write:delay=2ms@p=0.01"));
    }

    #[test]
    fn each_event_accepts_each_of_its_actions() {
        for (name, event) in EVENTS {
            for (word, action) in event.actions() {
                assert_eq!(rules(&format!("{name}:{word}@n=1")), [(event, *action, Trigger::At(1))]);
            }
            let delayed = parse(&format!("{name}:delay=1us@n=1"));
            assert_eq!(delayed.is_ok(), event.can_be_delayed(), "{name}");
            assert_eq!(
                delayed.is_err(),
                matches!(event, Event::Connect | Event::Accept | Event::Peer | Event::Wc)
            );
        }
    }

    #[test]
    fn spaces_and_empty_items_are_ignored() {
        for nothing in ["", " ", ";", " ; ;", "seed=0"] {
            assert_eq!(parse(nothing), Ok(Spec::default()), "{nothing:?}");
        }
        assert_eq!(parse(" seed=18446744073709551615 ").unwrap().seed, u64::MAX);
        let spec = parse(";\tsend:delay=3s@every=5 \n;;read:delay=70us@p=1;").unwrap();
        assert_eq!(spec.rules[0].text, "send:delay=3s@every=5");
        assert_eq!(spec.rules[0].trigger, Trigger::Every(5));
        assert_eq!(spec.rules[1].action, Action::Delay(Duration::from_micros(70)));
    }

    #[test]
    fn a_status_has_the_name_that_verbs_give_it() {
        for name in ["REM_ACCESS", "REM_ACCESS_ERR", "IBV_WC_REM_ACCESS_ERR"] {
            let expected = [(Event::Wc, Action::Status(10), Trigger::Chance(0.5))];
            assert_eq!(rules(&format!("wc:{name}@p=.5")), expected);
        }
        // No request fails with these on its own.
        for name in ["SUCCESS", "WR_FLUSH_ERR", "IBV_WC_", ""] {
            assert!(wrong(&format!("wc:{name}@n=1")).contains("an action of wc (RETRY_EXC, "), "{name}");
        }
    }

    #[test]
    fn an_error_has_its_position_and_what_was_expected() {
        const EVENT: &str = "one of seed=NUMBER, connect, accept, write, read, send, atomic, peer, wc, msync";
        for (text, expected) in [
            ("wirte:delay=2ms@p=1", format!("\"wirte\" at character 1 is not {EVENT}")),
            ("seed=7; conn:reject@p=1", format!("\"conn\" at character 9 is not {EVENT}")),
            (":reject@p=1", format!("\":reject\" at character 1 is not {EVENT}")),
            ("seed", format!("\"seed\" at character 1 is not {EVENT}")),
            ("seed=-1", "\"-1\" at character 6 is not a number from 0 to 18446744073709551615".into()),
            (
                "seed=18446744073709551616",
                "\"18446744073709551616\" at character 6 is not a number from 0 to 18446744073709551615"
                    .into(),
            ),
            (
                "write",
                "it ends at character 6, where a colon and an action of write (delay=TIME) is expected"
                    .into(),
            ),
            ("write:reject@p=1", "\"reject\" at character 7 is not an action of write (delay=TIME)".into()),
            (
                "connect:kill@n=1",
                "\"kill\" at character 9 is not an action of connect (reject, timeout, unreachable)".into(),
            ),
            ("peer:delay=1ms@n=1", "\"delay\" at character 6 is not an action of peer (kill)".into()),
            (
                "msync:EPERM@n=1",
                "\"EPERM\" at character 7 is not an action of msync (EIO, ENOSPC, EDQUOT, delay=TIME)".into(),
            ),
            ("write:delay@p=1", "\"@p\" at character 12 is not = and a time, for example 2ms".into()),
            (
                "write:delay=2@p=1",
                "\"2\" at character 13 is not a time from 1us to 3600s, in us, ms or s".into(),
            ),
            (
                "write:delay=0ms@p=1",
                "\"0ms\" at character 13 is not a time from 1us to 3600s, in us, ms or s".into(),
            ),
            (
                "write:delay=3601s@p=1",
                "\"3601s\" at character 13 is not a time from 1us to 3600s, in us, ms or s".into(),
            ),
            (
                "write:delay=2ms",
                "it ends at character 16, where @ and a trigger: p=, op=, n= or every= is expected".into(),
            ),
            ("write:delay=2ms@q=1", "\"q\" at character 17 is not a trigger: p=, op=, n= or every=".into()),
            ("write:delay=2ms@p", "it ends at character 18, where = and a number is expected".into()),
            (
                "write:delay=2ms@p=1.1",
                "\"1.1\" at character 19 is not a probability from 0 to 1, for example 0.01".into(),
            ),
            (
                "write:delay=2ms@p=0.0.1",
                "\"0.0.1\" at character 19 is not a probability from 0 to 1, for example 0.01".into(),
            ),
            ("peer:kill@op=0", "\"0\" at character 14 is not a number from 1 on".into()),
            ("peer:kill@every=", "it ends at character 17, where a number from 1 on is expected".into()),
            ("peer:kill@op=5, wc:FATAL@n=1", "\",\" at character 15 is not a semicolon".into()),
            ("peer:kill@op=5 wc:FATAL@n=1", "\"wc\" at character 16 is not a semicolon".into()),
            ("seed=1; größe:kill@n=1", format!("\"größe\" at character 9 is not {EVENT}")),
            ("peer:kill@n=1;é@", format!("\"é\" at character 15 is not {EVENT}")),
        ] {
            assert_eq!(wrong(text), expected, "{text}");
        }
        assert!(wrong("flush:delay=1ms@p=1").contains("a flush is an RDMA Read"));
    }

    #[test]
    fn a_text_with_one_mistake_is_valid_or_the_error_has_its_position() {
        let text =
            "seed=7; connect:reject@p=0.1; write:delay=2ms@p=0.01; wc:RETRY_EXC@op=50; msync:EIO@every=3";
        let (mut wrong, mut right) = (0, 0);
        for at in 0..=text.len() {
            for put in ["", ";", ":", "@", "=", " ", "0", ".", "é", "\0", "seed=1"] {
                for len in 0..=1.min(text.len() - at) {
                    let changed = format!("{}{put}{}", &text[..at], &text[at + len..]);
                    match parse(&changed) {
                        Ok(spec) => right += usize::from(!spec.rules.is_empty()),
                        Err(ParseError { at: place, part, expected }) => {
                            let rest: String = changed.chars().skip(place - 1).collect();
                            assert!(
                                rest.starts_with(&part) && part.is_empty() == rest.is_empty(),
                                "{changed}"
                            );
                            // The error is at the mistake or at the word that contains it.
                            assert!(
                                place > at.saturating_sub(13) && !expected.is_empty(),
                                "{changed}: {place} {part}"
                            );
                            wrong += 1;
                        }
                    }
                }
            }
        }
        assert!(wrong > 500 && right > 100, "{wrong} wrong, {right} right");
    }
}
