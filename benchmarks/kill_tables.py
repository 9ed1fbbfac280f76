"""Table of the results of ``tests/service/kills.py``: kills by position and lost rows."""

from cells import Found, table

PLACES = {
    "any moment": "at a random time",
    "redis-server": "Redis itself, at a random time",
    "created": "after writing a new file under a temporary name",
    "in place": "after renaming it",
    "begun": "after beginning a transaction",
    "entry": "after appending a block to the log",
    "keys": "after storing idempotency keys",
    "pending rows": "after storing rows that await labels",
    "labels": "after deleting labelled rows",
    "snapshot": "after writing a snapshot",
    "pruned snapshots": "after deleting old snapshots",
    "trimmed log": "after deleting blocks before all snapshots",
    "swept keys": "after deleting old keys, before deleting expired rows",
    "before commit": "before the commit",
    "after commit": "after the commit",
    "published": "after publishing the model",
    "acknowledged": "after the acknowledgement",
}


def kills(found: Found) -> str:
    """Return kills by position and their outcome, for each source of rows."""
    ways = list(found["ways"].values())
    rows = [
        [words, *(f"{one['killed'].get(place, 0) or '–'}" for one in ways)]
        for place, words in PLACES.items()
    ]
    rows += [
        ["**kills**", *(f"**{sum(one['killed'].values()):,}**" for one in ways)],
        ["rows", *(f"{one['rows']:,}" for one in ways)],
        ["rows lost", *(f"{one['lost']:,}" for one in ways)],
        ["rows learned twice", *(f"{one['twice']:,}" for one in ways)],
        ["equal to an uninterrupted run", *(f"{one['equal']} of {one['rounds']}" for one in ways)],
    ]
    return table(["killed", *found["ways"]], rows)
