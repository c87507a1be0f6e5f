"""Getting packages: uv, indexes, downloads, and copies of installed files."""
