#!/usr/bin/env python3
"""write_files.py: writes data/*.parquet and data/*.arrow with pyarrow and `datasets`, and
data/expected.json, which has the values of each file as pyarrow reads them.

write_files.py PREFIX: with an older pyarrow, writes only data/PREFIX.parquet and
data/PREFIX.arrow; then run the script without an argument again.

tests/unit/worker/columnar reads the files: schemas of SQuAD and GLUE, types* at the limits of their
ranges, masked* (null lists and structs whose values stand in the buffers), repeated* (long runs, many
pages), tiny* (for tests that cut and change each byte), refused_*. squad_pyarrow10.* are of pyarrow
10.0.1, the others of 26.0.1 and `datasets` 5.0.1. Two runs give the same bytes, except for the
encrypted files, whose nonces are random.
"""
import decimal
import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

DATA = pathlib.Path(__file__).resolve().parent / "data"
ROWS = 16

CONTEXTS = [
    "The bridge was built in 1874 and crosses the river at three places.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. \U0001d54f",
    "東京は日本の首都であり、人口は約千四百万人である。",
    "A tab\there, a quote \" there,\na line feed, and a null character: \x00.",
]
ANSWERS = [(["1874"], [24]), (["großen", "Deich"], [42, 56]), ([], []), (["tab", "", "quote"], [2, 0, 14])]


def squad_values():
    rows = range(ROWS)
    return {
        "id": [f"{i:024x}" for i in rows],
        "title": [["Bridge", "Pangramm", "東京"][i // 6] for i in rows],
        "context": [CONTEXTS[i // 2 % 4] for i in rows],
        "question": [f"Question {i}: " + "why? " * (i % 7) for i in rows],
        "answers": [{"text": ANSWERS[i // 2 % 4][0], "answer_start": ANSWERS[i // 2 % 4][1]} for i in rows],
    }


SQUAD_SCHEMA = pa.schema([
    ("id", pa.string()), ("title", pa.string()), ("context", pa.string()), ("question", pa.string()),
    ("answers", pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))]))])


def squad():
    return pa.Table.from_pydict(squad_values(), schema=SQUAD_SCHEMA)


def glue():
    from datasets import ClassLabel, Features, Value
    features = Features({"sentence1": Value("string"), "sentence2": Value("string"),
                         "label": ClassLabel(names=["not_equivalent", "equivalent"]), "idx": Value("int32")})
    rows = range(ROWS)
    return pa.Table.from_pydict(
        {"sentence1": [f"Sentence {i} costs {i * 3} €." for i in rows],
         "sentence2": [None if i % 5 == 3 else "Same again ." for i in rows],
         "label": [-1 if i > 12 else i * i % 3 % 2 for i in rows],
         "idx": [2 * i for i in rows]}, schema=features.arrow_schema)


def stsb():
    from datasets import Features, Value
    features = Features({"sentence1": Value("string"), "label": Value("float32"), "idx": Value("int32")})
    return pa.Table.from_pydict({"sentence1": ["a", "bc", ""], "label": [3.8, 0.0, 5.0], "idx": [0, 1, 2]},
                                schema=features.arrow_schema)


def types():
    """Every type that is supported, with nulls and without, at the limits of its range."""
    columns, fields = [], []

    def add(name, type_, values, nullable=True):
        fields.append(pa.field(name, type_, nullable=nullable))
        columns.append(pa.array(values, type_))

    for bits in (8, 16, 32, 64):
        low, high = -2 ** (bits - 1), 2 ** (bits - 1) - 1
        add(f"int{bits}", getattr(pa, f"int{bits}")(), [low, high, None, 0, -1, 7])
        add(f"required_int{bits}", getattr(pa, f"int{bits}")(), [high, 5, low, 0, -1, 7], nullable=False)
    for bits in (8, 16, 32):
        add(f"uint{bits}", getattr(pa, f"uint{bits}")(), [0, 2 ** bits - 1, None, 2 ** (bits - 1), 1, 2])
    add("float32", pa.float32(), [0.1, None, -1.5, 3.0e38, 1.0e-45, 0.0])
    add("float64", pa.float64(), [0.1, None, -1.5, 1.0e308, 5.0e-324, 2.0])
    add("bool", pa.bool_(), [True, None, False, True, True, False])
    add("required_bool", pa.bool_(), [False, True, True, False, True, True], nullable=False)
    add("string", pa.string(), ["", None, "ä", "\U0001f600", None, "z" * 300])
    add("required_string", pa.string(), ["a", "", "c", "d", "", "f"], nullable=False)
    add("large_string", pa.large_string(), [None, "l", "", None, "x", "y"])
    add("strings", pa.list_(pa.string()), [["a", "b"], [], None, [""], ["ü", "", "c"], []])
    add("large_strings", pa.large_list(pa.large_string()), [[], ["a"], ["b", "c"], None, [], ["d"]])
    add("required_ints", pa.list_(pa.field("element", pa.int64(), nullable=False)),
        [[1], [2, 3], [], [-4, 5, 6], [], [7]], nullable=False)
    add("reals", pa.list_(pa.float32()), [[0.5], None, [], [1.5, -2.5], [], [3.0]])
    add("bools", pa.list_(pa.bool_()), [[True, False], [], [False], None, [True] * 9, []])
    struct = pa.struct([("text", pa.string()), ("start", pa.int32())])
    add("record", struct, [{"text": "a", "start": 1}, None, {"text": None, "start": 2}, {"text": "d", "start": None},
                           {"text": "", "start": 0}, None])
    add("records", pa.list_(struct), [[{"text": "a", "start": 1}, {"text": "b", "start": 2}], [], None,
                                      [{"text": "", "start": 3}], [], [{"text": "e", "start": 4}]])
    add("nested", pa.struct([("inner", pa.struct([("items", pa.list_(pa.int32()))]))]),
        [{"inner": {"items": [1, 2]}}, None, {"inner": None}, {"inner": {"items": None}},
         {"inner": {"items": []}}, {"inner": {"items": [3]}}])
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def repeated():
    """Long runs, many pages, and a dictionary that is given up for plain values on the way."""
    rows = range(1000)
    return pa.Table.from_pydict({
        "label": pa.array([i // 300 for i in rows], pa.int64()),
        "word": pa.array([None if i % 9 == 8 else f"w{i * i % 41}" for i in rows], pa.string()),
        "rare": pa.array([f"{i * 7919 % 1009:x}" if i > 400 else "same" for i in rows], pa.string()),
        "flags": pa.array([i % 400 > 250 for i in rows], pa.bool_()),
        "lists": pa.array([list(range(i % 5)) for i in rows], pa.list_(pa.int32())),
    })


def tiny():
    """For the tests that cut and change each byte."""
    return pa.Table.from_pydict({
        "text": pa.array(["one", None, "three", "one"], pa.string()),
        "label": pa.array([1, 0, -1, 1], pa.int64()),
        "answers": pa.array([{"text": ["a"], "start": [3]}, {"text": [], "start": []}, None,
                             {"text": ["b", "c"], "start": [4, 5]}],
                            pa.struct([("text", pa.list_(pa.string())), ("start", pa.list_(pa.int32()))])),
    })


def masked():
    """Null lists and structs whose values stand in the buffers, as Arrow allows; then a slice of that."""
    mask = pa.array([False, True, False, True, False])
    lists = pa.ListArray.from_arrays(pa.array([1, 3, 4, 6, 7, 7], pa.int32()),
                                     pa.array([9, 1, 2, 9, 3, 4, 9, 9], pa.int32()), mask=mask)
    names = pa.array(["a", "hidden", None, "hidden", "e"])
    return pa.table({"lists": lists, "record": pa.StructArray.from_arrays([names, lists], ["name", "list"], mask=mask)})


def empty():
    return squad().slice(0, 0)


def write_parquet(name, table, **options):
    pq.write_table(table, DATA / f"{name}.parquet", **options)


def write_stream(name, table, batch_rows=None, **options):
    with pa.OSFile(str(DATA / f"{name}.arrow"), "wb") as sink, \
            pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=batch_rows)


def write_with_datasets():
    from datasets import Dataset, Features, Value
    from datasets.arrow_writer import ArrowWriter
    try:
        from datasets import List as ListOf
    except ImportError:
        from datasets import Sequence as ListOf
    features = Features({"id": Value("string"), "title": Value("string"), "context": Value("string"),
                         "question": Value("string"),
                         "answers": {"text": ListOf(Value("string")), "answer_start": ListOf(Value("int32"))}})
    Dataset.from_dict(squad_values(), features=features).to_parquet(DATA / "squad_datasets.parquet")
    with ArrowWriter(features=features, path=str(DATA / "squad_datasets.arrow"), writer_batch_size=7) as writer:
        values = squad_values()
        for i in range(ROWS):
            writer.write({name: column[i] for name, column in values.items()})
        writer.finalize()


def write_accepted():
    pages = {"row_group_size": 7, "data_page_size": 200, "write_batch_size": 3}
    write_parquet("squad_snappy", squad(), compression="snappy", **pages)
    write_parquet("squad_gzip_v2", squad(), compression="gzip", data_page_version="2.0", **pages)
    write_parquet("squad_zstd_v2_plain", squad(), compression="zstd", data_page_version="2.0",
                  use_dictionary=False, **pages)
    write_parquet("squad_uncompressed_crc", squad(), compression="none", use_dictionary=False,
                  write_page_checksum=True)
    write_parquet("squad_version_1", squad(), version="1.0", compression="gzip")
    write_parquet("squad_old_lists", squad(), use_compliant_nested_type=False, store_schema=False,
                  write_page_index=True, write_page_checksum=True, data_page_version="2.0")
    write_with_datasets()
    write_stream("squad_stream", squad(), batch_rows=5)
    write_parquet("glue", glue(), row_group_size=9)
    write_stream("glue", glue(), batch_rows=9)
    write_stream("glue_v4", glue(), metadata_version=pa.ipc.MetadataVersion.V4)
    write_parquet("stsb", stsb())
    write_stream("stsb", stsb())
    write_parquet("types", types())
    write_parquet("types_v2_zstd", types(), data_page_version="2.0", compression="zstd", use_dictionary=False,
                  column_encoding={"bool": "RLE"})
    write_parquet("types_version_1", types(), version="1.0")
    write_stream("types", types())
    write_stream("masked", masked())
    write_stream("masked_slice", masked().slice(1, 3))
    write_parquet("masked_slice", masked().slice(1, 3))
    write_stream("types_batches", types(), batch_rows=4)
    write_parquet("repeated", repeated(), data_page_size=500, write_batch_size=64, row_group_size=600,
                  dictionary_pagesize_limit=900)
    write_parquet("repeated_v2", repeated(), data_page_size=500, write_batch_size=64,
                  dictionary_pagesize_limit=900, data_page_version="2.0", compression="zstd")
    write_parquet("empty", empty())
    write_stream("empty", empty())
    small = {"store_schema": False, "write_statistics": False}
    write_parquet("tiny_snappy", tiny(), **small)
    write_parquet("tiny_zstd_v2", tiny(), compression="zstd", data_page_version="2.0", row_group_size=2, **small)
    write_parquet("tiny_gzip_plain", tiny(), compression="gzip", use_dictionary=False, **small)
    write_parquet("tiny_uncompressed", tiny(), compression="none", **small)
    write_stream("tiny", tiny(), batch_rows=2)


def encryption():
    import base64
    import pyarrow.parquet.encryption as pe

    class Kms(pe.KmsClient):  # the key stands in the file: for tests only
        def __init__(self, _):
            pe.KmsClient.__init__(self)

        def wrap_key(self, key, _):
            return base64.b64encode(key)

        def unwrap_key(self, key, _):
            return base64.b64decode(key)

    def properties(**options):
        factory = pe.CryptoFactory(Kms)
        return factory.file_encryption_properties(
            pe.KmsConnectionConfig(),
            pe.EncryptionConfiguration(footer_key="footer", column_keys={"column": ["label"]}, **options))
    return properties


def write_refused():
    small = {"store_schema": False, "write_statistics": False}
    label = pa.table({"text": ["a", "b"], "label": pa.array([1, 2], pa.int64())})
    for codec in ("brotli", "lz4"):
        write_parquet(f"refused_{codec}", label, compression=codec, **small)
    for column, encoding in (("label", "DELTA_BINARY_PACKED"), ("text", "DELTA_LENGTH_BYTE_ARRAY"),
                             ("text", "DELTA_BYTE_ARRAY"), ("label", "BYTE_STREAM_SPLIT")):
        write_parquet(f"refused_{encoding.lower()}", label, use_dictionary=False, column_encoding={column: encoding},
                      **small)
    properties = encryption()
    write_parquet("refused_encrypted", label, encryption_properties=properties(), **small)
    write_parquet("refused_encrypted_column", label, encryption_properties=properties(plaintext_footer=True), **small)
    second = pa.array([1, 2], pa.int32())
    odd = pa.table({
        "text": ["a", "b"],
        "nested": pa.array([[[1]], [[2], []]], pa.list_(pa.list_(pa.int32()))),
        "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
        "timestamp": pa.array([1, 2], pa.timestamp("ms")),
        "date": pa.array([1, 2], pa.date32()),
        "decimal": pa.array([decimal.Decimal("1.5"), None], pa.decimal128(9, 2)),
        "binary": pa.array([b"a", b"\xff"], pa.binary()),
        "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
        "uint64": pa.array([1, 2 ** 64 - 1], pa.uint64()),
        "half": pa.array([1, 2], pa.float16()),
        "nulls": pa.nulls(2),
        "list_with_null": pa.array([["a", None], []], pa.list_(pa.string())),
        "label": second,
    })
    write_parquet("refused_types", odd, store_schema=False)
    indices = pa.array([0, 1], pa.int8())
    write_stream("refused_types", odd
                 .append_column("dictionary", pa.DictionaryArray.from_arrays(indices, pa.array(["x", "y"])))
                 .append_column("fixed_list", pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))))
    write_stream("refused_view", pa.table({"text": pa.array(["a", "b"], pa.string_view()), "label": second}))
    for codec in ("lz4", "zstd"):
        write_stream(f"refused_{codec}", label, compression=codec)
    with pa.OSFile(str(DATA / "refused_file.arrow"), "wb") as sink, pa.ipc.new_file(sink, label.schema) as writer:
        writer.write_table(label)
    broken = pa.array([b"ok", b"\xc3("], pa.binary())
    text = pa.StringArray.from_buffers(2, broken.buffers()[1], broken.buffers()[2])
    write_parquet("refused_utf8", pa.table({"text": text}), **small)
    write_stream("refused_utf8", pa.table({"text": text}))


def kind_of(type_):
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "strings"
    if pa.types.is_boolean(type_):
        return "booleans"
    return "floating-point numbers" if pa.types.is_floating(type_) else "integers"


def flatten(name, type_, values, in_list, columns):
    """Adds the columns of a struct as "struct.field", and a list of structs as one list per field."""
    if pa.types.is_struct(type_):
        for field in type_:
            def pick(value):
                return None if value is None else value[field.name]
            inner = [[pick(v) for v in value] if in_list and value is not None else pick(value) for value in values]
            flatten(f"{name}.{field.name}", field.type, inner, in_list, columns)
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        flatten(name, type_.value_type, values, True, columns)
    else:
        columns[name] = {"type": kind_of(type_), "list": in_list, "values": values}


def read(path):
    if path.suffix == ".parquet":
        return pq.read_table(path, use_threads=False)
    with pa.ipc.open_stream(path) as reader:
        return reader.read_all()


def describe(path):
    table = read(path)
    columns = {}
    for field, column in zip(table.schema, table.columns):
        flatten(field.name, field.type, column.to_pylist(), False, columns)
    return {"rows": table.num_rows, "columns": columns}


def write_expected():
    """Files with equal values share a table."""
    tables, files = {}, {}
    for path in sorted([*DATA.glob("*.parquet"), *DATA.glob("*.arrow")]):
        if path.stem.startswith("refused_"):
            continue
        values = describe(path)
        name = next((name for name, table in tables.items() if table == values), path.stem)
        tables[name] = values
        files[path.name] = name
    def lines(entries):  # one entry per line
        return ",\n".join(f"{json.dumps(name)}: {json.dumps(value, sort_keys=True, ensure_ascii=False)}"
                          for name, value in sorted(entries.items()))
    (DATA / "expected.json").write_text(
        f'{{"pyarrow": "{pa.__version__}",\n"files": {{\n{lines(files)}}},\n"tables": {{\n{lines(tables)}}}}}\n')


def main():
    DATA.mkdir(exist_ok=True)
    if len(sys.argv) > 1:
        write_parquet(sys.argv[1], squad(), row_group_size=7)
        write_stream(sys.argv[1], squad(), batch_rows=7)
        return
    write_accepted()
    write_refused()
    write_expected()


if __name__ == "__main__":
    main()
