"""A model of kube-scheduler's queue where an extender refuses: how long Pods that fit wait.

What is modelled of Kubernetes 1.37: one attempt at a time; an active queue in the order of the last
attempt (all priorities are equal); back-off in whole seconds, doubled with each refusal; who backs
off is asked about once the active queue is empty; and whenever a Pod is bound, all that were
refused are put back. Nothing of it is measured: it tells what settings and numbers come to, once an
attempt's time is known. With the two that were measured it says what was seen then.

    PYTHONPATH=tests python -m bench.queue_model --waiting 2000 --attempt-ms 10 --longest 60
"""

import argparse
import heapq
from dataclasses import dataclass, field
from math import floor, inf

from bench.measures import quantile

_ARRIVE_A_SECOND = 200


@dataclass(slots=True)
class _Pod:
    number: int
    fits: bool
    created: float
    asked: float
    """When it was asked about last, or created."""
    refusals: int = 0


@dataclass
class Queue:
    """Who is asked about next."""

    initial: float
    """Seconds of back-off after the first refusal."""
    longest: float
    """The most that it is doubled to."""
    active: list[tuple[float, int, _Pod]] = field(default_factory=list)
    backing_off: list[tuple[int, float, int, _Pod]] = field(default_factory=list)
    refused: list[_Pod] = field(default_factory=list)

    def add(self, pod: _Pod) -> None:
        """A Pod is asked about as soon as those before it were."""
        heapq.heappush(self.active, (pod.asked, pod.number, pod))

    def refuse(self, pod: _Pod, now: float) -> None:
        """A Pod waits for something to change."""
        pod.asked, pod.refusals = now, pod.refusals + 1
        self.refused.append(pod)

    def change(self, now: float) -> None:
        """Something changed: whoever was refused is to be asked about."""
        for pod in self.refused:
            until = floor(pod.asked + min(self.initial * 2 ** (pod.refusals - 1), self.longest))
            if until < floor(now):
                self.add(pod)
            else:
                heapq.heappush(self.backing_off, (until, pod.asked, pod.number, pod))
        self.refused = []

    def tick(self, now: float) -> None:
        """Another second has begun: some have backed off for long enough."""
        while self.backing_off and self.backing_off[0][0] < floor(now):
            self.add(heapq.heappop(self.backing_off)[-1])

    def next(self) -> _Pod | None:
        """Whom to ask about now."""
        queue = self.active or self.backing_off
        return heapq.heappop(queue)[-1] if queue else None


def waits(
    waiting: int,
    attempt: float,
    *,
    initial: float = 1.0,
    longest: float,
    after: float = 0.0,
    seconds: float = 60.0,
    a_second: float = 5.0,
) -> list[float]:
    """How long each Pod that fits waits, from its creation on; infinite where it is not bound.

    Args:
        waiting: Pods that fit nowhere; they are created first.
        attempt: seconds that kube-scheduler takes to ask about one Pod.
        initial: podInitialBackoffSeconds.
        longest: podMaxBackoffSeconds.
        after: seconds in which one Pod that fits is created a second, before those that count.
        seconds: in which those that count are created, and may be bound.
        a_second: how many of them are created in one.
    """
    begin = waiting / _ARRIVE_A_SECOND + after
    arrivals = [(number / _ARRIVE_A_SECOND, False) for number in range(waiting)]
    arrivals += [(float(second), True) for second in range(floor(begin) if after else 0)]
    arrivals += [(begin + n / a_second, True) for n in range(round(seconds * a_second))]
    coming = [_Pod(n, fits, at, at) for n, (at, fits) in enumerate(sorted(arrivals))][::-1]
    queue, now, took = Queue(initial, longest), 0.0, {}
    while now < begin + seconds:
        while coming and coming[-1].created <= now:
            queue.add(coming.pop())
        queue.tick(now)
        pod = queue.next()
        if pod is None:
            now = coming[-1].created if coming else inf
            continue
        now += attempt
        if pod.fits:
            took[pod.number] = now - pod.created
            queue.change(now)
        else:
            queue.refuse(pod, now)
    count = round(seconds * a_second)
    return [took.get(len(arrivals) - count + n, inf) for n in range(count)]


def main() -> None:
    """Print what the numbers given come to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--waiting", type=int, default=2000)
    parser.add_argument("--attempt-ms", type=float, default=10.0)
    parser.add_argument("--initial", type=float, default=1.0)
    parser.add_argument("--longest", type=float, default=2.0)
    parser.add_argument("--after", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    took = waits(
        options.waiting,
        options.attempt_ms / 1000,
        initial=options.initial,
        longest=options.longest,
        after=options.after,
        seconds=options.seconds,
    )
    bound = sum(each < inf for each in took)
    print(f"{bound} of {len(took)} bound, median after {quantile(took, 0.5):.2f} s", end=", ")
    print(f"p99 {quantile(took, 0.99):.2f} s")


if __name__ == "__main__":
    main()
