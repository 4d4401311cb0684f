"""The tables of a journal, and how a file is known to be one.

paid     every completion that was paid for, in the order in which they were committed
begun    episodes that have paid for anything; an index of `paid` would do, and cost a third of all writing
sums     what was used and paid, per role and model; a trigger keeps it, so it cannot disagree with `paid`
entries  episodes that have ended and whose records are in the files, without gaps from 0
held     episodes that have ended before an earlier one
notes    single values by name
"""

import sqlite3
from pathlib import Path

from refinesynth.errors import StorageError
from refinesynth.journal.faults import damaged

APPLICATION_ID = 0x52_46_53_59
"""Marks a file as a journal: "RFSY"."""

FORMAT = 1
"""Version of the tables; a program refuses what a newer one wrote."""

PAGE_SIZE = 4_096

# Answers are last in their rows: what is counted is read without them.
TABLES = (
    """CREATE TABLE paid (
        idx INTEGER NOT NULL, episode TEXT NOT NULL, attempt INTEGER NOT NULL, role TEXT NOT NULL,
        step INTEGER NOT NULL, digest BLOB NOT NULL, model TEXT NOT NULL, input_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
        cost_usd REAL, answer BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX paid_once ON paid (episode, role, step, digest)",
    "CREATE TABLE begun (idx INTEGER NOT NULL, episode TEXT NOT NULL, PRIMARY KEY (idx, episode)) WITHOUT ROWID",
    """CREATE TABLE sums (
        role TEXT NOT NULL, model TEXT NOT NULL, requests INTEGER NOT NULL, input_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
        cost_usd REAL NOT NULL, unpriced INTEGER NOT NULL, PRIMARY KEY (role, model)) WITHOUT ROWID""",
    """CREATE TRIGGER paid_is_summed AFTER INSERT ON paid BEGIN
        INSERT INTO sums VALUES (new.role, new.model, 1, new.input_tokens, new.cached_tokens, new.cache_write_tokens,
            new.output_tokens, coalesce(new.cost_usd, 0.0), new.cost_usd IS NULL)
        ON CONFLICT (role, model) DO UPDATE SET
            requests = requests + 1, input_tokens = input_tokens + excluded.input_tokens,
            cached_tokens = cached_tokens + excluded.cached_tokens,
            cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,
            output_tokens = output_tokens + excluded.output_tokens,
            cost_usd = cost_usd + excluded.cost_usd, unpriced = unpriced + excluded.unpriced;
        END""",
    """CREATE TABLE entries (
        idx INTEGER PRIMARY KEY, id TEXT NOT NULL, persona TEXT NOT NULL, accepted INTEGER NOT NULL,
        trajectories_end INTEGER NOT NULL, rejected_end INTEGER NOT NULL, line BLOB NOT NULL)""",
    """CREATE TABLE held (
        idx INTEGER PRIMARY KEY, id TEXT NOT NULL, persona TEXT NOT NULL, accepted INTEGER NOT NULL,
        line BLOB NOT NULL, records BLOB NOT NULL)""",
    "CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID",
)


def set_up(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file."""
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("BEGIN")
    for statement in TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is no journal, or one that this version cannot use.

    Raises:
        StorageError: It is another program's file, of a newer version, or damaged.
        sqlite3.Error: It cannot be read.
    """
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if application != APPLICATION_ID:
        raise damaged(path, "it is no journal of a run")
    if version != FORMAT:
        raise StorageError(
            f"{str(path)!r} was written by a {'newer' if version > FORMAT else 'different'} refinesynth: its format is "
            f"{version}, and this one reads format {FORMAT}. Use the version that wrote it, or a later one"
        )
    found = {row[0] for row in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
    if found != set(TABLES):
        raise damaged(path, "its tables are not those that a run makes")
