"""CSV, TSV and matrices in text: what is a header, what is a dimension, and which cell is wrong."""

from __future__ import annotations

import codecs
from pathlib import Path

import numpy as np
import pytest
import torch

from embedwatch.core.errors import InputError, UsageError
from embedwatch.sources import _csv_rows
from embedwatch.sources.csv import CsvSource
from embedwatch.testing.source_contract import source_contract
from tests.sources.makers import matrix
from tests.sources.refusals import message_of, refusal

ROWS = "0.5,-1.5\n2.5,3.5\n4.5,5.5\n"
VALUES = [[0.5, -1.5], [2.5, 3.5], [4.5, 5.5]]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def values_of(path: Path, **options: str) -> list[list[float]]:
    source = CsvSource.open(path, **options)
    return [row for batch in source.batches(2) for row in batch.rows.tolist()]


# --- layout ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names", "notes"),
    [
        (ROWS, ["0", "1", "2"], ()),
        ("x,y\n" + ROWS, ["0", "1", "2"], ()),
        ("\ufeffx,y\r\n" + ROWS.replace("\n", "\r\n"), ["0", "1", "2"], ()),
        ("\n\nx,y\n\n" + ROWS.replace("\n", "\n\n"), ["0", "1", "2"], ()),
        ("# made by numpy\n# today\n" + ROWS, ["0", "1", "2"], ()),
        ("# x,y\n" + ROWS, ["0", "1", "2"], ()),
        (ROWS.replace(",", ";"), ["0", "1", "2"], ()),
        (ROWS.replace(",", ";").replace(".", ","), ["0", "1", "2"], ()),
        (ROWS.replace(",", "\t"), ["0", "1", "2"], ()),
        (ROWS.replace(",", "\t").replace(".", ","), ["0", "1", "2"], ()),
        (ROWS.replace(",", "|"), ["0", "1", "2"], ()),
        (ROWS.replace(",", " "), ["0", "1", "2"], ()),
        (ROWS.replace(",", ", "), ["0", "1", "2"], ()),
        ('"x","y"\n"0.5","-1.5"\n"2.5","3.5"\n"4.5","5.5"\n', ["0", "1", "2"], ()),
        ("0,1\n" + ROWS, ["0", "1", "2"], ("the first line (0 to 1) is taken as a header",)),
        ("1,2\n" + ROWS, ["0", "1", "2"], ("the first line (1 to 2) is taken as a header",)),
        (
            ",0,1\n7,0.5,-1.5\n8,2.5,3.5\n9,4.5,5.5\n",
            ["7", "8", "9"],
            ("the first line (0 to 1) is taken as a header", 'column "" numbers the rows and is no dimension'),
        ),
        (
            "id,x,y\n7,0.5,-1.5\n8,2.5,3.5\n9,4.5,5.5\n",
            ["7", "8", "9"],
            ('column "id" numbers the rows and is no dimension',),
        ),
        (
            "x,doc_id,y\n0.5,70,-1.5\n2.5,80,3.5\n4.5,90,5.5\n",
            ["70", "80", "90"],
            ('column "doc_id" numbers the rows and is no dimension',),
        ),
        (
            "0,0.5,-1.5\n1,2.5,3.5\n2,4.5,5.5\n",
            ["0", "1", "2"],
            ('column "1" numbers the rows and is no dimension',),
        ),
        (
            'word,x,y\n"a, ""b""\nc",0.5,-1.5\n1984,2.5,3.5\nnull,4.5,5.5\n',
            ['a, "b"\nc', "1984", "null"],
            ('column "word" is text and no dimension',),
        ),
        ("a,0.5,-1.5\nb,2.5,3.5\nc,4.5,5.5\n", ["a", "b", "c"], ('column "1" is text and no dimension',)),
        ("#,0.5,-1.5\nb,2.5,3.5\nc,4.5,5.5\n", ["#", "b", "c"], ('column "1" is text and no dimension',)),
        ('"\t0.5\t-1.5\nb\t2.5\t3.5\n"\t4.5\t5.5\n', ['"', "b", '"'], ('column "1" is text and no dimension',)),
        (
            "word,lang,x,y\na,de,0.5,-1.5\nb,fr,2.5,3.5\nc,de,4.5,5.5\n",
            ["a", "b", "c"],
            ('columns "word", "lang" are text and no dimensions',),
        ),
        (
            "x,y,\n0.5,-1.5,\n2.5,3.5,\n4.5,5.5,\n",
            ["0", "1", "2"],
            ('column "" is empty in the first rows and left out',),
        ),
    ],
)
def test_layouts(text: str, names: list[str], notes: tuple[str, ...], tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", text)
    assert values_of(path) == VALUES
    source = CsvSource.open(path)
    assert source.names([0, 1, 2]) == names
    assert source.notes == notes
    source_contract(CsvSource, path)


def test_whole_numbers_among_fractions_are_said(tmp_path: Path) -> None:
    source = CsvSource.open(write(tmp_path / "x.csv", "x,year\n0.5,1999\n1.5,2001\n"))
    assert source.dimension == 2
    assert source.notes == ('column "year" holds whole numbers and is read as a dimension',)


def test_a_matrix_of_whole_numbers_is_all_dimensions(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "0,1,2\n3,4,5\n6,7,8\n")
    assert values_of(path) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("missing", ["", "NA", "nan", "NaN", "null", "None"])
def test_missing_values(missing: str, tmp_path: Path) -> None:
    rows = torch.tensor(values_of(write(tmp_path / "x.csv", f"x,y\n0.5,1.5\n{missing},2.5\n")))
    assert rows.isnan().tolist() == [[False, False], [True, False]]


def test_infinity_and_range(tmp_path: Path) -> None:
    rows = values_of(write(tmp_path / "x.csv", "x,y\n0.5,1.5\ninf,-inf\n1e39,1e-60\n+2.5,1e3\n"))
    assert rows == [[0.5, 1.5], [torch.inf, -torch.inf], [torch.inf, 0.0], [2.5, 1000.0]]


def test_a_header_alone(tmp_path: Path) -> None:
    source = CsvSource.open(write(tmp_path / "x.csv", "x,y,z\n"))
    assert (source.dimension, list(source.batches(5))) == (3, [])


def test_savetxt(tmp_path: Path) -> None:
    path, x = tmp_path / "x.csv", matrix(40, 6)
    np.savetxt(path, x, header="six columns of\nnumbers")
    assert np.array_equal(np.array(values_of(path), dtype=np.float32), x)


# --- labels ----------------------------------------------------------------------------------------------------------


def test_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "word,x,lang,year\na,0.5,de,1999\nb,1.5,,1999\nc,2.5,fr,2001\nd,3.5,de,2001\n")
    source = CsvSource.open(path, labels="lang")
    found = [(batch.labels.tolist(), list(batch.groups)) for batch in source.batches(3) if batch.labels is not None]
    assert found == [([0, -1, 1], ["de", "fr"]), ([0], ["de"])]
    assert source.dimension == 2
    years = CsvSource.open(path, labels="year")
    assert years.dimension == 1
    assert next(years.batches(9)).groups == ["1999", "2001"]
    assert source.fingerprint() != years.fingerprint()


def test_labels_without_a_header_go_by_number(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "de,0.5,1.5\nfr,2.5,3.5\n")
    assert next(CsvSource.open(path, labels="1").batches(9)).groups == ["de", "fr"]
    assert "it has 1, 2, 3" in message_of(lambda: CsvSource.open(path, labels="lang"), path, UsageError)


def test_labels_that_do_not_exist(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "language,x\nde,0.5\n")
    message = message_of(lambda: CsvSource.open(path, labels="langage"), path, UsageError)
    assert 'did you mean "language"' in message


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("w,1.5", "line 202 has 2 cells, the first lines 3"),
        ("w,1.5,2.5,3.5", "line 202 has 4 cells, the first lines 3"),
        ("w,1.5,abc", "line 202, column 3 ('y') must be a number, got 'abc'"),
        ("w,1_0,2.5", "line 202, column 2 ('x') must be a number, got '1_0'"),
        ("w,0x1F,2.5", "line 202, column 2 ('x') must be a number, got '0x1F'"),
        ('w,"1,5",2.5', "line 202, column 2 ('x') must be a number, got '1,5'"),
        ("w,1.5 2.5,2.5", "line 202, column 2 ('x') must be a number, got '1.5 2.5'"),
    ],
)
def test_cells_that_do_not_fit_are_named(row: str, words: str, tmp_path: Path) -> None:
    lines = ["word,x,y", *(f"w{i},0.5,1.5" for i in range(200)), row, "last,0.5,1.5"]
    assert words in refusal(CsvSource, write(tmp_path / "x.csv", "\n".join(lines)))


def test_a_bad_cell_in_the_first_row_is_no_header(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "abc,0.5\n1.5,2.5\n3.5,4.5\n")
    assert "line 1, column 1 must be a number, got 'abc'" in refusal(CsvSource, path)


def test_no_numbers(tmp_path: Path) -> None:
    assert "its columns are word, lang" in refusal(CsvSource, write(tmp_path / "x.csv", "word,lang\na,de\nb,fr\n"))
    lists = 'word,embedding\na,"[0.1, 0.2]"\nb,"[0.3, 0.4]"\n'
    assert "column 'embedding' holds lists as text" in refusal(CsvSource, write(tmp_path / "y.csv", lists))
    assert "no column of numbers" in refusal(CsvSource, write(tmp_path / "z.csv", "id\n1\n2\n3\n"))


def test_encodings(tmp_path: Path) -> None:
    latin = b"word,x\n" + b"a,0.5\n" * 20_000 + "é,1.5\n".encode("latin-1")
    message = refusal(CsvSource, write(tmp_path / "x.csv", latin))
    assert "line 20,002 is not UTF-8 (byte 0xe9)" in message
    assert "iconv" in message
    path = write(tmp_path / "y.csv", codecs.BOM_UTF16_LE + ROWS.encode("utf-16-le"))
    assert "UTF-16" in refusal(CsvSource, path)
    assert "no text" in refusal(CsvSource, write(tmp_path / "z.csv", ROWS.encode("utf-16-le")))


def test_blanks_separate_one_by_one(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "0.5 1.5\n2.5 3.5\n4.5  5.5\n6.5 7.5\n")
    assert "line 3 has 3 cells" in refusal(CsvSource, path)


def test_a_quote_that_swallows_rows(tmp_path: Path) -> None:
    good = "".join(f"w{i},0.5,1.5,2.5,3.5\n" for i in range(4000))  # beyond the lines that are looked at first
    bad = good + '",0.5,1.5,2.5,3.5\n' + good + '",0.5,1.5,2.5,3.5\n' + good
    assert "whole rows in it" in refusal(CsvSource, write(tmp_path / "x.csv", bad))
    texts = good + '"a, long\ntext, with 1, 2\n\nlines",0.5,1.5,2.5,3.5\n' + good
    assert len(values_of(write(tmp_path / "y.csv", texts))) == 8001


def test_a_quote_that_is_never_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_csv_rows, "MAX_LINE", 100_000)
    good = "".join(f"w{i},0.5,1.5,2.5,3.5\n" for i in range(20_000))
    message = refusal(CsvSource, write(tmp_path / "x.csv", good + '"' + good))
    assert "close the quote" in message


def test_a_file_without_line_ends_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_csv_rows, "MAX_LINE", 100_000)
    refusal(CsvSource, write(tmp_path / "x.csv", ROWS + "1.5," * 200_000))


def test_nothing_but_blank_lines(tmp_path: Path) -> None:
    for text in ("\n\n\n", "  \n", "\ufeff\n"):
        refusal(CsvSource, write(tmp_path / "x.csv", text))


def test_chunks_and_quoted_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_csv_rows, "LEAST_CHUNK", 1)
    monkeypatch.setattr(_csv_rows, "MOST_CHUNK", 64)
    names = [f'a "{i}"\n\n,b' if i % 3 else f"w{i}" for i in range(90)]
    cells = ['"' + name.replace('"', '""') + '"' for name in names]
    path = write(tmp_path / "x.csv", "word,x,y\n" + "".join(f"{cell},{i}.5,1.5\n" for i, cell in enumerate(cells)))
    assert [row[0] for row in values_of(path)] == [i + 0.5 for i in range(90)]
    source = CsvSource.open(path)
    list(source.batches(1))
    assert source.names(range(90)) == names
    source_contract(CsvSource, path)


def test_select_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", ROWS)
    with pytest.raises(UsageError, match="`select` must be left out for csv"):
        CsvSource.open(path, select="x")


def test_vectors_as_lists_in_quotes_are_told_apart_from_ragged_rows(tmp_path: Path) -> None:
    path = tmp_path / "lists.csv"
    path.write_text("id,embedding\n" + "".join(f'{row},"[0.1, {row}.5, -2e-3]"\n' for row in range(20)))
    with pytest.raises(InputError, match="lists as text"):
        CsvSource.open(path)
