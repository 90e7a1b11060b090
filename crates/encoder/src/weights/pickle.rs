//! The pickle of a PyTorch state dict, read without running anything.
//!
//! A pickle is a program for a small stack machine that may call any Python function. This machine knows the few
//! instructions of a state dict as `torch.save` writes it (protocol 2), and "calls" are looked up in a closed list:
//! `collections.OrderedDict` makes a dict, `torch._utils._rebuild_tensor_v2` and `_rebuild_parameter` a description of a
//! tensor. Every other global is [`WeightsError::PickleGlobal`], every other instruction an error.
//!
//! # Contract
//! - The result is names and descriptions of tensors. Their bytes are elsewhere in the archive (`torch.rs`).
//! - Time and memory are linear in the pickle's bytes: values refer to each other by number, so that a value that is used
//!   many times is stored once, and nothing recurses. Descriptions are made of the tensors that the dict names, each name
//!   once, of at most [`MAX_DIMENSIONS`].
//!
//! Source: `pickletools.py` of CPython for the instructions, `torch/serialization.py` and `torch/_utils.py` for what a
//! state dict is made of.

use std::collections::HashSet;
use std::rc::Rc;

use safetensors::Dtype;

/// The most dimensions of a tensor: weights have up to 4.
const MAX_DIMENSIONS: usize = 8;

/// A tensor, as the pickle describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Description {
    /// Element type.
    pub dtype: Dtype,
    /// The storage that holds its elements: a name in the archive.
    pub storage: Rc<str>,
    /// Elements of the storage.
    pub storage_elements: u64,
    /// Its first element in the storage.
    pub offset: u64,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Elements from one index to the next, for each dimension.
    pub strides: Vec<usize>,
}

/// Why a pickle is no state dict.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It names something that a state dict does not contain: module and name.
    Global(String),
    /// It has two tensors of this name.
    Twice(String),
    /// Anything else.
    Other(String),
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(reason: T) -> Self {
        Refusal::Other(reason.into())
    }
}

/// The tensors of a state dict in their order, by name. Entries that are no tensors (step counters, version numbers) are
/// left out.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<(String, Description)>, Refusal> {
    let mut machine = Machine { input: bytes, ..Machine::default() };
    let Value::Dict(top) = machine.run()? else {
        return Err("it is not a dict of tensors".into());
    };
    let entries = machine.dicts.swap_remove(top);
    let mut tensors = Vec::new();
    let mut names: HashSet<&str> = HashSet::new();
    for (key, value) in &entries {
        if let (&Value::Text(key), &Value::Tensor(tensor)) = (key, value) {
            let name = &*machine.texts[key];
            if !names.insert(name) {
                return Err(Refusal::Twice(name.to_owned()));
            }
            tensors.push((name.to_owned(), machine.description(&machine.tensors[tensor])?));
        }
    }
    if tensors.is_empty() {
        let names: Vec<&str> = entries.iter().take(5).filter_map(|(key, _)| machine.text(*key)).collect();
        return Err(format!("there are no tensors at its top level, only {names:?}: not a plain state dict").into());
    }
    Ok(tensors)
}

/// A value; what is larger than a number is kept by the machine.
#[derive(Clone, Copy, Debug)]
enum Value {
    None,
    Bool,
    Float,
    Int(i64),
    Text(usize),
    Tuple(usize),
    List,
    Dict(usize),
    Global(Global),
    Storage(usize),
    Tensor(usize),
    /// Where a `MARK` was.
    Mark,
}

/// What may be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Global {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    StorageOf(Dtype),
}

fn global(module: &str, name: &str) -> Result<Global, Refusal> {
    Ok(match (module, name) {
        ("collections", "OrderedDict") => Global::OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2") => Global::RebuildTensor,
        ("torch._utils", "_rebuild_parameter") => Global::RebuildParameter,
        ("torch", "FloatStorage") => Global::StorageOf(Dtype::F32),
        ("torch", "HalfStorage") => Global::StorageOf(Dtype::F16),
        ("torch", "BFloat16Storage") => Global::StorageOf(Dtype::BF16),
        ("torch", "DoubleStorage") => Global::StorageOf(Dtype::F64),
        ("torch", "LongStorage") => Global::StorageOf(Dtype::I64),
        ("torch", "IntStorage") => Global::StorageOf(Dtype::I32),
        ("torch", "ShortStorage") => Global::StorageOf(Dtype::I16),
        ("torch", "CharStorage") => Global::StorageOf(Dtype::I8),
        ("torch", "ByteStorage") => Global::StorageOf(Dtype::U8),
        ("torch", "BoolStorage") => Global::StorageOf(Dtype::BOOL),
        _ => return Err(Refusal::Global(format!("{module}.{name}"))),
    })
}

struct Storage {
    dtype: Dtype,
    name: usize,
    elements: u64,
}

/// Arguments of `_rebuild_tensor_v2`, by number.
struct Tensor {
    storage: usize,
    offset: i64,
    shape: Value,
    strides: Value,
}

#[derive(Default)]
struct Machine<'a> {
    input: &'a [u8],
    stack: Vec<Value>,
    memo: std::collections::HashMap<u32, Value>,
    texts: Vec<Rc<str>>,
    tuples: Vec<Vec<Value>>,
    dicts: Vec<Vec<(Value, Value)>>,
    storages: Vec<Storage>,
    tensors: Vec<Tensor>,
}

const ENDS: &str = "it ends too early";
const SHORT_STACK: &str = "it takes a value that is not there";

fn keep<T>(values: &mut Vec<T>, value: T) -> usize {
    values.push(value);
    values.len() - 1
}

impl Machine<'_> {
    fn run(&mut self) -> Result<Value, Refusal> {
        loop {
            let [code] = self.take()?;
            match code {
                0x80 => drop(self.take::<1>()?),
                // FRAME: how many bytes belong together, for readers of streams.
                0x95 => drop(self.take::<8>()?),
                b'N' => self.stack.push(Value::None),
                0x88 | 0x89 => self.stack.push(Value::Bool),
                b'K' => self.int(i64::from(self.peek::<1>()?[0]), 1),
                b'M' => self.int(i64::from(u16::from_le_bytes(self.peek()?)), 2),
                b'J' => self.int(i64::from(i32::from_le_bytes(self.peek()?)), 4),
                0x8a => self.long()?,
                b'G' => {
                    self.take::<8>()?;
                    self.stack.push(Value::Float);
                }
                b'X' => {
                    let length = u32::from_le_bytes(self.take()?);
                    self.text_of(length as usize)?;
                }
                0x8c => {
                    let [length] = self.take()?;
                    self.text_of(usize::from(length))?;
                }
                b'q' | b'r' | 0x94 => {
                    let place = match code {
                        b'q' => u32::from(self.take::<1>()?[0]),
                        b'r' => u32::from_le_bytes(self.take()?),
                        _ => self.memo.len() as u32,
                    };
                    let value = *self.stack.last().ok_or(SHORT_STACK)?;
                    self.memo.insert(place, value);
                }
                b'h' | b'j' => {
                    let place =
                        if code == b'h' { u32::from(self.take::<1>()?[0]) } else { u32::from_le_bytes(self.take()?) };
                    let value = *self.memo.get(&place).ok_or("it recalls a value that it never kept")?;
                    self.stack.push(value);
                }
                b'(' => self.stack.push(Value::Mark),
                b')' => self.tuple(Vec::new()),
                0x85..=0x87 => {
                    let from = self.stack.len().checked_sub(usize::from(code - 0x84)).ok_or(SHORT_STACK)?;
                    let items = self.stack.split_off(from);
                    self.tuple(items);
                }
                b't' => {
                    let items = self.pop_to_mark()?;
                    self.tuple(items);
                }
                b']' => self.stack.push(Value::List),
                b'a' => drop(self.pop()?),
                b'e' => drop(self.pop_to_mark()?),
                b'}' => self.dict(),
                b's' => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.set(&[key, value])?;
                }
                b'u' => {
                    let items = self.pop_to_mark()?;
                    self.set(&items)?;
                }
                b'c' => {
                    let (module, name) = (self.line()?, self.line()?);
                    self.stack.push(Value::Global(global(&module, &name)?));
                }
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    let (Some(module), Some(name)) = (self.text(module), self.text(name)) else {
                        return Err("a global without a name".into());
                    };
                    let named = global(module, name)?;
                    self.stack.push(Value::Global(named));
                }
                b'Q' => self.storage()?,
                b'R' => self.call()?,
                // Attributes of the dict itself: `_metadata`, the versions of the modules.
                b'b' => {
                    self.pop()?;
                    if !matches!(self.stack.last(), Some(Value::Dict(_))) {
                        return Err("it sets attributes of something that is not a dict".into());
                    }
                }
                b'.' => return self.pop(),
                other => return Err(format!("instruction {other:#04x} is not one of a state dict").into()),
            }
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let bytes = self.peek()?;
        self.input = &self.input[N..];
        Ok(bytes)
    }

    fn peek<const N: usize>(&self) -> Result<[u8; N], Refusal> {
        self.input.first_chunk().copied().ok_or(ENDS.into())
    }

    fn slice(&mut self, length: usize) -> Result<&[u8], Refusal> {
        let (bytes, rest) = self.input.split_at_checked(length).ok_or(ENDS)?;
        self.input = rest;
        Ok(bytes)
    }

    fn line(&mut self) -> Result<String, Refusal> {
        let length = self.input.iter().position(|&byte| byte == b'\n').ok_or(ENDS)?;
        let line = String::from_utf8_lossy(&self.input[..length]).into_owned();
        self.input = &self.input[length + 1..];
        Ok(line)
    }

    /// Pushes a number whose `bytes` were looked at.
    fn int(&mut self, value: i64, bytes: usize) {
        self.input = &self.input[bytes..];
        self.stack.push(Value::Int(value));
    }

    /// A whole number of up to 255 bytes; those of a state dict fit in 8.
    fn long(&mut self) -> Result<(), Refusal> {
        let [length] = self.take()?;
        let bytes = self.slice(usize::from(length))?;
        let Some(rest) = 8usize.checked_sub(bytes.len()) else {
            return Err("a whole number of more than 8 bytes".into());
        };
        let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
        let mut whole = [sign; 8];
        whole[..8 - rest].copy_from_slice(bytes);
        self.stack.push(Value::Int(i64::from_le_bytes(whole)));
        Ok(())
    }

    fn text_of(&mut self, length: usize) -> Result<(), Refusal> {
        let text = std::str::from_utf8(self.slice(length)?).map_err(|_| "a text is not UTF-8")?.into();
        let text = keep(&mut self.texts, text);
        self.stack.push(Value::Text(text));
        Ok(())
    }

    fn text(&self, value: Value) -> Option<&str> {
        match value {
            Value::Text(text) => Some(&self.texts[text]),
            _ => None,
        }
    }

    fn pop(&mut self) -> Result<Value, Refusal> {
        match self.stack.pop() {
            None | Some(Value::Mark) => Err(SHORT_STACK.into()),
            Some(value) => Ok(value),
        }
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, Refusal> {
        let mark = self.stack.iter().rposition(|value| matches!(value, Value::Mark)).ok_or(SHORT_STACK)?;
        let items = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(items)
    }

    fn tuple(&mut self, items: Vec<Value>) {
        let tuple = keep(&mut self.tuples, items);
        self.stack.push(Value::Tuple(tuple));
    }

    fn dict(&mut self) {
        let dict = keep(&mut self.dicts, Vec::new());
        self.stack.push(Value::Dict(dict));
    }

    /// Adds pairs of key and value to the dict on top.
    fn set(&mut self, items: &[Value]) -> Result<(), Refusal> {
        let (pairs, []) = items.as_chunks::<2>() else {
            return Err("a dict has a key without a value".into());
        };
        let Some(Value::Dict(dict)) = self.stack.last() else {
            return Err("it adds entries to something that is not a dict".into());
        };
        self.dicts[*dict].extend(pairs.iter().map(|[key, value]| (*key, *value)));
        Ok(())
    }

    /// A persistent id: `("storage", <type>, name, device, elements)`.
    fn storage(&mut self) -> Result<(), Refusal> {
        let id = self.pop()?;
        let fields = self.items(id);
        let &[Value::Text(kind), Value::Global(Global::StorageOf(dtype)), Value::Text(name), _, Value::Int(elements)] =
            fields
        else {
            return Err("a reference to data that is not a storage".into());
        };
        if &*self.texts[kind] != "storage" {
            return Err(format!("a reference to data of the kind {:?}", self.texts[kind]).into());
        }
        let elements = u64::try_from(elements).map_err(|_| "a storage of negative size")?;
        let storage = keep(&mut self.storages, Storage { dtype, name, elements });
        self.stack.push(Value::Storage(storage));
        Ok(())
    }

    fn call(&mut self) -> Result<(), Refusal> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let Value::Global(function) = function else {
            return Err("it calls something that is not a function".into());
        };
        match function {
            Global::OrderedDict if self.items(arguments).is_empty() => self.dict(),
            Global::RebuildTensor => {
                let tensor = self.tensor(arguments)?;
                let tensor = keep(&mut self.tensors, tensor);
                self.stack.push(Value::Tensor(tensor));
            }
            Global::RebuildParameter => {
                let Some(&data @ Value::Tensor(_)) = self.items(arguments).first() else {
                    return Err("a parameter that is not a tensor".into());
                };
                self.stack.push(data);
            }
            Global::OrderedDict | Global::StorageOf(_) => {
                return Err(format!("{function:?} with arguments that a state dict does not give it").into());
            }
        }
        Ok(())
    }

    /// Arguments of `_rebuild_tensor_v2`: storage, first element, shape, strides, then what does not matter here.
    fn tensor(&self, arguments: Value) -> Result<Tensor, Refusal> {
        let &[Value::Storage(storage), Value::Int(offset), shape @ Value::Tuple(_), strides @ Value::Tuple(_), ..] =
            self.items(arguments)
        else {
            return Err("a tensor without storage, offset, shape and strides".into());
        };
        let dimensions = self.items(shape).len().max(self.items(strides).len());
        if dimensions > MAX_DIMENSIONS {
            return Err(format!("a tensor of {dimensions} dimensions, more than {MAX_DIMENSIONS}").into());
        }
        Ok(Tensor { storage, offset, shape, strides })
    }

    fn description(&self, tensor: &Tensor) -> Result<Description, Refusal> {
        let &Tensor { storage, offset, shape, strides } = tensor;
        let sizes = |tuple: Value| -> Option<Vec<usize>> {
            let size = |value: &Value| match value {
                Value::Int(size) => usize::try_from(*size).ok(),
                _ => None,
            };
            self.items(tuple).iter().map(size).collect()
        };
        let storage = &self.storages[storage];
        match (u64::try_from(offset), sizes(shape), sizes(strides)) {
            (Ok(offset), Some(shape), Some(strides)) if shape.len() == strides.len() => Ok(Description {
                dtype: storage.dtype,
                storage: self.texts[storage.name].clone(),
                storage_elements: storage.elements,
                offset,
                shape,
                strides,
            }),
            _ => Err("a tensor whose offset, shape and strides are no sizes".into()),
        }
    }

    /// The items of a tuple; none of anything else.
    fn items(&self, value: Value) -> &[Value] {
        match value {
            Value::Tuple(tuple) => &self.tuples[tuple],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `torch.save(OrderedDict(w=tensor of 2 x 3), …)` writes, without memo instructions.
    fn state_dict(global: &str, rest: &[u8]) -> Vec<u8> {
        let mut bytes =
            b"\x80\x02ccollections\nOrderedDict\n)R(X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n".to_vec();
        bytes.extend(b"((X\x07\0\0\0storagec");
        bytes.extend(global.as_bytes());
        bytes.extend(b"\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQK\0K\x02K\x03\x86K\x03K\x01\x86\x89N");
        bytes.extend(b"tRu");
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn a_state_dict_is_names_and_descriptions() {
        let expected = Description {
            dtype: Dtype::F16,
            storage: "0".into(),
            storage_elements: 6,
            offset: 0,
            shape: vec![2, 3],
            strides: vec![3, 1],
        };
        let metadata: &[u8] = b"}X\x09\0\0\0_metadata}sb.";
        for rest in [b".".as_slice(), metadata] {
            let read = read(&state_dict("torch\nHalfStorage", rest)).unwrap();
            assert_eq!(read, [("w".to_owned(), expected.clone())]);
        }
    }

    #[test]
    fn nothing_but_a_state_dict_is_read() {
        let global = |name: &str| Refusal::Global(name.to_owned());
        assert_eq!(read(&state_dict("torch\nComplexFloatStorage", b".")), Err(global("torch.ComplexFloatStorage")));
        assert_eq!(read(b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R."), Err(global("os.system")));
        assert_eq!(read(b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02ls\x85R."), Err(global("posix.system")));
        let cases: [(&[u8], &str); 13] = [
            (b"", "ends too early"),
            (b"\x80\x02}", "ends too early"),
            (b"\x80\x02X\xff\xff\xff\xffabc", "ends too early"),
            (b"\x80\x02ccollections", "ends too early"),
            (b"\x80\x02.", "not there"),
            (b"\x80\x02(.", "not there"),
            (b"\x80\x02h\x07.", "never kept"),
            (b"\x80\x02K\x01.", "not a dict"),
            (b"\x80\x02}.", "no tensors"),
            (b"\x80\x02}(K\x01u.", "key without a value"),
            (b"\x80\x02NK\x01K\x02s.", "not a dict"),
            (b"\x80\x02NX\x01\0\0\0a\x85Q.", "not a storage"),
            (b"\x80\x02i", "instruction 0x69"),
        ];
        for (bytes, expected) in cases {
            let refusal = read(bytes).unwrap_err();
            assert!(matches!(&refusal, Refusal::Other(reason) if reason.contains(expected)), "{bytes:?}: {refusal:?}");
        }
    }

    #[test]
    fn any_cut_or_changed_byte_is_an_answer_and_not_a_panic() {
        let whole = state_dict("torch\nFloatStorage", b".");
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "{length} bytes");
        }
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = read(&changed);
            }
        }
    }

    /// A dict of the tensor of `shape` under these names.
    fn named(names: &[u8], shape: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x80\x02}K\0ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storage".to_vec();
        bytes.extend(b"ctorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQK\0(");
        bytes.extend(shape.iter().flat_map(|&size| [b'K', size]));
        bytes.extend(b"t(");
        bytes.extend(shape.iter().flat_map(|_| [b'K', 1]));
        bytes.extend(b"ttRq\0s");
        bytes.extend(names.iter().flat_map(|&name| [b'X', 1, 0, 0, 0, name, b'h', 0, b's']));
        bytes.push(b'.');
        bytes
    }

    #[test]
    fn tensors_share_the_name_of_their_storage_and_nothing_is_described_twice() {
        let tensors = read(&named(b"ab", &[2, 1])).unwrap();
        assert_eq!((tensors.len(), &tensors[0].1), (2, &tensors[1].1));
        assert!(Rc::ptr_eq(&tensors[0].1.storage, &tensors[1].1.storage));
        assert_eq!(read(&named(b"aba", &[2, 1])), Err(Refusal::Twice("a".to_owned())));
        assert!(read(&named(b"a", &[1; 8])).is_ok());
        let expected = "a tensor of 9 dimensions, more than 8".into();
        assert_eq!(read(&named(b"a", &[1; 9])), Err(expected));
    }

    #[test]
    fn values_that_hold_themselves_many_times_cost_no_more_than_their_bytes() {
        let mut bytes = b"\x80\x02)".to_vec();
        for _ in 0..200_000 {
            bytes.extend(b"q\0h\0\x86");
        }
        bytes.push(b'.');
        assert!(read(&bytes).is_err());
    }
}
