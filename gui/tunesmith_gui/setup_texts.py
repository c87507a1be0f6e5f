"""Names that `tunesmith_setup` gives to checks, phases and parts, for Qt's translation tools.

The window may not import that package, so its words are listed here; a name that is missing is shown in English.
"""

from PySide6.QtCore import QT_TRANSLATE_NOOP

SETUP_TEXTS = (
    QT_TRANSLATE_NOOP("Core", "Free disk space"),
    QT_TRANSLATE_NOOP("Core", "Data folder"),
    QT_TRANSLATE_NOOP("Core", "Long paths"),
    QT_TRANSLATE_NOOP("Core", "Memory of the computer"),
    QT_TRANSLATE_NOOP("Core", "Python"),
    QT_TRANSLATE_NOOP("Core", "Files of the program"),
    QT_TRANSLATE_NOOP("Core", "Python of the launcher environment"),
    QT_TRANSLATE_NOOP("Core", "Files of the launcher environment"),
    QT_TRANSLATE_NOOP("Core", "Python of the training environment"),
    QT_TRANSLATE_NOOP("Core", "Files of the training environment"),
    QT_TRANSLATE_NOOP("Core", "GPU and driver"),
    QT_TRANSLATE_NOOP("Core", "GPU memory"),
    QT_TRANSLATE_NOOP("Core", "PyTorch"),
    QT_TRANSLATE_NOOP("Core", "Visual C++ runtime"),
    QT_TRANSLATE_NOOP("Core", "Triton"),
    QT_TRANSLATE_NOOP("Core", "4-bit library (bitsandbytes)"),
    QT_TRANSLATE_NOOP("Core", "Libraries"),
    QT_TRANSLATE_NOOP("Core", "Proof of training"),
    QT_TRANSLATE_NOOP("Core", "Compile caches"),
    QT_TRANSLATE_NOOP("Core", "Other environments"),
    QT_TRANSLATE_NOOP("Core", "Interrupted installations"),
    QT_TRANSLATE_NOOP("Core", "Variables of your shell"),
    QT_TRANSLATE_NOOP("Core", "Security software"),
    QT_TRANSLATE_NOOP("Core", "Windows Subsystem for Linux"),
    QT_TRANSLATE_NOOP("Core", "This computer"),
    QT_TRANSLATE_NOOP("Core", "System libraries"),
    QT_TRANSLATE_NOOP("Core", "Launcher environment"),
    QT_TRANSLATE_NOOP("Core", "Training environment"),
    QT_TRANSLATE_NOOP("Core", "Base model of the example"),
    QT_TRANSLATE_NOOP("Core", "Libraries for training"),
    QT_TRANSLATE_NOOP("Core", "Libraries of the window"),
    QT_TRANSLATE_NOOP("Core", "Unpacked downloads, removed afterwards"),
    QT_TRANSLATE_NOOP("Core", "Download"),
    QT_TRANSLATE_NOOP("Core", "Example"),
    QT_TRANSLATE_NOOP("Core", "Import the libraries"),
    QT_TRANSLATE_NOOP("Core", "Reach the GPUs"),
    QT_TRANSLATE_NOOP("Core", "Multiply matrices on every device"),
    QT_TRANSLATE_NOOP("Core", "Compile and run a Triton kernel"),
    QT_TRANSLATE_NOOP("Core", "Compute with 4-bit weights"),
    QT_TRANSLATE_NOOP("Core", "Train a tiny LoRA model"),
)
