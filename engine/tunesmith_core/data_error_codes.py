"""The codes of what is wrong with a data file; see error_codes.py."""

from __future__ import annotations

from tunesmith_core.error_code import USER, ErrorCode

DATA_CODES: dict[str, ErrorCode] = {
    "dataset-empty": ErrorCode(
        USER,
        "The data has no rows",
        "The file is empty, or no row is left after skipping.",
        "Choose a file with at least one complete row.",
    ),
    "dataset-mixture": ErrorCode(
        USER,
        "The files are mixed by weight",
        "With weights, an epoch does not have every row once: some repeat, and others are left out of it.",
        "Nothing has to be done. To take every row once, set the weights to 0.",
    ),
    "dataset-rows-capped": ErrorCode(
        USER,
        "Some rows of a file are not used",
        "A file has more rows than its setting allows. The seed chooses which are used.",
        "Nothing has to be done. To use all rows, leave the setting empty.",
    ),
    "dataset-weight": ErrorCode(
        USER,
        "The weight of a file can't be met",
        "A file with a weight must have rows to train on, and enough weight for one of them.",
        "Change the weight, take the file out, or hold out fewer rows.",
    ),
    "dataset-groups": ErrorCode(
        USER,
        "The groups of the held-out rows",
        "Rows of a group are all trained or all held out, so the split needs a column that every row has, and at least "
        "two groups.",
        "Choose another group column, or none.",
    ),
    "dataset-classes": ErrorCode(
        USER,
        "The labels can't be learned",
        "Sorting texts needs at least two classes, each in the training rows. Predicting numbers needs numbers.",
        "Correct the labels, or map the column that holds them.",
    ),
    "dataset-unsuited": ErrorCode(
        USER,
        "The data doesn't suit the way to teach",
        "What is learned needs rows of another kind, such as texts with labels or solutions in steps.",
        "Choose data of that kind, or teach in another way.",
    ),
    "dataset-fields-unused": ErrorCode(
        USER,
        "The chat template leaves out a part of the data",
        "Messages have fields that this model's chat template does not write, so the model never sees them.",
        "Choose a model whose chat template supports these fields, or move their text into the content.",
    ),
    "dataset-parts-unread": ErrorCode(
        USER,
        "A part of the data is not read",
        "The file, folder or archive holds more than the rows that are read: other sheets or splits, or files of "
        "another kind.",
        "Choose the part that is to be read, or put the rows into one file.",
    ),
    "dataset-titles-unread": ErrorCode(
        USER,
        "Lines above the heading are not read",
        "Above the row that names the columns, the sheet has lines of a single cell, which are taken for a title.",
        "Delete these lines, or put the row that names the columns above them if they are data.",
    ),
    "dataset-percentages-unknown": ErrorCode(
        USER,
        "Percentages and amounts are read as bare numbers",
        "How numbers are shown can't be read from this workbook, so 5% becomes 0.05.",
        "Save the workbook as .xlsx to keep percentages and currencies as they are shown.",
    ),
    "dataset-rows-left-out": ErrorCode(
        USER,
        "Rows are left out on purpose",
        "Rows that are marked as bad answers are not what the model is to learn.",
        "Nothing has to be done.",
    ),
    "dataset-preference-pairs": ErrorCode(
        USER,
        "The data holds preference pairs",
        "Each row has a better and a worse answer. Supervised training learns from the better one.",
        "Nothing has to be done.",
    ),
    "dataset-labels": ErrorCode(
        USER,
        "The labels don't tell good answers from bad ones",
        "Every answer has the same label, or the labels are numbers of a scale.",
        "Label each answer good or bad, and have some of both.",
    ),
    "dataset-labels-unbalanced": ErrorCode(
        USER,
        "Far more answers are good than bad, or the other way round",
        "Each answer counts with the weight of its side, so the larger side decides what is learned.",
        "Raise the weight of the smaller side.",
    ),
    "dataset-probabilities-few": ErrorCode(
        USER,
        "The data keeps little of what the bigger model found likely",
        "Only the likeliest tokens are kept at each place. The rest is not learned.",
        "Keep more tokens at each place, up to 20. Answers that this program writes keep 16.",
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
    "dataset-rows-cut": ErrorCode(
        USER,
        "Rows are cut at the context length",
        "Some rows are longer than the context length. Where a cut goes through an answer, its stop token is lost.",
        "Raise the context length, or skip longer rows.",
    ),
    "dataset-rows-unlearned": ErrorCode(
        USER,
        "Rows are left out",
        "Within the context length, these rows have nothing to learn, or longer rows are skipped.",
        "Nothing has to be done if the run can do without these rows.",
    ),
    "dataset-rows-bad": ErrorCode(
        USER,
        "Bad rows are left out",
        "These rows can't be read or are missing a column, and the settings say that such rows are skipped.",
        "Nothing has to be done if the run can do without these rows. They can be corrected on the Data page.",
    ),
    "dataset-rows-split": ErrorCode(
        USER,
        "Texts are split at the context length",
        "Some texts are longer than the context length. They became several examples, and nothing of them is lost.",
        "Raise the context length to keep more of a text together.",
    ),
    "dataset-not-reviewed": ErrorCode(
        USER,
        "A model wrote rows that nobody has reviewed",
        "Questions and answers of a model can be wrong, and training on them teaches what is wrong.",
        "Review them on the Data page: keep, edit or discard each row.",
    ),
    "dataset-unknown": ErrorCode(
        USER,
        "The library has no such data set",
        "Data sets of the library are named when they are added.",
        "Run tunesmith data list to see them.",
    ),
    "dataset-name-taken": ErrorCode(
        USER,
        "The library already has a data set of this name",
        "It keeps other files under this name.",
        "Choose another name, or replace the files of that data set.",
    ),
    "dataset-encoding": ErrorCode(
        USER,
        "The data file is not UTF-8",
        "The program that wrote the file used an older encoding, as spreadsheets often do.",
        "Choose its encoding under Text encoding, or save it as UTF-8.",
    ),
}
