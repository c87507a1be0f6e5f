"""The catalogue of error codes: one entry per cause, with the words a person reads.

The first part names the 43 causes that field reports taught us; the second part is our own. A new code is added only
for a cause that is not among them. `tests/core/test_errors.py` checks that every entry is complete.
"""

from __future__ import annotations

from tunesmith_core.environment_error_codes import ENVIRONMENT_CODES
from tunesmith_core.error_code import BUG, ENVIRONMENT, RUN, USER, ErrorCode

__all__ = ["BUG", "CODES", "ENVIRONMENT", "RUN", "SYMPTOMS", "USER", "ErrorCode"]

CODES: dict[str, ErrorCode] = {
    **ENVIRONMENT_CODES,
    # Input of the person
    "spec-invalid": ErrorCode(
        USER,
        "A setting is not valid",
        "A value of the run spec is missing, of the wrong type or out of range.",
        "Correct the named setting.",
    ),
    "spec-too-new": ErrorCode(
        USER,
        "The run spec is from a newer Tunesmith",
        "This version can't read the newer file.",
        "Update Tunesmith, or save the spec again with this version.",
    ),
    "model-pickle-refused": ErrorCode(
        USER,
        "The model contains pickle files",
        "Weights in pickle format can run any program when they are loaded, so they are refused.",
        "Choose a version of the model with safetensors files.",
    ),
    "model-kind-unsupported": ErrorCode(
        ENVIRONMENT,
        "This kind of model can't be trained here",
        "Tunesmith trains decoders, which write a text token by token. Encoders such as BERT and encoder-decoders such "
        "as T5 work differently.",
        "Choose a decoder, such as a Llama, Qwen, Gemma or Mistral model.",
    ),
    "dataset-empty": ErrorCode(
        USER,
        "The data has no rows",
        "The file is empty, or no row is left after skipping.",
        "Choose a file with at least one complete row.",
    ),
    "chat-template-no-stop": ErrorCode(
        USER,
        "The chat template has no stop token",
        "The template writes no token after an answer, so the model can't learn to end its answers.",
        "Choose a model whose chat template ends each answer with a token.",
    ),
    "dataset-fields-unused": ErrorCode(
        USER,
        "The chat template leaves out a part of the data",
        "Messages have fields that this model's chat template does not write, so the model never sees them.",
        "Choose a model whose chat template supports these fields, or move their text into the content.",
    ),
    "dataset-special-tokens": ErrorCode(
        USER,
        "The data contains special tokens",
        "Words such as <|im_end|> steer the model. In chats they are trained as text unless the settings say "
        "otherwise, in plain text as control tokens.",
        "Remove them from the data if they are left over from another program.",
    ),
    "dataset-raw-text": ErrorCode(
        USER,
        "The rows are joined as plain text",
        "The row format was set to plain text although the model has a chat template.",
        'Set the row format to "Prompt and response" to train them as a chat.',
    ),
    "adapter-class-differs": ErrorCode(
        USER,
        "The adapter loads in another class than the base model's own",
        "The base model holds more than the language model that was trained, and names its weights differently.",
        "Load the base model with AutoModelForCausalLM, as the adapter's card shows.",
    ),
    "dataset-rows-cut": ErrorCode(
        USER,
        "Rows are cut at the context length",
        "Some rows are longer than the context length. Where a cut goes through an answer, its stop token is lost.",
        "Raise the context length, or skip longer rows.",
    ),
    "chat-template-unclear": ErrorCode(
        USER,
        "The answers can't be told apart",
        "The chat template does not show which part of a chat the assistant says.",
        "Set Loss on to all tokens, or choose a model with another chat template.",
    ),
    "foreign-limit": ErrorCode(
        USER,
        "Too much time or memory for one row",
        "The chat template, the tokenizer or this row needed far more than usual, or crashed the process that reads "
        "it. It may be damaged, or made to do harm.",
        "Correct or remove the named row, or choose another model.",
    ),
    "no-trained-tokens": ErrorCode(
        USER,
        "Nothing would be learned",
        "No token of the data counts for the loss: the answers are empty or cut off by the context length.",
        "Raise the context length, or check which column holds the answers.",
    ),
    "usage": ErrorCode(
        USER,
        "The command is not valid",
        "The command line has a missing or unknown part.",
        "Run tunesmith --help.",
    ),
    "setting-invalid": ErrorCode(
        USER,
        "The setting can't be changed",
        "There is no such setting, or the value is not allowed.",
        "Correct the name or the value.",
    ),
    "file-unreadable": ErrorCode(
        USER,
        "The file can't be read",
        "It is missing, you may not open it, or it is not the kind of file that is needed.",
        "Check the path and the file.",
    ),
    "dataset-encoding": ErrorCode(
        USER,
        "The data file is not UTF-8",
        "The program that wrote the file used an older encoding, as spreadsheets often do.",
        "Choose its encoding under Text encoding, or save it as UTF-8.",
    ),
    # Runs and processes
    "run-not-found": ErrorCode(
        USER,
        "There is no such run",
        "No run folder has this name.",
        "Run tunesmith runs to list them.",
    ),
    "run-foreign": ErrorCode(
        USER,
        "This folder is not a run of Tunesmith",
        "Only runs that Tunesmith made, in its own folder, are deleted without asking.",
        "Look at what is in the folder. To move it to the trash anyway, add --force.",
    ),
    "run-exists": ErrorCode(
        USER,
        "There is another folder in the run's place",
        "A run is restored to the folder where it was.",
        "Rename the folder that is there now, then restore the run again.",
    ),
    "run-damaged": ErrorCode(
        ENVIRONMENT,
        "The run folder is damaged",
        "A file of the run is missing or unreadable.",
        "Restore the folder from a backup, or delete the run.",
    ),
    "run-busy": ErrorCode(
        USER,
        "The run is still in progress",
        "Another process is using this run.",
        "Wait until it ends, or stop it first.",
    ),
    "run-not-live": ErrorCode(
        USER,
        "The run is not in progress",
        "The run has ended, so it can't take commands.",
        "Resume it first.",
    ),
    "run-nothing-to-resume": ErrorCode(
        USER,
        "There is nothing to resume",
        "The run is finished, or it has no complete checkpoint and can only start again.",
        "Duplicate the run to start again.",
    ),
    "resume-refused": ErrorCode(
        USER,
        "The checkpoint no longer fits the run",
        "Settings or files that the trained weights belong to were changed since the checkpoint was saved.",
        "Change them back to resume, or duplicate the run to start again.",
    ),
    "nothing-to-export": ErrorCode(
        USER,
        "There is nothing to export yet",
        "The run has no adapter and no complete checkpoint that could be exported.",
        "Train until the first checkpoint is saved, then export again.",
    ),
    "checkpoint-missing": ErrorCode(
        USER,
        "The run has no checkpoint of this step",
        "A run keeps its newest checkpoints only.",
        "Choose a step that the run has.",
    ),
    "export-target-taken": ErrorCode(
        USER,
        "There is something else in this place",
        "An export never replaces a file or a folder.",
        "Choose another folder, or move what is there now.",
    ),
    "export-unsupported": ErrorCode(
        USER,
        "This model can't be exported in this format",
        "A part of the model, or a layer with an adapter, is of a kind that this format or Tunesmith does not support.",
        "Export the adapter instead.",
    ),
    "export-differs": ErrorCode(
        RUN,
        "The export is not equal to the trained model",
        "The same prompts were put to both, and their tokens or probabilities differ.",
        "Export in another format, and send us the report.",
    ),
    "other-program-failed": ErrorCode(
        USER,
        "Another program did not take the export",
        "The program is not installed, is not running, or refuses the file.",
        "Start the other program, then export again. What is exported already is not written again.",
    ),
    "adapter-not-restored": ErrorCode(
        RUN,
        "The saved adapter is incomplete",
        "PEFT would not restore every trained weight from it. The checkpoint holds them all.",
        "Choose target modules without the named ones, or send us the report. Keep the run: nothing is lost.",
    ),
    "checkpoint-damaged": ErrorCode(
        ENVIRONMENT,
        "A checkpoint is damaged",
        "A file of the checkpoint differs from what was saved.",
        "Resume continues from the newest complete checkpoint.",
    ),
    "engine-crashed": ErrorCode(
        RUN,
        "The engine ended unexpectedly",
        "The training process ended without a result.",
        "Resume the run, or start it again if it has no checkpoint. The log shows what happened before.",
    ),
    "engine-killed": ErrorCode(
        RUN,
        "The engine was killed",
        "The system or another program ended the training process. A system does so when memory runs out.",
        "Resume the run, or start it again if it has no checkpoint.",
    ),
    "engine-hung": ErrorCode(
        RUN,
        "The run makes no progress",
        "No step has ended for much longer than usual.",
        "Wait, or stop the run and resume it later.",
    ),
    "environment-missing": ErrorCode(
        ENVIRONMENT,
        "Training is not set up yet",
        "The training environment is not installed on this computer, or its folder is gone.",
        "Run: python3 installers/bootstrap.py",
    ),
    "device-miscomputes": ErrorCode(
        ENVIRONMENT,
        "The device computes wrong results",
        "The results of the GPU or the processor differ from exact arithmetic by more than rounding explains.",
        "Restart the computer, undo any overclocking, and update the driver. Then test the environment again.",
    ),
    "environment-build-failed": ErrorCode(
        ENVIRONMENT,
        "An environment could not be built",
        "A package could not be downloaded or installed.",
        "Check the network and the free space, then run the same command again. It continues where it stopped.",
    ),
    "environment-damaged": ErrorCode(
        ENVIRONMENT,
        "An environment is damaged",
        "Installed files are missing or changed, or files were added that do not belong there.",
        "Run: tunesmith repair",
    ),
    "system-library-missing": ErrorCode(
        ENVIRONMENT,
        "System libraries are missing",
        "The window needs libraries of the operating system that are not installed.",
        "Install the named packages, then try again.",
    ),
    "display-missing": ErrorCode(
        ENVIRONMENT,
        "There is no screen",
        "No display is available to open a window on.",
        "Use the command line: tunesmith train SPEC.json",
    ),
    "python-unsupported": ErrorCode(
        ENVIRONMENT,
        "This Python can't be used",
        "Tunesmith needs Python 3.11, 3.12 or 3.13.",
        "Install one of these versions, then try again.",
    ),
    "memory-full": ErrorCode(
        RUN,
        "Not enough memory",
        "The model and the batch need more memory than is free, or than this process may use.",
        "Close other programs, lower the micro-batch size or the context length, or choose a smaller model.",
    ),
    "resume-differs": ErrorCode(
        RUN,
        "The run continues under different conditions",
        "Settings, data, libraries or the device differ from those of the checkpoint.",
        "Continue. If you need exactly the same numbers, stop without saving, undo the named changes and resume.",
    ),
    "not-fused": ErrorCode(
        RUN,
        "A part of the model trains without fused kernels",
        "The fused kernels don't support this part or setting, or failed their test on this computer.",
        "No action needed. The results are the same, only slower.",
    ),
    "sample-failed": ErrorCode(
        RUN,
        "A sample could not be generated",
        "transformers could not generate text with this model or this prompt. Training itself is not affected.",
        "No action needed. The run continues. Remove the sample prompts if this happens again.",
    ),
    "gpu-busy": ErrorCode(
        USER,
        "The GPU has no room for this model now",
        "A run or another program uses the GPU's memory.",
        "Wait until the run has ended, or answer on the CPU, which is slower.",
    ),
    "chat-too-long": ErrorCode(
        USER,
        "The conversation is too long",
        "The model can read only so many tokens at once.",
        "Start a new conversation, or shorten the messages.",
    ),
    "protocol-mismatch": ErrorCode(
        ENVIRONMENT,
        "The engine and the program have different versions",
        "The journal was written by a newer version.",
        "Update Tunesmith.",
    ),
    "settings-damaged": ErrorCode(
        ENVIRONMENT,
        "The settings could not be read in full",
        "The settings file is damaged or contains invalid values.",
        "Check the Settings page and set what is missing. Saving repairs the file.",
    ),
    "window-not-answering": ErrorCode(
        ENVIRONMENT,
        "The open window does not respond",
        "Tunesmith is open already, and its window is busy or hangs.",
        "Wait a moment and try again, or end the other window in the task manager. Its runs continue.",
    ),
    "folder-unsuitable": ErrorCode(
        USER,
        "This folder can't be used for Tunesmith's data",
        "Folders of a cloud, a network or the system and removable drives lose files, lock them or are too slow.",
        "Choose a folder of your own on a drive inside this computer, such as D:\\Tunesmith or ~/tunesmith.",
    ),
    "bug": ErrorCode(
        BUG,
        "Tunesmith made a mistake",
        "Something unexpected happened.",
        "Copy the diagnostics and report them. Nothing of your run is lost.",
    ),
}

SYMPTOMS = frozenset({"bug", "engine-crashed", "engine-killed", "environment-build-failed"})
"""They say how something ended, not why: the output of the process may know more."""
