"""Write the tables that the pages' commands read into the current folder; they are made, none is real."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np


def houses(n: int = 90) -> None:
    """houses.csv, and new.csv without the price."""
    if find_spec("pandas") is None:
        return
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.uniform(40, 200, n), "year": rng.integers(1900, 2020, n)})
    table["garden"] = rng.choice(["yes", "no"], n)
    table["price"] = 3.0 * table["size"] + 50 * (table.garden == "yes") + rng.normal(0, 20, n)
    table[:70].to_csv("houses.csv", index=False)
    table[70:].drop(columns="price").to_csv("new.csv", index=False)


def cars(n: int = 406) -> None:
    """cars.csv.gz, with columns as those of a well-known table, and new.csv with others of the same kind."""
    if find_spec("pandas") is None:
        return
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"Name": [f"model {i}" for i in np.r_[:311, rng.integers(0, 311, n - 311)]]})
    table["Cylinders"] = rng.choice([4, 6, 8], n)
    table["Displacement"] = table.Cylinders * 45.0 + rng.normal(0, 20, n).round()
    power = table.Displacement * 0.5 + rng.normal(20, 10, n).round()
    table["Horsepower"] = power.where(np.arange(n) % 70 != 3)
    table["Weight_in_lbs"] = 1500 + table.Cylinders * 250 + rng.integers(-300, 300, n)
    table["Acceleration"] = rng.normal(15, 2, n).round(1)
    table["Year"] = [f"{1970 + i * 13 // n}-01-01" for i in range(n)]
    table["Origin"] = rng.choice(["USA", "Japan", "Europe"], n)
    miles = 55 - table.Weight_in_lbs / 100 + 0.03 * np.arange(n) + rng.normal(0, 2, n)
    table["Miles_per_Gallon"] = miles.round(1)
    table.to_csv("cars.csv.gz", index=False)
    table[::5].to_csv("new.csv", index=False)


def streams(n: int = 400) -> None:
    """sensors.csv with a number, and mail.csv with a kind."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)
    rows = [f"{a:.4f},{b:.4f},{c:.4f}" for (a, b), c in zip(X, y)]
    Path("sensors.csv").write_text("\n".join(["u,v,y", *rows]) + "\n")
    rows = [f"{a:.4f},{b:.4f},{'spam' if c > 0 else 'ham'}" for (a, b), c in zip(X, y)]
    Path("mail.csv").write_text("\n".join(["u,v,kind", *rows]) + "\n")


def calls(n: int = 80) -> None:
    """calls.csv with counts, mail.csv and mails/ with labels, and new.csv."""
    if find_spec("pandas") is None:
        return
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"u": rng.normal(size=n), "hours": rng.integers(1, 9, n)})
    table["calls"] = rng.poisson(table.hours * np.exp(0.5 * table.u))
    table.to_csv("calls.csv", index=False)
    table[:9].drop(columns="calls").to_csv("new.csv", index=False)
    mail = pd.DataFrame(rng.normal(size=(n, 2)), columns=["u", "v"])
    mail["spam"] = np.where(mail.u + 0.3 * mail.v > 0, "spam", "ham")
    mail.to_csv("mail.csv", index=False)
    Path("mails").mkdir(exist_ok=True)
    mail.to_parquet("mails/one.parquet")


def flights(n: int = 600) -> None:
    """flights/ and new-flights/ of parquet files, X.npy and y.npy."""
    if find_spec("pandas") is None:
        return
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(0, 24, (n, 2)), columns=["departure", "duration"])
    table["delay"] = 10 * np.sin(table.departure / 4) + rng.normal(0, 2, n)
    for folder in ("flights", "new-flights"):
        Path(folder).mkdir(exist_ok=True)
        for i in range(2):
            rows = table[i * n // 2 : (i + 1) * n // 2]
            rows = rows if folder == "flights" else rows.drop(columns="delay")
            rows.to_parquet(f"{folder}/{i}.parquet")
    np.save("X.npy", table[["departure", "duration"]].to_numpy())
    np.save("y.npy", table.delay.to_numpy())
