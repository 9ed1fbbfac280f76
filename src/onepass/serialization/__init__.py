"""Model files: encoding of objects, the archive on disk, and atomic replacement of files."""

__all__: list[str] = []
