"""Tables as functions: the interpolants against SciPy's, the rows against the file, every irregular file in a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator, make_interp_spline

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.recording.table import Table
from onelayer.recording.target import as_target

RPM = np.array([800.0, 1200, 1500, 2100, 3000, 4200, 6000])
LOAD = np.array([0.0, 10, 25, 60, 100])


def engine() -> dict[str, np.ndarray]:
    """Torque over rpm and load as columns, in no order."""
    rpm, load = (side.ravel() for side in np.meshgrid(RPM, LOAD, indexing="ij"))
    torque = 40 + 1.2 * load * np.exp(-(((rpm - 3500) / 2200) ** 2)) + 3 * np.sin(rpm / 900)
    order = np.random.default_rng(0).permutation(len(rpm))
    return {"rpm": rpm[order], "load": load[order], "torque": torque[order], "note": np.zeros(len(rpm))}


def table(how: str) -> Table:
    return Table.read(engine(), inputs=["rpm", "load"], output="torque", interpolate=how)


def test_linear_is_the_multilinear_interpolant():
    t = table("linear")
    points = t.box.sample(2000)
    wanted = RegularGridInterpolator(t.axes, t.values)(points.numpy())
    assert np.abs(t(points).numpy() - wanted).max() < 1e-11 * np.abs(t.values).max()


def test_cubic_is_the_not_a_knot_spline():
    t = table("cubic")
    points = t.box.sample(200)
    along = make_interp_spline(t.axes[0], t.values, k=3)(points[:, 0].numpy())
    wanted = [make_interp_spline(t.axes[1], row, k=3)(p) for row, p in zip(along, points[:, 1].tolist(), strict=True)]
    assert np.abs(t(points).numpy() - np.array(wanted)).max() < 1e-10 * np.abs(t.values).max()


@pytest.mark.parametrize("how", ["linear", "cubic"])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_short_axes_have_the_polynomial_through_their_rows(how, count):
    nodes = np.linspace(-1, 2, count)
    t = Table.read({"a": nodes, "b": nodes**2 - nodes}, inputs=["a"], output="b", interpolate=how)
    assert t.rows_within < 1e-12
    if how == "cubic" and count >= 3:
        x = t.box.sample(100)
        assert torch.allclose(t(x), x[:, 0] ** 2 - x[:, 0], rtol=0, atol=1e-12)


def test_rows_are_met_and_counted():
    t = table("cubic")
    assert len(t) == len(RPM) * len(LOAD)
    assert 0 <= t.rows_within < 1e-9
    assert t.box == Box(rpm=(800, 6000), load=(0, 100))
    assert repr(t) == "Table(torque on rpm 7 x load 5, cubic)"


def test_a_csv_file_reads_as_its_columns(tmp_path):
    columns = engine()
    lines = ["rpm,load,torque"]
    rows = zip(*(columns[name].tolist() for name in ("rpm", "load", "torque")), strict=True)
    lines += [",".join(map(repr, row)) for row in rows]
    (tmp_path / "engine.csv").write_text("\n".join(lines))
    read = Table.read(tmp_path / "engine.csv", inputs=["rpm", "load"], output="torque")
    assert np.array_equal(read.values, table("linear").values)


def written(between=",", point=".", header="rpm,load,torque", before=""):
    """The engine as a text of rows, as spreadsheets of different countries write it."""
    columns = engine()
    rows = zip(*(columns[name].tolist() for name in ("rpm", "load", "torque")), strict=True)
    lines = [between.join(repr(value).replace(".", point) for value in row) for row in rows]
    return before + "\n".join([header.replace(",", between), *lines]) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        written(";"),
        written(";", ","),
        written("\t", ","),
        written(", "),
        written(before="\ufeff"),
        written(before="# test bench 3\n\n"),
        written(header="rpm [1/min],load[%],torque[Nm]"),
        written().replace("\n", "\r\n"),
        written().replace("rpm", '"rpm"'),
    ],
)
def test_a_csv_file_of_any_country_is_the_same_table(tmp_path, text):
    (tmp_path / "engine.csv").write_text(text, encoding="utf-8", newline="")
    read = Table.read(tmp_path / "engine.csv", inputs="rpm,load", output="torque")
    assert np.array_equal(read.values, table("linear").values)
    assert read.box.variables == ("rpm", "load")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "a line of column names"),
        ("rpm,load,torque\n", "at least one row"),
        ("rpm,load,torque\n1,2,3\n", "at least two different"),
        (written(header="1.0,2.0,3.0"), "first line must name the columns"),
        ("rpm,load,torque\n1,2,\n", "missing value in row 1"),
        ("rpm,load,torque\n1,n/a,3\n", "'load' has text 'n/a' in row 1"),
        ("rpm,load,torque\n1,2\n", "line 2 has 2 values, the header 3"),
        ("rpm,rpm,torque\n1,2,3\n", "name every column once"),
        ('rpm,load,torque\n"1,350.0",2,3\n', "text '1,350.0'"),
        (written(";", ",").replace("800,0;", "1.800,0;"), "text '1.800,0'"),
        # One thousand, or one: what was meant is not known.
        ("rpm\tload\ttorque\n1,000\t2\t0.5\n12,000\t2\t0.7\n500\t2\t0.3\n", "'rpm' has text '1,000' in row 1"),
        ("rpm;load;torque\n0.5;2;1\n1,234;2;1\n", "'rpm' has text '1,234' in row 2"),
        ("rpm;load;torque\n1;2;0.5\n2;2;3,25\n", "'torque' has text '3,25' in row 2"),
        # Fifteen hundred, or one and a half: elsewhere in the file a comma is the point.
        ("rpm;load;torque\n1.500;2;0,5\n2.500;2;0,7\n", "'rpm' has text '1.500' in row 1"),
        # Quotes that swallow rows.
        ('rpm,load,torque,by\n1,2,3,"a\n2,2,4,b\n3,2,5,c\n', "unexpected end of data"),
        ('rpm,load,torque,by\n1,2,3,"a\n2,2,4,b\n3,2,5,c"\n4,2,6,d\n', "line 2 has a value in quotes"),
    ],
)
def test_a_csv_file_that_is_no_table_is_told_in_a_line(tmp_path, text, line):
    (tmp_path / "engine.csv").write_text(text)
    with pytest.raises(OnelayerError, match=line) as error:
        Table.read(tmp_path / "engine.csv", inputs=["rpm", "load"], output="torque")
    assert "\n" not in str(error.value)


def test_columns_name_the_coordinates():
    columns = {"engine speed (rpm)": [0, 1], "y": [1, 2]}
    assert Table.read(columns, inputs=["engine speed (rpm)"], output="y").box.names == ("engine_speed[rpm]",)
    assert Table.read({"2nd": [0, 1], "y": [1, 2]}, inputs=["2nd"], output="y").box.names == ()
    with pytest.raises(OnelayerError, match="columns of 2, 3 rows"):
        Table.read({"a": [0, 1], "y": [1, 2, 3]}, inputs=["a"], output="y")
    direct = Table([[0, 1, 2], [0, 1]], [[1, 2], [3, 4], [5, 6]], ["a", "b"])
    assert direct([0.5, 1.0]) == 3.0
    for axes, values, names, line in (
        ([[0, 1]], [1, "n/a"], ["a"], "arrays of numbers"),
        ([[0, 1]], [1, 2], ["a", "b"], "one per axis"),
        ([[0, 1]], [1, 2, 3], ["a"], "do not fill"),
    ):
        with pytest.raises(OnelayerError, match=line):
            Table(axes, values, names)


def test_a_box_for_a_table_names_its_columns_in_their_order():
    with pytest.raises(OnelayerError, match="the box names load, rpm and the table rpm, load"):
        as_target(table("linear"), Box(load=(0, 100), rpm=(800, 6000)))


def test_a_table_is_a_target_with_a_formula():
    t = table("linear")
    target = as_target(t, t.box)
    assert target.formula == t.formula
    with pytest.raises(OnelayerError, match="table ends at"):
        as_target(t, Box([800.0, 0.0], [6001.0, 100.0]))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda c: {**c, "load": c["load"] * 0 + np.arange(35), "rpm": np.arange(35.0)}, "on a line"),
        (lambda c: {name: column[1:] for name, column in c.items()}, "not at all"),
        (lambda c: {name: np.append(column, column[0]) for name, column in c.items()}, "more than once"),
        (lambda c: {**c, "torque": np.where(np.arange(35) == 3, np.nan, c["torque"])}, "row 4"),
        (lambda c: {"rpm": c["rpm"], "torque": c["torque"]}, "no column 'load'"),
        (lambda c: {**c, "load": np.zeros(35)}, "more than once|at least two"),
    ],
)
def test_irregular_tables_are_refused_in_one_line(change, line):
    with pytest.raises(OnelayerError, match=line) as error:
        _ = Table.read(change(engine()), inputs=["rpm", "load"], output="torque").box
    assert "\n" not in str(error.value)


def test_unknown_interpolation_and_sources():
    with pytest.raises(OnelayerError, match="linear or cubic"):
        table("nearest")
    with pytest.raises(OnelayerError, match="not from int"):
        Table.read(3, inputs=["a"], output="b")


def test_what_is_no_number_of_a_column_is_named() -> None:
    hidden = np.ma.masked_array([0.0, 999.0, 2.0], mask=[False, True, False])
    with pytest.raises(OnelayerError, match="missing value in row 2"):
        Table.read({"x": np.arange(3.0), "y": hidden}, inputs="x", output="y")
    with pytest.raises(OnelayerError, match="must have a number"):
        Table.read({"x": ["0", "1_0", "20"], "y": [1.0, 2, 3]}, inputs="x", output="y")
    with pytest.raises(OnelayerError, match="must have a number"):
        Table.read({"x": np.arange(3).astype("datetime64[ns]"), "y": [1.0, 2, 3]}, inputs="x", output="y")
    for column in (np.arange(3).astype("datetime64[Y]"), [b"0", b"1_0", b"20"]):
        with pytest.raises(OnelayerError, match="must have a number"):
            Table.read({"x": column, "y": [1.0, 2, 3]}, inputs="x", output="y")
    with pytest.raises(OnelayerError, match="one list of numbers"):
        Table.read({"x": [[0.0], [1.0, 2.0]], "y": [1.0, 2, 3]}, inputs="x", output="y")


def test_numbers_with_points_beside_decimal_commas_are_numbers_where_they_can_be_no_thousands(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('x;y;said\n0.125;0,5;"one\nline"\n1.500;0,7;b\n')
    read = Table.read(tmp_path / "a.csv", inputs="x", output="y")
    assert read.axes[0].tolist() == [0.125, 1.5]
    assert read.values.tolist() == [0.5, 0.7]


@pytest.mark.parametrize("values", [np.ma.masked_array([0.0, 9, 2], mask=[False, True, False]), np.array([0, 1j, 2])])
def test_a_table_of_what_are_no_real_numbers_is_refused(values: np.ndarray) -> None:
    with pytest.raises(OnelayerError, match="arrays of numbers") as caught:
        Table((np.arange(3.0),), values, ("x",))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("distance", [1e-3, 3e-5, 1e-6])
def test_rows_that_stand_close_together_are_met(distance: float) -> None:
    centre = np.array([0.5, 0.45])
    around = centre + distance * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    rows = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [0.2, 0.7], [0.8, 0.3], [0.31, 0.29], *around, centre])
    values = np.zeros(len(rows))
    values[-1] = 1.0
    t = Table.read({"a": rows[:, 0], "b": rows[:, 1], "y": values}, inputs="a,b", output="y")
    assert t.rows_within < 1e-9


def test_a_row_that_no_triangle_has_is_refused() -> None:
    rows = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [0.2, 0.7], [0.8, 0.3], [0.5, 0.45], [0.5 + 2.0**-53, 0.45]])
    columns = {"a": rows[:, 0], "b": rows[:, 1], "y": np.array([0.0, 0, 0, 0, 0, 0, 0, 1])}
    with pytest.raises(OnelayerError, match="lies so near to others"):
        _ = Table.read(columns, inputs="a,b", output="y").formula


@pytest.mark.parametrize("axis", [[0, 1, 1 + 1e-12, 2, 3], [0, 1, 2, 3, 4, 1e8], [0, 1e-300, 1e-200, 1, 2]])
def test_a_cubic_that_would_miss_its_rows_is_refused(axis: list[float]) -> None:
    # On the second of them the coefficients of float64 miss a row by 0.006 of 0.96, on the third by 1e282.
    t = Table([axis], np.sin(np.arange(len(axis))), ["a"], interpolate="cubic")
    with pytest.raises(OnelayerError, match="too uneven for a cubic"):
        _ = t.formula
    assert Table([axis], np.sin(np.arange(len(axis))), ["a"]).rows_within < 1e-12


def test_a_gap_of_a_data_frame_is_a_missing_value():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [0, 1], "y": [1, pandas.NA]})
    with pytest.raises(OnelayerError, match="missing value in row 2"):
        Table.read(frame, inputs="a", output="y")
