"""Model files: encoding of objects, archives on disk, and atomic replacement of files."""

__all__: list[str] = []
