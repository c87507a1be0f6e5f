"""What the window does outside its own thread: runs, library, hardware, desktop, secrets."""
