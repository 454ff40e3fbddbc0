"""A small ETL: find the files, clean them in parallel, load the valid rows, and write a summary.

`python etl.py` starts the workflow and works on it until it has ended. Its steps are kept in DIBS_URL, a SQLite file
here unless you name another store; the rows are loaded into `warehouse.db`, and the summary is `summary.json`.
"""

from __future__ import annotations

import contextlib
import csv
import json
import logging
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import dibs

ORDERS = Path(__file__).parent / "orders"
WAREHOUSE = Path("warehouse.db")
SUMMARY = Path("summary.json")

app = dibs.Dibs(os.environ.get("DIBS_URL", "sqlite:///etl.db"))


@app.task
def extract(ctx: dibs.Context) -> int:
    """How many files there are is known only now: this step adds the next ones, which are stored when it completes."""
    shops = sorted(file.stem for file in ORDERS.glob("*.csv"))
    for shop in shops:
        ctx.options(name=shop).step(clean, shop=shop)
    return len(shops)


@app.task(max_attempts=3, backoff=dibs.Backoff(base=0.1))
def clean(ctx: dibs.Context, shop: str) -> dict[str, Any]:
    """The rows that were read are kept in a checkpoint: the second attempt continues from there."""
    rows = ctx.checkpoint("read", lambda: read(shop))
    if shop == "east" and ctx.attempt == 1:
        raise ConnectionError("the price list does not answer")  # as any other service may
    good = [row for row in rows if row["pieces"].isdigit()]
    return {"shop": shop, "rows": [priced(row) for row in good], "rejected": len(rows) - len(good)}


@app.task
def load(ctx: dibs.Context) -> dict[str, int]:
    """Waits for `extract`, and so for all that it added. To load twice is to load once: a shop's rows are replaced."""
    parts = ctx.results.of(clean)
    with contextlib.closing(sqlite3.connect(WAREHOUSE)) as warehouse, warehouse:
        warehouse.execute("CREATE TABLE IF NOT EXISTS sales (shop TEXT, day TEXT, product TEXT, cents INTEGER)")
        for part in parts:
            warehouse.execute("DELETE FROM sales WHERE shop = ?", (part["shop"],))
            sales = [(part["shop"], row["day"], row["product"], row["cents"]) for row in part["rows"]]
            warehouse.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", sales)
    return {"loaded": sum(len(part["rows"]) for part in parts), "rejected": sum(part["rejected"] for part in parts)}


@app.task
def summarize(ctx: dibs.Context, title: str) -> dict[str, Any]:
    """The finalizer: runs once, when every step is done."""
    with contextlib.closing(sqlite3.connect(WAREHOUSE)) as warehouse:
        cents = dict(warehouse.execute("SELECT product, sum(cents) FROM sales GROUP BY product ORDER BY product"))
    summary = {"title": title, "cents": cents, **ctx.results["load"]}
    SUMMARY.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def read(shop: str) -> list[dict[str, str]]:
    print(f"reading {shop}.csv")
    with (ORDERS / f"{shop}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def priced(row: dict[str, str]) -> dict[str, Any]:
    return {
        "day": row["day"],
        "product": row["product"],
        "cents": int(row["pieces"]) * round(100 * float(row["price"])),
    }


def main() -> None:
    logging.basicConfig(stream=sys.stdout, format="the worker's log: %(message)s")
    with app:
        with app.workflow("etl", deadline=600) as flow:
            extracted = flow.step(extract)
            flow.step(load, after=extracted)
            flow.finalize(summarize, title="Sales by product")
        with app.worker(concurrency=4):
            done = flow.stored.wait(timeout=60)
    print(f"workflow {done.id} is {done.state}; {SUMMARY} says:")
    print(SUMMARY.read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
