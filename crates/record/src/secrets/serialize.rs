//! Serializes a value with its texts masked. Names of fields and of variants stay as they are: a secret that happens to be
//! one of them must not make a record that nobody can read.

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::Secrets;

/// A value whose texts are masked where it is serialized.
#[derive(Debug)]
pub struct Masked<'a, T: ?Sized> {
    pub(super) value: &'a T,
    pub(super) secrets: &'a Secrets,
}

impl<T: Serialize + ?Sized> Serialize for Masked<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.secrets.is_empty() {
            return self.value.serialize(serializer);
        }
        self.value.serialize(Masking { inner: serializer, secrets: self.secrets })
    }
}

/// Masks what goes on to another serializer, or to a part of one.
struct Masking<'a, S> {
    inner: S,
    secrets: &'a Secrets,
}

impl<'a, S> Masking<'a, S> {
    fn of<'v, T: ?Sized>(&self, value: &'v T) -> Masked<'v, T>
    where
        'a: 'v,
    {
        Masked { value, secrets: self.secrets }
    }
}

macro_rules! as_they_are {
    ($($name:ident: $of:ty),* $(,)?) => {
        $(fn $name(self, value: $of) -> Result<S::Ok, S::Error> {
            self.inner.$name(value)
        })*
    };
}

impl<'a, S: Serializer> Serializer for Masking<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Masking<'a, S::SerializeSeq>;
    type SerializeTuple = Masking<'a, S::SerializeTuple>;
    type SerializeTupleStruct = Masking<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Masking<'a, S::SerializeTupleVariant>;
    type SerializeMap = Masking<'a, S::SerializeMap>;
    type SerializeStruct = Masking<'a, S::SerializeStruct>;
    type SerializeStructVariant = Masking<'a, S::SerializeStructVariant>;

    as_they_are! {
        serialize_bool: bool, serialize_char: char,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_f32: f32, serialize_f64: f64, serialize_unit_struct: &'static str,
    }

    fn serialize_str(self, text: &str) -> Result<S::Ok, S::Error> {
        self.inner.serialize_str(&self.secrets.mask(text))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<S::Ok, S::Error> {
        self.inner.serialize_bytes(&self.secrets.mask_bytes(bytes))
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let value = self.of(value);
        self.inner.serialize_some(&value)
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        i: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, i, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let value = self.of(value);
        self.inner.serialize_newtype_struct(name, &value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        i: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let value = self.of(value);
        self.inner.serialize_newtype_variant(name, i, variant, &value)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        let secrets = self.secrets;
        self.inner.serialize_seq(len).map(|inner| Masking { inner, secrets })
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        let secrets = self.secrets;
        self.inner.serialize_tuple(len).map(|inner| Masking { inner, secrets })
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        let secrets = self.secrets;
        self.inner.serialize_tuple_struct(name, len).map(|inner| Masking { inner, secrets })
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        i: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        let secrets = self.secrets;
        self.inner.serialize_tuple_variant(name, i, variant, len).map(|inner| Masking { inner, secrets })
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        let secrets = self.secrets;
        self.inner.serialize_map(len).map(|inner| Masking { inner, secrets })
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeStruct, S::Error> {
        let secrets = self.secrets;
        self.inner.serialize_struct(name, len).map(|inner| Masking { inner, secrets })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        i: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        let secrets = self.secrets;
        self.inner.serialize_struct_variant(name, i, variant, len).map(|inner| Masking { inner, secrets })
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! elements {
    ($($of:ident, $add:ident);* $(;)?) => {
        $(impl<S: $of> $of for Masking<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                let value = self.of(value);
                self.inner.$add(&value)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.inner.end()
            }
        })*
    };
}

elements! {
    SerializeSeq, serialize_element;
    SerializeTuple, serialize_element;
    SerializeTupleStruct, serialize_field;
    SerializeTupleVariant, serialize_field;
}

macro_rules! fields {
    ($($of:ident),*) => {
        $(impl<S: $of> $of for Masking<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), S::Error> {
                let value = self.of(value);
                self.inner.serialize_field(key, &value)
            }

            fn skip_field(&mut self, key: &'static str) -> Result<(), S::Error> {
                self.inner.skip_field(key)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.inner.end()
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

impl<S: SerializeMap> SerializeMap for Masking<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        let key = self.of(key);
        self.inner.serialize_key(&key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        let value = self.of(value);
        self.inner.serialize_value(&value)
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.inner.end()
    }
}
