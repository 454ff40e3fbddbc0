"""Wrong tokens, tasks of other workers, replayed requests, many at a time: each is refused and changes nothing.

Promises 2, 4 and 9. Intruders read the claimed tasks and write with nearly right claims. The workers send each outcome
up to three times; each gets a reply, and the outcome is written once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from dibs import ClaimLost, ClaimRef, Completed, DibsError, Outcome, Released, Task, TaskNotFound
from tests.stress.members import Member, Role, let_go, refusal
from tests.stress.reply_log import REFUSED, lines
from tests.stress.scenario import Scenario, Stage, main

HONOURED = "honoured"
"""A write of an intruder that was accepted and should have been refused."""

FAR = 10**6
"""A token that no task comes to, an id that no task has."""


def play(stage: Stage) -> None:
    stage.tally.must_refuse = True
    plain_workers = stage.start_processes(2, lease=5.0, linger=0.01, replays=True)
    intruders = stage.start_processes(2, kind=f"{__spec__.name}:intrude")
    for _ in stage.rounds():
        intruders.wait_for(5 if stage.short else 100)
        stage.tally.injected = sum(member.kinds().get(REFUSED, 0) for member in intruders.all)
    intruders.stop()
    plain_workers.stop()
    stage.checks.append(lambda _: honoured(stage))


def honoured(stage: Stage) -> Iterator[str]:
    for name, (kind, what, _) in lines(stage.folder):
        if kind == HONOURED:
            stage.tally.honoured += len(what)
            yield from (f"{name} was let in with {each}" for each in what)


class Intruder(Member):
    """Writes about what it does not hold, in several threads at once."""

    def go_on(self) -> None:
        threads = [threading.Thread(target=self._go_on) for _ in range(3)]
        for thread in threads:
            thread.start()
        while not self.stopping.wait(0.05):
            pass
        for thread in threads:
            thread.join()

    def _go_on(self) -> None:
        while not self.stopping.is_set():
            held = self.insist(lambda: self.app.list_tasks(state="claimed", limit=20))
            tries = [(claim, self.a_lie()) for task in held for claim in nearly_right(task, self.name)]
            if not tries:
                self.stopping.wait(0.005)
                continue
            self.finish(tries)
            self.renew([claim for claim, _ in tries])

    def a_lie(self) -> Outcome:
        return self.chance.choice([Completed({"token": -1, "by": self.name}), Released(self.chance.choice([0, 60]))])

    def finish(self, tries: list[tuple[ClaimRef, Outcome]]) -> None:
        answers = self.insist(lambda: self.app.finish(tries))
        refused = [refusal(*each) for each, answer in zip(tries, answers, strict=True) if is_refused(answer)]
        self.replies.write(REFUSED, refused)
        self.replies.write(HONOURED, [refusal(*each) for each in tries if refusal(*each) not in refused])

    def renew(self, claims: list[ClaimRef]) -> None:
        answers = self.insist(lambda: self.app.renew_many(claims, 600))
        held = [claim for claim, answer in zip(claims, answers, strict=True) if not is_refused(answer)]
        self.replies.write(HONOURED, [(claim.task_id, claim.token, "renewed", claim.worker_id) for claim in held])


def nearly_right(task: Task, name: str) -> Iterator[ClaimRef]:
    """Wrong references to the claim of a task. None of them can become valid while a request is on its way."""
    holder = task.worker_id or name
    yield ClaimRef(task.id, task.token, name)  # another worker's task
    yield ClaimRef(task.id, task.token + FAR, holder)  # a token that was never issued
    yield ClaimRef(task.id, 0, holder)  # a token from before the first
    yield ClaimRef(task.id + FAR, task.token, holder)  # a task that is not there


def is_refused(answer: object) -> bool:
    if isinstance(answer, DibsError) and not isinstance(answer, ClaimLost | TaskNotFound):
        raise answer
    return isinstance(answer, DibsError)


def intrude(role: Role) -> int:
    """Be an intruder."""
    return let_go(Intruder(role))


SCENARIO = Scenario(
    name="wrong_tokens",
    fault="wrong tokens, other workers' tasks, replayed outcomes, many at once",
    promises=(2, 4, 9),
    engines=("sqlite", "postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
