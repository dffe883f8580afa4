"""What senders saw of a fault, and what it left on the machine."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from plates.benchmarks.footprint import part_of
from plates.benchmarks.steady_load import Attempt, SteadyLoad
from plates.serving import processes

# What /readyz may rely on: a photo that was read so long ago (PLATES_READY_MAX_AGE_S).
_READY_AGE_S = 2.0
# Between the photo that /readyz itself has read and the senders' next one.
_NEXT_PHOTO_S = 1.5
# A deadline's answer is a little late by nature.
_LATE_S = 1.0


@dataclass(frozen=True)
class Seen:
    """What senders saw from a fault on.

    Attributes:
        statuses: HTTP status to number of answers.
        told: Titles of the problems, and why connections broke, to their numbers.
        without_retry_after: Refusals (429, 503) that don't say when to come again.
        dropped: Requests that got no answer.
        wrong: Answers with a plate missing.
        late: Answers after their deadline.
        lies: Answers of /readyz that it is, while no photo was read.
        healthy_s: Seconds until all went well, and went on so; None if it never did.
    """

    statuses: dict[int, int]
    told: dict[str, int]
    without_retry_after: int
    dropped: int
    wrong: int
    late: int
    lies: int
    healthy_s: float | None


@dataclass(frozen=True)
class Leftovers:
    """What is there and belongs to nobody.

    Attributes:
        segments: In /dev/shm, of the service, but of none of its model processes.
        orphans: Processes of the service that are not below it any more.
    """

    segments: int
    orphans: int


def seen_of(load: SteadyLoad, since_s: float, deadline_s: float) -> Seen:
    """Sum up what senders saw.

    Args:
        load: Under way, or over.
        since_s: When the fault happened, on the clock of `time.monotonic`.
        deadline_s: What the senders gave with each request.
    """
    photos = sorted(load.photos, key=lambda attempt: attempt.ended_s)
    after = [attempt for attempt in photos if attempt.ended_s >= since_s]
    ready = [attempt for attempt in list(load.readiness) if attempt.ended_s >= since_s]
    answers = [attempt for attempt in after if attempt.status]
    refusals = [attempt for attempt in answers if attempt.status in (429, 503)]
    return Seen(
        statuses=dict(Counter(attempt.status for attempt in answers)),
        told=dict(Counter(attempt.told for attempt in after if attempt.told)),
        without_retry_after=sum(not attempt.retry_after for attempt in refusals),
        dropped=len(after) - len(answers),
        wrong=sum(attempt.status == 200 and not attempt.right for attempt in answers),
        late=sum(a.ended_s - a.began_s > deadline_s + _LATE_S for a in answers),
        lies=len(lies(photos, ready)),
        healthy_s=_healthy_s([after, ready], since_s),
    )


def lies(photos: Sequence[Attempt], ready: Sequence[Attempt]) -> list[Attempt]:
    """Find the answers of /readyz that a photo could not have been the reason for.

    Args:
        photos: In the order in which they ended.
        ready: Answers of /readyz.

    Returns:
        Those that say ready, though no photo had been read right for longer than it may
        rely on, nor was one soon after.
    """
    reads = [attempt.ended_s for attempt in photos if attempt.right]
    return [
        attempt
        for attempt in ready
        if attempt.right
        and not any(
            attempt.began_s - _READY_AGE_S <= read <= attempt.ended_s + _NEXT_PHOTO_S
            for read in reads
        )
    ]


def leftovers_of(pid: int) -> Leftovers:
    """Look for what a service has left.

    Args:
        pid: Its first process, running or ended.
    """
    prefix = f"plates_{pid}_"
    family = [process for process in processes.descendants(pid) if not process.dead]
    stubs = [p.pid for p in family if part_of(p.command, False).startswith("stub ")]
    mapped = processes.mapped_by(stubs, prefix)
    segments = [path for path in processes.leftovers(prefix) if path not in mapped]
    below = {process.pid for process in family}
    orphans = [p for p in processes.mentioning(prefix) if not p.dead and p.pid not in below]
    return Leftovers(len(segments), len(orphans))


def _healthy_s(streams: Sequence[Sequence[Attempt]], since_s: float) -> float | None:
    """When each stream had its first good answer after its last bad one."""
    moments = []
    for stream in streams:
        # 429 is no illness.
        bad = [a.ended_s for a in stream if not a.right and a.status != 429]
        last_bad = max(bad, default=since_s)
        good = [a.ended_s for a in stream if a.right and a.began_s >= since_s]
        later = [moment for moment in good if moment > last_bad]
        if not later:
            return None
        moments.append(min(later))
    return max(moments) - since_s
