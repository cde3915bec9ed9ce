//! The attribute `commands`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{DataEnum, Error, Fields, Ident, Token};

use crate::events::variants;

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

pub(crate) fn expand(roles: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn error(roles: &str, item: &str) -> String {
        expand(roles.parse().unwrap(), item.parse().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn names_of_commands_are_those_of_variants() {
        let item = "pub enum Command { Start { from: u32 }, Stop {} }";
        let expanded = expand("create = Start, delete = Stop".parse().unwrap(), item.parse().unwrap()).unwrap();
        let expanded = expanded.to_string();
        for part in [
            "# [serde (tag = \"command\" , content = \"data\" , deny_unknown_fields)]",
            "create : \"Start\" , update : :: core :: option :: Option :: None , delete : :: core :: option :: Option :: Some (\"Stop\")",
        ] {
            assert!(expanded.contains(part), "{expanded}");
        }
        assert_eq!(error("create = Strat", item), "there is no command Strat: the commands are Start, Stop");
        assert_eq!(
            error("create = Start", "enum Command { Start(u32, u32) }"),
            "the data of Start must be an object: give it named fields, such as Start { … }"
        );
        assert_eq!(error("delete = Stop", item), "name the variant that creates: #[daybook::commands(create = …)]");
        assert_eq!(error("create = Start, create = Stop", item), "create is given twice: remove one");
        assert!(error("created = Start", item).starts_with("expected create, update or delete"));
        assert!(error("create = Start", "struct Command;").starts_with("expected an enum"));
    }
}
