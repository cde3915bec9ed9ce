//! The attributes `aggregate` and `projection`.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, ImplItem, ItemImpl, LitInt, LitStr, Path, Token, parse_quote};

/// `"counter", state_version = 2`, or `"orders-by-day", version = 2, of = [Order]`.
struct Named {
    name: LitStr,
    options: Vec<(Ident, Expr)>,
}

impl Parse for Named {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.parse().map_err(|error| Error::new(error.span(), "expected the name, such as \"order\""))?;
        let mut options = Vec::new();
        while input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
            let option = input.parse()?;
            input.parse::<Token![=]>()?;
            options.push((option, input.parse()?));
        }
        Ok(Self { name, options })
    }
}

impl Named {
    fn take(&mut self, name: &str) -> Option<Expr> {
        let position = self.options.iter().position(|(option, _)| option == name)?;
        Some(self.options.remove(position).1)
    }

    /// Writes the constant with the number in this option. Without the option, it is 1, unless the implementation has it.
    fn version(&mut self, name: &str, constant: &str, written: &mut Written) -> syn::Result<()> {
        let constant = Ident::new(constant, self.name.span());
        match self.take(name) {
            Some(version) => {
                let expected = format!("expected a number, such as `{name} = 2`");
                let version: LitInt =
                    syn::parse2(version.to_token_stream()).map_err(|_| Error::new_spanned(version, expected))?;
                written.always.push(parse_quote!(const #constant: u32 = #version;));
            }
            None => written.unless_given.push(parse_quote!(const #constant: u32 = 1;)),
        }
        Ok(())
    }

    fn finish(self, known: &str) -> syn::Result<()> {
        match self.options.first() {
            Some((option, _)) => Err(Error::new_spanned(option, format!("expected {known}, each once"))),
            None => Ok(()),
        }
    }
}

/// The items that an attribute writes.
#[derive(Default)]
struct Written {
    always: Vec<ImplItem>,
    unless_given: Vec<ImplItem>,
}

impl Written {
    /// Adds the items to an implementation of this trait.
    fn into(self, item: TokenStream, of_trait: &str) -> syn::Result<TokenStream> {
        let place = || format!("put this attribute on `impl {of_trait} for …`");
        let mut item: ItemImpl = syn::parse2(item).map_err(|error| Error::new(error.span(), place()))?;
        let is_of = |path: &Path| path.segments.last().is_some_and(|segment| segment.ident == of_trait);
        if !item.trait_.as_ref().is_some_and(|(path, _)| is_of(path)) {
            return Err(Error::new_spanned(item.self_ty, place()));
        }
        if let Some(twice) =
            item.items.iter().find(|given| self.always.iter().any(|written| name(given) == name(written)))
        {
            return Err(Error::new_spanned(twice, "the attribute writes this: remove it"));
        }
        let given = |written: &ImplItem| item.items.iter().any(|given| name(given) == name(written));
        let added: Vec<_> = self.unless_given.into_iter().filter(|written| !given(written)).collect();
        item.items.splice(0..0, self.always.into_iter().chain(added));
        Ok(item.into_token_stream())
    }
}

fn name(item: &ImplItem) -> Option<&Ident> {
    match item {
        ImplItem::Const(item) => Some(&item.ident),
        ImplItem::Fn(item) => Some(&item.sig.ident),
        ImplItem::Type(item) => Some(&item.ident),
        _ => None,
    }
}

pub(crate) fn aggregate(arguments: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let mut named: Named = syn::parse2(arguments)?;
    let (name, mut written) = (&named.name, Written::default());
    written.always.push(parse_quote!(const TYPE: &'static str = #name;));
    named.version("state_version", "STATE_VERSION", &mut written)?;
    named.finish("state_version")?;
    let defaults: [ImplItem; 5] = [
        parse_quote! { const COMMANDS: ::daybook::Commands = Command::COMMANDS; },
        parse_quote! { const EVENTS: &'static [::daybook::EventType] = Event::EVENTS; },
        parse_quote! { type State = State; },
        parse_quote! { type Command = Command; },
        parse_quote! { type Event = Event; },
    ];
    written.unless_given.extend(defaults);
    written.into(item, "Aggregate")
}

pub(crate) fn projection(arguments: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let mut named: Named = syn::parse2(arguments)?;
    let (name, mut written) = (&named.name, Written::default());
    written.always.push(parse_quote!(const NAME: &'static str = #name;));
    let example = "name the aggregates that it follows, such as `of = [Order, Payment]`";
    let of = named.take("of").ok_or_else(|| Error::new_spanned(&named.name, example))?;
    let types: Vec<Path> = match &of {
        Expr::Array(array) => {
            array.elems.iter().map(|each| syn::parse2(each.to_token_stream())).collect::<Result<_, _>>()
        }
        _ => Ok(Vec::new()),
    }
    .map_err(|error| Error::new(error.span(), example))?;
    if types.is_empty() {
        return Err(Error::new_spanned(of, example));
    }
    named.version("version", "VERSION", &mut written)?;
    named.finish("version and of")?;
    written.always.push(parse_quote! {
        fn sources() -> ::std::vec::Vec<::daybook::projection::Source<Self>> {
            ::std::vec::Vec::from([#(::daybook::projection::Source::of::<#types>()),*])
        }
    });
    let defaults: [ImplItem; 2] = [parse_quote! { type Row = Row; }, parse_quote! { type Change = Change; }];
    written.unless_given.extend(defaults);
    written.into(item, "Projection")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Expand = fn(TokenStream, TokenStream) -> syn::Result<TokenStream>;

    fn expanded(expand: Expand, arguments: &str, item: &str) -> Result<String, String> {
        let expanded = expand(arguments.parse().unwrap(), item.parse().unwrap());
        expanded.map(|expanded| expanded.to_string()).map_err(|error| error.to_string())
    }

    fn is_same(expanded: Result<String, String>, by_hand: &str) {
        let tokens = |text: &str| syn::parse_str::<ItemImpl>(text).unwrap().into_token_stream().to_string();
        assert_eq!(tokens(&expanded.unwrap()), tokens(by_hand));
    }

    #[test]
    fn aggregate_is_written_as_by_hand() {
        is_same(
            expanded(aggregate, "\"counter\"", "impl Aggregate for Counter { fn evolve() {} }"),
            "impl Aggregate for Counter {
                const TYPE: &'static str = \"counter\";
                const STATE_VERSION: u32 = 1;
                const COMMANDS: ::daybook::Commands = Command::COMMANDS;
                const EVENTS: &'static [::daybook::EventType] = Event::EVENTS;
                type State = State;
                type Command = Command;
                type Event = Event;
                fn evolve() {}
            }",
        );
        let other = "impl daybook::Aggregate for Counter { const COMMANDS: Commands = X; type State = Left; type Event = E; const EVENTS: Es = Y; }";
        is_same(
            expanded(aggregate, "\"counter\", state_version = 2,", other),
            "impl daybook::Aggregate for Counter {
                const TYPE: &'static str = \"counter\";
                const STATE_VERSION: u32 = 2;
                type Command = Command;
                const COMMANDS: Commands = X; type State = Left; type Event = E; const EVENTS: Es = Y;
            }",
        );
    }

    #[test]
    fn projection_is_written_as_by_hand() {
        is_same(
            expanded(
                projection,
                "\"sums\", of = [Order, payment::Payment], version = 3",
                "impl Projection for Sums { type Change = i64; }",
            ),
            "impl Projection for Sums {
                const NAME: &'static str = \"sums\";
                const VERSION: u32 = 3;
                fn sources() -> ::std::vec::Vec<::daybook::projection::Source<Self>> {
                    ::std::vec::Vec::from([
                        ::daybook::projection::Source::of::<Order>(),
                        ::daybook::projection::Source::of::<payment::Payment>()
                    ])
                }
                type Row = Row;
                type Change = i64;
            }",
        );
    }

    #[test]
    fn mistakes_are_reported_with_what_to_do() {
        let item = "impl Aggregate for Counter {}";
        let place = "put this attribute on `impl Aggregate for …`";
        let of = "name the aggregates that it follows, such as `of = [Order, Payment]`";
        for (expand, arguments, item, error) in [
            (aggregate as Expand, "", item, "expected the name, such as \"order\""),
            (aggregate, "\"counter\", version = 2", item, "expected state_version, each once"),
            (aggregate, "\"counter\", state_version = 2, state_version = 2", item, "expected state_version, each once"),
            (aggregate, "\"counter\", state_version = x", item, "expected a number, such as `state_version = 2`"),
            (
                aggregate,
                "\"counter\"",
                "impl Aggregate for C { const TYPE: T = X; }",
                "the attribute writes this: remove it",
            ),
            (aggregate, "\"counter\"", "struct Counter;", place),
            (aggregate, "\"counter\"", "impl Counter {}", place),
            (aggregate, "\"counter\"", "impl Projection for Counter {}", place),
            (projection, "\"sums\"", item, of),
            (projection, "\"sums\", of = Order", item, of),
            (projection, "\"sums\", of = [\"order\"]", item, of),
            (projection, "\"sums\", of = []", item, of),
            (projection, "\"sums\", of = [Order]", item, "put this attribute on `impl Projection for …`"),
        ] {
            assert_eq!(expanded(expand, arguments, item), Err(error.to_owned()), "{arguments} {item}");
        }
    }
}
