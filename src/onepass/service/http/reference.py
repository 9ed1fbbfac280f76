"""Page of the API, ``/docs``: a rendering of the route table, without scripts or other servers."""

import json
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from onepass.service.http.openapi import Endpoint, describe

_REFERENCE = re.compile("#/components/schemas/([A-Za-z0-9]+)")
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>API · onepass</title>
<link rel="icon" href="page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="page/page.css">
</head>
<body class="reference">
<header><h1>onepass {version}: HTTP API</h1></header>
<p>{about} <a href="openapi.json">openapi.json</a> describes it for programs;
<a href="./">the page</a> shows the learners.</p>
<nav class="panel" aria-label="Endpoints"><table>
<thead><tr><th scope="col">Endpoint</th><th scope="col">Role</th>
<th scope="col">Purpose</th></tr></thead>
<tbody>{rows}</tbody></table></nav>
<main>{sections}</main>
<h2>Types</h2>
<div class="panel">{types}</div>
<h2>Errors</h2>
<div class="panel"><table><tbody>{errors}</tbody></table></div>
</body>
</html>
"""


def reference(endpoints: Sequence[Endpoint], version: str) -> str:
    """Return the page in HTML.

    Parameters
    ----------
    endpoints : sequence of Endpoint
    version : str
        Version of onepass.
    """
    description = describe(endpoints, version)
    operations = [
        (each, description["paths"][each.path][each.method.lower()]) for each in endpoints
    ]
    errors = {
        status: answer["description"]
        for status, answer in operations[0][1]["responses"].items()
        if status >= "400"
    }
    return _PAGE.format(
        version=escape(version.partition("+")[0]),
        about=escape(description["info"]["description"]),
        rows="".join(_row(each, i) for i, each in enumerate(endpoints)),
        sections="".join(_section(*each, i) for i, each in enumerate(operations)),
        types="".join(
            _type(*each) for each in sorted(description["components"]["schemas"].items())
        ),
        errors="".join(
            f"<tr><th scope='row'>{status}</th><td>{escape(text)}</td></tr>"
            for status, text in errors.items()
        ),
    )


def _row(endpoint: Endpoint, i: int) -> str:
    role = endpoint.role or "–"
    return (
        f"<tr><th scope='row' class='code'><a href='#e{i}'>{endpoint.method} "
        f"{escape(endpoint.path)}</a></th><td>{role}</td><td>{escape(endpoint.summary)}</td></tr>"
    )


def _section(endpoint: Endpoint, operation: dict[str, Any], i: int) -> str:
    parts = [
        f"<h2 id='e{i}' class='code'>{endpoint.method} {escape(endpoint.path)}</h2>",
        f"<p>{escape(endpoint.summary)}</p>",
    ]
    if endpoint.example is not None:
        body = json.dumps(endpoint.example)
        method = "" if endpoint.method == "POST" else f" -X {endpoint.method}"
        path = endpoint.path.replace("{name}", "rls").replace("{version}", "1")
        parts.append(f"<pre>{escape(f'curl{method} localhost:8080{path} -d {body!r}')}</pre>")
    others = [each for each in operation["parameters"] if each["in"] != "path"]
    parts += [
        f"<p><code>{each['name']}</code>: {escape(each['description'])}</p>" for each in others
    ]
    request = operation.get("requestBody", {}).get("content", {})
    parts += [_bodies("Request", request)] if request else []
    parts.append(_bodies("Response", operation["responses"][str(endpoint.status)]["content"]))
    return f"<section class='panel'>{''.join(parts)}</section>"


def _bodies(title: str, content: dict[str, Any]) -> str:
    """Return the media types of a body, with links to the types of JSON."""
    kinds = [
        " ".join(
            [
                f"<code>{escape(kind)}</code>",
                *map(_link, dict.fromkeys(_REFERENCE.findall(str(body)))),
            ]
        )
        for kind, body in content.items()
    ]
    return f"<p>{title}: {', '.join(kinds)}</p>"


def _link(name: str) -> str:
    return f'<a href="#{name}">{name}</a>'


def _type(name: str, schema: dict[str, Any]) -> str:
    """Return the JSON schema of a type, with links to other types."""
    text = _REFERENCE.sub(
        lambda found: _link(found[1]), escape(json.dumps(schema, indent=1), quote=False)
    )
    return (
        f'<details id="{name}"><summary>{name}: {escape(schema.get("description", ""))}</summary>'
        f"<pre>{text}</pre></details>"
    )
