//! Metric math, as far as the alarms and the dashboard use it. A missing value stays missing, except in `FILL`.

/// The value of an expression in one period; `metric` returns the value of a metric there.
pub(super) fn value(expression: &str, metric: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
    let mut parser = Parser { tokens: tokens(expression), next: 0, metric };
    let values = parser.comparison();
    assert_eq!(parser.next, parser.tokens.len(), "{expression}");
    let [value] = values[..] else { panic!("{expression} is a list") };
    value
}

fn tokens(expression: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let is_word = |character: char| character.is_alphanumeric() || ['.', '_'].contains(&character);
    for character in expression.chars().filter(|character| !character.is_whitespace()) {
        match tokens.last_mut() {
            Some(last) if is_word(character) && last.chars().all(is_word) => last.push(character),
            _ => tokens.push(character.to_string()),
        }
    }
    tokens
}

struct Parser<'a> {
    tokens: Vec<String>,
    next: usize,
    metric: &'a dyn Fn(&str) -> Option<f64>,
}

/// One value, or the elements of a list.
type Values = Vec<Option<f64>>;

impl Parser<'_> {
    fn peek(&self) -> &str {
        self.tokens.get(self.next).map_or("", String::as_str)
    }

    fn take(&mut self) -> String {
        self.next += 1;
        self.tokens[self.next - 1].clone()
    }

    fn expect(&mut self, token: &str) {
        assert_eq!(self.take(), token);
    }

    fn comparison(&mut self) -> Values {
        let left = self.sum();
        if self.peek() != ">" {
            return left;
        }
        self.take();
        let right = self.sum();
        vec![both(&left, &right, |left, right| f64::from(u8::from(left > right)))]
    }

    fn sum(&mut self) -> Values {
        let mut left = self.product();
        while ["+", "-"].contains(&self.peek()) {
            let adds = self.take() == "+";
            let right = self.product();
            left = vec![both(&left, &right, |left, right| if adds { left + right } else { left - right })];
        }
        left
    }

    fn product(&mut self) -> Values {
        let mut left = self.operand();
        while ["*", "/"].contains(&self.peek()) {
            let multiplies = self.take() == "*";
            let right = self.operand();
            left = vec![both(&left, &right, |left, right| if multiplies { left * right } else { left / right })];
        }
        left
    }

    fn operand(&mut self) -> Values {
        let token = self.take();
        if let Ok(number) = token.parse() {
            return vec![Some(number)];
        }
        if token == "(" {
            let inner = self.comparison();
            self.expect(")");
            return inner;
        }
        if token == "[" {
            return self.arguments("]").concat();
        }
        if self.peek() != "(" {
            return vec![(self.metric)(&token)];
        }
        self.take();
        let arguments = self.arguments(")");
        match token.as_str() {
            "FILL" => vec![arguments[0][0].or(arguments[1][0])],
            "IF" => vec![arguments[0][0].and_then(|condition| arguments[if condition == 0.0 { 2 } else { 1 }][0])],
            "SUM" => vec![arguments[0].iter().flatten().copied().reduce(|one, other| one + other)],
            // The quota on the metric in the argument.
            "SERVICE_QUOTA" => vec![arguments[0][0].and_then(|_| (self.metric)("SERVICE_QUOTA"))],
            "MAX" => vec![arguments[0].iter().flatten().copied().reduce(f64::max)],
            other => panic!("{other} is not known here"),
        }
    }

    fn arguments(&mut self, end: &str) -> Vec<Values> {
        let mut all = vec![self.comparison()];
        while self.peek() == "," {
            self.take();
            all.push(self.comparison());
        }
        self.expect(end);
        all
    }
}

fn both(left: &Values, right: &Values, result: impl Fn(f64, f64) -> f64) -> Option<f64> {
    left[0].zip(right[0]).map(|(left, right)| result(left, right))
}

#[test]
fn expressions_have_the_values_of_cloudwatch() {
    let metric = |name: &str| (name != "none").then(|| f64::from(u8::try_from(name.len()).unwrap()));
    for (expression, expected) in [
        ("1 + 2 * 3", Some(7.0)),
        ("(1 + 2) * aa / 4", Some(1.5)),
        ("9 - 2 - 3 + aa", Some(6.0)),
        ("1 + none", None),
        ("FILL(none, 5)", Some(5.0)),
        ("SUM([a, none, bbb])", Some(4.0)),
        ("SUM([none, none])", None),
        ("MAX([a, none, FILL(none, 9) / 3])", Some(3.0)),
        ("IF(aaa > 2, 10 * aaa, 0)", Some(30.0)),
        ("IF(aaa > 1.5 * (aa + a), 1, 0)", Some(0.0)),
        ("IF(none > 2, 1, 0)", None),
    ] {
        assert_eq!(value(expression, &metric), expected, "{expression}");
    }
}
