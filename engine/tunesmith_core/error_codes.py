"""The catalogue of error codes: one entry per cause, with the words a person reads.

The first part names the 43 causes that field reports taught us; the second part is our own. A new code is added only
for a cause that is not among them. `tests/core/test_errors.py` checks that every entry is complete.
"""

from __future__ import annotations

from tunesmith_core.data_error_codes import DATA_CODES
from tunesmith_core.environment_error_codes import ENVIRONMENT_CODES
from tunesmith_core.error_code import BUG, ENVIRONMENT, RUN, USER, ErrorCode

__all__ = ["BUG", "CODES", "ENVIRONMENT", "RUN", "SYMPTOMS", "USER", "ErrorCode"]

CODES: dict[str, ErrorCode] = {
    **ENVIRONMENT_CODES,
    **DATA_CODES,
    # Input of the person
    "trained-parts-missing": ErrorCode(
        USER,
        "The model has no such part to train",
        "A part or module that is to be trained whole is not in the base model.",
        "Name parts that the model has.",
    ),
    "experts-without-adapter": ErrorCode(
        USER,
        "The experts get no adapter",
        "Experts that are stored in one weight support only LoRA in all layers, without DoRA, dropout and special "
        "initial values. The run trains the other layers.",
        "To leave the experts out without this warning, name the modules that get an adapter.",
    ),
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
    "model-deleted": ErrorCode(
        USER,
        "The base model is in the trash",
        "The model was deleted, and what a run has trained works only together with its base model.",
        "Restore the model. On the command line, tunesmith trash lists it.",
    ),
    "model-not-downloaded": ErrorCode(
        USER,
        "The model is not on this computer yet",
        "A run names a model by its hub id. It is downloaded before the run, so that training needs no network.",
        "Download the model first.",
    ),
    "keyring-missing": ErrorCode(
        ENVIRONMENT,
        "The access token can't be kept",
        "This system has no keyring, or it is locked. Tunesmith writes no token into a file.",
        "Unlock or install the keyring of your system, or start Tunesmith with the variable HF_TOKEN.",
    ),
    "model-needed": ErrorCode(
        USER,
        "Runs need this model",
        "Without its base model, a run can't be resumed, asked or exported.",
        "Keep it, or add --force. It goes to the trash and can be restored.",
    ),
    "hub-not-found": ErrorCode(
        USER,
        "The hub has no such model",
        "There is no repository of this name, or no such revision of it, or it is private.",
        "Check the name. For a private model, enter an access token of an account that may see it.",
    ),
    "hub-no-model": ErrorCode(
        USER,
        "There is no model to train",
        "A model to train has its weights in safetensors files beside a config.json.",
        "Choose another repository.",
    ),
    "hub-token-refused": ErrorCode(
        USER,
        "The hub refused the access token",
        "The token has expired, was deleted, or belongs to another hub.",
        "Create a new token in the settings of your account on the hub and enter it, or remove the old one.",
    ),
    "hub-write-refused": ErrorCode(
        USER,
        "The hub refused the upload",
        "There is no access token, or its account may not write into this repository.",
        "Enter an access token with the right to write, and upload to your own account or an organization of yours.",
    ),
    "hub-name-taken": ErrorCode(
        USER,
        "The repository exists already",
        "There is a repository of this name that holds something else. Nothing in it was changed.",
        "Choose another name.",
    ),
    "hub-busy": ErrorCode(
        ENVIRONMENT,
        "The model hub refuses more requests now",
        "The hub limits how much one computer may ask, or has a fault of its own.",
        "Try again later. What is downloaded already is kept.",
    ),
    "hub-answer-wrong": ErrorCode(
        ENVIRONMENT,
        "The model hub gave a wrong answer",
        "What arrived is not what a hub says: a mirror, a proxy or a log-in page may have answered instead.",
        "Check the address of the hub and the proxy, then try again. What is downloaded already is kept.",
    ),
    "download-damaged": ErrorCode(
        ENVIRONMENT,
        "A downloaded file is damaged",
        "What arrived differs from the hash that the hub names, so it was deleted.",
        "Try again. If it happens again, a mirror or a proxy changes the file: choose another.",
    ),
    "hub-owner-changed": ErrorCode(
        USER,
        "The model belongs to somebody else now",
        "A name on a hub can be given up and taken over, and what is behind it may be another model.",
        "Look at the model's page. If you trust its owner, use its new name.",
    ),
    "model-hashes-unknown": ErrorCode(
        USER,
        "The model can't be verified",
        "It was not downloaded by Tunesmith, so nothing says what its files should hold.",
        "Download the model again to get one that can be verified.",
    ),
    "model-exists": ErrorCode(
        USER,
        "There is a model of this name already",
        "The folder of models contains one with the same name.",
        "Remove it first, or rename the folder or file that you import.",
    ),
    "download-busy": ErrorCode(
        USER,
        "The model is being downloaded already",
        "Another window or command downloads the same model.",
        "Wait until it ends, or stop it first.",
    ),
    "model-kind-unsupported": ErrorCode(
        ENVIRONMENT,
        "This kind of model can't be trained here",
        "Tunesmith trains decoders, which write a text token by token. Encoders such as BERT and encoder-decoders such "
        "as T5 work differently. Models that need code of their own can't be loaded, since it is never run.",
        "Choose a decoder, such as a Llama, Qwen, Gemma or Mistral model.",
    ),
    "model-settings-unsupported": ErrorCode(
        USER,
        "transformers can't run this model with its settings",
        "The weights are complete and match config.json. The code that transformers has for this type of model fails "
        "with these settings together.",
        "Choose another model. If config.json was changed by hand, restore the original.",
    ),
    "chat-template-tokens-missing": ErrorCode(
        USER,
        "The model lacks tokens of the chat template",
        "The chosen chat template is written with tokens that the model's vocabulary does not have.",
        'Choose the chat template "plain", which any model takes, or a model of that family.',
    ),
    "chat-template-no-stop": ErrorCode(
        USER,
        "The chat template has no stop token",
        "The template writes no token after an answer, so the model can't learn to end its answers.",
        "Choose a model whose chat template ends each answer with a token.",
    ),
    "adapter-class-differs": ErrorCode(
        USER,
        "The adapter loads in another class than the base model's own",
        "The base model holds more than the language model that was trained, and names its weights differently.",
        "Load the base model with AutoModelForCausalLM, as the adapter's card shows.",
    ),
    "questions-none": ErrorCode(
        USER,
        "The model wrote no questions",
        "Small models often don't keep to the form in which questions and answers are asked for.",
        "Choose a larger instruct model, or ask for fewer questions per passage.",
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
    "few-trained-tokens": ErrorCode(
        USER,
        "Hardly anything would be learned",
        "Less than 1% of the tokens counts for the loss: the answers are very short or mostly cut off.",
        "Check which column holds the answers, and raise the context length.",
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
    # Runs and processes
    "run-not-found": ErrorCode(
        USER,
        "There is no such run",
        "No run folder has this name.",
        "Run tunesmith runs to list them.",
    ),
    "run-ambiguous": ErrorCode(
        USER,
        "Several runs have this name",
        "A name alone does not tell which run is meant.",
        "Use the id of one of them instead.",
    ),
    "run-foreign": ErrorCode(
        USER,
        "This folder is not a run of Tunesmith",
        "Only runs that Tunesmith made, in its own folder, are deleted without asking.",
        "Look at what is in the folder. To move it to the trash anyway, add --force.",
    ),
    "restore-blocked": ErrorCode(
        USER,
        "There is another folder in its place",
        "A deleted run or model is restored to the folder where it was.",
        "Rename the folder that is there now, then restore again.",
    ),
    "not-in-trash": ErrorCode(
        USER,
        "This is not in the trash",
        "It was never deleted, was restored already, or was deleted for good.",
        "Run tunesmith trash to list what can be restored.",
    ),
    "trash-ambiguous": ErrorCode(
        USER,
        "Several deleted items have this name",
        "A name alone does not tell which one is meant.",
        "Run tunesmith trash to see when each was deleted, then restore one by its id.",
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
    "base-model-differs": ErrorCode(
        USER,
        "The base model is another one",
        "The run was trained on other weights, another configuration or another tokenizer than the folder holds now.",
        "Restore the named files or choose the earlier folder to resume, or duplicate the run to start again.",
    ),
    "adapter-unfit": ErrorCode(
        USER,
        "This adapter can't be used here",
        "Its folder is incomplete, it is of another kind, or it belongs to another base model.",
        "Choose another adapter folder, or the base model that this adapter was trained on.",
    ),
    "resume-refused": ErrorCode(
        USER,
        "The checkpoint no longer fits the run",
        "Settings or files that the trained weights belong to were changed since the checkpoint was saved.",
        "Change them back to resume, or duplicate the run to start again.",
    ),
    "nothing-to-export": ErrorCode(
        USER,
        "The run has not saved a model yet",
        "The run has no adapter and no complete checkpoint.",
        "Train until the first checkpoint is saved, then try again.",
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
        "The process ended without a result.",
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
    "teacher-unsuitable": ErrorCode(
        USER,
        "This model can't be the bigger model",
        "A model learns from a bigger one token by token, so both must have the same tokenizer.",
        "Choose a bigger model of the same family as the base model.",
    ),
    "reward-failed": ErrorCode(
        USER,
        "A reward could not be computed",
        "Your own Python file raised an error or gave something that is not a number, or no reward suits the data.",
        "Correct the named file or setting, then start or resume the run.",
    ),
    "rewards-collapsed": ErrorCode(
        RUN,
        "The rewards teach nothing, or the wrong thing",
        "Learning needs answers to one prompt that differ in their reward. A reward that can be had without the task "
        "is exploited.",
        "Look at the answers on the page of the run, then change the rewards or the data.",
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
