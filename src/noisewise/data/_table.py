"""A data set from a CSV, Parquet or Excel file or a DataFrame: a column of labels, and columns to learn from, or one of image paths.

The names of the columns are checked before the rows are read. Errors name the row and the column.
"""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from noisewise.data._column import Column, encode
from noisewise.data._csv import Load, Rows, from_csv
from noisewise.data._dataset import Dataset
from noisewise.data._encoding import KINDS, Cells, Encoding, Question, as_cells
from noisewise.data._files import ImageFiles
from noisewise.data._folder import load_or_stream
from noisewise.errors import InputError, invalid_parameter, reason, unknown

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".txt", ".parquet", ".pq", ".xlsx"})
_UNPACKED = 1 << 30  # bytes that every compressed file may unpack to
_RATIO = 100  # a larger file may unpack to this many times its size
_NAMELESS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # how pandas writes and reads the index of a table


class _Table(NamedTuple):
    """A table whose rows are not read yet.

    Args:
        names: the names of all columns.
        load: reads some of them.
        called: the name of the table in errors.
        title: the name of the data set.
        folder: the folder that image paths start from.
    """

    names: Sequence[str]
    load: Load
    called: str
    title: str
    folder: Path

    def check_names(self, names: Collection[str], advice: str) -> None:
        known = set(self.names)
        for name in names:
            if name not in known:
                raise InputError(f"{unknown(f'column of {self.called}', name, known)} {advice}")

    def read(self, texts: Sequence[str], others: Sequence[str]) -> Rows:
        """Read some columns; a table without rows is refused."""
        rows = self.load(texts, others)
        if not all(map(len, rows.values.values())):
            raise _no_rows(self.called)
        return rows

    def column(self, name: str) -> str:
        """The name of a column in errors."""
        return f"column {name!r} of {self.called}"

    def cells(self, rows: Rows, names: Sequence[str]) -> dict[str, Cells]:
        """The cells of some columns; all columns that have no cells are reported in one error."""
        cells, problems = dict[str, Cells](), list[str]()
        for name in names:
            try:
                cells[name] = as_cells(rows.values[name], self.column(name))
            except InputError as error:
                problems.append(str(error))
        if problems:
            raise InputError(" ".join(problems))
        return cells


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a path is read as a table."""
    return Path(path).suffix.lower() in TABLE_SUFFIXES and not Path(path).is_dir()


def is_frame(source: Any) -> bool:
    """Whether an object is a DataFrame of pandas or polars."""
    return any(kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] in ("pandas", "polars") for kind in type(source).__mro__)


def has_named_columns(source: Any) -> bool:
    """Whether an object is a DataFrame of pandas or polars, or a Hugging Face data set."""
    return is_frame(source) or is_hf(source)


def is_hf(source: Any) -> bool:
    """Whether an object is of the library of Hugging Face data sets."""
    return type(source).__module__.partition(".")[0] == "datasets"


def from_table(
    source: Any,
    *,
    label: str = "label",
    features: Sequence[str] | None = None,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    text: Sequence[str] | None = None,
    image: str | None = None,
    id: str | None = None,
    true_label: str | None = None,
    classes: Sequence[str] | None = None,
    size: int | tuple[int, int] | None = None,
    memory: float = 4.0,
    unreadable: str = "refuse",
    encoding: Encoding | None = None,
    encoded: bool = True,
) -> Dataset:
    """Read a CSV, Parquet or Excel file, a DataFrame of pandas or polars, or a Hugging Face data set without images.

    Args:
        source: the path of the file, a DataFrame, whose index is ignored, or a data set. A CSV starts with a line of column names and
            is separated by commas, semicolons or tabs; if it is not separated by commas, numbers may have decimal commas. For an
            Excel file (.xlsx) the first sheet is read, with pandas and openpyxl.
        label: the column of labels, integers or text.
        features: the columns to learn from; by default all columns that are not named here. Columns without a name are left out,
            because they are usually the index of the table.
        columns: what columns contain, where the guess is wrong: "number", "boolean", "date", "category" or "text" by name, or a list
            such as ["age:number"].
        drop: columns to leave out.
        text: columns of text; the same as "text" in `columns`.
        image: the column of image paths to learn from instead, relative to the folder of the file, or to the working directory for
            a DataFrame.
        id: a column with a unique name for every example.
        true_label: a column of true labels.
        classes: the names of the classes in order; by default those that occur, sorted.
        size: the side, or (height, width), to resize images to; not needed if all images have one size.
        memory: how many GiB decoded images may take; larger data sets stay on disk, see `Stream`.
        unreadable: "refuse" unreadable images, or "skip" them: then every image is tested first, and a warning lists the skipped
            ones. A path without a file is always refused.
        encoding: the encoding of a training set, for other rows with the same columns; by default one is fitted to this table.
        encoded: False to keep the cells but make no inputs of them, because the inputs will be embeddings.

    Returns:
        The data set, in the order of the rows. `Dataset.encoding` says what was done to each column.
    """
    given = {"label": label, "image": image, "id": id, "true_label": true_label}
    roles = {role: str(column) for role, column in given.items() if column is not None}
    table = _open(source)
    for role, name in roles.items():
        if list(roles.values()).count(name) > 1:
            raise invalid_parameter(role, "from_table", "a column that is used once", name)
        table.check_names([name], f"Set {role!r} to the right one.")
    for option, value in {"features": features, "columns": columns, "drop": drop, "text": text}.items():
        if image is not None and value is not None:
            raise invalid_parameter(option, "from_table", "left out if 'image' is set", value)
    if image is None and size is not None:
        raise invalid_parameter("size", "from_table", "left out if 'image' is not set", size)
    wishes = _Wishes.of(columns, drop, text, features is not None or encoding is not None)
    if encoding is not None:
        table.check_names(encoding.used, "Give a table with all columns that the model was trained on.")
        left_out = [column.name for column in encoding.columns if column.name not in encoding.used]
        chosen: tuple[str, ...] = (*encoding.used, *(name for name in left_out if name in table.names and name not in roles.values()))
    else:
        chosen = () if image is not None else _choose_features(table, features, roles, wishes, some=encoded)
    rows = table.read(tuple(roles.values()), chosen)
    read = {role: Column(rows.values[name], table.column(name), rows.lines) for role, name in roles.items()}
    numbered, true_numbered, names = encode(read["label"], read.get("true_label"), classes)
    ids = read["id"].ids() if "id" in read else None
    if image is not None:
        paths = _existing(read["image"], table.folder)
        written = tuple(map(str, read["image"].values))
        files = ImageFiles(paths, numbered, names, true_labels=true_numbered, ids=ids or written, name=table.title)
        return load_or_stream(files, size=size, memory=memory, unreadable=unreadable)
    cells = table.cells(rows, chosen)
    if not encoded:
        return Dataset(torch.empty(len(numbered), 0), numbered, names, true_labels=true_numbered, ids=ids, name=table.title, cells=cells)
    if encoding is None:
        encoding = Encoding.fit([wishes.question(name, table, cells[name], rows.commas) for name in chosen], table.called)
    inputs = encoding.apply(cells, table.called)
    data = Dataset(inputs, numbered, names, true_labels=true_numbered, ids=ids, name=table.title, features=encoding.names)
    return data.described_by(encoding, cells)


def read_rows(source: Any, encoding: Encoding) -> Tensor:
    """The inputs of the rows of another table, which may have the columns in any order, with others.

    Args:
        source: the path of a file, or a DataFrame.
        encoding: the encoding of the training set.
    """
    table = _open(source)
    table.check_names(encoding.used, "Give a table with all columns that the model was trained on.")
    return encoding.apply(table.cells(table.read((), encoding.used), encoding.used), table.called)


def read_cells(source: Any, names: Sequence[str]) -> dict[str, Cells]:
    """The cells of some columns of a table without labels.

    Args:
        source: the path of a file, or a DataFrame.
        names: the names of the columns.
    """
    table = _open(source)
    table.check_names(names, "Give a table with all columns that the model was trained on.")
    return table.cells(table.read((), names), names)


def read_columns(source: Any) -> tuple[Encoding, dict[str, Cells]]:
    """Fit an encoding to a table without labels, and return it with the cells.

    Args:
        source: the path of a file, or a DataFrame.
    """
    table = _open(source)
    rows = table.read((), table.names)
    cells, wishes = table.cells(rows, table.names), _Wishes({}, (), False)
    return Encoding.fit([wishes.question(name, table, cells[name], rows.commas) for name in table.names], table.called), cells


def read_features(source: Any, features: Sequence[str]) -> Tensor:
    """Read columns of numbers, for a run that was written before encodings were.

    Args:
        source: the path of a file, or a DataFrame.
        features: the names of the columns.
    """
    table = _open(source)
    table.check_names(features, "Give a table with all columns that the model was trained on.")
    rows = table.read((), features)
    columns = (Column(rows.values[name], table.column(name), rows.lines) for name in features)
    return torch.from_numpy(np.stack([column.numbers() for column in columns], 1))


def read_ids(source: Any, id: str | None) -> tuple[str, ...] | None:
    """The names of the rows of a table from one of its columns; None without such a column.

    Args:
        source: the path of a file, or a DataFrame.
        id: the name of the column, or None.
    """
    if id is None:
        return None
    table = _open(source)
    table.check_names([id], "Set 'id' to the right one.")
    rows = table.read([id], ())
    return Column(rows.values[id], table.column(id), rows.lines).ids()


class _Wishes(NamedTuple):
    """What the user said about the columns.

    Args:
        kinds: what columns contain, by name.
        drop: the columns to leave out.
        wanted: whether the user named the columns to learn from, so that none of them is left out as a name of the rows.
    """

    kinds: Mapping[str, str]
    drop: Sequence[str]
    wanted: bool

    @classmethod
    def of(
        cls, columns: Mapping[str, str] | Sequence[str] | None, drop: Sequence[str] | None, text: Sequence[str] | None, wanted: bool
    ) -> _Wishes:
        if columns is not None and not isinstance(columns, Mapping):
            pairs = [str(entry).rpartition(":") for entry in _as_list(columns)]
            if bad := [entry for entry, (name, *_) in zip(_as_list(columns), pairs, strict=True) if not name]:
                raise invalid_parameter("columns", "from_table", "names and kinds, such as 'age:number'", bad[0])
            columns = {name: kind for name, _, kind in pairs}
        kinds = {str(name): kind for name, kind in (columns or {}).items()}
        return cls({**kinds, **dict.fromkeys(map(str, _as_list(text or ())), "text")}, [str(name) for name in _as_list(drop or ())], wanted)

    def check(self, table: _Table, used: Mapping[str, str], chosen: Collection[str]) -> None:
        """Refuse wishes that cannot be met, all in one error."""
        known, roles, problems = set(table.names), {name: role for role, name in used.items()}, list[str]()
        for option, names in {"columns": self.kinds, "drop": self.drop}.items():
            for name in names:
                if name not in known:
                    problems.append(str(unknown(f"column of {table.called}", name, known)))
                elif name in roles:
                    problems.append(f"The column {name!r} is given as {roles[name]!r}, so it cannot be in {option!r}.")
        for name, kind in self.kinds.items():
            if kind not in KINDS:
                problems.append(f"The column {name!r} cannot be {kind!r}; known kinds are {', '.join(KINDS)}.")
            if name in known and name not in roles and name not in chosen:
                problems.append(f"The column {name!r} is left out, so what it contains cannot be set.")
        if problems:
            raise InputError(" ".join(problems))

    def question(self, name: str, table: _Table, cells: Cells, commas: bool | None) -> Question:
        forced = self.kinds.get(name)
        return Question(name, table.column(name), cells, forced, self.wanted, commas)


def _as_list(names: Any) -> list[Any]:
    return [names] if isinstance(names, str) else list(names)


def _choose_features(
    table: _Table, features: Sequence[str] | None, roles: Mapping[str, str], wishes: _Wishes, *, some: bool = True
) -> tuple[str, ...]:
    """The columns to learn from. With `some`, having none is an error."""
    used, dropped = set(roles.values()), set(wishes.drop)
    if isinstance(features, str):
        features = [features]
    others = (name for name in table.names if name not in used and (name in wishes.kinds or not _NAMELESS.fullmatch(name)))
    named = tuple(others if features is None else map(str, features))
    chosen = tuple(name for name in named if name not in dropped)
    wishes.check(table, roles, set(chosen))
    if some and not chosen:
        raise InputError(f"No column of {table.called} is left to learn from; set 'features' to columns to learn from, or 'image'.")
    table.check_names(chosen, "Set 'features' to the right ones.")
    for name, times in Counter(chosen).items():
        if name in used or times > 1:
            raise invalid_parameter("features", "from_table", "columns that are used once", name)
    return chosen


def _existing(column: Column, folder: Path) -> tuple[str, ...]:
    files = [folder / str(value) for value in column.objects()]
    for number, file in enumerate(files):
        if not file.is_file():
            raise column.error(number, f"names the image {str(file)!r}, which does not exist", "correct the path or leave the row out")
    return tuple(map(str, files))


def _open(source: Any) -> _Table:
    if is_frame(source):
        table = _Table(*_from_frame(source), "the DataFrame", "DataFrame", Path())
    elif is_hf(source):
        table = _Table(*_from_hf(source), "the data set", str(getattr(source, "builder_name", None) or "hf"), Path())
    else:
        path = Path(source)
        if not path.is_file():
            raise InputError(f"There is no file {str(path)!r}; give the path of a CSV, Parquet or Excel file.")
        suffix = path.suffix.lower()
        if suffix not in TABLE_SUFFIXES:
            raise InputError(f"The name of the file {path.name!r} must end in one of {', '.join(sorted(TABLE_SUFFIXES))}.")
        opener = {".xlsx": _from_excel, ".parquet": _from_parquet, ".pq": _from_parquet}.get(suffix, from_csv)
        table = _Table(*opener(path), path.name, path.stem, path.parent)
    if not table.names:
        raise _no_rows(table.called)
    for name, times in Counter(table.names).items():
        if times > 1:
            raise InputError(f"The columns of {table.called} must have different names. Got {name!r} {times} times; rename them.")
    return table


def _no_rows(called: str) -> InputError:
    return InputError(f"There are no rows in {called}; give a table with a row for every example.")


def _from_frame(frame: Any) -> tuple[list[str], Load]:
    names = list(map(str, frame.columns))
    # Polars has get_columns; pandas is read by position, because a name may occur twice.
    columns = frame.get_columns() if hasattr(frame, "get_columns") else [frame.iloc[:, position] for position in range(frame.shape[1])]
    by_name = dict(zip(names, columns, strict=True))
    return names, lambda texts, others: Rows({name: by_name[name].to_numpy() for name in (*texts, *others)})


def _from_hf(dataset: Any) -> tuple[list[str], Load]:
    plain = dataset.with_format(None)
    return list(plain.column_names), lambda texts, others: Rows({name: list(plain[name]) for name in (*texts, *others)})


def _from_parquet(path: Path) -> tuple[list[str], Load]:
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError:
        raise InputError(f"Reading {path.name!r} needs pyarrow, which is not installed; run: pip install 'noisewise[parquet]'.") from None

    def load(texts: Sequence[str], others: Sequence[str]) -> Rows:
        names = [*texts, *others]
        unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        check_unpacked(path, max(unpacked, 8 * metadata.num_rows * len(names)))
        # Read as a dictionary, a text that many rows share is in memory once, as it is in the file.
        shared = [name for name in names if types.is_string(schema.field(name).type) or types.is_binary(schema.field(name).type)]
        try:
            table = parquet.read_table(path, columns=names, read_dictionary=shared)
        except (ArrowException, OSError) as error:
            raise unreadable(error) from None
        columns = {name: table.column(name) for name in names}
        return Rows({name: _texts(column) if types.is_dictionary(column.type) else column.to_numpy() for name, column in columns.items()})

    def unreadable(error: Exception) -> InputError:
        return InputError(f"The file {path.name!r} cannot be read as Parquet: {reason(error)}; write it again.")

    try:
        with parquet.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except (ArrowException, OSError) as error:
        raise unreadable(error) from None
    return schema.names, load


def _texts(column: Any) -> np.ndarray:
    """The texts of a dictionary column of pyarrow: equal texts are one object, empty cells are None."""
    chunk = column.combine_chunks()
    texts = np.append(chunk.dictionary.to_numpy(zero_copy_only=False).astype(object), [None])
    return np.asarray(texts[chunk.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)])


def _from_excel(path: Path) -> tuple[list[str], Load]:
    try:
        import pandas

        with zipfile.ZipFile(path) as archive:
            check_unpacked(path, sum(member.file_size for member in archive.infolist()))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="openpyxl")  # about styles it does not know
            return _from_frame(pandas.read_excel(path, keep_default_na=False, na_values=[""]))  # "None" is a label, not a gap
    except ImportError:
        raise InputError(
            f"Reading {path.name!r} needs pandas and openpyxl, which are not both installed; run: pip install pandas openpyxl, "
            "or save the sheet as CSV."
        ) from None
    except InputError:
        raise
    except Exception as error:  # a damaged file can fail in any way its parser can
        raise InputError(f"The file {path.name!r} cannot be read as Excel: {reason(error)}; save it again, or as CSV.") from None


def check_unpacked(path: Path, size: int) -> None:
    limit = max(_UNPACKED, _RATIO * path.stat().st_size)
    if size > limit:
        raise InputError(
            f"The file {path.name!r} unpacks to {size:,} bytes, more than the limit of {limit:,} for a file of its size; "
            "if you trust it, read it with pandas and pass the DataFrame."
        )
