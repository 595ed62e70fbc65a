"""Tables as files: CSV and TSV, compressed or not, and parquet, read and written whole or in parts.

CSV files are read by Arrow's streaming reader, a block at a time: it guesses the type of a column from the
first block, and where a later one holds something else reading starts again with a wider type. Text stays
text until `encoding` decides what it means. pyarrow and pandas are imported only when a table is read.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import package
from ..errors import ColumnError, DataNotFoundError, EmptyDataError, UnknownNameError
from ..files.atomic import replacing
from .columns import require_unique
from .source import first_line

if TYPE_CHECKING:
    from pandas import DataFrame

SEPARATORS = {"csv": ",", "tsv": "\t"}
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
COMPRESSIONS = (".gz", ".bz2", ".zst")  # a CSV file's name may end in one of these
MANY_ROWS = 200_000  # a file with more is read in parts
PART_LINES = 1 << 17  # rows of a part of a CSV file
BLOCK = 1 << 24  # bytes that are parsed at a time
FEW_BYTES = 1 << 20  # a smaller file is read sooner than pyarrow is imported
WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
DECIMAL = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,2})?", re.ASCII)


def kind_of(path: Path) -> str:
    """Return the kind of table that a file's suffix means: csv, tsv or parquet."""
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
    """Read a table from a file, by its suffix; fields of CSV that are empty or one of `missing` are gaps."""
    pd = package("pandas")
    pa = package("pyarrow")
    pq = package("pyarrow.parquet")
    if is_text(path):
        table = parsed(path, missing, lambda schema, batches: pa.Table.from_batches(batches, schema))
    else:
        try:
            table = pq.ParquetFile(path).read()
        except (ValueError, OSError) as error:
            raise ColumnError(f"{str(path)!r} could not be read as parquet: {first_line(error)}") from error
    require_unique(table.column_names, repr(str(path)))
    _require_rows(table.num_rows, path)
    return table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)


def numbers(path: Path) -> dict[str, list[Any]] | None:
    """Read a small text file of plain numbers without pyarrow, but with its result; None for other files."""
    separator = plain_separator(path)
    if separator is None or not path.is_file() or path.stat().st_size > FEW_BYTES:
        return None
    try:
        text = path.read_bytes().decode().replace("\r\n", "\n").removesuffix("\n")
        header, *lines = text.split("\n")
        names, columns = header.split(separator), zip(*(line.split(separator) for line in lines), strict=True)
        table = dict(zip(names, map(_as_numbers, columns), strict=True))
    except ValueError:
        return None
    strange = any(mark in header for mark in '"\r\ufeff\0') or len(table) < len(names) or "" in names
    return None if strange else table


def _as_numbers(texts: Sequence[str]) -> list[Any]:
    """Parse texts as whole numbers if all are, else as floats; raise ValueError if one may be neither."""
    if all(map(WHOLE.fullmatch, texts)):
        return list(map(int, texts))
    if not all(map(DECIMAL.fullmatch, texts)) or not any(set(text) & set(".eE") for text in texts):
        raise ValueError
    return list(map(float, texts))


def plain_separator(path: Path) -> str | None:
    """Return the separator of a text file's columns, or None if it is compressed or no text."""
    return None if packing(path) else SEPARATORS.get(kind_of(path))


def parsed(path: Path, missing: Sequence[str], take: Callable[[Any, Iterator[Any]], Any]) -> Any:
    """Return take(schema, batches) of a CSV file; start again if a later block needs a wider type."""
    pa = package("pyarrow")
    types: dict[str, Any] = {}
    newlines = False  # whether to look for newlines in quotes, which takes time
    while True:
        schema = None
        try:
            rows = _schema_and_batches(path, missing, types, newlines)
            schema = next(rows)
            return take(schema, rows)
        except UnreadError as error:
            column = re.search(r"In CSV column #(\d+):", str(error))
            if column is None and not newlines:
                newlines = True
                continue
            if schema is None or column is None:
                if "Empty CSV" in str(error):
                    message = f"{str(path)!r} is empty: a table needs a header and at least one row."
                    raise EmptyDataError(message) from error
                what = first_line(error) + ". Are commas between?" * ("Expected 1 columns" in str(error))
                raise ColumnError(f"{str(path)!r} could not be read as csv: {what}") from error
            field = schema.field(int(column[1]))
            narrow = pa.types.is_integer(field.type) or pa.types.is_null(field.type)
            types[field.name] = pa.float64() if narrow else pa.string()


class UnreadError(Exception):
    """Arrow could not read a CSV file, or not to its end."""


def _schema_and_batches(
    path: Path, missing: Sequence[str], types: dict[str, Any], newlines: bool
) -> Iterator[Any]:
    """Yield the schema of a CSV file, then its batches that have rows; raise if none has."""
    pa = package("pyarrow")
    csv = package("pyarrow.csv")
    gaps, rows = ["", *missing], 0
    try:
        reader = csv.open_csv(
            path,
            read_options=csv.ReadOptions(block_size=BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=SEPARATORS[kind_of(path)], newlines_in_values=newlines),
            convert_options=csv.ConvertOptions(
                column_types=types, null_values=gaps, strings_can_be_null=True
            ),
        )
        names, kinds = reader.schema.names, reader.schema.types  # names are decoded here
        require_unique(names, repr(str(path)))
        for name in (name for name, kind in zip(names, kinds) if pa.types.is_binary(kind)):
            raise UnreadError(f"column {name!r} is no UTF-8 text; save it as such")
        yield reader.schema
        for batch in reader:
            rows += batch.num_rows
            if batch.num_rows:
                yield batch
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        foreign = "its header is no UTF-8 text; save it as such"
        raise UnreadError(foreign if isinstance(error, UnicodeDecodeError) else str(error)) from error
    _require_rows(rows, path)


def _require_rows(rows: int, path: Path) -> None:
    if not rows:
        raise EmptyDataError(f"{str(path)!r} has a header but no rows: add at least one.")


class Spool:
    """A temporary folder that is removed with the object, or at the end of the process."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="inducing-")
        weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)


def spooled(path: Path, missing: Sequence[str] = ()) -> Spool:
    """Write the rows of a CSV file as parquet into a temporary folder, and return that."""
    pa = package("pyarrow")
    pq = package("pyarrow.parquet")
    folder = Spool()

    def write(schema: Any, batches: Iterator[Any]) -> None:
        file = Path(folder.name) / f"{path.name}.parquet"
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        plain: Any = {"compression": "none", "use_dictionary": texts, "write_statistics": False}
        with pq.ParquetWriter(file, schema, **plain) as writer:
            for batch in batches:
                writer.write_table(pa.Table.from_batches([batch]), row_group_size=PART_LINES)

    parsed(path, missing, write)
    return folder


def is_text(table: Path) -> bool:
    """Return whether a table is one CSV or TSV file; raise if it is no table, or not there."""
    if table.is_dir() or (not table.exists() and any(mark in str(table) for mark in "*?[")):
        return False
    kind = kind_of(table)
    if not table.is_file():
        raise DataNotFoundError(f"There is no file {str(table)!r}: check the name.")
    return kind != "parquet"


def is_large(table: Path) -> bool:
    """Return whether a table is many files, or one with more than MANY_ROWS rows."""
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
            table.to_csv(temporary, sep=SEPARATORS[kind], index=False, compression=packing(path))


def packing(path: Path) -> Any:
    """Return pandas' name of the compression that a file's suffix means, or None."""
    return {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}.get(path.suffix.lower())
