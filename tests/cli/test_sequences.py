"""sort, memorize and the tokens layout on the command line: files, checks, pictures, and one line for bad tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onelayer.cli.console import run
from onelayer.cli.options import app

TABLE = "u,v,y\n1,2,red\n3,4.5,blue\n0,1,red\n"
BUILDS = {
    "sort": ["sort", "--length", "3", "--eps", "0.05"],
    "subsets": ["sort", "--length", "3", "--eps", "1e-4", "--kind", "subsets", "--upper", "2"],
    "memorize": ["memorize", "table.csv", "--target", "y"],
    "gather": ["approximate", "x1*x2; sin(x1)", "--domain", "-1:1, -1:1", "--eps", "0.02", "--layout", "tokens"],
    "superpose": ["approximate", "log(exp(x1)+exp(x2))", "--domain", "0:1, 0:1", "--eps", "0.02", "--layout", "tokens"],
    "max": ["approximate", "max(x1, x2)", "--domain", "0:1, 0:1", "--eps", "0.05", "--layout", "tokens"],
}


@pytest.mark.parametrize(
    "name",
    [name if name in ("sort", "memorize", "gather") else pytest.param(name, marks=pytest.mark.slow) for name in BUILDS],
)
def test_built_saved_checked_and_drawn(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(TABLE)
    assert run(app, [*BUILDS[name], "--out", "made", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["status"] == "proved"
    assert data["saved"] == "made"
    assert {"model.safetensors", "certificate.json", "argument.json", "picture.png"} <= {
        path.name for path in (tmp_path / "made").iterdir()
    }
    assert run(app, ["check", "made", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    if name == "memorize":  # the others are drawn as any function is
        assert run(app, ["eval", "made", "3, 4.5; 0, 1"]) == 0
        assert capsys.readouterr().out.split() == ["blue", "red"]
        assert run(app, ["draw", "made", "--out", "again.svg"]) == 0
        assert (tmp_path / "again.svg").stat().st_size > 5_000


def test_between_the_rows_of_a_table_nothing_is_said_to_be_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("u,y\n0,0.5\n1,2.5\n3,-1\n")
    made = str(tmp_path / "made")
    assert run(app, ["memorize", str(table), "--target", "y", "--out", made]) == 0
    assert "at the rows of the table alone" in capsys.readouterr().out
    assert run(app, ["eval", made, "1; 0.5; -0.0; 4", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [point["in_domain"] for point in data["points"]] == [True, False, True, False]
    assert data["claim"].endswith("at the rows of the table alone")
    assert run(app, ["eval", made, "1; 0.5"]) == 0
    assert ["no row of the table" in line for line in capsys.readouterr().out.splitlines()] == [False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("u,v,y\n1,,red\n", "missing value in row 1"),
        ("u,v,y\n1,x,red\n", "text 'x' in row 1"),
        ("u,v,y\n1,2,red\n1,2,blue\n", "rows 1 and 2"),
        ("u,v,y\n1,2\n", "line 2 has 2 values"),
        ("u,v\n1,2\n", "no column 'y'"),
        ("", "column names"),
        ("\ufeffu,u,y\n1,2,3\n", "every column once"),
    ],
)
def test_bad_tables_cost_one_line_and_status_two(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.csv").write_text(text, encoding="utf-8")
    assert run(app, ["memorize", str(tmp_path / "bad.csv"), "--target", "y"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["sort", "--length", "0", "--eps", "0.1"],
        ["sort", "--length", "30", "--eps", "0.1", "--kind", "subsets"],
        ["sort", "--length", "3", "--eps", "nan"],
        ["sort", "--length", "3", "--eps", "0.1", "--lower", "2"],
        ["memorize", "nowhere.csv", "--target", "y"],
    ],
)
def test_bad_arguments_cost_one_line_and_status_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
