"""Trains rectifier and recognizer together, on rendered crops alone."""

import datetime
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from plate_models import weights
from plate_models.training.crop_cache import CropBatch, CropCache, render_batch
from plate_models.training.reader import Reader, corner_loss, exact_match, text_loss, to_input
from plate_models.training.run import (
    AveragedWeights,
    Budget,
    History,
    load_checkpoint,
    save_checkpoint,
)


@dataclass(frozen=True)
class RecognizerTraining:
    """One experiment.

    Attributes:
        folder: Checkpoints and curves go here; a second run goes on from them.
        cache: Rendered crops.
        minutes: Length of the training over all its runs; the learning rate follows.
        crops: Size of the rendered training set.
        held_out: Rendered crops that are not trained on, for the exact match.
        workers: Processes that render them.
        threads: CPU threads of the training itself.
        batch_size: Crops per optimizer step.
        peak_rate: Highest learning rate of AdamW.
        corner_weight: Weight of the rectifier's corner loss beside the CTC loss.
        theta_noise: Standard deviation added to theta, so that the recognizer meets
            plates that are not straightened perfectly.
        rectifier_first: Share of the minutes in which the rectifier learns alone, from
            corners: until it straightens, a recognizer can only learn blur.
        report_every: Steps between two reports.
        start_from: Folder of weights to start from; a net without a file there, or None,
            starts from random ones.
        release: Where the trained weights are written, or None to keep them in ``folder``.
        seed: Of the rendered set and of the order in which it is seen.
    """

    folder: Path = Path("runs/recognizer")
    cache: Path = Path(".cache/crops")
    minutes: float = 90.0
    crops: int = 200_000
    held_out: int = 1000
    workers: int = 1
    threads: int = 1
    batch_size: int = 64
    peak_rate: float = 1.5e-3
    corner_weight: float = 2.0
    theta_noise: float = 0.02
    rectifier_first: float = 0.05
    report_every: int = 1000
    start_from: Path | None = None
    release: Path | None = None
    seed: int = 50577


class Training:
    """The state of one run and its steps."""

    def __init__(self, config: RecognizerTraining) -> None:
        self.config = config
        torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        self.reader = Reader()
        nets = {"rectifier": self.reader.stn, "recognizer": self.reader.lprnet}
        for name, net in nets.items():
            file = f"{name}.safetensors"
            if config.start_from and (config.start_from / file).exists():
                weights.load(net, config.start_from / file)
        self.reader.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.AdamW(self.reader.parameters(), weight_decay=1e-2)
        self.averaged = AveragedWeights(self.reader)
        self.budget = Budget(config.minutes)
        self.samples = 0
        self.history = History(config.folder)
        self.checkpoint = config.folder / "checkpoint.pt"
        self._resume()
        self.rng = np.random.default_rng([config.seed, self.samples])

    def _resume(self) -> None:
        state = load_checkpoint(self.checkpoint)
        if state is not None:
            self.reader.load_state_dict(state["reader"])
            self.averaged.module.load_state_dict(state["averaged"])
            self.averaged.updates = state["updates"]
            self.optimizer.load_state_dict(state["optimizer"])
            self.samples = state["samples"]
            self.budget.spent_s = state["elapsed_s"]

    def save(self) -> None:
        """Write the checkpoint that the next run goes on from."""
        state = {
            "reader": self.reader.state_dict(),
            "averaged": self.averaged.module.state_dict(),
            "updates": self.averaged.updates,
            "optimizer": self.optimizer.state_dict(),
            "samples": self.samples,
            "elapsed_s": self.budget.elapsed_s,
        }
        save_checkpoint(self.checkpoint, state)

    def step(self, batch: CropBatch) -> tuple[float, float]:
        """Learn from one batch; returns its loss and its corner distance."""
        config = self.config
        self.reader.train()
        rate = self.budget.learning_rate(config.peak_rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        crops = to_input(batch.images, self.rng).contiguous(memory_format=torch.channels_last)
        alone = self.budget.progress < config.rectifier_first
        with torch.autocast("cpu", torch.bfloat16):
            if alone:
                corner = loss = corner_loss(self.reader.stn.locate(crops).float(), batch)
            else:
                lines = torch.from_numpy(batch.lines)
                logits, theta = self.reader(crops, lines, config.theta_noise)
                corner = corner_loss(theta, batch)
                loss = text_loss(logits, batch) + config.corner_weight * corner
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.reader.parameters(), 5.0)
        self.optimizer.step()
        self.averaged.update(self.reader)
        self.samples += len(batch.images)
        return loss.item(), corner.item()

    def release(self, match: dict[int, float]) -> None:
        """Write the averaged weights as safetensors, with how they came to be."""
        folder = self.config.release or self.config.folder
        summary = {
            "data": "rendered crops",
            "seed": self.config.seed,
            "samples_seen": self.samples,
            "minutes": round(self.budget.elapsed_s / 60, 1),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "rendered_exact_match_by_lines": {k: round(v, 4) for k, v in match.items()},
        }
        averaged = self.averaged.module
        for name, net in (("rectifier", averaged.stn), ("recognizer", averaged.lprnet)):
            origin = weights.started_from(self.config.start_from, name)
            weights.save(net, name, {**summary, "started_from": origin}, folder)  # type: ignore[arg-type]


def render_set(cache: CropCache, config: RecognizerTraining, stop: Event) -> None:
    """Render the training set into the cache, with a progress bar, until told to stop."""
    rendering = cache.fill(config.crops, config.workers)
    with tqdm(total=config.crops, unit="crop", desc="rendering") as bar, closing(rendering):
        for ready in rendering:
            bar.update(ready - bar.n)
            if stop.is_set():
                break


def _batches(cache: CropCache, size: int, rng: np.random.Generator) -> Iterator[CropBatch]:
    """Draw batches without end, from whatever has been rendered so far."""
    for step in itertools.count():
        if step % 200 == 0:
            cache.refresh()
        yield cache.draw(rng, size)


def train(config: RecognizerTraining) -> dict[int, float]:
    """Train until the budget is used, then write the weights.

    Rendering goes on in other processes while the first crops are already learnt from.

    Returns:
        Exact match of the averaged weights on rendered crops not trained on, by lines.
    """
    stop, cache = Event(), CropCache(config.cache, config.seed)
    with ThreadPoolExecutor(1) as renderer:
        rendering = renderer.submit(render_set, cache, config, stop)
        try:
            while not cache.refresh():
                if rendering.done():
                    rendering.result()
                time.sleep(0.5)
            return _train(Training(config), cache)
        finally:
            stop.set()


def _train(training: Training, cache: CropCache) -> dict[int, float]:
    config = training.config
    match: dict[int, float] = {}
    held_out = render_batch(np.random.default_rng(config.seed - 1), config.held_out)
    bar = tqdm(unit="crop", unit_scale=True, desc="recognizer", initial=training.samples)
    losses: list[tuple[float, float]] = []
    for batch in _batches(cache, config.batch_size, training.rng):
        losses.append(training.step(batch))
        bar.update(config.batch_size)
        done = training.budget.progress >= 1
        if done or len(losses) == config.report_every:
            training.averaged.module.eval()
            match = exact_match(training.averaged.module, held_out)
            loss, corner = np.mean(losses, axis=0)
            row = {"loss": loss, "corner": corner, "one_line": match[1], "two_lines": match[2]}
            bar.set_postfix({k: f"{v:.4f}" for k, v in row.items()})
            rate = training.budget.learning_rate(config.peak_rate)
            training.history.add({"samples": training.samples, **row, "rate": rate})
            training.save()
            losses.clear()
        if done:
            break
    training.release(match)
    return match
