//! The attributes of the two enums of an aggregate: `commands` and `events`.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, Expr, Fields, Ident, LitInt, LitStr, Token, Variant, parse_quote};

/// `create = Start`.
struct Role {
    role: Ident,
    variant: Ident,
}

impl Parse for Role {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let role = input.parse()?;
        input.parse::<Token![=]>()?;
        Ok(Self { role, variant: input.parse()? })
    }
}

pub(crate) fn commands(roles: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let (item, of_enum) = variants(item)?;
    let roles = Punctuated::<Role, Token![,]>::parse_terminated.parse2(roles)?;
    for (index, Role { role, variant }) in roles.iter().enumerate() {
        if roles.iter().take(index).any(|other| other.role == *role) {
            return Err(Error::new_spanned(role, format!("{role} is given twice: remove one")));
        }
        if !["create", "update", "delete"].iter().any(|known| role == known) {
            return Err(Error::new_spanned(role, "expected create, update or delete, such as `create = Start`"));
        }
        require_variant(variant, &of_enum)?;
    }
    let named = |name: &str| roles.iter().find(|role| role.role == name).map(|role| role.variant.to_string());
    let optional = |name: &str| match named(name) {
        Some(variant) => quote!(::core::option::Option::Some(#variant)),
        None => quote!(::core::option::Option::None),
    };
    let missing = "name the variant that creates: #[daybook::commands(create = …)]";
    let create = named("create").ok_or_else(|| Error::new_spanned(&item.ident, missing))?;
    let (update, delete, ident) = (optional("update"), optional("delete"), &item.ident);
    Ok(quote! {
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(tag = "command", content = "data", deny_unknown_fields)]
        #item

        impl #ident {
            /// The commands that create, update and delete.
            pub const COMMANDS: ::daybook::Commands =
                ::daybook::Commands { create: #create, update: #update, delete: #delete };
        }
    })
}

fn require_variant(named: &Ident, of_enum: &DataEnum) -> syn::Result<()> {
    if let Some(variant) = of_enum.variants.iter().find(|variant| variant.ident == *named) {
        return match &variant.fields {
            Fields::Unnamed(fields) if fields.unnamed.len() > 1 => {
                let error =
                    format!("the data of {named} must be an object: give it named fields, such as {named} {{ … }}");
                Err(Error::new_spanned(variant, error))
            }
            Fields::Unnamed(_) | Fields::Named(_) | Fields::Unit => Ok(()),
        };
    }
    let known: Vec<_> = of_enum.variants.iter().map(|variant| variant.ident.to_string()).collect();
    Err(Error::new_spanned(named, format!("there is no command {named}: the commands are {}", known.join(", "))))
}

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

pub(crate) fn events(nothing: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
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
fn variants(item: TokenStream) -> syn::Result<(DeriveInput, DataEnum)> {
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

    fn command_error(roles: &str, item: &str) -> String {
        commands(roles.parse().unwrap(), item.parse().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn names_of_commands_are_those_of_variants() {
        let item = "pub enum Command { Start { from: u32 }, Stop {} }";
        let expanded = commands("create = Start, delete = Stop".parse().unwrap(), item.parse().unwrap()).unwrap();
        let expanded = expanded.to_string();
        for part in [
            "# [serde (tag = \"command\" , content = \"data\" , deny_unknown_fields)]",
            "create : \"Start\" , update : :: core :: option :: Option :: None , delete : :: core :: option :: Option :: Some (\"Stop\")",
        ] {
            assert!(expanded.contains(part), "{expanded}");
        }
        assert_eq!(command_error("create = Strat", item), "there is no command Strat: the commands are Start, Stop");
        assert_eq!(
            command_error("create = Start", "enum Command { Start(u32, u32) }"),
            "the data of Start must be an object: give it named fields, such as Start { … }"
        );
        assert_eq!(
            command_error("delete = Stop", item),
            "name the variant that creates: #[daybook::commands(create = …)]"
        );
        assert_eq!(command_error("create = Start, create = Stop", item), "create is given twice: remove one");
        assert!(command_error("created = Start", item).starts_with("expected create, update or delete"));
        assert!(command_error("create = Start", "struct Command;").starts_with("expected an enum"));
    }

    fn expanded_events(item: &str) -> Result<String, String> {
        let expanded = events(TokenStream::new(), item.parse().unwrap());
        expanded.map(|expanded| expanded.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn names_and_versions_stand_once_beside_the_variants() {
        let item = r#"enum Event {
            #[event("CounterStarted", version = 2, reads = 3, also = [("Begun", 1)])] Started { from: u32 },
            #[cfg(test)] #[event("CounterTicked",)] Ticked {},
        }"#;
        let expanded = expanded_events(item).unwrap();
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
            assert_eq!(expanded_events(item), Err(error.to_owned()), "{item}");
        }
    }
}
