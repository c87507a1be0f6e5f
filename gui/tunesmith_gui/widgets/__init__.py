"""Reusable widgets; each has an accessible name and takes its look from the theme by property."""
