"""A recognizer and its rectifier, trained for another alphabet."""

from dataclasses import replace
from pathlib import Path

from plate_models import weights
from plate_models.spec import RECOGNIZER
from plate_models.spec_json import SpecError, Specs, check_spec
from plate_models.training.importing.checkpoints import read_state
from plate_models.training.importing.claims import CheckpointError
from plate_models.training.importing.yolov5 import origin_of
from plate_models.weights import WeightsFile, check_country, contract_of


def import_recognizer(
    lprnet: Path, stn: Path, alphabet: str, folder: Path, country: str = RECOGNIZER.country
) -> tuple[Path, Path]:
    """Turn state dicts of our LPRNet and STN into weights.

    Args:
        lprnet: State dict of ``nets.lprnet.LPRNet``, as ``.pt`` or safetensors.
        stn: State dict of ``nets.stn.STN`` that straightened its plates in training.
        alphabet: The recognizer's characters in class order, without the blank.
        folder: Where the weights go; made if need be.
        country: Whose plates it reads: the name of a file in ``countries/``.

    Returns:
        The recognizer's file and the rectifier's. Sizes, margins and normalisation are
        those of ``spec.py``: tensors don't tell them.

    Raises:
        CheckpointError: A file is damaged or hostile, or the alphabet can't be used.
        WeightsError: The country's formats are not at hand, or a tensor's name or shape is
            not that of the net; the message names it. Nothing was written.
    """
    specs = Specs(recognizer=replace(RECOGNIZER, alphabet=alphabet, country=country))
    try:
        check_spec(specs.recognizer, "recognizer")
    except SpecError as error:
        raise CheckpointError(str(error)) from error
    check_country(specs.recognizer, "recognizer")
    sources = {"recognizer": lprnet, "rectifier": stn}
    files = [
        WeightsFile(name, path, contract_of(name, specs), read_state(path))
        for name, path in sources.items()
    ]
    nets = [weights.build_from(file, specs) for file in files]
    folder.mkdir(parents=True, exist_ok=True)
    recognizer, rectifier = (
        weights.save(net, file.name, origin_of(file.path), folder, specs)
        for net, file in zip(nets, files, strict=True)
    )
    return recognizer, rectifier
