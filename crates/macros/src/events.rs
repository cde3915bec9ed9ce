//! The attribute `events`.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, Expr, Ident, LitInt, LitStr, Token, Variant, parse_quote};

/// `"CounterStarted", version = 2, reads = 3, also = [("Begun", 1)]`.
struct Stored {
    name: LitStr,
    version: LitInt,
    /// The calls that add to the event's type.
    more: TokenStream,
}

impl Parse for Stored {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name: LitStr = input.parse()?;
        let (mut version, mut more) = (LitInt::new("1", name.span()), TokenStream::new());
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let option: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            match option.to_string().as_str() {
                "version" => version = input.parse()?,
                "reads" => {
                    let readable: LitInt = input.parse()?;
                    more.extend(quote!(.reads(#readable)));
                }
                "also" => {
                    let names: Expr = input.parse()?;
                    more.extend(quote!(.also_stored_as(&#names)));
                }
                _ => return Err(Error::new_spanned(option, "expected version, reads or also, such as `version = 2`")),
            }
        }
        Ok(Self { name, version, more })
    }
}

pub(crate) fn expand(nothing: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    if !nothing.is_empty() {
        return Err(Error::new_spanned(nothing, "write the names beside the variants: #[event(\"OrderPlaced\")]"));
    }
    let (mut item, mut of_enum) = variants(item)?;
    let (mut types, mut names) = (Vec::new(), BTreeSet::new());
    for variant in &mut of_enum.variants {
        let Stored { name, version, more } = stored(variant)?;
        if !names.insert(name.value()) {
            return Err(Error::new_spanned(name, "another event has this name: choose another one"));
        }
        variant.attrs.push(parse_quote!(#[serde(rename = #name)]));
        let cfg = variant.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
        types.push(quote_spanned!(name.span()=> #(#cfg)* ::daybook::EventType::new(#name, #version)#more));
    }
    item.data = Data::Enum(of_enum);
    let ident = &item.ident;
    Ok(quote! {
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(tag = "type", content = "data")]
        #item

        impl #ident {
            /// The stored name and version of each event.
            pub const EVENTS: &'static [::daybook::EventType] = &[#(#types),*];
        }
    })
}

/// Takes the attribute `event` of a variant.
fn stored(variant: &mut Variant) -> syn::Result<Stored> {
    let position = variant.attrs.iter().position(|attribute| attribute.path().is_ident("event"));
    let Some(position) = position else {
        let missing =
            "name the stored event after its aggregate, such as #[event(\"OrderPlaced\")]: this name is stored forever";
        return Err(Error::new(variant.span(), missing));
    };
    let stored: Stored = variant.attrs.remove(position).parse_args()?;
    let name = stored.name.value();
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(Error::new_spanned(stored.name, "the name of an event must consist of ASCII letters and digits"));
    }
    Ok(stored)
}

/// An item, and its variants.
pub(crate) fn variants(item: TokenStream) -> syn::Result<(DeriveInput, DataEnum)> {
    let item: DeriveInput = syn::parse2(item)?;
    match item.data.clone() {
        Data::Enum(of_enum) => Ok((item, of_enum)),
        Data::Struct(_) | Data::Union(_) => {
            Err(Error::new_spanned(item.ident, "expected an enum: put this attribute on one"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(item: &str) -> Result<String, String> {
        let expanded = expand(TokenStream::new(), item.parse().unwrap());
        expanded.map(|expanded| expanded.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn names_and_versions_stand_once_beside_the_variants() {
        let item = r#"enum Event {
            #[event("CounterStarted", version = 2, reads = 3, also = [("Begun", 1)])] Started { from: u32 },
            #[cfg(test)] #[event("CounterTicked",)] Ticked {},
        }"#;
        let expanded = expanded(item).unwrap();
        for part in [
            r#"# [serde (tag = "type" , content = "data")]"#,
            r#"# [serde (rename = "CounterStarted")] Started"#,
            r#"EventType :: new ("CounterStarted" , 2) . reads (3) . also_stored_as (& [("Begun" , 1)])"#,
            r#", # [cfg (test)] :: daybook :: EventType :: new ("CounterTicked" , 1)"#,
        ] {
            assert!(expanded.contains(part), "{part} is not in {expanded}");
        }
    }

    #[test]
    fn mistakes_are_reported_with_what_to_do() {
        for (item, error) in [
            (
                "enum E { Started {} }",
                r#"name the stored event after its aggregate, such as #[event("OrderPlaced")]: this name is stored forever"#,
            ),
            (r#"enum E { #[event("A")] A {}, #[event("A")] B {} }"#, "another event has this name: choose another one"),
            (r#"enum E { #[event("A b")] A {} }"#, "the name of an event must consist of ASCII letters and digits"),
            (
                r#"enum E { #[event("A", versions = 2)] A {} }"#,
                "expected version, reads or also, such as `version = 2`",
            ),
            ("struct E;", "expected an enum: put this attribute on one"),
        ] {
            assert_eq!(expanded(item), Err(error.to_owned()), "{item}");
        }
    }
}
