//! Writes values as JSON with their texts masked, otherwise as `serde_json` would. Names of fields and variants stay
//! unchanged: a secret that equals one of them must not make a record unreadable.
//!
//! A dedicated serializer, not one generic over another: the code that writes each type of the record is then in the
//! program once, with secrets or without.

use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::{Error, Result};

use super::{MASK, Secrets};

/// The value on one line, or with an indent of two spaces.
pub fn write<T: Serialize + ?Sized>(value: &T, secrets: &Secrets, is_pretty: bool) -> Result<Vec<u8>> {
    let mut json = Json { out: Vec::new(), secrets, is_pretty, depth: 0, is_own_name: false };
    value.serialize(&mut json)?;
    Ok(json.out)
}

struct Json<'a> {
    out: Vec<u8>,
    secrets: &'a Secrets,
    is_pretty: bool,
    depth: usize,
    /// Texts are written unmasked, because they are the record's own names.
    is_own_name: bool,
}

impl Json<'_> {
    /// Anything that is not text, as `serde_json` writes it.
    fn plain(&mut self, value: impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.out, &value)
    }

    fn open(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.depth += 1;
    }

    /// Moves on to another element.
    fn next(&mut self, is_first: bool) {
        if !is_first {
            self.out.push(b',');
        }
        self.line();
    }

    fn line(&mut self) {
        if self.is_pretty {
            self.out.push(b'\n');
            self.out.resize(self.out.len() + 2 * self.depth, b' ');
        }
    }

    fn close(&mut self, bracket: u8, is_empty: bool) {
        self.depth -= 1;
        if !is_empty {
            self.line();
        }
        self.out.push(bracket);
    }

    fn colon(&mut self) {
        self.out.extend_from_slice(if self.is_pretty { b": " } else { b":" });
    }

    /// The name of a field or of a variant, which is a key.
    fn name(&mut self, name: &'static str) -> Result<()> {
        self.plain(name)?;
        self.colon();
        Ok(())
    }

    /// A variant with content is an object with one field.
    fn variant(&mut self, variant: &'static str) -> Result<()> {
        self.open(b'{');
        self.next(true);
        self.name(variant)
    }
}

/// An array or an object being written.
struct Parts<'w, 'a> {
    json: &'w mut Json<'a>,
    is_first: bool,
    closing: u8,
    /// It is inside a variant's object.
    in_variant: bool,
    /// A struct with flattened fields, which serde writes as a map of unknown length.
    is_flattened: bool,
    /// The next value is the name of a variant ([`TAG`]).
    is_tag: bool,
    /// Masked keys of a map: two keys may differ only in their secrets.
    masked_keys: Vec<Vec<u8>>,
}

/// The field of the record's enums that names the variant.
const TAG: &[u8] = b"\"event\"";

impl<'w, 'a> Parts<'w, 'a> {
    fn array(json: &'w mut Json<'a>) -> Self {
        json.open(b'[');
        Parts::new(json, b']')
    }

    fn object(json: &'w mut Json<'a>) -> Self {
        json.open(b'{');
        Parts::new(json, b'}')
    }

    fn new(json: &'w mut Json<'a>, closing: u8) -> Self {
        let masked_keys = Vec::new();
        Parts {
            json,
            is_first: true,
            closing,
            in_variant: false,
            is_flattened: false,
            is_tag: false,
            masked_keys,
        }
    }

    fn next(&mut self) -> &mut Json<'a> {
        self.json.next(self.is_first);
        self.is_first = false;
        self.json
    }

    /// Numbers the key written from there on if another key of this map was masked to the same text.
    fn keep_apart(&mut self, from: usize) {
        let key = &self.json.out[from..];
        if !key.windows(MASK.len()).any(|part| part == MASK.as_bytes()) {
            return;
        }
        let key = key.to_vec();
        let same = self.masked_keys.iter().filter(|other| **other == key).count();
        if same > 0 {
            self.json.out.pop();
            self.json.out.extend_from_slice(format!(" ({})\"", same + 1).as_bytes());
        }
        self.masked_keys.push(key);
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        value.serialize(self.next())
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<()> {
        self.next().name(name)?;
        value.serialize(&mut *self.json)
    }

    fn finish(self) -> Result<()> {
        self.json.close(self.closing, self.is_first);
        if self.in_variant {
            self.json.close(b'}', false);
        }
        Ok(())
    }
}

macro_rules! plain {
    ($($name:ident: $of:ty),* $(,)?) => {
        $(fn $name(self, value: $of) -> Result<()> {
            self.plain(value)
        })*
    };
}

impl<'w, 'a> Serializer for &'w mut Json<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Parts<'w, 'a>;
    type SerializeTuple = Parts<'w, 'a>;
    type SerializeTupleStruct = Parts<'w, 'a>;
    type SerializeTupleVariant = Parts<'w, 'a>;
    type SerializeMap = Parts<'w, 'a>;
    type SerializeStruct = Parts<'w, 'a>;
    type SerializeStructVariant = Parts<'w, 'a>;

    plain! {
        serialize_bool: bool, serialize_char: char,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_f32: f32, serialize_f64: f64,
    }

    fn serialize_str(self, text: &str) -> Result<()> {
        match self.is_own_name {
            true => self.plain(text),
            false => self.plain(&*self.secrets.mask(text)),
        }
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<()> {
        let masked = self.secrets.mask_bytes(bytes);
        self.collect_seq(&*masked)
    }

    fn serialize_none(self) -> Result<()> {
        self.plain(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        self.plain(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<()> {
        self.plain(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<()> {
        self.plain(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<()> {
        self.variant(variant)?;
        value.serialize(&mut *self)?;
        self.close(b'}', false);
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'w, 'a>> {
        Ok(Parts::array(self))
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'w, 'a>> {
        Ok(Parts::array(self))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'w, 'a>> {
        Ok(Parts::array(self))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'w, 'a>> {
        self.variant(variant)?;
        Ok(Parts { in_variant: true, ..Parts::array(self) })
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Parts<'w, 'a>> {
        Ok(Parts { is_flattened: length.is_none(), ..Parts::object(self) })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts<'w, 'a>> {
        Ok(Parts::object(self))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'w, 'a>> {
        self.variant(variant)?;
        Ok(Parts { in_variant: true, ..Parts::object(self) })
    }
}

macro_rules! parts {
    ($($of:ident: $add:ident($($name:ident)?) $with:ident);* $(;)?) => {
        $(impl $of for Parts<'_, '_> {
            type Ok = ();
            type Error = Error;

            fn $add<T: Serialize + ?Sized>(&mut self, $($name: &'static str,)? value: &T) -> Result<()> {
                self.$with($($name,)? value)
            }

            fn end(self) -> Result<()> {
                self.finish()
            }
        })*
    };
}

parts! {
    SerializeSeq: serialize_element() element;
    SerializeTuple: serialize_element() element;
    SerializeTupleStruct: serialize_field() element;
    SerializeTupleVariant: serialize_field() element;
    SerializeStruct: serialize_field(name) field;
    SerializeStructVariant: serialize_field(name) field;
}

impl SerializeMap for Parts<'_, '_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        let is_flattened = self.is_flattened;
        let json = self.next();
        let from = json.out.len();
        json.is_own_name = is_flattened;
        let written = key.serialize(&mut *json);
        json.is_own_name = false;
        written?;
        match json.out.get(from) {
            Some(b'"') => self.keep_apart(from),
            Some(b'-' | b'0'..=b'9' | b't' | b'f') => {
                json.out.insert(from, b'"');
                json.out.push(b'"');
            }
            _ => return Err(Error::custom("a key must be a text, a number or a boolean")),
        }
        self.is_tag = is_flattened && self.json.out[from..] == *TAG;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.json.colon();
        self.json.is_own_name = std::mem::take(&mut self.is_tag);
        let written = value.serialize(&mut *self.json);
        self.json.is_own_name = false;
        written
    }

    fn end(self) -> Result<()> {
        self.finish()
    }
}
