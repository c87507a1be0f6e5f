"""`tunesmith vote`: two answers without names for every question, and which one a person finds better."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from tunesmith_core import files, terminal, votes
from tunesmith_core.chat_process import ChatProcess, read_line, tell_end
from tunesmith_core.conversations import system_prompt_of
from tunesmith_core.errors import EXIT_DONE, TunesmithError, wrap
from tunesmith_core.messages import Message
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.chat import BASE, ChatSpec
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run, open_run
from tunesmith_core.votes import BASE_MODEL, CHOICES, Contender, Contest, Kept

_CHOICES = Message("1: A is better, 2: B is better, 3: both the same, 4: both bad")

_KEYS = {str(number): choice for number, choice in enumerate(CHOICES, 1)}


def vote(arguments: Namespace) -> int:
    """Ask questions and take votes until standard input or the held-out questions end, and say how the votes stand."""
    run = open_run(arguments.run)
    if not arguments.result:
        _take_votes(run, arguments)
    kept = votes.load(run)
    if arguments.json:
        terminal.say_json(kept.to_dict())
    else:
        _tell(kept)
    if arguments.pairs:
        num = votes.save_pairs(arguments.pairs, kept)
        terminal.note(Message("Preference pairs: {num} in {path}", num=num, path=arguments.pairs))
    if arguments.spec:
        try:
            files.atomic_write_json(arguments.spec, votes.spec_to_train(run, kept).to_dict())
        except OSError as error:
            raise wrap(error) from error
        if few := votes.too_few(kept):
            terminal.note(few)
        terminal.note(Message("To train on these votes: tunesmith train {path}", path=arguments.spec))
    return EXIT_DONE


def _tell(kept: Kept) -> None:
    if kept.warning:
        terminal.note(kept.warning)
    if not kept.votes:
        terminal.say(Message("No votes yet."))
    for count in kept.counts():
        terminal.say(count.title)
        for text in count.words:
            terminal.say(text)


def _take_votes(run: Run, arguments: Namespace) -> None:
    against = Contender(checkpoint=arguments.against) if arguments.against else BASE_MODEL
    contenders = (Contender(checkpoint=arguments.checkpoint), against)
    if contenders[0] == contenders[1]:
        raise TunesmithError("usage", "--checkpoint and --against name the same weights.")
    system = system_prompt_of(run)
    questions = iter(votes.held_out_questions(run)) if arguments.held_out else _typed()
    terminal.note("Loading the model…")
    process = ChatProcess(ChatSpec(RunFolder(str(run.path)), arguments.checkpoint, arguments.device))
    booth = _Booth(run, process, contenders, system)
    try:
        booth.hold(questions)
    except KeyboardInterrupt:
        terminal.note()
    finally:
        outcome = process.close()
    tell_end(outcome)


def _typed() -> Iterator[str]:
    while line := read_line("? "):
        if line.strip():
            yield line.rstrip("\n")


class _Booth:
    """Shows answers without names; their order is drawn for every question."""

    def __init__(self, run: Run, process: ChatProcess, contenders: tuple[Contender, Contender], system: str) -> None:
        self._run, self._process, self._contenders, self._system = run, process, contenders, system
        self._checkpoint = contenders[0].checkpoint

    def hold(self, questions: Iterator[str]) -> None:
        """Take a vote on the answers to each question."""
        if not self._process.follow("ready", 1, lambda _event: None):
            return
        for question in questions:
            contest = Contest(votes.prompt(question, self._system), self._contenders)
            terminal.note(question)
            if not self._answer(contest):
                return
            if contest.error:
                terminal.show_error(contest.error)
            if contest.is_answered and not self._vote(contest):
                return

    def _answer(self, contest: Contest) -> bool:
        """Collect both answers; return False when the process has ended."""
        for contender in contest.order:
            if contender.side != BASE and contender.checkpoint != self._checkpoint:
                self._checkpoint = contender.checkpoint
                self._process.switch(contender.checkpoint)
            self._process.ask((contender.side,), {contender.side: contest.prompt}, votes.SAMPLING)

        def take(event: Event) -> None:
            if event.type == "ack" and not event.data["ok"]:
                raise TunesmithError("checkpoint-damaged", event.data["message"])
            contest.take(event)

        # Nothing is shown on the way: who answers first, or for longer, would tell the names.
        return self._process.follow("done", len(contest.order), take)

    def _vote(self, contest: Contest) -> bool:
        """Show both answers, keep the vote and tell the names; return False when standard input has ended."""
        a, b = contest.shown()
        for letter, given in (("A", a), ("B", b)):
            terminal.note(f"\n{letter}:\n{given.text}")
        terminal.note()
        terminal.note(_CHOICES)
        while (line := read_line("> ")).strip() not in _KEYS:
            if not line:
                return False
            terminal.note(_CHOICES)
        vote = contest.vote(_KEYS[line.strip()])
        votes.save(self._run, vote)
        if vote.note:
            terminal.note(vote.note)
        terminal.note(Message("A: {a}. B: {b}.", a=a.name, b=b.name))
        return True
