"""A first queue, told in the terminal: two workers, one failure, one cancellation, and what the store remembers.

Run it with `make demo`. It keeps its tasks in a temporary SQLite file and needs no server.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

import dibs


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, dibs.Dibs(f"sqlite:///{Path(folder) / 'first.db'}") as app:
        flaky = enqueue_everything(app)
        work_in_threads(app)
        look_back(app, flaky)


def enqueue_everything(app: dibs.Dibs) -> dibs.Task:
    print("Enqueue: six pictures, the last the most urgent, and one that is not wanted after all.")
    app.enqueue_many([dibs.NewTask("resize", {"picture": n}, priority=n) for n in range(1, 6)])
    flaky = app.enqueue("resize", {"picture": 6, "flaky": True}, priority=6, key="picture-6")
    again = app.enqueue("resize", {"picture": 6, "flaky": True}, priority=6, key="picture-6")
    print(f"  the key 'picture-6' was used twice: both times task {again.id}, deduplicated: {again.deduplicated}")
    unwanted = app.enqueue("resize", {"picture": 7}, delay=3600)
    print(f"  task {unwanted.id} is {unwanted.state}, then {app.cancel(unwanted.id).state}")
    return flaky


def work_in_threads(app: dibs.Dibs) -> None:
    print("\nWork: ada takes the most urgent first, bob the oldest. No task goes to both.")
    orders = {"ada": dibs.Order.PRIORITY, "bob": dibs.Order.FIFO}
    threads = [threading.Thread(target=work, args=(app, name, order)) for name, order in orders.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def work(app: dibs.Dibs, name: str, order: dibs.Order) -> None:
    while claim := app.claim(name, order=order, wait=0.8):
        try:
            result = resize(claim)
        except OSError as error:
            answer = app.fail(claim, error, retry_in=0.2)
        else:
            answer = app.complete(claim, result)
        print(f"  {name}: task {claim.task_id}, attempt {claim.attempt}, token {claim.token} -> {answer.state}")


def resize(claim: dibs.Claim) -> dict[str, int]:
    time.sleep(0.05)
    if claim.task.params.get("flaky") and claim.attempt == 1:
        raise OSError("the picture could not be read")
    return {"width": 800}


def look_back(app: dibs.Dibs, task: dibs.Task) -> None:
    print(f"\nLook: the queue now holds {app.stats().depth}.")
    print(f"The history of task {task.id}:")
    for entry in app.history(task.id):
        detail = f"  ({entry.detail['message']})" if entry.event is dibs.Event.FAILED and entry.detail else ""
        print(f"  {entry.at:%H:%M:%S.%f}  {entry.event:<9} -> {entry.to_state:<9} {entry.worker_id or '':<4}{detail}")


if __name__ == "__main__":
    main()
