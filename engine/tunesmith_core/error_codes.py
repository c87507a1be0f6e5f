"""The catalogue of error codes: one entry per cause, with the words a person reads.

The first part names the 43 causes that field reports taught us; the second part is our own. A new code is added only
for a cause that is not among them. `tests/core/test_errors.py` checks that every entry is complete.
"""

from __future__ import annotations

from dataclasses import dataclass

USER, ENVIRONMENT, RUN, BUG = "UserError", "EnvironmentProblem", "RunFailure", "BugError"
"""Who can act: the person, a repair, a changed run or us. Names of the classes in `errors`."""


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """What is said about a cause in general; the error itself adds the values of the case.

    Attributes:
        kind: who can act, which decides the class of the error and the exit code.
        title: a few words, without a full stop.
        cause: why this happens, one or two sentences.
        action: the next step.
    """

    kind: str
    title: str
    cause: str
    action: str


CODES: dict[str, ErrorCode] = {
    # Environment and GPU
    "torch-cpu-build": ErrorCode(
        ENVIRONMENT,
        "PyTorch has no CUDA support",
        "The CPU build of PyTorch is installed although this computer has an NVIDIA GPU.",
        "Repair the training environment: it installs the CUDA build.",
    ),
    "driver-missing": ErrorCode(
        ENVIRONMENT,
        "No NVIDIA driver or GPU found",
        "The NVIDIA driver is not installed, or this process can't see the GPU.",
        "Install the NVIDIA driver and restart the computer, or choose the CPU under Hardware.",
    ),
    "driver-too-old": ErrorCode(
        ENVIRONMENT,
        "The NVIDIA driver is too old",
        "The installed driver is older than this PyTorch build needs.",
        "Install a newer NVIDIA driver and restart the computer.",
    ),
    "no-kernel-image-for-arch": ErrorCode(
        ENVIRONMENT,
        "This PyTorch build does not support the GPU",
        "This PyTorch build does not support this GPU generation. The card is too new or too old for it.",
        "Repair the training environment: it chooses the build for this GPU.",
    ),
    "cuda-runtime-lib-missing": ErrorCode(
        ENVIRONMENT,
        "A CUDA library is missing",
        "cuDNN, cuBLAS or NVRTC can't be loaded.",
        "Repair the training environment.",
    ),
    "dll-load-failed-vcredist": ErrorCode(
        ENVIRONMENT,
        "A Windows library can't be loaded",
        "PyTorch needs the Microsoft Visual C++ runtime, which is missing or too old.",
        "Install the Microsoft Visual C++ 2015-2022 x64 runtime, then try again.",
    ),
    "numpy-abi-mismatch": ErrorCode(
        ENVIRONMENT,
        "A library was built for another NumPy",
        "A package built for NumPy 1 runs with NumPy 2.",
        "Repair the training environment.",
    ),
    "triton-not-installed": ErrorCode(
        ENVIRONMENT,
        "Triton is missing or has the wrong version",
        "Fused kernels need the Triton version that belongs to the installed PyTorch.",
        "Repair the training environment, or train without fused kernels.",
    ),
    "triton-arch-unsupported": ErrorCode(
        ENVIRONMENT,
        "Triton can't compile for this GPU",
        "This GPU generation is not supported by Triton.",
        "Train without fused kernels: PyTorch does the same work.",
    ),
    "ptxas-mismatch": ErrorCode(
        ENVIRONMENT,
        "The CUDA assembler does not match",
        "ptxas is missing, too old for this GPU, or taken from another CUDA version.",
        "Repair the training environment and clear the compile caches.",
    ),
    "triton-link-missing-python-libs": ErrorCode(
        ENVIRONMENT,
        "Triton can't build its launcher",
        "The Python installation is missing headers or libraries that Triton needs to compile.",
        "Repair the training environment with a full Python.",
    ),
    "triton-bad-cc-env": ErrorCode(
        ENVIRONMENT,
        "The variable CC is wrong",
        "CC names a folder or a compiler that does not work.",
        "Remove the variable CC, then start again.",
    ),
    "triton-dtype-mismatch": ErrorCode(
        ENVIRONMENT,
        "A kernel got mixed number formats",
        "A fused kernel was given half and single precision together.",
        "Train without fused kernels and send us the report.",
    ),
    "msvc-missing": ErrorCode(
        ENVIRONMENT,
        "A C++ compiler is missing",
        "torch.compile is turned on and looks for cl.exe.",
        "Turn torch.compile off. Tunesmith does not need it.",
    ),
    "bnb-cuda-lib-missing": ErrorCode(
        ENVIRONMENT,
        "The 4-bit library can't be loaded",
        "bitsandbytes has no library for this CUDA version, or its GPU library can't be loaded.",
        "Repair the training environment, or choose LoRA without 4-bit.",
    ),
    "flash-attn-missing": ErrorCode(
        ENVIRONMENT,
        "flash-attn is missing or does not match",
        "The model needs flash-attn, which is missing or built for another PyTorch.",
        "Choose the standard attention. Tunesmith does not need flash-attn.",
    ),
    "torch-too-old-for-transformers": ErrorCode(
        ENVIRONMENT,
        "PyTorch is too old",
        "The installed transformers needs PyTorch 2.6 or newer.",
        "Repair the training environment.",
    ),
    "transformers-version-mismatch": ErrorCode(
        ENVIRONMENT,
        "The model is newer than the environment",
        "The installed transformers does not support this type of model.",
        "Choose another model, or update the training environment.",
    ),
    "trl-peft-api-mismatch": ErrorCode(
        ENVIRONMENT,
        "The training libraries do not match each other",
        "A library was given an argument that its version does not support.",
        "Repair the training environment.",
    ),
    "lora-target-modules-missing": ErrorCode(
        USER,
        "The LoRA target modules do not exist in this model",
        "None of the named target modules is a linear layer of the base model.",
        'Set target modules to "all-linear", or name layers that the model has.',
    ),
    "tokenizer-missing-dep": ErrorCode(
        ENVIRONMENT,
        "The tokenizer can't be loaded",
        "The tokenizer needs a library that is missing.",
        "Repair the training environment.",
    ),
    "cuda-oom": ErrorCode(
        RUN,
        "The GPU memory is full",
        "The model, the batch and the optimizer need more memory than the GPU has free.",
        "Lower the micro-batch size or the context length, switch on activation checkpointing, or use a 4-bit base.",
    ),
    "nan-loss": ErrorCode(
        RUN,
        "The loss is not a number",
        "The numbers overflowed: the learning rate is too high for this data or number format.",
        "Lower the learning rate to a tenth, then start the run again.",
    ),
    "illegal-memory-access-packing": ErrorCode(
        RUN,
        "A GPU kernel read outside its memory",
        "A CUDA kernel failed, most often because of packing with an attention that does not support it.",
        "Switch packing off, then start the run again.",
    ),
    "device-mismatch": ErrorCode(
        RUN,
        "Parts of the model are on different devices",
        "Tensors were spread over several devices.",
        "Choose one GPU under Hardware.",
    ),
    "dataset-column-missing": ErrorCode(
        USER,
        "A column is missing in the data",
        "A row is missing a column of the column mapping.",
        "Map the columns again, or correct the row.",
    ),
    "dataset-parse-error": ErrorCode(
        USER,
        "The data file can't be read",
        "The file is malformed, has another encoding, or is not the format that its name says.",
        "Correct the named line, or choose another file.",
    ),
    "dataset-chat-template-missing": ErrorCode(
        USER,
        "The tokenizer has no chat template",
        "The model folder has no chat template, so chats can't be used. It may be a base model.",
        "Choose the instruct version of the model, or prompt/completion data.",
    ),
    "model-files-missing-or-corrupt": ErrorCode(
        USER,
        "The model can't be read",
        "A file that the model needs is missing, cut short or not what its name says.",
        "Download the model again, or choose another folder.",
    ),
    "hub-gated-401": ErrorCode(
        ENVIRONMENT,
        "You need access to this model",
        "The hub refused access: the model is gated or the token is missing.",
        "Accept the model's license on its page and enter your access token, or choose a local folder.",
    ),
    "hub-offline": ErrorCode(
        ENVIRONMENT,
        "The model hub can't be reached",
        "There is no network, or the hub did not answer.",
        "Check the network, or choose a model folder on this computer.",
    ),
    "hub-ssl-or-proxy": ErrorCode(
        ENVIRONMENT,
        "A proxy or a certificate stops the connection",
        "A proxy or security software intercepts the connection, or its certificate is not trusted.",
        "Set the proxy under Settings > Network, or choose a model folder on this computer.",
    ),
    "hf-symlink-privilege": ErrorCode(
        ENVIRONMENT,
        "Windows refused a symbolic link",
        "The download cache uses symbolic links, which need extra rights on Windows.",
        "Turn on Windows developer mode, or choose a model folder on this computer.",
    ),
    "disk-full": ErrorCode(
        ENVIRONMENT,
        "The disk is full",
        "There is not enough free space on the drive.",
        "Free some space or choose another drive, then try again.",
    ),
    "page-file-too-small": ErrorCode(
        ENVIRONMENT,
        "The Windows page file is too small",
        "Windows could not reserve enough memory.",
        "Let Windows manage the size of the page file, then restart the computer.",
    ),
    "path-too-long": ErrorCode(
        ENVIRONMENT,
        "A path is too long",
        "The system refuses paths of this length.",
        "Choose a folder with a shorter path.",
    ),
    "path-non-ascii": ErrorCode(
        ENVIRONMENT,
        "A path contains letters that a library can't handle",
        "A library fails with folder names outside the basic Latin letters.",
        "Choose a folder whose path has Latin letters, digits and no spaces.",
    ),
    "permission-or-antivirus": ErrorCode(
        ENVIRONMENT,
        "A file or folder can't be written or read",
        "The permission is missing, the folder is read-only, or a virus scanner holds the file.",
        "Choose a folder that you can write to, or allow Tunesmith in the virus scanner.",
    ),
    "text-encoding-locale": ErrorCode(
        ENVIRONMENT,
        "A text could not be decoded",
        "A program expected another text encoding.",
        "Save the file as UTF-8, then try again.",
    ),
    "windows-multiprocessing-spawn": ErrorCode(
        ENVIRONMENT,
        "Worker processes failed to start",
        "Windows starts worker processes in a way that this library did not expect.",
        "Turn worker processes off. Tunesmith does not need them.",
    ),
    "windows-distributed-libuv": ErrorCode(
        ENVIRONMENT,
        "Several processes are not supported here",
        "PyTorch for Windows is missing a part that several training processes need.",
        "Use one GPU, or run under WSL.",
    ),
    "wsl-libcuda-missing": ErrorCode(
        ENVIRONMENT,
        "WSL does not see the GPU",
        "The NVIDIA library of the Windows driver is not visible inside WSL.",
        "Update the NVIDIA driver on Windows, then run wsl --update.",
    ),
    "wsl-not-usable": ErrorCode(
        ENVIRONMENT,
        "WSL can't be used",
        "The Windows Subsystem for Linux is not installed or can't start.",
        "Install or update WSL.",
    ),
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
