"""The table of what ``tests/service/kills.py`` found: where it killed, and what was lost."""

from cells import Found, table

PLACES = {
    "any moment": "at any moment",
    "redis-server": "Redis itself, at any moment",
    "made": "a new file is written, under another name",
    "in place": "… and is in its place",
    "begun": "a transaction is begun",
    "entry": "a block is in the log",
    "keys": "keys of requests are noted",
    "asked": "rows that wait for answers are kept",
    "answered": "rows that are answered wait no longer",
    "snapshot": "a snapshot is written",
    "pruned snapshots": "old snapshots are removed",
    "trimmed log": "blocks before all snapshots are removed",
    "swept keys": "old keys are removed, but not rows that waited too long",
    "before commit": "it is to be committed",
    "after commit": "it is committed",
    "published": "others see it",
    "acknowledged": "it is acknowledged",
}


def kills(found: Found) -> str:
    """Kills by place, and what came of them, for each way in which rows came."""
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
        ["equal to the unbroken run", *(f"{one['equal']} of {one['rounds']}" for one in ways)],
    ]
    return table(["killed when", *found["ways"]], rows)
