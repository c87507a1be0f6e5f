"""The window around the pages: rail, page stack, shortcuts, palette, banners, activity."""
