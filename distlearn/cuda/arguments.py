"""Checks a launch's geometry and arguments against the kernel's parameters, as CuPy would pass them to a card.

CuPy passes on whatever it is given: a float64 array for a `float*`, or a missing argument, gives garbage on the card.
The kernel's own parameter types are known here (the compiler lists them), so such mistakes become errors.

A struct by value is a NumPy scalar of a structured dtype; a field of dtype object holds an array where the struct has a
pointer, or None (or 0) for a null pointer. An array of pointers (`float**`) is a NumPy array of dtype object.

>>> matrix = np.dtype([("width", "i4"), ("height", "i4"), ("elements", "O")])
>>> a = np.array((3, 2, np.zeros((2, 3), np.float32)), matrix)[()]
"""

from __future__ import annotations

import math
import operator
import re
import struct
from fractions import Fraction

import numpy as np

from distlearn.cuda.emulator.launch import Bound

KINDS = {"f": "f", "i": "iu", "u": "iu", "b": "b", "h": "f", "c": "c", "w": "u"}
WORDS = {"f4": "float", "f8": "double", "i1": "char", "u1": "unsigned char", "i2": "short", "u2": "unsigned short",
         "i4": "int", "u4": "unsigned", "i8": "long long", "u8": "unsigned long long", "b1": "bool", "h2": "half",
         "v0": "void", "c8": "complex<float>", "c16": "complex<double>", "w2": "bfloat16"}  # fmt: skip
NUMPY = {code: np.dtype({"h2": "f2", "w2": "u2"}.get(code, code)).name for code in WORDS if code != "v0"}

ELEMENTS = 1 << 26  # of an array made of a description, at most: for each byte the emulator keeps several of its own


def _whole(value, where: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        advice = "; for as many blocks as n threads need, write -(-n // block)" if isinstance(value, float) else ""
        raise TypeError(f"{where}: expected whole numbers, got {_describe(value)}{advice}") from None


def triple(value, what: str, most: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return a grid or block as three numbers, checked against the limits of all cards."""
    parts = tuple(_whole(v, f"{what} is {value!r}") for v in (value if isinstance(value, (tuple, list)) else (value,)))
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"{what} is {value!r}, expected 1 to 3 numbers")
    parts += (1,) * (3 - len(parts))
    for axis, part, limit in zip("xyz", parts, most, strict=True):
        if not 1 <= part <= limit:
            raise ValueError(f"{what} is {value!r}: {axis} must be between 1 and {limit}")
    return parts


def geometry(grid, block, shared_mem, most_threads=1024) -> tuple[tuple, tuple, int]:
    """Check grid, block and dynamic shared memory against the limits that all cards since Volta have in common."""
    # `most_threads` is from the kernel's own `__launch_bounds__`.
    grid = triple(grid, "grid", (2**31 - 1, 65535, 65535))
    block = triple(block, "block", (1024, 1024, 64))
    threads = math.prod(block)
    if threads > 1024:
        raise ValueError(f"block {block} has {threads} threads, a card runs at most 1024 per block")
    if threads > most_threads:
        raise ValueError(f"block {block} has {threads} threads, the kernel's __launch_bounds__ allows {most_threads}")
    shared_mem = _whole(shared_mem, f"shared_mem is {shared_mem!r}")
    if not 0 <= shared_mem <= 227 * 1024:
        raise ValueError(f"shared_mem is {shared_mem} bytes, expected 0 to {227 * 1024}")
    return grid, block, shared_mem


def block_number(index, grid: tuple[int, int, int]) -> int:
    """Return the number of a block of the grid, x running fastest."""
    parts = (*index, 0, 0) if isinstance(index, (tuple, list)) else (index, 0, 0)
    try:
        return int(np.ravel_multi_index(parts[:3], grid, order="F"))
    except (TypeError, ValueError):
        raise ValueError(f"record is {index!r}: the grid {grid} has no such block") from None


def spell(code: str) -> str:
    """Return a type code in CUDA C: '*kf4' is 'const float*'."""
    const = code.startswith("*k")
    stars = code.count("*")
    plain = code.lstrip("*k")
    word = WORDS.get(plain, f"struct of {plain[1:]} bytes")
    return ("const " if const else "") + word + "*" * stars


def as_tuple(kernel: str, args) -> tuple:
    """Return the arguments of a launch; raise TypeError unless they are a tuple: write `(x,)`, not `(x)`."""
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"{kernel}: args is a {type(args).__name__}, expected a tuple: (x, y, np.int32(n)) or (x,)")
    return tuple(args)


def bind(kernel: str, signature: list[str], names: list[str], args) -> Bound:
    """Check the arguments of a launch, and return them in the form the kernel takes."""
    if len(args) != len(signature):
        wanted = ", ".join(f"{spell(c)} {n}" for c, n in zip(signature, names, strict=True))
        raise TypeError(f"{kernel} takes {len(signature)} arguments ({wanted}), got {len(args)}")
    bound, entries = [], []
    for i, (code, name, arg) in enumerate(zip(signature, names, args, strict=True)):
        where = f"{kernel}: argument {name!r} is {spell(code)}"
        if holds_pointers(arg) and code.removeprefix("*").lstrip("k")[0] in "s*":
            in_memory = code.startswith("*")
            entries += [(in_memory, i, *held) for held in _arrays_held(where, code, name, arg)]
            packed = with_addresses(arg, lambda array: 0)
            arg = packed if in_memory else packed[()]
        bound.append(_bind(where, code, arg))
    # After the kernel's own arguments come the table of pointers, which `Kernel::run` of cuda_emu.h puts into their
    # places, and the arrays that it names, each once.
    arrays = {id(array): array for *_, array in entries}
    paths = {id(array): path for *_, path, array in reversed(entries)}
    number = {key: i for i, key in enumerate(arrays, len(args) + 1)}
    table = [len(entries)]
    for in_memory, i, place, _, array in entries:
        table += [in_memory, i, place, number[id(array)]]
    signature = [*signature, "s8", *("*v0" if a.flags.writeable else "*kv0" for a in arrays.values())]
    packed = np.array(table, np.int64).tobytes()
    return Bound([*bound, packed, *arrays.values()], signature, [*names, "pointers", *(paths[key] for key in arrays)])


def _arrays_held(where, code, name, arg):
    """Yield the place in bytes, the path and the array of each pointer of an argument that is not null."""
    for place, path, array in pointers(arg):
        if array is None:
            continue
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{where} with a pointer at byte {place}, an array; got {_describe(array)}")
        if array.dtype.hasobject:
            raise TypeError(
                f"{where}: {name}{path} holds arrays, which hold arrays again; one level of pointers is the limit. "
                "Number the nodes, and let an index in one array say which comes next"
            )
        yield place, name + path, _check_array(f"{where}; {name}{path} is a pointer", "*kv0", array)


def _bind(where, code, arg):
    if code.startswith("*"):
        if not isinstance(arg, np.ndarray):
            if isinstance(arg, (int, np.integer)) and arg == 0:
                return (0).to_bytes(8, "little")  # a null pointer
            raise TypeError(f"{where}, an array; got {_describe(arg)}")
        return _check_array(where, code, arg)
    letter, size = code[0], int(code[1:])
    if isinstance(arg, np.ndarray) and arg.ndim:
        wanted = "by value: pass a scalar of a structured dtype, np.array((1, 2), 'f4,f4')[()] for a float2"
        raise TypeError(f"{where}, {wanted if letter == 's' else 'a number'}; got {_describe(arg)}")
    if isinstance(arg, int) and letter in "iub":
        low = -(2 ** (8 * size - 1)) if letter == "i" else 0
        high = 1 if letter == "b" else low + 2 ** (8 * size) - 1
        if not low <= arg <= high:
            raise TypeError(f"{where}; {arg} does not fit into {size} bytes: it takes {low} to {high}")
        return np.array(arg, NUMPY[code]).tobytes()
    if isinstance(arg, float):
        arg = np.float64(arg)
    if isinstance(arg, (np.generic, np.ndarray)):
        same = letter in "sv" or arg.dtype.kind in KINDS[letter]
        if arg.nbytes == size and arg.dtype.isnative and same:
            return arg.tobytes()
    if letter == "s" and isinstance(arg, np.void):
        advice = "pass align=True to np.dtype(...), with a float4 in it also offsets and itemsize, multiples of 16"
        raise TypeError(f"{where}; got a struct of {arg.nbytes} bytes: {arg.dtype}. C pads it: {advice}")
    advice = NUMPY.get(code)
    raise TypeError(f"{where}; got {_describe(arg)}" + (f". Pass np.{advice}(...)" if advice else ""))


def _check_array(where, code, array):
    pointee = code[1:].lstrip("k")
    if pointee.startswith("*"):
        if array.dtype == np.uint64:  # addresses, put there by `with_addresses`
            return array
        raise TypeError(f"{where}; got {_describe(array)}, expected an array of dtype object that holds arrays")
    letter, size = pointee[0], int(pointee[1:])
    dtype = array.dtype
    if dtype.hasobject or not dtype.isnative:
        what = (
            "Python objects"
            if dtype.hasobject
            else "numbers in another byte order; pass x.astype(x.dtype.newbyteorder('='))"
        )
        raise TypeError(f"{where}; got an array of {what}")
    if letter == "s":
        fits = array.nbytes % size == 0 and (dtype.names is None or dtype.itemsize == size)
    elif letter == "v":
        fits = True
    else:
        same = dtype.kind in KINDS[letter] or (size == 1 and dtype.kind in "iub") or dtype.name == spell(pointee)
        fits = dtype.itemsize == size and same
    if not fits:
        raise TypeError(f"{where}; got {_describe(array)}. The kernel would read its bytes as something else")
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError(f"{where}; got an array with gaps (strides {array.strides}); pass np.ascontiguousarray(...)")
    if not array.flags.writeable and not code.startswith("*k"):
        raise ValueError(f"{where} without const; got a read-only array")
    return array


def check_constant(name: str, code: str, nbytes: int, value: np.ndarray) -> None:
    """Check a value for a `__constant__` or `__device__` variable of `nbytes` bytes, its items of type `code`."""
    where = f"variable {name!r} has {nbytes // int(code[1:])} items of type {spell(code)}"
    _check_array(where, f"*k{code}", value)
    if value.nbytes != nbytes:
        raise ValueError(f"{where}, {nbytes} bytes; got {_describe(value)}, {value.nbytes} bytes")


def _describe(arg):
    if isinstance(arg, np.ndarray):
        return f"an array of {arg.dtype}, shape {arg.shape}"
    module = type(arg).__module__
    origin = {"builtins": "Python", "numpy": "NumPy"}.get(module, module)
    return f"a {origin} {type(arg).__name__} ({arg!r})"


def holds_pointers(arg) -> bool:
    """Say whether an argument is a struct or an array that holds arrays."""
    return isinstance(arg, (np.generic, np.ndarray)) and arg.dtype.hasobject


def pointers(arg):
    """Yield for each pointer of an argument its place in bytes, how CUDA C names it ("[2].elements"), and the array."""
    for i, item in enumerate(np.ravel(arg)):
        yield from _pointers(item, arg.dtype, i * arg.dtype.itemsize, f"[{i}]" if np.ndim(arg) else "")


def _pointers(item, dtype, at, path):
    if dtype.kind == "O":
        yield at, path, None if isinstance(item, int) and item == 0 else item  # None, or 0, is a null pointer
    for name, (kind, offset, *_) in (dtype.fields or {}).items():
        yield from _pointers(item[name], kind, at + offset, f"{path}.{name}")


def without_objects(dtype: np.dtype) -> np.dtype:
    """Return a dtype with 8-byte integers in place of pointers."""
    if dtype.fields is None:
        return np.dtype("u8") if dtype.kind == "O" else dtype
    kinds = [without_objects(dtype.fields[name][0]) for name in dtype.names]
    offsets = [dtype.fields[name][1] for name in dtype.names]
    return np.dtype({"names": dtype.names, "formats": kinds, "offsets": offsets, "itemsize": dtype.itemsize})


def with_addresses(arg, address) -> np.ndarray:
    """Return an argument with `address(array)` in the place of each array, and 0 in that of None."""
    data = bytearray(arg.tobytes())
    for place, _, array in pointers(arg):
        struct.pack_into("<Q", data, place, 0 if array is None else address(array))
    return np.frombuffer(data, without_objects(arg.dtype)).reshape(np.shape(arg))


def argument(text: str, code: str, rng):
    """Make an argument of a launch of its description: `1024`, `float[32, 32]`, `bytes[4096]`, `{0.5f, 1000}`."""
    match = re.fullmatch(r"\s*([\w ]*?)(?:\[([\d\s,]+)\])?\s*(?:=\s*(\S+))?\s*", text)
    number = re.fullmatch(r"\s*([-+.\deE]+)[fFuUlL]*\s*", text)
    pointer, kind, wanted = code.startswith("*"), code.lstrip("*k"), spell(code.replace("k", ""))
    if code.count("*") > 1 or (kind not in NUMPY and not (pointer and kind[0] in "sv") and kind[0] != "s"):
        raise ValueError(f"--arg {text!r}: the kernel wants a {wanted}, which only Python can pass: RawKernel")
    if kind[0] == "s" and not pointer:
        value = _struct(text)
        if value.nbytes != int(kind[1:]):
            raise ValueError(f"--arg {text!r} has {value.nbytes} bytes, the kernel wants a {wanted}: {STRUCT}")
        return value
    dtype = np.dtype(NUMPY.get(kind, f"V{max(1, int(kind[1:]))}"))
    value, whole = number and Fraction(number[1]), kind[0] in "iub"
    if pointer and value == 0:
        return 0
    if number and not pointer and (value.denominator == 1 or not whole):
        return int(value) if whole else dtype.type(float(value))  # `bind` says what does not fit into an int
    # The type of an array is for the reader, the kernel's own is taken: another one would be a mistake.
    given = {word: code for code, word in WORDS.items()}.get(match[1], kind) if match else ""
    if not match or not match[2] or given != kind:
        expected = f"{wanted[:-1]}[1024]" if pointer else f"a {'whole ' * whole}number"
        raise ValueError(f"--arg {text!r}: the kernel wants a {wanted}, expected {expected}")
    shape = tuple(int(n) for n in match[2].replace(" ", "").strip(",").split(","))
    if not 0 < np.prod(shape, dtype=object) <= ELEMENTS:
        raise ValueError(f"--arg {text!r}: expected 1 to {ELEMENTS:,} elements")
    if match[1] == "bytes":  # of host code, whose numbers are not known: no index that a kernel makes of one is wild
        shape = (max(1, shape[0] // dtype.itemsize),)
        return filled(shape, dtype, match[3] or "uniform" * (dtype.kind in "fc"), rng)
    return filled(shape, dtype, match[3] or "", rng)


STRUCT = "write its members as in C, '{0.5f, 1000, {1.0, true}}', and 0 for what a float4 leaves free; 0.5f is a float"


def _struct(text):
    """Make a struct of what initialises one in C."""
    values = []
    for word in re.sub(r"[{}\s]", "", text.lower()).split(","):
        match = re.fullmatch(r"([-+.\de]+)u?(f|ll?)?|true|false", word)
        if not match:
            raise ValueError(f"--arg {text!r}: {STRUCT}")
        plain = "f8" if re.search("[.e]", word) else "i4"
        kind = {"f": "f4", "l": "i8", "ll": "i8"}.get(match[2], plain) if match[1] else "b1"
        values.append(np.array(match[1] or word == "true").astype(kind))
    return np.array(tuple(values), np.dtype([("", v.dtype) for v in values], align=True))[()]


FILLS = {
    "normal": lambda shape, rng: rng.normal(size=shape),
    "uniform": lambda shape, rng: rng.random(shape),
    "arange": lambda shape, rng: np.arange(np.prod(shape)).reshape(shape),
    "from7": lambda shape, rng: 7 + np.arange(np.prod(shape)).reshape(shape),
    "zeros": lambda shape, rng: np.zeros(shape),
    "ones": lambda shape, rng: np.ones(shape),
}


def filled(shape, dtype, fill, rng) -> np.ndarray:
    """Return an array of normal numbers, of ones if they are whole, or of what `fill` says."""
    if (kind := np.dtype(dtype).kind) == "V":  # structs
        return np.zeros(shape, dtype)
    fill = fill or ("normal" if kind in "fc" else "ones")
    if fill in FILLS:
        return np.ascontiguousarray(FILLS[fill](shape, rng).astype(dtype))
    try:
        return np.full(shape, float(fill), dtype)
    except ValueError:
        raise ValueError(f"={fill}: expected a number, or one of {', '.join(FILLS)}") from None
