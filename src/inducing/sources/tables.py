"""Tables as files: CSV and TSV, compressed or not, and parquet, read and written whole or in parts.

All CSV files are read by Arrow's streaming reader, a block at a time: what a column holds is guessed from the
first block, and where a later one holds something else the file is read again with a wider type. Text stays
as it is; what it means says `encoding`. pyarrow and pandas are imported when a table is touched, not before.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import package
from ..errors import ColumnError, DataNotFoundError, EmptyDataError, UnknownNameError
from ..files.atomic import replacing
from .source import first_line

if TYPE_CHECKING:
    from pandas import DataFrame

SEPARATORS = {"csv": ",", "tsv": "\t"}
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
COMPRESSIONS = (".gz", ".bz2", ".zst")  # that a CSV file's name may end in
MANY_ROWS = 200_000  # a file of more is read in parts
PART_LINES = 1 << 17  # rows of a part of a CSV file
BLOCK = 1 << 24  # bytes that are parsed at a time


def kind_of(path: Path) -> str:
    """The kind of table file that a suffix means: csv, tsv or parquet."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = len(suffixes) > 1 and suffixes[-1] in COMPRESSIONS
    kind = SUFFIXES.get(suffixes[-2] if packed else suffixes[-1] if suffixes else "")
    if kind is None or (packed and kind == "parquet"):
        raise UnknownNameError(
            f"{str(path)!r} is no table known here; it must end in one of {' '.join(SUFFIXES)}, "
            f"and .csv and .tsv may be followed by one of {' '.join(COMPRESSIONS)}."
        )
    return kind


def read(path: Path, missing: Sequence[str] = ()) -> DataFrame:
    """Read a table from a file, by its suffix; raise if it has no rows. CSV's empty fields, and those that
    are one of `missing`, are gaps.
    """
    pd = package("pandas")
    pa = package("pyarrow")
    pq = package("pyarrow.parquet")

    kind = kind_of(path)
    if not path.is_file():
        raise DataNotFoundError(f"There is no file {str(path)!r}: check the name.")
    if kind != "parquet":
        batches = csv_batches(path, missing)
        table = pa.Table.from_batches([_first(batches, path), *batches])
    else:
        try:
            table = pq.ParquetFile(path).read()
        except (ValueError, OSError) as error:
            raise ColumnError(f"{str(path)!r} could not be read as parquet: {first_line(error)}") from error
    _require_unique(table.column_names, path)
    _first(iter(table.to_batches()), path)
    return table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)


def csv_batches(path: Path, missing: Sequence[str] = ()) -> Iterator[Any]:
    """The rows of a CSV file as Arrow's record batches of one type each; raise if it cannot be read."""
    pa = package("pyarrow")

    types, names = _types(path, missing)
    reader = _reader(path, missing, types)
    wrong = [name for name, kind in zip(names, reader.schema.types) if pa.types.is_binary(kind)]
    if wrong:
        raise ColumnError(f"{str(path)!r} could not be read as csv: column {wrong[0]!r} is no UTF-8 text")
    yield from reader


def _first(batches: Iterator[Any], path: Path) -> Any:
    """The first batch with rows; raise if there is none."""
    batch = next((batch for batch in batches if batch.num_rows), None)
    if batch is None:
        raise EmptyDataError(f"{str(path)!r} has a header but no rows: add at least one.")
    return batch


def _types(path: Path, missing: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The types of the columns that the first block does not tell, and the names of all."""
    pa = package("pyarrow")

    types: dict[str, Any] = {}
    while True:
        schema = None
        try:
            reader = _reader(path, missing, types)
            schema = reader.schema
            _require_unique(schema.names, path)
            for _ in reader:
                pass
            return types, schema.names
        except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
            found = re.search(r"In CSV column #(\d+):", str(error))
            if schema is None or found is None:
                if "Empty CSV" in str(error):
                    message = f"{str(path)!r} is empty: a table needs a header and at least one row."
                    raise EmptyDataError(message) from error
                raise ColumnError(f"{str(path)!r} could not be read as csv: {first_line(error)}") from error
            field = schema.field(int(found[1]))
            narrow = pa.types.is_integer(field.type) or pa.types.is_null(field.type)
            types[field.name] = pa.float64() if narrow else pa.string()


def _reader(path: Path, missing: Sequence[str], types: dict[str, Any]) -> Any:
    csv = package("pyarrow.csv")

    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=BLOCK, use_threads=False),
        parse_options=csv.ParseOptions(delimiter=SEPARATORS[kind_of(path)], newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types, null_values=["", *missing], strings_can_be_null=True
        ),
    )


class Spool:
    """A temporary folder that is removed with the object, or at the end of the process."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="inducing-")
        weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)


def spooled(path: Path, missing: Sequence[str] = ()) -> Spool:
    """A folder with the rows of a CSV file as parquet, parsed once."""
    pa = package("pyarrow")
    pq = package("pyarrow.parquet")

    folder = Spool()
    batches = csv_batches(path, missing)
    first = _first(batches, path)
    with pq.ParquetWriter(
        Path(folder.name) / f"{path.name}.parquet", first.schema, compression="none"
    ) as writer:
        for batch in (first, *batches):
            writer.write_table(pa.Table.from_batches([batch]), row_group_size=PART_LINES)
    return folder


def is_large(table: Path) -> bool:
    """Whether a table is many files, or one with more than MANY_ROWS rows."""
    if table.is_dir() or (not table.exists() and any(mark in str(table) for mark in "*?[")):
        return True
    pa = package("pyarrow")
    pq = package("pyarrow.parquet")

    try:
        if not table.is_file():
            return False
        if kind_of(table) == "parquet":
            return pq.read_metadata(table).num_rows > MANY_ROWS
        lines = 0
        with pa.input_stream(str(table), compression="detect") as stream:
            while lines <= MANY_ROWS + 1 and (block := stream.read(1 << 20)):
                lines += block.count(b"\n")
        return lines > MANY_ROWS + 1
    except (ValueError, OSError):
        return False  # reading it will say what is wrong


def write(table: DataFrame, path: Path) -> None:
    """Write a table to a CSV, TSV or parquet file, by its suffix: whole or not at all."""
    kind = kind_of(path)
    with replacing(path) as temporary:
        if kind == "parquet":
            table.to_parquet(temporary, index=False)
        else:
            packed = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}.get(path.suffix.lower())
            table.to_csv(temporary, sep=SEPARATORS[kind], index=False, compression=packed)


def _require_unique(names: Sequence[str], path: Path) -> None:
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise ColumnError(f"{str(path)!r} has two columns named {twice[0]!r}: rename one.")
