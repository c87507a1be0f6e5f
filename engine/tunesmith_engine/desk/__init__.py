"""The data desk: checks data before a run and writes repaired, split, mixed or converted copies of it."""
